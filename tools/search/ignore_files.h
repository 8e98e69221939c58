/*
 * tools/search/ignore_files.h - reads the lists of patterns that git would read, for
 * ops/support/ignore.h.
 *
 * The chain has one list per .gitignore, from the deepest directory up to the top of the
 * repository, then .git/info/exclude, then core.excludesFile.
 */
#pragma once

#include "ops/support/ignore.h"
#include "tools/base/files.h"

/* Puts the patterns of the file `name` in a directory (AT_FDCWD: `name` is a path) in front of the
 * chain.  If the file cannot be read, returns the chain unchanged.  Takes over the caller's
 * reference of `chain`. */
struct ignore *ignore_add_file(
	struct ignore *chain, const char *base, int directory, const char *name);

/* The chain for the directory `path` below the root: the settings of repository and user, and each
 * .gitignore above `path` up to the top of the repository, which may be above the root.  The
 * .gitignore in `path` itself is not included.  `*ret_prefix`: the prefix ("" or "sub/dir/") that
 * turns a path below the root into one below the top; the caller frees it.  0 or -ENOMEM. */
int ignore_open(const struct files_root *root, const char *path, struct ignore **ret_chain,
	char **ret_prefix);

/* The chain for a repository inside the tree: only the user's settings and the repository's
 * .git/info/exclude. */
struct ignore *ignore_open_nested(int directory, const char *base);
