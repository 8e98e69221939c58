/*
 * backends/local/watch_internal.h - the parts of the watcher.
 *
 * watch.c              its life, and its thread: when events are read, and how many at once
 * watch_events.c       what a batch of events says: looks at names, and tells the sink
 * watch_directories.c  which directories are watched, and where they are
 * watch_table.c        the table of both
 * watch_links.c        a thread that looks for files that have got another name elsewhere
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/inotify.h>

#include "backends/local/watch.h"
#include "backends/local/watch_mounts.h"
#include "backends/local/watch_table.h"

enum {
	WATCH_BATCH_BYTES = 64 * 1024,
	WATCH_BATCH_SLOTS = 4096, /* a power of two, at least as many as events fit into a batch */
	WATCH_OWN_SLOTS = 4096,
};

_Static_assert(WATCH_BATCH_SLOTS * sizeof(struct inotify_event) >= WATCH_BATCH_BYTES,
	"a slot for each event");

/* A name that changed in a directory which, when it was looked at, was not where it should be. */
struct missed {
	struct missed *next;
	int number;
	char name[];
};

struct watcher {
	watcher_look look;
	watcher_list list;
	void *look_user;
	change_sink sink;
	void *sink_user;
	int inotify_fd, wake_fd;
	/* mountinfo: readable as urgent after a mount or umount, but each says so once: the thread
	 * has polled its own before a drain sees that it is at work.  -1: not available. */
	int mounts_fd, drain_mounts_fd;
	pthread_t thread, links_thread;

	/* By the hash of the path, of which the upper half is kept, with the time in ms. */
	atomic_uint_fast64_t own_changes[WATCH_OWN_SLOTS];
	/* The same, with the value of `turn`, until an event of that path. */
	atomic_uint_fast64_t own_turns[WATCH_OWN_SLOTS];
	atomic_uint turn; /* counts drains, when they are done */

	pthread_mutex_t mutex;
	pthread_cond_t drained;
	struct watch_table table; /* guarded by mutex, as what follows */
	uint64_t drains_wanted, drains_done;
	struct missed *linked; /* to be looked at by the thread */
	size_t linked_count;
	pthread_cond_t links_wake; /* `linked` was taken, or `stop` is set */
	bool is_idle;              /* the thread has handled what it has read, and waits for more */
	bool stop;

	/* The thread's own. */
	struct mount_points mounts;
	struct missed *missed; /* looked at once more when all events have been read */
	size_t missed_count;
	int touched[WATCH_BATCH_SLOTS]; /* watches of directories whose names changed */
	size_t touched_count;
	uint64_t charged_until_ns;              /* see read_and_gather() in watch.c */
	uint32_t last_event[WATCH_BATCH_SLOTS]; /* of each name in the batch: its offset + 1 */
	uint32_t masks[WATCH_BATCH_SLOTS];      /* ... and of all events of that name */
	_Alignas(struct inotify_event) char batch[WATCH_BATCH_BYTES];
};

/* ---- watch_events.c: called by the thread, without the mutex */

/* The number of events in `batch[0...size)` that are no echoes of changes of our own. */
size_t watch_count_foreign(struct watcher *watcher, size_t size);

/* Handles the events in `batch[0...size)`: looks at each name, and reports what is there now. */
void watch_take_batch(struct watcher *watcher, size_t size);

/* Looks again at names that were missed, once all events have been read. */
void watch_take_missed(struct watcher *watcher);

/* Reports what was mounted or unmounted. */
void watch_take_mounts(struct watcher *watcher);

/* Looks at the names that watch_links_thread() has found. */
void watch_take_linked(struct watcher *watcher);

/* ---- watch.c: any thread; wakes the thread, which takes what is new */

void watcher_wake(struct watcher *watcher);

/* ---- watch_links.c */

void *watch_links_thread(void *watcher);
