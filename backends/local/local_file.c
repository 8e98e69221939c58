#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/watch.h"

enum {
	PASSED_FLAGS = O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC | O_NOATIME,
	/* Never wait for a fifo that took the file's place. */
	ALWAYS_FLAGS = O_NONBLOCK | O_NOCTTY,
};

/* Before anything is made.  See open_files_max() in local.c. */
static int check_room(const struct local_workspace *w)
{
	return atomic_load(&w->open_files) < w->open_files_max ? 0 : -EMFILE;
}

static int file_new(struct workspace *w, int *fd, int flags, const struct attributes *attributes,
	uint64_t path_hash, struct open_file **ret_file)
{
	struct local_file *file = malloc(sizeof(*file));

	if (!file)
		return -ENOMEM;
	*file = (struct local_file){
		.base = {.workspace = w},
		.fd = steal_fd(fd),
		.access = flags & O_ACCMODE,
		.id = attributes->id,
		.path_hash = path_hash,
	};
	atomic_fetch_add(&local_from(w)->open_files, 1);
	*ret_file = &file->base;
	return 0;
}

/* ---- Opening ------------------------------------------------------------------------ */

static int open_with(const struct local_workspace *w, const struct object_ref *object, int flags)
{
	int fd;

	if (!object->file)
		return local_open_path(w, object->path, flags, 0);
	fd = open(local_fd_path(local_file_from(object->file)->fd).text, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int check_opened(const struct object_ref *object, const struct attributes *attributes)
{
	int r = object->file ? 0 : local_check_id(&object->id, attributes);

	if (r < 0)
		return r;
	if (S_ISDIR(attributes->mode))
		return -EISDIR;
	return S_ISREG(attributes->mode) ? 0 : -ENXIO;
}

/* Only now, as it is known to be the right file. */
static int truncate_opened(struct op_context *ctx, int fd, int flags, struct attributes *attributes)
{
	int r;

	if ((flags & O_ACCMODE) != O_RDONLY)
		r = ftruncate(fd, 0);
	else
		r = truncate(local_fd_path(fd).text, 0);
	if (r < 0)
		return -errno;
	local_draw(ctx);
	return local_stat_fd(fd, attributes);
}

int local_open_file(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	int open_flags = (flags & PASSED_FLAGS) | ALWAYS_FLAGS;
	uint64_t path_hash = object->file ? local_file_from(object->file)->path_hash
					  : watcher_path_hash(object->path);
	struct attributes attributes;
	cleanup_fd int fd = -1;
	int r;

	r = check_room(w);
	if (r < 0)
		return r;
	local_draw(ctx);
	fd = open_with(w, object, open_flags);
	if (fd == -EPERM && (open_flags & O_NOATIME))
		fd = open_with(w, object, open_flags & ~O_NOATIME);
	if (fd < 0)
		return fd;
	r = local_stat_fd(fd, &attributes);
	if (r == 0)
		r = check_opened(object, &attributes);
	if (r == 0 && (flags & O_TRUNC)) {
		local_changing_object(w, object);
		r = truncate_opened(ctx, fd, flags, &attributes);
	}
	if (r < 0)
		return r;
	if ((flags & O_ACCMODE) != O_RDONLY)
		local_tell_room(ctx, fd);
	r = file_new(workspace, &fd, flags, &attributes, path_hash, ret_file);
	if (r == 0)
		*ret_attributes = attributes;
	return r;
}

static int open_new(struct op_context *ctx, struct workspace *workspace, int base_fd,
	const char *path, int flags, uint32_t mode, uint64_t path_hash, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	struct attributes attributes;
	cleanup_fd int fd = -1;
	int r = check_room(w);

	if (r < 0)
		return r;
	{
		cleanup_guise struct local_guise guise = local_act_as(w, ctx);

		fd = local_open_below(w, base_fd, path, flags, mode & ~guise.mask);
	}
	if (fd < 0)
		return fd;
	local_draw(ctx);
	r = local_stat_fd(fd, &attributes);
	local_tell_room(ctx, fd);
	if (r == 0)
		r = file_new(workspace, &fd, flags, &attributes, path_hash, ret_file);
	if (r == 0)
		*ret_attributes = attributes;
	return r;
}

int local_create(struct op_context *ctx, struct workspace *workspace, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_parent struct local_parent parent = {.owned_fd = -1};
	int r;

	flags = (flags & PASSED_FLAGS & ~O_NOATIME) | ALWAYS_FLAGS | O_CREAT | O_EXCL;
	local_draw(ctx);
	r = local_parent_open(w, path, &ctx->parent, &parent);
	if (r < 0)
		return r;
	local_changing(w, path);
	r = open_new(ctx, workspace, parent.fd, parent.name, flags, mode, watcher_path_hash(path),
		ret_file, ret_attributes);
	if (r == 0)
		local_tell_name(ctx, &parent, &ret_attributes->id);
	return r;
}

int local_create_unnamed(struct op_context *ctx, struct workspace *workspace, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	cleanup_fd int fd = -1;
	int r;

	local_draw(ctx);
	fd = local_open_path(local_from(workspace), directory, O_PATH | O_DIRECTORY, 0);
	r = fd < 0 ? fd : local_check_directory(fd, &ctx->parent);
	if (r < 0)
		return r;
	flags = (flags & (PASSED_FLAGS | O_EXCL) & ~O_NOATIME) | ALWAYS_FLAGS | O_TMPFILE;
	return open_new(ctx, workspace, fd, ".", flags, mode, 0, ret_file, ret_attributes);
}

int local_close(struct op_context *ctx, struct open_file *open_file)
{
	struct local_workspace *w = local_from(open_file->workspace);
	struct local_file *file = local_file_from(open_file);
	int r;

	(void)ctx;
	if (file->had_lock)
		local_drain(w);
	local_locks_forget_file(w->locks, file);
	if (file->access != O_RDONLY)
		local_closing_file(file);
	r = close(file->fd) < 0 && errno != EINTR ? -errno : 0;
	atomic_fetch_sub(&w->open_files, 1);
	free(file);
	return r;
}

/* ---- Data ----------------------------------------------------------------------------- */

ssize_t local_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	int fd = local_file_from(file)->fd;
	size_t done = 0;

	local_draw(ctx);
	do {
		ssize_t got = pread(fd, (char *)data + done, size - done, offset + (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return done ? (ssize_t)done : -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	} while (done < size);
	return (ssize_t)done;
}

static ssize_t write_all(int fd, const void *data, size_t size, off_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t put =
			pwrite(fd, (const char *)data + done, size - done, offset + (off_t)done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return done ? (ssize_t)done : put < 0 ? -errno : -EIO;
		done += (size_t)put;
	}
	return (ssize_t)done;
}

/* The content of the file has changed: fills in its attributes. */
static void tell_written(struct op_context *ctx, int fd)
{
	local_draw(ctx);
	local_tell_object(ctx, fd);
	local_tell_room(ctx, fd);
}

ssize_t local_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	const struct local_file *f = local_file_from(file);
	ssize_t written;

	local_changing_file(f);
	written = write_all(f->fd, data, size, offset);
	if (written >= 0)
		tell_written(ctx, f->fd);
	return written;
}

int local_fsync(struct op_context *ctx, struct workspace *workspace, struct open_file *file,
	const char *path, bool data_only)
{
	cleanup_fd int owned_fd = -1;
	int fd, r;

	(void)ctx;
	if (file) {
		fd = local_file_from(file)->fd;
	} else {
		fd = owned_fd =
			local_open_path(local_from(workspace), path, O_RDONLY | O_DIRECTORY, 0);
		if (fd < 0)
			return fd;
	}
	r = data_only ? fdatasync(fd) : fsync(fd);
	return r < 0 ? -errno : 0;
}

int local_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	int fd = local_file_from(file)->fd;
	int r;

	local_changing_file(local_file_from(file));
	do {
		r = fallocate(fd, (int)mode, offset, length);
	} while (r < 0 && errno == EINTR && !op_interrupted(ctx));
	if (r < 0)
		return -errno;
	tell_written(ctx, fd);
	return 0;
}

/* Moves the descriptor's own offset, which nothing else uses. */
int local_descriptor(struct open_file *open_file)
{
	return local_file_from(open_file)->fd;
}

off_t local_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	off_t found = lseek(local_file_from(file)->fd, offset, whence);

	(void)ctx;
	return found < 0 ? -errno : found;
}

ssize_t local_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	int fd = local_file_from(to)->fd;
	ssize_t done;

	local_changing_file(local_file_from(to));
	done = copy_file_range(local_file_from(from)->fd, &from_offset, fd, &to_offset, size, 0);
	if (done < 0)
		return -errno;
	tell_written(ctx, fd);
	return done;
}
