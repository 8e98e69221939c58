#include "backends/mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum { LINKS_MAX = 65000 };

/* A name in a directory, and what has it. */
struct slot {
	struct mem_inode *parent;
	const char *name;
	struct mem_dirent *dirent; /* NULL: nothing there */
};

/* -ESTALE: another is meant (see struct op_context). */
static int check_directory(const struct mem_inode *directory, const struct object_id *expected)
{
	return !expected->inode || object_id_equal(expected, &directory->attributes.id) ? 0
											: -ESTALE;
}

static int look_up(
	struct mem *m, const char *path, const struct object_id *directory, struct slot *ret_slot)
{
	struct mem_inode *parent;
	const char *name = path_name(path);
	int r = mem_walk(m, path, path_parent_length(path), &parent);

	if (r < 0)
		return directory->inode ? -ESTALE : r;
	if (S_ISLNK(parent->attributes.mode))
		return -ELOOP;
	if (!S_ISDIR(parent->attributes.mode))
		return -ENOTDIR;
	r = check_directory(parent, directory);
	if (r < 0)
		return r;
	*ret_slot = (struct slot){.parent = parent,
		.name = name,
		.dirent = mem_directory_find(&parent->directory, name, strlen(name))};
	return 0;
}

static void directory_changed(struct mem_inode *directory)
{
	directory->attributes.mtime = directory->attributes.ctime = mem_now();
}

static bool is_directory(const struct mem_inode *inode)
{
	return S_ISDIR(inode->attributes.mode);
}

/* ---- Looking --------------------------------------------------------------------- */

int mem_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	struct slot slot;
	int r;

	mem_lock_to_look(m, ctx);
	r = object->file ? 0 : look_up(m, object->path, &object->parent, &slot);
	if (r == 0)
		r = mem_find(m, object, &inode);
	if (r == 0)
		*ret_attributes = mem_inode_attributes(inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

/* The entries of a directory, copied so that the sink runs without the lock. */
struct listing {
	struct listed {
		struct attributes attributes;
		size_t name; /* offset in names */
	} * entries;
	size_t count;
	char *names;
};

static void listing_done(struct listing *listing)
{
	free(listing->entries);
	free(listing->names);
}

static int list(const struct mem_directory *directory, struct listing *listing)
{
	size_t used = 0, names_size = 0;
	struct mem_dirent *d;

	for (d = mem_directory_next(directory, NULL); d; d = mem_directory_next(directory, d))
		names_size += d->length + 1;
	listing->entries = calloc(directory->names.count + 1, sizeof(*listing->entries));
	listing->names = malloc(names_size + 1);
	if (!listing->entries || !listing->names)
		return -ENOMEM;
	for (d = mem_directory_next(directory, NULL); d; d = mem_directory_next(directory, d)) {
		listing->entries[listing->count++] =
			(struct listed){.attributes = mem_inode_attributes(d->inode), .name = used};
		memcpy(listing->names + used, d->name, d->length + 1);
		used += d->length + 1;
	}
	return 0;
}

int mem_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since)
{
	cleanup_with(listing_done) struct listing listing = {0};
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	(void)watch;
	mem_lock_to_change(m, ctx);
	r = mem_find(m, directory, &inode);
	if (r == 0 && !is_directory(inode))
		r = -ENOTDIR;
	if (r == 0)
		r = list(&inode->directory, &listing);
	if (r == 0 && mem_atime_is_due(inode))
		inode->attributes.atime = mem_now();
	pthread_rwlock_unlock(&m->tree_lock);
	for (size_t i = 0; r >= 0 && i < listing.count; i++) {
		struct dir_entry entry = {.path = listing.names + listing.entries[i].name,
			.attributes = listing.entries[i].attributes};

		r = sink(user, &entry);
	}
	if (r < 0)
		return r;
	*ret_since = 0;
	return 0;
}

int mem_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	char *target = NULL;
	int r;

	mem_lock_to_change(m, ctx);
	r = mem_find(m, link, &inode);
	if (r == 0 && !S_ISLNK(inode->attributes.mode))
		r = -EINVAL;
	if (r == 0) {
		target = strdup(inode->target);
		if (mem_atime_is_due(inode))
			inode->attributes.atime = mem_now();
	}
	pthread_rwlock_unlock(&m->tree_lock);
	if (r < 0)
		return r;
	if (!target)
		return -ENOMEM;
	*ret_target = target;
	return 0;
}

/* ---- Making ---------------------------------------------------------------------- */

/* An inode for a new name below `parent`, with the group and mode rules of a set-group-ID
 * directory. */
static int new_below(struct mem *m, const struct op_context *ctx, const struct mem_inode *parent,
	uint32_t mode, struct mem_inode **ret_inode)
{
	gid_t gid = ctx->gid;

	if (!S_ISLNK(mode))
		mode &= ~(uint32_t)ctx->umask;
	if (parent->attributes.mode & S_ISGID) {
		gid = parent->attributes.gid;
		if (S_ISDIR(mode))
			mode |= S_ISGID;
		else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
			 !mem_in_group(ctx, gid))
			mode &= ~(uint32_t)S_ISGID;
	}
	return mem_inode_new(m, mode, ctx->uid, gid, ret_inode);
}

static int add_name(struct mem *m, const struct slot *slot, struct mem_inode *inode)
{
	int r = mem_directory_add(m, &slot->parent->directory, slot->name, inode);

	if (r < 0)
		return r;
	inode->attributes.nlink++;
	if (is_directory(inode)) {
		inode->attributes.nlink++;
		inode->parent = slot->parent;
		slot->parent->attributes.nlink++;
	}
	directory_changed(slot->parent);
	return 0;
}

static int make_locked(struct mem *m, struct op_context *ctx, const char *path, uint32_t mode,
	struct mem_inode **ret_inode)
{
	struct mem_inode *inode;
	struct slot slot = {0};
	int r = look_up(m, path, &ctx->parent, &slot);

	if (r == 0 && slot.dirent)
		r = -EEXIST;
	if (r == 0)
		r = new_below(m, ctx, slot.parent, mode, &inode);
	if (r < 0)
		return r;
	r = add_name(m, &slot, inode);
	if (r < 0) {
		mem_inode_release(m, inode);
		return r;
	}
	mem_tell_parent(ctx, slot.parent);
	*ret_inode = inode;
	return 0;
}

static int make(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	mem_lock_to_change(m, ctx);
	r = make_locked(m, ctx, path, mode, &inode);
	if (r == 0) {
		inode->attributes.rdev = rdev;
		*ret_attributes = mem_inode_attributes(inode);
	}
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

int mem_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	return make(ctx, w, path, S_IFDIR | (mode & 07777), 0, ret_attributes);
}

int mem_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	bool device = S_ISCHR(mode) || S_ISBLK(mode);

	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	if (!device && !S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode))
		return S_ISDIR(mode) ? -EPERM : -EINVAL;
	return make(ctx, w, path, mode, device ? rdev : 0, ret_attributes);
}

int mem_symlink(struct op_context *ctx, struct workspace *w, const char *target, const char *path,
	struct attributes *ret_attributes)
{
	cleanup_free char *copy = strdup(target);
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	uint64_t size = strlen(target);
	int r;

	if (!copy)
		return -ENOMEM;
	r = mem_charge(m, size + 1);
	if (r < 0)
		return r;
	mem_lock_to_change(m, ctx);
	r = make_locked(m, ctx, path, S_IFLNK | 0777, &inode);
	if (r == 0) {
		inode->target = steal_ptr(&copy);
		inode->attributes.size_bytes = size;
		*ret_attributes = mem_inode_attributes(inode);
	}
	pthread_rwlock_unlock(&m->tree_lock);
	if (r < 0)
		mem_refund(m, size + 1);
	return r;
}

static int make_unnamed_locked(struct mem *m, const struct op_context *ctx, const char *directory,
	uint32_t mode, struct mem_inode **ret_inode)
{
	struct mem_inode *parent;
	int r = mem_walk(m, directory, strlen(directory), &parent);

	if (r == 0 && !is_directory(parent))
		r = S_ISLNK(parent->attributes.mode) ? -ELOOP : -ENOTDIR;
	if (r == 0)
		r = check_directory(parent, &ctx->parent);
	return r < 0 ? r : new_below(m, ctx, parent, mode, ret_inode);
}

/* `path`: of the directory when the file is to have no name. */
static int create(struct op_context *ctx, struct workspace *w, const char *path, bool unnamed,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct open_file *file = NULL;
	struct mem_inode *inode;
	int r;

	r = mem_file_new(m, NULL, flags, &file);
	if (r < 0)
		return r;
	mode = S_IFREG | (mode & 07777);
	mem_lock_to_change(m, ctx);
	r = unnamed ? make_unnamed_locked(m, ctx, path, mode, &inode)
		    : make_locked(m, ctx, path, mode, &inode);
	if (r == 0) {
		inode->linkable = unnamed && !(flags & O_EXCL);
		inode->handles++;
		mem_file_of(file)->inode = inode;
		*ret_attributes = mem_inode_attributes(inode);
	}
	pthread_rwlock_unlock(&m->tree_lock);
	if (r < 0) {
		free(file);
		return r;
	}
	*ret_file = file;
	return 0;
}

int mem_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	return create(ctx, w, path, false, flags, mode, ret_file, ret_attributes);
}

int mem_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	if ((flags & O_ACCMODE) == O_RDONLY)
		return -EINVAL;
	return create(ctx, w, directory, true, flags, mode, ret_file, ret_attributes);
}

static int link_locked(struct mem *m, struct op_context *ctx, const struct object_ref *object,
	const char *path, struct mem_inode **ret_inode)
{
	struct mem_inode *inode;
	struct slot slot = {0};
	int r = mem_find(m, object, &inode);

	if (r == 0)
		r = look_up(m, path, &ctx->new_parent, &slot);
	if (r < 0)
		return r;
	if (is_directory(inode))
		return -EPERM;
	if (slot.dirent)
		return -EEXIST;
	if (inode->attributes.nlink == 0 && !inode->linkable)
		return -ENOENT;
	if (inode->attributes.nlink >= LINKS_MAX)
		return -EMLINK;
	r = add_name(m, &slot, inode);
	if (r < 0)
		return r;
	inode->linkable = false;
	inode->attributes.ctime = mem_now();
	mem_tell_parent(ctx, slot.parent);
	*ret_inode = inode;
	return 0;
}

int mem_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	mem_lock_to_change(m, ctx);
	r = link_locked(m, ctx, object, path, &inode);
	if (r == 0)
		*ret_attributes = mem_inode_attributes(inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

/* ---- Removing and moving ----------------------------------------------------------- */

static int check_expected(const struct slot *slot, const struct object_id *expected)
{
	if (!slot->dirent)
		return -ENOENT;
	if (expected->inode && !object_id_equal(expected, &slot->dirent->inode->attributes.id))
		return -ESTALE;
	return 0;
}

/* One name of `inode` in `parent` is gone; the inode may be freed. */
static void lose_name(struct mem *m, struct mem_inode *inode, struct mem_inode *parent)
{
	inode->attributes.ctime = mem_now();
	inode->attributes.nlink--;
	if (is_directory(inode)) {
		inode->attributes.nlink = 0;
		parent->attributes.nlink--;
	}
	mem_inode_release(m, inode);
}

static void drop_name(struct mem *m, const struct slot *slot)
{
	struct mem_inode *inode = slot->dirent->inode;

	mem_directory_remove(m, &slot->parent->directory, slot->dirent);
	directory_changed(slot->parent);
	lose_name(m, inode, slot->parent);
}

static int check_unlink(const struct mem_inode *inode)
{
	return is_directory(inode) ? -EISDIR : 0;
}

static int check_rmdir(const struct mem_inode *inode)
{
	if (!is_directory(inode))
		return -ENOTDIR;
	return inode->directory.names.count ? -ENOTEMPTY : 0;
}

static int remove_name(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected, int (*check)(const struct mem_inode *inode))
{
	struct mem *m = mem_of(w);
	struct slot slot = {0};
	int r;

	mem_lock_to_change(m, ctx);
	r = look_up(m, path, &ctx->parent, &slot);
	if (r == 0)
		r = check_expected(&slot, expected);
	if (r == 0)
		r = check(slot.dirent->inode);
	if (r == 0) {
		drop_name(m, &slot);
		mem_tell_parent(ctx, slot.parent);
	}
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

int mem_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, path, expected, check_unlink);
}

int mem_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, path, expected, check_rmdir);
}

/* True when `inode` is `directory` or lies below it. */
static bool is_below(const struct mem_inode *inode, const struct mem_inode *directory)
{
	while (inode && inode != directory)
		inode = inode->parent;
	return inode;
}

static void move_parent(struct mem_inode *inode, struct mem_inode *from, struct mem_inode *to)
{
	inode->attributes.ctime = mem_now();
	if (!is_directory(inode) || from == to)
		return;
	inode->parent = to;
	from->attributes.nlink--;
	to->attributes.nlink++;
}

static int swap(const struct slot *from, const struct slot *to)
{
	struct mem_inode *a = from->dirent->inode, *b;

	if (!to->dirent)
		return -ENOENT;
	b = to->dirent->inode;
	if ((is_directory(a) && is_below(to->parent, a)) ||
		(is_directory(b) && is_below(from->parent, b)))
		return -EINVAL;
	if (a == b)
		return 0;
	from->dirent->inode = b;
	to->dirent->inode = a;
	move_parent(a, from->parent, to->parent);
	move_parent(b, to->parent, from->parent);
	directory_changed(from->parent);
	directory_changed(to->parent);
	return 0;
}

static int check_replaceable(const struct slot *from, const struct mem_inode *target)
{
	const struct mem_inode *moved = from->dirent->inode;

	if (!is_directory(target))
		return is_directory(moved) ? -ENOTDIR : 0;
	if (is_below(from->parent, target))
		return -ENOTEMPTY;
	if (!is_directory(moved))
		return -EISDIR;
	return target->directory.names.count ? -ENOTEMPTY : 0;
}

static int move(struct mem *m, const struct op_context *ctx, const struct slot *from,
	const struct slot *to, unsigned flags)
{
	struct mem_inode *inode = from->dirent->inode, *whiteout = NULL;
	struct mem_inode *target = to->dirent ? to->dirent->inode : NULL;
	int r;

	if (target && (flags & RENAME_KEEP_TARGET))
		return -EEXIST;
	if (target == inode)
		return 0;
	if (is_directory(inode) && is_below(to->parent, inode))
		return -EINVAL;
	if (flags & RENAME_LEAVE_WHITEOUT) {
		r = new_below(m, ctx, from->parent, S_IFCHR, &whiteout);
		if (r < 0)
			return r;
	}
	r = target ? check_replaceable(from, target)
		   : mem_directory_add(m, &to->parent->directory, to->name, inode);
	if (r < 0) {
		if (whiteout)
			mem_inode_release(m, whiteout);
		return r;
	}
	if (target) {
		to->dirent->inode = inode;
		lose_name(m, target, to->parent);
	}
	if (whiteout) {
		whiteout->attributes.nlink++;
		from->dirent->inode = whiteout;
	} else {
		mem_directory_remove(m, &from->parent->directory, from->dirent);
	}
	move_parent(inode, from->parent, to->parent);
	directory_changed(from->parent);
	directory_changed(to->parent);
	return 0;
}

int mem_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	struct slot from_slot, to_slot;
	struct mem_inode *moved = NULL, *target = NULL;
	struct mem *m = mem_of(w);
	int r;

	mem_lock_to_change(m, ctx);
	r = look_up(m, from, &ctx->parent, &from_slot);
	if (r == 0)
		r = check_expected(&from_slot, expected);
	if (r == 0)
		r = look_up(m, to, &ctx->new_parent, &to_slot);
	if (r == 0)
		moved = from_slot.dirent->inode;
	if (r == 0 && to_slot.dirent)
		target = to_slot.dirent->inode;
	if (r == 0)
		r = flags & RENAME_SWAP ? swap(&from_slot, &to_slot)
					: move(m, ctx, &from_slot, &to_slot, flags);
	/* Else something is at the old name again. */
	if (r == 0 && ctx->facts && !(flags & RENAME_LEAVE_WHITEOUT) && target != moved)
		*ctx->facts = (struct facts){.parent = mem_inode_attributes(from_slot.parent),
			.new_parent = mem_inode_attributes(to_slot.parent),
			.object = mem_inode_attributes(moved)};
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}
