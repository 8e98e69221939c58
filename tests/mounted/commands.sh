#!/bin/bash
# isthmus log, list, status and doctor on a real mount.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

log_of() {
	"$ISTHMUS" log "$mnt" "$@"
}

# field NAME: of the one line of JSON on stdin.
field() {
	python3 -c 'import json, sys; print(json.loads(sys.stdin.readline()).get(sys.argv[1], ""))' "$1"
}

test_the_log_says_who_did_what() {
	echo hello >"$mnt/seen"
	cat "$mnt/seen" >/dev/null
	expect cat "$(log_of --op open --path seen --json | tail -n 1 | field process)" process
	expect 6 "$(log_of --op write --path seen --json | tail -n 1 | field bytes)" bytes
	mv "$mnt/seen" "$mnt/moved"
	expect moved "$(log_of --op rename --json | tail -n 1 | field path2)" "new name"
	expect mv "$(log_of --op rename --json | tail -n 1 | field process)" process
	mkdir -p "$mnt/full/below"
	rmdir "$mnt/full" 2>/dev/null || true
	expect ENOTEMPTY "$(log_of --errors --path full --json | tail -n 1 | field result)" result
}

test_filters_choose_lines() {
	mkdir "$mnt/deep"
	echo x >"$mnt/deep/a.c"
	echo x >"$mnt/deep/b.h"
	expect 'deep/a.c' "$(log_of --path '*.c' --op create --json | field path)" glob
	expect '' "$(log_of --op link)" "no such line"
	expect '' "$(log_of --slow 1h)" "none that slow"
	expect 2 "$(log_of --op create,mkdir --path 'deep*' -n 2 --json | wc -l)" lines
	expect '' "$(log_of --pid 2147483646)" "no such process"
}

errors_of_status() {
	"$ISTHMUS" status "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["stats"]["log"]["errors"])'
}

# Programs look for files in several places.
test_a_lookup_of_what_is_not_there_is_no_error() {
	local before

	before=$(errors_of_status)
	cat "$mnt/not-there" 2>/dev/null || true
	expect ENOENT "$(log_of --op lookup --path not-there --json | tail -n 1 | field result)" result
	expect '' "$(log_of --errors --path not-there)" "errors"
	expect "$before" "$(errors_of_status)" "errors in status"
}

test_times_bound_what_is_shown() {
	local middle

	mkdir "$mnt/before"
	sleep 1.1 # times of the command line have seconds
	middle=$(date -u +%Y-%m-%dT%H:%M:%SZ)
	mkdir "$mnt/after"
	expect 'after' "$(log_of --op mkdir --path '*' --since "$middle" --json | field path)" since
	expect '' "$(log_of --op mkdir --path after --until "$middle" --json)" until
	expect 'before' "$(log_of --op mkdir --path before --until "$middle" --json | field path)" until
	expect 'after' "$(log_of --op mkdir --path after --last 1h --json | field path)" last
	expect 'after' "$(log_of --op mkdir --last 1d -n 1 --json | field path)" "the last line"
}

test_the_last_lines_are_as_many_as_were_asked_for() {
	local i

	for i in 1 2 3 4 5; do
		mkdir "$mnt/last$i"
	done
	expect "last4 last5" "$(log_of --op mkdir -n 2 --json | while read -r line; do field path <<<"$line"; done | xargs)" "the last two"
	expect 5 "$(log_of --path 'last*' --op mkdir -n 100 --json | wc -l)" "all there are"
}

test_other_programs_can_read_it() {
	mkdir "$mnt/exported, \"quoted\""
	log_of --path 'exported*' --op mkdir --export csv >"$tmp/csv"
	log_of --path 'exported*' --export otlp >"$tmp/otlp"
	python3 - "$tmp" <<-'END' || fail "not as it should be: $(cat "$tmp/csv" "$tmp/otlp")"
		import csv, json, sys

		with open(sys.argv[1] + "/csv", newline="") as file:
		    rows = list(csv.DictReader(file))
		assert [row["path"] for row in rows] == ['exported, "quoted"'], rows
		assert rows[0]["op"] == "mkdir" and rows[0]["result"] == "0", rows
		records = []
		for line in open(sys.argv[1] + "/otlp"):
		    for resource in json.loads(line)["resourceLogs"]:
		        for scope in resource["scopeLogs"]:
		            records += scope["logRecords"]
		made = [r for r in records if r["body"] == {"stringValue": "mkdir"}]
		assert len(made) == 1, records
		attributes = {a["key"]: a["value"] for a in made[0]["attributes"]}
		assert attributes["isthmus.path"] == {"stringValue": 'exported, "quoted"'}, attributes
		assert int(attributes["isthmus.seq"]["intValue"]) > 0, attributes
		assert int(made[0]["timeUnixNano"]) > 1.7e18 and made[0]["severityNumber"] == 9, made
	END
	rmdir "$mnt/exported, \"quoted\""
}

test_names_that_are_not_text_are_whole() {
	local name=$'caf\xe9\e[31m\n'

	: >"$mnt/$name"
	expect "$(printf %s "$name" | od -An -tx1 | tr -d ' \n')" \
		"$(log_of --op create --json | tail -n 1 | field path_hex)" bytes
	log_of --op create | tail -n 1 | grep -qF 'caf\xe9\x1b[31m\x0a' || fail "printed raw"
	rm "$mnt/$name"
}

test_a_tool_call_is_found() {
	local socket

	socket=$(getfattr --absolute-names --only-values -n user.isthmus.control "$mnt")
	python3 - "$socket" "$mnt" <<-'END' || fail "the call did not go through"
		import json, os, socket, struct, subprocess, sys

		def call(**request):
		    s = socket.socket(socket.AF_UNIX)
		    s.connect(sys.argv[1])
		    text = json.dumps(request).encode()
		    s.sendall(struct.pack("<IB", len(text), ord("J")) + text)
		    size, kind = struct.unpack("<IB", s.recv(5, socket.MSG_WAITALL))
		    answer = json.loads(s.recv(size, socket.MSG_WAITALL))
		    assert kind == ord("J"), answer
		    return answer

		first = call(request="call_begin", call_id="call-7", tool="bash", pid=os.getpid())["first_seq"]
		# The grandchild outlives its parent.
		subprocess.run(["sh", "-c", "(mkdir early; sleep 0.3; echo x >orphan) & echo x >child; "
		                "until [ -d early ]; do :; done"], cwd=sys.argv[2])
		last = call(request="call_end", call_id="call-7")["last_seq"]
		assert first <= last, (first, last)
	END
	wait_for 5 test -e "$mnt/orphan"
	sleep 0.2
	echo x >"$mnt/other"
	expect "child
orphan" "$(log_of --call call-7 --op create --json | while read -r line; do field path <<<"$line"; done)" paths
	expect bash "$(log_of --call call-7 --json | head -n 1 | field tool)" tool
}

# The bound on the wait for an answer has ended by then.
test_following_below_the_mount_point_goes_on() {
	local follower

	mkdir "$mnt/below"
	"$ISTHMUS" log "$mnt/below" --follow >/dev/null &
	follower=$!
	wait_for 10 sh -c "[ \$(ls /proc/$follower/fd | wc -l) -gt 3 ]"
	wait_for 5 grep -q '^Threads:[[:space:]]*1$' "/proc/$follower/status" || fail "a thread is left that ends it"
	kill "$follower"
}

test_following_shows_what_happens() {
	local pid

	"$ISTHMUS" log "$mnt" --follow --op mkdir --json >"$tmp/followed" &
	pid=$!
	sleep 0.5
	mkdir "$mnt/followed"
	wait_for 5 grep -q '"path":"followed"' "$tmp/followed" || fail "not shown"
	kill "$pid"
	wait "$pid" 2>/dev/null || true
}

test_the_summary_adds_up() {
	local lines

	lines=$(log_of --json | grep -vcE '"op":"(dropped|lost)"')
	log_of --summary >"$tmp/summary"
	# The commands themselves look at the mount point.
	[ "$(awk 'NR == 1 { print $1 }' "$tmp/summary")" -ge "$lines" ] || fail "$(head -n 1 "$tmp/summary"), lines: $lines"
	grep -q '^mkdir ' "$tmp/summary" || fail "no mkdir: $(cat "$tmp/summary")"
}

log_directory() {
	dirname "$("$ISTHMUS" status "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')"
}

# Reads that the kernel would answer by itself: of a large file, of a small one, of pages it has.
test_every_read_is_logged_where_that_is_wanted() {
	local other=$tmp/other

	[ -n "$backing" ] || skip "a mem: workspace has one mount"
	mkdir -p "$other"
	head -c 300000 /dev/zero >"$backing/large"
	echo text >"$backing/small"
	"$ISTHMUS" mount "${mount_options[@]}" -o log_reads "$uri" "$other"
	cat "$other/large" "$other/large" "$other/small" "$other/small" >/dev/null
	"$ISTHMUS" log "$other" --op read --json >"$tmp/log"
	"$ISTHMUS" umount "$other"
	expect 600010 "$(python3 -c '
import json, sys
print(sum(json.loads(line).get("bytes", 0) for line in sys.stdin))' <"$tmp/log")" "bytes read"
}

test_tampering_is_told() {
	local file

	file=$(log_directory)/log.jsonl
	log_of --verify >/dev/null || fail "the log is not good"
	cp "$file" "$tmp/log"
	sed -i '0,/"op":"mkdir"/s//"op":"rmdir"/' "$file"
	! log_of --verify >/dev/null 2>"$tmp/err" || fail "an edited line was not noticed"
	grep -q 'was altered' "$tmp/err" || fail "message: $(cat "$tmp/err")"
	head -n 5 "$tmp/log" >"$file"
	! log_of --verify >/dev/null 2>"$tmp/err" || fail "a cut end was not noticed"
	cp "$tmp/log" "$file"
}

test_a_changed_end_is_told_after_the_unmount() {
	local log code=0

	mkdir "$tmp/fourth"
	"$ISTHMUS" mount mem: "$tmp/fourth"
	mkdir "$tmp/fourth/dir"
	log=$("$ISTHMUS" status "$tmp/fourth" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')
	"$ISTHMUS" umount "$tmp/fourth"
	cp "$log" "$tmp/log"
	"$ISTHMUS" log "$tmp/fourth" --verify >"$tmp/out" || fail "$(cat "$tmp/out")"
	! grep killed "$tmp/out" || fail "an end as it should be is doubted"
	head -n -2 "$tmp/log" >"$log" # "end" and its seal
	"$ISTHMUS" log "$tmp/fourth" --verify >/dev/null 2>"$tmp/err" || code=$?
	expect 3 "$code" "exit code of a cut end"
	grep -q 'the end was cut off' "$tmp/err" || fail "$(cat "$tmp/err")"
	{ cat "$tmp/log"; echo '{"seq":999,"op":"unlink"}'; } >"$log"
	code=0
	"$ISTHMUS" log "$tmp/fourth" --verify >/dev/null 2>"$tmp/err" || code=$?
	expect 3 "$code" "exit code of an added line"
	grep -q 'have no seal' "$tmp/err" || fail "$(cat "$tmp/err")"
	rm "$log"
	! "$ISTHMUS" log "$tmp/fourth" --verify 2>"$tmp/err" || fail "no log at all"
	grep -q 'it was deleted' "$tmp/err" || fail "$(cat "$tmp/err")"
}

test_a_sealed_log_is_verified_with_its_key() {
	local place=$tmp/sealed code=0 log

	mkdir "$place"
	"$ISTHMUS" log "$place" --setup-keys >"$tmp/key" 2>/dev/null
	! "$ISTHMUS" log "$place" --setup-keys >/dev/null 2>"$tmp/err" || fail "keys twice"
	grep -q 'is there already' "$tmp/err" || fail "$(cat "$tmp/err")"
	"$ISTHMUS" mount mem: "$place"
	mkdir "$place/dir"
	log=$("$ISTHMUS" status "$place" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')
	"$ISTHMUS" log "$place" --verify-key - <"$tmp/key" >"$tmp/out" || fail "while it runs: $(cat "$tmp/out")"
	"$ISTHMUS" umount "$place"
	"$ISTHMUS" log "$place" --verify --verify-key "$(cat "$tmp/key")" >"$tmp/out" || fail "$(cat "$tmp/out")"
	grep -q '^proved: sealed with the key' "$tmp/out" || fail "$(cat "$tmp/out")"
	"$ISTHMUS" log "$place" --verify >"$tmp/out" || fail "without its key: $(cat "$tmp/out")"
	grep -q '^not proved' "$tmp/out" || fail "$(cat "$tmp/out")"
	sed -i 's/\("hmac":"\)./\1x/' "$log"
	"$ISTHMUS" log "$place" --verify >/dev/null || fail "the chain is good"
	"$ISTHMUS" log "$place" --verify-key - <"$tmp/key" >/dev/null 2>"$tmp/err" || code=$?
	expect 1 "$code" "exit code of a forged seal"
	code=0
	"$ISTHMUS" log "$place" --verify-key short 2>"$tmp/err" || code=$?
	expect 2 "$code" "exit code of what is no key"
}

test_an_anchored_log_is_compared_with_its_anchor() {
	local place=$tmp/anchored code=0 log

	mkdir "$place"
	! "$ISTHMUS" mount -o "log_anchor=$tmp/none/x" mem: "$place" 2>"$tmp/err" || fail "an anchor that cannot be"
	grep -q 'cannot anchor the log' "$tmp/err" || fail "$(cat "$tmp/err")"
	"$ISTHMUS" mount --log-anchor=fd:9 mem: "$place" 9>"$tmp/anchor"
	mkdir "$place/dir"
	log=$("$ISTHMUS" status "$place" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')
	"$ISTHMUS" log "$place" --anchor "$tmp/anchor" >"$tmp/out" || fail "while it runs: $(cat "$tmp/out")"
	cp "$log" "$tmp/old-log"
	"$ISTHMUS" umount "$place"
	"$ISTHMUS" mount -o "log_anchor=$tmp/anchor" mem: "$place"
	"$ISTHMUS" umount "$place"
	"$ISTHMUS" log "$place" --verify --anchor "$tmp/anchor" >"$tmp/out" || fail "$(cat "$tmp/out")"
	grep -q '^proved: up to number [1-9]' "$tmp/out" || fail "$(cat "$tmp/out")"
	cp "$tmp/old-log" "$log"
	"$ISTHMUS" log "$place" --anchor "$tmp/anchor" >/dev/null 2>"$tmp/err" || code=$?
	expect 1 "$code" "exit code of an old copy"
	grep -q 'the anchor has a seal' "$tmp/err" || fail "$(cat "$tmp/err")"
}

test_a_log_that_could_not_be_written_was_not_tampered_with() {
	local code=0 i

	[ "$(id -u)" = 0 ] || skip "needs root to make a full disk"
	mkdir "$tmp/full" "$tmp/third"
	mount -t tmpfs -o size=64k none "$tmp/full"
	XDG_STATE_HOME=$tmp/full "$ISTHMUS" mount mem: "$tmp/third"
	for i in $(seq 300); do
		: >"$tmp/third/file$i"
	done
	XDG_STATE_HOME=$tmp/full "$ISTHMUS" log "$tmp/third" --verify >"$tmp/out" 2>&1 || code=$?
	"$ISTHMUS" umount "$tmp/third"
	umount -l "$tmp/full"
	expect 3 "$code" "exit code"
	grep -qE '[1-9][0-9]* records.* could not be written|could not write [1-9][0-9]* records' "$tmp/out" || fail "$(cat "$tmp/out")"
	! grep -q 'was altered' "$tmp/out" || fail "$(cat "$tmp/out")"
}

test_a_removed_log_is_begun_anew() {
	local place=$tmp/removed log code=0 i

	mkdir "$place"
	"$ISTHMUS" mount mem: "$place"
	mkdir "$place/before"
	log=$("$ISTHMUS" status "$place" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')
	while [ -e "${log%/*}" ]; do
		rm -rf "${log%/*}" || :
	done
	mkdir "$place/after"
	for ((i = 0; i < 600; i++)); do
		"$ISTHMUS" status "$place" | grep -q 'THE LOG WAS REMOVED' && break
		sleep 0.05
	done
	"$ISTHMUS" status "$place" | grep -q 'THE LOG WAS REMOVED' || fail "$("$ISTHMUS" status "$place")"
	for ((i = 0; i < 600; i++)); do
		grep -q 'another process removed or replaced' "${log%/*}/daemon.log" && break
		sleep 0.05
	done
	grep -q 'another process removed or replaced' "${log%/*}/daemon.log" || fail "no message"
	"$ISTHMUS" log "$place" --op mkdir | grep -q after || fail "$("$ISTHMUS" log "$place")"
	"$ISTHMUS" log "$place" --verify >/dev/null 2>"$tmp/err" || code=$?
	expect 1 "$code" "exit code"
	"$ISTHMUS" umount "$place"
}

test_a_required_log_stops_the_mount() {
	local place=$tmp/required i

	[ "$(id -u)" = 0 ] || skip "needs root to make a full disk"
	mkdir "$place" "$tmp/small"
	touch "$tmp/no-directory"
	! XDG_STATE_HOME=$tmp/no-directory "$ISTHMUS" mount -o log=required mem: "$place" 2>"$tmp/err" || fail "without a log"
	grep -q 'log=required' "$tmp/err" || fail "$(cat "$tmp/err")"
	mount -t tmpfs -o size=64k none "$tmp/small"
	XDG_STATE_HOME=$tmp/small "$ISTHMUS" mount --log=required mem: "$place"
	for ((i = 0; i < 20000; i++)); do
		echo x 2>/dev/null >"$place/file$i" || break
	done
	! ls "$place/unknown" 2>"$tmp/err" || fail "served without a log"
	! "$ISTHMUS" exec "$place" -- true 2>"$tmp/err2" || fail "ran without a log"
	grep -q 'Input/output error' "$tmp/err" || fail "$(cat "$tmp/err")"
	"$ISTHMUS" status "$place" | grep -q 'NOTHING IS SERVED' || fail "$("$ISTHMUS" status "$place")"
	mount -o remount,size=1m "$tmp/small"
	for ((i = 0; i < 600; i++)); do
		mkdir "$place/again" 2>/dev/null && break
		sleep 0.05
	done
	[ -d "$place/again" ] || fail "serves nothing though there is room"
	"$ISTHMUS" umount "$place"
	umount -l "$tmp/small"
}

test_the_log_outlives_the_mount() {
	local second=$tmp/second last

	mkdir "$second" "$tmp/ws2"
	"$ISTHMUS" mount "local:$tmp/ws2" "$second"
	mkdir "$second/last"
	"$ISTHMUS" umount "$second"
	last=$("$ISTHMUS" log "$second" --op mkdir --json | field seq)
	[ "$last" -gt 0 ] || fail "no log after the unmount"
	"$ISTHMUS" mount "local:$tmp/ws2" "$second"
	mkdir "$second/later"
	expect "last
later" "$("$ISTHMUS" log "$second" --op mkdir --json | while read -r line; do field path <<<"$line"; done)" "both mounts"
	"$ISTHMUS" umount "$second"
	[ "$("$ISTHMUS" log "$second" --op mkdir --json | tail -n 1 | field seq)" -gt "$last" ] || fail "numbers start again"
	"$ISTHMUS" log "$second" --verify >/dev/null || fail "the log is not good"
}

test_the_list_has_this_mount() {
	"$ISTHMUS" list | grep -qF "$mnt" || fail "$("$ISTHMUS" list)"
	expect mounted "$("$ISTHMUS" list --json | python3 -c '
import json, sys
print([m["state"] for m in json.load(sys.stdin) if m["mount_point"] == sys.argv[1]][0])' "$mnt")" state
}

# JSON is UTF-8: who reads it with bytes of a path in it would get nothing at all.
test_what_is_no_text_does_not_spoil_the_json() {
	place=$tmp/a$'\xff'b

	mkdir "$place"
	"$ISTHMUS" mount mem: "$place"
	trap '"$ISTHMUS" umount "$place"' EXIT
	"$ISTHMUS" list --json >"$tmp/list"
	"$ISTHMUS" status "$place" --json >"$tmp/status"
	cat "$place/.isthmus/status" >"$tmp/status2"
	python3 - "$tmp" <<-'END'
		import json, sys
		with open(sys.argv[1] + "/list", encoding="utf-8") as file:
		    points = [mount["mount_point"] for mount in json.load(file)]
		for name in "status", "status2":
		    with open(f"{sys.argv[1]}/{name}", encoding="utf-8") as file:
		        points.append(json.load(file)["mount_point"])
		if points.count(sys.argv[1] + "/a\ufffdb") != 3:
		    sys.exit(f"mount points: {points!a}")
	END
}

are_stopped() {
	local pid

	for pid; do
		! grep -L '^State:[[:space:]]*T' "/proc/$pid/task/"*/status | grep -q . || return 1
	done
}

# stop PID...: until each of its threads has stopped; the others go on answering until then.
stop() {
	kill -STOP "$@"
	wait_for 10 are_stopped "$@" || fail "$* do not stop"
}

test_a_stopped_daemon_does_not_hold_the_list_up() {
	local started

	stop "$daemon_pid"
	started=$SECONDS
	timeout "$(patient 10)" "$ISTHMUS" list >"$tmp/list"
	XDG_RUNTIME_DIR=$tmp/home timeout "$(patient 10)" "$ISTHMUS" list >"$tmp/list2" # without its runtime file
	[ $((SECONDS - started)) -lt "$(patient 6)" ] || fail "took $((SECONDS - started)) s"
	timeout "$(patient 5)" "$ISTHMUS" status "$mnt" 2>"$tmp/stopped" || true
	timeout "$(patient 5)" "$ISTHMUS" umount "$mnt" 2>"$tmp/kept" || true
	case $uri in local:*) XDG_RUNTIME_DIR=$tmp/home timeout -k 1 20 "$ISTHMUS" status "$mnt" 2>"$tmp/err" || true ;; esac # it takes 10 s
	kill -CONT "$daemon_pid"
	case $uri in local:*) grep -q 'no answer for' "$tmp/err" || fail "message: $(cat "$tmp/err")" ;; esac
	grep -F "$mnt" "$tmp/list" | grep -q silent || fail "not silent: $(cat "$tmp/list")"
	grep -q "is stopped; continue it with 'kill -CONT $daemon_pid'" "$tmp/stopped" || fail "status: $(cat "$tmp/stopped")"
	grep -q "cannot be unmounted: its daemon is stopped" "$tmp/kept" || fail "umount: $(cat "$tmp/kept")"
	grep -F "$mnt" "$tmp/list2" | grep -q silent || fail "not silent: $(cat "$tmp/list2")"
}

end_stopped_mounts() {
	local at

	# shellcheck disable=SC2086 # words
	kill -CONT $stopped_pids || :
	for at in "$tmp"/many/*; do "$ISTHMUS" umount "$at" || umount -l "$at"; done
}

# Each is given up after 0.5 s.
test_stopped_daemons_are_asked_all_at_once() {
	local i started

	case $uri in local:*) ;; *) skip "the place does not matter" ;; esac
	stopped_pids=''
	trap end_stopped_mounts EXIT
	for i in $(seq 12); do
		mkdir -p "$tmp/many/$i"
		"$ISTHMUS" mount mem: "$tmp/many/$i"
	done
	"$ISTHMUS" list >"$tmp/list"
	stopped_pids=$(awk -v below="$tmp/many/" 'index($1, below) == 1 { print $3 }' "$tmp/list")
	expect 12 "$(wc -w <<<"$stopped_pids")" "mounts in the list"
	# shellcheck disable=SC2086 # words
	stop $stopped_pids
	started=$SECONDS
	XDG_RUNTIME_DIR=$tmp/home timeout "$(patient 20)" "$ISTHMUS" list >"$tmp/list" # without their runtime files
	[ $((SECONDS - started)) -lt "$(patient 5)" ] || fail "took $((SECONDS - started)) s"
	expect 12 "$(grep -F "$tmp/many/" "$tmp/list" | grep -c silent)" "silent mounts"
}

# Its relocations cost more than all else that `isthmus exec` does here.
test_the_program_starts_without_libcrypto() {
	! ldd "$ISTHMUS" | grep libcrypto || fail "it is linked"
}

test_status_says_how_it_is() {
	"$ISTHMUS" status "$mnt" >"$tmp/status"
	grep -qF "$uri" "$tmp/status"
	grep -q 'online' "$tmp/status"
	mkdir -p "$mnt/below"
	"$ISTHMUS" status "$mnt/below" --json >"$tmp/status.json"
	python3 - "$tmp/status.json" "$mnt" <<-'END'
		import json, sys
		status = json.load(open(sys.argv[1]))
		assert status["mount_point"] == sys.argv[2], status
		assert status["workspace"]["link"] == "online", status
		assert status["stats"]["requests"] > 0, status
		assert status["stats"]["log"]["last_error"] == "", status
	END
	! "$ISTHMUS" status "$tmp" 2>"$tmp/err" || fail "status of what is no mount"
	grep -qF "\"$tmp\" is not on an isthmus mount" "$tmp/err" || fail "message: $(cat "$tmp/err")"
}

test_doctor_finds_what_is_broken() {
	"$ISTHMUS" doctor >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	grep -q '^ok .*FUSE device' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	mkdir -p "$tmp/elsewhere"
	cp "$(command -v "$ISTHMUS")" "$tmp/elsewhere/isthmus"
	! PATH=/nowhere "$tmp/elsewhere/isthmus" doctor >"$tmp/doctor" || fail "all good without programs"
	grep -q '^fault .*isthmus-tools' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	grep -q 'apt-get install openssh-client' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
}

# What is optional is no warning, and advice can be pasted into a shell.
test_doctor_advises_by_commands() {
	local advice

	PATH=/nowhere "$ISTHMUS" doctor >"$tmp/doctor"
	! grep -E '^warning +(mount\(8\)|io_uring|other users|mount helper)' "$tmp/doctor" || fail "a warning of what is optional"
	[ "$(id -u)" != 0 ] || grep -q '^note  *mount helper ' "$tmp/doctor" || fail "no note: $(cat "$tmp/doctor")"
	while read -r advice; do
		bash -n -c "$advice" || fail "no command: $advice"
		command -v "${advice%% *}" >/dev/null || [ "${advice%% *}" = sudo ] || fail "no command: $advice"
	done < <(sed -n 's/^ *-> //p' "$tmp/doctor")
}

test_doctor_says_what_a_place_is_like() {
	local code=0

	"$ISTHMUS" doctor "${mount_options[@]}" "$uri" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	grep -q '^ok *place .*reached ".*" in' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	case $uri in
	mem:*) grep -q '^warning *commands .*no commands can run' "$tmp/doctor" || fail "$(cat "$tmp/doctor")" ;;
	*)
		grep -qF "ok       directory      $backing can be written" "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
		grep -qF "ok       kernel         Linux $(uname -r) $(uname -m)" "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
		expect "$(grep -c . "$tmp/doctor")" \
			"$("$ISTHMUS" doctor --json "${mount_options[@]}" "$uri" |
				python3 -c 'import json, sys; d = json.load(sys.stdin)
print(sum(1 + ("remedy" in c) for c in d["checks"]))')" "lines and checks"
		"$ISTHMUS" doctor --json "$uri/nowhere" >"$tmp/doctor" || code=$?
		expect 1 "$code" "exit code"
		grep -q '"finding":.*"fault"' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
		;;
	esac
}

# completed LINE: what bash offers at its end.
completed() {
	COMP_LINE=$1 COMP_POINT=${#1} PATH=$tmp/bin:${ISTHMUS%/*}:$PATH bash -c '
		. "$0"
		_isthmus
		printf "%s\n" "${COMPREPLY[@]}"' "$(dirname "$0")/../../fs/isthmus.bash" | xargs
}

test_bash_completes() {
	mkdir -p "$tmp/bin" "$tmp/some where"
	printf '#!/bin/sh\n[ "$*" = "ps --format {{.Names}}" ] && printf "web\\nworker\\ndb\\n-x;y\\n"' >"$tmp/bin/docker"
	chmod +x "$tmp/bin/docker"
	expect doctor "$(completed 'isthmus doc')" commands
	expect 'kube:// kubectl://' "$(completed 'isthmus mount kub')" schemes
	expect 'vm:' "$(completed 'isthmus mount -o ttl=1 vm')" "behind options"
	expect '//web //worker' "$(completed 'isthmus mount docker://w')" "names, behind the colon"
	expect 'web worker db' "$(completed 'isthmus doctor docker://app@')" "names, behind a user"
	expect '' "$(completed 'isthmus mount docker://web/')" "directories there"
	expect "$tmp/some where" "$(completed "isthmus mount local:$tmp/so")" "directories of this machine"
	expect --json "$(completed 'isthmus status --j')" options
	expect "$mnt" "$(completed "isthmus umount $mnt")" "mount points"
	expect "$tmp/some where" "$(completed "isthmus mount mem: $tmp/so")" directories
}

test_unknown_words_are_told() {
	local code=0

	"$ISTHMUS" stauts "$mnt" 2>"$tmp/err" || code=$?
	expect 2 "$code" "exit code"
	grep -q 'did you mean "status"' "$tmp/err" || fail "$(cat "$tmp/err")"
	code=0
	"$ISTHMUS" log "$mnt" --bogus 2>/dev/null || code=$?
	expect 2 "$code" "exit code"
	code=0
	"$ISTHMUS" log "$mnt" --slow fast 2>"$tmp/err" || code=$?
	expect 2 "$code" "exit code"
	grep -qF '"fast" is not a time' "$tmp/err" || fail "$(cat "$tmp/err")"
}

run_tests "$1"
