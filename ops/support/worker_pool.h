/*
 * ops/support/worker_pool.h - threads that run tasks, first come first served.
 *
 * A thread is started when a task finds none idle, and none runs on after worker_pool_done().
 * Threads: any; a task may submit others.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct worker_limits {
	const char *name;          /* of the threads, as for thread_start() */
	size_t stack_bytes;        /* likewise */
	unsigned threads_max;      /* 1 or more */
	unsigned idle_max;         /* threads that stay while there is nothing to do */
	unsigned queue_max;        /* tasks that may wait for a thread */
	void (*thread_ends)(void); /* on each that ends, or NULL */
};

struct worker_queued;

struct worker_pool {
	struct worker_limits limits;
	pthread_mutex_t lock;
	pthread_cond_t work, changed;
	struct worker_queued *first, **last; /* guarded by lock, like what follows */
	unsigned queued, threads, idle;
	bool stopping, has_ended;
	pthread_t ended; /* the thread that ended last: the next one joins it */
};

void worker_pool_init(struct worker_pool *pool, const struct worker_limits *limits);

/* False, and the task will not run: `queue_max` wait already, or there is no thread for it. */
bool worker_pool_submit(struct worker_pool *pool, void (*run)(void *user), void *user);

/* True: nothing is queued or runs.  False: that was not so for `ms`. */
bool worker_pool_wait_idle(struct worker_pool *pool, int ms);

/* Runs what is queued to its end, and waits for all threads.  A pool of zeros is fine. */
void worker_pool_done(struct worker_pool *pool);
