#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- setattr ------------------------------------------------------------------------ */

/*
 * Where there is a handle, its descriptor serves.  Else /proc/self/fd does: it takes O_PATH
 * descriptors, and leads to the very object whose identity was checked.
 */
static int set_size(const struct object_ref *object, const struct local_object *found, off_t size)
{
	if (object->file && local_file_from(object->file)->access != O_RDONLY)
		return ftruncate(found->fd, size) < 0 ? -errno : 0;
	return truncate(local_fd_path(found->fd).text, size) < 0 ? -errno : 0;
}

static int set_mode(const struct local_object *found, mode_t mode)
{
	int r;

	if (S_ISLNK(found->attributes.mode))
		return -EOPNOTSUPP;
	r = found->is_handle ? fchmod(found->fd, mode) : chmod(local_fd_path(found->fd).text, mode);
	return r < 0 ? -errno : 0;
}

static struct timespec time_to_set(bool now, bool given, const struct timespec *time)
{
	if (now)
		return (struct timespec){.tv_nsec = UTIME_NOW};
	return given ? *time : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(const struct local_object *found, unsigned mask, const struct attributes *want)
{
	const struct timespec times[2] = {
		time_to_set(mask & SET_ATIME_NOW, mask & SET_ATIME, &want->atime),
		time_to_set(mask & SET_MTIME_NOW, mask & SET_MTIME, &want->mtime),
	};
	int r;

	if (found->is_handle)
		r = futimens(found->fd, times);
	else
		r = utimensat(AT_FDCWD, local_fd_path(found->fd).text, times, 0);
	return r < 0 ? -errno : 0;
}

static int set_owner(int fd, unsigned mask, const struct attributes *want)
{
	uid_t uid = mask & SET_UID ? want->uid : (uid_t)-1;
	gid_t gid = mask & SET_GID ? want->gid : (gid_t)-1;

	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int local_setattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_object_open(w, object, &found);
	if (r < 0)
		return r;
	local_changing_object(w, object);
	/* The size first, as it is what may be refused; the owner before the mode, as a change
	 * of owner clears set-user-ID. */
	if (mask & SET_SIZE)
		r = set_size(object, &found, (off_t)want->size_bytes);
	if (r == 0 && (mask & (SET_UID | SET_GID)))
		r = set_owner(found.fd, mask, want);
	if (r == 0 && (mask & SET_MODE))
		r = set_mode(&found, want->mode & 07777);
	if (r == 0 && (mask & (SET_ATIME | SET_MTIME | SET_ATIME_NOW | SET_MTIME_NOW)))
		r = set_times(&found, mask, want);
	if (r < 0)
		return r;
	local_draw(ctx);
	return local_stat_fd(found.fd, ret_attributes);
}

/* ---- Extended attributes --------------------------------------------------------------- */

ssize_t local_getxattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	cleanup_object struct local_object found = {.owned_fd = -1};
	ssize_t got;
	int r;

	local_draw(ctx);
	r = local_object_open(local_from(workspace), object, &found);
	if (r < 0)
		return r;
	got = found.is_handle ? fgetxattr(found.fd, name, value, size)
			      : getxattr(local_fd_path(found.fd).text, name, value, size);
	return got < 0 ? -errno : got;
}

ssize_t local_listxattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, char *names, size_t size)
{
	cleanup_object struct local_object found = {.owned_fd = -1};
	ssize_t got;
	int r;

	local_draw(ctx);
	r = local_object_open(local_from(workspace), object, &found);
	if (r < 0)
		return r;
	got = found.is_handle ? flistxattr(found.fd, names, size)
			      : listxattr(local_fd_path(found.fd).text, names, size);
	return got < 0 ? -errno : got;
}

int local_setxattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, const char *name, const void *value, size_t size,
	unsigned flags)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	int kernel_flags = (flags & XATTR_MUST_CREATE ? XATTR_CREATE : 0) |
			   (flags & XATTR_MUST_REPLACE ? XATTR_REPLACE : 0);
	int r;

	local_draw(ctx);
	r = local_object_open(w, object, &found);
	if (r < 0)
		return r;
	local_changing_object(w, object);
	if (setxattr(local_fd_path(found.fd).text, name, value, size, kernel_flags) < 0)
		return -errno;
	local_draw(ctx);
	local_tell_object(ctx, found.fd);
	return 0;
}

int local_removexattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, const char *name)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_object_open(w, object, &found);
	if (r < 0)
		return r;
	local_changing_object(w, object);
	if (removexattr(local_fd_path(found.fd).text, name) < 0)
		return -errno;
	local_draw(ctx);
	local_tell_object(ctx, found.fd);
	return 0;
}
