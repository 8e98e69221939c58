#!/bin/bash
# bootstrap.sh PROBE: the helper gets to the far end and runs there, whatever it finds.  ssh is
# played by a script that hands the command to a login shell, as sshd does.
set -euo pipefail

probe=$1
dir=$(mktemp -d /tmp/isthmus-bootstrap-XXXXXX)
mounts=()
cleanup() {
	for mount in "${mounts[@]}"; do umount "$mount"; done
	rm -rf "$dir"
}
trap cleanup EXIT
failed=0
mkdir "$dir/ws" "$dir/home" "$dir/tmp"

# play LOGIN_SHELL [PATH]: writes the ssh that ends in this login shell.
play() {
	cat >"$dir/ssh" <<-END
		#!/bin/bash
		for last; do :; done
		${before:-}
		exec env -i HOME="$dir/home" PATH="${2:-$PATH}" TMPDIR="$dir/tmp" ${more:-} $1 -c "\$last"
	END
	chmod +x "$dir/ssh"
}

# expect NAME PATTERN: what the probe says must match.
expect() {
	local said

	said=$("$probe" "ssh://box$dir/ws" "ssh_command=$dir/ssh" timeout=5 2>&1 || true)
	if [[ $said =~ $2 ]]; then
		echo "good: $1"
	else
		echo "FAILED: $1: it said: $said" >&2
		failed=1
	fi
}

# uploaded NAME: the helper is where it belongs, and nothing else.
uploaded() {
	local files

	files=$(cd "$dir" && find home tmp -type f | sort | tr '\n' ' ')
	[[ $files =~ $2 ]] || { echo "FAILED: $1: left \"$files\"" >&2; failed=1; }
}

fresh() {
	rm -rf "${dir:?}/home" "${dir:?}/tmp"
	mkdir "$dir/home" "$dir/tmp"
}

for shell in sh dash bash "busybox sh" fish csh tcsh zsh; do
	command -v "${shell%% *}" >/dev/null || continue
	fresh
	play "$shell"
	expect "login shell $shell" '^ok '
	uploaded "login shell $shell" '^home/.cache/isthmus/isthmus-helper-[0-9a-f]+ $'
	file=$(echo "$dir"/home/.cache/isthmus/*)
	inode=$(stat -c %i "$file")
	touch -d '40 days ago' "$file"
	expect "login shell $shell, second time" '^ok '
	[ "$(stat -c %i "$file")" = "$inode" ] || { echo "FAILED: $shell: uploaded twice" >&2; failed=1; }
	[ -n "$(find "$file" -newermt '1 hour ago')" ] || { echo "FAILED: $shell: use is not noted" >&2; failed=1; }
done

play sh
fresh
before='echo "Welcome to box"; head -c 3000000 /dev/zero; echo'
play sh
expect "noise before the shell" '^ok '
before='head -c 20000000 /dev/zero | tr "\0" x; sleep 5'
play sh
expect "endless noise" '^error .*it said first: "xxxx'
before='echo "This account is currently not available."; exit 1'
play sh
expect "no shell" '^error .*This account is currently not available.*must be able to run commands'
before='cat >/dev/null'
play sh
expect "a shell that reads all" '^error .*must ask nothing.*without reading its standard input'
# What a .bashrc may do.
for before in 'read -r answer' 'read -r first; read -r second' 'exec dash' 'exec sh' 'exec bash --norc'; do
	fresh
	play sh
	expect "it begins with $before" '^ok '
done
before=
fresh
play /bin/sh /nowhere
expect "a PATH without any program" '^ok '

for umask in 000 777; do
	fresh
	before="umask $umask"
	play sh
	expect "umask $umask" '^ok '
	[ "$(stat -c %a "$dir/home/.cache" "$dir/home/.cache/isthmus" | tr '\n' ' ')" = "700 700 " ] ||
		{ echo "FAILED: umask $umask: $(ls -ldR "$dir/home/.cache")" >&2; failed=1; }
done
before=

fresh
mkdir -p "$dir/home/.cache/isthmus"
printf 'garbage' >"$dir/home/.cache/isthmus/isthmus-helper-0123456789abcdef"
for file in $("$probe" "ssh://box$dir/ws" "ssh_command=$dir/ssh" >/dev/null 2>&1; ls "$dir/home/.cache/isthmus"); do
	printf 'damaged' >"$dir/home/.cache/isthmus/$file"
done
play sh
expect "a damaged helper in the cache is replaced" '^ok '

fresh
mkdir -p "$dir/home/.cache/isthmus"
touch -d '40 days ago' "$dir/home/.cache/isthmus/"{isthmus-helper-0123456789abcdef,notes,upload.123}
touch -d '20 days ago' "$dir/home/.cache/isthmus/isthmus-helper-fedcba9876543210"
expect "old helpers" '^ok '
uploaded "helpers that nobody used for 30 days are removed" \
	'^home/.cache/isthmus/isthmus-helper-[0-9a-f]+ home/.cache/isthmus/isthmus-helper-[0-9a-f]+ home/.cache/isthmus/notes $'
[ -e "$dir/home/.cache/isthmus/isthmus-helper-fedcba9876543210" ] ||
	{ echo "FAILED: a helper in use was removed" >&2; failed=1; }

fresh
: >"$dir/home/.cache"
play sh
expect "home that cannot be written" '^ok '
uploaded "home that cannot be written" '^home/.cache tmp/isthmus-[0-9]+/isthmus-helper-[0-9a-f]+ $'

if [ "$(id -u)" = 0 ]; then
	fresh
	mkdir "$dir/home/.cache"
	mount -t tmpfs -o noexec tmpfs "$dir/home/.cache" && mounts+=("$dir/home/.cache")
	play sh
	expect "noexec home" '^ok '
	uploaded "noexec home" '^tmp/isthmus-0/isthmus-helper-[0-9a-f]+ $'
	rm -rf "$dir/tmp"/*
	mount -o remount,exec,size=64k "$dir/home/.cache"
	expect "home without room" '^ok '
	uploaded "home without room" '^tmp/isthmus-0/isthmus-helper-[0-9a-f]+ $'
	rm -rf "$dir/tmp"/*
	umount "$dir/home/.cache"
	mounts=()
fi

# A process that looks at a mount whose server is silent hangs: the bootstrap must not look.  The mount is
# in a namespace of its own.
own_mounts=$(dirname "$0")/../mounted/own_mounts.sh
silent='exec 5<>/dev/fuse; mount -i -t fuse -o fd=5,rootmode=40000,user_id=0,group_id=0 silent "$0"; exec "$@"'
if [ "$(id -u)" = 0 ] && bash "$own_mounts" bash -c "$silent" "$dir/tmp" true 2>/dev/null; then
	fresh
	mkdir "$dir/silent"
	before="exec 5>&-"
	play sh
	said=$(bash "$own_mounts" bash -c "$silent" "$dir/silent" "$probe" "ssh://box$dir/ws" "ssh_command=$dir/ssh" 2>&1 || true)
	if [[ $said =~ ^ok ]]; then
		echo "good: a mount whose server is silent"
	else
		echo "FAILED: a mount whose server is silent: it said: $said" >&2
		failed=1
	fi
	before=
else
	echo "skipped: a mount whose server is silent: only root can make one"
fi

# claim MACHINE: a uname that claims to be another machine, before all others in PATH.
claim() {
	fresh
	printf '#!/bin/sh\n[ "$1" = -m ] && echo %s || echo Linux\n' "$1" >"$dir/bin/uname"
	chmod +x "$dir/bin/uname"
}

mkdir "$dir/bin"
play sh "$dir/bin:$PATH"
claim s390x
expect "a machine without a helper" '^error .*Linux s390x'
uploaded "a machine without a helper" '^$'
# This machine cannot run what it gets then, and says which it was.
helpers=$(dirname "$probe")/../../backends/remote
for claimed in aarch64/aarch64 arm64/aarch64 armv7l/armv7l armv8l/armv7l riscv64/riscv64; do
	helper=$helpers/isthmus-helper-${claimed#*/}
	[ -e "$helper" ] && ! "$helper" --check >/dev/null 2>&1 || continue
	claim "${claimed%/*}"
	hash=$(sha256sum <"$helper" | head -c 16)
	expect "a machine of kind ${claimed%/*}" "^error .*does not run .*isthmus-helper-$hash"
	uploaded "a machine of kind ${claimed%/*}" '^$'
done

# busybox alone, and nothing to compute SHA-256 with.
rm "$dir/bin/uname"
if busybox cksum </dev/null >/dev/null 2>&1; then
	for applet in sh uname cksum head mkdir chmod rm mv dd id rmdir printf; do
		ln -s "$(command -v busybox)" "$dir/bin/$applet"
	done
	play "$dir/bin/sh" "$dir/bin"
	expect "busybox without sha256sum" '^ok '
	fresh
	rm "$dir/bin/head"
	printf '#!/bin/false\n' >"$dir/bin/head"
	expect "without head" '^ok '
fi

# Any command that gives a shell: cmd:.  In words of its own, by a script that quotes badly, and where
# nothing can be written: then the helper is in memory.
try() {
	local said

	said=$("$probe" "$2" timeout=5 2>&1 || true)
	if [[ $said =~ $3 ]]; then
		echo "good: $1"
	else
		echo "FAILED: $1: it said: $said" >&2
		failed=1
	fi
}

fresh
export HOME=$dir/home
unset XDG_CACHE_HOME
printf '#!/bin/sh\nexec sh -c "$*"\n' >"$dir/jump script"
chmod +x "$dir/jump script"
try "cmd: a script" "cmd:'$dir/jump script' !$dir/ws" '^ok '
try "cmd: a quoted place for the shell" "cmd:sh -c \"exec {}\" !$dir/ws" '^ok '
try "cmd: a ! in the command" "cmd:env 'A=!b' !$dir/ws" '^ok '
try "cmd: sh that reads blocks" "cmd:busybox !$dir/ws" '^ok '
try "cmd: no directory" "cmd:sudo -n" '"!" and the directory are missing'
try "cmd: an open quote" "cmd:sh -c 'x !/" 'a quote is not closed'
try "cmd: no such program" "cmd:$dir/nosuch !/" 'cannot run .*nosuch.* correct the command'
try "cmd: noise without end" "cmd:yes !/" 'it said first: "sh".* must give a shell'
try "cmd: it ends at once" "cmd:false !/" 'the command ended with exit code 1; .* ask nothing'
try "cmd: it is killed" "cmd:sh -c 'kill -9 "'$$'"' !/" 'the command was killed by signal 9 \(Killed\); '
try "cmd: it asks for a password" "cmd:sh -c 'echo a password is required >&2; exit 1' x !/" 'nobody can be asked'
try "names are no options" "docker://--privileged/" '"--privileged" is not the name of a container'
try "names are no options of kubectl" "kube://pod/?namespace=--all" '"--all" is not the name of a namespace'
if [ "$(id -u)" = 0 ]; then
	! sudo -n -u "$(id -un)" env true 2>/dev/null || try "cmd: sudo" "cmd:sudo -n -u $(id -un) env HOME=$dir/home !$dir/ws" '^ok '
	# A bare chroot has no devices, which is no lack of space.
	if [ -x "$(command -v busybox)" ] && ! ldd "$(command -v busybox)" >/dev/null 2>&1; then
		mkdir -p "$dir/root/bin" "$dir/root/dev" "$dir/root/tmp" "$dir/root/ws"
		cp "$(command -v busybox)" "$dir/root/bin/busybox"
		for applet in sh uname id sha256sum head mkdir chmod rm mv dd rmdir touch find; do
			ln -s busybox "$dir/root/bin/$applet"
		done
		try "a bare chroot" "cmd:chroot $dir/root !/ws" '^ok '
	fi
fi
shut="bwrap --ro-bind / / --proc /proc --dev /dev --ro-bind / /dev/shm"
for program in python3 perl; do
	[ -x "/usr/bin/$program" ] && $shut true 2>/dev/null || continue
	rm -rf "$dir/only" && mkdir "$dir/only"
	printf '#!/bin/sh\necho 4242\n' >"$dir/only/id" && chmod +x "$dir/only/id" # nobody has left a helper for it
	for tool in sh uname cksum sha256sum rm rmdir mkdir chmod dd head; do
		ln -s "$(command -v $tool)" "$dir/only/$tool"
	done
	try "nothing can be written, nor is there $program" \
		"cmd:$shut --setenv HOME /nowhere --setenv PATH $dir/only !$dir/ws" '^error .*found no directory'
	ln -s "/usr/bin/$program" "$dir/only/$program"
	try "nothing can be written: $program" \
		"cmd:$shut --setenv HOME /nowhere --setenv PATH $dir/only !$dir/ws" '^ok '
done
exit $failed
