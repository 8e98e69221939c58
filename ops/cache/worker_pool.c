#include "ops/cache/worker_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ops/support/thread.h"

enum { GIVE_WAY_NICE = 10 };

struct task {
	worker_task run;
	void *user;
};

struct worker_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	struct task *ring;
	size_t ring_size, first, queued, running;
	bool stopping;
	size_t thread_count;
	pthread_t threads[];
};

static bool take(struct worker_pool *pool, struct task *ret_task)
{
	while (pool->queued == 0 && !pool->stopping)
		pthread_cond_wait(&pool->work, &pool->lock);
	if (pool->queued == 0)
		return false;
	*ret_task = pool->ring[pool->first];
	pool->first = (pool->first + 1) % pool->ring_size;
	pool->queued--;
	pool->running++;
	return true;
}

static void *work(void *user)
{
	struct worker_pool *pool = user;
	struct task task;

	pthread_mutex_lock(&pool->lock);
	while (take(pool, &task)) {
		pthread_mutex_unlock(&pool->lock);
		task.run(task.user);
		pthread_mutex_lock(&pool->lock);
		pool->running--;
		if (pool->queued == 0 && pool->running == 0)
			pthread_cond_broadcast(&pool->idle);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static int start_threads(struct worker_pool *pool, size_t count)
{
	int r = 0;

	while (r == 0 && pool->thread_count < count) {
		r = thread_start(&pool->threads[pool->thread_count], "worker", 0, work, pool);
		pool->thread_count += r == 0;
	}
	return r;
}

int worker_pool_new(size_t threads, size_t queue_max, struct worker_pool **ret_pool)
{
	struct worker_pool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));
	int r;

	if (!pool)
		return -ENOMEM;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->idle, NULL);
	pool->ring_size = queue_max;
	pool->ring = calloc(queue_max, sizeof(*pool->ring));
	r = pool->ring ? start_threads(pool, threads) : -ENOMEM;
	if (r < 0) {
		worker_pool_free(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void worker_give_way(void)
{
	setpriority(PRIO_PROCESS, (id_t)gettid(), GIVE_WAY_NICE);
}

bool worker_pool_submit(struct worker_pool *pool, worker_task run, void *user)
{
	bool taken;

	pthread_mutex_lock(&pool->lock);
	taken = pool->queued < pool->ring_size && !pool->stopping;
	if (taken) {
		pool->ring[(pool->first + pool->queued++) % pool->ring_size] =
			(struct task){run, user};
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
	return taken;
}

void worker_pool_wait_idle(struct worker_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	while (pool->queued > 0 || pool->running > 0)
		pthread_cond_wait(&pool->idle, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void worker_pool_free(struct worker_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->idle);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool->ring);
	free(pool);
}
