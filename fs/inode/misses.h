/*
 * fs/inode/misses.h - names that were looked up lately and are missing.
 *
 * The kernel caches "no such file" only from the second miss of a name within MISSES_MS on:
 * a compiler that tries the same paths for each file is served from the kernel's cache, while
 * a program that looks once sees a name that another process makes right after.
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/inode/inode.h"

enum { MISSES_COUNT = 8192, MISSES_MS = 2000 };

/* Initialise with zeros. */
struct misses {
	atomic_uint_fast64_t
		last[MISSES_COUNT]; /* 32 bits of the hash, 32 bits of its time in ms */
};

/* Records a miss at `now_ms` (of a clock that may wrap); true when it is not the first one within
 * MISSES_MS.  Two names with the same hash count as one. */
bool misses_again(
	struct misses *misses, const struct inode *parent, const char *name, uint32_t now_ms);
