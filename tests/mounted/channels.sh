#!/bin/bash
# A long link: what is read ahead comes by several connections, and none of them is needed.
# shellcheck source=tests/mounted/channels_lib.sh
. "$(dirname "$0")/channels_lib.sh"

has_all_of() {
	[ "$(stat -c %s "$mnt/$1")" = $((48 << 20)) ]
}

make_file() {
	rm -f "$backing/$1"
	head -c 48M /dev/urandom >"$backing/$1"
	wait_for 10 has_all_of "$1" || fail "$1 does not show"
}

# read_until_spread FILE: until there are four connections.
read_until_spread() {
	local end=$((SECONDS + $(patient 40)))

	until has_connections 4; do
		[ "$SECONDS" -lt "$end" ] || fail "$(connections) connections after reading for long"
		touch "$backing/$1"
		cmp "$backing/$1" "$mnt/$1" || fail "another content"
	done
}

# reads_whole FILE COMMAND...: also when the command is run in the middle.
reads_whole() {
	local file=$1 reader
	shift

	make_file "$file.next"
	read_until_spread "$file"
	(exec cmp "$backing/$file.next" "$mnt/$file.next") &
	reader=$!
	sleep 0.2
	expect 3 "$(further_sshs | wc -l)" "connections beside the first"
	"$@"
	wait "$reader" || fail "reading $file after '$*': cmp ended with $?"
}

test_much_is_read_by_several_connections_while_that_is_of_use() {
	make_file much
	has_connections 1 || fail "$(connections) connections before anything was read"
	read_until_spread much
	expect 3 "$(further_sshs | wc -l)" "connections beside the first"
	wait_for 20 has_connections 1 || fail "they stay: $(connections)"
	wait_for 5 has_no_further_ssh || fail "an ssh was left"
}

test_they_are_opened_at_the_same_time() {
	local count

	make_file together
	(exec cmp "$backing/together" "$mnt/together") &
	wait_for 10 eval '! has_no_further_ssh' || fail "there is none"
	echo stall >"$tmp/link" # so that none gets ready
	sleep 1
	count=$(further_sshs | wc -l)
	echo up >"$tmp/link"
	wait "$!"
	expect 3 "$count" "connections that are being opened"
}

test_connections_that_die_lose_nothing() {
	make_file dies
	reads_whole dies kill_further
	grep -q '"reconnects":[[:space:]]*0' "$mnt/.isthmus/status" || fail "the first connection was lost, too"
}

test_a_connection_that_stalls_holds_nobody_up_for_long() {
	local started=$SECONDS

	make_file stalls
	reads_whole stalls stop_one
	[ $((SECONDS - started)) -lt "$(patient 60)" ] || fail "took $((SECONDS - started)) s"
}

test_all_connections_may_break_at_once() {
	make_file resets
	reads_whole resets reset_link
}

test_the_far_session_may_die() {
	make_file ends
	for _ in 1 2; do
		reads_whole ends kill_far_session
	done
	grep -q '"reconnects":[[:space:]]*[1-9]' "$mnt/.isthmus/status" || fail "it lives"
}

test_what_is_written_meanwhile_is_read() {
	make_file changes
	read_until_spread changes
	(
		for i in $(seq 40); do
			printf '%08d' "$i" | dd of="$mnt/changes" bs=8 seek=$((i * 100000)) conv=notrunc status=none
			expect "$(printf '%08d' "$i")" \
				"$(dd if="$mnt/changes" bs=8 skip=$((i * 100000)) count=1 status=none)" "what was written"
		done
	)
	cmp "$backing/changes" "$mnt/changes" || fail "another content"
}

# Not for the write first, and then for the attributes.
test_a_stat_after_a_write_waits_once() {
	python3 -c "
import os
fd = os.open('$mnt/written', os.O_CREAT | os.O_WRONLY)
os.write(fd, b'text')
assert os.fstat(fd).st_size == 4
os.close(fd)"
	expect 1 "$("$ISTHMUS" log "$mnt" --json | python3 -c "
import json, sys
records = [json.loads(line) for line in sys.stdin]
print(*[r['round_trips'] for r in records if r.get('path') == 'written' and r['op'] == 'getattr'][:1])")" "round trips"
}

need_fuse
prepare_backend "$1"
simulate_link 40 -o linger=20
run_tests_prepared
