/*
 * ops/support/path.h - workspace paths: relative, normalised, bytes.
 *
 * A workspace path has no leading, trailing or doubled '/', no "." and no "..";
 * "" is the root.  It may be longer than PATH_MAX.
 * Threads: any; nothing here looks at a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { PATH_NAME_MAX_BYTES = 255 };

/* True for a path as the Operations contract wants it. */
bool path_is_normal(const char *path);

/* True for one name: 1 to 255 bytes, no '/', not "." or "..". */
bool path_is_name(const char *name);

/* Normalises: drops "." and doubled '/', resolves ".." as text, takes a leading
 * '/' as the root.  `*ret_path` is the caller's to free.
 * -EINVAL when ".." leaves the root, -ENAMETOOLONG for a long name, -ENOMEM. */
int path_normalise(const char *path, char **ret_path);

/* Returns "directory/name", or the one of them that is not ""; the caller frees it.
 * NULL when there is no memory. */
char *path_join(const char *directory, const char *name);

/* The last component ("" for the root); points into `path`. */
const char *path_name(const char *path);

/* Bytes of the parent's path in `path` (0: the parent is the root). */
size_t path_parent_length(const char *path);

/* True when `path` is `ancestor` or lies below it. */
bool path_is_within(const char *path, const char *ancestor);

/* The path at which execvp(3) would find the program of that name, without '/', by PATH; the caller
 * frees it.  NULL: not found, or no memory. */
char *path_find_program(const char *name);
