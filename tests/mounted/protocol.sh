#!/bin/bash
# protocol.sh: a real mount whose helper is tests/remote/protocol_server.py, which was written from
# PROTOCOL.md alone.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

server=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../remote" && pwd)/protocol_server.py
mkdir "$tmp/helper"
printf '#!/bin/sh\nexec python3 "%s" "$@"\n' "$server" >"$tmp/helper/isthmus-helper"
chmod +x "$tmp/helper/isthmus-helper"

test_files() {
	mkdir "$mnt/d"
	seq 100000 >"$mnt/d/numbers"
	cmp <(seq 100000) "$backing/d/numbers"
	cmp <(seq 100000) "$mnt/d/numbers"
	echo more >>"$mnt/d/numbers"
	expect more "$(tail -n 1 "$backing/d/numbers")"
	truncate -s 5 "$mnt/d/numbers"
	expect 5 "$(stat -c %s "$backing/d/numbers")"
	cp "$mnt/d/numbers" "$mnt/d/copy"
	chmod 600 "$mnt/d/copy"
	touch -d '2001-02-03 04:05:06.789' "$mnt/d/copy"
	same_tree "$mnt" "$backing"
}

test_names() {
	mkdir -p "$mnt/a/b/c"
	echo 1 >"$mnt/a/b/one"
	ln "$mnt/a/b/one" "$mnt/a/two"
	ln -s ../a/two "$mnt/a/link"
	mkfifo "$mnt/a/fifo"
	mv "$mnt/a/two" "$mnt/a/b/c/three"
	rm "$mnt/a/b/one"
	same_tree "$mnt" "$backing"
	[ ! -e "$mnt/a/b/one" ]
	! rmdir "$mnt/a" 2>/dev/null || fail "a full directory was removed"
	rm -r "$mnt/a"
	[ ! -e "$backing/a" ]
}

test_many_names() {
	mkdir "$backing/many"
	(cd "$backing/many" && seq -f 'a-rather-long-name-%.0f' 5000 | xargs touch)
	wait_for 5 test -d "$mnt/many" || fail "the directory does not show" # nothing is watched
	expect 5000 "$(ls "$mnt/many" | wc -l)"
	rm -r "$backing/many"
}

test_xattrs() {
	need setfattr getfattr
	echo x >"$mnt/x"
	setfattr -n user.note -v value "$mnt/x"
	expect value "$(getfattr --only-values -n user.note "$backing/x")"
	expect value "$(getfattr --only-values -n user.note "$mnt/x")"
}

test_git() {
	need git
	git init -q "$mnt/repository"
	cd "$mnt/repository"
	echo text >file
	git add file
	git -c user.name=n -c user.email=e@x commit -qm message
	git fsck --strict
	expect '' "$(git status --porcelain)"
}

run_tests helper -o "helper_dir=$tmp/helper"
