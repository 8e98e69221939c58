/*
 * fs/control/changed_paths.h - the set of paths that changed while a command ran.
 *
 * Bounded: what does not fit is left out, and `truncated` says so.
 * Threads: one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/hash_table.h"

enum { CHANGED_PATHS_MAX = 8192, CHANGED_PATHS_MAX_BYTES = 512 << 10 };

struct changed_paths {
	char **names;            /* in the order of their changes, NULL-terminated; or NULL: none */
	size_t capacity;         /* of names */
	struct hash_table known; /* what `names` leads to */
	size_t bytes;            /* of the names, with their NULs */
	bool truncated;          /* something is missing */
};

/* Adds a copy, once.  No room or no memory: sets `truncated`. */
void changed_paths_add(struct changed_paths *paths, const char *path);
void changed_paths_done(struct changed_paths *paths);
