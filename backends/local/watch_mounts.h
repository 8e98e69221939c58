/*
 * backends/local/watch_mounts.h - what is mounted below a directory, and what of it changes.
 *
 * inotify says nothing of a file system that is mounted over a directory, or taken away again:
 * the kernel's table of mounts does (proc(5): mountinfo, which polls as urgent when it changes).
 * Threads: none; its owner guards it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mount_points {
	char *root; /* absolute; NULL: unknown, no mount is noticed */
	struct mount_point *points;
	size_t count;
};

/* Gets the path, relative to the root, at which something was mounted or unmounted. */
typedef void (*mount_point_sink)(void *user, const char *path);

/* Starts with what is mounted now below the directory that is open as `root_fd`. */
void mount_points_init(struct mount_points *mounts, int root_fd);
void mount_points_done(struct mount_points *mounts);

/* Reports all that changed since the last call. */
void mount_points_update(struct mount_points *mounts, mount_point_sink sink, void *user);
