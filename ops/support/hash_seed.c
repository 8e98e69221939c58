#include "ops/support/hash_seed.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t seed;

static void make_seed(void)
{
	struct timespec now;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed))
		return;
	clock_gettime(CLOCK_MONOTONIC, &now); /* a machine that has only just begun to boot */
	seed = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15U ^ (uint64_t)(uintptr_t)&now;
}

uint64_t hash_seed(void)
{
	pthread_once(&once, make_seed);
	return seed;
}
