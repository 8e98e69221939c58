/* To be loaded with LD_PRELOAD: makes the monotonic clock, and waits on condition variables that
 * use it, run 200 times as fast. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

enum { TIMES = 200, NS_OF_S = 1000000000 };

typedef int (*read_clock)(clockid_t clock, struct timespec *ret_time);
typedef int (*wait_until)(
	pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

static read_clock real_clock;
static int64_t start_ns;

static int64_t ns_of(const struct timespec *time)
{
	return (int64_t)time->tv_sec * NS_OF_S + time->tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
	struct timespec now;

	real_clock = (read_clock)dlsym(RTLD_NEXT, "clock_gettime");
	real_clock(CLOCK_MONOTONIC, &now);
	start_ns = ns_of(&now);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	read_clock real = real_clock ? real_clock : (read_clock)dlsym(RTLD_NEXT, "clock_gettime");
	int r = real(clock, time);

	if (clock == CLOCK_MONOTONIC && r == 0 && start_ns) {
		int64_t ns = start_ns + (ns_of(time) - start_ns) * TIMES;

		*time = (struct timespec){ns / NS_OF_S, ns % NS_OF_S};
	}
	return r;
}

int pthread_cond_timedwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	wait_until real = (wait_until)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	int64_t ns = start_ns + (ns_of(until) - start_ns) / TIMES;

	return real(cond, mutex, &(struct timespec){ns / NS_OF_S, ns % NS_OF_S});
}
