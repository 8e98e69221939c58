#!/bin/bash
# Mounts of a user without any right of root's, through fusermount3.
# shellcheck source=tests/mounted/lib.sh

# As root: everything as nobody, in a directory of theirs, and with a /dev/fuse for
# everybody, as it is on most machines.
as_somebody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
if [ "$(id -u)" = 0 ] && [ -z "${NAMESPACE:-}" ]; then
	"$(dirname "$0")/own_mounts.sh" true 2>/dev/null || { echo "skipped: no mount namespaces"; exit 77; }
	NAMESPACE=own exec "$(dirname "$0")/own_mounts.sh" "$0" "$@"
elif [ "$(id -u)" = 0 ]; then
	directory=$(mktemp -d "${TMPDIR:-/tmp}/unprivileged-XXXXXX")
	trap 'rm -rf --one-file-system "$directory"' EXIT
	chown 65534:65534 "$directory"
	if ! as_somebody test -w /dev/fuse; then
		mknod -m 666 "$directory/fuse" c 10 229 && mount --bind "$directory/fuse" /dev/fuse ||
			{ echo "skipped: /dev/fuse is not accessible"; exit 77; }
	fi
	for path in "$0" "$ISTHMUS" "$ISTHMUS_TOOLS" "$directory"; do
		as_somebody test -x "$path" ||
			{ echo "skipped: other users cannot reach $path"; exit 77; }
	done
	cd "$directory" || exit 1
	TMPDIR=$directory as_somebody "$0" "$@"
	exit
fi
. "$(dirname "$0")/lib.sh"

test_work() {
	echo text >"$mnt/file"
	mv "$mnt/file" "$mnt/moved"
	ln -s moved "$mnt/link"
	expect text "$(cat "$mnt/link")"
	chmod 600 "$mnt/moved"
	expect "600 $(id -u) $(id -g)" "$(stat -c '%a %u %g' "$mnt/moved")"
	mkdir "$mnt/directory"
	cp /bin/true "$mnt/directory/program"
	"$mnt/directory/program"
	rm -r "$mnt/directory" "$mnt/link"
	expect moved "$(ls "$mnt")"
	"$ISTHMUS" tool read --root "$mnt" moved | grep text
}

hears() {
	grep -q "$1" "$tmp/events" || { echo again >>"$backing/watched/file"; return 1; }
}

test_who_watches_hears_of_others() {
	[ -n "$backing" ] || skip "mem: is changed by nobody else"
	need inotifywait
	mkdir "$backing/watched"
	echo old >"$backing/watched/file"
	wait_for 10 cat "$mnt/watched/file"
	inotifywait -q -m --format '%f %e' -o "$tmp/events" "$mnt/watched" >/dev/null 2>&1 &
	listener=$!
	trap 'kill $listener' EXIT
	wait_for 20 hears '^file MODIFY' || fail "no change: $("$ISTHMUS" status "$mnt" | grep 'watch events')"
	mv "$backing/watched/file" "$backing/watched/moved"
	wait_for 10 grep '^moved MOVED_TO' "$tmp/events" || fail "not that it was renamed: $(cat "$tmp/events")"
	rm "$backing/watched/moved"
	wait_for 10 grep '^moved DELETE' "$tmp/events" || fail "not that it was removed: $(cat "$tmp/events")"
}

test_commands_at_the_workspace() {
	[ -n "$backing" ] || skip "mem: runs no commands"
	expect "$(id -u)" "$("$ISTHMUS" exec "$mnt" -- id -u)"
	"$ISTHMUS" exec "$mnt" -- sh -c 'echo made >made'
	expect made "$(cat "$mnt/made")"
}

# Where users may have user namespaces.
test_an_agent_s_shell_is_at_the_workspace() {
	[ -n "$backing" ] || skip "mem: runs no commands"
	unshare -Um true 2>/dev/null || skip "no user namespaces"
	need python3
	expect "$backing there" "$("$ISTHMUS" run --agent pi "$mnt" -- python3 -c '
import os, subprocess
print(os.getcwd(), subprocess.check_output(["/bin/bash", "-c", "echo ${ISTHMUS_RUN:+there}"], text=True).strip())')"
}

test_status_and_log_are_the_user_s() {
	"$ISTHMUS" status "$mnt" | grep "$mnt"
	"$ISTHMUS" list | grep "$mnt"
	echo x >"$mnt/logged"
	"$ISTHMUS" log "$mnt" | grep logged
	expect "" "$(find "$XDG_STATE_HOME" "$XDG_RUNTIME_DIR" -mindepth 1 -perm /077 ! -type l)" "what others may read"
}

# mount_elsewhere OPTION...: on $tmp/other, ready when it returns.
mount_elsewhere() {
	mkdir -p "$tmp/other"
	trap 'fusermount3 -uqz "$tmp/other" || true' EXIT # if the test fails
	"$ISTHMUS" mount "${mount_options[@]}" "$@" "$uri" "$tmp/other"
}

test_read_only() {
	mount_elsewhere -o ro
	! touch "$tmp/other/new" 2>/dev/null || fail "read-only, and a file was made"
	"$ISTHMUS" umount "$tmp/other"
}

test_ids_as_they_are() {
	mount_elsewhere --idmap=none
	touch "$tmp/other/mine"
	expect "$(id -u)" "$(stat -c %u "$tmp/other/mine")"
	"$ISTHMUS" umount "$tmp/other"
}

test_a_directory_that_may_not_be_entered() {
	local place

	mkdir -p "$tmp/other"
	mkdir -m 0 "$tmp/closed"
	for place in local helper; do
		! "$ISTHMUS" mount "$place:$tmp/closed" "$tmp/other" 2>"$tmp/err" || fail "$place: mounted"
		grep -F "cannot open the directory \"$tmp/closed\": Permission denied" "$tmp/err"
	done
	rmdir "$tmp/closed"
}

# ... by who does not want to hear of their ends.
test_unmounting_with_children_ignored() {
	need python3
	mount_elsewhere
	python3 - "$ISTHMUS" umount "$tmp/other" <<-'END'
		import os, signal, sys
		signal.signal(signal.SIGCHLD, signal.SIG_IGN)
		os.execv(sys.argv[1], sys.argv[1:])
	END
}

kill_elsewhere() {
	local pid

	pid=$(pgrep -f "^$ISTHMUS mount .*$tmp/other\$")
	kill -KILL "$pid"
	wait_for 10 not_running "$pid"
}

test_a_killed_daemon_s_mount_is_recovered() {
	mount_elsewhere
	kill_elsewhere
	! stat "$tmp/other" 2>"$tmp/err" || fail "the mount of a killed daemon answers"
	timeout "$(patient 20)" "$ISTHMUS" umount "$tmp/other"
	! grep -F " $tmp/other fuse" /proc/self/mounts || fail "still mounted"
	mount_elsewhere
	kill_elsewhere
	timeout "$(patient 20)" "$ISTHMUS" mount "${mount_options[@]}" "$uri" "$tmp/other" 2>"$tmp/err"
	touch "$tmp/other/works"
	kill_elsewhere
	fusermount3 -u "$tmp/other"
}

out_of_reach() {
	"$ISTHMUS" status "$tmp/other" | grep -E '^link +offline, last error: .*No such file'
}

# The kernel asks before it lets a user who is not root have an attribute of a file.
test_status_knows_why_a_mount_that_nobody_has_used_yet_is_out_of_reach() {
	case "$uri" in helper:*) ;; *) skip "it is always within reach" ;; esac
	mkdir "$tmp/helpers"
	cp "${ISTHMUS%/fs/*}/backends/remote/isthmus-helper" "$tmp/helpers"
	mount_elsewhere -o "helper_dir=$tmp/helpers" -o timeout=1
	rm "$tmp/helpers/isthmus-helper"
	pkill -KILL -f "^$tmp/helpers/isthmus-helper"
	wait_for 20 out_of_reach || fail "status: $("$ISTHMUS" status "$tmp/other" 2>&1)"
	! "$ISTHMUS" exec "$tmp/other" -- true 2>"$tmp/err" || fail "exec went through"
	grep 'is out of reach: .*No such file or directory' "$tmp/err" || fail "exec says: $(cat "$tmp/err")"
	"$ISTHMUS" umount "$tmp/other"
}

test_flags_for_root_are_not_left_out_silently() {
	mount_elsewhere -o dev,suid,nosuid 2>"$tmp/err"
	expect "isthmus mount: only root may mount with -o dev: mounting with nodev" "$(cat "$tmp/err")"
	wait_for 10 fusermount3 -u "$tmp/other" # who watches is being looked for
}

test_others_are_let_in_by_root_only() {
	! grep -qs '^[[:space:]]*user_allow_other' /etc/fuse.conf || skip "/etc/fuse.conf lets everybody"
	! mount_elsewhere -o allow_other 2>"$tmp/err" || fail "allow_other went through"
	grep user_allow_other "$tmp/err"
}

need_fuse
command -v fusermount3 >/dev/null || skip_all "fusermount3 is not installed"
run_tests "$1"
