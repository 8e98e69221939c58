#include "fs/edge/announce.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/heap.h"
#include "ops/support/log.h"
#include "ops/support/thread.h"

/* Every thread reads the device and serves what it read.  Idle threads cost time, as each request
 * wakes another one.  On a far workspace most requests are answered from the cache without waiting,
 * so one thread is enough; before it waits for the far end, another one continues (a resting one,
 * if there is any).  In any case one more is started when some threads have been busy with one
 * request for long and none is idle; a watcher thread checks that.  Some thread must always read
 * the device, as interrupts come by it, too: threads that wait for a silent far end do not count,
 * up to a bound, and end once it answers again. */
enum {
	THREADS_RESTING_MAX = 8,
	THREADS_MAX = 64,           /* besides those that wait for a lock or are stalled */
	THREADS_BLOCKED_MAX = 1024, /* wait for a lock */
	THREADS_STALLED_MAX = 1024, /* busy with one request for so long that they do not count */
	THREADS_OF_QUEUE = 4,
	EXTRA_REQUESTS = 64, /* without a wait for the far end, until the extra thread rests */
	QUEUES_MAX = 256,
	STACK_BYTES = 256 << 10,
	WAKE_INTERVAL_MS = 10,
	ABORT_AFTER_MS = 1000,
	LOOK_INTERVAL_NS = 2000000,
	LONG_NS = 4000000,
	STALLED_NS = 100000000,
};

static const uint64_t QUIET_NS = 2000000000;

static _Thread_local struct session_thread {
	LIST_ENTRY(session_thread) link; /* threads_lock; those that do not rest */
	struct thread_group *group;      /* NULL: of none, or it rests */
	struct session_ring *ring;       /* NULL: it reads the device */
	pthread_t thread;
	atomic_uint_fast64_t busy_since; /* CLOCK_MONOTONIC_COARSE, ns; 0: idle, or blocked */
	struct fuse_buf buffer;          /* for what it reads there */
} this_thread;

static int start_thread(struct thread_group *group);

static uint64_t coarse_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

static bool may_start(struct thread_group *group, unsigned stalled)
{
	unsigned total = group->total, blocked = group->blocked;

	if (stalled > THREADS_STALLED_MAX)
		stalled = THREADS_STALLED_MAX;
	return total - blocked < THREADS_MAX + stalled && blocked < THREADS_BLOCKED_MAX &&
	       !group->session->ending;
}

static void want_look(struct session *s)
{
	if (!atomic_exchange(&s->is_saturated, true))
		sem_post(&s->look);
}

/* The last idle thread has got work; or, if it `waits`, a wait for the far end. */
static void none_is_idle(struct thread_group *group, bool waits)
{
	if (may_start(group, 0) && (waits || group->total - group->blocked < group->usual))
		start_thread(group);
	else
		want_look(group->session);
}

void session_thread_waits(struct session *s)
{
	struct thread_group *group = this_thread.group ? this_thread.group : &s->device;

	assert(!session_ring_has_answer());
	if (!s->is_remote)
		return;
	group->extra_for = EXTRA_REQUESTS;
	if (group->idle == 0)
		none_is_idle(group, true);
}

/* Whether a thread that has served its request is not to read the next one.  The one that was
 * started for a wait stays while there are more: to wake a thread that rests, and to let another
 * one rest, for each of them would take longer than the far end's work. */
static bool has_enough(struct thread_group *group)
{
	unsigned extra_for = group->extra_for;

	if (extra_for)
		atomic_compare_exchange_strong(&group->extra_for, &extra_for, extra_for - 1);
	return group->idle >= group->usual + (extra_for > 0);
}

/* True: a request is there, or the next one has to be waited for. */
static bool receive(struct session_thread *thread, struct fuse_buf *buffer, bool *ret_got)
{
	struct session *s = thread->group->session;
	int r = thread->ring ? session_ring_receive(s, thread->ring, buffer)
			     : fuse_session_receive_buf(s->fuse, buffer);

	*ret_got = r > 0 || (r == 0 && thread->ring);
	if (r == -ENOMEM) /* for its buffer: the others serve on meanwhile */
		usleep(LOOK_INTERVAL_NS / 1000);
	return *ret_got || r == -EINTR || r == -EAGAIN || r == -ENOMEM;
}

/* Until others read, enough of them, or it is over. */
static void serve(struct session_thread *thread, struct fuse_buf *buffer)
{
	struct thread_group *group = thread->group;
	struct session *s = group->session;
	bool enough = false; /* this one is not counted as idle */

	while (!enough && !s->ending && !fuse_session_exited(s->fuse)) {
		bool got;

		if (!receive(thread, buffer, &got)) {
			fuse_session_exit(s->fuse);
			break;
		}
		if (!got)
			continue;
		thread->busy_since = coarse_ns();
		if (s->is_quiet && atomic_exchange(&s->is_quiet, false))
			sem_post(&s->look);
		if (--group->idle == 0)
			none_is_idle(group, false);
		if (!session_raw_refuses(s, buffer)) {
			struct announce_flight flight;

			announce_flight_begin(s, buffer, &flight);
			session_raw_begin(s, buffer);
			fuse_session_process_buf(s->fuse, buffer);
			announce_flight_end(&flight);
		}
		thread->busy_since = 0;
		if (thread->ring)
			session_ring_set_idle(thread->ring, group->idle >= group->usual);
		else
			enough = has_enough(group);
		group->idle += !enough;
	}
	group->idle -= !enough;
	group->total--;
}

/* The number of threads that have been busy with one request for that long. */
static unsigned threads_busy_for(struct thread_group *group, uint64_t ns)
{
	struct session *s = group->session;
	const struct session_thread *t;
	uint64_t now = coarse_ns();
	unsigned count = 0;

	pthread_mutex_lock(&s->threads_lock);
	LIST_FOREACH(t, &s->threads, link) {
		uint64_t since = t->busy_since; /* perhaps later than `now` */

		count += t->group == group && since && since + ns <= now;
	}
	pthread_mutex_unlock(&s->threads_lock);
	return count;
}

static void start_one_more(struct thread_group *group)
{
	if ((group->total - group->blocked < group->usual || threads_busy_for(group, LONG_NS)) &&
		may_start(group, threads_busy_for(group, STALLED_NS)))
		start_thread(group);
}

/* True: some group had no idle thread. */
static bool start_where_saturated(struct session *s)
{
	bool found = false;

	for (unsigned i = 0; i <= s->queue_count; i++) {
		struct thread_group *group = i ? &s->queues[i - 1] : &s->device;

		if (group->idle)
			continue;
		start_one_more(group);
		found = true;
	}
	return found;
}

/* Until there may be too few threads.  A burst of requests leaves holes in the heaps of many
 * threads, which malloc keeps: they are given back when nothing was asked for a while after it. */
static void wait_for_look(struct session *s)
{
	for (;;) {
		const struct timespec end = clock_at_ns(clock_read_ns(CLOCK_REALTIME) + QUIET_NS);
		uint64_t requests = s->mount->requests;

		if ((s->is_quiet ? sem_wait(&s->look) : sem_timedwait(&s->look, &end)) == 0)
			return;
		if (errno != ETIMEDOUT || s->mount->requests != requests)
			continue;
		inode_table_tidy(s->mount->inodes);
		heap_trim();
		s->is_quiet = true;
	}
}

static void *watch_threads(void *data)
{
	static const struct timespec interval = {.tv_nsec = LOOK_INTERVAL_NS};
	struct session *s = data;

	while (!s->ending) {
		wait_for_look(s);
		do
			nanosleep(&interval, NULL);
		while (start_where_saturated(s) && !s->ending);
		s->is_saturated = false;
		if (start_where_saturated(s)) /* since the last check, without a signal */
			want_look(s);
	}
	return NULL;
}

static void serve_queue(struct session_thread *thread)
{
	struct thread_group *group = thread->group;
	bool joins = !thread->ring;
	struct fuse_buf request;

	if (joins)
		thread->ring = session_ring_open((unsigned)group->queue);
	if (thread->ring) {
		session_ring_adopt(thread->ring);
		if (joins)
			session_ring_join(group->session, thread->ring);
		serve(thread, &request);
		session_ring_free(thread->ring);
	} else {
		group->idle--;
		group->total--;
	}
}

/* The signal that wakes it from reading the device. */
static void take_wakes(void)
{
	sigset_t wakes;

	sigemptyset(&wakes);
	sigaddset(&wakes, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &wakes, NULL);
}

/* Threads come and go with each wait for the far end: only the last one is waited for.  Under
 * threads_lock. */
static void thread_serves_no_more(struct session *s)
{
	if (--s->threads_serving == 0)
		pthread_cond_broadcast(&s->threads_changed);
}

static void run_thread(void *user)
{
	struct session_thread *thread = &this_thread;
	struct thread_group *group = user;
	struct session *s = group->session;

	if (!thread->thread)
		take_wakes();
	thread->thread = pthread_self();
	thread->group = group;
	pthread_mutex_lock(&s->threads_lock);
	thread->ring = group->first;
	group->first = NULL;
	LIST_INSERT_HEAD(&s->threads, thread, link);
	pthread_mutex_unlock(&s->threads_lock);
	if (group->queue < 0)
		serve(thread, &thread->buffer);
	else
		serve_queue(thread);
	pthread_mutex_lock(&s->threads_lock);
	LIST_REMOVE(thread, link);
	thread_serves_no_more(s);
	pthread_mutex_unlock(&s->threads_lock);
	thread->group = NULL;
}

static void thread_ends(void)
{
	free(this_thread.buffer.mem);
	session_thread_buffer_free();
}

/* A thread that rests, or another one. */
static int start_thread(struct thread_group *group)
{
	struct session *s = group->session;

	group->idle++; /* it may be at work before this returns */
	group->total++;
	s->threads_serving++;
	if (worker_pool_submit(
		    group->queue < 0 ? &s->readers : &s->ring_threads, run_thread, group))
		return 0;
	group->idle--;
	group->total--;
	pthread_mutex_lock(&s->threads_lock);
	thread_serves_no_more(s);
	pthread_mutex_unlock(&s->threads_lock);
	return -EAGAIN;
}

void session_thread_block(void)
{
	struct thread_group *group = this_thread.group;

	assert(!session_ring_has_answer());
	this_thread.busy_since = 0;
	group->blocked++;
	if (group->idle == 0)
		none_is_idle(group, false);
}

void session_thread_unblock(void)
{
	this_thread.group->blocked--;
	this_thread.busy_since = coarse_ns();
}

static void wake_up(int signal)
{
	(void)signal;
}

/* A thread that is about to read when the signal comes gets another one later. */
static void wait_for_threads(struct session *s)
{
	const struct session_thread *t;
	unsigned waited_ms = 0;

	pthread_mutex_lock(&s->threads_lock);
	while (s->threads_serving > 0) {
		if (!s->ending) {
			pthread_cond_wait(&s->threads_changed, &s->threads_lock);
			continue;
		}
		LIST_FOREACH(t, &s->threads, link)
			pthread_kill(t->thread, SIGUSR1);
		clock_cond_wait_ms(&s->threads_changed, &s->threads_lock, WAKE_INTERVAL_MS);
		waited_ms += WAKE_INTERVAL_MS;
		/* A thread that drops pages may wait in the kernel for a request that none reads.
		 */
		if (waited_ms % ABORT_AFTER_MS == 0)
			session_abort_connection(s);
	}
	pthread_mutex_unlock(&s->threads_lock);
}

static unsigned usual_threads(const struct session *s)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (s->is_remote)
		return processors < 4 ? 1 : processors > 15 ? 8 : (unsigned)processors / 2;
	return processors < 2 ? 2 : processors > 15 ? 16 : (unsigned)processors + 1;
}

static void close_queues(struct session *s, unsigned count)
{
	while (count)
		session_ring_free(s->queues[--count].first);
	free(s->queues);
	s->queues = NULL;
}

static const struct worker_limits reader_limits = {.name = "fuse",
	.stack_bytes = STACK_BYTES,
	.threads_max = UINT_MAX, /* may_start() says */
	.idle_max = THREADS_RESTING_MAX,
	.thread_ends = thread_ends};

/* One serves one queue, on its processor; its next task may be another queue's. */
static const struct worker_limits ring_limits = {.name = "fuse-queue",
	.stack_bytes = STACK_BYTES,
	.threads_max = UINT_MAX,
	.thread_ends = thread_ends};

int session_loop_start(struct session *s)
{
	struct sigaction action = {.sa_handler = wake_up};
	int r;

	sigemptyset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	s->device = (struct thread_group){.session = s, .usual = usual_threads(s), .queue = -1};
	sem_init(&s->look, 0, 0);
	worker_pool_init(&s->readers, &reader_limits);
	worker_pool_init(&s->ring_threads, &ring_limits);
	r = thread_start(&s->watcher, "fuse-watcher", 0, watch_threads, s);
	if (r < 0)
		return r;
	r = start_thread(&s->device);
	if (r < 0) {
		session_loop_end(s);
		session_loop_wait(s);
	}
	return r;
}

void session_loop_wait(struct session *s)
{
	wait_for_threads(s);
	s->ending = true;
	sem_post(&s->look);
	pthread_join(s->watcher, NULL);
	wait_for_threads(s); /* that the watcher has started meanwhile */
	worker_pool_done(&s->readers);
	worker_pool_done(&s->ring_threads);
	close_queues(s, s->queue_count);
}

void session_loop_end(struct session *s)
{
	s->ending = true;
	fuse_session_exit(s->fuse);
	sem_post(&s->look);
	pthread_mutex_lock(&s->threads_lock);
	pthread_cond_broadcast(&s->threads_changed);
	pthread_mutex_unlock(&s->threads_lock);
}

/* ---- Queues (session_uring.c) ------------------------------------------------------------- */

int session_queues_open(struct session *s)
{
	unsigned count = session_ring_queues();
	int r = -ENOMEM;

	if (count == 0 || count > QUEUES_MAX)
		return -EOPNOTSUPP;
	if (!session_ring_may_open_many())
		return -ENOMEM;
	s->queues = calloc(count, sizeof(*s->queues));
	for (unsigned i = 0; s->queues && i < count; i++) {
		s->queues[i].session = s;
		s->queues[i].queue = (int)i;
		s->queues[i].usual = THREADS_OF_QUEUE;
		s->queues[i].first = session_ring_open(i);
		if (!s->queues[i].first) {
			r = -errno;
			close_queues(s, i);
		}
	}
	s->queue_count = s->queues ? count : 0;
	s->mount->uses_io_uring = s->queues;
	return s->queues ? 0 : r;
}

void session_queues_start(struct session *s)
{
	for (unsigned i = 0; i < s->queue_count; i++)
		if (start_thread(&s->queues[i]) < 0) {
			log_error("no thread can be started to serve the mount, unmounting");
			fuse_session_exit(s->fuse);
		}
}
