/*
 * tools/shell/shell_paths.h - turns the paths of a command line into paths that rules can match.
 *
 * Follows links in the tree, expands patterns to the names that match now, and marks paths outside
 * the root.  A pattern may be expanded to more names than bash would match, never to fewer.
 * Threads: any.
 */
#pragma once

#include "tools/permission/permission.h"

/* Where a line runs. */
struct shell_context {
	const struct files_root *root;
	const char *directory; /* working directory, below the root */
	bool root_unknown;     /* the root's absolute path where the line runs is unknown */
	struct permissions *permissions; /* rules about files; may be NULL */
};

struct shell_path {
	char *path;    /* below the root; outside: absolute, or beginning with "~" or ".." */
	unsigned uses; /* enum permission_use; 0: outside the root */
};

struct shell_paths {
	struct shell_path *list;
	size_t count;
	const char *reason; /* why no rule can allow the paths; static; or NULL */
	bool no_memory;
	unsigned entries; /* directory entries that were looked at, which are bounded */
};

void shell_paths_done(struct shell_paths *paths);

/* Whether it is a device that anybody may use: /dev/null and the like. */
bool shell_path_is_harmless(const char *path);

enum shell_path_flags {
	SHELL_PATH_PATTERN = 1 << 0, /* it has unescaped * ? [ */
	SHELL_PATH_COPIED = 1 << 1,  /* files below it may be copied to the written paths */
};

/* Adds where the path leads; `use` is of enum shell_use. */
void shell_paths_add(struct shell_paths *paths, const struct shell_context *context,
	const char *path, unsigned use, unsigned flags);

/* Whether a directory of PATH that is below the root has a file of that name: with a virtual
 * environment or node_modules/.bin in PATH, who can write files can replace "ls". */
bool shell_program_is_inside(const struct shell_context *context, const char *name);

/* Whether files in the working directory are guarded (".git", a bare repository): git would read
 * its settings there. */
bool shell_directory_is_guarded(const struct shell_context *context);

/* Whether written paths make a bare repository together: each one alone is not guarded. */
bool shell_paths_make_repository(const struct shell_paths *paths);

/* False when surely no name matches: bash then takes the pattern as it stands. */
bool shell_pattern_matches(const struct shell_context *context, const char *pattern);

/* Turns a pattern without a match, in place, into the name that bash uses. */
void shell_pattern_unescape(char *pattern);
