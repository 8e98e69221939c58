/*
 * ops/read_first.h - what git, editors and build tools read before anything else in a tree.
 *
 * Paths of directories are from the root of the workspace.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Where a directory is in a repository's own. */
enum git_part {
	NOT_GIT,
	IN_GIT, /* the repository's own directory */
	IN_GIT_INFO,
	IN_GIT_REFS,
	IN_GIT_HEADS,
	IN_GIT_OBJECTS,
	BELOW_GIT, /* any other below it */
};

enum git_part git_part_of(const char *directory);

/* A file of that name and size in such a directory is small enough, and read first. */
bool is_read_first(enum git_part part, const char *name, uint64_t size_bytes);

/* The same for a directory: whatever git does, it looks there for a name or two. */
bool is_looked_into_first(enum git_part part, const char *name);
