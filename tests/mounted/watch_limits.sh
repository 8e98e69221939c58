#!/bin/bash
# Fewer inotify watches than directories: which show changes late is told, and how late is bounded.
# shellcheck source=tests/mounted/lib.sh

# The limits of a user namespace are its own.
if [ -z "${WATCHES:-}" ]; then
	unshare -Ur sh -c 'echo 6 >/proc/sys/user/max_inotify_watches' 2>/dev/null ||
		{ echo "skipped: no user namespaces"; exit 77; }
	own_mounts=()
	[ "$(id -u)" != 0 ] || own_mounts=("$(dirname "$0")/own_mounts.sh")
	WATCHES=6 exec "${own_mounts[@]}" unshare -Urm "$0" "$@"
fi
echo "$WATCHES" >/proc/sys/user/max_inotify_watches
. "$(dirname "$0")/lib.sh"

status_of() {
	"$ISTHMUS" status "$mnt" --json | python3 -c "
import json, sys
on_ttl = json.load(sys.stdin)['on_ttl']
print($1)"
}

many_on_ttl() {
	[ "$(status_of 'on_ttl["count"]')" -ge 10 ]
}

list_all() {
	ls -R "$mnt" >/dev/null
}

test_what_cannot_be_watched_is_named() {
	local n

	need python3
	mkdir "$mnt/top"
	for n in $(seq 20); do
		mkdir "$mnt/top/d$n"
		echo old >"$mnt/top/d$n/file"
	done
	list_all
	if [ -z "$backing" ]; then
		expect 0 "$(status_of 'on_ttl["count"]')"
		return
	fi
	wait_for 10 many_on_ttl || fail "on a time-to-live: $(status_of 'on_ttl["count"]')"
	expect True "$(status_of 'on_ttl["count"] == len(on_ttl["directories"]) and
		all(d == "." or d.startswith("top") for d in on_ttl["directories"])')"
	"$ISTHMUS" status "$mnt" | grep -E '^(unwatched)? +top/d'
}

test_what_cannot_be_watched_shows_in_time() {
	local n

	[ -n "$backing" ] || skip "nobody else can change a mem: workspace"
	cat "$mnt"/top/d*/file >/dev/null
	for n in $(seq 20); do
		echo new >"$backing/top/d$n/file"
		touch "$backing/top/d$n/more"
	done
	for n in $(seq 20); do
		wait_for 10 grep new "$mnt/top/d$n/file" || fail "d$n is as it was"
		wait_for 10 test -e "$mnt/top/d$n/more" || fail "nothing is new in d$n"
	done
}

# As rsync(1) and builds that can be repeated do: neither size nor mtime tell of the change.
test_a_rewrite_with_its_old_time_shows_too() {
	local n

	[ -n "$backing" ] || skip "nobody else can change a mem: workspace"
	touch -d @1000000000 "$backing"/top/d*/file
	sleep 1.2
	cat "$mnt"/top/d*/file >/dev/null
	for n in $(seq 20); do
		echo set >"$backing/top/d$n/file"
		touch -d @1000000000 "$backing/top/d$n/file"
	done
	for n in $(seq 20); do
		wait_for 10 grep set "$mnt/top/d$n/file" || fail "d$n is as it was"
	done
}

test_what_is_gone_is_named_no_longer() {
	[ -n "$backing" ] || skip "nothing is named"
	rm -r "$mnt/top"
	wait_for 10 sh -c "! '$ISTHMUS' status '$mnt' | grep top"
}

run_tests "$1" --ttl=1
