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
	struct change change; /* `path` points to the text below */
	char path[];
};

/* A directory that is another inode now. */
struct left {
	struct left *next;
	struct inode *inode; /* with a reference */
};

/* The kernel is to look a name up again, once more. */
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
	struct queued *waiting, **last_waiting; /* for the end of a change of our own */
	size_t count;                           /* of both */
	struct own_change *own;
	struct left *left;
	struct repeat *repeats, **last_repeat; /* what is due first comes first */
	uint64_t spares_due_ns;                /* when to look at them; 0: there is none */
	bool busy;                             /* the thread works on some */
	atomic_bool ending;
	bool lost;   /* changes were dropped: rescan everything */
	bool expire; /* what is believed for a time only is to go */
};

/* What invalidator_start() starts the thread with, which is not subscribed yet.  -ENOMEM. */
int invalidator_new(struct session *s, struct invalidator **ret_invalidator);

/* From the feed: queues the change. */
void invalidator_take(void *invalidator, const struct change *change);

/* What the thread does, with the lock held: takes the next thing to be done, and does it without
 * the lock. */
bool invalidator_has_work(const struct invalidator *v);
void invalidator_handle_next(struct invalidator *v);

/* There was no memory for something: everything is invalidated a while later. */
void invalidator_try_again(struct invalidator *v);

/* Expires the entry once more.  A revalidation holds no lock in the kernel: the reply to one that
 * is on its way would undo the first expiry; its thread runs within that time. */
void invalidator_repeat_later(struct invalidator *v, struct inode *parent, const char *name);

/* ---- invalidate_kernel.c */

/* Logs a change of others, and invalidates what it makes wrong. */
void invalidate_change(struct session *s, const struct change *change);

/* Changes were lost: everything that is known may be wrong. */
void invalidate_everything(struct session *s);

/* ... or what is known in the directory.  NULL: in all. */
void invalidate_directory(struct session *s, struct inode *directory);

/* A command may have changed what is not watched: the kernel asks again before the time is over for
 * which it has been told to keep it. */
void invalidate_unwatched(struct session *s);

/* The kernel looks the name up again; once more later, if a reply about it may be on its way. */
void invalidate_entry(struct session *s, struct inode *parent, const char *name);

/* ... once. */
void invalidate_expire(struct session *s, const struct inode *parent, const char *name);
