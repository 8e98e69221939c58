/* The pool of threads: what it runs, how many threads it has, and that none is left. */
#include <dirent.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ops/support/worker_pool.h"
#include "tests/check.h"

enum { LONG_MS = 60000, SOON_MS = 1, TASKS = 1000 };

static struct {
	atomic_uint ran, running, most;
	_Atomic pid_t last;
	sem_t may_end;
} seen;

static void begin(void)
{
	seen.ran = seen.running = seen.most = 0;
	sem_init(&seen.may_end, 0, 0);
}

static void count_one(void *user)
{
	unsigned now = ++seen.running, most = seen.most;

	(void)user;
	while (now > most && !atomic_compare_exchange_weak(&seen.most, &most, now))
		;
	seen.last = gettid();
	seen.ran++;
	seen.running--;
}

/* Until it may end. */
static void hold(void *user)
{
	(void)user;
	seen.running++;
	while (sem_wait(&seen.may_end) < 0)
		;
	seen.running--;
	seen.ran++;
}

static void await_running(unsigned count)
{
	while (seen.running < count)
		usleep(1000);
}

static void release(unsigned count)
{
	while (count--)
		sem_post(&seen.may_end);
}

static unsigned threads_named(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned count = 0;
	struct dirent *entry;

	while ((entry = readdir(tasks))) {
		char path[300], text[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (file && fgets(text, sizeof(text), file))
			count += strncmp(text, name, strlen(name)) == 0;
		if (file)
			fclose(file);
	}
	closedir(tasks);
	return count;
}

static void test_all_tasks_run_on_no_more_threads_than_it_may_have(void)
{
	struct worker_pool pool;

	begin();
	worker_pool_init(&pool,
		&(struct worker_limits){
			.name = "some", .threads_max = 3, .idle_max = 3, .queue_max = TASKS});
	for (int i = 0; i < TASKS; i++)
		CHECK(worker_pool_submit(&pool, count_one, NULL));
	CHECK(worker_pool_wait_idle(&pool, LONG_MS));
	CHECK_RC(TASKS, seen.ran);
	CHECK(seen.most <= 3);
	CHECK(threads_named("some") <= 3);
	worker_pool_done(&pool);
	CHECK_RC(0, threads_named("some"));
}

static void test_a_task_beyond_threads_and_queue_is_refused(void)
{
	struct worker_pool pool;

	begin();
	worker_pool_init(
		&pool, &(struct worker_limits){.name = "full", .threads_max = 2, .queue_max = 1});
	CHECK(worker_pool_submit(&pool, hold, NULL));
	CHECK(worker_pool_submit(&pool, hold, NULL));
	CHECK(worker_pool_submit(&pool, hold, NULL));
	CHECK(!worker_pool_submit(&pool, hold, NULL));
	CHECK(!worker_pool_wait_idle(&pool, SOON_MS));
	release(3);
	CHECK(worker_pool_wait_idle(&pool, LONG_MS));
	CHECK_RC(3, seen.ran);
	worker_pool_done(&pool);
}

/* Each holds until all run. */
static void test_without_a_queue_each_task_has_a_thread_at_once(void)
{
	struct worker_pool pool;

	begin();
	worker_pool_init(&pool, &(struct worker_limits){.name = "each", .threads_max = 20});
	for (int i = 0; i < 20; i++)
		CHECK(worker_pool_submit(&pool, hold, NULL));
	await_running(20);
	release(20);
	worker_pool_done(&pool);
	CHECK_RC(20, seen.ran);
	CHECK_RC(0, threads_named("each"));
}

static void test_an_idle_thread_takes_the_next_task(void)
{
	struct worker_pool pool;
	pid_t first;

	begin();
	worker_pool_init(
		&pool, &(struct worker_limits){.name = "kept", .threads_max = 8, .idle_max = 1});
	CHECK(worker_pool_submit(&pool, count_one, NULL));
	CHECK(worker_pool_wait_idle(&pool, LONG_MS));
	first = seen.last;
	for (int i = 0; i < 100; i++) {
		CHECK(worker_pool_submit(&pool, count_one, NULL));
		CHECK(worker_pool_wait_idle(&pool, LONG_MS));
		CHECK_RC(first, seen.last);
	}
	worker_pool_done(&pool);
}

static void test_threads_beyond_those_that_may_idle_end(void)
{
	struct worker_pool pool;

	begin();
	worker_pool_init(
		&pool, &(struct worker_limits){.name = "fewer", .threads_max = 10, .idle_max = 2});
	for (int i = 0; i < 10; i++)
		CHECK(worker_pool_submit(&pool, hold, NULL));
	await_running(10);
	release(10);
	CHECK(worker_pool_wait_idle(&pool, LONG_MS));
	/* The list of threads may lack some while others end. */
	for (int i = 0; threads_named("fewer") != 2 && i < LONG_MS; i++)
		usleep(1000);
	CHECK_RC(2, threads_named("fewer"));
	worker_pool_done(&pool);
	CHECK_RC(0, threads_named("fewer"));
}

static void test_the_end_runs_what_is_queued(void)
{
	struct worker_pool pool;

	begin();
	worker_pool_init(&pool,
		&(struct worker_limits){.name = "end", .threads_max = 1, .queue_max = TASKS});
	CHECK(worker_pool_submit(&pool, hold, NULL));
	for (int i = 0; i < 100; i++)
		CHECK(worker_pool_submit(&pool, count_one, NULL));
	release(1);
	worker_pool_done(&pool);
	CHECK_RC(101, seen.ran);
}

struct chain {
	struct worker_pool *pool;
	unsigned left;
};

static void go_on(void *user)
{
	struct chain *chain = user;

	seen.ran++;
	if (--chain->left)
		CHECK(worker_pool_submit(chain->pool, go_on, chain));
}

static void test_a_task_submits_another_also_at_the_end(void)
{
	struct worker_pool pool;
	struct chain chain = {&pool, 100};

	begin();
	worker_pool_init(
		&pool, &(struct worker_limits){.name = "chain", .threads_max = 1, .queue_max = 1});
	CHECK(worker_pool_submit(&pool, go_on, &chain));
	worker_pool_done(&pool);
	CHECK_RC(100, seen.ran);
}

static void test_a_pool_that_was_not_begun_ends(void)
{
	struct worker_pool pool = {0};

	worker_pool_done(&pool);
	CHECK(worker_pool_wait_idle(&pool, SOON_MS));
}

TEST_MAIN("worker_pool", TEST(test_all_tasks_run_on_no_more_threads_than_it_may_have),
	TEST(test_a_task_beyond_threads_and_queue_is_refused),
	TEST(test_without_a_queue_each_task_has_a_thread_at_once),
	TEST(test_an_idle_thread_takes_the_next_task),
	TEST(test_threads_beyond_those_that_may_idle_end), TEST(test_the_end_runs_what_is_queued),
	TEST(test_a_task_submits_another_also_at_the_end),
	TEST(test_a_pool_that_was_not_begun_ends))
