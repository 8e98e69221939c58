/*
 * fs/edge/invalidate.h - invalidates the kernel's caches when others change the workspace.
 *
 * The change feed only queues; a thread of the invalidator's own notifies the kernel, as that may
 * wait for a lock that a request under way holds (notify_inval_entry: the directory's).  Echoes of
 * our own changes are recognised by the version that the kernel last got.
 */
#pragma once

#include "fs/edge/session.h"

struct invalidator;

/* Subscribes to the workspace's feed (one without is fine) and starts the thread. */
int invalidator_start(struct session *s, struct invalidator **ret_invalidator);

/* Ends the thread, which asks the workspace: before workspace_free().  NULL is fine. */
void invalidator_stop(struct invalidator *invalidator);

/* After invalidator_stop() and workspace_free(), whose feed leads here.  NULL is fine. */
void invalidator_free(struct invalidator *invalidator);

/* The directory is not watched any more, for a reason of our own. */
void invalidator_unwatched(struct invalidator *invalidator, const struct object_id *directory);

/* The inode of a directory was superseded (is_superseded): what the kernel cached in it must be
 * invalidated.  Takes over the reference. */
void invalidator_superseded(struct invalidator *invalidator, struct inode *inode);

/* Two replies about the name that differ were sent within a second, and may reach the kernel in
 * either order: expires the entry after the second. */
void invalidator_another(
	struct invalidator *invalidator, struct inode *directory, const char *name);

/* Expires the entry now: may wait for the kernel's lock of the directory. */
void invalidator_expire(struct invalidator *invalidator, struct inode *directory, const char *name);

/* Around a change of a name through this mount, from before the workspace is asked until the inode
 * table has the outcome.  Reports of the feed about that name are handled after it. */
void invalidator_own_begin(struct invalidator *invalidator, struct own_change *own);
void invalidator_own_end(struct invalidator *invalidator, const struct own_change *own);

/* A retry handle was added (inode_table_handle_add()), and will have to be closed. */
void invalidator_retry_handle_added(struct invalidator *invalidator);

/* Waits until the kernel was notified of all changes that the feed brought so far, and of
 * everything that it caches by time only (unwatched directories, files with several links). */
void invalidator_drain(struct invalidator *invalidator);

/* The same before a lock is given to its holder, but it does not wait for what has to wait itself
 * (drops of files that are locked here, or mapped and being written).  -EINTR. */
int invalidator_catch_up(struct invalidator *invalidator, struct op_context *ctx);
