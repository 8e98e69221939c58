#!/bin/bash
# A long link: what is written goes by several connections, and none of them is needed.
# shellcheck source=tests/mounted/channels_lib.sh
. "$(dirname "$0")/channels_lib.sh"

make_source() {
	[ -f "$tmp/source" ] || head -c 96M /dev/urandom >"$tmp/source"
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

# writes_whole FILE COMMAND...: also when the command is run meanwhile, at some moment.
writes_whole() {
	local file=$1 writer
	shift

	write_until_spread
	(write_source "$file") &
	writer=$!
	sleep "0.$((RANDOM % 8))$((RANDOM % 10))"
	"$@"
	wait "$writer" || fail "writing $file after '$*': dd ended with $?"
	same_as_source "$file"
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
	[ "$sent" -gt 48 ] || fail "$sent MiB of 96 went by further connections"
}

reconnects() {
	sed -n 's/.*"reconnects":[[:space:]]*\([0-9]*\).*/\1/p' "$mnt/.isthmus/status"
}

test_connections_that_die_lose_nothing_of_what_is_written() {
	local before
	before=$(reconnects)
	writes_whole dies kill_further
	expect "$before" "$(reconnects)" "losses of the first connection"
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
	write_until_spread
	(write_source ends) 2>"$tmp/dd" &
	sleep 0.3
	kill_far_session
	if wait $!; then
		cmp "$tmp/source" "$backing/ends" || fail "it was said to be stored"
	fi
	wait_for 20 stat "$mnt" || fail "it does not come back"
	rm -f "$mnt/ends"
	write_until_spread
}

test_the_last_write_counts_whatever_way_it_went() {
	write_until_spread
	python3 - "$mnt/rewritten" "$backing/rewritten" "$tmp/source" <<-'EOF' &
	import os, random, sys
	mounted, backing, source = sys.argv[1:]
	content = open(source, "rb").read()
	rng = random.Random(7)
	for _ in range(3):
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
		case $((RANDOM % 3)) in 0) kill_further ;; 1) stop_one ;; 2) reset_link ;; esac || true # it ended just now
	done
	wait "$writer" || fail "the writer ended with $?"
	# The link is back: a daemon that ends without it leaves the session until it has lingered.
	(write_source settled) || fail "dd ended with $?"
	same_as_source settled
}

need_fuse
prepare_backend "$1"
simulate_link 40 -o linger=20
run_tests_prepared
