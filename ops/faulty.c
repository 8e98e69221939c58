#include "ops/faulty.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/decorator.h"
#include "ops/support/cleanup.h"

/* Every operation that can fail. */
#define OPERATIONS(X)         \
	X(getattr)            \
	X(readdir)            \
	X(scan)               \
	X(readlink)           \
	X(mkdir)              \
	X(mknod)              \
	X(symlink)            \
	X(link)               \
	X(unlink)             \
	X(rmdir)              \
	X(rename)             \
	X(setattr)            \
	X(getxattr)           \
	X(listxattr)          \
	X(setxattr)           \
	X(removexattr)        \
	X(statfs)             \
	X(open)               \
	X(create)             \
	X(create_unnamed)     \
	X(read)               \
	X(write)              \
	X(flush)              \
	X(fsync)              \
	X(close)              \
	X(fallocate)          \
	X(seek)               \
	X(copy_range)         \
	X(lock)               \
	X(lock_test)          \
	X(lock_release_owner) \
	X(exec)               \
	X(process_next)       \
	X(process_write)      \
	X(process_close_stdin) X(process_signal) X(process_resize) X(watch) X(watch_directory)

enum operation {
#define ENUMERATE(name) CALL_##name,
	OPERATIONS(ENUMERATE)
#undef ENUMERATE
		CALL_COUNT
};

/* free, status, unwatch and process_free cannot fail; descriptor would lead past the faults;
 * nothing else is missing above. */
_Static_assert(CALL_COUNT + 5 == DECORATOR_SLOTS, "a row for every operation");

static const char *const operation_names[] = {
#define NAME(name) #name,
	OPERATIONS(NAME)
#undef NAME
};

static const struct {
	const char *name;
	int value;
} errors[] = {
#define ROW(name)           \
	{                   \
#name, name \
	}
	ROW(EACCES),
	ROW(EAGAIN),
	ROW(EBADF),
	ROW(EBUSY),
	ROW(EDQUOT),
	ROW(EEXIST),
	ROW(EFBIG),
	ROW(EINTR),
	ROW(EINVAL),
	ROW(EIO),
	ROW(EISDIR),
	ROW(ELOOP),
	ROW(EMFILE),
	ROW(EMLINK),
	ROW(ENAMETOOLONG),
	ROW(ENFILE),
	ROW(ENODATA),
	ROW(ENOENT),
	ROW(ENOMEM),
	ROW(ENOSPC),
	ROW(ENOTCONN),
	ROW(ENOTDIR),
	ROW(ENOTEMPTY),
	ROW(ENXIO),
	ROW(EOPNOTSUPP),
	ROW(EPERM),
	ROW(EPIPE),
	ROW(ERANGE),
	ROW(EROFS),
	ROW(ESRCH),
	ROW(ESTALE),
	ROW(ETXTBSY),
	ROW(EXDEV),
#undef ROW
};

struct fault {
	struct fault *next;
	enum operation operation;
	uint64_t first, last; /* calls that fail, counted from 1 */
	int error;
};

struct faulty {
	struct workspace workspace;
	struct workspace_ops ops;
	struct workspace *inner;
	struct fault *faults;
	atomic_uint_fast64_t calls[CALL_COUNT];
};

struct faulty_file {
	struct open_file file;
	struct open_file *inner;
};

struct faulty_process {
	struct process process;
	struct process *inner;
};

static struct faulty *faulty_of(struct workspace *w)
{
	return (struct faulty *)w;
}

static struct open_file *inner_file(struct open_file *file)
{
	return file ? ((struct faulty_file *)file)->inner : NULL;
}

static struct process *inner_process(struct process *process)
{
	return ((struct faulty_process *)process)->inner;
}

static struct object_ref inner_object(const struct object_ref *object)
{
	struct object_ref inner = *object;

	inner.file = inner_file(object->file);
	return inner;
}

/* ---- The specification ---------------------------------------------------------- */

static void faults_free(struct fault *fault)
{
	while (fault) {
		struct fault *next = fault->next;

		free(fault);
		fault = next;
	}
}

static int parse_operation(const char *name, enum operation *ret_operation)
{
	for (size_t i = 0; i < CALL_COUNT; i++)
		if (strcmp(operation_names[i], name) == 0) {
			*ret_operation = (enum operation)i;
			return 0;
		}
	return -EINVAL;
}

static int parse_error(const char *name, int *ret_error)
{
	for (size_t i = 0; i < array_size(errors); i++)
		if (strcmp(errors[i].name, name) == 0) {
			*ret_error = -errors[i].value;
			return 0;
		}
	return -EINVAL;
}

/* One "OPERATION:N:ERRNO"; the text is cut up. */
static int parse_fault(char *text, struct fault *ret_fault)
{
	char *saved, *end;
	const char *name = strtok_r(text, ":", &saved);
	const char *number = strtok_r(NULL, ":", &saved);
	const char *error = strtok_r(NULL, "", &saved);
	int r;

	if (!name || !number || !error)
		return -EINVAL;
	ret_fault->first = ret_fault->last = strtoull(number, &end, 10);
	if (strcmp(end, "+") == 0)
		ret_fault->last = UINT64_MAX;
	else if (*end)
		return -EINVAL;
	r = parse_operation(name, &ret_fault->operation);
	return r < 0 || ret_fault->first == 0 ? -EINVAL : parse_error(error, &ret_fault->error);
}

static int parse_faults(const char *specification, struct fault **ret_faults)
{
	cleanup_free char *copy = strdup(specification);
	struct fault *faults = NULL;
	char *saved;
	int r = copy ? 0 : -ENOMEM;

	for (char *text = copy ? strtok_r(copy, ",", &saved) : NULL; r == 0 && text;
		text = strtok_r(NULL, ",", &saved)) {
		struct fault *fault = calloc(1, sizeof(*fault));

		r = fault ? parse_fault(text, fault) : -ENOMEM;
		if (fault) {
			fault->next = faults;
			faults = fault;
		}
	}
	if (r < 0) {
		faults_free(faults);
		return r;
	}
	*ret_faults = faults;
	return 0;
}

/* Counts the call; the error it is to fail with, or 0. */
static int enter(struct workspace *w, enum operation operation)
{
	struct faulty *faulty = faulty_of(w);
	uint64_t call = atomic_fetch_add(&faulty->calls[operation], 1) + 1;

	for (const struct fault *fault = faulty->faults; fault; fault = fault->next)
		if (fault->operation == operation && call >= fault->first && call <= fault->last)
			return fault->error;
	return 0;
}

/* Enters and returns the error from the caller, if there is to be one. */
#define ENTER(workspace, operation)                                \
	do {                                                       \
		int fault_ = enter((workspace), CALL_##operation); \
		if (fault_ < 0)                                    \
			return fault_;                             \
	} while (0)

/* ---- Names ---------------------------------------------------------------------------- */

static int faulty_getattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, getattr);
	return workspace_getattr(ctx, faulty_of(w)->inner, &inner, ret_attributes);
}

static int faulty_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	struct object_ref inner = inner_object(directory);

	ENTER(w, readdir);
	return workspace_readdir(ctx, faulty_of(w)->inner, &inner, watch, sink, user, ret_since);
}

static int faulty_scan(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct object_ref inner = inner_object(directory);

	ENTER(w, scan);
	return workspace_scan(ctx, faulty_of(w)->inner, &inner, request, sink, user);
}

static int faulty_readlink(struct op_context *ctx, struct workspace *w,
	const struct object_ref *link, char **ret_target)
{
	struct object_ref inner = inner_object(link);

	ENTER(w, readlink);
	return workspace_readlink(ctx, faulty_of(w)->inner, &inner, ret_target);
}

static int faulty_mkdir(struct op_context *ctx, struct workspace *w, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	ENTER(w, mkdir);
	return workspace_mkdir(ctx, faulty_of(w)->inner, path, mode, ret_attributes);
}

static int faulty_mknod(struct op_context *ctx, struct workspace *w, const char *path,
	uint32_t mode, uint64_t rdev, struct attributes *ret_attributes)
{
	ENTER(w, mknod);
	return workspace_mknod(ctx, faulty_of(w)->inner, path, mode, rdev, ret_attributes);
}

static int faulty_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	ENTER(w, symlink);
	return workspace_symlink(ctx, faulty_of(w)->inner, target, path, ret_attributes);
}

static int faulty_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, link);
	return workspace_link(ctx, faulty_of(w)->inner, &inner, path, ret_attributes);
}

static int faulty_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	ENTER(w, unlink);
	return workspace_unlink(ctx, faulty_of(w)->inner, path, expected);
}

static int faulty_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	ENTER(w, rmdir);
	return workspace_rmdir(ctx, faulty_of(w)->inner, path, expected);
}

static int faulty_rename(struct op_context *ctx, struct workspace *w, const char *from,
	const char *to, unsigned flags, const struct object_id *expected)
{
	ENTER(w, rename);
	return workspace_rename(ctx, faulty_of(w)->inner, from, to, flags, expected);
}

static int faulty_setattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, setattr);
	return workspace_setattr(ctx, faulty_of(w)->inner, &inner, mask, want, ret_attributes);
}

static ssize_t faulty_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, getxattr);
	return workspace_getxattr(ctx, faulty_of(w)->inner, &inner, name, value, size);
}

static ssize_t faulty_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, listxattr);
	return workspace_listxattr(ctx, faulty_of(w)->inner, &inner, names, size);
}

static int faulty_setxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, const void *value, size_t size,
	unsigned flags)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, setxattr);
	return workspace_setxattr(ctx, faulty_of(w)->inner, &inner, name, value, size, flags);
}

static int faulty_removexattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name)
{
	struct object_ref inner = inner_object(object);

	ENTER(w, removexattr);
	return workspace_removexattr(ctx, faulty_of(w)->inner, &inner, name);
}

static int faulty_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	ENTER(w, statfs);
	return workspace_statfs(ctx, faulty_of(w)->inner, ret_stats);
}

/* ---- Open files --------------------------------------------------------------------------- */

static struct faulty_file *file_new(struct workspace *w)
{
	struct faulty_file *file = calloc(1, sizeof(*file));

	if (file)
		file->file.workspace = w;
	return file;
}

static int hand_out(struct faulty_file *file, int r, struct open_file **ret_file)
{
	if (r < 0)
		free(file);
	else
		*ret_file = &file->file;
	return r;
}

static int faulty_open(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct object_ref inner = inner_object(object);
	struct faulty_file *file;

	ENTER(w, open);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	return hand_out(file,
		workspace_open_file(
			ctx, faulty_of(w)->inner, &inner, flags, &file->inner, ret_attributes),
		ret_file);
}

static int faulty_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct faulty_file *file;

	ENTER(w, create);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	return hand_out(file,
		workspace_create(
			ctx, faulty_of(w)->inner, path, flags, mode, &file->inner, ret_attributes),
		ret_file);
}

static int faulty_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct faulty_file *file;

	ENTER(w, create_unnamed);
	file = file_new(w);
	if (!file)
		return -ENOMEM;
	return hand_out(file,
		workspace_create_unnamed(ctx, faulty_of(w)->inner, directory, flags, mode,
			&file->inner, ret_attributes),
		ret_file);
}

static ssize_t faulty_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	ENTER(file->workspace, read);
	return workspace_read(ctx, inner_file(file), data, size, offset);
}

static ssize_t faulty_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	ENTER(file->workspace, write);
	return workspace_write(ctx, inner_file(file), data, size, offset);
}

static int faulty_flush(struct op_context *ctx, struct open_file *file)
{
	ENTER(file->workspace, flush);
	return workspace_flush(ctx, inner_file(file));
}

static int faulty_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only)
{
	ENTER(w, fsync);
	return file ? workspace_fsync(ctx, inner_file(file), data_only)
		    : workspace_fsync_directory(ctx, faulty_of(w)->inner, path, data_only);
}

static int faulty_close(struct op_context *ctx, struct open_file *file)
{
	int fault = enter(file->workspace, CALL_close);
	int r = workspace_close(ctx, inner_file(file));

	free(file);
	return fault < 0 ? fault : r;
}

static int faulty_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	ENTER(file->workspace, fallocate);
	return workspace_fallocate(ctx, inner_file(file), mode, offset, length);
}

static off_t faulty_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	ENTER(file->workspace, seek);
	return workspace_seek(ctx, inner_file(file), offset, whence);
}

static ssize_t faulty_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	ENTER(from->workspace, copy_range);
	return workspace_copy_range(
		ctx, inner_file(from), from_offset, inner_file(to), to_offset, size);
}

static int faulty_lock(
	struct op_context *ctx, struct open_file *file, const struct file_lock *lock, bool wait)
{
	ENTER(file->workspace, lock);
	return workspace_lock(ctx, inner_file(file), lock, wait);
}

static int faulty_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock)
{
	ENTER(file->workspace, lock_test);
	return workspace_lock_test(ctx, inner_file(file), lock);
}

static int faulty_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner)
{
	ENTER(file->workspace, lock_release_owner);
	return workspace_lock_release_owner(ctx, inner_file(file), owner);
}

/* ---- Processes ------------------------------------------------------------------------------ */

static int faulty_exec(struct op_context *ctx, struct workspace *w,
	const struct exec_request *request, struct process **ret_process)
{
	struct faulty_process *process;
	int r;

	ENTER(w, exec);
	process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	process->process.workspace = w;
	r = workspace_exec(ctx, faulty_of(w)->inner, request, &process->inner);
	if (r < 0)
		free(process);
	else
		*ret_process = &process->process;
	return r;
}

static int faulty_process_next(struct op_context *ctx, struct process *process, void *buffer,
	size_t size, struct exec_event *ret_event)
{
	ENTER(process->workspace, process_next);
	return workspace_process_next(ctx, inner_process(process), buffer, size, ret_event);
}

static ssize_t faulty_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	ENTER(process->workspace, process_write);
	return workspace_process_write(ctx, inner_process(process), data, size);
}

static int faulty_process_close_stdin(struct op_context *ctx, struct process *process)
{
	ENTER(process->workspace, process_close_stdin);
	return workspace_process_close_stdin(ctx, inner_process(process));
}

static int faulty_process_signal(struct op_context *ctx, struct process *process, int signal)
{
	ENTER(process->workspace, process_signal);
	return workspace_process_signal(ctx, inner_process(process), signal);
}

static int faulty_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	ENTER(process->workspace, process_resize);
	return workspace_process_resize(ctx, inner_process(process), rows, columns);
}

static void faulty_process_free(struct process *process)
{
	workspace_process_free(inner_process(process));
	free(process);
}

/* ---- The workspace ---------------------------------------------------------------- */

static int faulty_watch(struct workspace *w, change_sink sink, void *user)
{
	ENTER(w, watch);
	return workspace_watch(faulty_of(w)->inner, sink, user);
}

static int faulty_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched)
{
	ENTER(w, watch_directory);
	return workspace_watch_directory(ctx, faulty_of(w)->inner, directory, ret_watched);
}

static void faulty_unwatch(struct workspace *w, const struct object_ref *directory)
{
	workspace_unwatch(faulty_of(w)->inner, directory);
}

static void faulty_status(struct workspace *w, struct workspace_status *ret_status)
{
	workspace_status(faulty_of(w)->inner, ret_status);
}

static void faulty_free(struct workspace *w)
{
	struct faulty *faulty = faulty_of(w);

	workspace_free(faulty->inner);
	faults_free(faulty->faults);
	free(faulty);
}

static const struct workspace_ops faulty_ops = {.name = "faulty",
	.free = faulty_free,
	.status = faulty_status,
	.unwatch = faulty_unwatch,
	.process_free = faulty_process_free,
#define ENTRY(name) .name = faulty_##name,
	OPERATIONS(ENTRY)
#undef ENTRY
};

int faulty_new(struct workspace *inner, const char *specification, struct workspace **ret_workspace)
{
	struct faulty *faulty = calloc(1, sizeof(*faulty));
	int r;

	if (!faulty)
		return -ENOMEM;
	r = parse_faults(specification, &faulty->faults);
	if (r < 0) {
		free(faulty);
		return r;
	}
	faulty->ops = faulty_ops;
	decorator_mask_operations(&faulty->ops, inner->ops);
	faulty->workspace.ops = &faulty->ops;
	faulty->inner = inner;
	*ret_workspace = &faulty->workspace;
	return 0;
}

int faulty_set(struct workspace *w, const char *specification)
{
	struct faulty *faulty = faulty_of(w);
	struct fault *faults;
	int r = parse_faults(specification, &faults);

	if (r < 0)
		return r;
	faults_free(faulty->faults);
	faulty->faults = faults;
	for (size_t i = 0; i < CALL_COUNT; i++)
		atomic_store(&faulty->calls[i], 0);
	return 0;
}

uint64_t faulty_calls(struct workspace *w, const char *operation)
{
	struct faulty *faulty = faulty_of(w);
	uint64_t calls = 0;

	for (size_t i = 0; i < CALL_COUNT; i++)
		if (!operation || strcmp(operation_names[i], operation) == 0)
			calls += atomic_load(&faulty->calls[i]);
	return calls;
}
