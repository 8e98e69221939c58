/*
 * ops/support/clock.h - the clock that never goes back, and the one on the wall; compares times.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC: comparable between the processes of one machine (time(7)). */
static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

static inline int64_t clock_now_ms(void)
{
	return (int64_t)(clock_now_ns() / 1000000);
}

/* A moment of the same clock, for timed waits. */
static inline struct timespec clock_at_ns(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

static inline struct timespec clock_in_ms(int64_t ms)
{
	return clock_at_ns(clock_now_ns() + (uint64_t)ms * 1000000);
}

/* A condition whose timed waits use the monotonic clock, which cannot be set. */
static inline void clock_cond_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

/* Waits for such a condition, `ms` at most.  0 or ETIMEDOUT, as pthread_cond_timedwait(). */
static inline int clock_cond_wait_ms(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t ms)
{
	const struct timespec end = clock_in_ms(ms);

	return pthread_cond_timedwait(condition, lock, &end);
}

/* CLOCK_REALTIME: ns since 1970, for people. */
static inline uint64_t clock_wall_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

static inline bool clock_same(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static inline bool clock_is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}
