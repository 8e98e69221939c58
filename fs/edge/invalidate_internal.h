/*
 * fs/edge/invalidate_internal.h - what waits to be told to the kernel, for fs/edge/invalidate.c and
 * its tests.
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
