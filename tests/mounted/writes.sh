#!/bin/bash
# Writes over a long link: nothing before close waits, and close says the truth.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# trips PATH [OPERATION]: how often somebody waited for the far end, at and below that path.
trips() {
	"$ISTHMUS" log "$mnt" --json | python3 -c "
import json, sys
path, operation = sys.argv[1], sys.argv[2:]
records = [json.loads(line) for line in sys.stdin]
print(sum(r.get('round_trips') or 0 for r in records
    if (r.get('path', '') + '/').startswith(path + '/') and (not operation or r['op'] in operation)))" "$@"
}

# is_prepared DIRECTORY: the helper has a file without a name there.
is_prepared() {
	[ -n "$(find /proc/[0-9]*/fd -maxdepth 1 -lname "$backing/$1/#*" 2>/dev/null)" ]
}

# The first file of a directory is waited for, and then one is prepared to become the next.
begin_in() {
	echo up >"$tmp/link"
	mkdir "$mnt/$1"
	ls "$mnt/$1"
	mktemp "$mnt/$1/firstXXXXXX"
	wait_for 10 is_prepared "$1" || fail "nothing is prepared in $1"
	sleep 1 # until that is known here
}

test_an_untar_waits_once_for_each_file() {
	local i count=20

	mkdir -p "$tmp/from/tree"
	for i in $(seq $count); do
		seq "$((i * 100))" >"$tmp/from/tree/$i"
	done
	tar -C "$tmp/from" -cf "$tmp/tree.tar" tree
	mkdir "$mnt/untar"
	tar -C "$mnt/untar" -xf "$tmp/tree.tar"
	diff -r "$tmp/from/tree" "$backing/untar/tree" || fail "another tree there"
	diff -r "$tmp/from/tree" "$mnt/untar/tree" || fail "another tree here"
	# The directory, its times and its mode; the first file; the next, if it comes so soon.
	[ "$(trips untar/tree)" -le $((count + 5)) ] || fail "$(trips untar/tree) round trips for $count files"
}

# A process that makes files is expected to make one in its new directory: it was prepared with that.
test_the_first_file_of_a_new_directory_does_not_wait() {
	begin_in parent
	mkdir "$mnt/parent/new"
	mktemp "$mnt/parent/new/XXXXXX" >"$tmp/made"
	expect 0 "$(trips parent/new create)" "round trips to create"
	[ -f "$backing/parent/new/$(basename "$(cat "$tmp/made")")" ] || fail "it is not there"
}

# What was overwritten meanwhile says nothing of the mode that it will have.
test_an_overwritten_file_does_not_count_as_made() {
	begin_in maker
	echo text >"$mnt/maker/file"
	wait_for 10 is_prepared maker || fail "nothing is prepared"
	sleep 1
	mktemp "$mnt/maker/XXXXXX"
	echo more >"$mnt/maker/file"
	mkdir "$mnt/maker/new"
	mktemp "$mnt/maker/new/XXXXXX"
	expect 0 "$(trips maker/new create)" "round trips to create"
}

test_what_a_new_directory_has_already_is_not_set_again() {
	mkdir -m 700 "$mnt/own"
	chown "$(id -u):$(id -g)" "$mnt/own"
	chmod 700 "$mnt/own"
	expect 0 "$(trips own chown chmod)" "round trips"
	chmod 750 "$mnt/own"
	expect 750 "$(stat -c %a "$backing/own")"
	chmod 711 "$backing/own"
	sleep 1 # until that is known
	chmod 750 "$mnt/own"
	expect 750 "$(stat -c %a "$backing/own")"
}

test_an_edit_by_temporary_file_and_rename_waits_twice() {
	begin_in edits
	echo old >"$mnt/edits/file"
	python3 - "$mnt/edits" <<-'END'
		import os, sys, tempfile
		here = sys.argv[1]
		for i in range(5):
		    fd, name = tempfile.mkstemp(prefix="edit", dir=here)
		    with os.fdopen(fd, "w") as file:
		        file.write(f"text {i}\n")
		    os.rename(name, f"{here}/file")
		    assert open(f"{here}/file").read() == f"text {i}\n"
	END
	expect "text 4" "$(cat "$backing/edits/file")"
	"$ISTHMUS" log "$mnt" --json >"$tmp/log"
	python3 - "$tmp/log" <<-'END'
		import json, sys
		waits = [r.get("round_trips") or 0 for r in map(json.loads, open(sys.argv[1])) if "/edit" in r.get("path", "")]
		assert sum(waits) <= 2 * 5 + 1, f"{sum(waits)} round trips for 5 edits"
	END
}

test_an_edit_that_truncates_a_temporary_file_waits_twice() {
	begin_in steps
	echo old >"$mnt/steps/file"
	next_is_prepared steps
	python3 - "$mnt/steps" <<-'END'
		import os, sys, pathlib
		here = pathlib.Path(sys.argv[1])
		for i in range(5):
		    (here / f".edit{i}").write_text(f"text {i}\n")
		    os.rename(here / f".edit{i}", here / "file")
		    assert (here / "file").read_text() == f"text {i}\n"
		    os.listdir(here)
	END
	expect 0 "$(trips steps/.edit4 create)" "round trips to create"
	"$ISTHMUS" log "$mnt" --json >"$tmp/log"
	python3 - "$tmp/log" <<-'END'
		import json, sys
		waits = [r.get("round_trips") or 0 for r in map(json.loads, open(sys.argv[1])) if "/.edit" in r.get("path", "")]
		assert sum(waits) <= 2 * 5 + 1, f"{sum(waits)} round trips for 5 edits"
	END
}

# Number, owner and mode are the workspace's, before it has been heard of.
test_what_is_told_of_a_new_file_stays_so() {
	begin_in told
	python3 - "$mnt/told" "$backing/told" <<-'END'
		import os, sys
		here, there = sys.argv[1:]
		def facts(s):
		    return s.st_ino, s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_size
		fd = os.open(f"{here}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
		at_once = facts(os.fstat(fd))
		assert at_once == facts(os.stat(f"{here}/new"))
		assert [e.inode() for e in os.scandir(here) if e.name == "new"] == [at_once[0]]
		os.close(fd)
		assert at_once == facts(os.stat(f"{here}/new"))
		there = os.stat(f"{there}/new")
		assert at_once[:3] == (there.st_ino, there.st_mode, there.st_nlink)
	END
}

# What waits for nothing is made while the link is silent.
test_nothing_before_close_waits_for_the_link() {
	begin_in silent
	python3 - "$mnt/silent" "$tmp/link" <<-'END'
		import os, sys, threading
		here, link = sys.argv[1:]
		def set_link(state):
		    with open(link, "w") as file:
		        file.write(state + "\n")
		set_link("stall")
		fd = os.open(f"{here}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
		os.write(fd, b"text")
		os.fchmod(fd, 0o640)
		os.utime(fd, (1000000000, 1000000000))
		threading.Timer(0.5, set_link, ["up"]).start()
		os.close(fd)
		s = os.stat(f"{here}/new")
		assert (s.st_size, s.st_mode & 0o777, s.st_mtime) == (4, 0o640, 1000000000), s
	END
	expect text "$(cat "$backing/silent/new")"
}

# Of a file that was there only close waits, too.
test_an_overwritten_file_waits_for_close() {
	begin_in over
	echo "what was there" >"$mnt/over/file"
	next_is_prepared over
	cat "$mnt/over/file"
	python3 - "$mnt/over/file" "$backing/over/file" <<-'END'
		import os, sys
		here, there = sys.argv[1:]
		fd = os.open(here, os.O_WRONLY | os.O_TRUNC)
		os.write(fd, b"text")
		os.fchmod(fd, 0o640)
		os.fchown(fd, os.getuid(), os.getgid())
		os.utime(fd, (1000000000, 1000000000))
		os.close(fd)
		for s in os.stat(here), os.stat(there):
		    assert (s.st_size, s.st_mode & 0o777, s.st_mtime) == (4, 0o640, 1000000000), s
	END
	expect text "$(cat "$mnt/over/file")"
	expect 0 "$(trips over/file open write chmod chown utimens)" "round trips before close"
}

# As git does for each file of a checkout: the times have to be the workspace's, and close has no news.
test_a_look_at_a_new_file_waits_once() {
	begin_in looked
	python3 - "$mnt/looked/new" <<-'END'
		import os, sys
		fd = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
		os.write(fd, b"text")
		open_ = os.fstat(fd)
		os.close(fd)
		closed = os.stat(sys.argv[1])
		for name in "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns":
		    assert getattr(open_, name) == getattr(closed, name), name
	END
	expect 1 "$(trips looked/new)" "round trips"
}

test_ftruncate_is_not_waited_for() {
	begin_in sized
	seq 1000 >"$mnt/sized/file"
	next_is_prepared sized
	python3 - "$mnt/sized" "$backing/sized" <<-'END'
		import os, sys
		here, there = sys.argv[1:]
		fd = os.open(f"{here}/file", os.O_RDWR)
		os.ftruncate(fd, 4)
		assert os.pread(fd, 10, 0) == b"1\n2\n"
		os.ftruncate(fd, 6)
		os.pwrite(fd, b"!", 7)
		os.ftruncate(fd, 100000)
		os.ftruncate(fd, 8)
		assert os.fstat(fd).st_size == 8
		os.close(fd)
		for place in here, there:
		    assert open(f"{place}/file", "rb").read() == b"1\n2\n\0\0\0!", place
		fd = os.open(f"{here}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
		os.write(fd, b"text that is cut")
		os.ftruncate(fd, 4)
		os.ftruncate(fd, 6)
		os.pwrite(fd, b"...", 6)
		os.fchmod(fd, 0o640)
		os.utime(fd, (1000000000, 1000000000))
		os.close(fd)
		for place in here, there:
		    assert open(f"{place}/new", "rb").read() == b"text\0\0...", place
		    s = os.stat(f"{place}/new")
		    assert (s.st_mode & 0o777, s.st_mtime) == (0o640, 1000000000), s
	END
	expect 0 "$(trips sized truncate)" "round trips of ftruncate"
	expect 1 "$(trips sized/new)" "round trips of a new file"
}

test_a_released_lock_is_not_waited_for() {
	begin_in locked
	echo text >"$backing/locked/file"
	wait_for 10 test -e "$mnt/locked/file"
	python3 - "$mnt/locked/file" "$backing/locked/file" <<-'END'
		import fcntl, os, sys
		here, there = sys.argv[1:]
		fd, spare = os.open(here, os.O_RDWR), os.open(here, os.O_RDWR)
		for lock in fcntl.flock, fcntl.lockf:
		    for i in range(5):
		        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
		        os.pwrite(fd, b"%04d" % i, 0)
		        lock(fd, fcntl.LOCK_UN)
		fcntl.flock(spare, fcntl.LOCK_EX | fcntl.LOCK_NB) # it is free for all here
		with open(there) as file:
		    assert file.read(4) == "0004"
	END
	expect 11 "$(trips locked/file lock)" "round trips of 11 locks"
}

# What the last holder left comes with the lock.
test_who_has_a_lock_need_not_ask_for_the_file() {
	begin_in kept
	echo text >"$backing/kept/file"
	wait_for 10 test -e "$mnt/kept/file"
	python3 - "$mnt/kept/file" "$backing/kept/file" <<-'END'
		import fcntl, os, sys
		here, there = sys.argv[1:]
		fd, other = os.open(here, os.O_RDWR), os.open(there, os.O_RDWR)
		for lock in fcntl.flock, fcntl.lockf:
		    for i in range(20):
		        lock(other, fcntl.LOCK_EX)
		        text = b"%d" % i * (i % 7 + 1) * 100
		        os.pwrite(other, text, 0)
		        os.ftruncate(other, len(text))
		        lock(other, fcntl.LOCK_UN)
		        lock(fd, fcntl.LOCK_SH)
		        assert os.fstat(fd).st_size == len(text), (i, os.fstat(fd).st_size)
		        assert os.pread(fd, 4096, 0) == text, i
		        lock(fd, fcntl.LOCK_UN)
	END
	expect 0 "$(trips kept/file getattr)" "round trips for attributes"
	[ "$(trips kept/file read)" -le 4 ] || fail "$(trips kept/file read) round trips for 40 reads"
}

# waits_of PATH: on average, of 20 transactions between two files that were made.
waits_of() {
	"$ISTHMUS" log "$mnt" --json | python3 -c "
import json, sys
path = sys.argv[1]
records = [json.loads(line) for line in sys.stdin]
begin = max(i for i, r in enumerate(records) if r.get('path') == path + '.begin')
end = min(i for i, r in enumerate(records) if r.get('path') == path + '.end')
print(sum(r.get('round_trips') or 0 for r in records[begin + 1 : end]) / 20)" "$1"
}

transactions() {
	mkdir "$mnt/$1"
	python3 - "$mnt/$1/base" "$1" <<-'END'
		import sqlite3, sys
		path, mode = sys.argv[1:]
		base = sqlite3.connect(path, isolation_level=None)
		base.execute(f"pragma journal_mode = {mode}")
		base.execute("create table line (step, text)")
		def write(steps):
		    for step in range(steps):
		        base.execute("begin immediate")
		        base.execute("insert into line values (?, ?)", (step, "text " * 20))
		        base.execute("commit")
		write(3)
		open(path + ".begin", "w").close()
		write(20)
		open(path + ".end", "w").close()
		assert base.execute("select count(*) from line").fetchone() == (23,)
		assert base.execute("pragma integrity_check").fetchone() == ("ok",)
	END
}

# Locks that are taken, and what is on the disk there, are waited for, and little else.
test_a_transaction_of_sqlite_waits_seldom() {
	transactions wal
	transactions delete
	python3 -c "assert $(waits_of wal/base) <= 4.5, $(waits_of wal/base)"
	python3 -c "assert $(waits_of delete/base) <= 15.5, $(waits_of delete/base)"
}

# Of any file, however much it is.
test_who_gets_a_released_lock_finds_what_was_written() {
	begin_in guarded
	echo >"$backing/guarded/lock"
	echo >"$backing/guarded/data"
	wait_for 5 test -e "$mnt/guarded/data" || fail "does not show"
	python3 - "$mnt/guarded" "$backing/guarded" <<-'END'
		import fcntl, os, subprocess, sys, time
		here, there = sys.argv[1:]
		data, lock = os.open(f"{here}/data", os.O_WRONLY), os.open(f"{here}/lock", os.O_RDWR)
		for kind in fcntl.flock, fcntl.lockf:
		    kind(lock, fcntl.LOCK_EX)
		    there_first = f"import fcntl, os; f = open('{there}/lock', 'r+'); fcntl.{kind.__name__}(f, fcntl.LOCK_EX); print(os.stat('{there}/data').st_size)"
		    other = subprocess.Popen([sys.executable, "-c", there_first], stdout=subprocess.PIPE)
		    time.sleep(0.5)
		    os.ftruncate(data, 0)
		    os.pwrite(data, b"x" * 4_000_000, 0)
		    kind(lock, fcntl.LOCK_UN)
		    size = int(other.communicate()[0])
		    assert size == 4_000_000, f"{kind.__name__}: {size}"
	END
}

# race DIRECTORY CODE: Python, where make(name, flags) opens a new file here while the link is silent,
# release() has the far end hear of it, and error_of() says what a call came to.
race() {
	python3 - "$mnt/$1" "$backing/$1" "$tmp/link" <<-END
		import errno, os, sys, threading
		here, there, link = sys.argv[1:]
		def set_link(state):
		    with open(link, "w") as file:
		        file.write(state + "\n")
		def error_of(call, *arguments):
		    try:
		        call(*arguments)
		    except OSError as error:
		        return error.errno
		def make(name, flags=os.O_TRUNC, access=os.O_WRONLY):
		    set_link("stall")
		    return os.open(f"{here}/{name}", os.O_CREAT | access | flags, 0o600)
		def release():
		    threading.Timer(0.3, set_link, ["up"]).start()
		def put(name, text, mode=0o644):
		    with open(f"{there}/{name}", "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
		        file.write(text)
		def get(name):
		    with open(f"{there}/{name}") as file:
		        return file.read()
		$2
	END
}

# Another process makes the name meanwhile: its file stays, and the caller that was too late is told.
test_a_name_that_somebody_else_made_first_is_not_ours() {
	begin_in taken
	race taken '
fd = make("new", os.O_EXCL, os.O_RDWR)
os.write(fd, b"ours")
put("new", "theirs")
release()
spare = os.dup(fd)
assert error_of(os.close, fd) == errno.EEXIST
for call, *arguments in ((os.fsync,), (os.write, b"more"), (os.read, 4), (os.fchmod, 0o600)):
    assert error_of(call, spare, *arguments) == errno.EEXIST, call
assert error_of(os.close, spare) == errno.EEXIST
assert open(f"{here}/new").read() == "theirs"
# Cleaning up what the caller believes that it has made.
assert error_of(os.unlink, f"{here}/new") == errno.ENOENT
assert error_of(os.rename, f"{here}/new", f"{here}/other") == errno.ENOENT
assert get("new") == "theirs"
assert error_of(os.open, f"{here}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY) == errno.EEXIST'
	expect theirs "$(cat "$backing/taken/new")"
	rm "$mnt/taken/new"
	[ ! -e "$backing/taken/new" ] || fail "nobody can remove it"
}

# next_is_prepared DIRECTORY: the last file there was made early, and the next one can be.
next_is_prepared() {
	wait_for 10 is_prepared "$1" || fail "nothing is prepared in $1"
	sleep 1
}

# Without O_EXCL: another process was quicker to make the file, and it is written to as open(2) would.
test_without_o_excl_the_file_of_another_is_truncated_and_written() {
	begin_in other
	race other '
fd = make("new")
put("new", "theirs, and longer", 0o644)
before = os.fstat(fd).st_ino
os.write(fd, b"ours")
release()
os.close(fd)
assert get("new") == "ours", get("new")
s = os.stat(f"{there}/new")
assert s.st_mode & 0o777 == 0o644, s
assert s.st_ino != before
assert os.stat(f"{here}/new").st_ino == s.st_ino
assert open(f"{here}/new").read() == "ours"'
}

test_without_o_excl_what_another_wrote_stays_where_nothing_truncates_it() {
	begin_in appended
	race appended '
fd = make("new", os.O_APPEND)
put("new", "theirs ")
os.write(fd, b"ours")
release()
os.close(fd)
assert get("new") == "theirs ours", get("new")
assert open(f"{here}/new").read() == "theirs ours"'
	next_is_prepared appended
	race appended '
fd = make("part", 0)
put("part", "theirs")
os.pwrite(fd, b"OU", 2)
release()
os.fsync(fd)
assert get("part") == "thOUrs", get("part")
assert os.fstat(fd).st_size == 6
os.fchmod(fd, 0o640)
os.write(fd, b"T")
os.close(fd)
assert get("part") == "ThOUrs", get("part")
assert os.stat(f"{there}/part").st_mode & 0o777 == 0o640'
}

# What is set through the descriptor is set of the file that it turned out to lead to.
test_without_o_excl_attributes_are_those_of_the_file_that_is_there() {
	begin_in set
	race set '
fd = make("new")
put("new", "theirs", 0o600)
os.write(fd, b"ours")
os.fchmod(fd, 0o604)
os.utime(fd, (1000000000, 1000000000))
release()
os.close(fd)
s = os.stat(f"{there}/new")
assert (s.st_mode & 0o777, s.st_mtime, s.st_size) == (0o604, 1000000000, 4), s
t = os.stat(f"{here}/new")
assert (t.st_ino, t.st_mode, t.st_mtime, t.st_size) == (s.st_ino, s.st_mode, s.st_mtime, s.st_size), t'
}

# What open(2) would not have opened is told at close, and stays as it is.
test_without_o_excl_what_is_no_file_is_told() {
	begin_in kinds
	race kinds '
fd = make("directory")
os.mkdir(f"{there}/directory")
os.write(fd, b"ours")
release()
spare = os.dup(fd)
assert error_of(os.close, fd) == errno.EISDIR
assert error_of(os.write, spare, b"more") == errno.EISDIR
assert error_of(os.close, spare) == errno.EISDIR
assert os.path.isdir(f"{here}/directory")'
	next_is_prepared kinds
	race kinds '
put("target", "theirs")
fd = make("link")
os.symlink("target", f"{there}/link")
os.write(fd, b"ours")
release()
assert error_of(os.close, fd) == errno.ELOOP
assert get("target") == "theirs"
assert os.readlink(f"{here}/link") == "target"'
	next_is_prepared kinds
	race kinds '
fd = make("pipe")
os.mkfifo(f"{there}/pipe")
release()
assert error_of(os.close, fd) == errno.ENXIO'
}

# Another file of the workspace gets the name: both names lead to what was written.
test_without_o_excl_a_link_to_a_known_file_is_that_file() {
	begin_in linked
	echo known >"$mnt/linked/known"
	cat "$mnt/linked/known"
	next_is_prepared linked
	race linked '
reader = open(f"{here}/known")
assert reader.read() == "known\n"
fd = make("new")
os.link(f"{there}/known", f"{there}/new")
os.write(fd, b"ours")
release()
os.close(fd)
assert get("known") == get("new") == "ours"
deadline = __import__("time").monotonic() + 10
while open(f"{here}/known").read() != "ours":
    assert __import__("time").monotonic() < deadline, "the other name shows what was"'
}

# A file that is there is opened to be written anew: what the workspace has by then is written to.
test_what_is_truncated_early_is_what_is_there() {
	begin_in anew
	race anew '
put("same", "what was there")
put("other", "what was there")
put("gone", "what was there")
put("directory", "what was there")
time = __import__("time")
time.sleep(1)
for name in "same", "other", "gone", "directory":
    assert open(f"{here}/{name}").read() == "what was there"
def over(name):
    set_link("stall")
    return os.open(f"{here}/{name}", os.O_WRONLY | os.O_TRUNC)
def next_one():
    time.sleep(1)
fd = over("same")
assert os.fstat(fd).st_size == 0
os.write(fd, b"ours")
release()
assert open(f"{here}/same").read() == "ours"
os.close(fd)
assert get("same") == "ours"
next_one()
fd = over("other")
put("new", "another one")
os.rename(f"{there}/new", f"{there}/other")
os.write(fd, b"ours")
release()
os.close(fd)
assert get("other") == "ours"
assert open(f"{here}/other").read() == "ours"
next_one()
fd = over("gone")
os.unlink(f"{there}/gone")
os.write(fd, b"ours")
release()
assert error_of(os.close, fd) == errno.ENOENT
assert not os.path.exists(f"{there}/gone") and not os.path.exists(f"{here}/gone")
next_one()
fd = over("directory")
os.unlink(f"{there}/directory")
os.mkdir(f"{there}/directory")
release()
assert error_of(os.close, fd) == errno.EISDIR
assert os.path.isdir(f"{here}/directory")'
}

# It was there and has gone again: then the name is ours.
test_without_o_excl_a_name_that_is_gone_again_is_made() {
	begin_in gone
	race gone '
fd = make("new")
put("new", "theirs")
os.unlink(f"{there}/new")
ino = os.fstat(fd).st_ino
os.write(fd, b"ours")
release()
os.close(fd)
assert get("new") == "ours" and os.stat(f"{there}/new").st_ino == ino'
}

# The log has no hash of content that is not known, and a read shows what the workspace has.
test_two_mounts_write_one_name_without_o_excl() {
	begin_in pair
	second_mount
	python3 - "$mnt/pair" "$mnt2/pair" "$backing/pair" <<-'END'
		import os, random, sys, threading, time
		places, there = sys.argv[1:3], sys.argv[3]
		def make(place, name, pause):
		    time.sleep(pause)
		    with open(f"{place}/{name}", "w") as file:
		        file.write(place[-20:])
		for place in places:
		    os.listdir(place)
		for i in range(40):
		    threads = [threading.Thread(target=make, args=(place, f"n{i}", random.uniform(0, 0.04))) for place in places]
		    for thread in threads:
		        thread.start()
		    for thread in threads:
		        thread.join()
		    text = open(f"{there}/n{i}").read()
		    assert text in [place[-20:] for place in places], f"n{i}: {text}"
		    for place in places:
		        deadline = time.monotonic() + 10
		        while open(f"{place}/n{i}").read() != text:
		            assert time.monotonic() < deadline, f"{place}/n{i} is not {text}"
	END
}

# Two mounts make the same names at once: each has one maker, and what he wrote.
test_of_two_mounts_one_makes_a_name() {
	begin_in both
	second_mount
	python3 - "$mnt/both" "$mnt2/both" "$backing/both" <<-'END'
		import os, random, sys, threading, time
		places, there = sys.argv[1:3], sys.argv[3]
		def make(place, name, pause, results):
		    time.sleep(pause)
		    try:
		        with open(os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
		            file.write(place)
		        results.append(place)
		    except FileExistsError:
		        pass
		for place in places:
		    os.listdir(place)
		for i in range(40):
		    results = []
		    threads = [threading.Thread(target=make, args=(place, f"n{i}", random.uniform(0, 0.04), results)) for place in places]
		    for thread in threads:
		        thread.start()
		    for thread in threads:
		        thread.join()
		    assert len(results) == 1, f"n{i} has {len(results)} makers"
		    assert open(f"{there}/n{i}").read() == results[0]
	END
}

# Of two that create a lock file, open(2) itself, not close(2), tells one that it exists already.
test_a_lock_file_is_waited_for() {
	begin_in locks
	(set -o noclobber; echo mine >"$mnt/locks/index.lock")
	expect 1 "$(trips locks/index.lock create)" "round trips"
}

test_a_directory_that_was_replaced_gets_no_file() {
	begin_in replaced
	python3 - "$mnt/replaced" "$backing/replaced" "$tmp/link" <<-'END'
		import errno, os, sys, threading
		here, there, link = sys.argv[1:]
		def set_link(state):
		    with open(link, "w") as file:
		        file.write(state + "\n")
		set_link("stall")
		fd = os.open(f"{here}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
		os.rename(there, there + ".old")
		os.mkdir(there)
		threading.Timer(0.3, set_link, ["up"]).start()
		try:
		    os.close(fd)
		except OSError as error:
		    assert error.errno in (errno.ESTALE, errno.ENOENT), error
		else:
		    assert False, "silence"
		assert os.listdir(there) == [], os.listdir(there)
	END
}

test_a_cut_link_makes_nothing_twice() {
	local i

	begin_in cut
	for i in $(seq 10); do
		mktemp "$mnt/cut/fileXXXXXX" >>"$tmp/made" || fail "mktemp: $?"
		[ $((i % 3)) = 0 ] || continue
		echo reset >"$tmp/link"
		sleep 0.1
		echo up >"$tmp/link"
	done
	expect 11 "$(find "$backing/cut" -type f | wc -l)" "files"
}

# limited_mount OPTIONS: $mnt2 is a mount of a file system of its own, $tmp/limited.
limited_mount() {
	[ "$(id -u)" = 0 ] || skip "only root mounts a file system with a limit"
	mkdir -p "$tmp/limited"
	mount -t tmpfs -o "$1" limited "$tmp/limited" 2>/dev/null || skip "no tmpfs can be mounted"
	trap 'umount -l "$tmp/limited"' EXIT
	chmod 755 "$tmp/limited"
	uri=ssh://box$tmp/limited second_mount
	trap 'end_second_mount; umount "$tmp/limited" || umount -l "$tmp/limited"' EXIT
}

make_tree_tar() { # COUNT
	local i

	mkdir -p "$tmp/from/tree"
	for i in $(seq "$1"); do
		seq "$((i * 50))" >"$tmp/from/tree/$i"
	done
	tar -C "$tmp/from" --sort=name -cf "$tmp/tree.tar" tree
}

# Until it is known here that it is gone.
clear_tree() {
	rm -rf "$tmp/limited/tree"
	wait_for 10 test ! -e "$mnt2/tree" || fail "a tree is left"
}

# untar_tells_each_loss NAME COMMAND...: what tar says of no file is whole there, and if anything is lost it fails.
untar_tells_each_loss() {
	local name=$1 status=0
	shift

	"$@" tar -C "$mnt2" -xf "$tmp/tree.tar" >"$tmp/said" 2>&1 || status=$?
	python3 - "$tmp/from/tree" "$tmp/limited/tree" "$tmp/said" "$status" "$name" <<-'END'
		import os, re, sys
		made, there, said, status, name = sys.argv[1:]
		told = set(re.findall(r"^tar: tree/(\d+):", open(said).read(), re.M))
		lost = set()
		for file in os.listdir(made):
		    try:
		        same = open(f"{made}/{file}").read() == open(f"{there}/{file}").read()
		    except FileNotFoundError:
		        same = False
		    if not same:
		        lost.add(file)
		assert lost <= told, f"{name}: nothing was said of {sorted(lost - told)}: {open(said).read()}"
		assert lost and status != "0", f"{name}: {len(lost)} lost, status {status}: {open(said).read()}"
	END
}

# The workspace has no inode left for the Nth file, or what comes before it.
test_no_loss_is_silent_where_inodes_end() {
	local count

	make_tree_tar 12
	limited_mount size=80m,nr_inodes=40
	for count in 3 4 7 10 13; do
		clear_tree
		# Those that are prepared end after a while, or are in use.
		wait_for 90 mount -o "remount,size=80m,nr_inodes=$count" "$tmp/limited" || fail "not even $count inodes are free"
		untar_tells_each_loss "nr_inodes=$count"
	done
}

test_no_loss_is_silent_where_the_disk_fills_meanwhile() {
	local count filler

	make_tree_tar 50
	limited_mount size=80m
	for count in 2 15; do
		clear_tree
		{
			wait_for 30 test -e "$tmp/limited/tree/$count"
			fallocate -l 80m "$tmp/limited/filler" || head -c 100m /dev/zero >"$tmp/limited/filler"
		} 2>"$tmp/filled" &
		filler=$!
		untar_tells_each_loss "full at $count"
		wait "$filler" || true
		rm "$tmp/limited/filler"
	done
}

test_no_loss_is_silent_where_permission_ends_meanwhile() {
	local count denier

	make_tree_tar 50
	chmod 755 "$tmp" "$tmp/from" "$tmp/from/tree"
	chmod 644 "$tmp/tree.tar" "$tmp"/from/tree/*
	mount_options+=(-o allow_other --idmap=none)
	limited_mount size=80m,mode=755
	chown 1000:1000 "$tmp/limited"
	for count in 1 12; do
		clear_tree
		{
			wait_for 30 test -e "$tmp/limited/tree/$count"
			chmod 555 "$tmp/limited/tree"
		} &
		denier=$!
		untar_tells_each_loss "denied at $count" setpriv --reuid 1000 --regid 1000 --clear-groups
		wait "$denier"
	done
}

need_fuse
need python3
prepare_backend "$1"
simulate_link 40 -o linger=20
run_tests_prepared
