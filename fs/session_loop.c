#include "fs/session.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "ops/support/log.h"

/*
 * Every thread reads the device itself and serves what it read.  One more is started
 * whenever the last idle one gets work, up to a bound, so that requests which wait for a far
 * end do not hold others up; those that find enough idle ones end.
 */
enum {
	THREADS_MAX = 64,        /* besides those that wait for a lock */
	THREADS_LENT_MAX = 1024, /* those */
	THREADS_IDLE_MAX = 4,
	STACK_BYTES = 256 << 10,
	WAKE_INTERVAL_MS = 10,
};

struct session_thread {
	struct session_thread *next, **link; /* threads_lock */
	struct session *session;
	pthread_t thread;
};

static int start_thread(struct session *s);

static bool needs_another(struct session *s)
{
	unsigned total = s->threads_total, lent = s->threads_lent;

	return s->threads_idle == 0 && total - lent < THREADS_MAX && lent < THREADS_LENT_MAX &&
	       !s->ending;
}

static void serve(struct session *s)
{
	struct fuse_buf buffer = {0};
	bool enough = false; /* others wait already: this one ends, and is not counted */

	while (!enough && !s->ending && !fuse_session_exited(s->fuse)) {
		int got = fuse_session_receive_buf(s->fuse, &buffer);

		if (got == -EINTR || got == -EAGAIN)
			continue;
		if (got <= 0)
			break;
		s->threads_idle--;
		if (needs_another(s))
			start_thread(s);
		session_raw_begin(&buffer);
		fuse_session_process_buf(s->fuse, &buffer);
		enough = s->threads_idle >= THREADS_IDLE_MAX;
		s->threads_idle += !enough;
	}
	s->threads_idle -= !enough;
	free(buffer.mem);
	session_thread_buffer_free();
}

static void *thread_main(void *data)
{
	struct session_thread *thread = data;
	struct session *s = thread->session;

	serve(s);
	pthread_mutex_lock(&s->threads_lock);
	*thread->link = thread->next;
	if (thread->next)
		thread->next->link = thread->link;
	s->threads_total--;
	pthread_cond_broadcast(&s->threads_changed);
	pthread_mutex_unlock(&s->threads_lock);
	free(thread);
	return NULL;
}

static int start_thread(struct session *s)
{
	struct session_thread *thread = calloc(1, sizeof(*thread));
	pthread_attr_t attributes;
	int error;

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
	s->threads_lent++;
	if (needs_another(s))
		start_thread(s);
}

void session_thread_return(struct session *s)
{
	s->threads_lent--;
}

static void wake_up(int signal)
{
	(void)signal;
}

/* A thread that is about to read when the signal comes gets another one later. */
static void wait_for_threads(struct session *s)
{
	struct timespec until;

	while (s->threads) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += WAKE_INTERVAL_MS * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		if (s->ending)
			for (struct session_thread *t = s->threads; t; t = t->next)
				pthread_kill(t->thread, SIGUSR1);
		if (s->ending)
			pthread_cond_timedwait(&s->threads_changed, &s->threads_lock, &until);
		else
			pthread_cond_wait(&s->threads_changed, &s->threads_lock);
	}
}

int session_loop_start(struct session *s)
{
	struct sigaction action = {.sa_handler = wake_up};

	sigemptyset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	return start_thread(s);
}

void session_loop_wait(struct session *s)
{
	pthread_mutex_lock(&s->threads_lock);
	wait_for_threads(s);
	pthread_mutex_unlock(&s->threads_lock);
}

void session_loop_end(struct session *s)
{
	s->ending = true;
	fuse_session_exit(s->fuse);
	pthread_mutex_lock(&s->threads_lock);
	pthread_cond_broadcast(&s->threads_changed);
	pthread_mutex_unlock(&s->threads_lock);
}
