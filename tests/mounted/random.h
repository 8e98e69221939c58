/*
 * tests/mounted/random.h - random work that a seed repeats.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

static uint64_t random_state; /* the seed, at first */

static inline uint64_t random_number(void) /* splitmix64 */
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15U;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
	z = (z ^ z >> 27) * 0x94d049bb133111ebU;
	return z ^ z >> 31;
}

/* From 0 to limit - 1; 0 when the limit is 0. */
static inline size_t below(size_t limit)
{
	return limit ? random_number() % limit : 0;
}

struct step {
	void (*run)(void);
	unsigned weight; /* how often, among the others */
	const char *name;
};

static inline const struct step *any_step(const struct step *steps, size_t count)
{
	size_t total = 0, choice;

	for (size_t i = 0; i < count; i++)
		total += steps[i].weight;
	for (choice = below(total); choice >= steps->weight; steps++)
		choice -= steps->weight;
	return steps;
}
