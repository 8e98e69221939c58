#!/bin/bash
# Several users on one mount of root: -o allow_other, ids as they are at the workspace.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# Somebody without any right of root's.
other() {
	setpriv --reuid=12345 --regid=12345 --clear-groups --bounding-set=-all "$@"
}

need_lists() {
	[ -n "$backing" ] || skip "mem: has no access lists"
}

test_the_log_is_for_its_owner() {
	local status=0

	other test -x "$ISTHMUS" || skip "other users cannot reach $ISTHMUS"
	other env -u XDG_RUNTIME_DIR -u XDG_STATE_HOME HOME=/nonexistent "$ISTHMUS" log "$mnt" >"$tmp/out" 2>&1 || status=$?
	expect 1 "$status" "exit code"
	grep -q "belongs to another user" "$tmp/out" || fail "it says: $(cat "$tmp/out")"
}

# Where there are no access lists as well.
test_the_mode_decides() {
	echo text >"$mnt/readable"
	chmod 644 "$mnt/readable"
	expect text "$(other cat "$mnt/readable")"
	! other sh -c 'echo more >>"$1"' sh "$mnt/readable" 2>/dev/null || fail "0644, and somebody else wrote"
	other ls "$mnt" >/dev/null
	chmod 600 "$mnt/readable"
	! other cat "$mnt/readable" 2>/dev/null || fail "0600, and somebody else read"
}

test_set_user_id_is_gone_at_once() {
	local way

	for way in ': >"$1"' 'echo more >>"$1"' 'truncate -s 1 "$1"' \
		'fallocate -l 9000 "$1"' 'fallocate -p -l 4096 "$1"'; do
		echo text >"$mnt/f"
		chown 54321:54321 "$mnt/f"
		chmod 6766 "$mnt/f"
		stat "$mnt/f" >/dev/null
		other sh -c "$way" sh "$mnt/f"
		expect 766 "$(stat -c %a "$mnt/f")" "mode after $way"
	done
}

test_access_lists_decide() {
	need_lists
	need setfacl
	echo secret >"$mnt/secret"
	chmod 644 "$mnt/secret"
	other cat "$mnt/secret" >/dev/null
	setfacl -m u:12345:--- "$mnt/secret"
	! other cat "$mnt/secret" || fail "the list denies, the file was read"
	echo old >"$mnt/shared"
	chmod 600 "$mnt/shared"
	setfacl -m u:12345:rw- "$mnt/shared"
	other sh -c 'echo new >"$1"' sh "$mnt/shared"
	expect new "$(cat "$backing/shared")"
}

# While the event that it has comes back.
test_an_access_list_counts_at_once() {
	need_lists
	need python3
	python3 - "$mnt/listed" <<-'END'
		import os, struct, sys, time
		path, user, name = sys.argv[1], 12345, "system.posix_acl_access"
		rights = [(1, 6, 2**32 - 1), (2, 6, user), (4, 0, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1)]
		access = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *right) for right in rights)
		ask, hear_ask = os.pipe()[::-1]
		tell_read, tell = os.pipe()
		open(path, "w").close()
		if os.fork() == 0:
		    os.close(ask)
		    os.setgroups([])
		    os.setgid(user)
		    os.setuid(user)
		    while os.read(hear_ask, 1):
		        try:
		            os.close(os.open(path, os.O_WRONLY))
		            os.write(tell, b"y")
		        except PermissionError:
		            os.write(tell, b"n")
		    os._exit(0)
		denied = 0
		for n in range(400):
		    if n:
		        os.removexattr(path, name)
		    os.chmod(path, 0o600)
		    time.sleep(0.003)
		    os.setxattr(path, name, access)
		    time.sleep(n % 10 / 10000)
		    os.write(ask, b"?")
		    denied += os.read(tell_read, 1) == b"n"
		os.close(ask)
		os.wait()
		assert not denied, f"the list allows it, and {denied} of 400 were refused"
	END
}

test_a_list_from_outside_the_group_clears_set_group_id() {
	need_lists
	need setfacl
	touch "$mnt/tool"
	chown 12345:54321 "$mnt/tool"
	chmod 2755 "$mnt/tool"
	other setfacl -m u:1:r-x "$mnt/tool"
	expect 755 "$(stat -c %a "$mnt/tool")"
	chmod 2755 "$mnt/tool"
	setfacl -m u:1:r-- "$mnt/tool"
	expect 2755 "$(stat -c %a "$mnt/tool")" "mode after root's"
}

test_a_default_list_wins_over_the_umask() {
	need_lists
	need setfacl
	mkdir "$mnt/plain" "$mnt/list"
	setfacl -d -m u::rwx,g::rwx,o::r-x "$mnt/list"
	(umask 077 && mkdir "$mnt/plain/d" "$mnt/list/d" && touch "$mnt/plain/f" "$mnt/list/f")
	expect 700 "$(stat -c %a "$mnt/plain/d")"
	expect 600 "$(stat -c %a "$mnt/plain/f")"
	expect 775 "$(stat -c %a "$mnt/list/d")"
	expect 664 "$(stat -c %a "$mnt/list/f")"
}

test_what_others_make_is_theirs() {
	install -d -m 1777 "$mnt/everybody"
	other sh -c 'umask 022 && cd "$1" && echo x >file && mkdir directory && ln -s file link' sh "$mnt/everybody"
	for name in file directory link; do
		expect 12345:12345 "$(stat -c %u:%g "${backing:-$mnt}/everybody/$name")" "owner of $name"
	done
	expect 644 "$(stat -c %a "${backing:-$mnt}/everybody/file")"
	echo mine >"$mnt/everybody/mine"
	! other rm -f "$mnt/everybody/mine" 2>/dev/null || fail "the sticky bit did not hold"
}

test_a_remount_changes_the_flags() {
	"$ISTHMUS" mount -o remount,ro "$uri" "$mnt"
	! touch "$mnt/refused" 2>/dev/null || fail "read-only, and a file was made"
	"$ISTHMUS" mount -o remount,rw,noexec "$uri" "$mnt"
	touch "$mnt/allowed"
	printf '#!/bin/sh\n' >"$mnt/program"
	chmod +x "$mnt/program"
	! "$mnt/program" 2>/dev/null || fail "noexec, and a program ran"
	"$ISTHMUS" mount -o remount,exec "$uri" "$mnt"
	wait_for 5 "$mnt/program"
}

# overlay DIRECTORY COMMAND: with DIRECTORY/merged over DIRECTORY/lower and upper, as long as it runs.
overlay() {
	"$(dirname "$0")/own_mounts.sh" --keep "$mnt" sh -ec '
		mount -t overlay overlay -o "lowerdir=$2/lower,upperdir=$1/upper,workdir=$1/work" "$2/merged"
		cd "$2/merged"
		eval "$3"' sh "$1" "$tmp/overlay" "$2"
}

test_an_overlay_can_write_here() {
	mkdir -p "$tmp"/overlay/{lower/d,merged,upper,work} "$mnt"/overlay/{upper,work}
	echo file >"$tmp/overlay/lower/file"
	echo below >"$tmp/overlay/lower/d/below"
	echo gone >"$tmp/overlay/lower/gone"
	overlay "$tmp/overlay" true 2>/dev/null || skip "no overlays here"
	overlay "$mnt/overlay" 'mv file moved; echo more >>d/below; rm gone; echo new >gone; mv gone new'
	expect "below d more moved new new" \
		"$(overlay "$mnt/overlay" 'cat d/below; ls; cat new' | sort | xargs)"
	expect "character special file" "$(stat -c %F "$mnt/overlay/upper/file")" "a name that was moved away"
}

[ "$(id -u)" = 0 ] || skip_all "needs root"
chmod 711 "$tmp"
run_tests "$1" -o allow_other --idmap=none
