#!/bin/bash
# What the FUSE edge owes on top of the workspace: fresh data at every open, locks that two
# mounts share, names that never flicker, hashes in the log.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

need_backing() {
	[ -n "$backing" ] || skip "nobody else can change a mem: workspace"
}

# At once where the workspace is near; elsewhere when the feed has come.
same_here() {
	case "$uri" in
	local:*) cmp "$backing/$1" "$mnt/$1" ;;
	*) wait_for 5 cmp "$backing/$1" "$mnt/$1" ;;
	esac
}

# Sizes on both sides of what is handed over with the open.
test_an_open_sees_what_others_have_changed() {
	need_backing
	local size

	for size in 1 5000 131072 131073 400000; do
		head -c "$size" /dev/zero | tr '\0' a >"$backing/f$size"
		same_here "f$size"
		head -c "$size" /dev/zero | tr '\0' b >"$backing/f$size"
		same_here "f$size"
		head -c "$((size / 2))" /dev/zero | tr '\0' c >"$backing/f$size"
		same_here "f$size"
		head -c "$((size * 2))" /dev/zero | tr '\0' d >"$backing/f$size"
		same_here "f$size"
		echo "end" >>"$mnt/f$size"
		same_here "f$size"
	done
}

# F_SETFL tells nobody; the flag comes with each write.
test_appending_can_be_turned_on_and_off() {
	need_backing
	need python3
	python3 - "$mnt/a" "$backing/a" <<-'END'
		import fcntl, mmap, os, sys, time
		here, there = sys.argv[1:]
		fd = os.open(here, os.O_RDWR | os.O_CREAT)
		os.write(fd, b"one\n")
		fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
		os.fsync(fd)
		with open(there, "a") as other:
		    other.write("two\n")
		os.write(fd, b"three\n")
		os.fsync(fd)
		assert open(there).read() == "one\ntwo\nthree\n", open(there).read()
		appending = os.open(here, os.O_RDWR | os.O_APPEND)
		fcntl.fcntl(appending, fcntl.F_SETFL, 0)
		os.pwrite(appending, b"ONE", 0)
		os.fsync(appending)
		assert open(there).read() == "ONE\ntwo\nthree\n", open(there).read()
		os.close(appending)
		os.close(fd)
		# Pages that the kernel writes back have their place, whoever else appends.
		appending = os.open(here, os.O_RDWR | os.O_APPEND)
		with mmap.mmap(appending, 0) as pages:
		    pages[4:7] = b"TWO"
		    pages.flush()
		os.close(appending)
		assert open(there).read() == "ONE\nTWO\nthree\n", open(there).read()
	END
}

test_locks_hold_between_two_mounts() {
	need_backing
	need python3

	second_mount
	python3 - "$mnt" "$mnt2" <<-'END'
		import fcntl, os, sys
		places, writers, rounds = sys.argv[1:], 6, 60
		for place, lock in [("f", fcntl.flock), ("p", fcntl.lockf)]:
		    open(f"{places[0]}/{place}", "w").write("1000")
		    while not os.path.exists(f"{places[1]}/{place}"):
		        pass
		    for n in range(writers):
		        if os.fork():
		            continue
		        for _ in range(rounds):
		            with open(f"{places[n % 2]}/{place}", "r+") as f:
		                lock(f, fcntl.LOCK_EX)
		                value = int(f.read())
		                f.seek(0)
		                f.write(str(value + 1))
		                f.flush()
		        os._exit(0)
		    assert all(os.wait()[1] == 0 for _ in range(writers))
		    got = int(open(f"{places[0]}/{place}").read())
		    assert got == 1000 + writers * rounds, (place, got)
	END
}

# The feed's word of the last change comes while the next holder of the lock reads, and others here
# are granted it, too.
test_who_has_a_lock_sees_what_the_last_holder_wrote() {
	need_backing
	need python3
	python3 - "$mnt/held" "$backing/held" <<-'END'
		import fcntl, mmap, os, random, sys, time
		here, there = sys.argv[1:]
		written = mmap.mmap(-1, 8)
		def content(n):
		    return b"%08d" % n + b"%d" % (n % 10) * (n * 7919 % 9000)
		def write(lock, end):
		    n, fd = 0, os.open(there, os.O_RDWR)
		    while time.monotonic() < end:
		        lock(fd, fcntl.LOCK_EX)
		        n += 1
		        os.pwrite(fd, content(n), 0)
		        os.ftruncate(fd, len(content(n)))
		        written[:] = b"%08d" % n
		        lock(fd, fcntl.LOCK_UN)
		        time.sleep(random.uniform(0.001, 0.006))
		def read(lock, end):
		    fd = os.open(here, os.O_RDWR)
		    while time.monotonic() < end:
		        lock(fd, fcntl.LOCK_SH)
		        want, got = content(int(written[:])), os.pread(fd, 16384, 0)
		        lock(fd, fcntl.LOCK_UN)
		        assert got == want, (lock, want[:8], len(want), got[:8], len(got))
		        time.sleep(random.uniform(0, 0.004))
		for lock in fcntl.flock, fcntl.lockf:
		    with open(there, "wb") as file:
		        file.write(content(0))
		    written[:] = b"%08d" % 0
		    while not os.path.exists(here):
		        pass
		    end = time.monotonic() + 2
		    for work in write, read, read, read:
		        if os.fork() == 0:
		            work(lock, end)
		            os._exit(0)
		    failed = sum(os.wait()[1] != 0 for _ in range(4))
		    assert not failed, f"{failed} processes failed"
	END
}

test_a_file_being_replaced_is_always_there() {
	need python3
	python3 - "$mnt" <<-'END'
		import os, sys, time
		os.chdir(sys.argv[1])
		open("target", "w").write("x" * 100)
		end = time.monotonic() + 3
		for n in range(4):
		    if os.fork() == 0:
		        while time.monotonic() < end:
		            with open(f".new{n}", "w") as f:
		                f.write("x" * 100)
		            os.rename(f".new{n}", "target")
		        os._exit(0)
		for n in range(8):
		    if os.fork() == 0:
		        while time.monotonic() < end:
		            assert open("target").read() == "x" * 100
		            assert os.stat("target").st_size == 100
		            os.chmod("target", 0o644)
		        os._exit(0)
		failed = sum(os.wait()[1] != 0 for _ in range(12))
		sys.exit(f"{failed} processes failed" if failed else 0)
	END
}

# Whoever looks again for what was replaced has it opened at the place, as it may go once more before
# he opens it; and where the place is near what is replaced here stays for who has just found it.
test_what_was_replaced_does_not_stay_open_at_the_workspace() {
	need_backing
	need python3
	mkdir "$mnt/spares"
	python3 - "$mnt/spares" "$backing/spares" <<-'END'
		import glob, os, sys, time
		here, there = sys.argv[1:]
		def is_open(fd, name):
		    try:
		        path = os.readlink(fd)
		    except OSError:
		        return False
		    # What is prepared for the next new file has a name like "#1234".
		    return (path.startswith(f"{there}/{name}") and path.endswith(" (deleted)")
		            and not path.startswith(f"{there}/#"))
		def held(name=""):
		    return sum(is_open(fd, name) for fd in glob.glob("/proc/[0-9]*/fd/*"))
		def replace(place, name):
		    with open(f"{place}/new", "w") as f:
		        f.write("x" * 300000)
		    os.rename(f"{place}/new", f"{place}/{name}")
		replace(here, "a")
		replace(here, "b")
		found = os.open(f"{here}/a", os.O_PATH)
		replace(here, "a")
		end = time.monotonic() + 10
		while not held("b"): # as long as the feed is quicker
		    assert time.monotonic() < end, "nothing was looked for again: nothing is shown"
		    for _ in range(5):
		        open(f"{here}/b").close()
		        replace(there, "b")
		        open(f"{here}/b").close()
		end = time.monotonic() + 15 # 2, where there is a processor for it
		while held():
		    assert time.monotonic() < end, f"{held()} files are still open"
		    time.sleep(0.1)
	END
}

# A write sets the mtime first and the content then: who looks in between has the content of before
# under the new mtime.  Who has the file open to write is told all the same.
test_what_was_read_during_a_write_at_the_workspace_does_not_stay() {
	need_backing
	need python3
	python3 - "$mnt/early" "$backing/early" <<-'END'
		import mmap, os, sys, time
		here, there = sys.argv[1:]
		size = 1000000
		out = os.open(there, os.O_WRONLY | os.O_CREAT)
		os.truncate(there, size)
		end = time.time() + 5
		while not os.path.exists(here):
		    assert time.time() < end, "the file does not show"
		    time.sleep(.01)
		held = os.open(here, os.O_RDWR)
		go = mmap.mmap(-1, 1)
		for n in range(120):
		    data = bytes([1 + n]) * (size - 1)
		    go[0] = 0
		    if os.fork() == 0:
		        while not go[0]:
		            pass
		        os.pwrite(out, data, 0)
		        os._exit(0)
		    time.sleep(.005)
		    os.pwrite(held, b"x", size - 1) # the kernel asks for attributes again
		    go[0] = 1
		    time.sleep(n % 8 * .00002)
		    os.fstat(held)
		    os.pread(held, size, 0)
		    os.wait()
		    end = time.time() + 5
		    while os.pread(held, size - 1, 0) != data:
		        assert time.time() < end, f"write {n} does not show"
		        time.sleep(.01)
	END
}

# What is allocated and was never written is no data, also after the far end has hashed the file; what
# was read there is, so nothing here may have read it.
test_what_was_only_allocated_is_no_data() {
	need_backing
	need python3
	python3 - "$mnt" "$backing" <<-'END' || exit
		import os, sys, time
		mnt, backing = sys.argv[1:]
		size, at = 65536, 40000
		def make(path):
		    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
		    os.posix_fallocate(fd, 0, size)
		    os.pwrite(fd, b"x", at)
		    os.fsync(fd)
		    return fd
		def data_of(fd):
		    return os.lseek(fd, 0, os.SEEK_DATA)
		want = data_of(make(f"{backing}/control"))
		here = [make(f"{mnt}/allocated{i}") for i in range(40)]
		time.sleep(.5)
		there = [os.open(f"{backing}/allocated{i}", os.O_RDONLY) for i in range(40)]
		def check(files):
		    got = [data_of(fd) for fd in files]
		    assert set(got) == {want}, (want, got)
		check(here)
		check(there)
		for fd in here:
		    os.close(fd)
		# Content that is fetched ahead, when the file is opened.
		check([os.open(f"{mnt}/allocated{i}", os.O_RDONLY) for i in range(40)])
		check(there)
	END
}

# A shell does not look at what close says.
test_a_write_to_a_full_disk_fails_itself() {
	need_backing
	[ "$(id -u)" = 0 ] || skip "only root mounts a disk to fill"
	mkdir "$backing/full"
	mount -t tmpfs -o size=1m full "$backing/full" 2>/dev/null || skip "no tmpfs can be mounted"
	trap 'wait_for 10 umount "$backing/full" || umount -l "$backing/full"' EXIT
	touch "$backing/full/mounted"
	wait_for 10 test -e "$mnt/full/mounted"
	echo old >"$mnt/full/old"
	head -c 2M /dev/zero >"$backing/full/filler" 2>/dev/null && fail "the disk is not full"
	! bash -c 'echo hi >"$0"' "$mnt/full/new" 2>"$tmp/full" || fail "a write to a new file succeeded"
	grep -q "No space left" "$tmp/full" || fail "said: $(cat "$tmp/full")"
	! bash -c 'head -c 8192 /dev/zero >>"$0"' "$mnt/full/old" 2>/dev/null || fail "a write at the end succeeded"
	wait_for 10 rm "$mnt/full/filler"
	echo hi >"$mnt/full/new"
	expect hi "$(cat "$backing/full/new")"
}

# Eight processes fill one new file, half of them through a map, and each page is of all.  The others
# write by the descriptor of the map, or by one that was opened to write only, before it or beside it.
# What fs/POSIX.md promises is for writes that follow one another within 80 ms: only such rounds count.
test_writes_and_maps_of_one_page_lose_nothing() {
	need python3
	python3 - "$mnt/mixed" <<-'END' || { [ $? = 9 ] && skip "the machine is too busy"; }
		import mmap, os, sys, time
		path, writers, pages = sys.argv[1], 8, 16
		part = mmap.PAGESIZE // writers
		want = b"".join(bytes([n + 1]) * part for n in range(writers)) * pages
		def fill(fd, area, n):
		    for at in range(n * part, len(want), mmap.PAGESIZE):
		        if n % 2:
		            area[at:at + part] = want[at:at + part]
		        else:
		            os.pwrite(fd, want[at:at + part], at)
		    os._exit(0)
		def write_and_map(how):
		    before = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
		    started = time.monotonic()
		    os.pwrite(before, bytes(1), 0)
		    fd = os.open(path, os.O_RDWR)
		    os.ftruncate(fd, len(want))
		    area = mmap.mmap(fd, len(want))
		    for n in range(writers):
		        if os.fork() == 0:
		            if how == "beside":
		                before = os.open(path, os.O_WRONLY)
		            fill(fd if how == "same" else before, area, n)
		    assert all([os.wait()[1] == 0 for _ in range(writers)])
		    counts = time.monotonic() - started < 0.08
		    area.close()
		    os.fsync(fd)
		    os.close(fd)
		    os.close(before)
		    with open(path, "rb") as file:
		        assert file.read() == want or not counts, how
		    return counts
		counted = [write_and_map(how) for _ in range(60) for how in ("same", "before", "beside")]
		if not any(counted):
		    sys.exit(9)
	END
}

# The kernel is kept from dropping the pages of a file that is written and mapped; all the same every
# look has the attributes of now.
test_looks_at_a_mapped_file_have_its_attributes() {
	need python3
	[ -n "$backing" ] || skip "nobody else can change a mem: workspace"
	python3 - "$mnt/looked" "$backing/looked" <<-'END'
		import mmap, os, sys, time
		path, backing = sys.argv[1:]
		def of(stat):
		    return stat.st_mtime_ns, stat.st_size, stat.st_mode
		def is_seen(got):
		    before, seen, after = of(os.stat(backing)), of(got()), of(os.stat(backing))
		    return seen in (before, after) or before != after
		# What is changed at the workspace shows when the feed has told of it.
		def wait_for(is_so):
		    end = time.monotonic() + 5
		    while not is_so():
		        assert time.monotonic() < end
		with open(path, "wb") as f:
		    f.write(bytes(2 * mmap.PAGESIZE))
		with open(path, "r+b") as f, open(path, "rb") as other:
		    area = mmap.mmap(f.fileno(), 2 * mmap.PAGESIZE)
		    for i in range(3000):
		        area[2 * i + 1] = 1
		        os.pwrite(f.fileno(), b"w", 2 * i)
		        assert is_seen(lambda: os.stat(path)), i
		        assert is_seen(lambda: os.fstat(f.fileno())), i
		        if i % 500 == 0:
		            os.chmod(backing, 0o600 + i // 500)
		            wait_for(lambda: is_seen(lambda: os.stat(path)))
		            with open(backing, "ab") as there:
		                there.write(b"grown")
		            os.pwrite(f.fileno(), b"w", 2 * i)
		            size = os.stat(backing).st_size
		            wait_for(lambda: os.pread(other.fileno(), 9, size - 5) == b"grown")
		    area.flush()
		with open(backing, "rb") as f:
		    text = f.read(6000)
		assert text == b"w\1" * 3000, text
	END
}

# The content of a small file is put into the kernel's pages when it is opened to be read: not over what
# another descriptor, which was opened meanwhile, has written or changed in a map.
test_an_open_brings_nothing_of_before_back() {
	need python3
	python3 - "$mnt/counted" <<-'END'
		import mmap, os, struct, sys, time
		path, end, size = sys.argv[1], time.monotonic() + 4, 130000
		shared = mmap.mmap(-1, 4096)
		def number(data):
		    return struct.unpack("<I", data[:4])[0]
		def read():
		    stale = set()
		    while time.monotonic() < end:
		        fd = os.open(path, os.O_RDONLY)
		        written = number(shared)
		        if number(os.pread(fd, 4, 0)) < written:
		            stale.add(written)
		        os.close(fd)
		    # A stalled writer can cause one: ops/cache/COHERENCE.md, "What is left out".
		    assert len(stale) <= 1, f"what was written is not read: {sorted(stale)}"
		def write():
		    count = 0
		    while time.monotonic() < end:
		        count += 1
		        data = struct.pack("<I", count)
		        fd = os.open(path, os.O_RDWR)
		        if count % 2:
		            os.pwrite(fd, data, 0)
		        else:
		            with mmap.mmap(fd, 4096) as area:
		                area[:4] = data
		                time.sleep(.0001)
		                assert area[:4] == data, "what was changed in the map is gone"
		        shared[:4] = data
		        os.close(fd)
		with open(path, "wb") as file:
		    file.write(bytes(size))
		for work in read, read, write:
		    if os.fork() == 0:
		        work()
		        os._exit(0)
		assert all([os.wait()[1] == 0 for _ in range(3)])
	END
}

# The file system of the workspace is frozen, so that a write waits there while a read is served.  It
# keeps whole seconds: the kernel cannot tell by the mtime that the file has changed.
test_a_read_served_before_a_write_does_not_stay() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	need python3 mkfs.ext4 fsfreeze
	case "$uri" in local:*) ;; *) skip "one backend will do" ;; esac

	mkdir "$backing/frozen"
	truncate -s 16M "$tmp/image"
	mkfs.ext4 -q -I 128 "$tmp/image" 2>/dev/null
	mount -o loop "$tmp/image" "$backing/frozen" 2>/dev/null || skip "no loop devices here"
	trap 'fsfreeze -u "$backing/frozen" 2>/dev/null || :; wait_for 10 umount "$backing/frozen"' EXIT
	python3 - "$mnt/frozen/file" "$backing/frozen" "$ISTHMUS" <<-'END'
		import os, subprocess, sys, threading, time
		path, place, isthmus = sys.argv[1:]
		time.sleep(1 - time.time() % 1)
		with open(path, "wb") as file:
		    file.write(b"old")
		# Nothing more of that may come: without its page here the write would lock that.
		subprocess.run([isthmus, "exec", os.path.dirname(path), "--", "true"], check=True)
		reader, writer = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
		assert os.pread(reader, 3, 0) == b"old"
		subprocess.run(["fsfreeze", "-f", place], check=True)
		try:
		    write = threading.Thread(target=lambda: os.pwrite(writer, b"new", 0))
		    write.start()
		    time.sleep(.2)
		    os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
		    os.pread(reader, 3, 0)
		finally:
		    subprocess.run(["fsfreeze", "-u", place], check=True)
		write.join()
		content = os.pread(reader, 3, 0)
		assert content == b"new", f"after the write: {content}"
	END
}

test_the_log_has_the_hash_of_what_was_written() {
	local want

	seq 10000 >"$mnt/numbers"
	want=$(getfattr --only-values -n user.isthmus.hash "$mnt/numbers")
	[ "${#want}" = 32 ]
	wait_for 5 grep -q "\"op\":\"close\",\"path\":\"numbers\".*\"hash\":\"$want\"" "$mnt/.isthmus/log"
	[ -z "$backing" ] || [ "${uri%%:*}" != local ] || {
		printf xyz | dd of="$mnt/numbers" bs=1 seek=100 conv=notrunc status=none
		want=$(getfattr --only-values -n user.isthmus.hash "$mnt/numbers")
		wait_for 5 grep -q "\"hash\":\"$want\"" "$mnt/.isthmus/log"
	}
}

in_log() {
	grep -q "\"hash\":\"$1\"${2:-}" "$mnt/.isthmus/log"
}

hash_of() {
	getfattr --only-values -n user.isthmus.hash "$mnt/$1"
}

test_the_log_has_the_hash_of_what_was_replaced() {
	local first nothing=99aa06d3014798d86001c324468d497f second third fourth

	seq 10000 >"$mnt/chain"
	first=$(hash_of chain)
	wait_for 10 in_log "$first" ",\"hash_before\":\"$nothing\""
	if [[ ! "$uri" =~ ^(local|mem): ]]; then
		echo "anew" >"$mnt/chain"
		second=$(hash_of chain)
		wait_for 10 in_log "$second"
		if in_log "$second" ',"hash_before"'; then
			return 1
		fi
		return 0
	fi
	echo "more" >>"$mnt/chain"
	second=$(hash_of chain)
	wait_for 10 in_log "$second" ",\"hash_before\":\"$first\""
	echo "anew" >"$mnt/chain"
	third=$(hash_of chain)
	wait_for 10 in_log "$third" ",\"hash_before\":\"$second\""
	"$ISTHMUS" log "$mnt" >"$tmp/shown"
	grep -q "before $second  hash $third" "$tmp/shown"
	[ -n "$backing" ] || return 0
	echo "of somebody else" >"$backing/chain"
	echo "and more" >>"$mnt/chain"
	fourth=$(hash_of chain)
	wait_for 10 in_log "$fourth"
	if in_log "$fourth" ',"hash_before"'; then
		return 1
	fi
}

test_a_removed_directory_keeps_its_times() {
	need_backing
	need python3
	mkdir "$mnt/removed"
	python3 - "$mnt/removed" "$backing/removed" <<-'END'
		import os, sys, time
		here, there = sys.argv[1:]
		fd = os.open(here, os.O_RDONLY)
		os.utime(fd, ns=(0, -500000000))
		assert os.fstat(fd).st_mtime_ns == -500000000
		while not os.path.exists(there):
		    pass
		os.rmdir(there)
		end = time.monotonic() + 2
		while time.monotonic() < end:
		    assert os.fstat(fd).st_mtime_ns == -500000000, os.fstat(fd)
		    time.sleep(0.01)
	END
}

test_a_file_without_a_name_can_get_one() {
	need python3
	python3 - "$mnt" <<-'END'
		import ctypes, errno, os, sys
		try:
		    fd = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o600)
		except OSError as e:
		    sys.exit(0 if e.errno == errno.EOPNOTSUPP else e)
		os.write(fd, b"unseen")
		assert "named" not in os.listdir(sys.argv[1])
		libc = ctypes.CDLL(None, use_errno=True)
		link = [-100, f"/proc/self/fd/{fd}".encode(), -100, f"{sys.argv[1]}/named".encode(), 0x400]
		assert libc.linkat(*link) == 0, os.strerror(ctypes.get_errno())
		assert open(f"{sys.argv[1]}/named").read() == "unseen"
	END
}

switches() {
	cat /proc/"$daemon_pid"/task/*/status | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'
}

sleeps_for_two_seconds() {
	local before

	before=$(switches)
	sleep 2
	[ $(($(switches) - before)) -le 8 ]
}

test_an_idle_mount_sleeps() {
	wait_for 20 sleeps_for_two_seconds || fail "it goes on waking up"
}

switches_of_main_thread() {
	awk '/^voluntary_ctxt_switches/ { print $2 }' /proc/"$daemon_pid"/task/"$daemon_pid"/status
}

# It waits for the end of the threads that serve, some of which come and go with requests.
test_the_main_thread_sleeps_while_requests_are_served() {
	need python3
	local before count

	before=$(switches_of_main_thread)
	python3 - "$mnt/synced" <<-'END' || return
		import os, sys
		fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
		for _ in range(300):
		    os.fsync(fd)
	END
	count=$(($(switches_of_main_thread) - before))
	[ "$count" -le 30 ] || fail "300 requests woke it $count times"
}

round_trips_of() {
	"$ISTHMUS" log --json --op "$1" --path "$2" "$mnt" | sed -n 's/.*"round_trips":\([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}

# What the second mount has waited for, and read from the disk store.
waits_and_disk_hits() {
	"$ISTHMUS" log --json "$mnt2" | grep -c '"round_trips":'
	"$ISTHMUS" status "$mnt2" --json | grep '"disk_hits"'
}

# The cache's memory holds a tenth of the tree, and the kernel has all of it.
test_a_tree_that_is_larger_than_the_memory_is_read_again_from_here() {
	local before

	case "$uri" in helper:*) ;; *) skip "only where requests wait for a far end" ;; esac
	need rg
	mkdir -p "$backing"/larger/d{1..40}
	for file in "$backing"/larger/d{1..40}/f{1..25}; do
		head -c 10000 /dev/zero | tr '\0' x >"$file"
	done
	second_mount -o memory=1M
	rg -c --no-ignore x "$mnt2/larger" >"$tmp/found"
	rg -c --no-ignore x "$mnt2/larger" >"$tmp/found"
	before=$(waits_and_disk_hits)
	rg -c --no-ignore x "$mnt2/larger" >"$tmp/found"
	expect 1000 "$(wc -l <"$tmp/found")" "files found" &&
		expect "$before" "$(waits_and_disk_hits)" "round trips and files from disk"
}

# As a linker does: it writes and reads in turns.  The kernel asks before each write whether the file
# has a capability, which the write would take away, and before each read for the size.
test_who_writes_and_reads_in_turns_waits_for_little() {
	need python3
	case "$uri" in helper:*) ;; *) skip "only where requests wait for a far end" ;; esac
	python3 - "$mnt/linked" <<-'END' || return
		import os, sys, time
		fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_TRUNC)
		for n in range(20):
		    os.pwrite(fd, b"data", n * 100)
		    os.pread(fd, 4, n * 100)
		    time.sleep(0.02)
	END
	expect 0 "$(round_trips_of getxattr linked)" "round trips for a capability"
	# One, and one more a second.
	[ "$(round_trips_of getattr linked)" -le 5 ] || fail "the size is asked for each time"
}

test_who_writes_sees_what_others_append_and_truncate() {
	need python3
	case "$uri" in mem:*) skip "nobody else can change a mem: workspace" ;; esac
	python3 - "$mnt/grows" "$backing/grows" <<-'END'
		import os, sys, time
		path, place = sys.argv[1:]
		def becomes(expected):
		    end = time.monotonic() + 5 * int(os.environ.get("TEST_PATIENCE", 1))
		    while True:
		        os.pwrite(fd, b"O", 0)
		        got = os.pread(fd, 100, 0)
		        if got == expected:
		            return
		        assert time.monotonic() < end, got
		fd = os.open(path, os.O_CREAT | os.O_RDWR)
		os.write(fd, b"ours ")
		becomes(b"Ours ")
		with open(place, "ab") as file:
		    file.write(b"theirs")
		becomes(b"Ours theirs")
		os.truncate(place, 2)
		becomes(b"Ou")
		os.pwrite(fd, b"more", 2)
		becomes(b"Oumore")
		assert os.fstat(fd).st_size == 6
		os.close(fd)
		with open(place, "rb") as file:
		    assert file.read() == b"Oumore"
	END
}

# The kernel closes such files, which is a request that it waits for, while it holds a lock that
# much of /proc/PID takes: a daemon that looks there then waits for itself, and ps with it.
test_a_program_may_be_replaced_with_files_open() {
	local worker

	need python3
	python3 - "$mnt" <<-'END' &
		import os, sys, time
		def replaced(n):
		    with open(f"{sys.argv[1]}/replaced{n}", "w") as file:
		        file.write("data")
		        file.flush()
		        time.sleep(0.02)
		        os.execv("/bin/true", ["true"])
		for n in range(12):
		    if os.fork() == 0:
		        replaced(n)
		for n in range(12):
		    assert os.wait()[1] == 0
	END
	worker=$!
	if ! wait_for 30 not_running "$worker"; then
		# Nothing else frees them, not even SIGKILL.
		umount -f "$mnt" || true
		fail "they hang in execve"
	fi
	wait "$worker"
	expect 48 "$(cat "$mnt"/replaced* | wc -c)" "what they wrote"
}

# Its path would have no end.
test_a_directory_mounted_below_itself_is_a_loop() {
	need_backing
	[ "$(id -u)" = 0 ] || skip "needs root"
	local listed entered deeper

	mkdir -p "$backing/loop/below/self"
	echo content >"$backing/loop/file"
	mount --bind "$backing/loop" "$backing/loop/below/self" || skip "no mounts here"
	trap 'umount "$backing/loop/below/self"' EXIT
	wait_for 5 eval '! stat "$mnt/loop/below/self"' || fail "the loop can be looked up"
	listed=$(timeout -s KILL 10 ls "$mnt/loop/below") || true
	deeper=$(timeout -s KILL 10 ls "$mnt/loop/below/self" 2>&1) || true
	entered=$(timeout -s KILL 10 cat "$mnt/loop/file") || true
	expect self "$listed" "listing"
	expect content "$entered" "content"
	case "$deeper" in
	*"Too many levels"*) ;;
	*) fail "ls of the loop: '$deeper'" ;;
	esac
}

# same_objects HERE THERE: what is one object there is one here; listings show its number, too.
same_objects() {
	python3 - "$1" "$2" <<-'END'
		import os, sys
		here, there = sys.argv[1:]
		objects, numbers, wrong = {}, {}, []
		def check(name, listed):
		    number = os.lstat(here + name).st_ino
		    at = os.lstat(there + name)
		    if not 0 < number < 2**52:
		        wrong.append(f"{name} has {number}")
		    if listed not in (None, number):
		        wrong.append(f"{name} is listed as {listed}, and has {number}")
		    if numbers.setdefault(number, (at.st_dev, at.st_ino)) != (at.st_dev, at.st_ino):
		        wrong.append(f"{name} has the number of another object")
		    if objects.setdefault((at.st_dev, at.st_ino), number) != number:
		        wrong.append(f"{name} has another number than its other name")
		def walk(name):
		    for entry in os.scandir(here + name):
		        if name or entry.name != ".isthmus":
		            check(name + "/" + entry.name, entry.inode())
		        if entry.is_dir(follow_symlinks=False):
		            walk(name + "/" + entry.name)
		check("", None)
		walk("")
		sys.exit("\n".join(wrong) or 0)
	END
}

end_nested() {
	end_second_mount
	umount "$backing/outer/inner"
	umount "$backing/outer"
}

# Two file systems give out the same numbers; the mount is one device.
test_objects_on_nested_file_systems_have_numbers_of_their_own() {
	need_backing
	need mkfs.ext4 python3
	[ "$(id -u)" = 0 ] || skip "needs root"
	local outer=$backing/outer inner=$backing/outer/inner disk

	mkdir "$outer"
	truncate -s 8M "$tmp/outer.img" "$tmp/inner.img"
	for disk in outer inner; do
		mkfs.ext4 -qF -O ^has_journal "$tmp/$disk.img" || skip "mkfs.ext4 fails"
	done
	trap 'umount "$outer"' EXIT
	mount -o loop "$tmp/outer.img" "$outer" || skip "no mounts here"
	mkdir "$inner"
	trap 'umount "$inner"; umount "$outer"' EXIT
	mount -o loop "$tmp/inner.img" "$inner" || skip "no mounts here"
	mkdir "$inner/filler" "$outer/d" "$inner/d"
	echo outside >"$outer/a" && ln "$outer/a" "$outer/b"
	echo inside >"$inner/a" && ln "$inner/a" "$inner/b"
	expect "$(stat -c %i "$outer/a")" "$(stat -c %i "$inner/a")" "numbers that collide"
	wait_for 5 test -e "$mnt/outer/inner/b"

	same_objects "$mnt/outer" "$outer"
	expect "$mnt/outer/inner" "$(find "$mnt/outer" -name inner 2>&1)" "what find finds"
	expect "$mnt/outer/inner/d" "$(find "$mnt/outer/inner" -name d 2>&1)" "what find finds below"
	if [ "$mnt/outer/a" -ef "$mnt/outer/inner/a" ]; then fail "two objects are one"; fi
	[ "$mnt/outer/inner/a" -ef "$mnt/outer/inner/b" ]
	mkdir "$tmp/tar" "$tmp/copy"
	tar -C "$mnt" --format=pax -cf - outer | tar -C "$tmp/tar" -xf -
	cp -a "$mnt/outer" "$tmp/copy"
	same_tree "$outer" "$tmp/tar/outer"
	same_tree "$outer" "$tmp/copy/outer"
	expect "$(du -s --apparent-size -B1 "$outer" | cut -f1)" "$(du -s --apparent-size -B1 "$mnt/outer" | cut -f1)" "du"
	mv "$mnt/outer/b" "$mnt/outer/inner/c"
	expect outside "$(cat "$inner/c")" "what mv has moved"
	expect "$(stat -c %i "$backing")" "$(stat -c %i "$mnt")" "the number of the root"
	(cd "$mnt" && find . -printf '%p %i\n' | sort >"$tmp/numbers")
	second_mount
	trap end_nested EXIT
	(cd "$mnt2" && find . -printf '%p %i\n' | sort >"$tmp/numbers2")
	diff "$tmp/numbers" "$tmp/numbers2"
}

# Their size is 0, and their times say nothing.
test_files_that_are_made_when_they_are_read_have_content() {
	need_backing
	[ "$(id -u)" = 0 ] || skip "needs root"
	local uuid

	mkdir "$backing/proc"
	mount -t proc none "$backing/proc" || skip "no mounts here"
	trap 'umount -l "$backing/proc"' EXIT
	wait_for 5 test -e "$mnt/proc/version"
	expect "$(cat /proc/version)" "$(cat "$mnt/proc/version")" "content"
	expect "$(cat /proc/version)" "$("$ISTHMUS_TOOLS" tool read --root "$mnt" proc/version)" "what the tool reads"
	expect "$(cat /proc/filesystems)" "$(cat "$mnt/proc/filesystems")" "content of several lines"
	uuid=$(cat "$mnt/proc/sys/kernel/random/uuid")
	expect 36 "${#uuid}" "length of an id"
	[ "$uuid" != "$(cat "$mnt/proc/sys/kernel/random/uuid")" ] || fail "the id is the former one"
	cp "$mnt/proc/version" "$tmp/version"
	expect "$(cat /proc/version)" "$(cat "$tmp/version")" "the copy"
	expect "$(cat /proc/sys/fs/lease-break-time)" "$(cat "$mnt/proc/sys/fs/lease-break-time")" "a setting"
	cat /proc/sys/fs/lease-break-time >"$mnt/proc/sys/fs/lease-break-time"
	expect "$(cat /proc/sys/fs/lease-break-time)" "$(cat "$mnt/proc/sys/fs/lease-break-time")" "a setting that was set"
}

has_links() {
	[ "$(stat -c %h "$2")" = "$1" ]
}

# No event tells of a link in a directory that is not watched, nor of what is written by that name.
test_a_link_that_others_make_elsewhere_is_noticed() {
	need_backing

	echo old >"$backing/linked"
	wait_for 5 grep old "$mnt/linked"
	expect 1 "$(stat -c %h "$mnt/linked")" "links"
	ln "$backing/linked" "$tmp/elsewhere"
	wait_for 30 has_links 2 "$mnt/linked" || fail "it has one link still"
	echo newer >"$tmp/elsewhere"
	wait_for 5 grep newer "$mnt/linked" || fail "the content is as it was"
	expect 6 "$(stat -c %s "$mnt/linked")" "size"
}

on_ttl() {
	"$ISTHMUS" status "$mnt" --json |
		python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)["on_ttl"]["directories"]))'
}

# A network file system, played by another isthmus: inotify is silent about what others do to it.
test_what_others_do_to_a_network_file_system_shows_after_the_ttl() {
	need_backing
	need python3

	mkdir -p "$backing/network" "$tmp/shared/d" "$mnt/plain"
	echo old >"$tmp/shared/d/file"
	"$ISTHMUS" mount "local:$tmp/shared" "$backing/network" || skip "no mounts here"
	trap '"$ISTHMUS" umount "$backing/network" || umount -l "$backing/network"' EXIT
	ls "$mnt/plain" >/dev/null
	wait_for 5 grep old "$mnt/network/d/file" || fail "the mount does not show"
	ls -R "$mnt/network" >/dev/null
	expect "network network/d" "$(on_ttl)" "directories on a time-to-live"
	echo newer >"$tmp/shared/d/file"
	touch "$tmp/shared/d/more"
	wait_for 5 grep newer "$mnt/network/d/file" || fail "the content is as it was"
	wait_for 5 test -e "$mnt/network/d/more" || fail "nothing is new"
	"$ISTHMUS" exec "$mnt/network/d" -- sh -c 'echo newest >file; rm more'
	expect newest "$(cat "$mnt/network/d/file")" "content after a command"
	expect file "$(ls "$mnt/network/d")" "names after a command"
}

# helper_faults: how often the processes of the helper have got fresh pages.
helper_faults() {
	local pid

	for pid in $(pgrep -f isthmus-helper); do
		! readlink "/proc/$pid"/fd/* 2>/dev/null | grep -qxF "$backing" || sed 's/.*) //' "/proc/$pid/stat"
	done | awk '{ sum += $8 } END { print sum + 0 }'
}

test_the_helper_reads_a_large_file_in_memory_that_it_has() {
	local before after

	[[ $uri = helper:* ]] || skip "there is no helper"
	truncate -s 128M "$backing/large"
	before=$(helper_faults)
	cat "$mnt/large" >/dev/null
	after=$(helper_faults)
	rm "$mnt/large"
	[ $((after - before)) -lt $(((128 << 8) * 3 / 4)) ] || fail "$((after - before)) fresh pages for $((128 << 8))"
}

run_tests "$1"
