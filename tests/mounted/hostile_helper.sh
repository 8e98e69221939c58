#!/bin/bash
# hostile_helper.sh: a real mount whose helper lies (tests/remote/hostile_server.py).  Every lie is answered
# in bounded time with something, the daemon lives and stays small, and what is not lied about works.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

server=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../remote" && pwd)/hostile_server.py
mkdir "$tmp/helper" "$tmp/ws"
printf '#!/bin/sh\nexec python3 "%s" "$@"\n' "$server" >"$tmp/helper/isthmus-helper"
chmod +x "$tmp/helper/isthmus-helper"
echo honest >"$tmp/ws/honest"
mkdir "$tmp/ws/directory" "$tmp/ws/lies"
for lie in type numbers moments large inline counts nothing short unasked events hash cut oversized escape gone victim; do
	echo content >"$tmp/ws/lies/$lie"
done
for lie in slashes upwards outside twice oneself orphans names long broken bomb dribble endless bottomless victims; do
	mkdir "$tmp/ws/lies/$lie"
done

is_honest() {
	[ "$(cat "$mnt/honest")" = honest ] && [ "$(ls "$mnt/directory" | wc -l)" = 0 ]
}

# hears COMMAND...: it ends by itself, however; then all is well with the rest.
hears() {
	local status=0

	timeout -k 5 "$(patient 25)" "$@" >"$tmp/heard" 2>&1 || status=$?
	[ "$status" != 124 ] && [ "$status" != 137 ] || fail "without an answer: $*"
	kill -0 "$daemon_pid" || fail "the daemon has died of: $*"
	wait_for 25 is_honest || fail "nothing works after: $*"
}

sent_or_refused() {
	[ -e "$tmp/ws/trickled" ] || { [ -s "$tmp/ws/trickling" ] && [ ! -e "/proc/$(cat "$tmp/ws/trickling")" ]; }
}

# The first: no other lie has made the daemon larger.
test_output_in_frames_of_one_byte() {
	local peak

	mkfifo "$tmp/fifo"
	exec 6<>"$tmp/fifo"
	exec 4>"$tmp/fifo"
	exec 5<"$tmp/fifo"
	exec 6>&-
	"$ISTHMUS" exec "$mnt" -- trickle >&4 2>&4 4>&- 5<&- &
	exec 4>&-
	wait_for 60 sent_or_refused || fail "neither sent nor refused"
	peak=$(awk '/VmHWM/ {print $2}' "/proc/$daemon_pid/status")
	cat <&5 >/dev/null
	wait $! || true
	hears true
	grep -q asan "/proc/$daemon_pid/maps" || [ "$peak" -lt $((40 << 10)) ] || fail "$peak KiB"
}

# Likewise.
test_a_listing_in_empty_frames() {
	local peak

	hears ls "$mnt/lies/dribble"
	peak=$(awk '/VmHWM/ {print $2}' "/proc/$daemon_pid/status")
	grep -q asan "/proc/$daemon_pid/maps" || [ "$peak" -lt $((70 << 10)) ] || fail "$peak KiB"
}

# Likewise.
test_frames_that_become_large() {
	local peak

	hears ls "$mnt/lies/bomb"
	hears stat "$mnt/lies/bomb/none"
	peak=$(awk '/VmHWM/ {print $2}' "/proc/$daemon_pid/status")
	grep -q asan "/proc/$daemon_pid/maps" || [ "$peak" -lt $((70 << 10)) ] || fail "$peak KiB"
}

test_types_that_change() {
	for _ in 1 2 3 4 5 6 7 8; do
		hears sh -c 'stat "$1"; cat "$1"; ls "$1/"; readlink "$1"; echo x >>"$1"; chmod 600 "$1"' sh "$mnt/lies/type"
	done
	hears rm -f "$mnt/lies/type.2"
	hears mv "$mnt/lies/type" "$mnt/lies/type.2"
}

test_what_was_made_is_something_else() {
	local name

	cat "$mnt/lies/victim"
	ls "$mnt/lies/victims"
	for name in made.1 made.2; do
		hears mkdir "$mnt/lies/$name"
		hears ln -s x "$mnt/lies/$name"
		hears mkfifo "$mnt/lies/$name"
		hears sh -c 'echo x >"$1"; cat "$1"; ls "$1/"' sh "$mnt/lies/$name"
		hears ln "$mnt/lies/victim" "$mnt/lies/$name"
	done
}

test_numbers() {
	hears sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do stat "$1"; chmod 600 "$1"; cat "$1"; done' sh "$mnt/lies/numbers"
}

test_moments() {
	hears sh -c 'for i in 1 2 3 4; do stat "$1"; chmod 600 "$1"; done' sh "$mnt/lies/moments"
}

test_sizes() {
	hears head -c 100000 "$mnt/lies/large"
	hears tail -c 100000 "$mnt/lies/large"
	hears cat "$mnt/lies/inline"
	hears cat "$mnt/lies/short"
	hears sh -c 'cat "$1"; echo longer >>"$1"; cat "$1"' sh "$mnt/lies/nothing"
}

test_counts() {
	hears sh -c 'for i in 1 2 3 4 5 6; do cat "$1"; echo x >>"$1"; echo x >"$1"; cp "$1" "$1.copy"; done' \
		sh "$mnt/lies/counts"
	hears python3 - "$mnt/lies/counts" <<-'PYTHON'
		import os, sys
		for _ in range(6):
		    for call in (os.listxattr, lambda path: os.getxattr(path, "user.x"),
		                 lambda path: os.lseek(os.open(path, os.O_RDONLY), 0, os.SEEK_HOLE)):
		        try:
		            call(sys.argv[1])
		        except OSError:
		            pass
	PYTHON
}

test_listings() {
	local lie

	for lie in slashes upwards outside twice oneself orphans names long broken; do
		hears find "$mnt/lies/$lie" -maxdepth 3
		hears ls -l "$mnt/lies/$lie"
	done
	expect '' "$(find "$tmp" -path "$mnt" -prune -o -name 'evil*' -print)" "written outside"
	[ ! -e /evil ] && [ ! -e "$tmp/evil" ]
}

test_a_listing_without_end() {
	timeout -k 2 1 ls "$mnt/lies/endless" >/dev/null 2>&1 || true
	hears true
}

test_frames() {
	local lie

	for lie in unasked events cut oversized escape; do
		hears cat "$mnt/lies/$lie"
	done
	hears sh -c 'echo something >"$1"; cat "$1"' sh "$mnt/lies/hash"
}

test_a_session_that_ends_again_and_again() {
	hears cat "$mnt/lies/gone"
	[ -s "$tmp/heard" ]
}

test_commands() {
	hears "$ISTHMUS" exec "$mnt" -- flood
	hears "$ISTHMUS" exec "$mnt" -- exits
}

test_memory_is_bounded() {
	local peak

	peak=$(awk '/VmHWM/ {print $2}' "/proc/$daemon_pid/status")
	grep -q asan "/proc/$daemon_pid/maps" || [ "$peak" -lt $((900 << 10)) ] || fail "$peak KiB"
}

# The last: what is kept of a listing has a bound, which is larger than all else.
test_a_listing_that_memory_ends() {
	local peak status=0

	timeout -k 5 "$(patient 100)" ls "$mnt/lies/bottomless" >"$tmp/heard" 2>&1 || status=$?
	expect 2 "$status" "exit code of ls"
	grep 'Cannot allocate memory' "$tmp/heard" || fail "$(head -c 1000 "$tmp/heard")"
	grep 'gave up a listing' "$tmp/daemon.log" || fail "the daemon does not say so"
	peak=$(awk '/VmHWM/ {print $2}' "/proc/$daemon_pid/status")
	grep -q asan "/proc/$daemon_pid/maps" || [ "$peak" -lt $((900 << 10)) ] || fail "$peak KiB"
	hears true
}

run_tests helper -o "helper_dir=$tmp/helper" -o timeout=15
