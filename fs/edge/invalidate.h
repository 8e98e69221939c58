/*
 * fs/edge/invalidate.h - changes that others made at the workspace reach the kernel's caches.
 *
 * The change feed only queues; a thread of the invalidator's own tells the kernel, as that may
 * wait for a lock which a request under way holds (notify_inval_entry: the directory's).
 * Echoes of our own changes are told by the version last given to the kernel.
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

/* What the kernel knows in a directory that is another inode now (is_former) may not be true for
 * long.  Takes over the reference. */
void invalidator_left(struct invalidator *invalidator, struct inode *former);

/* A reply says that another object is at the name than one of just before did (or an object, and
 * that nothing is), which may reach the kernel later. */
void invalidator_another(
	struct invalidator *invalidator, struct inode *directory, const char *name);

/* The kernel looks the name up again; it may wait for the lock of the directory. */
void invalidator_expire(struct invalidator *invalidator, struct inode *directory, const char *name);

/* Around a change through this mount of a name: from before the workspace is asked until the inode
 * table knows the outcome.  What the feed tells of that name meanwhile is handled after it. */
void invalidator_own_begin(struct invalidator *invalidator, struct own_change *own);
void invalidator_own_end(struct invalidator *invalidator, const struct own_change *own);

/* A spare handle was added (inode_table_handle_add()): sees to it that it is closed in time. */
void invalidator_spare_added(struct invalidator *invalidator);

/* Waits until the kernel knows of all changes that the feed brought so far, and has forgotten
 * what it believes for a time only (unwatched directories, files with several links). */
void invalidator_drain(struct invalidator *invalidator);
