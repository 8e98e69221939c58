#!/bin/bash
# leftovers.sh [--clean] DIR: fails and says what it is when something below DIR is still
# mounted, or a process still runs that belongs to DIR.  --clean also ends it.
set -euo pipefail

clean=
[ "$1" != --clean ] || { clean=yes; shift; }
dir=$1

mounts() {
	awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | tac
}

# A process belongs to DIR when it was started with TMPDIR=DIR, runs in it, or names it.
belongs() {
	local pid=$1 link

	for link in cwd exe; do
		case "$(readlink "/proc/$pid/$link" 2>/dev/null || true)" in "$dir"/*) return 0 ;; esac
	done
	grep -aqF "$dir" "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null
}

is_ancestor() {
	local pid=$$

	while [ "$pid" -gt 1 ]; do
		[ "$pid" != "$1" ] || return 0
		pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo 1)
	done
	return 1
}

# The state of what was asked to end settles within a moment.
processes() {
	local path pid

	for path in /proc/[0-9]*; do
		pid=${path#/proc/}
		[ -n "$(tr -d '\0' 2>/dev/null <"$path/cmdline" || true)" ] || continue
		[ "$(awk '/^PPid:/ { print $2 }' "$path/status" 2>/dev/null)" != $$ ] || continue
		is_ancestor "$pid" && continue
		belongs "$pid" || continue
		printf '%s %s\n' "$pid" "$(tr '\0' ' ' 2>/dev/null <"$path/cmdline" || true)"
	done
}

# A helper that lost its client for good waits for it as long as the test wanted (-o linger=60).
for _ in {1..155}; do
	left_mounts=$(mounts)
	left_processes=$(processes)
	[ -n "$left_mounts$left_processes" ] || exit 0
	sleep 0.4
done
[ -z "$left_mounts" ] || printf 'still mounted: %s\n' "$left_mounts" >&2
[ -z "$left_processes" ] || printf 'still running: %s\n' "$left_processes" >&2
if [ -n "$clean" ]; then
	while read -r mount; do
		[ -z "$mount" ] || umount -l "$mount" || fusermount3 -uz "$mount" || true
	done <<<"$left_mounts"
	while read -r pid _; do
		[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
	done <<<"$left_processes"
fi
exit 1
