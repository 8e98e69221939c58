#include "tests/contract/contract.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/clock.h"

static struct file_lock range(enum lock_type type, uint64_t owner, uint64_t offset, uint64_t length)
{
	return (struct file_lock){.kind = LOCK_KIND_POSIX,
		.type = type,
		.owner = owner,
		.offset = offset,
		.length = length,
		.pid = 100 + (pid_t)owner};
}

static struct file_lock whole(enum lock_type type)
{
	return (struct file_lock){.kind = LOCK_KIND_FLOCK, .type = type};
}

static int lock(struct fixture *f, struct open_file *file, struct file_lock l)
{
	return workspace_lock(&f->ctx, file, &l, false);
}

/* Two handles of one new file; false when the place has no locks. */
static bool open_two(struct fixture *f, struct open_file **a, struct open_file **b)
{
	*a = create_or_fail(f, "f", O_RDWR);
	*b = open_or_fail(f, "f", O_RDWR);
	if (lock(f, *a, whole(LOCK_NONE)) != -EOPNOTSUPP)
		return true;
	workspace_close(&f->ctx, *a);
	workspace_close(&f->ctx, *b);
	return false;
}

static void close_two(struct fixture *f, struct open_file *a, struct open_file *b)
{
	CHECK_RC(0, workspace_close(&f->ctx, a));
	CHECK_RC(0, workspace_close(&f->ctx, b));
}

PROMISE(flock_belongs_to_the_handle)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(-EAGAIN, lock(f, b, whole(LOCK_SHARED)));
	CHECK_RC(0, lock(f, a, whole(LOCK_SHARED)));
	CHECK_RC(0, lock(f, b, whole(LOCK_SHARED)));
	CHECK_RC(-EAGAIN, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(0, lock(f, b, whole(LOCK_NONE)));
	close_two(f, a, b);
}

/* Where the place says so at all. */
PROMISE(a_lock_tells_what_the_file_is_like)
{
	struct open_file *a = NULL, *b = NULL;
	struct facts facts;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(4, workspace_write(&f->ctx, b, "text", 4, 0));
	CHECK_RC(0, workspace_flush(&f->ctx, b));
	f->ctx.facts = &facts;
	CHECK_RC(0, lock(f, a, whole(LOCK_SHARED)));
	CHECK(!facts.object.mode || facts.object.size_bytes == 4);
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 10)));
	CHECK(!facts.object.mode || facts.object.size_bytes == 4);
	CHECK(!facts.object.mode || f->ctx.served.position);
	f->ctx.facts = NULL;
	close_two(f, a, b);
}

static void expect_start(struct fixture *f, struct open_file *file, const char *want)
{
	char got[16] = "";

	CHECK_RC(4, workspace_read(&f->ctx, file, got, 4, 0));
	CHECK_STRING(want, got);
}

/* However often the start of a file was read behind such a lock: it may come with the next one. */
PROMISE(what_is_read_behind_a_lock_is_what_was_written)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	for (int i = 0; i < 5; i++) {
		CHECK_RC(4, workspace_write(&f->ctx, b, "theirs", 4, 0));
		CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 7, 1)));
		expect_start(f, a, "thei");
		CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 7, 1)));
		CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 7, 1)));
		CHECK_RC(1, workspace_write(&f->ctx, a, "o", 1, 1));
		expect_start(f, a, "toei");
		CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 7, 1)));
		CHECK_RC(2, workspace_write(&f->ctx, b, "ab", 2, 0));
		expect_start(f, a, "abei");
		CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 7, 1)));
		CHECK_RC(3, workspace_write(&f->ctx, a, "end", 3, 2));
		expect_start(f, a, "aben");
		CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 7, 1)));
	}
	close_two(f, a, b);
}

PROMISE(closing_a_handle_frees_its_flock)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(0, workspace_close(&f->ctx, a));
	CHECK_RC(0, lock(f, b, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(0, workspace_close(&f->ctx, b));
}

PROMISE(posix_locks_belong_to_the_owner)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 10)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 1, 5, 10)));
	CHECK_RC(-EAGAIN, lock(f, a, range(LOCK_SHARED, 2, 9, 1)));
	CHECK_RC(-EAGAIN, lock(f, b, range(LOCK_EXCLUSIVE, 2, 14, 0)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 2, 15, 0)));
	CHECK_RC(-EAGAIN, lock(f, a, range(LOCK_EXCLUSIVE, 1, 1 << 30, 1)));
	close_two(f, a, b);
}

PROMISE(shared_ranges_are_shared)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_SHARED, 1, 0, 0)));
	CHECK_RC(0, lock(f, a, range(LOCK_SHARED, 2, 0, 0)));
	CHECK_RC(-EAGAIN, lock(f, b, range(LOCK_EXCLUSIVE, 1, 3, 1)));
	CHECK_RC(0, workspace_lock_release_owner(&f->ctx, b, 2));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 1, 3, 1)));
	close_two(f, a, b);
}

PROMISE(unlocking_a_part_keeps_the_rest)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 30)));
	CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 10, 10)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 2, 10, 10)));
	CHECK_RC(-EAGAIN, lock(f, b, range(LOCK_EXCLUSIVE, 2, 9, 1)));
	CHECK_RC(-EAGAIN, lock(f, b, range(LOCK_EXCLUSIVE, 2, 20, 1)));
	CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 0, 0)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 2, 0, 0)));
	close_two(f, a, b);
}

PROMISE(lock_test_says_what_stands_in_the_way)
{
	struct open_file *a = NULL, *b = NULL;
	struct file_lock l;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_SHARED, 1, 10, 5)));
	l = range(LOCK_EXCLUSIVE, 2, 0, 0);
	CHECK_RC(0, workspace_lock_test(&f->ctx, b, &l));
	CHECK_RC(LOCK_SHARED, l.type);
	CHECK_RC(10, l.offset);
	CHECK_RC(5, l.length);
	CHECK(l.pid == 101 || l.pid == 0 || l.pid == -1);
	l = range(LOCK_SHARED, 2, 0, 0);
	CHECK_RC(0, workspace_lock_test(&f->ctx, b, &l));
	CHECK_RC(LOCK_NONE, l.type);
	l = range(LOCK_EXCLUSIVE, 1, 0, 0);
	CHECK_RC(0, workspace_lock_test(&f->ctx, b, &l));
	CHECK_RC(LOCK_NONE, l.type);
	close_two(f, a, b);
}

PROMISE(releasing_an_owner_drops_all_its_ranges)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 1)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 1, 100, 1)));
	CHECK_RC(0, workspace_lock_release_owner(&f->ctx, a, 1));
	CHECK_RC(0, workspace_lock_release_owner(&f->ctx, a, 77));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 2, 0, 0)));
	close_two(f, a, b);
}

PROMISE(closing_a_handle_frees_what_was_locked_through_it)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 10)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 2, 10, 10)));
	CHECK_RC(0, workspace_close(&f->ctx, a));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 3, 0, 10)));
	CHECK_RC(-EAGAIN, lock(f, b, range(LOCK_EXCLUSIVE, 3, 10, 1)));
	CHECK_RC(0, workspace_close(&f->ctx, b));
}

PROMISE(posix_locks_do_not_mind_flocks)
{
	struct open_file *a = NULL, *b = NULL;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(0, lock(f, b, range(LOCK_EXCLUSIVE, 1, 0, 0)));
	close_two(f, a, b);
}

/* ---- Waiting --------------------------------------------------------------------------- */

struct waiter {
	struct fixture *f;
	struct open_file *file;
	struct file_lock lock;
	struct op_context ctx;
	atomic_bool give_up, done;
	int result;
	pthread_t thread;
};

static bool gave_up(struct op_context *ctx)
{
	return ((struct waiter *)ctx->interrupted_data)->give_up;
}

static void *wait_for_lock(void *user)
{
	struct waiter *me = user;

	me->result = workspace_lock(&me->ctx, me->file, &me->lock, true);
	me->done = true;
	return NULL;
}

static void start_waiting(
	struct fixture *f, struct open_file *file, struct file_lock l, struct waiter *waiter)
{
	*waiter = (struct waiter){.f = f, .file = file, .lock = l, .ctx = f->ctx};
	waiter->ctx.interrupted = gave_up;
	waiter->ctx.interrupted_data = waiter;
	pthread_create(&waiter->thread, NULL, wait_for_lock, waiter);
}

PROMISE(a_waiting_lock_comes_when_the_other_goes)
{
	struct open_file *a = NULL, *b = NULL;
	struct waiter waiter;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 0)));
	start_waiting(f, b, range(LOCK_EXCLUSIVE, 2, 0, 0), &waiter);
	usleep(50000);
	CHECK(!waiter.done);
	CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 0, 0)));
	pthread_join(waiter.thread, NULL);
	CHECK_RC(0, waiter.result);
	CHECK_RC(-EAGAIN, lock(f, a, range(LOCK_SHARED, 1, 0, 0)));
	close_two(f, a, b);
}

static void *lock_and_unlock(void *user)
{
	struct waiter *me = user;

	me->result = workspace_lock(&me->ctx, me->file, &me->lock, true);
	me->lock.type = LOCK_NONE;
	if (me->result == 0)
		me->result = workspace_lock(&me->ctx, me->file, &me->lock, false);
	return NULL;
}

/* More than a place has threads at hand. */
PROMISE(a_lock_comes_to_all_who_wait)
{
	enum { WAITERS = 12 };
	struct open_file *a = NULL, *b = NULL;
	struct waiter waiters[WAITERS];

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 0)));
	for (int i = 0; i < WAITERS; i++) {
		waiters[i] = (struct waiter){.f = f,
			.file = b,
			.lock = range(LOCK_EXCLUSIVE, (uint64_t)i + 2, 0, 0),
			.ctx = f->ctx};
		pthread_create(&waiters[i].thread, NULL, lock_and_unlock, &waiters[i]);
	}
	usleep(20000);
	CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 0, 0)));
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(waiters[i].thread, NULL);
		CHECK_RC(0, waiters[i].result);
	}
	CHECK_RC(0, lock(f, a, range(LOCK_EXCLUSIVE, 1, 0, 0)));
	close_two(f, a, b);
}

PROMISE(a_waiting_lock_can_be_given_up)
{
	struct open_file *a = NULL, *b = NULL;
	struct waiter waiter;

	if (!open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	start_waiting(f, b, whole(LOCK_EXCLUSIVE), &waiter);
	usleep(30000);
	waiter.give_up = true;
	pthread_join(waiter.thread, NULL);
	CHECK_RC(-EINTR, waiter.result);
	close_two(f, a, b);
}

/* ---- Against processes at the workspace --------------------------------------------------- */

/* In a process of its own, as fcntl locks of one process do not mind each other.  0: it got
 * the lock, 1: somebody else has it. */
static int lock_natively(struct fixture *f, bool use_flock)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 1};
	char path[256];
	int status = 0;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/f", f->directory);
	pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR);
		int r = use_flock ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &l);

		_exit(fd < 0 ? 2 : r < 0);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

/* What was released here is free there a moment later. */
static int lock_natively_soon(struct fixture *f, bool use_flock)
{
	int r, tries = 0;

	while ((r = lock_natively(f, use_flock)) == 1 && ++tries < 1000)
		usleep(1000);
	return r;
}

PROMISE(locks_hold_against_processes_at_the_workspace)
{
	struct open_file *a = NULL, *b = NULL;

	if (!f->directory || !open_two(f, &a, &b))
		return;
	CHECK_RC(0, lock_natively(f, false));
	CHECK_RC(0, lock(f, a, range(LOCK_SHARED, 1, 0, 10)));
	CHECK_RC(1, lock_natively(f, false));
	CHECK_RC(0, lock(f, a, range(LOCK_NONE, 1, 0, 0)));
	CHECK_RC(0, lock_natively_soon(f, false));
	CHECK_RC(0, lock(f, a, whole(LOCK_EXCLUSIVE)));
	CHECK_RC(1, lock_natively(f, true));
	CHECK_RC(0, lock_natively(f, false));
	close_two(f, a, b);
	CHECK_RC(0, lock_natively(f, true));
}

/* Locks the whole file, in a process of its own, until it is killed. */
static pid_t hold_natively(struct fixture *f, bool use_flock)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[256], held;
	int ready[2];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/f", f->directory);
	CHECK_RC(0, pipe(ready));
	pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR);
		int r = use_flock ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLKW, &l);

		if (r < 0 || write(ready[1], "h", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	CHECK_RC(1, read(ready[0], &held, 1));
	close(ready[0]);
	return pid;
}

static int compare_ms(const void *a, const void *b)
{
	return (*(const int64_t *)a > *(const int64_t *)b) -
	       (*(const int64_t *)a < *(const int64_t *)b);
}

/* Nobody polls: the median says so, as single runs may be late on a busy machine. */
PROMISE(a_lock_comes_at_once_when_a_process_there_releases_it)
{
	enum { ROUNDS = 7, LATE_MS = 10 };
	struct open_file *a = NULL, *b = NULL;
	int64_t late_ms[ROUNDS];

	if (!f->directory || !open_two(f, &a, &b))
		return;
	for (int i = 0; i < ROUNDS; i++) {
		bool use_flock = i % 2;
		struct file_lock wanted =
			use_flock ? whole(LOCK_EXCLUSIVE) : range(LOCK_EXCLUSIVE, 1, 3, 1);
		pid_t holder = hold_natively(f, use_flock);
		struct waiter waiter;

		start_waiting(f, a, wanted, &waiter);
		usleep(70000); /* a poll would be at its slowest by then */
		CHECK(!waiter.done);
		kill(holder, SIGKILL);
		waitpid(holder, NULL, 0);
		late_ms[i] = clock_now_ms();
		pthread_join(waiter.thread, NULL);
		late_ms[i] = clock_now_ms() - late_ms[i];
		CHECK_RC(0, waiter.result);
		wanted.type = LOCK_NONE;
		CHECK_RC(0, lock(f, a, wanted));
		lock_natively_soon(f, use_flock);
	}
	qsort(late_ms, ROUNDS, sizeof(late_ms[0]), compare_ms);
	CHECK(late_ms[ROUNDS / 2] < LATE_MS);
	close_two(f, a, b);
}

TEST_GROUP(locks_promises, TEST(flock_belongs_to_the_handle),
	TEST(a_lock_tells_what_the_file_is_like),
	TEST(what_is_read_behind_a_lock_is_what_was_written),
	TEST(closing_a_handle_frees_its_flock), TEST(posix_locks_belong_to_the_owner),
	TEST(shared_ranges_are_shared), TEST(unlocking_a_part_keeps_the_rest),
	TEST(lock_test_says_what_stands_in_the_way), TEST(releasing_an_owner_drops_all_its_ranges),
	TEST(closing_a_handle_frees_what_was_locked_through_it),
	TEST(posix_locks_do_not_mind_flocks), TEST(a_waiting_lock_comes_when_the_other_goes),
	TEST(a_lock_comes_to_all_who_wait), TEST(a_waiting_lock_can_be_given_up),
	TEST(a_lock_comes_at_once_when_a_process_there_releases_it),
	TEST(locks_hold_against_processes_at_the_workspace));
