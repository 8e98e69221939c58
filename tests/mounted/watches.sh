#!/bin/bash
# Wherever the workspace can be watched, a change shows long before the time-to-live is over:
# whoever has listed the directory or not, and whatever the kernel or the far end forgot meanwhile.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

reads() {
	[ "$(cat "$2")" = "$1" ]
}

# changes_show DIR: of content, names that are there, and names that were not.
changes_show() {
	echo "first $1" >"$backing/$1/file"
	rm -f "$backing/$1/none"
	wait_for 10 reads "first $1" "$mnt/$1/file" || fail "$1 is as it was"
	wait_for 10 is_missing "$mnt/$1/none" || fail "what is gone from $1 is there"
	echo "second $1" >"$backing/$1/other"
	mv "$backing/$1/other" "$backing/$1/file"
	touch "$backing/$1/none"
	wait_for 10 reads "second $1" "$mnt/$1/file" || fail "in $1 is what was there before"
	wait_for 10 test -e "$mnt/$1/none" || fail "nothing is new in $1"
	rm "$backing/$1/none"
	wait_for 10 is_missing "$mnt/$1/none" || fail "what is gone from $1 is still there"
}

is_missing() {
	! test -e "$1"
}

make_tree() {
	mkdir -p "$backing/$1/deep"
	echo start >"$backing/$1/deep/file"
	wait_for 10 reads start "$mnt/$1/deep/file"
	is_missing "$mnt/$1/deep/none"
}

nothing_is_on_ttl() {
	local status

	status=$("$ISTHMUS" status "$mnt" --json)
	grep -A1 '"on_ttl"' <<<"$status" | grep -q '"count":[[:space:]]*0' ||
		fail "on a time-to-live: $(grep -A12 '"on_ttl"' <<<"$status")"
}

test_where_nobody_has_listed() {
	make_tree unlisted
	changes_show unlisted/deep
	nothing_is_on_ttl
}

same_times() {
	[ "$(stat -c '%y %h' "$mnt/$1")" = "$(stat -c '%y %h' "$backing/$1")" ]
}

test_times_of_a_directory_that_nobody_looked_into() {
	local i

	mkdir -p "$backing/looked/at"
	wait_for 10 same_times looked/at
	for i in 1 2 3; do
		mkdir "$backing/looked/at/$i"
		wait_for 10 same_times looked/at || fail "the times are those of before $i"
	done
}

test_in_a_directory_that_was_made_here() {
	mkdir -p "$mnt/made/here"
	echo start >"$mnt/made/here/file"
	changes_show made/here
}


is_forgotten() {
	[ "$(grep -o '"inodes":[[:space:]]*[0-9]*' "$mnt/.isthmus/stats" | grep -o '[0-9]*$')" -lt 10 ]
}

# As it does when memory is short.
kernel_forgets() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	mount -i -o remount,rw "$mnt" || skip "cannot be remounted"
	wait_for 10 is_forgotten || fail "the kernel has forgotten nothing"
}

test_what_the_kernel_forgot() {
	make_tree forgotten
	mkdir "$backing/forgotten/"{1..20}
	ls -R "$mnt" >/dev/null
	changes_show forgotten/deep
	kernel_forgets
	reads "second forgotten/deep" "$mnt/forgotten/deep/file"
	changes_show forgotten/deep
	nothing_is_on_ttl
}

# far_end_dies: the helper, with all that it watched; another one takes its place.
far_end_dies() {
	local exe

	case "$uri" in local:*) skip "there is no far end" ;; esac
	for exe in /proc/[0-9]*/exe; do
		case "$(readlink "$exe")" in "$tmp"/*helper*) kill -KILL "$(echo "$exe" | tr -dc 0-9)" || : ;; esac # it may have ended
	done
	for exe in $(pgrep -P "$daemon_pid"); do
		pkill -KILL -P "$exe" || : # nor need it have children
		kill -KILL "$exe" || :
	done
}

paths_of() {
	"$ISTHMUS" log "$mnt" --op "$1" --json | python3 -c '
import json, sys
print(*sorted({json.loads(line).get("path") for line in sys.stdin}))'
}

foreign_has() {
	case " $(paths_of foreign) " in *" $1 "*) ;; *) return 1 ;; esac
}

test_what_others_change_is_in_the_log() {
	[ -n "$backing" ] || skip "nobody else gets at a mem: workspace"
	mkdir "$mnt/shared"
	ls "$mnt/shared" >/dev/null
	echo ours >"$mnt/shared/ours"
	mv "$mnt/shared/ours" "$mnt/shared/moved"
	chmod 600 "$mnt/shared/moved"
	echo theirs >"$backing/shared/theirs"
	wait_for 20 foreign_has shared/theirs || fail "no record: $(paths_of foreign)"
	! foreign_has shared/ours && ! foreign_has shared/moved && ! foreign_has shared ||
		fail "our own doing: $(paths_of foreign)"
	"$ISTHMUS" log "$mnt" --path shared/theirs | grep -q '^[0-9:.]* .* foreign ' || fail "$("$ISTHMUS" log "$mnt" --path shared/theirs)"
}

test_what_changed_while_the_far_end_was_another() {
	make_tree lost
	ls "$mnt/lost/deep" >/dev/null
	changes_show lost/deep
	is_missing "$mnt/lost/deep/more"
	far_end_dies
	echo other >"$backing/lost/deep/file"
	touch "$backing/lost/deep/more"
	wait_for 20 reads other "$mnt/lost/deep/file" || fail "the content is that of before"
	wait_for 10 test -e "$mnt/lost/deep/more" || fail "a name is missing as before"
	changes_show lost/deep
	nothing_is_on_ttl
}

run_tests "$1" --ttl=60
