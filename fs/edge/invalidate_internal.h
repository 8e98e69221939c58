/*
 * fs/edge/invalidate_internal.h - the parts of the invalidator, for them and their tests.
 *
 * invalidate.c         the queue of changes, those of our own that are under way, and the thread
 * invalidate_kernel.c  what the kernel must not use any longer, by the thread: it may wait for the
 *                      lock of a directory
 */
#pragma once

#include "fs/edge/invalidate.h"

struct queued {
	struct queued *next;
	uint64_t number;      /* of all so far */
	struct change change; /* `path` points to the text below */
	char path[];
};

/* A directory whose inode was superseded. */
struct superseded {
	struct superseded *next;
	struct inode *inode; /* with a reference */
};

/* An entry that is to be expired once more. */
struct repeat {
	struct repeat *next;
	struct inode *directory; /* with a reference */
	uint64_t due_ns;
	bool is_first; /* it has not been done before */
	char name[];
};

struct invalidator {
	struct session *session;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct queued *first, **last;           /* lock, as all below */
	struct queued *waiting, **last_waiting; /* deferred until a change of our own ends */
	size_t count;                           /* of both */
	uint64_t number;                        /* of the last one that came */
	struct own_change *own;
	struct superseded *superseded;
	struct repeat *repeats, **last_repeat; /* the first one due comes first */
	uint64_t retry_handles_due_ns;         /* when to close some; 0: there is none */
	bool busy;                             /* the thread handles one ... */
	uint64_t busy_number;                  /* ... of the queue; 0: something else */
	atomic_bool ending;
	bool lost;   /* changes were dropped: rescan everything */
	bool expire; /* invalidate what is cached by time only */
};

/* An invalidator without a thread and a subscription, for invalidator_start() and tests.  -ENOMEM.
 */
int invalidator_new(struct session *s, struct invalidator **ret_invalidator);

/* From the feed: queues the change. */
void invalidator_take(void *invalidator, const struct change *change);

/* The thread's step, with the lock held: takes the next piece of work, and does it without the
 * lock. */
bool invalidator_has_work(const struct invalidator *v);
void invalidator_handle_next(struct invalidator *v);

/* For want of memory: everything is invalidated a while later. */
void invalidator_try_again(struct invalidator *v);

/* Expires the entry once more, later: a revalidation holds no lock in the kernel, so a reply to one
 * that is on its way would undo the first expiry. */
void invalidator_repeat_later(struct invalidator *v, struct inode *parent, const char *name);

/* ---- invalidate_kernel.c */

/* Logs a change by others, and invalidates what it makes stale. */
void invalidate_change(struct session *s, const struct change *change);

/* Changes were lost: invalidates everything. */
void invalidate_everything(struct session *s, const char *path); /* `path`: for the log */

/* ... or everything in the directory.  NULL: in all. */
void invalidate_directory(struct session *s, struct inode *directory);

/* A command may have changed what is not watched: invalidates what the kernel caches by time only.
 */
void invalidate_unwatched(struct session *s);

/* Expires an entry: the kernel looks the name up again.  Once more later, if a reply about it may
 * be on its way. */
void invalidate_entry(struct session *s, struct inode *parent, const char *name);

/* ... once. */
void invalidate_expire(struct session *s, const struct inode *parent, const char *name);
