#include "ops/forward.h"

#include <errno.h>
#include <stdlib.h>

static struct forward *forward_of(struct workspace *w)
{
	return (struct forward *)w;
}

static struct open_file *inner_file(struct open_file *file)
{
	return file ? ((struct forward_file *)file)->inner : NULL;
}

static struct process *inner_process(struct process *process)
{
	return ((struct forward_process *)process)->inner;
}

static struct object_ref inner_object(const struct object_ref *object)
{
	struct object_ref inner = *object;

	inner.file = inner_file(object->file);
	return inner;
}

static int ask_before(struct workspace *w, enum forward_operation operation)
{
	struct forward *base = forward_of(w);

	return base->before ? base->before(base, operation) : 0;
}

#define ASK_BEFORE(w, operation)                                 \
	do {                                                     \
		int r_ = ask_before((w), OPERATION_##operation); \
		if (r_ < 0)                                      \
			return r_;                               \
	} while (0)

/* ---- What only passes on ------------------------------------------------------------------ */

/* One row an operation: its type and name, and what it takes after the parameters that all of its
 * kind have. */
#define EXPAND(...) __VA_ARGS__

#define ON_OBJECT(type, name, parameters, arguments)                                          \
	type forward_##name(struct op_context *ctx, struct workspace *w,                      \
		const struct object_ref *object, EXPAND parameters)                           \
	{                                                                                     \
		const struct object_ref inner = inner_object(object);                         \
                                                                                              \
		ASK_BEFORE(w, name);                                                          \
		return workspace_##name(ctx, forward_of(w)->inner, &inner, EXPAND arguments); \
	}

#define ON_WORKSPACE(type, name, parameters, arguments)                                     \
	type forward_##name(struct op_context *ctx, struct workspace *w, EXPAND parameters) \
	{                                                                                   \
		ASK_BEFORE(w, name);                                                        \
		return workspace_##name(ctx, forward_of(w)->inner, EXPAND arguments);       \
	}

#define ON_FILE(type, name, parameters, arguments)                                             \
	type forward_##name(struct op_context *ctx, struct open_file *file, EXPAND parameters) \
	{                                                                                      \
		ASK_BEFORE(file->workspace, name);                                             \
		return workspace_##name(ctx, inner_file(file), EXPAND arguments);              \
	}

#define ON_PROCESS(type, name, parameters, arguments)                                           \
	type forward_##name(struct op_context *ctx, struct process *process, EXPAND parameters) \
	{                                                                                       \
		ASK_BEFORE(process->workspace, name);                                           \
		return workspace_##name(ctx, inner_process(process), EXPAND arguments);         \
	}

/* clang-format off */
ON_OBJECT(int, getattr, (struct attributes *ret_attributes), (ret_attributes))
ON_OBJECT(int, readdir, (bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since),
	(watch, sink, user, ret_since))
ON_OBJECT(int, scan, (const struct scan_request *request, dir_entry_sink sink, void *user),
	(request, sink, user))
ON_OBJECT(int, readlink, (char **ret_target), (ret_target))
ON_OBJECT(int, link, (const char *path, struct attributes *ret_attributes),
	(path, ret_attributes))
ON_OBJECT(int, setattr,
	(unsigned mask, const struct attributes *want, struct attributes *ret_attributes),
	(mask, want, ret_attributes))
ON_OBJECT(ssize_t, getxattr, (const char *name, void *value, size_t size), (name, value, size))
ON_OBJECT(ssize_t, listxattr, (char *names, size_t size), (names, size))
ON_OBJECT(int, setxattr, (const char *name, const void *value, size_t size, unsigned flags),
	(name, value, size, flags))
ON_OBJECT(int, removexattr, (const char *name), (name))
ON_OBJECT(int, watch_directory, (bool *ret_watched), (ret_watched))

ON_WORKSPACE(int, mkdir, (const char *path, uint32_t mode, struct attributes *ret_attributes),
	(path, mode, ret_attributes))
ON_WORKSPACE(int, mknod,
	(const char *path, uint32_t mode, uint64_t rdev, struct attributes *ret_attributes),
	(path, mode, rdev, ret_attributes))
ON_WORKSPACE(int, symlink,
	(const char *target, const char *path, struct attributes *ret_attributes),
	(target, path, ret_attributes))
ON_WORKSPACE(int, unlink, (const char *path, const struct object_id *expected),
	(path, expected))
ON_WORKSPACE(int, rmdir, (const char *path, const struct object_id *expected), (path, expected))
ON_WORKSPACE(int, rename,
	(const char *from, const char *to, unsigned flags, const struct object_id *expected),
	(from, to, flags, expected))
ON_WORKSPACE(int, statfs, (struct fs_stats *ret_stats), (ret_stats))
ON_WORKSPACE(int, fsync, (struct open_file *file, const char *path, bool data_only),
	(inner_file(file), path, data_only))

ON_FILE(int, await_name, (struct attributes *ret_attributes), (ret_attributes))
ON_FILE(ssize_t, read, (void *data, size_t size, off_t offset), (data, size, offset))
ON_FILE(ssize_t, write, (const void *data, size_t size, off_t offset), (data, size, offset))
ON_FILE(int, fallocate, (unsigned mode, off_t offset, off_t length), (mode, offset, length))
ON_FILE(off_t, seek, (off_t offset, int whence), (offset, whence))
ON_FILE(ssize_t, copy_range,
	(off_t from_offset, struct open_file *to, off_t to_offset, size_t size),
	(from_offset, inner_file(to), to_offset, size))
ON_FILE(int, lock, (const struct file_lock *lock, bool wait), (lock, wait))
ON_FILE(int, lock_test, (struct file_lock *lock), (lock))
ON_FILE(int, lock_release_owner, (uint64_t owner), (owner))

ON_PROCESS(int, process_next, (void *buffer, size_t size, struct exec_event *ret_event),
	(buffer, size, ret_event))
ON_PROCESS(ssize_t, process_write, (const void *data, size_t size), (data, size))
ON_PROCESS(int, process_signal, (int signal), (signal))
ON_PROCESS(int, process_resize, (uint16_t rows, uint16_t columns), (rows, columns))
/* clang-format on */

int forward_check(struct op_context *ctx, struct workspace *w)
{
	ASK_BEFORE(w, check);
	return workspace_check(ctx, forward_of(w)->inner);
}

int forward_flush(struct op_context *ctx, struct open_file *file)
{
	ASK_BEFORE(file->workspace, flush);
	return workspace_flush(ctx, inner_file(file));
}

int forward_descriptor(struct open_file *file)
{
	return workspace_descriptor(inner_file(file));
}

int forward_process_close_stdin(struct op_context *ctx, struct process *process)
{
	ASK_BEFORE(process->workspace, process_close_stdin);
	return workspace_process_close_stdin(ctx, inner_process(process));
}

int forward_watch(struct workspace *w, change_sink sink, void *user)
{
	ASK_BEFORE(w, watch);
	return workspace_watch(forward_of(w)->inner, sink, user);
}

void forward_unwatch(struct workspace *w, const struct object_ref *directory)
{
	workspace_unwatch(forward_of(w)->inner, directory);
}

void forward_status(struct workspace *w, struct workspace_status *ret_status)
{
	workspace_status(forward_of(w)->inner, ret_status);
}

/* ---- What makes and frees ------------------------------------------------------------------- */

static struct forward_file *file_new(struct workspace *w)
{
	struct forward_file *file = calloc(1, sizeof(*file));

	if (file)
		file->file.workspace = w;
	return file;
}

static int hand_out(struct forward_file *file, int r, struct open_file **ret_file)
{
	if (r < 0)
		free(file);
	else
		*ret_file = &file->file;
	return r;
}

int forward_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	const struct object_ref inner = inner_object(object);
	struct forward_file *file;
	int r;

	ASK_BEFORE(w, open_file);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	r = workspace_open_file(
		ctx, forward_of(w)->inner, &inner, flags, &file->inner, ret_attributes);
	return hand_out(file, r, ret_file);
}

int forward_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct forward_file *file;
	int r;

	ASK_BEFORE(w, create);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	r = workspace_create(
		ctx, forward_of(w)->inner, path, flags, mode, &file->inner, ret_attributes);
	return hand_out(file, r, ret_file);
}

int forward_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct forward_file *file;
	int r;

	ASK_BEFORE(w, create_unnamed);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	r = workspace_create_unnamed(
		ctx, forward_of(w)->inner, directory, flags, mode, &file->inner, ret_attributes);
	return hand_out(file, r, ret_file);
}

int forward_close(struct op_context *ctx, struct open_file *file)
{
	int refused = ask_before(file->workspace, OPERATION_close);
	int r = workspace_close(ctx, inner_file(file));

	free(file);
	return refused < 0 ? refused : r;
}

int forward_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process)
{
	struct forward_process *process;
	int r;

	ASK_BEFORE(w, exec);
	process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	process->process.workspace = w;
	r = workspace_exec(ctx, forward_of(w)->inner, request, &process->inner);
	if (r < 0)
		free(process);
	else
		*ret_process = &process->process;
	return r;
}

void forward_process_free(struct process *process)
{
	workspace_process_free(inner_process(process));
	free(process);
}

void forward_free(struct workspace *w)
{
	workspace_free(forward_of(w)->inner);
	free(w);
}

#define ROW(prefix, name_) .name_ = prefix##_##name_,
const struct workspace_ops forward_ops = {.name = "forward", WORKSPACE_OPERATIONS(ROW, forward)};

#define MASK(inner, name_)        \
	if (!(inner)->ops->name_) \
		base->ops.name_ = NULL;

void forward_init(struct forward *base, struct workspace *inner, const struct workspace_ops *ops)
{
	base->inner = inner;
	base->ops = *ops;
	WORKSPACE_OPERATIONS(MASK, inner)
	base->ops.scan = ops->scan;
	base->workspace.ops = &base->ops;
}
