/*
 * ops/cache/worker_pool.h - a few threads that run tasks, first come first served.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct worker_pool;

typedef void (*worker_task)(void *user);

/* -ENOMEM, -EAGAIN. */
int worker_pool_new(size_t threads, size_t queue_max, struct worker_pool **ret_pool);

/* From a task: its thread, for good, leaves the processor to whoever else wants it. */
void worker_give_way(void);

/* Queues a task.  False (and the task will not run) when `queue_max` wait already. */
bool worker_pool_submit(struct worker_pool *pool, worker_task run, void *user);

/* Waits until nothing is queued or running. */
void worker_pool_wait_idle(struct worker_pool *pool);

/* Runs what is queued to its end, then frees the pool.  NULL is fine. */
void worker_pool_free(struct worker_pool *pool);
