#!/bin/bash
# Real programs do the same work on a mount and in a plain directory: same results.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# A tree with everything that a copy can lose.
make_fixture() {
	local dir=$1 i

	mkdir -p "$dir/src/deep/er" "$dir/empty" "$dir/odd"
	for i in 1 2 3 4 5 6 7 8; do
		seq "$i" $((i * 400)) >"$dir/src/file$i.txt"
		touch -d "2001-02-03 04:05:0$i.12345678$i" "$dir/src/file$i.txt"
	done
	head -c 300000 /dev/urandom >"$dir/src/deep/er/random"
	: >"$dir/src/nothing"
	truncate -s 10M "$dir/src/sparse"
	printf 'x' | dd of="$dir/src/sparse" bs=1 seek=5000000 conv=notrunc status=none
	ln -s ../src/file1.txt "$dir/odd/link"
	ln -s /does/not/exist "$dir/odd/dangling"
	ln "$dir/src/file2.txt" "$dir/odd/hard"
	mkfifo "$dir/odd/fifo"
	touch "$dir/odd/-dash" "$dir/odd/with space" "$dir/odd/ünï" "$dir/odd/"$'new\nline' "$dir/odd/"$'\377bytes'
	chmod 600 "$dir/odd/-dash"
	chmod 4755 "$dir/odd/with space"
	chmod 2775 "$dir/empty"
	chmod 1777 "$dir/odd"
	setfattr -n user.note -v 'some value' "$dir/src/file3.txt"
	setfattr -n user.dir -v 'on a directory' "$dir/src"
	[ "$(id -u)" != 0 ] || chown -h 1234:4321 "$dir/src/file4.txt" "$dir/odd/dangling"
	find "$dir" -depth ! -path '*/file*' -exec touch -h -d '1999-12-31 23:59:59.999999999' {} +
}

fixture() {
	[ -d "$tmp/fixture" ] || make_fixture "$tmp/fixture"
}

# The same tree as the workspace itself sees it.
same_at_workspace() {
	[ -z "$backing" ] || same_tree "$1" "$backing/$2"
}

test_cp_archive_copies_everything() {
	fixture
	cp -a "$tmp/fixture" "$mnt/cp"
	same_tree "$tmp/fixture" "$mnt/cp"
	same_at_workspace "$tmp/fixture" cp
	cp -a "$mnt/cp" "$tmp/cp-back"
	same_tree "$tmp/fixture" "$tmp/cp-back"
	cmp "$mnt/cp/src/sparse" "$tmp/fixture/src/sparse"
}

test_tar_there_and_back() {
	need tar
	fixture
	mkdir "$mnt/tar"
	tar -C "$tmp/fixture" --format=posix --xattrs -cf "$tmp/in.tar" .
	tar -C "$mnt/tar" --xattrs --same-owner -xpf "$tmp/in.tar"
	same_tree "$tmp/fixture" "$mnt/tar"
	tar -C "$mnt/tar" --sort=name -cf "$tmp/out1.tar" .
	tar -C "$tmp/fixture" --sort=name -cf "$tmp/out2.tar" .
	cmp "$tmp/out1.tar" "$tmp/out2.tar"
	same_at_workspace "$tmp/fixture" tar
}

test_rsync_archive_and_second_run_finds_nothing() {
	need rsync
	fixture
	rsync -aHX --specials "$tmp/fixture/" "$mnt/rsync/"
	same_tree "$tmp/fixture" "$mnt/rsync"
	expect "" "$(rsync -aHXi --checksum --specials --delete "$tmp/fixture/" "$mnt/rsync/")" "changes of a second rsync"
	echo more >>"$mnt/rsync/src/file5.txt"
	rm "$mnt/rsync/odd/link"
	rsync -aHX --specials --delete "$tmp/fixture/" "$mnt/rsync/"
	same_tree "$tmp/fixture" "$mnt/rsync"
	same_at_workspace "$tmp/fixture" rsync
}

git_work() {
	git init -q -b main .
	git config user.email a@example.org
	git config user.name A
	cp -R "$tmp/fixture/src" src
	git add -A
	GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' git commit -qm one
	sed -i s/100/onehundred/ src/file1.txt
	git mv src/file2.txt renamed.txt
	rm src/file3.txt
	git status --porcelain
	git add -A
	GIT_AUTHOR_DATE='2020-01-02T00:00:00Z' GIT_COMMITTER_DATE='2020-01-02T00:00:00Z' git commit -qm two
	git checkout -q -b other HEAD~1
	git merge -q main
	git stash list
	git gc -q
	git fsck --strict
	git status --porcelain
	git log --format='%H %T %s' --all
}

test_git_history_is_identical() {
	need git
	fixture
	mkdir "$mnt/git" "$tmp/git"
	(cd "$mnt/git" && git_work) >"$tmp/git.1"
	(cd "$tmp/git" && git_work) >"$tmp/git.2"
	diff "$tmp/git.1" "$tmp/git.2"
	diff -r -x .git "$mnt/git" "$tmp/git"
}

test_git_clone_and_status() {
	need git
	fixture
	[ -d "$tmp/origin" ] || { mkdir "$tmp/origin" && (cd "$tmp/origin" && git_work >/dev/null); }
	git clone -q --no-hardlinks "$tmp/origin" "$mnt/clone"
	expect "" "$(git -C "$mnt/clone" status --porcelain)" "status of a fresh clone"
	echo change >>"$mnt/clone/src/file5.txt"
	expect " M src/file5.txt" "$(git -C "$mnt/clone" status --porcelain)" "status after an edit"
	git -C "$mnt/clone" diff --quiet && fail "git diff sees no change"
	git -C "$mnt/clone" checkout -q -- .
	git clone -q --no-hardlinks "$mnt/clone" "$tmp/clone-back"
	diff -r -x .git "$mnt/clone" "$tmp/clone-back"
}

# trips_of PROGRAM: how often it waited for the far end at the second mount.
trips_of() {
	"$ISTHMUS" log "$mnt2" --json | python3 -c '
import json, sys
print(sum(r.get("round_trips") or 0 for r in map(json.loads, sys.stdin) if r.get("process") == sys.argv[1]))' "$1"
}

# The repository is below the directory that is mounted, and no cache has anything of it.
test_a_cold_git_status_and_find_take_few_round_trips() {
	case "$uri" in helper:* | ssh:*) ;; *) skip 'there is no far end' ;; esac
	need git
	local i j trips

	for i in $(seq 40); do
		mkdir -p "$backing/status/dir$i/sub"
		for j in $(seq 5); do
			echo "$i $j" >"$backing/status/dir$i/sub/file$j"
		done
	done
	find "$backing/status" -exec touch -d '1 hour ago' {} + # as young as the index, they would be read
	git -C "$backing/status" init -q
	git -C "$backing/status" add -A
	git -C "$backing/status" -c user.name=A -c user.email=a@example.org commit -qm one
	second_mount
	ls "$mnt2"
	expect "" "$(git -C "$mnt2/status" --no-optional-locks status --porcelain)" status
	trips=$(trips_of git)
	echo "  $trips round trips for git status"
	[ "$trips" -le 2 ] || fail "$trips round trips for git status" # for the commit, and for its tree
	end_second_mount
	second_mount
	ls "$mnt2"
	expect "$(find "$backing/status" | wc -l)" "$(find "$mnt2/status" -size -1000G | wc -l)" "files found"
	trips=$(trips_of find)
	echo "  $trips round trips for find"
	[ "$trips" -le 1 ] || fail "$trips round trips for find"
}

test_rg_finds_the_same() {
	need rg
	fixture
	cp -a "$tmp/fixture/src" "$mnt/rg"
	(cd "$mnt/rg" && rg -n --sort path '9[0-9]*9$' .) >"$tmp/rg.1"
	(cd "$tmp/fixture/src" && rg -n --sort path '9[0-9]*9$' .) >"$tmp/rg.2"
	[ -s "$tmp/rg.1" ]
	cmp "$tmp/rg.1" "$tmp/rg.2"
}

test_vim_saves() {
	need vim
	seq 100 >"$mnt/vim.txt"
	chmod 640 "$mnt/vim.txt"
	vim -u NONE -i NONE -es -c '%s/7$/seven/' -c 'normal Goend' -c wq "$mnt/vim.txt" </dev/null
	expect "$(seq 100 | sed 's/7$/seven/'; echo end)" "$(cat "$mnt/vim.txt")" content
	expect 640 "$(stat -c %a "$mnt/vim.txt")" mode
	vim -u NONE -i NONE -es -c 'set backup backupskip= backupcopy=no' -c '1d' -c wq "$mnt/vim.txt" </dev/null
	expect 2 "$(head -n 1 "$mnt/vim.txt")" "first line"
	[ -e "$mnt/vim.txt~" ]
	[ ! -e "$mnt/.vim.txt.swp" ]
}

write_project() {
	local i

	for i in 1 2 3 4 5 6 7 8; do
		printf 'int part%d(void)\n{\n\treturn %d;\n}\n' "$i" "$i" >"$1/part$i.c"
	done
	{
		seq -f 'int part%.0f(void);' 8
		echo 'int main(void) { return !(0'"$(seq -f ' + part%.0f()' 8 | tr -d '\n')"' == 36); }'
	} >"$1/main.c"
	printf 'OBJ = %s\nprogram: $(OBJ)\n\t$(CC) -o $@ $(OBJ)\n$(OBJ): Makefile\n' \
		"main.o $(seq -s ' ' -f 'part%.0f.o' 8)" >"$1/Makefile"
}

test_make_builds_and_knows_what_is_new() {
	need make cc
	mkdir "$mnt/make"
	write_project "$mnt/make"
	make -s -j2 -C "$mnt/make"
	"$mnt/make/program"
	make -q -C "$mnt/make" || fail "make wants to build again"
	touch "$mnt/make/part3.c"
	expect "part3.c" "$(make -n -C "$mnt/make" | grep -o 'part3\.c')" "what make would compile"
	make -s -C "$mnt/make" && make -q -C "$mnt/make"
}

sqlite_work() {
	sqlite3 "$1" <<-END
		PRAGMA journal_mode=$2;
		PRAGMA synchronous=FULL;
		CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO t SELECT i, 'row ' || i FROM n;
		BEGIN; DELETE FROM t WHERE id % 3 = 0; ROLLBACK;
		BEGIN; UPDATE t SET text = upper(text) WHERE id % 5 = 0; COMMIT;
		CREATE INDEX x ON t(text);
		VACUUM;
		PRAGMA integrity_check;
	END
	sqlite3 "$1" 'SELECT count(*), sum(id), min(text), max(text) FROM t'
}

sqlite_same() {
	need sqlite3
	sqlite_work "$mnt/$1.db" "$1" >"$tmp/sql.1"
	sqlite_work "$tmp/$1.db" "$1" >"$tmp/sql.2"
	diff "$tmp/sql.1" "$tmp/sql.2"
	expect ok "$(sqlite3 "$mnt/$1.db" 'PRAGMA integrity_check')" integrity
}

test_sqlite_rollback_journal() {
	sqlite_same delete
}

test_sqlite_wal() {
	sqlite_same wal
}

test_sqlite_writers_wait_for_each_other() {
	local pids=() i

	need sqlite3
	sqlite3 "$mnt/lock.db" 'CREATE TABLE t(n)'
	for i in 1 2 3 4; do
		for _ in 1 2 3 4 5; do
			echo ".timeout 20000"
			echo "INSERT INTO t VALUES($i);"
		done | sqlite3 "$mnt/lock.db" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i"
	done
	expect 20 "$(sqlite3 "$mnt/lock.db" 'SELECT count(*) FROM t')" "rows of 4 writers"
}

test_remove_everything() {
	rm -rf "${mnt:?}"/*
	expect "" "$(ls -A "$mnt")" "what is left after rm -rf"
	[ -z "${MOUNTED_WRITES:-}" ] || "$ISTHMUS" sync "$mnt"
	[ -z "$backing" ] || expect "" "$(ls -A "$backing")" "what is left at the workspace"
}

run_tests "$1"
