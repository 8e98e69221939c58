/*
 * tests/unit/arena.h - memory that can be copied with the rest of a played world: between
 * arena_begin() and arena_end() malloc(), calloc(), strdup() and free() are its (the linker wraps
 * them); otherwise they are those of libc.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena {
	size_t used;
	void *free[64]; /* by size in units of 16 bytes */
	_Alignas(16) uint8_t bytes[40960];
};

extern struct arena arena;
extern bool arena_is_without_memory; /* allocations fail */

void arena_begin(void); /* empties it */
void arena_end(void);
void arena_copy(struct arena *to, const struct arena *from);
