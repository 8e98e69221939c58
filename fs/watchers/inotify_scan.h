/*
 * fs/watchers/inotify_scan.h - which inodes of a mount programs of this machine wait for, by
 * inotify(7) or fanotify(7).
 *
 * Read from /proc/PID/fdinfo: the kernel tells a file system of no watch.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inotify_scan {
	uint64_t *nodes; /* node ids of FUSE, sorted; the caller frees */
	size_t count;
	bool is_everything; /* there may be more: of processes that nobody may look into, or that
			     * watch a whole file system */
};

/* `minor`: of the mount's device.  `others`: of other users' processes, too, it matters that they
 * cannot be looked into.  -ENOMEM; -errno when /proc cannot be read. */
int inotify_scan_run(unsigned minor, bool others, struct inotify_scan *ret_scan);
