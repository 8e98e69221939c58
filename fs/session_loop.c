#include "fs/session.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/log.h"

/*
 * Every thread reads the device itself and serves what it read.  More of them than there is work
 * for only pass it around: each request wakes another one.  Where a far end has what is asked
 * for, most requests wait for nothing, and one thread finds the next there when it is done with
 * the last.  Before it waits for the far end another takes its place, one that rests if there is
 * one.  Everywhere, one more is started when some have been at one request for long while
 * nobody is idle: a thread of its own looks after that.
 *
 * Somebody must read the device whatever happens, as it also says which requests were
 * interrupted: threads that a far end keeps waiting do not count, up to a bound, and end once
 * it answers again.
 */
enum {
	THREADS_RESTING_MAX = 8,
	THREADS_MAX = 64,           /* besides those that wait for a lock or are stalled */
	THREADS_LENT_MAX = 1024,    /* wait for a lock */
	THREADS_STALLED_MAX = 1024, /* at one request for so long that they do not count */
	STACK_BYTES = 256 << 10,
	WAKE_INTERVAL_MS = 10,
	LOOK_INTERVAL_NS = 2000000,
	LONG_NS = 4000000,
	STALLED_NS = 100000000,
};

struct session_thread {
	struct session_thread *next, **link; /* threads_lock */
	struct session *session;
	pthread_t thread;
	atomic_uint_fast64_t busy_since; /* CLOCK_MONOTONIC_COARSE, ns; 0: idle, or lent */
};

static _Thread_local struct session_thread *this_thread;

static int start_thread(struct session *s);

static uint64_t coarse_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

static bool may_start(struct session *s, unsigned stalled)
{
	unsigned total = s->threads_total, lent = s->threads_lent;

	if (stalled > THREADS_STALLED_MAX)
		stalled = THREADS_STALLED_MAX;
	return total - lent < THREADS_MAX + stalled && lent < THREADS_LENT_MAX && !s->ending;
}

static void want_look(struct session *s)
{
	if (!atomic_exchange(&s->is_saturated, true))
		sem_post(&s->look);
}

/* The last idle thread has got work; or, if it `waits`, a wait for the far end. */
static void none_is_idle(struct session *s, bool waits)
{
	if (may_start(s, 0) && (waits || s->threads_total - s->threads_lent < s->threads_usual))
		start_thread(s);
	else
		want_look(s);
}

void session_thread_waits(struct session *s)
{
	if (s->is_remote && s->threads_idle == 0)
		none_is_idle(s, true);
}

static bool is_over(struct session *s)
{
	return s->ending || fuse_session_exited(s->fuse);
}

/* True: others read, enough of them.  False: it is over. */
static bool serve(struct session_thread *thread, struct fuse_buf *buffer)
{
	struct session *s = thread->session;
	bool enough = false; /* this one is not counted as idle */

	while (!enough && !is_over(s)) {
		int got = fuse_session_receive_buf(s->fuse, buffer);

		if (got == -ENOMEM) /* for its buffer: the others serve on meanwhile */
			usleep(LOOK_INTERVAL_NS / 1000);
		if (got == -EINTR || got == -EAGAIN || got == -ENOMEM)
			continue;
		if (got <= 0) {
			fuse_session_exit(s->fuse);
			break;
		}
		thread->busy_since = coarse_ns();
		if (--s->threads_idle == 0)
			none_is_idle(s, false);
		session_raw_begin(s, buffer);
		fuse_session_process_buf(s->fuse, buffer);
		thread->busy_since = 0;
		enough = s->threads_idle >= s->threads_usual;
		s->threads_idle += !enough;
	}
	s->threads_idle -= !enough;
	s->threads_total--;
	return enough;
}

/* True: it is needed again, and counted. */
static bool rest(struct session *s)
{
	bool needed;

	pthread_mutex_lock(&s->threads_lock);
	if (s->threads_resting < THREADS_RESTING_MAX) {
		s->threads_resting++;
		while (!s->threads_called && !is_over(s))
			pthread_cond_wait(&s->threads_needed, &s->threads_lock);
		s->threads_resting--;
	}
	needed = s->threads_called > 0;
	s->threads_called -= needed;
	pthread_mutex_unlock(&s->threads_lock);
	return needed;
}

/* How many threads have been at one request for so long. */
static unsigned threads_busy_for(struct session *s, uint64_t ns)
{
	uint64_t now = coarse_ns();
	unsigned count = 0;

	pthread_mutex_lock(&s->threads_lock);
	for (struct session_thread *t = s->threads; t; t = t->next) {
		uint64_t since = t->busy_since; /* perhaps later than `now` */

		count += since && since + ns <= now;
	}
	pthread_mutex_unlock(&s->threads_lock);
	return count;
}

static void start_one_more(struct session *s)
{
	if (threads_busy_for(s, LONG_NS) && may_start(s, threads_busy_for(s, STALLED_NS)))
		start_thread(s);
}

static void *watch_threads(void *data)
{
	static const struct timespec interval = {.tv_nsec = LOOK_INTERVAL_NS};
	struct session *s = data;

	while (!s->ending) {
		while (sem_wait(&s->look) < 0)
			;
		do {
			nanosleep(&interval, NULL);
			if (s->threads_idle == 0)
				start_one_more(s);
		} while (s->threads_idle == 0 && !s->ending);
		s->is_saturated = false;
		if (s->threads_idle == 0) /* since the last look: nobody has told */
			want_look(s);
	}
	return NULL;
}

static void *thread_main(void *data)
{
	struct session_thread *thread = data;
	struct session *s = thread->session;
	struct fuse_buf buffer = {0};

	this_thread = thread;
	while (serve(thread, &buffer) && rest(s))
		;
	free(buffer.mem);
	session_thread_buffer_free();
	pthread_mutex_lock(&s->threads_lock);
	*thread->link = thread->next;
	if (thread->next)
		thread->next->link = thread->link;
	pthread_cond_broadcast(&s->threads_changed);
	pthread_cond_broadcast(&s->threads_needed);
	pthread_mutex_unlock(&s->threads_lock);
	free(thread);
	return NULL;
}

/* Under threads_lock. */
static bool call_resting(struct session *s)
{
	if (s->threads_called >= s->threads_resting)
		return false;
	s->threads_called++;
	s->threads_idle++;
	s->threads_total++;
	pthread_cond_signal(&s->threads_needed);
	return true;
}

static int start_thread(struct session *s)
{
	struct session_thread *thread;
	pthread_attr_t attributes;
	bool called;
	int error;

	pthread_mutex_lock(&s->threads_lock);
	called = call_resting(s);
	pthread_mutex_unlock(&s->threads_lock);
	if (called)
		return 0;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return -ENOMEM;
	thread->session = s;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_mutex_lock(&s->threads_lock);
	s->threads_idle++; /* it may be at work before pthread_create() returns */
	s->threads_total++;
	error = pthread_create(&thread->thread, &attributes, thread_main, thread);
	if (error) {
		s->threads_idle--;
		s->threads_total--;
		free(thread);
	} else {
		thread->next = s->threads;
		thread->link = &s->threads;
		if (thread->next)
			thread->next->link = &thread->next;
		s->threads = thread;
	}
	pthread_mutex_unlock(&s->threads_lock);
	pthread_attr_destroy(&attributes);
	return -error;
}

void session_thread_lend(struct session *s)
{
	this_thread->busy_since = 0;
	s->threads_lent++;
	if (s->threads_idle == 0)
		none_is_idle(s, false);
}

void session_thread_return(struct session *s)
{
	s->threads_lent--;
	this_thread->busy_since = coarse_ns();
}

static void wake_up(int signal)
{
	(void)signal;
}

/* A thread that is about to read when the signal comes gets another one later. */
static void wait_for_threads(struct session *s)
{
	while (s->threads) {
		if (s->ending)
			for (struct session_thread *t = s->threads; t; t = t->next)
				pthread_kill(t->thread, SIGUSR1);
		if (s->ending)
			clock_cond_wait_ms(&s->threads_changed, &s->threads_lock, WAKE_INTERVAL_MS);
		else
			pthread_cond_wait(&s->threads_changed, &s->threads_lock);
	}
}

static unsigned usual_threads(const struct session *s)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (s->is_remote)
		return processors < 4 ? 1 : processors > 15 ? 8 : (unsigned)processors / 2;
	return processors < 2 ? 2 : processors > 15 ? 16 : (unsigned)processors + 1;
}

int session_loop_start(struct session *s)
{
	struct sigaction action = {.sa_handler = wake_up};
	int r;

	sigemptyset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	s->threads_usual = usual_threads(s);
	sem_init(&s->look, 0, 0);
	r = -pthread_create(&s->watcher, NULL, watch_threads, s);
	if (r < 0)
		return r;
	r = start_thread(s);
	if (r < 0) {
		session_loop_end(s);
		pthread_join(s->watcher, NULL);
	}
	return r;
}

void session_loop_wait(struct session *s)
{
	pthread_mutex_lock(&s->threads_lock);
	wait_for_threads(s);
	pthread_mutex_unlock(&s->threads_lock);
	s->ending = true;
	sem_post(&s->look);
	pthread_join(s->watcher, NULL);
}

void session_loop_end(struct session *s)
{
	s->ending = true;
	fuse_session_exit(s->fuse);
	sem_post(&s->look);
	pthread_mutex_lock(&s->threads_lock);
	pthread_cond_broadcast(&s->threads_changed);
	pthread_cond_broadcast(&s->threads_needed);
	pthread_mutex_unlock(&s->threads_lock);
}
