#include "ops/workspace_ops.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/support/path.h"
#include "ops/workspace_scan.h"

/* Returns from the caller with `error` when the workspace lacks `operation`. */
#define REQUIRE_OPERATION(w, operation, error) \
	do {                                   \
		if (!(w)->ops->operation)      \
			return (error);        \
	} while (0)

bool object_id_equal(const struct object_id *a, const struct object_id *b)
{
	return a->inode == b->inode && a->device == b->device && a->generation == b->generation;
}

bool attributes_same_version(const struct attributes *a, const struct attributes *b)
{
	return object_id_equal(&a->id, &b->id) && a->mode == b->mode && a->uid == b->uid &&
	       a->gid == b->gid && a->nlink == b->nlink && a->size_bytes == b->size_bytes &&
	       clock_same(&a->mtime, &b->mtime) && clock_same(&a->ctime, &b->ctime);
}

bool path_misses_object(int result)
{
	return result == -ENOENT || result == -ENOTDIR || result == -ELOOP || result == -ESTALE;
}

bool path_leads_to_another(int result)
{
	return result == -ESTALE || result == -EISDIR || result == -ELOOP || result == -EINVAL;
}

void op_context_init(struct op_context *ctx)
{
	*ctx = (struct op_context){.pid = getpid(), .uid = geteuid(), .gid = getegid()};
}

/* ---- Checks that every implementation relies on -------------------------- */

static int check_path(const char *path)
{
	if (path_is_normal(path))
		return 0;
	return strlen(path_name(path)) > PATH_NAME_MAX_BYTES ? -ENAMETOOLONG : -EINVAL;
}

static int check_object(const struct object_ref *object)
{
	return object->file ? 0 : check_path(object->path);
}

/* A name that is to be made, removed or moved: anything but the root. */
static int check_changed_path(const char *path)
{
	return *path ? check_path(path) : -EBUSY;
}

static int check_range(off_t offset, size_t size)
{
	if (offset < 0 || size > SSIZE_MAX)
		return -EINVAL;
	return (uint64_t)offset + size > (uint64_t)INT64_MAX ? -EFBIG : 0;
}

static const struct object_id no_id;

/* What the context tells is of the call that begins. */
static void begin(struct op_context *ctx)
{
	ctx->served.position = 0;
}

static void begin_change(struct op_context *ctx)
{
	begin(ctx);
	if (ctx->facts)
		*ctx->facts = (struct facts){0};
}

/* ---- Workspace ------------------------------------------------------------ */

void workspace_free(struct workspace *w)
{
	if (w)
		w->ops->free(w);
}

const char *workspace_name(const struct workspace *w)
{
	return w->ops->name;
}

void workspace_status(struct workspace *w, struct workspace_status *ret_status)
{
	w->ops->status(w, ret_status);
}

/* ---- Names ---------------------------------------------------------------- */

int workspace_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	int r = check_object(object);

	begin(ctx);
	return r < 0 ? r : w->ops->getattr(ctx, w, object, ret_attributes);
}

int workspace_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	int r = check_object(directory);

	begin(ctx);
	return r < 0 ? r : w->ops->readdir(ctx, w, directory, watch, sink, user, ret_since);
}

int workspace_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *request, dir_entry_sink sink, void *user)
{
	int r = check_object(directory);

	begin(ctx);
	if (r < 0)
		return r;
	if (!w->ops->scan)
		return workspace_scan_by_walking(ctx, w, directory, request, sink, user);
	return w->ops->scan(ctx, w, directory, request, sink, user);
}

int workspace_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	int r = check_object(link);

	begin(ctx);
	return r < 0 ? r : w->ops->readlink(ctx, w, link, ret_target);
}

int workspace_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	int r = *path ? check_changed_path(path) : -EEXIST;

	begin_change(ctx);
	REQUIRE_OPERATION(w, mkdir, -EROFS);
	return r < 0 ? r : w->ops->mkdir(ctx, w, path, mode & 07777, ret_attributes);
}

int workspace_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	int r = *path ? check_changed_path(path) : -EEXIST;

	begin_change(ctx);
	REQUIRE_OPERATION(w, mknod, -EROFS);
	return r < 0 ? r : w->ops->mknod(ctx, w, path, mode, rdev, ret_attributes);
}

int workspace_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	int r = *path ? check_changed_path(path) : -EEXIST;

	begin_change(ctx);
	REQUIRE_OPERATION(w, symlink, -EROFS);
	if (r < 0)
		return r;
	if (!*target)
		return -ENOENT;
	if (strlen(target) >= PATH_MAX)
		return -ENAMETOOLONG;
	return w->ops->symlink(ctx, w, target, path, ret_attributes);
}

int workspace_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	int r = *path ? check_changed_path(path) : -EEXIST;

	begin_change(ctx);
	REQUIRE_OPERATION(w, link, -EROFS);
	if (r == 0)
		r = check_object(object);
	return r < 0 ? r : w->ops->link(ctx, w, object, path, ret_attributes);
}

int workspace_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	int r = check_changed_path(path);

	begin_change(ctx);
	REQUIRE_OPERATION(w, unlink, -EROFS);
	return r < 0 ? r : w->ops->unlink(ctx, w, path, expected ? expected : &no_id);
}

int workspace_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	int r = check_changed_path(path);

	begin_change(ctx);
	REQUIRE_OPERATION(w, rmdir, -EROFS);
	return r < 0 ? r : w->ops->rmdir(ctx, w, path, expected ? expected : &no_id);
}

int workspace_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	int r = check_changed_path(from);

	begin_change(ctx);
	REQUIRE_OPERATION(w, rename, -EROFS);
	if (r == 0)
		r = check_changed_path(to);
	if (r < 0)
		return r;
	if (flags & ~(unsigned)(RENAME_KEEP_TARGET | RENAME_SWAP | RENAME_LEAVE_WHITEOUT))
		return -EINVAL;
	if ((flags & RENAME_SWAP) && flags != RENAME_SWAP)
		return -EINVAL;
	return w->ops->rename(ctx, w, from, to, flags, expected ? expected : &no_id);
}

int workspace_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	int r = check_object(object);

	begin_change(ctx);
	ctx->served.is_async = false;
	REQUIRE_OPERATION(w, setattr, -EROFS);
	if (r < 0)
		return r;
	if ((mask & SET_SIZE) && want->size_bytes > INT64_MAX)
		return -EFBIG;
	return w->ops->setattr(ctx, w, object, mask, want, ret_attributes);
}

ssize_t workspace_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	int r = check_object(object);

	begin(ctx);
	REQUIRE_OPERATION(w, getxattr, -EOPNOTSUPP);
	return r < 0 ? r : w->ops->getxattr(ctx, w, object, name, value, size);
}

ssize_t workspace_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	int r = check_object(object);

	begin(ctx);
	REQUIRE_OPERATION(w, listxattr, -EOPNOTSUPP);
	return r < 0 ? r : w->ops->listxattr(ctx, w, object, names, size);
}

int workspace_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	int r = check_object(object);

	begin_change(ctx);
	REQUIRE_OPERATION(w, setxattr, -EOPNOTSUPP);
	return r < 0 ? r : w->ops->setxattr(ctx, w, object, name, value, size, flags);
}

int workspace_removexattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name)
{
	int r = check_object(object);

	begin_change(ctx);
	REQUIRE_OPERATION(w, removexattr, -EOPNOTSUPP);
	return r < 0 ? r : w->ops->removexattr(ctx, w, object, name);
}

int workspace_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	return w->ops->statfs(ctx, w, ret_stats);
}

int workspace_check(struct op_context *ctx, struct workspace *w)
{
	return w->ops->check ? w->ops->check(ctx, w) : 0;
}

/* ---- Open files ------------------------------------------------------------ */

int workspace_open_file(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	int r = check_object(object);

	begin_change(ctx);
	ctx->served.is_async = false;
	if (r < 0)
		return r;
	if (!w->ops->write && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)))
		return -EROFS;
	return w->ops->open_file(ctx, w, object, flags, ret_file, ret_attributes);
}

int workspace_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int r = *path ? check_changed_path(path) : -EEXIST;

	begin_change(ctx);
	ctx->served.is_async = false;
	REQUIRE_OPERATION(w, create, -EROFS);
	if (r < 0)
		return r;
	return w->ops->create(ctx, w, path, flags, mode & 07777, ret_file, ret_attributes);
}

int workspace_await_name(
	struct op_context *ctx, struct open_file *file, struct attributes *ret_attributes)
{
	begin_change(ctx);
	REQUIRE_OPERATION(file->workspace, await_name, -EOPNOTSUPP);
	return file->workspace->ops->await_name(ctx, file, ret_attributes);
}

int workspace_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	begin_change(ctx);
	REQUIRE_OPERATION(w, create_unnamed, -EOPNOTSUPP);
	if (!path_is_normal(directory))
		return -EINVAL;
	return w->ops->create_unnamed(
		ctx, w, directory, flags, mode & 07777, ret_file, ret_attributes);
}

ssize_t workspace_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	int r = check_range(offset, size);

	begin(ctx);
	return r < 0 ? r : file->workspace->ops->read(ctx, file, data, size, offset);
}

ssize_t workspace_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	int r = check_range(offset, size);

	begin_change(ctx);
	REQUIRE_OPERATION(file->workspace, write, -EROFS);
	return r < 0 ? r : file->workspace->ops->write(ctx, file, data, size, offset);
}

int workspace_flush(struct op_context *ctx, struct open_file *file)
{
	begin_change(ctx);
	REQUIRE_OPERATION(file->workspace, flush, 0);
	return file->workspace->ops->flush(ctx, file);
}

int workspace_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only)
{
	begin_change(ctx);
	if (!w->ops->fsync)
		return file ? workspace_flush(ctx, file) : 0;
	if (!path_is_normal(path))
		return -EINVAL;
	return w->ops->fsync(ctx, w, file, path, data_only);
}

int workspace_close(struct op_context *ctx, struct open_file *file)
{
	if (!file)
		return 0;
	begin_change(ctx);
	return file->workspace->ops->close(ctx, file);
}

int workspace_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	begin_change(ctx);
	REQUIRE_OPERATION(file->workspace, fallocate, -EOPNOTSUPP);
	if (offset < 0 || length <= 0)
		return -EINVAL;
	if (offset > INT64_MAX - length)
		return -EFBIG;
	return file->workspace->ops->fallocate(ctx, file, mode, offset, length);
}

int workspace_descriptor(struct open_file *file)
{
	REQUIRE_OPERATION(file->workspace, descriptor, -EOPNOTSUPP);
	return file->workspace->ops->descriptor(file);
}

static off_t seek_in_data(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	struct object_ref object = OBJECT_OF(file);
	struct attributes attributes;
	int r = workspace_getattr(ctx, file->workspace, &object, &attributes);

	if (r < 0)
		return r;
	if ((uint64_t)offset >= attributes.size_bytes)
		return -ENXIO;
	return whence == SEEK_DATA ? offset : (off_t)attributes.size_bytes;
}

off_t workspace_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	if (offset < 0)
		return -ENXIO;
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (!file->workspace->ops->seek)
		return seek_in_data(ctx, file, offset, whence);
	return file->workspace->ops->seek(ctx, file, offset, whence);
}

ssize_t workspace_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	int r = check_range(from_offset, size);

	begin_change(ctx);
	REQUIRE_OPERATION(from->workspace, copy_range, -EOPNOTSUPP);
	if (from->workspace != to->workspace)
		return -EXDEV;
	if (r == 0)
		r = check_range(to_offset, size);
	if (r < 0)
		return r;
	return from->workspace->ops->copy_range(ctx, from, from_offset, to, to_offset, size);
}

int workspace_lock(
	struct op_context *ctx, struct open_file *file, const struct file_lock *lock, bool wait)
{
	begin_change(ctx);
	REQUIRE_OPERATION(file->workspace, lock, -EOPNOTSUPP);
	return file->workspace->ops->lock(ctx, file, lock, wait);
}

int workspace_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock)
{
	REQUIRE_OPERATION(file->workspace, lock_test, -EOPNOTSUPP);
	return file->workspace->ops->lock_test(ctx, file, lock);
}

int workspace_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner)
{
	REQUIRE_OPERATION(file->workspace, lock_release_owner, 0);
	return file->workspace->ops->lock_release_owner(ctx, file, owner);
}

/* ---- Processes -------------------------------------------------------------- */

int workspace_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process)
{
	REQUIRE_OPERATION(w, exec, -EOPNOTSUPP);
	if (!path_is_normal(request->cwd))
		return -EINVAL;
	if (request->argv ? !request->argv[0] : !request->command)
		return -EINVAL;
	return w->ops->exec(ctx, w, request, ret_process);
}

int workspace_process_next(struct op_context *ctx, struct process *process, void *buffer,
	size_t size, struct exec_event *ret_event)
{
	assert(size > 0);
	return process->workspace->ops->process_next(ctx, process, buffer, size, ret_event);
}

ssize_t workspace_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	return process->workspace->ops->process_write(ctx, process, data, size);
}

int workspace_process_close_stdin(struct op_context *ctx, struct process *process)
{
	return process->workspace->ops->process_close_stdin(ctx, process);
}

int workspace_process_signal(struct op_context *ctx, struct process *process, int signal)
{
	return process->workspace->ops->process_signal(ctx, process, signal);
}

int workspace_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	return process->workspace->ops->process_resize(ctx, process, rows, columns);
}

void workspace_process_free(struct process *process)
{
	if (process)
		process->workspace->ops->process_free(process);
}

/* ---- Change feed ------------------------------------------------------------- */

int workspace_watch(struct workspace *w, change_sink sink, void *user)
{
	REQUIRE_OPERATION(w, watch, -EOPNOTSUPP);
	return w->ops->watch(w, sink, user);
}

static int pass_over(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return 0;
}

int workspace_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched)
{
	int r = check_object(directory);
	uint64_t since;

	if (r < 0)
		return r;
	begin(ctx);
	if (w->ops->watch_directory)
		return w->ops->watch_directory(ctx, w, directory, ret_watched);
	r = w->ops->readdir(ctx, w, directory, true, pass_over, NULL, &since);
	if (r == 0)
		*ret_watched = since > 0;
	return r;
}

void workspace_unwatch(struct workspace *w, const struct object_ref *directory)
{
	if (w->ops->unwatch && directory->id.inode)
		w->ops->unwatch(w, directory);
}
