/*
 * tools/search/ignore_files.h - which lists of patterns git would read, for ops/support/ignore.h.
 *
 * The chain has one list for each .gitignore from the deepest directory up to the top of the
 * repository, then .git/info/exclude and core.excludesFile.
 */
#pragma once

#include "ops/support/ignore.h"
#include "tools/base/files.h"

/* The chain with the patterns of the file `name` in a directory (or at any path, with AT_FDCWD) in
 * front; as it was when the file cannot be read.  Takes the reference of `chain`. */
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
