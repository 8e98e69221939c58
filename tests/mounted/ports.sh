#!/bin/bash
# isthmus forward: ports of the workspace's machine here, and ours there.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

peer=$(dirname "$0")/ports_peer.py

# serve KIND [FILE]: a server in the background, until the test ends; $port is where.
serve() {
	python3 "$peer" serve "$1" "$tmp/port-$1" "${2:-}" >"$tmp/server.log" 2>&1 &
	wait_for 20 test -s "$tmp/port-$1" || fail "no server: $(cat "$tmp/server.log")"
	port=$(cat "$tmp/port-$1")
}

# forward ARGUMENT...: in the background, until the test ends; $local is where it listens.
forward() {
	rm -f "$tmp/forward.out"
	"$ISTHMUS" forward "$mnt" "$@" >"$tmp/forward.out" 2>"$tmp/forward.err" &
	forward_pid=$!
	wait_for 20 grep -q 'leads to' "$tmp/forward.out" || fail "no forward: $(cat "$tmp/forward.err")"
	local=$(sed -n '1s/ .*//p' "$tmp/forward.out")
}

end_background() {
	end_children
	rm -f "$tmp"/port-*
}

setup() {
	trap end_background EXIT
}

talk() {
	python3 "$peer" "$@"
}

test_a_port_there_is_a_port_here_by_both_protocols() {
	setup
	serve 4
	forward "0:$port"
	expect hello "$(talk echo "127.0.0.1:$local")" IPv4
	expect hello "$(talk echo "[::1]:$local")" IPv6
}

test_a_server_on_ipv6_alone_is_found() {
	setup
	serve 6
	forward "0:$port"
	expect hello "$(talk echo "127.0.0.1:$local")"
}

test_http_goes_through() {
	setup
	mkdir -p "$tmp/site"
	head -c 3000000 /dev/urandom >"$tmp/site/file"
	python3 -u -m http.server --bind 127.0.0.1 --directory "$tmp/site" 0 >"$tmp/http.log" 2>&1 &
	wait_for 20 grep -q ' port [0-9]' "$tmp/http.log"
	forward "0:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$tmp/http.log")"
	python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' \
		"http://localhost:$local/file" >"$tmp/fetched"
	cmp "$tmp/site/file" "$tmp/fetched"
}

test_a_port_here_is_a_port_there() {
	setup
	serve 4
	forward -R "0:$port"
	expect "$local at the workspace leads to $port here" "$(cat "$tmp/forward.out")"
	expect hello "$(talk echo "127.0.0.1:$local")" IPv4
	expect "100 100" "$(talk crowd "[::1]:$local" 100)" crowd
}

test_a_hundred_connections_at_once() {
	setup
	serve 4
	forward "0:$port"
	expect "100 100" "$(talk crowd "127.0.0.1:$local" 100)"
}

test_more_connections_than_are_served_wait() {
	local crowd pids=()

	setup
	serve 4
	forward "0:$port"
	for crowd in 0 1 2 3 4 5 6 7; do
		talk crowd "127.0.0.1:$local" 40 >"$tmp/crowd-$crowd" 2>&1 &
		pids+=($!)
	done
	for crowd in "${!pids[@]}"; do
		wait "${pids[crowd]}" || fail "crowd $crowd: $(cat "$tmp/crowd-$crowd" "$tmp/forward.err")"
		expect "40 40" "$(cat "$tmp/crowd-$crowd")" "crowd $crowd"
	done
}

test_each_direction_ends_by_itself() {
	setup
	serve 4 "$tmp/rest"
	forward "0:$port"
	expect $((3 << 20)) "$(talk halves "127.0.0.1:$local")" "counted after the end"
	expect bye "$(talk end_first "127.0.0.1:$local")" "the server ends first"
	wait_for 10 grep -qx 'still here' "$tmp/rest" || fail "nothing came after the server's end"
}

test_a_slow_reader_holds_nobody_up() {
	setup
	serve 4
	forward "0:$port"
	expect "same quick" "$(talk slow "127.0.0.1:$local" "$mnt")"
}

test_a_reset_is_a_reset() {
	setup
	serve 4
	forward "0:$port"
	expect reset "$(talk expect_reset "127.0.0.1:$local" reset)"
}

test_nobody_listens_there() {
	setup
	serve 4
	end_background
	forward "0:$port"
	expect reset "$(talk expect_reset "127.0.0.1:$local")"
	wait_for 10 grep -q "nothing listens on $port at the workspace" "$tmp/forward.err" || fail "$(cat "$tmp/forward.err")"
}

test_a_port_in_use_is_refused() {
	setup
	serve 4
	! "$ISTHMUS" forward "$mnt" "$port:80" 2>"$tmp/err" || fail "it went on"
	grep -q "$port is in use here" "$tmp/err" || fail "$(cat "$tmp/err")"
	! "$ISTHMUS" forward "$mnt" -R "$port:80" 2>"$tmp/err" || fail "it went on there"
	grep -q "$port is in use at the workspace" "$tmp/err" || fail "$(cat "$tmp/err")"
	! timeout 10 "$ISTHMUS" forward "$mnt" -R "$tmp/nowhere/s.sock:$port" 2>"$tmp/err" || fail "it listens in no directory"
	grep -q "cannot listen on $tmp/nowhere/s.sock at the workspace: No such file" "$tmp/err" || fail "$(cat "$tmp/err")"
}

test_unix_sockets() {
	setup
	serve unix
	forward "0:$port"
	expect hello "$(talk echo "127.0.0.1:$local")" "to a socket"
	"$ISTHMUS" forward "$mnt" "$tmp/here.sock:$port" >"$tmp/forward2" &
	wait_for 20 grep -q leads "$tmp/forward2"
	expect 600 "$(stat -c %a "$tmp/here.sock")" mode
	expect hello "$(talk echo "$tmp/here.sock")" "from a socket"
	end_background
	[ ! -e "$tmp/here.sock" ] || fail "the socket was left"
	serve 4
	forward -R "$tmp/there.sock:$port"
	expect hello "$(talk echo "$tmp/there.sock")" "from a socket there"
}

test_it_ends_with_the_mount() {
	local code=0 first

	setup
	serve 4
	trap 'end_background; umount -l "$mnt2" 2>/dev/null || true' EXIT
	mkdir -p "$mnt2"
	"$ISTHMUS" mount "${mount_options[@]}" "$uri" "$mnt2" || fail "no second mount"
	"$ISTHMUS" forward "$mnt2" "0:$port" -R "0:$port" >"$tmp/out" 2>"$tmp/err" &
	first=$!
	wait_for 20 grep -q 'at the workspace leads' "$tmp/out" || fail "$(cat "$tmp/err")"
	"$ISTHMUS" umount "$mnt2"
	wait "$first" || code=$?
	expect 0 "$code" "exit code"
	expect "" "$(cat "$tmp/err")" "what it says"
}

test_it_ends_with_a_signal_and_leaves_nothing() {
	local code=0

	setup
	serve 4
	forward "0:$port" -R "$tmp/gone.sock:$port"
	python3 "$peer" talk "127.0.0.1:$local" "$tmp/never" "$tmp/said" 2>/dev/null &
	wait_for 20 grep -q before "$tmp/said" || fail "no connection"
	kill -TERM "$forward_pid"
	wait "$forward_pid" || code=$?
	expect 0 "$code" "exit code"
	wait_for 20 test ! -e "$tmp/gone.sock" || fail "the socket there was left"
	expect reset "$(talk expect_reset "127.0.0.1:$port" reset)" "the server itself"
}

test_a_connection_outlives_the_link() {
	[ -e "$tmp/link" ] || skip "only over a link that can be cut"
	setup
	serve 4
	forward "0:$port"
	rm -f "$tmp/go"
	python3 "$peer" talk "127.0.0.1:$local" "$tmp/go" "$tmp/said" 2>"$tmp/talk.err" &
	wait_for 20 grep -q before "$tmp/said" || fail "no connection"
	echo reset >"$tmp/link"
	sleep 1
	touch "$tmp/go"
	echo up >"$tmp/link"
	wait_for 40 grep -q 'after!' "$tmp/said" || fail "it did not go on: $(cat "$tmp/talk.err" "$tmp/forward.err")"
}

test_the_log_has_every_connection() {
	setup
	serve 4
	forward "0:$port"
	expect hello "$(talk echo "127.0.0.1:$local")"
	wait_for 10 sh -c "'$ISTHMUS' log '$mnt' --op connect --json | grep -q '\"detail\":\"$port\",.*\"bytes\":15\|\"bytes\":15,.*\"detail\":\"$port\"'" ||
		fail "$("$ISTHMUS" log "$mnt" --op connect --json | tail -n 3)"
	"$ISTHMUS" log "$mnt" --op forward --json | grep -q "\"detail\":\"$local:$port\"" || fail "no record of the forward"
}

test_exec_says_once_that_a_port_is_open() {
	setup
	"$ISTHMUS" exec "$mnt" -- "$(python3 -c "import sys; print(sys.executable)")" -u -c '
import socket, time
server = socket.create_server(("127.0.0.1", 0))
other = socket.create_server(("::1", server.getsockname()[1]), family=socket.AF_INET6)
print(server.getsockname()[1])
time.sleep(4)' >"$tmp/out" 2>"$tmp/err"
	case $uri in
	local:*) expect "" "$(cat "$tmp/err")" "a port of this machine" ;;
	*) expect "isthmus exec: port $(cat "$tmp/out") is now listening at the workspace: isthmus forward $mnt $(cat "$tmp/out")" \
		"$(cat "$tmp/err")" ;;
	esac
}

test_what_is_no_port_is_refused() {
	local word

	for word in 70000 -1 x 80: :80 80:80:80:80:80 ./socket 10.0.0.1 1.2.3.4.5:80 '[::1:80' 80x; do
		if "$ISTHMUS" forward "$mnt" -- "$word" >"$tmp/out" 2>&1; then fail "$word was taken"; fi
		grep -q 'Try .isthmus forward' "$tmp/out" || fail "$word: $(cat "$tmp/out")"
	done
}

case "${1:?backend}" in
ssh)
	need_fuse
	prepare_backend ssh
	simulate_link 2 -o linger=60
	run_tests_prepared
	;;
*) run_tests "$1" ;;
esac
