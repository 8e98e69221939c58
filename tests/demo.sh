#!/bin/bash
# demo.sh BUILD_DIR: real work through a real mount: clone, edit, grep, build, log, unmount.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

build=$(cd -- "$1" && pwd -P)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/isthmus-demo-XXXXXX")
ws=$tmp/ws
started=$SECONDS
export PATH=$build/fs:$build/tools:$PATH HOME=$tmp/home
export XDG_RUNTIME_DIR=$tmp/run XDG_STATE_HOME=$tmp/state XDG_CACHE_HOME=$tmp/cache
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

finish() {
	local status=$?

	cd /
	if grep -qF " $ws fuse" /proc/self/mounts; then
		isthmus umount "$ws" || umount -l "$ws" || true
	fi
	rm -rf --one-file-system "$tmp"
	[ "$status" = 0 ] || printf '\ndemo FAILED (exit code %s)\n' "$status" >&2
}
trap finish EXIT
trap 'exit 130' INT TERM

step() {
	printf '\n# %s\n' "$*"
}

# Prints the command, with quotes where it needs them, and runs it; the demo ends when it fails.
run() {
	local word line='$'

	for word; do
		word=${word//"$tmp"/\$D}
		[[ $word =~ ^[A-Za-z0-9_.,:=/\$+-]+$ ]] || word=${word@Q}
		line+=" $word"
	done
	printf '%s\n' "$line"
	"$@"
}

tool() {
	run isthmus tool "$@"
}

# Refuses to go on unless what was printed has TEXT in it.
must_show() {
	local text=$1 output
	shift

	output=$("$@") || { printf '%s\n' "$output"; return 1; }
	printf '%s\n' "$output"
	[[ $output == *"$text"* ]] || { echo "demo: '$text' is missing above" >&2; return 1; }
}

mkdir -m 700 "$HOME" "$XDG_RUNTIME_DIR" "$XDG_STATE_HOME" "$XDG_CACHE_HOME"
mkdir "$ws" "$tmp/far"

step "A workspace at the far end of the wire protocol (D=$tmp), mounted at \$D/ws"
run isthmus mount "helper:$tmp/far" "$ws"
run isthmus list

step "Programs that know files work on it: clone this repository into the mount"
run git clone -q --no-hardlinks "$PWD" "$ws/isthmus"
run git -C "$ws/isthmus" log --oneline -n 3
cd "$ws/isthmus"

step "An agent's tools: read, edit, grep"
must_show workspace_ops tool grep --pattern 'struct workspace_ops \{' --path ops
must_show 'isthmus' tool read --path README.md --limit 3
tool edit --path README.md --json \
	'{"edits":[{"old_text":"# isthmus\n","new_text":"# isthmus, edited through a mount\n"}]}'
must_show 'edited through a mount' run git diff --unified=0 README.md

step "Build and run a C program at the workspace, with the bash tool"
cd "$ws"
tool write --path hello/hello.c --content '#include <stdio.h>

int main(void)
{
	printf("hello from %s\n", __FILE__);
	return 0;
}
'
cd hello
must_show "$tmp/far/hello" tool bash --yes --command 'cc -Wall -o hello hello.c && ./hello && pwd'
must_show "-rwx" run ls -l "$ws/hello/hello"

step "A command at the workspace passes its exit code on"
code=0
run isthmus exec "$ws" -- sh -c 'exit 7' || code=$?
echo "exit code $code"
[ "$code" = 7 ]

step "What happened to the workspace, and who did it"
must_show hello run isthmus log "$ws" --path 'hello/*'
must_show exec run isthmus log "$ws" --op exec
run isthmus status "$ws"

step "Unmount: the files are where they always were"
cd "$tmp"
run isthmus umount "$ws"
must_show 'edited through a mount' run head -n 1 "$tmp/far/isthmus/README.md"
printf '\ndemo passed in %d s\n' $((SECONDS - started))
