/*
 * ops/support/hash_seed.h - a number that others cannot know.
 *
 * Tables of names that others choose start their hashes from it: names that were made to collide
 * (in a tree that somebody prepared, by a lying far end) do not, and no lookup walks them all.
 * Threads: any.
 */
#pragma once

#include <stdint.h>

/* Random, and the same for the life of the process. */
uint64_t hash_seed(void);
