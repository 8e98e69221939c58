/*
 * tools/shell/shell_paths.h - from a path in a command line to what rules about files are about.
 *
 * Links in the tree are followed, patterns become the names that match now, and what is outside
 * of the root is said to be.  More is taken to match than bash takes, never less.
 * Threads: any.
 */
#pragma once

#include "tools/permission/permission.h"

/* Where a line runs. */
struct shell_context {
	const struct files_root *root;
	const char *directory;           /* below it */
	bool root_unknown;               /* what its absolute path is there */
	struct permissions *permissions; /* rules about files below a directory; may be NULL */
};

struct shell_path {
	char *path;    /* below the root; else absolute, or with "~" or ".." in front */
	unsigned uses; /* enum permission_use; 0: outside of the root */
};

struct shell_paths {
	struct shell_path *list;
	size_t count;
	const char *reason; /* why a question is needed whatever the rules say; static; or NULL */
	bool no_memory;
	unsigned entries; /* of directories that were looked at */
};

void shell_paths_done(struct shell_paths *paths);

enum shell_path_flags {
	SHELL_PATH_PATTERN = 1 << 0, /* it has * ? [ that are not behind a backslash */
	SHELL_PATH_COPIED = 1 << 1,  /* what is below it may become what is written */
};

/* Adds where the path leads; `use` is of enum shell_use. */
void shell_paths_add(struct shell_paths *paths, const struct shell_context *context,
	const char *path, unsigned use, unsigned flags);

/* False when surely no name matches: bash then takes the pattern as it stands. */
bool shell_pattern_matches(const struct shell_context *context, const char *pattern);

/* Makes a pattern, in place, the name that it is taken for then. */
void shell_pattern_unescape(char *pattern);
