/*
 * ops/support/mountinfo.h - what is mounted where, without touching any of it.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A line of /proc/self/mountinfo (proc(5)), its escapes undone; valid during the call of the
 * sink only. */
struct mountinfo_line {
	uint64_t id;
	unsigned minor;   /* of the device; of a FUSE mount the number of its connection */
	const char *root; /* what of the file system is mounted */
	const char *mount_point;
	const char *type;
	const char *source;
	const char *super_options;
};

/* Gets one line; false ends the walk. */
typedef bool (*mountinfo_sink)(void *user, const struct mountinfo_line *line);

/* Walks over all mounts in the order they were made.  -errno when /proc cannot be read. */
int mountinfo_walk(mountinfo_sink sink, void *user);

/* The same, of those that a process sees, which may be in another mount namespace.  -ENOENT: there
 * is no such process. */
int mountinfo_walk_of(pid_t pid, mountinfo_sink sink, void *user);
