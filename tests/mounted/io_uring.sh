#!/bin/bash
# Requests that the kernel hands over by io_uring: what is different from /dev/fuse.  That all else
# is the same, other scripts show with MOUNTED_IO_URING.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

MOUNTED_IO_URING=1

uses_io_uring() {
	"$ISTHMUS" status --json "$mnt" | grep -q '"io_uring":[[:space:]]*true'
}

test_requests_come_that_way_where_it_is_wanted() {
	start_daemon
	uses_io_uring || fail "they do not: $(cat "$tmp/daemon.log")"
	MOUNTED_IO_URING='' remount -o ttl=1
	! uses_io_uring || fail "they do, and nobody wants it"
	stop_daemon
}

test_the_daemon_stays_on_the_processors_that_it_was_given() {
	local processor

	processor=$(taskset -pc $BASHPID | sed 's/.*[:,-] *//')
	taskset -pc "$processor" $BASHPID
	start_daemon
	uses_io_uring || fail "no requests by io_uring"
	ls "$mnt" >"$tmp/listing"
	expect "$processor" "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/"$daemon_pid"/task/*/status | sort -u)" \
		"where its threads may run"
	stop_daemon
}

# Each request has to be answered before its entry takes another: of those that wait there are more
# than of anything that is started ahead, and all on one processor.
test_many_waiting_locks_leave_room_for_who_unlocks() {
	local processor

	processor=$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')
	taskset -pc "$processor" $$
	start_daemon
	exec 8>"$mnt/locked"
	flock 8
	for _ in {1..150}; do
		(exec 8>&- 9>>"$mnt/locked"; flock 9; echo got >&9) &
	done
	sleep 2
	expect "" "$(timeout "$(patient 10)" cat "$mnt/locked")" "content while it is locked"
	timeout "$(patient 20)" flock -u 8 || fail "cannot unlock"
	wait_for 60 eval '[ "$(grep -c got "$backing/locked")" = 150 ]' || fail "only $(wc -l <"$backing/locked") got the lock"
	exec 8>&-
	wait_for 10 eval '! jobs -r | grep -q flock'
	stop_daemon
}

# A thread that others can do without gives its memory back, but not with a request in it.
test_what_a_crowd_writes_at_once_is_what_is_there() {
	start_daemon
	(cd "$mnt" && python3 -) <<-'END'
		import mmap, os, sys, time

		SIZE = 256 << 10
		os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

		def work(number):
		    wanted, got = mmap.mmap(-1, SIZE), mmap.mmap(-1, SIZE)
		    file = os.open(f"crowd{number}", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
		    end, turn = time.monotonic() + 5, 0
		    while time.monotonic() < end:
		        turn += 1
		        wanted[:] = bytes([1 + (number + turn) % 255]) * SIZE
		        if os.pwritev(file, [wanted], 0) != SIZE or os.preadv(file, [got], 0) != SIZE:
		            return f"file {number}, turn {turn}: short"
		        if got[:] != wanted[:]:
		            return f"file {number}, turn {turn}: something else, {got[0]} for {wanted[0]}"

		children = []
		for number in range(64):
		    children.append(os.fork())
		    if not children[-1]:
		        wrong = work(number)
		        print(wrong or "", end="\n" if wrong else "", flush=True)
		        os._exit(bool(wrong))
		sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
	END
	stop_daemon
}

# Two requests that are made one after the other may be served the other way round.
test_a_read_that_overtakes_a_write_leaves_nothing_of_before() {
	start_daemon
	(cd "$mnt" && python3 -) <<-'END'
		import mmap, os, struct, sys, time

		os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
		end = time.monotonic() + 5

		def number(data):
		    return struct.unpack("<I", data[:4])[0]

		def read(path, shared):
		    while time.monotonic() < end:
		        file = os.open(path, os.O_RDONLY)
		        written = number(shared)
		        got = number(os.pread(file, 4, 0))
		        os.close(file)
		        if got < written:
		            return f"{path}: {got} is read after {written} was written"

		def write(path, shared):
		    count = 0
		    while time.monotonic() < end:
		        count += 1
		        file = os.open(path, os.O_RDWR)
		        os.pwrite(file, struct.pack("<I", count), 0)
		        shared[:4] = struct.pack("<I", count)
		        os.close(file)

		children = []
		for file in range(24):
		    shared = mmap.mmap(-1, 4096)
		    with open(f"counted{file}", "wb") as new:
		        new.write(bytes(130000))
		    for work in read, read, write:
		        children.append(os.fork())
		        if not children[-1]:
		            wrong = work(f"counted{file}", shared)
		            print(wrong or "", end="\n" if wrong else "", flush=True)
		            os._exit(bool(wrong))
		sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
	END
	stop_daemon
}

# A ring is locked memory; of 64 KiB there are seven.
test_who_may_lock_little_memory_is_served_from_the_device() {
	local program=$ISTHMUS

	need setpriv
	printf '#!/bin/sh\nulimit -l 64\nexec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "%s" "$@"\n' \
		"$program" >"$tmp/limited"
	chmod +x "$tmp/limited"
	ISTHMUS=$tmp/limited start_daemon
	! uses_io_uring || fail "requests come by io_uring"
	grep -q 'this process: Cannot allocate memory' "$tmp/daemon.log" || fail "it says: $(cat "$tmp/daemon.log")"
	stop_daemon
}

test_a_killed_daemon_leaves_nothing_that_hangs() {
	local file status=0

	start_daemon
	for file in {1..20}; do
		(while echo x >>"$mnt/file$file"; do :; done) 2>/dev/null &
	done
	sleep 0.5
	kill -KILL "$daemon_pid"
	wait_for 10 eval '[ -z "$(jobs -r | grep echo)" ]' || fail "writers hang"
	timeout "$(patient 5)" stat "$mnt/file1" 2>"$tmp/err" || status=$?
	expect 1 "$status" "exit code of stat"
	grep -q 'not connected' "$tmp/err" || fail "it says: $(cat "$tmp/err")"
	timeout "$(patient 20)" "$ISTHMUS" umount "$mnt"
	wait "$daemon_pid" || true
	start_daemon
	for file in {1..20}; do
		! grep -vx x "$mnt/file$file" || fail "file$file has something else"
	done
	stop_daemon
}

run_tests_unmounted "$@"
