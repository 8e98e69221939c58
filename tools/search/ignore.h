/*
 * tools/search/ignore.h - which paths git ignores.
 *
 * A chain of pattern lists, one for each .gitignore from the deepest directory up to the top
 * of the repository, then .git/info/exclude and core.excludesFile.  The first list with a
 * matching pattern decides, and in it the last pattern that matches.
 * Threads: a chain does not change; ignore_ref and ignore_unref count atomically.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tools/base/files.h"

struct ignore; /* one link of the chain; holds a reference to the next */

struct ignore *ignore_ref(struct ignore *chain); /* NULL is fine */
void ignore_unref(struct ignore *chain);

/* Puts the patterns of one file in front of `chain` (whose reference it takes).  `base` is
 * its directory, as a path below the top.  The new chain; `chain` itself when the file has no
 * pattern; NULL when there is no memory. */
struct ignore *ignore_add(struct ignore *chain, const char *base, const char *content, size_t size);

/* As ignore_add, from the file `name` in a directory (or any path, with AT_FDCWD). */
struct ignore *ignore_add_file(
	struct ignore *chain, const char *base, int directory, const char *name);

/* The chain for the directory `path` below the root: repository and user settings, and every
 * .gitignore above `path`, also above the root as far as the repository reaches; not the one
 * in `path` itself.  `*ret_prefix` is what to put in front of a path below the root to get a
 * path below the top ("" or "sub/dir/"); the caller frees it.  0 or -ENOMEM. */
int ignore_open(const struct files_root *root, const char *path, struct ignore **ret_chain,
	char **ret_prefix);

/* The chain for a repository inside the tree: the user's settings and its own
 * .git/info/exclude only. */
struct ignore *ignore_open_nested(int directory, const char *base);

/* True when the chain says that `path` (below the top) is ignored.  What is in an ignored
 * directory is ignored too; that is the walk's affair. */
bool ignore_matches(const struct ignore *chain, const char *path, bool is_directory);
