#!/bin/bash
# pi.sh MODULE: the module for pi, judged by the real pi from npm, on a real mount.
set -euo pipefail

: "${ISTHMUS:?the path of the program isthmus (meson test sets it)}"
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
package=@mariozechner/pi-coding-agent@0.73.1
pi=$here/../../.cache/pi

skip() {
	echo "skipped: $*"
	exit 77
}

command -v npm >/dev/null && command -v node >/dev/null || skip "node and npm are not installed"
[ "$(node --version | sed 's/^v\([0-9]*\).*/\1/')" -ge 20 ] || skip "pi needs node 20"
[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "/dev/fuse is not there or not accessible"
if [ "$(cat "$pi/.complete" 2>/dev/null)" != "$package" ]; then
	rm -rf "$pi"
	mkdir -p "$pi"
	echo '{"private": true, "type": "module"}' >"$pi/package.json"
	timeout 200 npm install --prefix "$pi" --silent --no-audit --no-fund --ignore-scripts "$package" jiti \
		>/dev/null 2>&1 || skip "npm cannot install pi"
	echo "$package" >"$pi/.complete"
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/pi-XXXXXX")
cleanup() {
	"$ISTHMUS" umount "$tmp/mnt" 2>/dev/null || true
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
export HOME=$tmp/home XDG_RUNTIME_DIR=$tmp/run XDG_STATE_HOME=$tmp/state XDG_CACHE_HOME=$tmp/cache
mkdir -m 700 "$HOME" "$XDG_RUNTIME_DIR" "$XDG_STATE_HOME" "$XDG_CACHE_HOME" "$tmp/ws" "$tmp/mnt"
cp "$here/clients/pi_judge.mjs" "$pi/"
"$ISTHMUS" mount "helper:$tmp/ws" "$tmp/mnt"
PATH=$(dirname "$ISTHMUS"):$PATH timeout 90 node "$pi/pi_judge.mjs" "$1" "$tmp/mnt" "$ISTHMUS"
"$ISTHMUS" umount "$tmp/mnt"
