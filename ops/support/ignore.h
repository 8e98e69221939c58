/*
 * ops/support/ignore.h - lists of patterns as gitignore(5) has them, and which paths they match.
 *
 * A chain of lists, the one of the deepest directory first.  The first list with a matching
 * pattern decides, and in it the last pattern that matches.
 * Threads: a chain does not change; ignore_ref and ignore_unref count atomically.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ignore; /* one link of the chain; holds a reference to the next */

struct ignore *ignore_ref(struct ignore *chain); /* NULL is fine */
void ignore_unref(struct ignore *chain);

/* Puts the patterns of one file in front of `*chain`, which may be NULL.  `base` is its directory,
 * as a path below the top.  1; 0 when the file has no pattern; -ENOMEM (the chain stays). */
int ignore_add(struct ignore **chain, const char *base, const char *content, size_t size);

/* True when the chain says that `path` (below the top, and below the base of each list) is
 * ignored.  What is in an ignored directory is ignored too; that is the caller's affair. */
bool ignore_matches(const struct ignore *chain, const char *path, bool is_directory);

/* True when a pattern of the chain names places, so that it could match something in the
 * directory `path`, but nothing there any more once the directory has another path. */
bool ignore_names_below(const struct ignore *chain, const char *path);
