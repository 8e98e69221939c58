#include "fs/log/callers.h"
#include "tests/check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

/* A clock that is past every interval of the cache. */
static uint64_t later(void)
{
	static uint64_t now_ns = 1000000000000;

	return now_ns += 2000000000;
}

static struct callers *new_callers(void)
{
	struct callers *callers = NULL;

	CHECK_RC(0, callers_new(&callers));
	return callers;
}

static void check_call(struct callers *callers, pid_t tid, uint64_t now_ns, const char *want)
{
	struct caller caller;

	callers_find(callers, tid, now_ns, &caller);
	CHECK_STRING(want, caller.call ? caller.call->id : "");
	caller_done(&caller);
}

static int begin_call(struct callers *callers, const char *id, const char *tool, pid_t pid)
{
	const struct call_identity identity = {.id = id, .tool = tool, .pid = pid};

	return callers_call_begin(callers, &identity);
}

static void end_call(struct callers *callers, const char *id)
{
	struct tool_call *call = NULL;

	CHECK_RC(0, callers_call_end(callers, id, 0, &call));
	tool_call_unref(call);
}

/* ---- Processes to look at ------------------------------------------------------ */

/* Forks a process that waits until it is killed; with `depth`, its descendants do. `pids` gets
 * them from the child down. */
static void start_tree(int depth, pid_t *ret_pids)
{
	int ends[2];

	CHECK_RC(0, pipe(ends));
	if (fork() == 0) {
		for (int i = 0; i < depth; i++) {
			pid_t pid = getpid();

			if (write(ends[1], &pid, sizeof(pid)) < 0)
				_exit(1);
			if (i + 1 < depth && fork() > 0)
				break;
		}
		close(ends[0]);
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	for (int i = 0; i < depth; i++)
		CHECK_RC(sizeof(pid_t), read(ends[0], &ret_pids[i], sizeof(pid_t)));
	close(ends[0]);
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void wait_until_gone(pid_t pid)
{
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		usleep(10000);
}

/* ---- Names ---------------------------------------------------------------------- */

static void test_a_process_has_its_name(void)
{
	struct callers *callers = new_callers();
	struct caller caller;

	callers_find(callers, getpid(), later(), &caller);
	CHECK_RC(getpid(), caller.pid);
	CHECK_STRING("test_callers", caller.name);
	CHECK(caller.call == NULL);
	caller_done(&caller);
	callers_free(callers);
}

static pthread_barrier_t barrier;

static void *thread_run(void *user)
{
	*(pid_t *)user = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static pthread_t start_thread(pid_t *ret_tid)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	CHECK_RC(0, pthread_create(&thread, NULL, thread_run, ret_tid));
	pthread_barrier_wait(&barrier);
	return thread;
}

static void stop_thread(pthread_t thread)
{
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
}

static void test_a_thread_belongs_to_its_process(void)
{
	struct callers *callers = new_callers();
	struct caller caller;
	pid_t tid;
	pthread_t thread = start_thread(&tid);

	callers_find(callers, tid, later(), &caller);
	CHECK_RC(getpid(), caller.pid);
	CHECK_STRING("test_callers", caller.name);
	caller_done(&caller);
	stop_thread(thread);
	callers_free(callers);
}

static void test_a_new_name_is_noticed(void)
{
	struct callers *callers = new_callers();
	struct caller caller;

	callers_find(callers, getpid(), later(), &caller);
	caller_done(&caller);
	prctl(PR_SET_NAME, "renamed", 0, 0, 0);
	callers_find(callers, getpid(), later(), &caller);
	CHECK_STRING("renamed", caller.name);
	caller_done(&caller);
	prctl(PR_SET_NAME, "a\\nb\nc\\", 0, 0, 0); /* /proc/PID/status escapes both */
	callers_find(callers, getpid(), later(), &caller);
	CHECK_STRING("a\\nb\nc\\", caller.name);
	caller_done(&caller);
	prctl(PR_SET_NAME, "test_callers", 0, 0, 0);
	callers_free(callers);
}

static void test_a_process_that_ended_keeps_its_name(void)
{
	struct callers *callers = new_callers();
	struct caller caller;
	pid_t pid;

	start_tree(1, &pid);
	callers_find(callers, pid, later(), &caller);
	caller_done(&caller);
	stop(pid);
	callers_find(callers, pid, later(), &caller);
	CHECK_STRING("test_callers", caller.name);
	CHECK_RC(pid, caller.pid);
	caller_done(&caller);
	callers_free(callers);
}

static void test_a_process_never_seen_alive_has_no_name(void)
{
	struct callers *callers = new_callers();
	struct caller caller;
	pid_t pid;

	start_tree(1, &pid);
	stop(pid);
	callers_find(callers, pid, later(), &caller);
	CHECK_STRING("", caller.name);
	CHECK_RC(pid, caller.pid);
	caller_done(&caller);
	callers_find(callers, 0, later(), &caller);
	CHECK_RC(0, caller.pid);
	caller_done(&caller);
	callers_free(callers);
}

static void test_more_processes_than_fit_are_no_harm(void)
{
	struct callers *callers = new_callers();

	for (pid_t pid = 1; pid < 20000; pid++) {
		struct caller caller;

		callers_find(callers, pid, later(), &caller);
		caller_done(&caller);
	}
	check_call(callers, getpid(), later(), "");
	callers_free(callers);
}

/* ---- Calls ------------------------------------------------------------------------ */

static void test_descendants_belong_to_the_call(void)
{
	struct callers *callers = new_callers();
	pid_t pids[3];

	start_tree(3, pids);
	CHECK_RC(0, begin_call(callers, "one", "bash", pids[0]));
	check_call(callers, pids[0], later(), "one");
	check_call(callers, pids[2], later(), "one");
	check_call(callers, pids[1], later(), "one");
	check_call(callers, getpid(), later(), "");
	for (int i = 2; i >= 0; i--)
		kill(pids[i], SIGKILL);
	waitpid(pids[0], NULL, 0);
	callers_free(callers);
}

static void test_a_process_known_before_the_call_belongs_to_it(void)
{
	struct callers *callers = new_callers();
	pid_t pid;

	start_tree(1, &pid);
	check_call(callers, pid, later(), "");
	CHECK_RC(0, begin_call(callers, "one", "read", getpid()));
	check_call(callers, pid, later(), "one");
	check_call(callers, getpid(), later(), "one");
	stop(pid);
	callers_free(callers);
}

static void test_an_orphan_keeps_its_call(void)
{
	struct callers *callers = new_callers();
	pid_t pids[2];

	start_tree(2, pids);
	CHECK_RC(0, begin_call(callers, "one", "bash", pids[0]));
	check_call(callers, pids[1], later(), "one");
	stop(pids[0]);
	end_call(callers, "one");
	check_call(callers, pids[1], later(), "one");
	kill(pids[1], SIGKILL);
	callers_free(callers);
}

/* The child leads a session, then ends; the grandchild was never seen before. */
static void test_an_orphan_is_found_by_its_session(void)
{
	struct callers *callers = new_callers();
	int ends[2];
	pid_t leader, orphan = 0;

	CHECK_RC(0, pipe(ends));
	leader = fork();
	if (leader == 0) {
		setsid();
		if (fork() == 0) {
			pid_t middle = getpid(), pid = fork();

			if (pid > 0)
				_exit(write(ends[1], &pid, sizeof(pid)) < 0);
			while (getppid() == middle)
				usleep(1000);
		}
		for (;;)
			pause();
	}
	CHECK_RC(sizeof(orphan), read(ends[0], &orphan, sizeof(orphan)));
	CHECK_RC(0, begin_call(callers, "one", "bash", leader));
	usleep(50000);
	check_call(callers, orphan, later(), "one");
	kill(orphan, SIGKILL);
	stop(leader);
	close(ends[0]);
	close(ends[1]);
	callers_free(callers);
}

static void test_ancestors_on_the_way_belong_to_the_call(void)
{
	struct callers *callers = new_callers();
	pid_t pids[3];

	start_tree(3, pids);
	CHECK_RC(0, begin_call(callers, "one", "bash", pids[0]));
	check_call(callers, pids[2], later(), "one");
	stop(pids[0]);
	end_call(callers, "one");
	check_call(callers, pids[1], later(), "one");
	kill(pids[2], SIGKILL);
	kill(pids[1], SIGKILL);
	callers_free(callers);
}

static void test_the_end_of_a_call_frees_its_process(void)
{
	struct callers *callers = new_callers();

	CHECK_RC(0, begin_call(callers, "one", "read", getpid()));
	check_call(callers, getpid(), later(), "one");
	end_call(callers, "one");
	check_call(callers, getpid(), later(), "");
	CHECK_RC(0, begin_call(callers, "two", "read", getpid()));
	check_call(callers, getpid(), later(), "two");
	callers_free(callers);
}

static void test_a_call_of_one_thread_is_not_of_the_others(void)
{
	struct callers *callers = new_callers();
	pid_t tid;
	pthread_t thread = start_thread(&tid);

	CHECK_RC(0, begin_call(callers, "one", "read", tid));
	check_call(callers, tid, later(), "one");
	check_call(callers, getpid(), later(), "");
	end_call(callers, "one");
	check_call(callers, tid, later(), "");
	stop_thread(thread);
	callers_free(callers);
}

static void test_the_innermost_call_counts(void)
{
	struct callers *callers = new_callers();
	pid_t pids[2];

	start_tree(2, pids);
	CHECK_RC(0, begin_call(callers, "outer", "bash", pids[0]));
	check_call(callers, pids[1], later(), "outer");
	CHECK_RC(0, begin_call(callers, "inner", "read", pids[1]));
	check_call(callers, pids[1], later(), "inner");
	end_call(callers, "inner");
	check_call(callers, pids[1], later(), "outer");
	kill(pids[1], SIGKILL);
	stop(pids[0]);
	callers_free(callers);
}

static void test_a_call_that_is_named_is_not_searched_for(void)
{
	struct callers *callers = new_callers();
	struct caller caller;
	pid_t pids[2];

	start_tree(2, pids);
	CHECK_RC(0, begin_call(callers, "outer", "bash", pids[0]));
	CHECK_RC(0, begin_call(callers, "other", "bash", getpid()));
	callers_find_by_id(callers, pids[1], "other", &caller);
	CHECK_RC(pids[1], caller.pid);
	CHECK_STRING("test_callers", caller.name);
	CHECK_STRING("other", caller.call ? caller.call->id : "");
	caller_done(&caller);
	callers_find_by_id(callers, pids[1], "none", &caller);
	CHECK(caller.call == NULL);
	kill(pids[1], SIGKILL);
	stop(pids[0]);
	callers_free(callers);
}

static void test_what_is_no_call_is_refused(void)
{
	struct callers *callers = new_callers();
	struct tool_call *call = NULL;
	char id[LOG_CALL_MAX_BYTES + 2];

	memset(id, 'x', sizeof(id));
	id[sizeof(id) - 1] = '\0';
	CHECK_RC(-EINVAL, begin_call(callers, id, "read", getpid()));
	CHECK_RC(-EINVAL, begin_call(callers, "", "read", getpid()));
	CHECK_RC(-EINVAL, begin_call(callers, "one", "read", 0));
	CHECK_RC(-EINVAL, begin_call(callers, "one", id, getpid()));
	id[LOG_CALL_MAX_BYTES] = '\0';
	CHECK_RC(0, begin_call(callers, id, "read", getpid()));
	CHECK_RC(-EEXIST, begin_call(callers, id, "read", getpid()));
	CHECK_RC(-ENOENT, callers_call_join(callers, "two", getpid(), 0));
	CHECK_RC(-EINVAL, callers_call_join(callers, id, 0, 0));
	CHECK_RC(-ENOENT, callers_call_end(callers, "two", 0, &call));
	CHECK(callers_call_by_id(callers, "two") == NULL);
	callers_free(callers);
}

static void test_calls_are_bounded(void)
{
	struct callers *callers = new_callers();
	char id[16];

	for (int i = 0; i < CALLS_MAX; i++) {
		snprintf(id, sizeof(id), "%d", i);
		if (begin_call(callers, id, "read", getpid()) < 0)
			CHECK(0);
	}
	CHECK_RC(-ENOSPC, begin_call(callers, "more", "read", getpid()));
	end_call(callers, "17");
	CHECK_RC(0, begin_call(callers, "more", "read", getpid()));
	callers_free(callers);
}

/* An id that is used anew must not inherit.  The kernel hands out ids in turn, so this asks
 * for the same one. */
static void test_a_recycled_id_is_another_process(void)
{
	struct callers *callers = new_callers();
	cleanup_file FILE *last = NULL;
	pid_t pids[2], again = -1;

	start_tree(2, pids);
	CHECK_RC(0, begin_call(callers, "one", "bash", pids[0]));
	check_call(callers, pids[1], later(), "one");
	kill(pids[1], SIGKILL);
	stop(pids[0]);
	end_call(callers, "one");
	wait_until_gone(pids[1]);
	CHECK_RC(0, begin_call(callers, "two", "bash", getppid()));
	usleep(20000); /* start times have ticks of 10 ms */
	last = fopen("/proc/sys/kernel/ns_last_pid", "we");
	if (last && fprintf(last, "%d", pids[1] - 1) > 0 && fflush(last) == 0)
		start_tree(1, &again);
	if (again == pids[1])
		check_call(callers, again, later(), "two");
	if (again > 0)
		stop(again);
	callers_free(callers);
}

TEST_MAIN("callers", TEST(test_a_process_has_its_name), TEST(test_a_thread_belongs_to_its_process),
	TEST(test_a_new_name_is_noticed), TEST(test_a_process_that_ended_keeps_its_name),
	TEST(test_a_process_never_seen_alive_has_no_name),
	TEST(test_more_processes_than_fit_are_no_harm), TEST(test_descendants_belong_to_the_call),
	TEST(test_a_process_known_before_the_call_belongs_to_it),
	TEST(test_an_orphan_keeps_its_call), TEST(test_an_orphan_is_found_by_its_session),
	TEST(test_ancestors_on_the_way_belong_to_the_call),
	TEST(test_the_end_of_a_call_frees_its_process),
	TEST(test_a_call_of_one_thread_is_not_of_the_others), TEST(test_the_innermost_call_counts),
	TEST(test_a_call_that_is_named_is_not_searched_for), TEST(test_what_is_no_call_is_refused),
	TEST(test_calls_are_bounded), TEST(test_a_recycled_id_is_another_process))
