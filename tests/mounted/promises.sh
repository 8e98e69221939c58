#!/bin/bash
# What POSIX promises, by name, on one mount and on two of the same workspace.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

test_posix_keeps_its_promises() {
	local other=

	if [ -n "$backing" ]; then
		second_mount
		other=$mnt2
	fi
	MNT=$mnt BACKING=$backing MNT2=$other "$programs/promises"
}

# The kernel reads large files by itself where it can.
test_a_mount_with_noatime_touches_no_file_it_reads() {
	[ "${uri%%:*}" = local ] || skip "mem: starts empty, and a far place reads ahead"
	mkdir "$backing/times"
	head -c 100 /dev/zero >"$backing/times/small"
	head -c 400000 /dev/zero >"$backing/times/large"
	touch -a -d 2001-01-01 "$backing/times/small" "$backing/times/large"
	mount_options+=(-o noatime)
	second_mount
	cat "$mnt2/times/small" "$mnt2/times/large" >/dev/null
	expect "" "$(find "$backing/times" -type f -newerat 2001-01-02)" "what was touched"
}

# A small file system below the workspace's root is full soon.
test_a_full_disk_is_said_to_be_full() {
	local status=0

	[ -n "$backing" ] || skip "mem: has a bound of its own"
	mkdir "$backing/small"
	mount -t tmpfs -o size=1m none "$backing/small" || skip "no permission to mount"
	# The last close reaches the daemon after the program has ended.
	trap 'wait_for 5 umount "$backing/small" || fail "the small file system is in use"' EXIT
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

# ... and what else stops a write by its own name, though the writer has gone on.
test_a_quota_is_said_to_be_one() {
	[ -n "$backing" ] || skip "mem: has no quota"
	[ "$(id -u)" = 0 ] || skip "needs root"
	need mkfs.btrfs btrfs python3
	mkdir "$backing/quota"
	truncate -s 64M "$tmp/image"
	mkfs.btrfs -q --mixed "$tmp/image" >/dev/null || skip "no btrfs can be made"
	mount -o loop "$tmp/image" "$backing/quota" || skip "no btrfs can be mounted"
	trap 'wait_for 5 umount "$backing/quota"' EXIT
	btrfs quota enable "$backing/quota" && btrfs qgroup limit 4M 0/5 "$backing/quota" || skip "no quotas"
	: >"$backing/quota/mounted"
	wait_for 5 test -e "$mnt/quota/mounted" || fail "the file system does not show"
	python3 - "$mnt/quota" <<-'END'
		import errno, mmap, os, sys
		def refused(call, *args):
		    try:
		        call(*args)
		    except OSError as e:
		        return errno.errorcode[e.errno]
		def filled(path, size):
		    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
		    said = None
		    while size > 0 and not said:
		        said = refused(os.write, fd, b"x" * 65536)
		        size -= 65536
		    said = said or refused(os.fsync, fd)
		    return refused(os.close, fd) or said
		os.chdir(sys.argv[1])
		fd = os.open("mapped", os.O_CREAT | os.O_RDWR)
		os.truncate(fd, 8 << 20)
		area = mmap.mmap(fd, 8 << 20)
		said = [filled("big", 8 << 20), filled("big", 8 << 20), refused(os.mknod, "new"),
		    refused(os.mkdir, "directory"), refused(os.symlink, "to", "link"),
		    refused(os.setxattr, "mounted", "user.x", b"x" * 1000),
		    refused(os.posix_fallocate, fd, 0, 16 << 20)]
		area[:] = b"x" * len(area)
		said.append(refused(area.flush))
		assert said == ["EDQUOT"] * len(said), said
	END
}

# The daemon's limit, or the helper's, stops a write halfway with EFBIG.
test_a_file_that_is_too_large_is_said_to_be_so() {
	local status=0

	[ -n "$backing" ] || skip "mem: has a bound of its own"
	trap '' XFSZ
	ulimit -Sf 1000
	second_mount
	ulimit -Sf "$(ulimit -Hf)"
	LC_ALL=C dd if=/dev/zero of="$mnt2/large" bs=64k count=20 conv=fsync 2>"$tmp/dd" || status=$?
	expect 1 "$status" "exit code of dd"
	grep -q 'File too large' "$tmp/dd" || fail "dd says: $(cat "$tmp/dd")"
	need python3
	# Large writes travel in parts: one may fail while the next are sent.
	python3 - "$mnt2" "$backing" <<-'END'
		import errno, os, sys
		def written(fd):
		    try:
		        return os.pwrite(fd, b"x" * (1 << 20), 900 << 10)
		    finally:
		        os.fsync(fd)
		for i in range(200):
		    fd = os.open(f"{sys.argv[1]}/part{i}", os.O_CREAT | os.O_WRONLY)
		    try:
		        count = written(fd)
		        assert os.stat(f"{sys.argv[2]}/part{i}").st_size == (900 << 10) + count, (i, count)
		    except OSError as e:
		        assert e.errno == errno.EFBIG, (i, e)
		    finally:
		        os.close(fd)
	END
}

run_tests "$1"
