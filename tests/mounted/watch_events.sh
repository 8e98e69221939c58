#!/bin/bash
# Programs here that wait on inotify hear of changes at the workspace: each once, of each kind, and
# of what is done through the mount as often as on a disk.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

watch_events() {
	"$ISTHMUS" status "$mnt" --json | sed -n '/"watch_events"/,/}/s/^.*"'"$1"'":[[:space:]]*"\{0,1\}\([^",]*\).*/\1/p'
}

# Who watches is looked for while the mount is used (or something changes): statfs is never cached.
is_watched_in() {
	stat -f "$mnt"
	[ "$(watch_events directories)" -ge "$1" ]
}

is_watched_in_none() {
	stat -f "$mnt"
	[ "$(watch_events directories) $(watch_events undecided)" = "0 0" ]
}

# listen DIRECTORIES PATH...: what happens there from now on is in $tmp/events: path, name, kinds.
listen() {
	local count=$1
	shift

	# Also what was done right before: who watches is found out after it.
	wait_for 30 is_watched_in_none || fail "others still watch"
	: >"$tmp/events"
	inotifywait -q -m --format '%w %f %e' -o "$tmp/events" "$@" >/dev/null 2>&1 &
	listener=$!
	trap stop_listening EXIT
	wait_for 30 is_watched_in "$count" || fail "$count directories are to be watched: $("$ISTHMUS" status "$mnt" | grep 'watch events')"
}

stop_listening() {
	[ -z "${listener:-}" ] || kill "$listener" 2>/dev/null
	listener=
}

# events NAME: the kinds of events that came for it, in their order, without those of reading.
events() {
	awk -v name="$1" '$2 == name { print $3 }' "$tmp/events" |
		grep -vE '^(OPEN|ACCESS|CLOSE_NOWRITE)' | sed 's/,ISDIR//; s/,CLOSE$//' | paste -sd ' '
}

# hears NAME KINDS: exactly these, and nothing more for a while.
hears() {
	local name=$1 kinds=$2

	wait_for 10 is_heard "$name" "$kinds" || fail "$name: want '$kinds', heard '$(events "$name")'"
}

is_heard() {
	[ "$(events "$1")" = "$2" ]
}

# All events of what was done before this have come, if this has: they come in their order.
all_came() {
	local mark=mark-$RANDOM$RANDOM

	sleep 0.2 # halves of renames are waited for
	touch "$backing/$1/$mark"
	wait_for 10 grep -q " $mark CREATE" "$tmp/events" || fail "no event of $mark"
}

need_watch_events() {
	need inotifywait
	wait_for 10 is_on || skip "off: $(watch_events reason)"
}

is_on() {
	[ "$(watch_events state)" = on ]
}

test_each_kind_of_change_is_seen_once() {
	local dir=kinds

	need_watch_events
	mkdir -p "$backing/$dir/below" "$mnt/$dir"
	echo old >"$backing/$dir/modified"
	echo old | tee "$backing/$dir/moded" "$backing/$dir/gone" "$backing/$dir/moved" "$backing/$dir/replaced" \
		"$backing/$dir/out" >/dev/null
	mkdir "$backing/$dir/gone-dir" "$backing/$dir/moved-dir"
	wait_for 10 test -e "$mnt/$dir/moved-dir"
	listen 2 "$mnt/$dir" "$mnt/$dir/below"
	echo more >>"$backing/$dir/modified"
	chmod 600 "$backing/$dir/moded"
	chmod 700 "$backing/$dir/moved-dir"
	rm "$backing/$dir/gone"
	rmdir "$backing/$dir/gone-dir"
	mkdir "$backing/$dir/made-dir"
	ln -s nowhere "$backing/$dir/link"
	mkfifo "$backing/$dir/fifo"
	mv "$backing/$dir/out" "$backing/$dir/below/in"
	hears modified "MODIFY CLOSE_WRITE"
	hears moded ATTRIB
	hears gone DELETE
	hears gone-dir DELETE
	hears made-dir CREATE
	hears link CREATE
	hears fifo CREATE
	hears out MOVED_FROM
	hears in MOVED_TO
	mv "$backing/$dir/moved" "$backing/$dir/here"
	hears moved MOVED_FROM
	hears here MOVED_TO
	mv "$backing/$dir/moved-dir" "$backing/$dir/here-dir"
	hears moved-dir "ATTRIB MOVED_FROM"
	hears here-dir MOVED_TO
	: >"$backing/$dir/empty"
	hears empty CREATE
	all_came "$dir"
	for name in modified moded gone gone-dir made-dir link fifo moved here; do
		[ "$(events "$name" | tr ' ' '\n' | sort | uniq -d)" = "" ] || fail "$name: twice: $(events "$name")" || return
	done
	expect 0 "$(watch_events failed)" "events that failed"
	# What they say is so.
	expect "old
more" "$(cat "$mnt/$dir/modified")"
	expect old "$(cat "$mnt/$dir/below/in")"
	mkdir "$mnt/$dir/here-dir/made-here" || fail "the directory that was moved is of no use"
	echo made >"$mnt/$dir/made-dir/file" || fail "the directory that was made is of no use"
	same_tree "$mnt/$dir" "$backing/$dir"
}

test_a_save_by_rename_is_seen() {
	need_watch_events
	mkdir -p "$backing/atomic"
	echo old >"$backing/atomic/file"
	wait_for 10 cat "$mnt/atomic/file"
	listen 1 "$mnt/atomic"
	echo new >"$backing/atomic/.file.tmp"
	sleep 0.3
	mv "$backing/atomic/.file.tmp" "$backing/atomic/file"
	hears file MOVED_TO
	expect new "$(cat "$mnt/atomic/file")"
	# As quick as editors are: its own name may not have been seen.
	: >"$tmp/events"
	echo newer >"$backing/atomic/.file.tmp"
	mv "$backing/atomic/.file.tmp" "$backing/atomic/file"
	hears file MOVED_TO
	expect newer "$(cat "$mnt/atomic/file")"
}

test_a_tree_that_goes_is_seen_leaf_by_leaf() {
	need_watch_events
	mkdir -p "$backing/tree/a/b"
	echo leaf >"$backing/tree/a/b/leaf"
	wait_for 10 cat "$mnt/tree/a/b/leaf"
	listen 3 -r "$mnt/tree"
	rm -r "$backing/tree/a"
	hears leaf DELETE
	hears b DELETE
	hears a DELETE
	expect "leaf b a" "$(awk '$3 ~ /^DELETE(,|$)/ { print $2 }' "$tmp/events" | paste -sd ' ')"
	mkdir "$backing/tree/a"
	hears a "DELETE CREATE"
	echo again >"$mnt/tree/a/file"
	expect again "$(cat "$backing/tree/a/file")"
}

# Everything that programs do, here and on a disk: the same events.
work() {
	(
		cd "$1" || exit 1
		echo a >file
		echo b >>file
		mv file other
		mkdir made
		mv other made/other
		mv made/other other
		for _ in 1 2 3 4 5; do
			chmod 600 other
			ln other hard
			rm hard
		done
		ln -s x link
		rmdir made
		echo n >new
		echo m >.new
		mv .new new
		touch new
		truncate -s 1 new
		for _ in 1 2 3 4 5; do
			echo line
			sleep 0.1
		done >log
		rm new link
	)
}

test_own_changes_are_not_seen_twice() {
	local announced

	need_watch_events
	mkdir -p "$backing/own" "$tmp/disk/own"
	wait_for 10 ls "$mnt/own"
	listen 1 "$mnt/own" "$tmp/disk/own"
	announced=$(watch_events announced)
	work "$mnt/own"
	work "$tmp/disk/own"
	sleep 0.5
	expect "$announced" "$(watch_events announced)" "changes announced, all of which were made here" || {
		grep '"own/' "$tmp/daemon.log" | tail -n 5
		return 1
	}
	stop_listening
	diff <(grep "^$mnt" "$tmp/events" | cut -d' ' -f2- | grep -vE 'OPEN|ACCESS|NOWRITE') \
		<(grep "^$tmp/disk" "$tmp/events" | cut -d' ' -f2- | grep -vE 'OPEN|ACCESS|NOWRITE')
}

test_others_right_after_own_changes_are_seen() {
	local i

	need_watch_events
	mkdir -p "$backing/both"
	wait_for 10 ls "$mnt/both"
	listen 1 "$mnt/both"
	for i in 1 2 3; do
		echo "ours $i" >"$mnt/both/file$i"
		sleep 0.1
		echo "theirs, later $i" >>"$backing/both/file$i"
		wait_for 10 is_heard "file$i" "CREATE MODIFY CLOSE_WRITE MODIFY CLOSE_WRITE" ||
			fail "file$i: $(events "file$i")"
		expect "ours $i
theirs, later $i" "$(cat "$mnt/both/file$i")"
	done
}

test_nothing_is_done_where_nobody_watches() {
	local announced i

	need_watch_events
	wait_for 30 is_watched_in_none
	mkdir -p "$backing/unwatched"
	wait_for 10 ls "$mnt/unwatched"
	announced=$(watch_events announced)
	for i in 1 2 3 4 5; do
		echo "$i" >"$backing/unwatched/$i"
		wait_for 10 test -e "$mnt/unwatched/$i"
	done
	sleep 0.5
	expect "$announced" "$(watch_events announced)"
	expect 0 "$(watch_events directories)"
}

test_who_watches_a_file_hears_of_it() {
	need_watch_events
	mkdir -p "$backing/single"
	echo old | tee "$backing/single/file" "$backing/single/sibling" >/dev/null
	wait_for 10 cat "$mnt/single/file"
	listen 1 "$mnt/single/file"
	echo more >>"$backing/single/file"
	wait_for 10 grep -q MODIFY "$tmp/events" || fail "nothing"
	echo new >"$backing/single/tmp"
	mv "$backing/single/tmp" "$backing/single/file"
	wait_for 10 grep -q DELETE_SELF "$tmp/events" || fail "not that it was replaced: $(cat "$tmp/events")"
}

test_the_log_does_not_take_them_for_work() {
	local log

	need_watch_events
	mkdir -p "$backing/logged"
	echo old >"$backing/logged/removed"
	wait_for 10 test -e "$mnt/logged/removed"
	listen 1 "$mnt/logged"
	echo new >"$backing/logged/made"
	rm "$backing/logged/removed"
	hears made "CREATE MODIFY CLOSE_WRITE"
	hears removed DELETE
	log=$("$ISTHMUS" log "$mnt" --path 'logged/*' --json)
	! grep -E '"op":"(mknod|unlink|utimens|open|create)"' <<<"$log" || fail "recorded as somebody's work"
	grep -q '"op":"foreign"' <<<"$log" || fail "nor as others'"
}

heard_names() {
	awk -v kind="$1" '$3 ~ "^" kind && $2 ~ /^burst/ { print $2 }' "$tmp/events" | sort -u | wc -l
}

has_heard() {
	[ "$(heard_names "$1")" = "$2" ]
}

test_a_burst_is_seen() {
	need_watch_events
	mkdir -p "$backing/many"
	wait_for 10 ls "$mnt/many"
	listen 1 "$mnt/many"
	(cd "$backing/many" && seq -f 'burst%g' 1500 | xargs touch)
	wait_for 60 has_heard CREATE 1500 || fail "$(heard_names CREATE) of 1500 were heard of"
	(cd "$backing/many" && seq -f 'burst%g' 1500 | xargs rm)
	wait_for 60 has_heard DELETE 1500 || fail "$(heard_names DELETE) of 1500 were heard of"
	all_came many
	expect 3000 "$(grep -cE ' burst[0-9]+ (CREATE|DELETE)$' "$tmp/events")" "events of creating and removing"
}

helper_pid() {
	pgrep -P "$daemon_pid" -f "event-helper $mnt "
}

test_the_event_helper_may_be_killed() {
	local pid

	need_watch_events
	mkdir -p "$backing/killed"
	wait_for 10 ls "$mnt/killed"
	listen 1 "$mnt/killed"
	pid=$(helper_pid) || fail "no event helper"
	[ -z "$(find "/proc/$pid/fd" -lname '*/dev/fuse')" ] || fail "it has /dev/fuse open"
	(cd "$backing/killed" && seq -f 'burst%g' 300 | xargs touch) &
	kill -KILL "$pid"
	wait_for 30 has_heard CREATE 300 || fail "$(heard_names CREATE) of 300 were heard of"
	helper_pid || fail "no other one"
}

test_unmounting_in_a_burst_hangs_nobody() {
	local i pid

	need_watch_events
	mkdir -p "$backing/busy"
	wait_for 10 ls "$mnt/busy"
	listen 1 "$mnt/busy"
	(cd "$backing/busy" && seq 10000 | xargs touch) &
	wait_for 20 grep -q CREATE "$tmp/events" || fail "no events"
	pid=$(helper_pid)
	stop_listening
	for i in 1 2 3 4 5; do
		umount "$mnt" 2>/dev/null && break
		sleep 0.05
	done
	! is_mounted || fail "busy"
	wait_for 20 not_running "$daemon_pid" || fail "the daemon goes on"
	wait_for 5 not_running "${pid:-0}" || fail "the event helper goes on"
	wait # for what is touched
	rm -r "$backing/busy"
	mkdir "$backing/busy"
}

test_killing_the_daemon_in_a_burst_leaves_nothing() {
	local pid

	start_daemon
	need_watch_events
	listen 1 "$mnt/busy"
	(cd "$backing/busy" && seq 5000 | xargs touch) &
	wait_for 20 grep -q CREATE "$tmp/events" || fail "no events"
	pid=$(helper_pid)
	kill -KILL "$daemon_pid"
	wait_for 10 not_running "$pid" || fail "the event helper goes on"
	wait "$daemon_pid" 2>/dev/null || true
	stop_listening
	timeout 20 "$ISTHMUS" umount "$mnt" || fail "it cannot be unmounted"
	wait
}

# Reads and writes wait for the far end, and events of what they are for; then everything is killed.
test_a_frozen_link_holds_nobody() {
	local pid writer

	[ -d "$tmp/far" ] || skip "there is no link"
	[ -x "$linksim" ] || skip "there is no linksim"
	simulate_link 10 -o linger=2
	start_daemon
	need_watch_events
	wait_for 10 ls "$mnt/busy"
	head -c 30000000 /dev/zero >"$backing/busy/large"
	wait_for 10 test -s "$mnt/busy/large"
	listen 1 "$mnt/busy"
	(cd "$backing/busy" && seq -f stalled%g 3000 | xargs touch) &
	wait_for 20 grep -q CREATE "$tmp/events" || fail "no events"
	echo stall >"$tmp/link"
	dd if=/dev/zero of="$mnt/busy/large" bs=1M count=64 conv=notrunc 2>/dev/null &
	writer=$!
	dd if="$mnt/busy/large" of=/dev/null bs=1M skip=10 2>/dev/null &
	ls "$mnt/busy/stalled3000" 2>/dev/null &
	sleep 1
	pid=$(helper_pid)
	kill -KILL "$daemon_pid"
	wait_for 10 not_running "$daemon_pid" || fail "the daemon goes on"
	wait_for 10 not_running "${pid:-0}" || fail "the event helper goes on"
	wait_for 10 not_running "$writer" || fail "who writes waits for ever"
	wait "$daemon_pid" 2>/dev/null || true
	stop_listening
	echo up >"$tmp/link"
	timeout 20 "$ISTHMUS" umount "$mnt" || fail "it cannot be unmounted"
	wait
	wait_for 60 no_far_helper || fail "the helper at the far end goes on"
}

test_it_can_be_switched_off() {
	start_daemon -o watch_events=off
	expect off "$(watch_events state)"
	expect "-o watch_events=off" "$(watch_events reason)"
	! helper_pid || fail "there is an event helper"
	stop_daemon
	start_daemon -o ro
	expect "the mount is read-only" "$(watch_events reason)"
	stop_daemon
}

need_fuse
export ISTHMUS_LOG_LEVEL=2 # each announcement, for the reason of a failure
prepare_backend "$1"
run_tests_prepared
