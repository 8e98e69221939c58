#!/bin/bash
# Ctrl-C frees whoever waits for a link that stands still, however many there are.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# callers NAME...: see $tmp/callers.py.
callers() {
	timeout "$(patient 100)" python3 "$tmp/callers.py" "$mnt" "$tmp/link" "$@"
}

test_every_blocked_call_can_be_interrupted() {
	callers stat read open create write fsync getdents mkdir rename unlink truncate link chmod \
		setxattr statfs flock lockf exec
}

# An interpreter can only act on Ctrl-C once its call returns.
test_who_handles_the_interrupt_is_freed_too() {
	callers --handled mkdir fsync
}

# Their holders have gone, whatever became of the requests that say so.
test_locks_of_the_interrupted_are_given_back() {
	callers held
	wait_for 10 flock -n "$backing/held0/locked" true || fail "the lock is held on"
}

# More than there are threads usually.
test_a_hundred_blocked_calls_can_be_interrupted() {
	local daemon

	daemon=$daemon_pid
	callers --times 100 mkdir
	[ -z "${MOUNTED_IO_URING:-}" ] || return 0 # they stay: fs/edge/session_uring.c
	wait_for 20 sh -c "[ \$(awk '/^Threads:/ { print \$2 }' /proc/$daemon/status) -lt 64 ]" ||
		fail "the threads stay"
}

# The kernel lets nobody look at it: its file is being closed.
test_who_is_held_up_within_execve_does_not_hold_umount_up() {
	local holder status=0 started

	python3 - "$mnt/held0" "$tmp/link" <<-'END' &
		import os, sys, time
		os.chdir("/")
		fd = os.open(f"{sys.argv[1]}/replaced", os.O_WRONLY | os.O_CREAT)
		with open(sys.argv[2], "w") as link:
		    link.write("stall")
		time.sleep(0.1)
		os.write(fd, b"data")
		os.execv("/bin/sleep", ["sleep", "0"])
	END
	holder=$!
	wait_for 10 grep -q stall "$tmp/link"
	sleep 0.5
	started=$SECONDS
	timeout "$(patient 20)" "$ISTHMUS" umount "$mnt" 2>"$tmp/err" || status=$?
	started=$((SECONDS - started))
	echo up >"$tmp/link"
	wait "$holder"
	expect 1 "$status" "exit code of umount"
	[ "$started" -lt 8 ] || fail "took $started s"
	grep 'in use by' "$tmp/err" || fail "umount says: $(cat "$tmp/err")"
	# A helper that hears no goodbye lingers.
	wait_for 20 mkdir "$mnt/again" || fail "did not come back by itself"
}

write_callers() {
	cat >"$tmp/callers.py" <<-'END'
		# callers.py MNT LINK [--times N] CALL...: starts the calls while the link stands still,
		# interrupts them, and expects that each caller ends soon.
		import fcntl, os, signal, subprocess, sys, time

		SOON = 5 * int(os.environ.get("TEST_PATIENCE", 1))  # seconds
		mnt, link, *calls = sys.argv[1:]
		times, handled = 1, calls[0] == "--handled"
		if handled:  # these wait 1 s on
		    SOON, calls = 2 * SOON, calls[1:]
		if calls[0] == "--times":
		    times, calls = int(calls[1]), calls[2:]

		def set_link(state):
		    with open(link + ".new", "w") as file:
		        file.write(state)
		    os.rename(link + ".new", link)
		    time.sleep(0.1)

		def write_much(fd):
		    while True:
		        os.write(fd, bytes(1 << 20))

		def write_and_sync(fd):
		    os.write(fd, b"x")
		    os.fsync(fd)

		def locked(path):
		    fd = os.open(path, os.O_RDWR)
		    fcntl.flock(fd, fcntl.LOCK_EX)
		    fcntl.lockf(fd, fcntl.LOCK_EX)
		    return fd

		# What is opened before, and what is called then, in a directory of its own.
		here = "."
		CALLS = {
		    "stat": (None, lambda _: os.stat("new/1/2/3/4/5/6")),
		    "read": (lambda: os.open("cold", os.O_RDONLY), lambda fd: os.read(fd, 1 << 20)),
		    "open": (None, lambda _: os.open("cold", os.O_RDWR | os.O_TRUNC)),
		    "create": (None, lambda _: os.open("created", os.O_RDWR | os.O_CREAT)),
		    "write": (lambda: os.open("w", os.O_RDWR | os.O_CREAT), write_much),
		    "fsync": (lambda: os.open("w", os.O_RDWR | os.O_CREAT), write_and_sync),
		    "getdents": (None, lambda _: os.listdir("new/1/2/3/4/5/6")),
		    "mkdir": (None, lambda _: os.mkdir(f"made{os.getpid()}")),
		    "rename": (None, lambda _: os.rename("cold", "renamed")),
		    "unlink": (None, lambda _: os.unlink("cold")),
		    "truncate": (None, lambda _: os.truncate("cold", 9)),
		    "link": (None, lambda _: os.link("cold", "linked")),
		    "chmod": (None, lambda _: os.chmod("cold", 0o600)),
		    "setxattr": (None, lambda _: os.setxattr("cold", "user.x", b"y")),
		    "statfs": (None, lambda _: os.statvfs(here)),
		    "flock": (lambda: os.open("locked", os.O_RDWR), lambda fd: fcntl.flock(fd, fcntl.LOCK_EX)),
		    "lockf": (lambda: os.open("locked", os.O_RDWR), lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX)),
		    "held": (lambda: locked("locked"), lambda fd: (os.write(fd, b"x"), os.close(fd))),
		    "exec": (None, lambda _: os.execv("./program", ["program"])),
		}

		def end(*_):
		    os.kill(os.getpid(), signal.SIGKILL)

		def call(name, directory, ready, go):
		    signal.signal(signal.SIGINT, end if handled else signal.SIG_DFL)
		    os.chdir(directory)
		    before, then = CALLS[name]
		    argument = before() if before else None
		    os.write(ready, b"x")
		    os.read(go, 1)
		    then(argument)

		ready, go = os.pipe(), os.pipe()
		running, held, failed = {}, [], []
		for name in calls:
		    for n in range(times):
		        directory = f"{mnt}/{name}{n}"
		        if name in ("flock", "lockf"):
		            held.append(locked(directory + "/locked"))
		        pid = os.fork()
		        if pid == 0:
		            os.close(go[1])
		            try:
		                call(name, directory, ready[1], go[0])
		            finally:
		                os._exit(0)
		        running[pid] = name
		for _ in running:
		    os.read(ready[0], 1)
		set_link("stall")
		os.close(go[1])
		time.sleep(2)
		for pid in running:
		    os.kill(pid, signal.SIGINT)
		began = time.monotonic()
		while running and time.monotonic() - began < SOON:
		    pid, status = os.waitpid(-1, os.WNOHANG)
		    if not pid:
		        time.sleep(0.01)
		        continue
		    name = running.pop(pid)
		    # What only looks may have its answer here already.
		    if not os.WIFSIGNALED(status) and name not in ("stat", "getdents", "read", "exec", "statfs"):
		        failed.append(f"{name} was not held up")
		set_link("up")
		for fd in held:
		    os.close(fd)
		failed += [f"{name} was not freed" for name in running.values()]
		if failed:
		    sys.exit("\n".join(failed))
	END
}

# What the callers work on; unknown to the mount so far.
make_tree() {
	local name n

	for name in stat read open create write fsync getdents mkdir rename unlink truncate link chmod \
		setxattr statfs flock lockf held exec; do
		mkdir -p "$backing/${name}0/new/1/2/3/4/5/6"
		: >"$backing/${name}0/locked"
		cp /bin/true "$backing/${name}0/program"
		truncate -s 9M "$backing/${name}0/cold"
	done
	for n in $(seq 1 99); do
		mkdir "$backing/mkdir$n"
	done
}

need_fuse
command -v python3 >/dev/null || skip_all "python3 is not installed"
prepare_backend ssh
make_tree
write_callers
simulate_link 2 -o linger=60 -o timeout=60
run_tests_prepared
