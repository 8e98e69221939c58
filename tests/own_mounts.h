/*
 * own_mounts.h - a mount namespace of a test's own, without what others have mounted by FUSE: a
 * copy of such a mount keeps its daemon alive after the unmount, and the test that waits for the
 * daemon fails.  (Scripts: tests/mounted/own_mounts.sh.)
 */
#pragma once

#include <errno.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

/* 0, -errno.  Only root can: what a namespace of users inherits cannot be taken out of it. */
static inline int own_mounts(void)
{
	struct mntent *entry;
	FILE *mounts;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	mounts = setmntent("/proc/self/mounts", "r");
	while (mounts && (entry = getmntent(mounts)))
		if (strncmp(entry->mnt_type, "fuse", 4) == 0)
			umount2(entry->mnt_dir, MNT_DETACH);
	if (mounts)
		endmntent(mounts);
	return mounts ? 0 : -EIO;
}
