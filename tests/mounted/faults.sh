#!/bin/bash
# Faults of the link in the middle of work: only a delay; nothing is lost, nothing done twice.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# fault_now_and_then MODE SECONDS PAUSE: until the file $tmp/over is there.
fault_now_and_then() {
	while [ ! -e "$tmp/over" ]; do
		sleep "$3"
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
	timeout 120 "$programs/mixed_work" "$mnt/$1" "${PROCESSES:-6}" "${CROWD_OPERATIONS:-60}" || code=$?
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

test_a_link_that_is_down_for_good_gives_up_in_time() {
	local started code=0

	echo x >"$mnt/before"
	echo reset >"$tmp/link"
	started=$SECONDS
	timeout 60 sh -c 'echo y >"$0/after"' "$mnt" 2>/dev/null || code=$?
	[ "$code" != 0 ] || fail "a write to nowhere succeeded"
	[ "$code" != 124 ] || fail "a write to nowhere hangs"
	[ $((SECONDS - started)) -le $((bound + 3)) ] || fail "took $((SECONDS - started)) s with a bound of $bound"
	echo up >"$tmp/link"
	wait_for 20 sh -c "echo z >'$mnt/again'" || fail "did not come back by itself"
	expect z "$(cat "$backing/again")"
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
