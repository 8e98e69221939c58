#include "backends/local/local_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/local/watch.h"
#include "ops/support/path.h"

static int stat_in(const struct local_workspace *w, const char *path,
	const struct object_id *directory, struct attributes *ret_attributes)
{
	cleanup_parent struct local_parent parent = {.owned_fd = -1};
	int r = local_parent_open(w, path, directory, &parent);

	return r < 0 ? r : local_stat_name(parent.fd, parent.name, ret_attributes);
}

int local_getattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	struct attributes attributes;
	int r;

	local_draw(ctx);
	if (object->file)
		return local_stat_fd(local_file_from(object->file)->fd, ret_attributes);
	if (object->parent.inode && !object->id.inode && strchr(object->path, '/'))
		return stat_in(w, object->path, &object->parent, ret_attributes);
	/* A plain statx follows links in the middle of the path: fine when there is no middle,
	 * or when what it found is the very object that was asked for. */
	if (*object->path && (object->id.inode || !strchr(object->path, '/'))) {
		r = local_stat_name(w->root_fd, object->path, &attributes);
		if (r == 0 && (!object->id.inode || object_id_equal(&object->id, &attributes.id))) {
			*ret_attributes = attributes;
			return 0;
		}
	}
	r = local_object_open(w, object, &found);
	if (r == 0)
		*ret_attributes = found.attributes;
	return r;
}

/* ---- Directories ------------------------------------------------------------------ */

enum { DIRENT_BUFFER_BYTES = 32 * 1024 };

/* As getdents64(2) lays it out; not every libc declares it. */
struct kernel_dirent {
	uint64_t inode;
	int64_t offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

/* Without search permission the names can be read, but not their attributes. */
static struct attributes attributes_from_dirent(
	const struct kernel_dirent *entry, const struct object_id *directory)
{
	return (struct attributes){
		.id = {.device = directory->device, .inode = entry->inode},
		.mode = DTTOIF(entry->type),
		.nlink = 1,
		.block_size_bytes = 4096,
	};
}

static int emit_entry(int fd, const struct kernel_dirent *kernel_entry,
	const struct object_id *directory, dir_entry_sink sink, void *user)
{
	struct dir_entry entry = {.path = kernel_entry->name};
	int r;

	if (!path_is_name(kernel_entry->name))
		return 0;
	r = local_stat_name(fd, kernel_entry->name, &entry.attributes);
	if (r == -EACCES)
		entry.attributes = attributes_from_dirent(kernel_entry, directory);
	else if (r < 0)
		return r == -ENOENT || r == -ESTALE ? 0 : r;
	return sink(user, &entry);
}

static int emit_entries(struct op_context *ctx, int fd, const struct object_id *directory,
	dir_entry_sink sink, void *user)
{
	cleanup_free char *data = malloc(DIRENT_BUFFER_BYTES);

	if (!data)
		return -ENOMEM;
	for (;;) {
		long got = syscall(SYS_getdents64, fd, data, DIRENT_BUFFER_BYTES);

		if (got <= 0)
			return got < 0 ? -errno : 0;
		for (long at = 0; at < got;) {
			const struct kernel_dirent *entry = (const void *)(data + at);
			int r = emit_entry(fd, entry, directory, sink, user);

			if (r < 0)
				return r;
			at += entry->size;
		}
		if (op_interrupted(ctx))
			return -EINTR;
	}
}

int local_readdir(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	const struct local_workspace *w = local_from(workspace);
	uint64_t since = 0;
	cleanup_fd int fd = -1;
	struct attributes attributes;
	int r;

	local_draw(ctx);
	fd = local_open_path(w, directory->path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	r = local_stat_fd(fd, &attributes);
	if (r == 0)
		r = local_check_id(&directory->id, &attributes);
	if (r < 0)
		return r;
	if (watch)
		since = local_watch_fd(ctx, w, fd, directory->path, &attributes.id);
	else
		local_draw(ctx);
	r = emit_entries(ctx, fd, &attributes.id, sink, user);
	if (r < 0)
		return r;
	*ret_since = since;
	return 0;
}

/* ---- Links ---------------------------------------------------------------------- */

int local_readlink(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *link, char **ret_target)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	char target[PATH_MAX];
	ssize_t length;
	int r;

	local_draw(ctx);
	r = local_object_open(w, link, &found);
	if (r < 0)
		return r;
	if (!S_ISLNK(found.attributes.mode))
		return -EINVAL;
	length = readlinkat(found.fd, "", target, sizeof(target));
	if (length < 0)
		return -errno;
	*ret_target = strndup(target, (size_t)length);
	return *ret_target ? 0 : -ENOMEM;
}

int local_link(struct op_context *ctx, struct workspace *workspace, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	cleanup_parent struct local_parent parent = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_object_open(w, object, &found);
	if (r == 0)
		r = local_parent_open(w, path, &ctx->new_parent, &parent);
	if (r < 0)
		return r;
	local_changing_object(w, object);
	local_changing(w, path);
	if (linkat(AT_FDCWD, local_fd_path(found.fd).text, parent.fd, parent.name,
		    AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	local_draw(ctx);
	r = local_stat_fd(found.fd, ret_attributes);
	if (r == 0)
		local_tell_name(ctx, &parent, &ret_attributes->id);
	return r;
}

/* ---- New names -------------------------------------------------------------------- */

/* `target`: of a symbolic link; NULL: what the file type in `mode` says. */
static int make(struct op_context *ctx, struct workspace *workspace, const char *path, mode_t mode,
	dev_t rdev, const char *target, struct attributes *ret_attributes)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_parent struct local_parent parent = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_parent_open(w, path, &ctx->parent, &parent);
	if (r < 0)
		return r;
	local_changing(w, path);
	{
		cleanup_guise struct local_guise guise = local_act_as(w, ctx);

		if (target)
			r = symlinkat(target, parent.fd, parent.name);
		else if (S_ISDIR(mode))
			r = mkdirat(parent.fd, parent.name, mode & 07777 & ~guise.mask);
		else
			r = mknodat(parent.fd, parent.name, mode & ~guise.mask, rdev);
		if (r < 0)
			return -errno;
	}
	local_draw(ctx);
	if (ctx->facts)
		local_stat_fd(parent.fd, &ctx->facts->parent);
	return local_stat_name(parent.fd, parent.name, ret_attributes);
}

int local_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	return make(ctx, w, path, S_IFDIR | mode, 0, NULL, ret_attributes);
}

int local_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	return S_ISDIR(mode) ? -EPERM : make(ctx, w, path, mode, (dev_t)rdev, NULL, ret_attributes);
}

int local_symlink(struct op_context *ctx, struct workspace *w, const char *target, const char *path,
	struct attributes *ret_attributes)
{
	return make(ctx, w, path, 0, 0, target, ret_attributes);
}

/* ---- Names that go ------------------------------------------------------------------ */

static int check_name(const struct local_parent *parent, const struct object_id *expected)
{
	struct attributes attributes;
	int r;

	if (!expected->inode)
		return 0;
	r = local_stat_name(parent->fd, parent->name, &attributes);
	return r < 0 ? r : local_check_id(expected, &attributes);
}

static int remove_name(struct op_context *ctx, const struct local_workspace *w, const char *path,
	const struct object_id *expected, int flags)
{
	cleanup_parent struct local_parent parent = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_parent_open(w, path, &ctx->parent, &parent);
	if (r == 0)
		r = check_name(&parent, expected);
	if (r < 0)
		return r;
	local_changing(w, path);
	if (unlinkat(parent.fd, parent.name, flags) < 0)
		return -errno;
	local_draw(ctx);
	local_tell_name(ctx, &parent, NULL);
	return 0;
}

int local_unlink(struct op_context *ctx, struct workspace *workspace, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, local_from(workspace), path, expected, 0);
}

int local_rmdir(struct op_context *ctx, struct workspace *workspace, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, local_from(workspace), path, expected, AT_REMOVEDIR);
}

/* Without a watch there is no event of it. */
static void move_watches(
	const struct local_workspace *w, const struct local_parent *parent, const char *path)
{
	struct attributes moved, holder;

	if (local_stat_name(parent->fd, parent->name, &moved) == 0 && S_ISDIR(moved.mode) &&
		local_stat_fd(parent->fd, &holder) == 0)
		watcher_moved(w->watcher, path, &moved.id, &holder.id);
}

/* A whiteout is a new object. */
static int rename_at(const struct local_workspace *w, const struct op_context *ctx,
	const struct local_parent *from, const struct local_parent *to, unsigned flags)
{
	unsigned kernel_flags = (flags & RENAME_KEEP_TARGET ? RENAME_NOREPLACE : 0) |
				(flags & RENAME_SWAP ? RENAME_EXCHANGE : 0) |
				(flags & RENAME_LEAVE_WHITEOUT ? RENAME_WHITEOUT : 0);
	cleanup_guise struct local_guise guise = {0};

	if (flags & RENAME_LEAVE_WHITEOUT)
		guise = local_act_as(w, ctx);
	if (syscall(SYS_renameat2, from->fd, from->name, to->fd, to->name, kernel_flags) < 0)
		return -errno;
	return 0;
}

/* What two names led to before a rename, for its facts. */
struct before {
	struct attributes moved, target;
};

static int look_before(const struct local_parent *from, const struct local_parent *to,
	unsigned flags, struct before *before)
{
	int r = local_stat_name(from->fd, from->name, &before->moved);

	if (r == 0 && (flags & RENAME_SWAP))
		r = local_stat_name(to->fd, to->name, &before->target);
	return r;
}

static void tell_moved(struct op_context *ctx, const struct local_parent *from,
	const struct local_parent *to, unsigned flags, const struct before *before)
{
	struct attributes *object = &ctx->facts->object;

	local_tell_name(ctx, from, flags & RENAME_SWAP ? &before->target.id : NULL);
	if (!ctx->facts->parent.mode)
		return;
	local_stat_fd(to->fd, &ctx->facts->new_parent);
	if (local_stat_name(to->fd, to->name, object) < 0 ||
		!object_id_equal(&object->id, &before->moved.id))
		*ctx->facts = (struct facts){0};
}

int local_rename(struct op_context *ctx, struct workspace *workspace, const char *from,
	const char *to, unsigned flags, const struct object_id *expected)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_parent struct local_parent old_parent = {.owned_fd = -1};
	cleanup_parent struct local_parent new_parent = {.owned_fd = -1};
	struct before before;
	int r;

	local_draw(ctx);
	r = local_parent_open(w, from, &ctx->parent, &old_parent);
	if (r == 0)
		r = local_parent_open(w, to, &ctx->new_parent, &new_parent);
	if (r == 0)
		r = check_name(&old_parent, expected);
	if (r == 0 && ctx->facts)
		r = look_before(&old_parent, &new_parent, flags, &before);
	if (r < 0)
		return r;
	local_changing(w, from);
	local_changing(w, to);
	r = rename_at(w, ctx, &old_parent, &new_parent, flags);
	if (r < 0)
		return r;
	local_draw(ctx);
	if (ctx->facts)
		tell_moved(ctx, &old_parent, &new_parent, flags, &before);
	if (w->watcher)
		move_watches(w, &new_parent, to);
	if (w->watcher && (flags & RENAME_SWAP))
		move_watches(w, &old_parent, from);
	return 0;
}

int local_statfs(struct op_context *ctx, struct workspace *workspace, struct fs_stats *ret_stats)
{
	struct statvfs st;

	(void)ctx;
	if (fstatvfs(local_from(workspace)->root_fd, &st) < 0)
		return -errno;
	*ret_stats = (struct fs_stats){
		.block_size_bytes = st.f_bsize,
		.fragment_size_bytes = st.f_frsize,
		.blocks = st.f_blocks,
		.blocks_free = st.f_bfree,
		.blocks_available = st.f_bavail,
		.inodes = st.f_files,
		.inodes_free = st.f_ffree,
		.name_max_bytes = (uint32_t)st.f_namemax,
	};
	return 0;
}
