/*
 * fs/invalidate.h - changes that others made at the workspace reach the kernel's caches.
 *
 * The change feed only queues; a thread of the invalidator's own tells the kernel, as that may
 * wait for a lock which a request under way holds (notify_inval_entry: the directory's).
 * Echoes of our own changes are told by the version last given to the kernel.
 */
#pragma once

#include "fs/session.h"

struct invalidator;

/* Subscribes to the workspace's feed (one without is fine) and starts the thread. */
int invalidator_start(struct session *s, struct invalidator **ret_invalidator);

/* Ends the thread, which asks the workspace: before workspace_free().  NULL is fine. */
void invalidator_stop(struct invalidator *invalidator);

/* After invalidator_stop() and workspace_free(), whose feed leads here.  NULL is fine. */
void invalidator_free(struct invalidator *invalidator);

/* The directory is not watched any more, for a reason of our own. */
void invalidator_unwatched(struct invalidator *invalidator, const char *path);

/* What the kernel knows in a directory that is another inode now (is_former) may not be true for
 * long.  Takes over the reference. */
void invalidator_left(struct invalidator *invalidator, struct inode *former);

/* A rename through this mount that is under way, in the caller's memory. */
struct renaming {
	struct renaming *next;
	uint64_t number;
};

/* Before the workspace is asked to rename something, and when the inode table knows the result. */
void invalidator_renaming(struct invalidator *invalidator, struct renaming *renaming);
void invalidator_renamed(struct invalidator *invalidator, struct renaming *renaming);

/* A directory was renamed through this mount (or two have changed places); `at` is the position of
 * that (0: unknown, then changes may have been lost).  Before the inode table knows it: who does
 * not find something by its old path any more finds it by the new one. */
void invalidator_moved(
	struct invalidator *invalidator, const char *from, const char *to, bool swap, uint64_t at);

/* A spare handle was added (inode_table_handle_add()): sees to it that it is closed in time. */
void invalidator_spare_added(struct invalidator *invalidator);

/* Waits until the kernel knows of all changes that the feed brought so far, and has forgotten
 * what it believes for a time only (unwatched directories, files with several links). */
void invalidator_drain(struct invalidator *invalidator);
