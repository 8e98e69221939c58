#!/bin/bash
# A long link: what is read ahead, and written, goes by several connections, and none is needed.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

connections() {
	"$ISTHMUS" status "$mnt" | sed -n 's/^traffic .* \([0-9]*\) connections$/\1/p'
}

has_connections() {
	[ "$(connections)" = "$1" ]
}

# The ssh of the first connection is the oldest.
further_sshs() {
	ps -o pid=,comm= --sort=start_time --ppid "$daemon_pid" | sed -n 's/ ssh$//p' | tail -n +2
}

has_no_further_ssh() {
	[ -z "$(further_sshs)" ]
}

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

kill_further() {
	further_sshs | xargs -r kill -KILL
}

test_connections_that_die_lose_nothing() {
	make_file dies
	reads_whole dies kill_further
	grep -q '"reconnects":[[:space:]]*0' "$mnt/.isthmus/status" || fail "the first connection was lost, too"
}

stop_one() {
	further_sshs | head -n 1 | xargs -r kill -STOP
}

test_a_connection_that_stalls_holds_nobody_up_for_long() {
	local started=$SECONDS

	make_file stalls
	reads_whole stalls stop_one
	[ $((SECONDS - started)) -lt "$(patient 60)" ] || fail "took $((SECONDS - started)) s"
}

reset_link() {
	echo reset >"$tmp/link"
	sleep 0.1
	echo up >"$tmp/link"
}

test_all_connections_may_break_at_once() {
	make_file resets
	reads_whole resets reset_link
}

kill_far_session() {
	pkill -KILL -f "^$tmp/far/cache/isthmus/isthmus-helper"
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

# ---- Writing --------------------------------------------------------------------

make_source() {
	[ -f "$tmp/source" ] || head -c 128M /dev/urandom >"$tmp/source"
}

same_as_source() {
	cmp "$tmp/source" "$backing/$1" || fail "$1 has another content"
	rm -f "$mnt/$1"
}

write_source() {
	exec timeout "$(patient 60)" dd if="$tmp/source" of="$mnt/$1" bs=1M conv=fsync status=none
}

write_until_spread() {
	local end=$((SECONDS + $(patient 60)))

	make_source
	until has_connections 4; do
		[ "$SECONDS" -lt "$end" ] || fail "$(connections) connections after writing for long"
		(write_source spread) || fail "dd ended with $?"
		same_as_source spread
	done
}

# writes_whole FILE COMMAND...: also when the command is run meanwhile, at several moments.
writes_whole() {
	local file=$1 writer
	shift

	for i in 1 2 3 4 5; do
		write_until_spread
		(write_source "$file") &
		writer=$!
		sleep "0.$((RANDOM % 8))$((RANDOM % 10))"
		"$@"
		wait "$writer" || fail "writing $file after '$*', $i: dd ended with $?"
		same_as_source "$file"
	done
}

bytes_to_further() {
	further_sshs | while read -r pid; do cat "/proc/$pid/io"; done | awk '$1 == "rchar:" { sum += $2 } END { print sum + 0 }'
}

test_much_is_written_by_several_connections() {
	write_until_spread
	local before
	before=$(bytes_to_further)
	(write_source much-written) || fail "dd ended with $?"
	same_as_source much-written
	local sent=$((($(bytes_to_further) - before) >> 20))
	[ "$sent" -gt 64 ] || fail "$sent MiB of 128 went by further connections"
}

test_connections_that_die_lose_nothing_of_what_is_written() {
	writes_whole dies kill_further
	grep -q '"reconnects":[[:space:]]*0' "$mnt/.isthmus/status" || fail "the first connection was lost, too"
}

test_a_connection_that_stalls_holds_no_writer_up_for_long() {
	local started=$SECONDS

	write_until_spread
	writes_whole stalls stop_one
	[ $((SECONDS - started)) -lt "$(patient 120)" ] || fail "took $((SECONDS - started)) s"
}

test_all_connections_may_break_at_once_under_a_writer() {
	writes_whole resets reset_link
}

# What close and fsync call stored is.
test_the_far_session_may_die_under_a_writer() {
	for _ in 1 2 3; do
		write_until_spread
		(write_source ends) 2>"$tmp/dd" &
		sleep 0.3
		kill_far_session
		wait $! && cmp "$tmp/source" "$backing/ends" && echo "nothing was lost"
		wait_for 20 stat "$mnt" || fail "it does not come back"
		rm -f "$mnt/ends"
	done
	write_until_spread
}

test_the_last_write_counts_whatever_way_it_went() {
	write_until_spread
	python3 - "$mnt/rewritten" "$backing/rewritten" "$tmp/source" <<-'EOF' &
	import os, random, sys
	mounted, backing, source = sys.argv[1:]
	content = open(source, "rb").read()
	rng = random.Random(7)
	for _ in range(6):
	    fd, want = os.open(mounted, os.O_RDWR | os.O_CREAT | os.O_TRUNC), bytearray()
	    for i in range(300):
	        size = rng.choice([1, 4096, 70000, 256 << 10, 1 << 20, 3 << 20])
	        offset = rng.choice([len(want), rng.randrange(len(want) + 1), 0, len(want) // 2])
	        if i % 50 == 49:
	            offset = rng.randrange(len(want) + 1)
	            os.ftruncate(fd, offset)
	            del want[offset:]
	        start = rng.randrange(len(content) - size)
	        want[offset:offset + size] = content[start:start + size]
	        assert os.pwrite(fd, content[start:start + size], offset) == size
	        if i % 100 == 60:
	            assert os.pread(fd, size, offset) == content[start:start + size], "what is read"
	    os.fsync(fd)
	    os.close(fd)
	    assert open(backing, "rb").read() == want, "another content"
	EOF
	local writer=$!
	while kill -0 "$writer" 2>/dev/null; do
		sleep "1.$((RANDOM % 10))"
		case $((RANDOM % 3)) in 0) kill_further ;; 1) stop_one ;; 2) reset_link ;; esac
	done
	wait "$writer" || fail "the writer ended with $?"
}

# ---- Attributes ------------------------------------------------------------------

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
