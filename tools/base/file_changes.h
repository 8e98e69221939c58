/*
 * tools/base/file_changes.h - changes several files, all or none.
 *
 * If one change fails, the others are undone.  If the process is killed half way, the changes so
 * far stay.
 * Threads: any.
 */
#pragma once

#include "tools/base/files.h"

enum file_change_kind {
	FILE_CHANGE_CREATE, /* with `content`; missing directories are created */
	FILE_CHANGE_UPDATE, /* to `content`, then renamed to `target` if that is set */
	FILE_CHANGE_DELETE, /* a symbolic link is deleted itself, not its target */
};

struct file_change {
	enum file_change_kind kind;
	const char *path;
	const char *target;           /* update: the new path; NULL: the path stays */
	const struct buffer *content; /* NULL: only the path changes */
	const struct buffer *old;     /* update: the content that the caller read */
	const struct stat *status;    /* update: the status when the caller read it */

	/* State of file_changes_apply(). */
	unsigned done;
	size_t kept_directories; /* bytes of the path up to the deepest directory that existed */
	char *aside;             /* temporary name of a deleted file until all changes are made */
};

struct file_locks {
	int *fds;
	size_t count;
};

/* files_lock() for the directories of all changes, in one order for all callers, so that they
 * cannot deadlock. */
int file_changes_lock(const struct files_root *root, const struct file_change *changes,
	size_t count, bool (*interrupted)(void *user), void *user, struct file_locks *ret_locks);
void file_locks_done(struct file_locks *locks);

/* Makes all changes.  0, or -errno: `*ret_failed` is the index of the change that failed; the
 * changes before it are undone; paths that could not be restored are appended to `lost`.  -EEXIST:
 * a create or move would replace something; -ESTALE: the file has changed since `status`. */
int file_changes_apply(const struct files_root *root, struct file_change *changes, size_t count,
	bool (*interrupted)(void *user), void *user, size_t *ret_failed, struct buffer *lost);
