/*
 * tools/base/files.h - file operations below a root directory, by plain POSIX calls.
 *
 * Every path is relative to the root and comes from files_resolve(); "" is the root.  The kernel
 * keeps each path walk, including symbolic links, below the root (openat2 with RESOLVE_IN_ROOT).
 * Errors are -errno.
 * Threads: any; an open root never changes.
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

/* Turns a path as a model or a person writes it (relative, absolute inside the root, with "~", a
 * leading "@" or "file://") into a path below the root.  The caller frees `*ret_path`.
 * -EXDEV: it leads out of the root; -EINVAL, -ENAMETOOLONG. */
int files_resolve(const struct files_root *root, const char *given, char **ret_path);

/* As open(2) below the root.  -EXDEV: a symbolic link leads out of the root. */
int files_open(const struct files_root *root, const char *path, int flags, mode_t mode);

/* As stat(2) and lstat(2) below the root.  0; -EXDEV as files_open(), -errno. */
int files_stat(const struct files_root *root, const char *path, struct stat *ret_stat);
int files_lstat(const struct files_root *root, const char *path, struct stat *ret_stat);

/* Opens the directory of `path` and copies the last name to `name`; with `make`, creates missing
 * directories.  Returns the descriptor, which the caller closes. */
int files_open_parent(const struct files_root *root, const char *path, bool make, char name[256]);

/* The length of the deepest existing directory above `path`; deeper ones must be created. */
int files_note_directories(const struct files_root *root, const char *path, size_t *ret_length);

/* Removes those that were created since: nothing came of the change that they were for. */
void files_remove_made_directories(const struct files_root *root, const char *path, size_t kept);

/* The path with all symbolic links followed.  The caller frees it. */
int files_real_path(const struct files_root *root, const char *path, char **ret_path);

/* The same, even if its last names, or the target of a link, do not exist; `follow` false: not
 * through a link that is the last name.  0; -ENOENT: it leads out of the root, or is unknown;
 * -ENOMEM. */
int files_path_led_to(
	const struct files_root *root, const char *path, bool follow, char **ret_path);

/* Reads a whole regular file; -EISDIR, -EFBIG past `limit_bytes`, -ESPIPE for a device or
 * a pipe.  `ret_stat` may be NULL. */
int files_read(const struct files_root *root, const char *path, size_t limit_bytes,
	struct buffer *content, struct stat *ret_stat);

enum files_write_flags {
	FILES_MUST_CREATE = 1 << 0,  /* -EEXIST if the file exists */
	FILES_MUST_REPLACE = 1 << 1, /* -ENOENT if it does not */
};

/* Writes a whole file by a temporary file beside it, fsync and rename; mode, owner and extended
 * attributes stay.  A file with several links, or with an owner that this user cannot restore, is
 * overwritten in place, after the space for the new content was reserved.  Follows symbolic links;
 * creates missing directories.  On failure, even by SIGKILL, the old content is intact and no
 * temporary file is left: a child process removes it, or finishes the overwriting.  Two failures
 * leave other content: of the overwriting and of putting the old content back, and -EIO of a rename
 * that was made.
 * `expected` (may be NULL): the status when the caller read the file; -ESTALE if it has changed.
 * Callers exclude each other by files_lock(); those on another mount of the workspace, where the
 * kernel does not ask for locks of directories, and other programs by a flock of the file that is
 * replaced, which is held from the comparison with `expected` on.  -ETIMEDOUT: somebody holds it
 * for 10 s. */
int files_write(const struct files_root *root, const char *path, const void *content, size_t size,
	unsigned flags, const struct stat *expected);

/* As flock(2), exclusively.  Otherwise as files_lock(). */
int files_lock_fd(int fd, bool (*interrupted)(void *user), void *user);

/* Keeps other tool calls from changing entries of the directory of `path`, until the caller closes
 * the returned descriptor.  `path` need not exist.  `interrupted` (may be NULL) ends the wait.
 * -ETIMEDOUT after 10 s, -EINTR. */
int files_lock(const struct files_root *root, const char *path, bool (*interrupted)(void *user),
	void *user);

/* Copies `path`, with mode and times, to a free name beside it: f.bak, f.bak.1, ...  `*ret_backup`:
 * the path of the copy; the caller frees it. */
int files_backup(const struct files_root *root, const char *path, char **ret_backup);

/* Removes one after a change of `path` that failed.  False: kept, as the file may not be what it
 * was `before`: the old content was not put back, or the answer to the rename was lost. */
bool files_backup_undo(const struct files_root *root, const char *path, const struct stat *before,
	const char *backup);

/* Up to three names in the directory of `path` that look like its last one; separated by
 * ", ", as paths below the root; only those that `may_name` lets pass.  In one that looks the same
 * the characters that differ are escaped.  The caller frees it; NULL: none. */
char *files_near_names(const struct files_root *root, const char *path,
	bool (*may_name)(void *user, const char *path), void *user);

/* A path that exists and looks like `path`, which does not: for each name that is missing, the
 * directory has exactly one that looks the same (tools/text/looks.h) and that `may_name` lets pass.
 * The caller frees it; NULL: none. */
char *files_look_alike(const struct files_root *root, const char *path,
	bool (*may_name)(void *user, const char *path), void *user);

/* The MIME type of the content.  The caller frees it; NULL: unknown. */
char *files_mime_type(const void *content, size_t size);

/* The encoding of its text, as "utf-16le"; "binary": it is no text.  The same. */
char *files_encoding(const void *content, size_t size);

/* The xxh3-128 of the content as 32 hexadecimal digits, the same as in the xattr
 * user.isthmus.hash. */
void files_hash(const void *content, size_t size, char hash[33]);
