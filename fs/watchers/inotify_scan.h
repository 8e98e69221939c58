/*
 * fs/watchers/inotify_scan.h - which inodes of a mount programs of this machine watch, by
 * inotify(7) or fanotify(7).
 *
 * Read from /proc/PID/fdinfo, as the kernel reports no watch to a file system.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inotify_scan {
	uint64_t *nodes; /* node ids of FUSE, sorted; the caller frees */
	size_t count;
	bool is_everything; /* there may be more: of processes that cannot be inspected, or that
			     * watch a whole file system */
};

/* `minor`: of the mount's device.  `others`: other users may watch the mount, so processes of
 * theirs that cannot be inspected count as incomplete.  -ENOMEM; -errno when /proc cannot be read.
 */
int inotify_scan_run(unsigned minor, bool others, struct inotify_scan *ret_scan);
