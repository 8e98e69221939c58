#include "ops/cache/cached_internal.h"
#include "ops/support/clock.h"
#include "ops/support/heap.h"
#include "ops/support/thread.h"

/*
 * Thousands of files that were created and removed leave objects without names, which the tree
 * drops only as facts arrive, and free heap memory, which malloc keeps.  When no fact was learnt
 * for a while, a thread drops all such objects and most content that the disk store has, and
 * returns the free memory to the system.
 */
enum {
	TIDY_AFTER_MS = 2000,
	TIDY_PAUSES = 100, /* after tidying, pause this many times as long as that took */
	TIDY_PAUSE_MAX_MS = 60 * 1000, /* a bound, as most of that time may be waiting for locks */
	TIDY_STACK_BYTES = 128 << 10,
};

void cached_note_update(struct cached *c)
{
	c->updates++;
	if (!c->is_tidy)
		return;
	c->is_tidy = false;
	pthread_cond_signal(&c->tidier_wanted);
}

/* Called with the lock; releases it between the parts. */
static void tidy(struct cached *c)
{
	size_t part = 0;
	bool goes_on;

	do {
		goes_on = tree_clean(c->tree, &part);
		cached_leave(c);
		cached_enter(c);
	} while (goes_on && !c->stopping);
	content_shrink(c);
	slab_trim(&c->extras);
	cached_leave(c);
	heap_trim();
	cached_enter(c);
}

static void *tidier_main(void *user)
{
	struct cached *c = user;
	uint64_t due_ms = 0;

	cached_enter(c);
	while (!c->stopping) {
		uint64_t updates = c->updates, started_ms, pause_ms;

		if (c->is_tidy) {
			pthread_cond_wait(&c->tidier_wanted, &c->lock);
			continue;
		}
		clock_cond_wait_ms(&c->tidier_wanted, &c->lock, TIDY_AFTER_MS);
		started_ms = cached_now_ms();
		if (c->stopping || c->updates != updates || started_ms < due_ms)
			continue;
		tidy(c);
		pause_ms = TIDY_PAUSES * (cached_now_ms() - started_ms);
		due_ms = cached_now_ms() +
			 (pause_ms < TIDY_PAUSE_MAX_MS ? pause_ms : TIDY_PAUSE_MAX_MS);
		c->is_tidy = c->updates == updates;
	}
	cached_leave(c);
	return NULL;
}

int cached_tidy_start(struct cached *c)
{
	int r = thread_start(&c->tidier, "cache-tidy", TIDY_STACK_BYTES, tidier_main, c);

	c->tidies = r == 0;
	return r;
}

void cached_tidy_stop(struct cached *c)
{
	if (!c->tidies)
		return;
	pthread_mutex_lock(&c->lock);
	pthread_cond_signal(&c->tidier_wanted);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->tidier, NULL);
}
