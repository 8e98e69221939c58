/*
 * fs/edge/edge.h - the FUSE edge of a mount, for the rest of the daemon.
 *
 * Threads: any.
 */
#pragma once

#include "fs/mount/mount.h"

struct object_id;

/* Mounts and serves until unmounted or mount_stop().  `ready` is called once the mount is
 * usable.  0, or -errno with a line for people in `*ret_reason` (allocated, or NULL). */
int mount_run(struct mount *m, void (*ready)(void *user), void *user, char **ret_reason);

/* Asks the session to end (async-signal-safe). */
void mount_stop(struct mount *m);

/* Waits until the kernel has been notified of every change that the feed brought so far: what a
 * command did at the workspace is visible on the mount. */
void mount_drain_changes(struct mount *m);

/* Watches the directory `path`, if possible and the kernel knows it, though it was not listed yet.
 */
void mount_watch(struct mount *m, const char *path);

/* Some handle of the object is open for writing: the kernel may have data that was not written back
 * yet. */
bool mount_is_written(struct mount *m, const struct object_id *id);

/* Frees what mount_run() left; after workspace_free(), whose feed leads here. */
void mount_done(struct mount *m);
