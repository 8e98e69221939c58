/*
 * fs/watchers/watchers_internal.h - the parts of the announcing of changes.
 *
 * watchers.c   the thread, and what it is told of
 * discover.c   who watches what
 * deliver.c    what differs from what they have seen, and in which order it is announced
 */
#pragma once

#include "fs/watchers/event_helper.h"
#include "fs/watchers/seen.h"
#include "fs/watchers/watchers.h"

enum {
	UNDECIDED_MAX = 4096,
	PENDING_MAX = 32768,
	DIRECTORIES_MAX = 4096, /* kept while it is not known what is watched */
	NAMES_MAX = 1 << 20,
};

static const uint64_t PAIR_NS = 30000000; /* the other half of a rename comes by then */
static const uint64_t GATHER_NS =
	50000000; /* changes of one file within that time are announced as one */
static const uint64_t SAVED_NS = 200000000;   /* after its first name went, a file has its last */
static const uint64_t PARENT_NS = 2000000000; /* by then a directory's end has been told */
static const uint64_t RETRY_NS =
	20000000; /* until a change that waits for a request in flight is tried again */
static const uint64_t WRITING_NS =
	5000000000; /* how long after a write of ours changes count as ours */

/* A change in a directory that may or may not be watched. */
struct undecided_change {
	struct undecided_change *next;
	struct inode *directory; /* with a reference */
	struct known_before before;
	bool exists;
	struct attributes now;
	uint64_t at, arrived_ns;
	char name[];
};

struct watchers {
	struct mount *mount;
	struct change_observer observer;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	struct seen seen; /* lock, as all below */
	struct undecided_change *undecided, **last_undecided;
	unsigned undecided_count;
	bool is_missed; /* of changes anywhere */
	bool has_ended;

	/* The thread's own; only it removes directories and names from `seen`. */
	struct event_helpers helpers;
	int wake_fd, stop_fd, mounts_fd;
	bool knows_all; /* by the last scan: all watches can be seen */
	unsigned turn;  /* of scans */
	unsigned pass;  /* of deliveries */
	unsigned starts_failed;
	uint64_t scanned_ns, scan_cost_ns;
	uint64_t requests_seen;
	atomic_bool ending;
};

/* A context whose calls end with the thread. */
void watchers_op(struct watchers *w, struct op_context *ret_op);

void watchers_lock(struct watchers *w);
void watchers_unlock(struct watchers *w);

/* With the lock held: makes the change pending, if its directory is watched. */
void watchers_want(struct watchers *w, struct seen_directory *directory, const char *name,
	const struct known_before *before, const struct attributes *now, uint64_t at,
	uint64_t arrived_ns);

/* Looks for watches, if it is time to, and lists what is newly watched.  Returns when
 * (CLOCK_MONOTONIC) to call again. */
uint64_t watchers_discover(struct watchers *w);

/* Announces what can be announced now.  Returns when to call again; 0: nothing is left. */
uint64_t watchers_deliver(struct watchers *w);
