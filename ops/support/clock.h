/*
 * ops/support/clock.h - the clock that never goes back.
 */
#pragma once

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC in ns: comparable between the processes of one machine (time(7)). */
static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}
