/*
 * tools/base/file_changes.h - changes of several files of which all are made, or none.
 *
 * "None" holds where a change fails; a process that is killed half way leaves what it did.
 * Threads: any.
 */
#pragma once

#include "tools/base/files.h"

enum file_change_kind {
	FILE_CHANGE_CREATE, /* `content`; missing directories are made */
	FILE_CHANGE_UPDATE, /* `content`, and to `target` when there is one */
	FILE_CHANGE_DELETE, /* a link itself */
};

struct file_change {
	enum file_change_kind kind;
	const char *path;
	const char *target;           /* of an update: its new path; NULL: it stays */
	const struct buffer *content; /* NULL: only the path changes */
	const struct buffer *old;     /* of an update: what was read */
	const struct stat *status;    /* of an update: when that was read */

	/* For file_changes_apply(). */
	unsigned done;
	size_t kept_directories; /* bytes of the path up to the deepest directory that was there */
	char *aside;             /* where what is deleted waits for the end */
};

struct file_locks {
	int *fds;
	size_t count;
};

/* files_lock() for the directories of all of them, in an order that all callers have in common. */
int file_changes_lock(const struct files_root *root, const struct file_change *changes,
	size_t count, bool (*interrupted)(void *user), void *user, struct file_locks *ret_locks);
void file_locks_done(struct file_locks *locks);

/* Makes all changes.  0, or -errno: `*ret_failed` is the change that failed, what was made before
 * is taken back, and paths for which that failed are appended to `lost`.  -EEXIST: there is
 * something where one creates or moves; -ESTALE: no longer what was read. */
int file_changes_apply(const struct files_root *root, struct file_change *changes, size_t count,
	bool (*interrupted)(void *user), void *user, size_t *ret_failed, struct buffer *lost);
