#!/bin/bash
# Mounting, unmounting, and what happens when the daemon dies.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

mount_here() {
	"$ISTHMUS" mount "${mount_options[@]}" "$@" "$uri" "$mnt"
}

umount_here() {
	"$ISTHMUS" umount "$@" "$mnt"
}

# The pid of the daemon that serves $mnt, as the machine sees it: the oldest process, as a child of it
# has the same command line until it runs something else.
daemon_of_mount() {
	pgrep -o -f "^$ISTHMUS mount .*$mnt\$"
}

no_daemon() {
	[ -z "$(daemon_of_mount)" ]
}

not_mounted() {
	! is_mounted
}

test_mount_returns_when_usable_and_umount_when_done() {
	mount_here
	is_mounted
	echo data >"$mnt/file"
	umount_here
	not_mounted || fail "still mounted"
	wait_for 2 no_daemon
	expect data "$(cat "$backing/file")" "what was written"
}

test_of_mounts_at_once_on_one_directory_one_is_made() {
	local pids=() pid made=0

	for _ in 1 2 3 4; do
		mount_here >"$tmp/out" 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		if wait "$pid"; then made=$((made + 1)); fi
	done
	expect 1 "$(grep -cF " $mnt fuse" /proc/self/mounts)" mounts
	expect 1 "$made" "mounts that were reported"
	umount_here
}

test_what_was_closed_is_there_after_a_remount() {
	local inode

	mount_here
	seq 1000 >"$mnt/kept"
	chmod 640 "$mnt/kept"
	inode=$(stat -c '%i %Y %Z %s %a' "$mnt/kept")
	umount_here
	mount_here
	expect "$inode" "$(stat -c '%i %Y %Z %s %a' "$mnt/kept")" "attributes after a remount"
	seq 1000 | cmp - "$mnt/kept"
	umount_here
}

says_not_connected() {
	! stat "$mnt/whole" 2>"$tmp/err" && grep 'not connected' "$tmp/err"
}

test_a_killed_daemon_says_so_and_mount_recovers() {
	mount_here
	seq 5000 >"$mnt/whole"
	kill -KILL "$(daemon_of_mount)"
	wait_for 5 no_daemon
	# What is under way while the kernel notices says "connection abort".
	wait_for 5 says_not_connected || fail "stat says: $(cat "$tmp/err")"
	mount_here 2>"$tmp/err"
	seq 5000 | cmp - "$mnt/whole"
	umount_here
}

# Its threads need the processor for that.
test_mount_recovers_from_a_daemon_that_is_being_killed() {
	need chrt
	local daemon i

	busy=()
	for i in 1 2 3 4; do
		sh -c 'while :; do :; done' &
		busy+=($!)
	done
	trap 'kill "${busy[@]}"' EXIT
	mount_here
	for i in $(seq 20); do
		daemon=$("$ISTHMUS" status "$mnt" | awk '/^daemon/ { print $NF }')
		chrt --all-tasks --idle --pid 0 "$daemon"
		kill -KILL "$daemon"
		mount_here 2>"$tmp/err" || fail "round $i: $(cat "$tmp/err")"
	done
	umount_here
}

# The session at the far end waits for a client that is gone for good: the next one ends it.
test_locks_of_a_killed_daemon_go_with_the_next_mount() {
	need flock
	local longer=()

	case "$uri" in helper:*) longer=(-o linger=60) ;; esac
	mount_here "${longer[@]}"
	exec 8>"$mnt/locked"
	flock -n 8 || fail "cannot be locked"
	! flock -n "$backing/locked" true || fail "the lock is not at the workspace"
	kill -KILL "$(daemon_of_mount)"
	wait_for 5 no_daemon || fail "the daemon lives"
	mount_here "${longer[@]}" 2>"$tmp/err" || fail "mount says: $(cat "$tmp/err")"
	wait_for 10 flock -n "$backing/locked" true || fail "it is still locked"
	exec 8>&-
	umount_here
}

test_local_locks_hold_on_the_mount_alone() {
	need flock
	mount_here -o locks=local
	[[ $("$ISTHMUS" status "$mnt") == *$'\n'"locks        local"* ]] || fail "status does not say so"
	exec 8>"$mnt/locked_here" 9>>"$mnt/locked_here"
	flock -n 8 || fail "cannot be locked"
	! flock -n 9 || fail "locked twice on one mount"
	flock -n "$backing/locked_here" true || fail "the lock is at the workspace"
	python3 - "$mnt/locked_here" <<-'END' || fail "fcntl locks"
		import fcntl, os, sys
		file = open(sys.argv[1], "r+b")
		fcntl.lockf(file, fcntl.LOCK_EX)
		if os.fork() == 0:
		    try:
		        fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
		    except BlockingIOError:
		        os._exit(0)
		    os._exit(1)
		sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
	END
	exec 8>&- 9>&-
	flock -n "$mnt/locked_here" true || fail "still locked"
	expect 0 "$("$ISTHMUS" log "$mnt" --json | grep "\"op\":\"lock\"" | grep -c locked_here)" "locks that the daemon was asked for"
	umount_here
}

# A far lock has the kernel hand over what a program has changed in its map of the file: killed in
# the middle of that, a thread of the daemon waits in the kernel for the daemon.
hang_the_daemon() {
	truncate -s 1M "$mnt/mapped"
	python3 - "$mnt/mapped" "$(daemon_of_mount)" <<-'END'
		import fcntl, glob, mmap, os, signal, sys, time
		daemon = int(sys.argv[2])
		if os.fork():
		    end = time.time() + 10
		    while time.time() < end:
		        for name in glob.glob("/proc/%d/task/*/wchan" % daemon):
		            if "folio_wait" in open(name).read():
		                os.kill(daemon, signal.SIGKILL)
		                os._exit(0)
		    os._exit(1)
		file = open(sys.argv[1], "r+b")
		pages = mmap.mmap(file.fileno(), 1 << 20)
		while True:
		    pages[::4096] = os.urandom(256)
		    fcntl.lockf(file, fcntl.LOCK_EX)
		    fcntl.lockf(file, fcntl.LOCK_UN)
	END
}

test_mount_and_umount_recover_what_hangs_on_a_killed_daemon() {
	need python3
	case "$uri" in local:*) skip "its locks drop no pages" ;; esac

	mount_here
	hang_the_daemon || skip "the kernel does not show where threads wait"
	timeout -s KILL 20 "$ISTHMUS" umount "$mnt"
	wait_for 5 no_daemon || fail "the daemon hangs"
	mount_here
	hang_the_daemon
	timeout -s KILL 20 "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt" 2>"$tmp/err"
	umount_here
}

test_a_stopped_daemon_is_given_up_by_force() {
	local daemon waiting code=0

	mount_here
	daemon=$(daemon_of_mount)
	kill -STOP "$daemon"
	timeout 60 cat "$mnt/file" 2>"$tmp/waiting" &
	waiting=$!
	sleep 0.2 # it may not have asked yet, which is as good
	timeout 20 "$ISTHMUS" umount --force "$mnt" 2>"$tmp/err" || fail "umount: $(cat "$tmp/err")"
	grep -q "(pid $daemon) is stopped, and ends when it is continued" "$tmp/err" || fail "said: $(cat "$tmp/err")"
	not_mounted || fail "still mounted"
	wait "$waiting" || code=$?
	[ "$code" = 1 ] || fail "who waited ended with $code"
	kill -CONT "$daemon"
	wait_for 15 no_daemon || fail "the daemon did not end"
	mount_here
	echo works >"$mnt/again"
	timeout 20 "$ISTHMUS" umount -f "$mnt"
	wait_for 5 no_daemon
}

# As a daemon that hangs, but of a mount that is not there any more.
hang_for_another_mount() {
	python3 - "$XDG_RUNTIME_DIR"/isthmus/*.json <<-'END' &
		import ctypes, json, os, platform, sys, threading, time
		threading.Thread(target=time.sleep, args=(60,)).start()
		libc = ctypes.CDLL(None)
		libc.prctl(15, b"isthmus", 0, 0, 0)
		with open(sys.argv[1]) as file:
		    state = json.load(file)
		state["pid"] = os.getpid()
		with open("/proc/self/stat") as file:
		    state["pid_started"] = int(file.read().rsplit(")", 1)[1].split()[19])
		state["connection"] += 1
		with open(sys.argv[1], "w") as file:
		    json.dump(state, file)
		libc.syscall(60 if platform.machine() == "x86_64" else 93, 0)
	END
	wait_for 10 grep -q 'State:.*Z' "/proc/$!/status"
}

test_a_mount_is_not_taken_for_that_of_another_daemon_which_hangs() {
	need python3
	mount_here
	hang_for_another_mount || fail "the process does not hang"
	! mount_here 2>"$tmp/err" || fail "mounted over it"
	grep -q 'already' "$tmp/err" || fail "mount says: $(cat "$tmp/err")"
	echo works >"$mnt/still"
	"$ISTHMUS" list >"$tmp/list"
	grep -F "$mnt " "$tmp/list" | grep -q ' mounted ' || fail "list says: $(cat "$tmp/list")"
	kill -KILL $!
	umount_here
	wait_for 10 no_daemon || fail "still running"
}

test_umount_recovers_a_killed_daemon() {
	mount_here
	kill -KILL "$(daemon_of_mount)"
	wait_for 5 no_daemon
	umount_here
	not_mounted || fail "still mounted"
	mount_here
	umount_here
}

test_a_kill_in_the_middle_of_work_leaves_closed_files_whole() {
	local i worker

	mount_here
	mkdir "$mnt/many"
	(
		i=0
		while [ $i -lt 2000 ]; do
			seq $((i * 10)) >"$mnt/many/new" || break
			mv "$mnt/many/new" "$mnt/many/$i" || break
			i=$((i + 1))
		done
	) 2>/dev/null &
	worker=$!
	sleep 0.5
	kill -KILL "$(daemon_of_mount)"
	wait "$worker" || true
	umount_here
	[ "$(ls "$backing/many" | wc -l)" -gt 1 ] || fail "nothing was written"
	for i in "$backing/many/"[0-9]*; do
		seq $((${i##*/} * 10)) | cmp - "$i"
	done
}

test_sigterm_unmounts() {
	mount_here
	echo x >"$mnt/before"
	kill -TERM "$(daemon_of_mount)"
	wait_for 10 not_mounted || fail "still mounted"
	wait_for 10 no_daemon || fail "still running"
	expect x "$(cat "$backing/before")"
}

test_sigterm_with_an_open_file_unmounts_lazily() {
	mount_here
	exec 7>"$mnt/open"
	kill -TERM "$(daemon_of_mount)"
	wait_for 10 not_mounted || fail "still mounted"
	exec 7>&-
	wait_for 10 no_daemon || fail "still running"
}

# The kernel keeps such pages until somebody asks for them.
test_sigterm_writes_what_was_changed_by_mmap() {
	local mapper

	need python3
	mount_here
	python3 - "$mnt/mapped" >"$tmp/said" <<-'END' &
		import mmap, os, sys, time
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		os.ftruncate(fd, 64 << 20)
		pages = mmap.mmap(fd, 64 << 20)
		pages[:] = b"x" * (64 << 20)
		print("changed", flush=True)
		time.sleep(60)
	END
	mapper=$!
	wait_for 20 grep changed "$tmp/said"
	kill -TERM "$(daemon_of_mount)"
	wait_for 20 no_daemon || fail "still running"
	kill -KILL "$mapper"
	wait "$mapper" || true
	expect $((64 << 20)) "$(tr -cd x <"$backing/mapped" | wc -c)" "bytes at the workspace"
	rm "$backing/mapped"
}

test_umount_of_a_busy_mount_names_the_holder() {
	local holder

	mount_here
	(cd "$mnt" && exec sleep 60) &
	holder=$!
	wait_for 5 sh -c "[ \"\$(readlink /proc/$holder/cwd)\" = '$mnt' ]"
	! umount_here 2>"$tmp/err" || fail "umount of a busy mount succeeded"
	grep -q "$holder" "$tmp/err" || fail "the holder is not named: $(cat "$tmp/err")"
	is_mounted
	kill "$holder"
	wait "$holder" || true
	umount_here
}

# A shell executes the last command of a line in its own place.
test_umount_in_the_mount_itself() {
	mount_here
	mkdir "$mnt/below"
	bash -c 'cd "$1" && "$0" umount "$2"' "$ISTHMUS" "$mnt/below" "$mnt"
	! is_mounted || fail "still mounted"
	mount_here
	bash -c 'cd "$1" && "$0" umount .' "$ISTHMUS" "$mnt"
	! is_mounted || fail "still mounted by its relative path"
}

test_umount_that_cannot_look_for_holders_says_why() {
	[ "$(id -u)" = 0 ] || skip "fusermount3 needs more files"
	mount_here
	exec 7<"$mnt"
	! (exec 7<&-; ulimit -n 5; umount_here) 2>"$tmp/err" || fail "umount of a busy mount succeeded"
	grep -q 'cannot be looked for (Too many open files)' "$tmp/err" || fail "$(cat "$tmp/err")"
	exec 7<&-
	umount_here
}

# In a mount namespace of its own, lest mounts of others are copied.
test_umount_says_where_a_copy_of_the_mount_is() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	need unshare
	mkdir "$tmp/other"
	"$(dirname "$0")/own_mounts.sh" bash -e -s "$ISTHMUS" "$uri" "$mnt" "$tmp" <<-'END'
		isthmus=$1 uri=$2 mnt=$3 tmp=$4
		comes_true() {
			for _ in $(seq 200); do
				! "$@" 2>/dev/null || return 0
				sleep 0.05
			done
			cat "$tmp/err"
			return 1
		}
		umount_waits_as() {
			"$isthmus" umount "$mnt" 2>"$tmp/err" &
			umount=$!
			comes_true grep -qF "waiting for its daemon: $1" "$tmp/err"
		}

		"$isthmus" mount "$uri" "$mnt"
		mount --bind "$mnt" "$tmp/other"
		umount_waits_as "it is also mounted at \"$tmp/other\""
		umount "$tmp/other"
		wait $umount

		"$isthmus" mount "$uri" "$mnt"
		unshare -m sleep 60 </dev/null &
		holder=$!
		comes_true grep -q sleep /proc/$holder/comm
		umount_waits_as "sleep (pid $holder) has a copy of the mount"
		kill $holder
		wait $umount
	END
	wait_for 10 no_daemon || fail "still running"
}

test_lazy_umount_of_a_busy_mount() {
	mount_here
	exec 7<"$mnt"
	umount_here --lazy
	not_mounted || fail "still mounted"
	exec 7<&-
	wait_for 10 no_daemon || fail "still running"
}

# It serves what was detached for as long as that is in use, and writes the log.
test_a_daemon_whose_mount_was_detached_leaves_the_next_one_alone() {
	local end former

	for end in unused TERM; do
		mount_here
		former=$(daemon_of_mount)
		exec 7<"$mnt"
		umount_here --lazy
		mount_here 2>"$tmp/err"
		grep -q "cannot keep the mount log in .* isthmus (pid $former)" "$tmp/err" ||
			fail "mount says: $(cat "$tmp/err")"
		[ "$end" = unused ] || kill -"$end" "$former"
		[ "$end" = TERM ] || exec 7<&-
		wait_for 10 not_running "$former" || fail "still running"
		is_mounted || fail "the next one is unmounted ($end)"
		expect works "$("$ISTHMUS" exec "$mnt" -- echo works)" "a command ($end)"
		"$ISTHMUS" list | grep -F "$mnt " | grep -q "[[:space:]]$(daemon_of_mount)[[:space:]]" ||
			fail "the list ($end): $("$ISTHMUS" list)"
		exec 7<&-
		umount_here
	done
}

# ... which most systems set for the sake of select(2): commands have it as it was.
test_more_files_are_open_than_the_soft_limit_says() {
	need python3
	(ulimit -Sn 256 && mount_here)
	python3 - "$mnt" <<-'END'
		import os, resource, sys
		_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
		resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
		files = [os.open(f"{sys.argv[1]}/open{n}", os.O_CREAT | os.O_RDWR, 0o600) for n in range(600)]
		for n, fd in enumerate(files):
		    os.write(fd, b"%d" % n)
		    os.unlink(f"{sys.argv[1]}/open{n}")
		assert all(os.pread(fd, 9, 0) == b"%d" % n for n, fd in enumerate(files))
	END
	expect 256 "$("$ISTHMUS" exec "$mnt" -- sh -c 'ulimit -Sn')" "the limit of a command"
	umount_here
}

# Those that stat, create directories, remove or write what is open need a descriptor there for a moment.
test_only_opens_fail_when_as_many_files_are_open_as_may_be() {
	local without=--bounding-set=-sys_resource

	need python3 setpriv
	[ "$(id -u)" = 0 ] || without=--inh-caps=-sys_resource
	(ulimit -n 400 && exec setpriv "$without" "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt")
	python3 - "$mnt" <<-'END'
		import errno, os, sys
		os.chdir(sys.argv[1])
		os.mkdir("dir")
		first = os.open("dir/first", os.O_CREAT | os.O_RDWR, 0o600)
		files, error = [], 0
		while not error:
		    try:
		        files.append(os.open(f"dir/open{len(files)}", os.O_CREAT | os.O_WRONLY, 0o600))
		    except OSError as failure:
		        error = failure.errno
		assert error == errno.EMFILE, error
		assert len(files) >= 250, len(files)
		os.mkdir("dir/sub")
		os.write(first, b"text")
		assert os.fstat(first).st_size == 4
		os.rename("dir/open0", "dir/sub/open0")
		os.unlink("dir/open1")
		assert f"open{len(files)}" not in os.listdir("dir")
		for fd in files:
		    os.close(fd)
		os.close(os.open("dir/later", os.O_CREAT | os.O_WRONLY, 0o600))
	END
	umount_here
}

test_sigterm_ends_who_was_started_with_signals_blocked() {
	need python3
	python3 - "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt" <<-'END'
		import os, signal, sys
		signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
		os.execv(sys.argv[1], sys.argv[1:])
	END
	kill -TERM "$(daemon_of_mount)"
	wait_for 10 not_mounted || fail "still mounted"
	wait_for 10 no_daemon || fail "still running"
}

test_nohup_keeps_a_hangup_from_ending_the_daemon() {
	env --ignore-signal=HUP "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt" || fail "did not mount"
	kill -HUP "$(daemon_of_mount)"
	sleep 0.3
	echo stays >"$mnt/after-hangup" || fail "ended by SIGHUP"
	umount_here
	env --default-signal=HUP "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt" || fail "did not mount"
	kill -HUP "$(daemon_of_mount)"
	wait_for 10 not_mounted || fail "still mounted after SIGHUP"
	wait_for 10 no_daemon || fail "still running"
}

# What is opened then must not take their numbers.
test_closed_standard_files_do_not_matter() {
	local close

	for close in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
		eval "mount_here $close"
		echo text >"$mnt/file"
		eval '"$ISTHMUS" exec "$mnt" -- sh -c "cat >copied; cat file >>copied"' "$close"
		expect text "$(cat "$backing/copied")" "what a command did with $close"
		eval '"$ISTHMUS" tool write --root "$mnt" written words' "$close" || true # nobody hears it
		expect words "$(cat "$backing/written")" "what a tool did with $close"
		rm "$mnt/written"
		eval "umount_here $close"
	done
}

test_list_shows_what_is_mounted() {
	mount_here
	"$ISTHMUS" list >"$tmp/list"
	grep -qF "$mnt" "$tmp/list" && grep -qF "$uri" "$tmp/list" || fail "$(cat "$tmp/list")"
	umount_here
	! "$ISTHMUS" list | grep -F "$mnt" || fail "list still shows it"
}

test_list_forgets_a_killed_daemon() {
	mount_here
	kill -KILL "$(daemon_of_mount)"
	wait_for 5 no_daemon
	timeout "$(patient 10)" "$ISTHMUS" list >"$tmp/list"
	umount_here
	! "$ISTHMUS" list | grep -F "$mnt" || fail "list still shows it"
}

test_status_says_what_is_there() {
	mount_here
	"$ISTHMUS" status "$mnt" | grep -qF "$uri"
	"$ISTHMUS" status "$mnt" --json | python3 -m json.tool >/dev/null
	umount_here
}

root_state() {
	"$ISTHMUS" status "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["workspace"]["root"])'
}

listed_state() {
	"$ISTHMUS" list --json | python3 -c 'import json, sys; print([m["state"] for m in json.load(sys.stdin) if m["mount_point"] == sys.argv[1]][0])' "$mnt"
}

test_status_and_list_say_where_the_root_has_gone() {
	need python3

	mkdir "$tmp/moving"
	uri=${uri%"$backing"}$tmp/moving
	mount_here
	expect "" "$(root_state)"
	expect mounted "$(listed_state)"
	mv "$tmp/moving" "$tmp/moved"
	expect moved "$(root_state)"
	expect gone "$(listed_state)"
	mkdir "$tmp/moving"
	expect moved "$(root_state)" "with another directory in its place"
	"$ISTHMUS" status "$mnt" | grep -q '^root  *ITS DIRECTORY WAS MOVED' || fail "$("$ISTHMUS" status "$mnt")"
	rmdir "$tmp/moved"
	expect removed "$(root_state)"
	"$ISTHMUS" list >"$tmp/list"
	grep -F "$mnt " -A 1 "$tmp/list" | grep -q 'moved or removed at the workspace: unmount it' || fail "$(cat "$tmp/list")"
	umount_here
}

test_a_mount_without_a_log_says_so() {
	need python3
	local state=$XDG_STATE_HOME

	touch "$tmp/no-directory"
	export XDG_STATE_HOME=$tmp/no-directory
	mount_here 2>/dev/null
	! "$ISTHMUS" log "$mnt" >/dev/null 2>"$tmp/err" || fail "there is one"
	grep -q 'keeps no log, as .* mount again' "$tmp/err" || fail "$(cat "$tmp/err")"
	! grep -q 'does not answer' "$tmp/err" || fail "$(cat "$tmp/err")"
	umount_here
	XDG_STATE_HOME=$state mount_here
	XDG_STATE_HOME=$state umount_here
	mount_here 2>/dev/null
	XDG_STATE_HOME=$state "$ISTHMUS" log "$mnt" >"$tmp/out" 2>"$tmp/err" || fail "$(cat "$tmp/err")"
	grep -q 'keeps no log: these lines are from earlier mounts' "$tmp/err" || fail "$(cat "$tmp/err")"
	umount_here
}

test_a_daemon_with_its_directories_inside_the_mount_does_not_hang() {
	mkdir -p "$backing/inside"
	mount_here
	(cd "$mnt/inside" && TMPDIR=$mnt/inside HOME=$mnt/inside timeout "$(patient 20)" "$ISTHMUS" exec -- pwd) >"$tmp/out"
	expect "$backing/inside" "$(cat "$tmp/out")"
	umount_here
	(cd "$mnt" && mount_here) || fail "mount from the mount point itself"
	(cd / && umount_here)
}

test_read_only() {
	mount_here -o ro
	! touch "$mnt/new" 2>/dev/null || fail "could write"
	ls "$mnt" >/dev/null
	umount_here
}

test_virtual_directory_is_readable_and_invisible() {
	mount_here
	[ -z "$(find "$mnt" -name .isthmus)" ] || fail "readdir shows .isthmus"
	python3 -m json.tool <"$mnt/.isthmus/status" >/dev/null
	python3 -m json.tool <"$mnt/.isthmus/stats" >/dev/null
	head -n 1 "$mnt/.isthmus/log" | python3 -m json.tool >/dev/null
	expect 400 "$(stat -c %a "$mnt/.isthmus/log")" "mode of the log"
	! rm -r "$mnt/.isthmus" 2>/dev/null || fail "could be removed"
	! mv "$mnt/.isthmus" "$mnt/other" 2>/dev/null || fail "could be renamed"
	! mkdir "$mnt/.isthmus" 2>/dev/null || fail "could be made"
	! touch "$mnt/.isthmus/new" 2>/dev/null || fail "could be written to"
	umount_here
}

# mount.fuse3 looks for isthmus in places of its own: a private /usr/local/bin has it.
test_mount_8_and_fstab_syntax() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	need unshare mount.fuse3
	"$(dirname "$0")/own_mounts.sh" bash -e -s "$ISTHMUS" "$uri" "$mnt" "$backing" "$tmp/fstab" <<-'END'
		isthmus=$1 uri=$2 mnt=$3 backing=$4 fstab=$5
		served() { grep -F " $mnt fuse.isthmus " /proc/self/mounts; }
		mount -t tmpfs none /usr/local/bin
		cp "$isthmus" "${isthmus%/*}"/../backends/remote/isthmus-helper* /usr/local/bin/
		mount -t fuse.isthmus "$uri" "$mnt"
		served >/dev/null
		echo x >"$mnt/by-mount-8"
		umount "$mnt"
		[ "$(cat "$backing/by-mount-8")" = x ]
		echo "$uri $mnt fuse.isthmus noauto,ro,allow_other,ttl=2,_netdev 0 0" >"$fstab"
		mount -T "$fstab" "$mnt"
		served | grep -q " ro,.*allow_other"
		[ "$(cat "$mnt/by-mount-8")" = x ]
		! touch "$mnt/by-mount-8" 2>/dev/null || exit 1
		umount "$mnt"
	END
	wait_for 10 no_daemon
}

# With another prefix than those that mount.fuse3 knows.
test_mount_8_by_its_own_helper() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	need unshare
	"$(dirname "$0")/own_mounts.sh" bash -e -s "$ISTHMUS" "$uri" "$mnt" "$backing" "$tmp" <<-'END'
		isthmus=$1 uri=$2 mnt=$3 backing=$4 tmp=$5
		served() { grep -F " $mnt fuse.isthmus " /proc/self/mounts; }
		mkdir -p "$tmp/prefix/bin" "$tmp/prefix/sbin"
		cp "$isthmus" "${isthmus%/*}"/../backends/remote/isthmus-helper* "$tmp/prefix/bin/"
		ln -s ../bin/isthmus "$tmp/prefix/sbin/mount.fuse.isthmus"
		mount -t tmpfs none "$(readlink -f /sbin)"
		! "$tmp/prefix/bin/isthmus" doctor | grep -q '^ok .*mount -t fuse.isthmus' || exit 1
		ln -s "$tmp/prefix/sbin/mount.fuse.isthmus" /sbin/
		"$tmp/prefix/bin/isthmus" doctor | grep -q '^ok .*mount -t fuse.isthmus'
		mount -f -t fuse.isthmus "$uri" "$mnt"
		! served || exit 1
		echo "$uri $mnt fuse.isthmus noauto,allow_other,_netdev 0 0" >"$tmp/fstab"
		mount -v -T "$tmp/fstab" "$mnt"
		served | grep -q "allow_other"
		echo y >"$mnt/by-mount-8"
		umount "$mnt"
		[ "$(cat "$backing/by-mount-8")" = y ]
	END
	wait_for 10 not_mounted || fail "still mounted"
	wait_for 10 no_daemon_of_prefix || fail "still running"
}

no_daemon_of_prefix() {
	! pgrep -f "^/[^ ]*mount.fuse.isthmus .*$mnt"
}

# Run as another user below a directory of theirs: mounts, works, unmounts.
cat >"$tmp/as_user.sh" <<'END'
set -e
mkdir -m 700 ws mnt run cache state
./isthmus mount "local:$PWD/ws" mnt
echo "by me" >mnt/file
mkdir mnt/d && rmdir mnt/d
[ "$(stat -c %u mnt/file)" = "$(id -u)" ]
./isthmus exec mnt -- cat file
./isthmus umount mnt
cmp ws/file - <<<"by me"
! grep " $PWD/mnt " /proc/self/mounts
END

test_another_user_mounts() {
	[ "$(id -u)" = 0 ] || skip "needs root to become somebody else"
	need setpriv unshare
	[ -e /etc/mtab ] || skip "without /etc/mtab, fusermount3 unmounts for root only"
	# A private /dev/fuse that everybody may use; the machine's own stays as it is.
	"$(dirname "$0")/own_mounts.sh" bash -e -c '
		mount -t tmpfs -o mode=755 none /mnt
		mknod -m 666 /mnt/fuse c 10 229
		mount --bind /mnt/fuse /dev/fuse
		mkdir -m 777 /mnt/u
		cp "$1" "$2" /mnt/u
		cd /mnt/u
		exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all,+setuid,+setgid,+sys_admin,+dac_override \
			env TMPDIR=/mnt/u HOME=/mnt/u XDG_RUNTIME_DIR=/mnt/u/run XDG_CACHE_HOME=/mnt/u/cache XDG_STATE_HOME=/mnt/u/state bash ./as_user.sh
	' - "$ISTHMUS" "$tmp/as_user.sh"
}

has_word() {
	[ -s "$1" ]
}

# Nobody else ends a child that waits for an answer.
test_a_mount_that_is_ended_while_it_connects_leaves_no_child() {
	local pid signal

	printf '#!/bin/sh\necho $$ >"%s"\nexec sleep 1000\n' "$tmp/child" >"$tmp/silent_ssh"
	chmod +x "$tmp/silent_ssh"
	for signal in TERM KILL; do
		rm -f "$tmp/child"
		"$ISTHMUS" mount -f -o "ssh_command=$tmp/silent_ssh" ssh://box/ws "$mnt" 2>"$tmp/err" &
		pid=$!
		wait_for 10 has_word "$tmp/child" || fail "no child: $(cat "$tmp/err")"
		kill "-$signal" "$pid"
		wait "$pid" || true
		wait_for 5 not_running "$(cat "$tmp/child")" || { kill "$(cat "$tmp/child")"; fail "a child is left"; }
	done
}

# The change is still being looked into when the daemon ends.
test_an_unmount_right_after_a_change_by_others_ends() {
	local started=$SECONDS i

	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		"$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt"
		: >"$mnt/seen"
		rm "$backing/seen"
		timeout "$(patient 20)" "$ISTHMUS" umount "$mnt" || fail "hangs"
	done
	[ $((SECONDS - started)) -lt "$(patient 20)" ] || fail "took $((SECONDS - started)) s"
}

run_tests_unmounted "$1"
