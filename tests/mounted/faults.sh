#!/bin/bash
# Faults of the link in the middle of work: only a delay; nothing is lost, nothing done twice.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# fault_now_and_then MODE SECONDS PAUSE: until the file $tmp/over is there, each once the link has come back.
fault_now_and_then() {
	while [ ! -e "$tmp/over" ]; do
		sleep "$3"
		until_link_is_back
		echo "$1" >"$tmp/link"
		sleep "$2"
		echo up >"$tmp/link"
	done
}

# survives MODE SECONDS PAUSE
survives() {
	local faults code=0

	mkdir "$mnt/$1"
	rm -f "$tmp/over"
	fault_now_and_then "$@" &
	faults=$!
	timeout "$(patient 120)" "$programs/mixed_work" "$mnt/$1" "${PROCESSES:-6}" "${CROWD_OPERATIONS:-60}" || code=$?
	touch "$tmp/over"
	wait "$faults"
	[ "$code" = 0 ] || fail "work under '$1' ended with $code"
	same_tree "$mnt/$1" "$backing/$1"
}

test_a_stall_is_only_a_delay() {
	survives stall 0.4 0.3
}

test_a_reset_is_only_a_delay() {
	survives reset 0.1 0.8
}

link_events() {
	"$ISTHMUS" log "$mnt" --op connection --json | python3 -c '
import json, sys
print(*(json.loads(line)["detail"].split(";")[0] for line in sys.stdin))'
}

link_came_back() {
	case $(link_events) in *"lost back") ;; *) return 1 ;; esac
}

test_a_lost_link_is_in_the_log() {
	pkill -KILL -P "$daemon_pid" || fail "no connection to kill"
	wait_for 30 link_came_back || fail "events: $(link_events)"
	"$ISTHMUS" log "$mnt" --op connection | grep -q "connection .*'lost'" || fail "$("$ISTHMUS" log "$mnt" --op connection)"
}

# The sessions of sshd die, as when the far end is short of memory.
kill_far_sessions() {
	local session

	for session in $(pgrep -P "$(cat "$tmp/ssh/sshd.pid")"); do
		pkill -KILL -P "$session" || :
		kill -KILL "$session" || :
	done
}

# In each way once, and again when there is a connection: until the file $tmp/over is there.
kill_connections() {
	local before

	while [ ! -e "$tmp/over" ]; do
		before=$(reconnects)
		sleep 0.3
		pkill -KILL -P "$daemon_pid" || : # it may be connecting
		sleep 0.5
		kill_far_sessions
		while [ ! -e "$tmp/over" ] && [ "$(reconnects)" = "$before" ]; do
			sleep 0.1
		done
	done
}

reconnects() {
	"$ISTHMUS" status "$mnt" --json | grep -o '"reconnects":[[:space:]]*[0-9]*' | grep -o '[0-9]*$'
}

test_locks_and_nameless_files_survive_a_killed_session() {
	need python3
	local before

	before=$(reconnects)
	echo x >"$mnt/locked"
	export -f kill_far_sessions
	export tmp
	python3 - "$mnt" "$backing" <<-'END'
		import fcntl, os, subprocess, sys, time
		mnt, backing = sys.argv[1:]
		whole, part = open(f"{mnt}/locked", "r+"), open(f"{mnt}/ranges", "w")
		nameless = os.open(f"{mnt}/nameless", os.O_RDWR | os.O_CREAT)
		os.write(nameless, b"hello")
		os.unlink(f"{mnt}/nameless")
		fcntl.flock(whole, fcntl.LOCK_EX)
		fcntl.lockf(part, fcntl.LOCK_EX, 10, 5)
		probe = """if True:
		    import fcntl, sys
		    whole, part = (open(f"{sys.argv[1]}/{name}", "r+") for name in ("locked", "ranges"))
		    for lock in (lambda: fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB),
		                 lambda: fcntl.lockf(part, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 14)):
		        try:
		            lock()
		            print("free", end=" ")
		        except BlockingIOError:
		            print("held", end=" ")
		"""
		def locks():
		    argv = [sys.executable, "-c", probe, backing]
		    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
		for size in range(6, 9):
		    subprocess.run(["bash", "-c", "kill_far_sessions"], check=True)
		    assert locks() == "held held "
		    os.pwrite(nameless, b"!", size - 1)
		    os.fsync(nameless)
		    assert os.pread(nameless, 100, 0) == b"hello" + b"!" * (size - 5)
		    assert os.fstat(nameless).st_size == size and os.fstat(nameless).st_nlink == 0
		    assert locks() == "held held "
		whole.close()
		part.close()
		end = time.monotonic() + 5
		while locks() != "free free ": # a close does not wait for that
		    assert time.monotonic() < end
	END
	[ "$(reconnects)" -gt "$before" ] || fail "no connection was lost"
}

# A killed session cannot be gone on with.
kill_far_helpers() {
	pkill -KILL -f "^$tmp/far/"
}

test_open_files_go_on_in_another_session() {
	need python3
	export -f kill_far_helpers
	export tmp
	mkdir "$mnt/going-on"
	python3 - "$mnt/going-on" "$backing/going-on" "$ISTHMUS" <<-'END'
		import errno, fcntl, os, subprocess, sys, time
		mnt, backing, isthmus = sys.argv[1:]
		names = "plain", "appended", "renamed", "below", "locked", "removed", "replaced"
		os.mkdir(f"{mnt}/d")
		files = {name: os.open(f"{mnt}/{'d/' if name == 'below' else ''}{name}", os.O_RDWR | os.O_CREAT |
		                       (os.O_APPEND if name == "appended" else 0)) for name in names}
		for fd in files.values():
		    os.write(fd, b"first\n")
		    os.fsync(fd)
		fcntl.flock(files["locked"], fcntl.LOCK_EX)
		os.rename(f"{mnt}/renamed", f"{mnt}/new")
		os.rename(f"{mnt}/d", f"{mnt}/e")
		os.unlink(f"{backing}/removed")
		with open(f"{backing}/other", "w") as file:
		    file.write("other")
		os.rename(f"{backing}/other", f"{backing}/replaced")
		subprocess.run(["bash", "-c", "kill_far_helpers"], check=True)
		while subprocess.run([isthmus, "exec", mnt, "--", "true"]).returncode: # until it is back
		    time.sleep(0.1)
		def attempt(call, *arguments):
		    try:
		        call(*arguments)
		    except OSError as error:
		        return errno.errorcode[error.errno]
		want = {"locked": "EIO", "removed": "ESTALE", "replaced": "ESTALE"}
		for name, fd in files.items():
		    for call, arguments in (os.write, (b"second\n",)), (os.fsync, ()):
		        got = attempt(call, fd, *arguments)
		        assert got == want.get(name), (name, call, got)
		    got = attempt(os.pread, fd, 3, 1 << 20)
		    assert got == want.get(name), (name, got)
		for name in "plain", "appended", "new", "e/below":
		    with open(f"{backing}/{name}") as file:
		        assert file.read() == "first\nsecond\n", name
		with open(f"{backing}/replaced") as file:
		    assert file.read() == "other"
	END
}

test_what_was_synced_is_there_when_helpers_are_killed() {
	need python3
	export -f kill_far_helpers
	export tmp
	python3 - "$mnt/lines" "$backing/lines" <<-'END'
		import errno, os, subprocess, sys, time
		here, there = sys.argv[1:]
		file = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
		synced, lost, number = [], 0, 0
		def append(fd):
		    global number
		    number += 1
		    os.write(fd, b"%d\n" % number)
		    os.fsync(fd)
		    synced.append(number)
		for _ in range(3):
		    killer = subprocess.Popen(["bash", "-c", "sleep 0.3; kill_far_helpers"])
		    while killer.poll() is None or number < 100:
		        try:
		            append(file)
		        except OSError as error:
		            assert error.errno == errno.EIO, error
		            lost += 1
		with open(there) as lines:
		    found = [int(line) for line in lines]
		assert found == sorted(set(found)), "twice, or not in order"
		assert set(synced) <= set(found), sorted(set(synced) - set(found))
		print(len(synced), "synced,", lost, "told as lost")
	END
}

test_the_output_of_a_command_is_whole_when_connections_are_killed() {
	local killer before code=0

	before=$(reconnects)
	seq 1000000 >"$tmp/numbers"
	rm -f "$tmp/over"
	kill_connections &
	killer=$!
	timeout "$(patient 100)" "$ISTHMUS" exec "$mnt" -- sh -c 'seq 300000; sleep 1; cat; exit 3' \
		<"$tmp/numbers" >"$tmp/got" || code=$?
	touch "$tmp/over"
	wait "$killer"
	expect 3 "$code" "exit code"
	{ seq 300000; cat "$tmp/numbers"; } | cmp - "$tmp/got"
	[ "$(reconnects)" -gt "$before" ] || fail "no connection was lost"
}

test_a_link_that_is_down_for_good_gives_up_in_time() {
	local started code=0

	echo x >"$mnt/before"
	echo reset >"$tmp/link"
	started=$SECONDS
	timeout "$(patient 60)" sh -c 'echo y >"$0/after"' "$mnt" 2>/dev/null || code=$?
	[ "$code" != 0 ] || fail "a write to nowhere succeeded"
	[ "$code" != 124 ] || fail "a write to nowhere hangs"
	[ $((SECONDS - started)) -le "$(patient $((bound + 3)))" ] || fail "took $((SECONDS - started)) s with a bound of $bound"
	echo up >"$tmp/link"
	wait_for 20 sh -c "echo z >'$mnt/again'" || fail "did not come back by itself"
	expect z "$(cat "$backing/again")"
}

test_status_finds_that_an_idle_link_is_silent() {
	local started

	echo stall >"$tmp/link"
	started=$SECONDS
	timeout "$(patient 15)" "$ISTHMUS" status "$mnt" >"$tmp/status"
	[ $((SECONDS - started)) -le "$(patient 5)" ] || fail "took $((SECONDS - started)) s"
	grep -q '^link  *\(degraded\|offline\), last error: ' "$tmp/status" || fail "$(cat "$tmp/status")"
	echo up >"$tmp/link"
	wait_for 30 says_online || fail "$("$ISTHMUS" status "$mnt")"
}

says_online() {
	"$ISTHMUS" status "$mnt" | grep '^link  *online'
}

# says_not_connected TOOL ARGUMENT...: with the state of the link, and exit code 1, of grep 2.
says_not_connected() {
	local code=0 want=1

	[ "$1" != grep ] || want=2
	"$ISTHMUS" tool "$1" --root "$mnt2" --yes --output json "${@:2}" >"$tmp/result" || code=$?
	python3 - "$tmp/result" <<-'END' || fail "$1: $(cat "$tmp/result")"
		import json, sys
		error = json.load(open(sys.argv[1]))["error"]
		assert error["code"] == "NOT_CONNECTED" and " is offline" in error["message"], error
		assert "isthmus status" in error["ai_message"], error
	END
	expect "$want" "$code" "exit code of $1"
}

link_is_down() {
	! "$ISTHMUS" status "$mnt2" --json | grep -q '"link":[[:space:]]*"online"'
}

tools_work_again() {
	"$ISTHMUS" tool read --root "$mnt2" --yes far --limit 1 >"$tmp/result" 2>&1
}

test_tools_say_that_the_link_is_down() {
	need python3
	# Too long for the cache.
	seq 4000000 >"$backing/far"
	mount_options=("${mount_options[@]/timeout=$bound/timeout=1}")
	second_mount
	trap 'echo up >"$tmp/link"; wait_for 20 tools_work_again || :; end_second_mount; wait_for 20 sh -c "echo z >\"$mnt/again\""' EXIT
	echo reset >"$tmp/link"
	wait_for 20 link_is_down
	says_not_connected read far
	says_not_connected bash 'echo hello'
	says_not_connected write new x
	says_not_connected find new
	echo up >"$tmp/link"
	wait_for 20 tools_work_again || fail "$(cat "$tmp/result")"
}

link_is_offline() {
	"$ISTHMUS" status "$mnt2" --json | grep -q '"link":[[:space:]]*"offline"'
}

# searches_cached TOOL ARGUMENT...: what is cached is found, and it is said that no more was searched.
searches_cached() {
	"$ISTHMUS" tool "$1" --root "$mnt2" --output json "${@:2}" >"$tmp/result" || :
	python3 - "$tmp/result" <<-'END' || fail "$*: $(cat "$tmp/result")"
		import json, sys
		data = json.load(open(sys.argv[1]))["data"]
		assert data.get("matches", data.get("total")) == 3 and data["truncated"], data
		assert " is offline" in data["notice"] and "Only what is cached here was searched" in data["notice"], data
	END
}

test_a_search_says_that_the_link_is_down() {
	need python3
	mkdir -p "$backing/seen" "$backing/unseen"
	echo 'a needle' | tee "$backing/seen/"{a,b,c} >"$tmp/result"
	seq 4000000 >"$backing/far" # for tools_work_again
	seq -f '%g needles' 100000 >"$backing/unseen/d"
	mount_options=("${mount_options[@]/timeout=$bound/timeout=1}")
	second_mount
	trap 'echo up >"$tmp/link"; wait_for 20 tools_work_again || :; end_second_mount; wait_for 20 sh -c "echo z >\"$mnt/again\""' EXIT
	cat "$mnt2/seen/"* >"$tmp/result"
	echo reset >"$tmp/link"
	wait_for 20 link_is_offline
	searches_cached grep needle --path seen
	searches_cached find '?' --path seen
	searches_cached glob '*' --path seen
	searches_cached grep needle
	says_not_connected grep nowhere
	says_not_connected grep nowhere --path seen/a
	says_not_connected find '*.c' --path seen
	echo up >"$tmp/link"
	wait_for 20 tools_work_again || fail "$(cat "$tmp/result")"
}

# A new mount at the same place ends what a killed daemon of $mnt2 has left.
end_far_session() {
	second_mount
	trap - EXIT
	end_second_mount
	wait_for 20 sh -c "echo z >'$mnt/again'" || fail "did not come back by itself"
}

# What is read is locked in the kernel until the answer; a change of the file that is told meanwhile
# must not have the daemon wait there for that, where not even a signal ends it.
test_a_killed_daemon_leaves_nobody_waiting_for_a_silent_link() {
	local reader

	truncate -s 1G "$backing/large"
	mount_options=("${mount_options[@]/linger=60/linger=5}")
	second_mount
	trap 'echo up >"$tmp/link"; "$ISTHMUS" umount --force "$mnt2" || :; end_far_session' EXIT
	timeout 100 cat "$mnt2/large" >/dev/null 2>&1 &
	reader=$!
	sleep 0.5
	echo lose >"$tmp/link" # what the far end tells arrives
	sleep 0.5
	echo changed >>"$backing/large"
	sleep 1
	further=$(pgrep -P "$second_pid")
	kill -KILL "$second_pid"
	# What ssh and the link have lost, they would wait for.
	trap 'echo up >"$tmp/link"; "$ISTHMUS" umount --force "$mnt2" || :; kill -KILL $further 2>/dev/null || :; end_far_session' EXIT
	wait_for 15 not_running "$reader" || fail "who reads waits for the killed daemon"
	wait_for 15 not_running "$second_pid" || fail "the killed daemon does not end"
	rm "$backing/large"
}

test_a_daemon_that_is_to_end_waits_for_no_silent_link() {
	mount_options=("${mount_options[@]/timeout=$bound/timeout=forever}")
	mount_options=("${mount_options[@]/linger=60/linger=5}")
	second_mount
	trap 'echo up >"$tmp/link"; "$ISTHMUS" umount --force "$mnt2" 2>/dev/null || :; end_far_session' EXIT
	timeout 100 dd if=/dev/zero of="$mnt2/much" bs=1M count=2000 2>/dev/null &
	wait_for 10 [ -s "$backing/much" ]
	echo lose >"$tmp/link"
	sleep 1
	kill -TERM "$second_pid"
	wait_for 25 not_running "$second_pid" || fail "it waits"
	! grep -qF " $mnt2 fuse" /proc/self/mounts || fail "it is still mounted"
	echo up >"$tmp/link"
	rm "$backing/much"
}

says_what_ssh_said() {
	"$ISTHMUS" status "$mnt" | grep 'last error: .*HAS CHANGED.*key verification failed.*ssh-keygen -R'
}

test_what_ssh_says_of_a_changed_key_is_in_the_status() {
	cp "$tmp/ssh/known_hosts" "$tmp/good"
	echo "$(cut -d' ' -f1,2 "$tmp/good") $(ssh-keygen -q -t ed25519 -N '' -f "$tmp/ssh/other" && cut -d' ' -f2 "$tmp/ssh/other.pub")" >"$tmp/ssh/known_hosts"
	pkill -KILL -P "$daemon_pid"
	wait_for 20 says_what_ssh_said || fail "status: $("$ISTHMUS" status "$mnt" | grep link)"
	cp "$tmp/good" "$tmp/ssh/known_hosts"
	wait_for 20 sh -c "echo z >'$mnt/right-again'" || fail "did not come back by itself"
}

# How long calls wait for the link: a busy machine takes its time to connect again.
bound=12
need_fuse
prepare_backend "$1"
simulate_link 2 -o linger=60 -o timeout="$bound"
run_tests_prepared
