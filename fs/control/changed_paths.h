/*
 * fs/control/changed_paths.h - a bounded set of the paths that changed while a command ran.
 *
 * If a path does not fit, it is left out and `truncated` is set.
 * Threads: one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/hash_table.h"

enum { CHANGED_PATHS_MAX = 8192, CHANGED_PATHS_MAX_BYTES = 512 << 10 };

struct changed_paths {
	char **names;            /* in the order of their changes, NULL-terminated; NULL: none */
	size_t capacity;         /* of the array `names` */
	struct hash_table known; /* index of `names` */
	size_t bytes;            /* of the names, including their NULs */
	bool truncated;          /* at least one path is missing */
};

/* Adds a copy of the path, unless it is in the set, which was found changed at position `at`.  Sets
 * `truncated` if there is no room or memory. */
void changed_paths_add(struct changed_paths *paths, const char *path, uint64_t at);

/* Removes the paths that were last found changed at `at` or before. */
void changed_paths_forget(struct changed_paths *paths, uint64_t at);
void changed_paths_done(struct changed_paths *paths);
