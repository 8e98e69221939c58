#!/bin/bash
# -o writes=back: the workspace follows; nothing is lost unsaid, and nobody else's work is overwritten.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# back [RTT_MS]: mounts with writes=back; by ssh over a link with that delay.
back() {
	[ "${1:-0}" = 0 ] || [ "$backend" != ssh ] || simulate_link "$1"
	start_daemon -o writes=back
	echo x >"$mnt/.first" # the first change tells the clock there, and is waited for
	rm "$mnt/.first"
	"$ISTHMUS" sync "$mnt"
}

# kill_daemon: as a crash does.
kill_daemon() {
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null || true
	umount -l "$mnt" 2>/dev/null || true
	daemon_pid=
}

make_tree() {
	local i

	rm -rf "$tmp/from" "$backing/tree"
	for i in $(seq 60); do
		mkdir -p "$tmp/from/tree/d$((i % 6))"
		seq "$((i * 100))" >"$tmp/from/tree/d$((i % 6))/f$i"
	done
	ln -s f1 "$tmp/from/tree/link"
	chmod 600 "$tmp/from/tree/d1/f1"
	find "$tmp/from/tree" -depth -exec touch -h -d '2020-02-02 02:02:02' {} +
	tar -C "$tmp/from" -cf "$tmp/tree.tar" tree
}

test_a_tree_arrives_as_it_was() {
	make_tree
	back 20
	tar -C "$mnt" -xf "$tmp/tree.tar"
	same_tree "$tmp/from/tree" "$mnt/tree"
	"$ISTHMUS" sync "$mnt"
	same_tree "$tmp/from/tree" "$backing/tree"
	same_tree "$tmp/from/tree" "$mnt/tree"
	rm -r "$mnt/tree"
	"$ISTHMUS" sync "$mnt"
	[ -z "$(ls -A "$backing")" ] || fail "left there: $(ls -A "$backing")"
	stop_daemon
}

test_what_a_killed_daemon_left_is_sent_by_the_next_mount() {
	make_tree
	back 300
	tar -C "$mnt" -xf "$tmp/tree.tar"
	[ "$backend" != ssh ] || ! diff -r "$tmp/from/tree" "$backing/tree" >/dev/null || fail "nothing was left to be sent"
	kill_daemon
	[ "$backend" != ssh ] || "$ISTHMUS" list | grep -q "^waiting: $uri " || fail "list does not tell: $("$ISTHMUS" list)"
	start_daemon -o writes=back
	"$ISTHMUS" sync "$mnt"
	same_tree "$tmp/from/tree" "$backing/tree"
	same_tree "$tmp/from/tree" "$mnt/tree"
	expect "" "$("$ISTHMUS" lost "$mnt")"
	stop_daemon
	! "$ISTHMUS" list | grep "^waiting: $uri " || fail "list still tells"
}

test_a_mount_without_the_option_sends_what_was_left() {
	make_tree
	back 300
	tar -C "$mnt" -xf "$tmp/tree.tar"
	kill_daemon
	start_daemon
	"$ISTHMUS" sync "$mnt"
	same_tree "$tmp/from/tree" "$backing/tree"
	same_tree "$tmp/from/tree" "$mnt/tree"
	stop_daemon
	! "$ISTHMUS" list | grep "^waiting: $uri " || fail "list still tells"
}

journals() {
	find "$XDG_STATE_HOME/isthmus/writes" -name journal
}

test_what_was_left_is_found_by_another_form_of_the_uri() {
	local form

	make_tree
	rm -rf "$XDG_STATE_HOME/isthmus/writes"
	back 300
	tar -C "$mnt" -xf "$tmp/tree.tar"
	kill_daemon
	form=$uri/./
	[ "$backend" != helper ] || { ln -s "$backing" "$tmp/link-to"; form=helper:$tmp/link-to/; }
	uri=$form start_daemon
	"$ISTHMUS" sync "$mnt"
	same_tree "$tmp/from/tree" "$backing/tree"
	stop_daemon
	uri=$form start_daemon -o writes=back
	expect 1 "$(journals | wc -l)"
	stop_daemon
}

test_a_journal_of_another_version_is_said() {
	rm -rf "$XDG_STATE_HOME/isthmus/writes"
	back
	stop_daemon
	printf 'isthmwb2' | dd of="$(journals)" conv=notrunc status=none
	start_daemon
	stop_daemon
	! "$ISTHMUS" list | grep waiting || fail "there is nothing in it"
	echo something >>"$(journals)"
	"$ISTHMUS" mount ${mount_options[@]+"${mount_options[@]}"} "$uri" "$mnt" 2>"$tmp/said" || fail "$(cat "$tmp/said")"
	"$ISTHMUS" umount "$mnt"
	grep -q "another version of isthmus has left changes" "$tmp/said" || fail "$(cat "$tmp/said")"
	"$ISTHMUS" list | grep -q "^waiting: $uri .*another version" || fail "$("$ISTHMUS" list)"
	"$ISTHMUS" mount ${mount_options[@]+"${mount_options[@]}"} -o writes=back "$uri" "$mnt" 2>"$tmp/said" && fail "it is mounted"
	grep -q "written by another version" "$tmp/said" || fail "$(cat "$tmp/said")"
	rm "$(journals)"
}

test_numbers_differ_as_doubles() {
	local number

	back 20
	mkdir "$mnt/walked"
	touch "$mnt"/walked/f{1..12}
	for number in $(stat -c %i "$mnt/walked" "$mnt"/walked/*); do
		[ "$number" -ge $((1 << 52)) ] && [ "$number" -lt $((1 << 53)) ] || fail "$number"
	done
	expect 13 "$(stat -c %i "$mnt/walked" "$mnt"/walked/* | sort -u | wc -l)"
	stop_daemon
}

test_holes_stay_holes() {
	back 20
	for directory in "$tmp" "$mnt"; do
		printf x | dd of="$directory/sparse" bs=1M seek=3 status=none
		truncate -s 7M "$directory/sparse"
	done
	"$ISTHMUS" sync "$mnt"
	cmp "$tmp/sparse" "$backing/sparse"
	expect "$(stat -c %b "$tmp/sparse")" "$(stat -c %b "$backing/sparse")" "blocks"
	stop_daemon
}

test_umount_waits_for_all_of_it() {
	make_tree
	back 20
	tar -C "$mnt" -xf "$tmp/tree.tar"
	"$ISTHMUS" umount "$mnt"
	same_tree "$tmp/from/tree" "$backing/tree"
	stop_daemon
	back
	expect "back: nothing is on its way" "$("$ISTHMUS" status "$mnt" | sed -n 's/^writes *//p')"
	stop_daemon
}

test_a_command_sees_every_edit() {
	local i

	back 20
	for i in $(seq 40); do
		echo "text $i" >"$mnt/file"
		[ $((i % 3)) != 0 ] || { echo "text $i" >"$mnt/.new"; mv "$mnt/.new" "$mnt/file"; }
		expect "text $i" "$("$ISTHMUS" exec "$mnt" -- cat file)"
	done
	stop_daemon
}

test_what_a_command_changed_is_seen() {
	local i

	back 20
	for i in $(seq 20); do
		echo "here $i" >"$mnt/file"
		"$ISTHMUS" exec "$mnt" -- sh -c "echo there $i >file; echo $i >new$i; rm -f new$((i - 1))"
		expect "there $i" "$(cat "$mnt/file")"
		expect "$i" "$(cat "$mnt/new$i")"
		[ ! -e "$mnt/new$((i - 1))" ] || fail "new$((i - 1)) is still seen"
	done
	stop_daemon
}

# LISTED_NAMES and SEED make it longer or repeat it.
test_a_listing_is_complete_while_changes_are_sent() {
	back 20
	"$programs/listing_model" "$mnt/names" "${LISTED_NAMES:-3000}" ${SEED:+"$SEED"}
	"$ISTHMUS" sync "$mnt"
	[ ! -e "$backing/names" ] || fail "left there: $(find "$backing/names" | head)"
	expect "" "$("$ISTHMUS" lost "$mnt")"
	stop_daemon
}

test_git_does_not_read_files_again_that_it_wrote() {
	local i

	need git
	back 20
	git init -q "$tmp/repository"
	for i in $(seq 50); do seq "$i" >"$tmp/repository/f$i"; done
	git -C "$tmp/repository" add .
	git -C "$tmp/repository" -c user.name=x -c user.email=x@x commit -qm x
	git clone -q "$tmp/repository" "$mnt/clone"
	"$ISTHMUS" sync "$mnt"
	sleep 2 # git looks twice at what is as young as its index
	git -C "$mnt/clone" status --porcelain
	"$ISTHMUS" log "$mnt" --json >"$tmp/before"
	git -C "$mnt/clone" --no-optional-locks status --porcelain
	"$ISTHMUS" log "$mnt" --json | tail -n +"$(($(wc -l <"$tmp/before") + 1))" >"$tmp/after"
	! grep -E '"op":"(open|read)".*"path":"clone/f[0-9]' "$tmp/after" || fail "git has read files again"
	stop_daemon
}

test_what_is_refused_is_kept_and_said() {
	back
	mkdir "$mnt/small"
	"$ISTHMUS" sync "$mnt"
	[ "$(id -u)" = 0 ] || skip "only root can mount a small disk"
	mount -t tmpfs -o size=256k small "$backing/small"
	head -c 1000000 /dev/urandom >"$tmp/big"
	cp "$tmp/big" "$mnt/small/big" || true
	"$ISTHMUS" sync "$mnt" && fail "sync says nothing"
	"$ISTHMUS" status "$mnt" | head -n 1 | grep -q '^lost .*1 CHANGES WERE REFUSED' || fail "$("$ISTHMUS" status "$mnt")"
	"$ISTHMUS" lost "$mnt" >"$tmp/lost"
	grep -q '^create small/big: No space left on device$' "$tmp/lost" || fail "$(cat "$tmp/lost")"
	cmp "$tmp/big" "$(sed -n 's/^    //p' "$tmp/lost")"
	[ ! -e "$mnt/small/big" ] || fail "it seems to be there"
	umount "$backing/small"
	"$ISTHMUS" umount "$mnt" 2>"$tmp/said" && fail "umount says nothing"
	grep -q "refused 1 changes" "$tmp/said" || fail "$(cat "$tmp/said")"
	stop_daemon
	"$ISTHMUS" lost "$uri" --clear
	expect "" "$("$ISTHMUS" lost "$uri")"
	back
	! "$ISTHMUS" status "$mnt" | grep -q REFUSED || fail "it is still said"
	stop_daemon
}

test_what_others_made_meanwhile_is_not_overwritten() {
	local i

	[ "$backend" = ssh ] || skip "nothing is on its way for long enough"
	back 100
	for i in $(seq 20); do
		echo "ours $i" >"$mnt/f$i"
		echo "theirs $i" >"$backing/f$i"
	done
	"$ISTHMUS" sync "$mnt" || true
	for i in $(seq 20); do
		case $(cat "$backing/f$i") in
		"theirs $i") grep -rqx "ours $i" "$XDG_STATE_HOME/isthmus/lost" || [ "$(cat "$mnt/f$i")" = "theirs $i" ] ;;
		"ours $i") ;;
		*) fail "f$i is $(cat "$backing/f$i")" ;;
		esac
		expect "$(cat "$backing/f$i")" "$(cat "$mnt/f$i")"
	done
	! "$ISTHMUS" log "$mnt" --json | grep '"op":"foreign","path":""' || fail "what was lost has no path in the log"
	"$ISTHMUS" lost "$mnt" --clear
	stop_daemon
}

test_work_goes_on_while_the_link_is_away() {
	[ "$backend" = ssh ] || skip "there is no link"
	back 20
	mkdir "$mnt/d"
	"$ISTHMUS" sync "$mnt"
	ls "$mnt/d"
	echo stall >"$tmp/link"
	timeout 10 sh -c "echo text >'$mnt/d/f' && mv '$mnt/d/f' '$mnt/d/g' && cat '$mnt/d/g'" >"$tmp/said" ||
		fail "it waits for the link"
	expect text "$(cat "$tmp/said")"
	sleep 1 # it is on its way by now
	timeout 20 sh -c "echo again >'$mnt/d/g' && echo more >>'$mnt/d/g'" || fail "a second write waits for the link"
	"$ISTHMUS" status "$mnt" | grep -q '^writes .* [1-9][0-9]* changes' || fail "$("$ISTHMUS" status "$mnt")"
	echo up >"$tmp/link"
	"$ISTHMUS" sync "$mnt"
	expect $'again\nmore' "$(cat "$backing/d/g")"
	expect "" "$("$ISTHMUS" lost "$mnt")"
	stop_daemon
}

test_what_others_changed_while_the_link_was_away_is_theirs() {
	local i

	[ "$backend" = ssh ] || skip "there is no link"
	back 20
	mkdir "$mnt/cut"
	for i in $(seq 12); do
		for name in written removed replaced; do echo "old $i" >"$mnt/cut/$name$i"; done
		echo "ours $i" >"$mnt/cut/new$i"
	done
	"$ISTHMUS" sync "$mnt"
	ls -l "$mnt/cut" >/dev/null
	cat "$mnt"/cut/* >/dev/null
	echo stall >"$tmp/link"
	for i in $(seq 12); do
		echo "ours $i" >"$mnt/cut/written$i"
		rm "$mnt/cut/removed$i"
		mv "$mnt/cut/new$i" "$mnt/cut/replaced$i"
		for name in written removed replaced; do echo "theirs $i" >"$backing/cut/$name$i"; done
	done
	echo up >"$tmp/link"
	"$ISTHMUS" sync "$mnt" && fail "sync says nothing"
	for i in $(seq 12); do
		for name in written removed replaced; do
			expect "theirs $i" "$(cat "$backing/cut/$name$i")" "$name$i"
			expect "theirs $i" "$(cat "$mnt/cut/$name$i")" "$name$i here"
		done
		expect "ours $i" "$(cat "$backing/cut/new$i")" "new$i"
	done
	"$ISTHMUS" lost "$mnt" >"$tmp/lost"
	for i in 'write cut/written' 'unlink cut/removed' 'rename cut/new'; do
		expect 12 "$(grep -c "^$i.*somebody else has changed it meanwhile" "$tmp/lost")" "$i"
	done
	"$ISTHMUS" lost "$mnt" --clear
	stop_daemon
}

test_the_first_change_does_not_wait_for_the_link() {
	[ "$backend" = ssh ] || skip "there is no link"
	simulate_link 20
	mkdir -p "$backing/first/sub"
	echo old >"$backing/first/old"
	start_daemon -o writes=back
	ls -lR "$mnt" >/dev/null
	cat "$mnt/first/old" >/dev/null
	sleep "$(patient 1)" # the owner and the time of new objects are asked for meanwhile
	echo stall >"$tmp/link"
	timeout 20 sh -c "mkdir '$mnt/first/made' && echo new >'$mnt/first/new' && echo anew >'$mnt/first/old' &&
		echo deep >'$mnt/first/sub/new' && rm '$mnt/first/new' && echo more >'$mnt/more'" || fail "it waits for the link"
	expect "anew deep more" "$(cat "$mnt/first/old" "$mnt/first/sub/new" "$mnt/more" | tr '\n' ' ' | sed 's/ $//')"
	expect "$(stat -c %U:%G "$backing/first/old")" "$(stat -c %U:%G "$mnt/more")"
	echo up >"$tmp/link"
	"$ISTHMUS" sync "$mnt"
	expect "anew deep more" "$(cat "$backing/first/old" "$backing/first/sub/new" "$backing/more" | tr '\n' ' ' | sed 's/ $//')"
	[ -d "$backing/first/made" ] || fail "the directory is missing"
	expect "" "$("$ISTHMUS" lost "$mnt")"
	stop_daemon
}

foreign() {
	"$ISTHMUS" log "$mnt" --json | grep '"op":"foreign","path":"late'
}

test_what_arrives_late_is_no_news_of_others() {
	[ "$backend" = ssh ] || skip "there is no link"
	need inotifywait
	back 20
	mkdir "$mnt/late"
	echo old >"$mnt/late/old"
	"$ISTHMUS" sync "$mnt"
	ls -l "$mnt/late"
	inotifywait -q -m --format '%f %e' -o "$tmp/events" "$mnt/late" >/dev/null 2>&1 &
	listener=$!
	trap 'kill $listener' EXIT
	wait_for 30 eval 'stat -f "$mnt" && "$ISTHMUS" status "$mnt" | grep -q "watch events .*1 director"'
	echo stall >"$tmp/link"
	echo new >"$mnt/late/new"
	echo anew >"$mnt/late/old"
	mkdir "$mnt/late/sub"
	touch "$mnt/late/removed"
	mv "$mnt/late/removed" "$mnt/late/moved"
	sleep 8
	cp "$tmp/events" "$tmp/before"
	echo up >"$tmp/link"
	"$ISTHMUS" sync "$mnt"
	sleep 2
	! foreign || fail "our own changes are logged as those of others"
	expect "" "$(diff "$tmp/before" "$tmp/events")"
	echo theirs >"$backing/late/theirs"
	wait_for 10 foreign
	stop_daemon
}

test_what_umount_could_not_send_waits_for_the_next_mount() {
	[ "$backend" = ssh ] || skip "there is no link"
	simulate_link 20 -o timeout=2
	back
	mkdir "$mnt/there"
	"$ISTHMUS" sync "$mnt"
	ls "$mnt/there" # it is known that nothing is in it
	echo stall >"$tmp/link"
	echo text >"$mnt/there/waits"
	"$ISTHMUS" umount "$mnt" 2>"$tmp/said" && fail "umount says nothing"
	grep -q "does not have the last 1 changes" "$tmp/said" || fail "$(cat "$tmp/said")"
	stop_daemon
	echo up >"$tmp/link"
	start_daemon -o writes=back
	expect text "$(cat "$mnt/there/waits")"
	"$ISTHMUS" sync "$mnt"
	expect text "$(cat "$backing/there/waits")"
	expect "" "$("$ISTHMUS" lost "$mnt")"
	stop_daemon
}

backend=$1
run_tests_unmounted "$1"
