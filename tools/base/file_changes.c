#include "tools/base/file_changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "ops/support/path.h"

enum { IS_WRITTEN = 1 << 0, IS_MOVED = 1 << 1, IS_ASIDE = 1 << 2 };

/* ---- Locks -------------------------------------------------------------------------------- */

struct locked_directory { /* a directory that is to be locked */
	struct stat status;
	const char *path; /* of an entry in it */
};

static int compare_directories(const void *a, const void *b)
{
	const struct stat *one = &((const struct locked_directory *)a)->status;
	const struct stat *two = &((const struct locked_directory *)b)->status;

	if (one->st_dev != two->st_dev)
		return one->st_dev < two->st_dev ? -1 : 1;
	return (one->st_ino > two->st_ino) - (one->st_ino < two->st_ino);
}

/* The deepest directory above `path` that exists, as files_lock() takes it. */
static int find_directory(
	const struct files_root *root, const char *path, struct locked_directory *ret_directory)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	int r;

	if (!parent)
		return -ENOMEM;
	while ((r = files_stat(root, parent, &ret_directory->status)) == -ENOENT && *parent)
		parent[path_parent_length(parent)] = '\0';
	ret_directory->path = path;
	return r;
}

int file_changes_lock(const struct files_root *root, const struct file_change *changes,
	size_t count, bool (*interrupted)(void *user), void *user, struct file_locks *ret_locks)
{
	cleanup_free struct locked_directory *directories =
		calloc(2 * count + 1, sizeof(*directories));
	struct file_locks locks cleanup_with(file_locks_done) = {
		.fds = calloc(2 * count + 1, sizeof(int))};
	size_t found = 0;
	int r = directories && locks.fds ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && r == 0; i++) {
		r = find_directory(root, changes[i].path, &directories[found++]);
		if (r == 0 && changes[i].target)
			r = find_directory(root, changes[i].target, &directories[found++]);
	}
	if (r < 0)
		return r;
	qsort(directories, found, sizeof(*directories), compare_directories);
	for (size_t i = 0; i < found; i++) {
		/* A second lock of the same directory would wait for ours. */
		if (i && compare_directories(&directories[i - 1], &directories[i]) == 0)
			continue;
		r = files_lock(root, directories[i].path, interrupted, user);
		if (r < 0)
			return r;
		locks.fds[locks.count++] = r;
	}
	*ret_locks = locks;
	locks = (struct file_locks){0};
	return 0;
}

void file_locks_done(struct file_locks *locks)
{
	for (size_t i = 0; i < locks->count; i++)
		close(locks->fds[i]);
	free(locks->fds);
	*locks = (struct file_locks){0};
}

/* ---- Making changes ----------------------------------------------------------------------- */

static int rename_path(const struct files_root *root, const char *from, const char *to, bool make)
{
	char old_name[256], new_name[256];
	cleanup_fd int old_directory = files_open_parent(root, from, false, old_name);
	cleanup_fd int new_directory = files_open_parent(root, to, make, new_name);
	struct stat status;

	if (old_directory < 0 || new_directory < 0)
		return old_directory < 0 ? old_directory : new_directory;
	if (renameat2(old_directory, old_name, new_directory, new_name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* This file system does not support flags (NFS, 9p). */
	if (fstatat(new_directory, new_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(old_directory, old_name, new_directory, new_name) < 0 ? -errno : 0;
}

static int remove_path(const struct files_root *root, const char *path)
{
	char name[256];
	cleanup_fd int directory = files_open_parent(root, path, false, name);

	if (directory < 0)
		return directory;
	return unlinkat(directory, name, 0) < 0 ? -errno : 0;
}

static int put_aside(const struct files_root *root, struct file_change *change)
{
	int parent = (int)path_parent_length(change->path), r;
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	if (asprintf(&change->aside, "%.*s%s.isthmus-%016llx.tmp", parent, change->path,
		    parent ? "/" : "", (unsigned long long)random) < 0) {
		change->aside = NULL;
		return -ENOMEM;
	}
	r = rename_path(root, change->path, change->aside, false);
	change->done |= r == 0 ? IS_ASIDE : 0;
	return r;
}

static int move(const struct files_root *root, struct file_change *change)
{
	int r = files_note_directories(root, change->target, &change->kept_directories);

	if (r == 0)
		r = rename_path(root, change->path, change->target, true);
	if (r == 0)
		change->done |= IS_MOVED;
	else
		files_remove_made_directories(root, change->target, change->kept_directories);
	return r;
}

static int make_one(const struct files_root *root, struct file_change *change)
{
	const struct buffer *content = change->content;
	int r;

	if (change->kind == FILE_CHANGE_DELETE)
		return put_aside(root, change);
	if (change->kind == FILE_CHANGE_CREATE) {
		r = files_note_directories(root, change->path, &change->kept_directories);
		if (r == 0)
			r = files_write(root, change->path, content->data, content->size,
				FILES_MUST_CREATE, NULL);
		if (r < 0)
			files_remove_made_directories(root, change->path, change->kept_directories);
		change->done |= r == 0 ? IS_WRITTEN : 0;
		return r;
	}
	r = content ? files_write(root, change->path, content->data, content->size,
			      FILES_MUST_REPLACE, change->status)
		    : 0;
	if (r == 0 && content)
		change->done |= IS_WRITTEN;
	return r == 0 && change->target ? move(root, change) : r;
}

/* ---- Undoing them -------------------------------------------------------------------------- */

static int take_back(const struct files_root *root, struct file_change *change)
{
	int r = 0;

	if (change->done & IS_ASIDE)
		return rename_path(root, change->aside, change->path, false);
	if (change->done & IS_MOVED) {
		r = rename_path(root, change->target, change->path, false);
		if (r == 0)
			files_remove_made_directories(
				root, change->target, change->kept_directories);
	}
	if (r < 0 || !(change->done & IS_WRITTEN))
		return r;
	if (change->kind == FILE_CHANGE_UPDATE)
		return files_write(root, change->path, change->old->data, change->old->size,
			FILES_MUST_REPLACE, NULL);
	r = remove_path(root, change->path);
	if (r == 0)
		files_remove_made_directories(root, change->path, change->kept_directories);
	return r;
}

static void take_all_back(const struct files_root *root, struct file_change *changes, size_t count,
	struct buffer *lost)
{
	for (size_t i = count; i-- > 0;)
		if (take_back(root, &changes[i]) < 0)
			buffer_printf(lost, "%s%s", lost->size ? ", " : "", changes[i].path);
}

/* Removes the temporary names of deleted files.  A failure is ignored: the files are gone from
 * their paths, and all other changes are made. */
static void finish(const struct files_root *root, struct file_change *changes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (changes[i].aside)
			remove_path(root, changes[i].aside);
		free(steal_ptr(&changes[i].aside));
	}
}

int file_changes_apply(const struct files_root *root, struct file_change *changes, size_t count,
	bool (*interrupted)(void *user), void *user, size_t *ret_failed, struct buffer *lost)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		r = interrupted(user) ? -ECANCELED : make_one(root, &changes[i]);
		if (r < 0) {
			*ret_failed = i;
			take_all_back(root, changes, i + 1, lost);
		}
	}
	if (r < 0)
		for (size_t i = 0; i < count; i++)
			free(steal_ptr(&changes[i].aside));
	else
		finish(root, changes, count);
	return r;
}
