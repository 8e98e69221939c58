#include "ops/support/worker_pool.h"

#include <stdlib.h>

#include "ops/support/clock.h"
#include "ops/support/thread.h"

struct worker_queued {
	struct worker_queued *next;
	void (*run)(void *user);
	void *user;
};

void worker_pool_init(struct worker_pool *pool, const struct worker_limits *limits)
{
	*pool = (struct worker_pool){.limits = *limits};
	pool->last = &pool->first;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	clock_cond_init(&pool->changed);
}

/* With the lock.  NULL: the thread is to end. */
static struct worker_queued *take(struct worker_pool *pool)
{
	struct worker_queued *task;

	while (!pool->first && !pool->stopping && pool->idle <= pool->limits.idle_max)
		pthread_cond_wait(&pool->work, &pool->lock);
	pool->idle--;
	task = pool->first;
	if (!task)
		return NULL;
	pool->first = task->next;
	if (!pool->first)
		pool->last = &pool->first;
	pool->queued--;
	return task;
}

static void *work(void *user)
{
	struct worker_pool *pool = user;
	struct worker_queued *task;
	pthread_t before;
	bool joins;

	pthread_mutex_lock(&pool->lock);
	while ((task = take(pool))) {
		pthread_mutex_unlock(&pool->lock);
		task->run(task->user);
		free(task);
		pthread_mutex_lock(&pool->lock);
		pool->idle++;
		pthread_cond_broadcast(&pool->changed);
	}
	if (pool->limits.thread_ends) {
		pthread_mutex_unlock(&pool->lock);
		pool->limits.thread_ends();
		pthread_mutex_lock(&pool->lock);
	}
	before = pool->ended;
	joins = pool->has_ended;
	pool->ended = pthread_self();
	pool->has_ended = true;
	pool->threads--;
	pthread_cond_broadcast(&pool->changed);
	pthread_mutex_unlock(&pool->lock);
	if (joins)
		pthread_join(before, NULL);
	return NULL;
}

/* With the lock.  The thread is idle from now on. */
static void start_thread(struct worker_pool *pool)
{
	pthread_t thread;

	if (thread_start(&thread, pool->limits.name, pool->limits.stack_bytes, work, pool) < 0)
		return;
	pool->threads++;
	pool->idle++;
}

bool worker_pool_submit(struct worker_pool *pool, void (*run)(void *user), void *user)
{
	struct worker_queued *task = malloc(sizeof(*task));
	bool taken;

	if (!task)
		return false;
	*task = (struct worker_queued){.run = run, .user = user};
	pthread_mutex_lock(&pool->lock);
	if (pool->queued >= pool->idle && pool->threads < pool->limits.threads_max)
		start_thread(pool);
	taken = pool->threads > 0 && pool->queued < pool->idle + pool->limits.queue_max;
	if (taken) {
		*pool->last = task;
		pool->last = &task->next;
		pool->queued++;
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
	if (!taken)
		free(task);
	return taken;
}

bool worker_pool_wait_idle(struct worker_pool *pool, int ms)
{
	const struct timespec end = clock_in_ms(ms);
	bool busy;
	int r = 0;

	pthread_mutex_lock(&pool->lock);
	while ((busy = pool->first || pool->idle < pool->threads) && r == 0)
		r = pthread_cond_timedwait(&pool->changed, &pool->lock, &end);
	pthread_mutex_unlock(&pool->lock);
	return !busy;
}

void worker_pool_done(struct worker_pool *pool)
{
	if (!pool->limits.threads_max)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->work);
	while (pool->threads > 0)
		pthread_cond_wait(&pool->changed, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	if (pool->has_ended)
		pthread_join(pool->ended, NULL);
	pthread_cond_destroy(&pool->changed);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
}
