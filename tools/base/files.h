/*
 * tools/base/files.h - file work below a root directory, in plain POSIX calls.
 *
 * Every path here is relative to the root and came from files_resolve(); "" is the root.
 * The kernel keeps each walk below the root (openat2 with RESOLVE_IN_ROOT), symbolic links
 * included.  Errors are -errno.
 * Threads: any; a root does not change once opened.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "ops/support/buffer.h"

struct files_root {
	int fd;
	char *path; /* absolute, without symbolic links */
};

/* Opens a directory as the root.  0 or -errno. */
int files_root_open(const char *directory, struct files_root *ret_root);
void files_root_close(struct files_root *root);

/* Turns what a model or a person wrote (relative, absolute inside the root, "~", a leading
 * "@", "file://") into a path below the root.  `*ret_path` is the caller's to free.
 * -EXDEV: leads out of the root; -EINVAL, -ENAMETOOLONG. */
int files_resolve(const struct files_root *root, const char *given, char **ret_path);

/* As open(2) below the root.  -EXDEV for a link that leads out of it. */
int files_open(const struct files_root *root, const char *path, int flags, mode_t mode);

/* As stat(2) and lstat(2) below the root.  0; -EXDEV as files_open(), -errno. */
int files_stat(const struct files_root *root, const char *path, struct stat *ret_stat);
int files_lstat(const struct files_root *root, const char *path, struct stat *ret_stat);

/* Opens the directory that holds `path`, and copies the last name (one '/' at most 255
 * bytes) to `name`.  With `make`, missing directories are made.  Returns the descriptor. */
int files_open_parent(const struct files_root *root, const char *path, bool make, char name[256]);

/* The path that `path` leads to when its links are followed.  The caller frees it. */
int files_real_path(const struct files_root *root, const char *path, char **ret_path);

/* Reads a whole regular file; -EISDIR, -EFBIG past `limit_bytes`, -ESPIPE for a device or
 * a pipe.  `ret_stat` may be NULL. */
int files_read(const struct files_root *root, const char *path, size_t limit_bytes,
	struct buffer *content, struct stat *ret_stat);

enum files_write_flags {
	FILES_MUST_CREATE = 1 << 0,  /* -EEXIST when it exists */
	FILES_MUST_REPLACE = 1 << 1, /* -ENOENT when it does not */
};

/* Writes a whole file: a temporary file beside it, fsync, rename; mode, owner and extended
 * attributes stay.  A file with several names, or whose owner this user cannot restore, is
 * overwritten in place, with the room for it reserved first.  Links are written through,
 * parents are made.  On failure the old content is whole and nothing is left behind, also
 * after kill -9 (a child removes the temporary file; what is overwritten in place, a child
 * writes to its end).
 * `expected` (may be NULL): what the caller read; -ESTALE when the file is no longer that.
 * Callers of one file exclude each other with files_lock(). */
int files_write(const struct files_root *root, const char *path, const void *content, size_t size,
	unsigned flags, const struct stat *expected);

/* Excludes other tool calls from changing what is in the directory of `path` (which need not
 * exist); released by closing the descriptor.  `interrupted` (may be NULL) ends the wait.
 * -ETIMEDOUT after 10 s, -EINTR. */
int files_lock(const struct files_root *root, const char *path, bool (*interrupted)(void *user),
	void *user);

/* Copies `path` to a free name beside it: f.bak, f.bak.1, ...; mode and times are the
 * original's.  `*ret_backup` is its path; the caller frees it. */
int files_backup(const struct files_root *root, const char *path, char **ret_backup);

/* Removes one: nothing came of the change that it was for. */
void files_backup_undo(const struct files_root *root, const char *backup);

/* Up to three names in the directory of `path` that look like its last one; separated by
 * ", ", as paths below the root; only those that `may_name` lets pass.  The caller frees it; NULL:
 * none. */
char *files_near_names(const struct files_root *root, const char *path,
	bool (*may_name)(void *user, const char *path), void *user);

/* MIME type by content.  The caller frees it; NULL: unknown. */
char *files_mime_type(const void *content, size_t size);

/* xxh3-128 of the content as 32 hexadecimal digits, as the xattr user.isthmus.hash. */
void files_hash(const void *content, size_t size, char hash[33]);
