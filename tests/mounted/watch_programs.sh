#!/bin/bash
# Programs that people use hear of changes at the workspace: those of npm (chokidar 3 and 4, fs.watch,
# @parcel/watcher, tsc --watch, vite), and entr, watchdog and gio where they are installed.
# Wants the npm registry, so `./dev soak` runs it.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

modules=$tmp/npm/node_modules

install_modules() {
	command -v node >/dev/null && command -v npm >/dev/null || skip_all "node and npm are not installed"
	mkdir "$tmp/npm"
	(cd "$tmp/npm" && echo '{"private":true}' >package.json &&
		timeout 180 npm install --no-audit --no-fund chokidar3@npm:chokidar@3 chokidar4@npm:chokidar@4 \
			@parcel/watcher@2 typescript@5 vite@6) >"$tmp/npm.log" 2>&1 ||
		skip_all "npm cannot install: $(tail -n 1 "$tmp/npm.log")"
	cat >"$tmp/npm/hear.js" <<'END'
const [kind, dir] = process.argv.slice(2), fs = require('fs'), path = require('path');
const say = (what, name) => console.log(what, path.relative(dir, path.resolve(dir, String(name))));
const ready = () => console.log('ready');
if (kind === 'fs.watch') { fs.watch(dir, { recursive: true }, say); ready(); }
else if (kind === 'parcel')
  require('@parcel/watcher').subscribe(dir, (_, all) => all.forEach(e => say(e.type, e.path))).then(ready);
else require(kind).watch(dir, { ignoreInitial: true }).on('all', say).on('ready', ready);
END
}

# start NAME COMMAND...: what it says is in $tmp/heard.
start() {
	: >"$tmp/heard"
	"$@" >"$tmp/heard" 2>&1 &
	program=$!
	trap 'kill $program; wait $program || :' EXIT
}

says() {
	wait_for 20 grep -qE "$1" "$tmp/heard" || fail "it did not say '$1': $(cat "$tmp/heard")"
}

# hears KIND MODIFIED CREATED REMOVED: what it says of each.
hears() {
	local dir=hear-$1

	mkdir -p "$backing/$dir/below"
	echo old >"$backing/$dir/below/file"
	wait_for 10 cat "$mnt/$dir/below/file"
	start node "$tmp/npm/hear.js" "$1" "$mnt/$dir"
	says '^ready'
	sleep 3 # these programs say so before all their watches are there
	echo more >>"$backing/$dir/below/file"
	says "^$2 below/file"
	echo new >"$backing/$dir/below/new"
	says "^$3 below/new"
	rm "$backing/$dir/below/new"
	says "^$4 below/new"
}

test_fs_watch() { hears fs.watch change rename rename; }
test_chokidar_3() { hears chokidar3 change add unlink; }
test_chokidar_4() { hears chokidar4 change add unlink; }
test_parcel_watcher() { hears parcel update create delete; }

test_tsc_watch() {
	mkdir -p "$backing/tsc/src"
	echo '{"compilerOptions":{"noEmit":true,"strict":true},"include":["src"]}' >"$backing/tsc/tsconfig.json"
	echo 'export const a: number = 1;' >"$backing/tsc/src/a.ts"
	wait_for 10 cat "$mnt/tsc/src/a.ts"
	start node "$modules/typescript/bin/tsc" --watch --preserveWatchOutput -p "$mnt/tsc"
	says 'Found 0 errors'
	sleep 3
	echo 'export const a: number = "x";' >"$backing/tsc/src/a.ts"
	says 'error TS2322'
}

test_vite() {
	need curl
	mkdir -p "$backing/vite/src"
	echo '{}' >"$backing/vite/package.json"
	echo '<script type=module src=/src/m.js></script>' >"$backing/vite/index.html"
	echo 'console.log(1)' >"$backing/vite/src/m.js"
	wait_for 10 cat "$mnt/vite/src/m.js"
	start node "$modules/vite/bin/vite.js" --host 127.0.0.1 "$mnt/vite"
	says 'http://127.0.0.1:[0-9]+'
	wait_for 10 curl -sf "$(grep -oE 'http://127.0.0.1:[0-9]+' "$tmp/heard" | head -n 1)/src/m.js"
	sleep 3
	echo 'console.log(2)' >"$backing/vite/src/m.js"
	says 'page reload src/m.js'
}

test_entr() {
	need entr
	mkdir -p "$backing/entr"
	echo 1 >"$backing/entr/file"
	wait_for 10 cat "$mnt/entr/file"
	start entr -n -p echo ran < <(echo "$mnt/entr/file")
	sleep 3
	echo 2 >>"$backing/entr/file"
	says '^ran'
}

test_gio() {
	need gio
	mkdir -p "$backing/gio"
	wait_for 10 ls "$mnt/gio"
	start gio monitor "$mnt/gio"
	sleep 3
	echo 1 >"$backing/gio/file"
	says 'file: created'
}

need_fuse
install_modules
prepare_backend "$1"
run_tests_prepared
