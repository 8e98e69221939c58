#!/bin/bash
# leftovers.sh [--clean] DIR: fails and says what it is when something below DIR is still
# mounted, or a process still runs that belongs to DIR.  --clean also ends it.
set -euo pipefail

clean=
[ "$1" != --clean ] || { clean=5; shift; } # seconds to end by itself
dir=$1

mounts() {
	awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | tac
}

# A process belongs to DIR when it was started with TMPDIR=DIR, runs in it, or names it.
candidates() {
	{
		grep -lsaF "$dir" /proc/[0-9]*/cmdline /proc/[0-9]*/environ
		find /proc/[0-9]* -maxdepth 1 \( -name cwd -o -name exe \) -lname "$dir/*" 2>/dev/null
	} | cut -d/ -f3 | sort -un
}

is_ancestor() {
	local pid=$$

	while [ "$pid" -gt 1 ]; do
		[ "$pid" != "$1" ] || return 0
		pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo 1)
	done
	return 1
}

# Without this very script and what it starts.
processes() {
	local pid

	for pid in $(candidates); do
		[ -n "$(tr -d '\0' 2>/dev/null <"/proc/$pid/cmdline" || true)" ] || continue
		[ "$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2>/dev/null)" != $$ ] || continue
		is_ancestor "$pid" && continue
		printf '%s %s\n' "$pid" "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" || true)"
	done
}

# What was asked to end does so within a moment; a helper that lost its client for good waits for it
# as long as the test wanted (-o linger=60).
end=$((SECONDS + ${clean:-62}))
while :; do
	left_mounts=$(mounts)
	left_processes=$(processes)
	[ -n "$left_mounts$left_processes" ] || exit 0
	[ "$SECONDS" -lt "$end" ] || break
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
