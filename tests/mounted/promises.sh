#!/bin/bash
# What POSIX promises, by name, on one mount and on two of the same workspace.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

second_pid=
second_mount() {
	mkdir "$tmp/mnt2"
	"$ISTHMUS" mount -f "${mount_options[@]}" "$uri" "$tmp/mnt2" >"$tmp/second.log" 2>&1 </dev/null &
	second_pid=$!
	wait_for 20 grep -qF " $tmp/mnt2 fuse" /proc/self/mounts
}

end_second_mount() {
	local status=0

	"$ISTHMUS" umount "$tmp/mnt2" || umount -l "$tmp/mnt2"
	wait "$second_pid" || status=$?
	[ "$status" = 0 ] || tail -n 30 "$tmp/second.log"
	return "$status"
}

test_posix_keeps_its_promises() {
	local status=0 mnt2=

	if [ -n "$backing" ]; then
		second_mount
		mnt2=$tmp/mnt2
	fi
	MNT=$mnt BACKING=$backing MNT2=$mnt2 "$PROMISES" || status=$?
	[ -z "$mnt2" ] || end_second_mount || status=1
	return "$status"
}

# A small file system below the workspace's root is full soon.
test_a_full_disk_is_said_to_be_full() {
	local status=0

	[ -n "$backing" ] || skip "mem: has a bound of its own"
	mkdir "$backing/small"
	mount -t tmpfs -o size=1m none "$backing/small" || skip "no permission to mount"
	# The last close reaches the daemon after the program has ended.
	trap 'wait_for 5 umount "$backing/small"' EXIT
	: >"$backing/small/mounted"
	wait_for 5 test -e "$mnt/small/mounted" || fail "the small file system does not show"
	head -c 300000 /dev/urandom >"$mnt/small/kept"
	LC_ALL=C dd if=/dev/zero of="$mnt/small/big" bs=64k count=40 conv=fsync 2>"$tmp/dd" || status=$?
	expect 1 "$status" "exit code of dd"
	grep -q 'No space left on device' "$tmp/dd" || fail "dd says: $(cat "$tmp/dd")"
	cmp "$mnt/small/kept" "$backing/small/kept"
	rm "$mnt/small/big"
	head -c 300000 /dev/zero >"$mnt/small/again"
	cmp "$mnt/small/again" "$backing/small/again"
}

run_tests "$1"
