#include "backends/mem/mem.h"

#include <errno.h>
#include <sys/stat.h>

static int check_setattr(const struct mem_inode *inode, unsigned mask)
{
	if ((mask & SET_SIZE) && S_ISDIR(inode->attributes.mode))
		return -EISDIR;
	if ((mask & SET_SIZE) && !S_ISREG(inode->attributes.mode))
		return -EINVAL;
	if ((mask & SET_MODE) && S_ISLNK(inode->attributes.mode))
		return -EOPNOTSUPP;
	return 0;
}

static void set_owner(struct mem_inode *inode, unsigned mask, const struct attributes *want)
{
	struct attributes *a = &inode->attributes;

	if (mask & SET_UID)
		a->uid = want->uid;
	if (mask & SET_GID)
		a->gid = want->gid;
	if (!(mask & (SET_UID | SET_GID)) || S_ISDIR(a->mode))
		return;
	a->mode &= ~(uint32_t)S_ISUID;
	if (a->mode & S_IXGRP)
		a->mode &= ~(uint32_t)S_ISGID;
}

static void set_mode(const struct op_context *ctx, struct mem_inode *inode, uint32_t mode)
{
	struct attributes *a = &inode->attributes;

	if ((mode & S_ISGID) && !mem_in_group(ctx, a->gid))
		mode &= ~(uint32_t)S_ISGID;
	a->mode = (a->mode & S_IFMT) | (mode & 07777);
}

static void set_times(struct mem_inode *inode, unsigned mask, const struct attributes *want)
{
	struct attributes *a = &inode->attributes;
	struct timespec now = mem_now();

	if (mask & SET_ATIME_NOW)
		a->atime = now;
	else if (mask & SET_ATIME)
		a->atime = want->atime;
	if (mask & SET_MTIME_NOW)
		a->mtime = now;
	else if (mask & SET_MTIME)
		a->mtime = want->mtime;
	a->ctime = now;
}

int mem_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	mem_lock_to_change(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = check_setattr(inode, mask);
	if (r == 0) {
		if (mask & SET_SIZE) {
			mem_set_size(m, inode, want->size_bytes);
			mem_content_changed(ctx, inode);
		}
		set_owner(inode, mask, want);
		if (mask & SET_MODE)
			set_mode(ctx, inode, want->mode);
		if (mask)
			set_times(inode, mask, want);
		*ret_attributes = mem_inode_attributes(inode);
	}
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}
