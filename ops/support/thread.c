#include "ops/support/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct start {
	const char *name;
	void *(*run)(void *);
	void *argument;
};

static void *begin(void *user)
{
	const struct start start = *(struct start *)user;

	free(user);
	pthread_setname_np(pthread_self(), start.name);
	return start.run(start.argument);
}

/* Not those of a fault, which are for the thread that made it. */
static sigset_t signals_of_others(void)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&set, faults[i]);
	return set;
}

int thread_start(pthread_t *ret_thread, const char *name, size_t stack_bytes, void *(*run)(void *),
	void *argument)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t blocked = signals_of_others(), before;
	pthread_attr_t attributes;
	int r;

	if (!start)
		return -ENOMEM;
	*start = (struct start){name, run, argument};
	pthread_attr_init(&attributes);
	if (stack_bytes)
		pthread_attr_setstacksize(&attributes, stack_bytes);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	r = -pthread_create(ret_thread, &attributes, begin, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (r < 0)
		free(start);
	return r;
}
