#include "backends/mem/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"
#include "ops/support/position.h"

enum { SIZE_MIN_BYTES = 64 << 10 };

/* What an inode counts towards the bound, including malloc's overhead. */
#define INODE_COST (sizeof(struct mem_inode) + 2 * sizeof(void *))

/* ---- The bound -------------------------------------------------------------- */

int mem_charge(struct mem *m, uint64_t bytes)
{
	uint64_t used = atomic_load(&m->used_bytes);

	do {
		if (bytes > m->limit_bytes || used > m->limit_bytes - bytes)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&m->used_bytes, &used, used + bytes));
	return 0;
}

void mem_refund(struct mem *m, uint64_t bytes)
{
	atomic_fetch_sub(&m->used_bytes, bytes);
}

/* ---- The lock ------------------------------------------------------------------ */

void mem_lock_to_look(struct mem *m, struct op_context *ctx)
{
	pthread_rwlock_rdlock(&m->tree_lock);
	ctx->served.position = position_draw();
}

void mem_lock_to_change(struct mem *m, struct op_context *ctx)
{
	pthread_rwlock_wrlock(&m->tree_lock);
	ctx->served.position = position_draw();
}

/* ---- Inodes ------------------------------------------------------------------- */

struct timespec mem_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now;
}

bool mem_in_group(const struct op_context *ctx, gid_t gid)
{
	if (ctx->uid == 0 || ctx->gid == gid)
		return true;
	for (size_t i = 0; i < ctx->group_count; i++)
		if (ctx->groups[i] == gid)
			return true;
	return false;
}

int mem_inode_new(struct mem *m, uint32_t mode, uid_t uid, gid_t gid, struct mem_inode **ret_inode)
{
	struct timespec now = mem_now();
	struct mem_inode *inode;
	int r = mem_charge(m, INODE_COST);

	if (r < 0)
		return r;
	inode = calloc(1, sizeof(*inode));
	if (!inode) {
		mem_refund(m, INODE_COST);
		return -ENOMEM;
	}
	inode->attributes = (struct attributes){
		.id = {m->device, ++m->last_inode, ++m->last_generation},
		.mode = mode,
		.uid = uid,
		.gid = gid,
		.size_bytes = S_ISDIR(mode) ? MEM_PAGE_BYTES : 0,
		.block_size_bytes = MEM_PAGE_BYTES,
		.atime = now,
		.mtime = now,
		.ctime = now,
	};
	inode->next = m->inodes;
	if (m->inodes)
		m->inodes->previous = inode;
	m->inodes = inode;
	*ret_inode = inode;
	return 0;
}

static void inode_free(struct mem *m, struct mem_inode *inode)
{
	if (S_ISDIR(inode->attributes.mode)) {
		mem_directory_done(m, &inode->directory);
	} else if (S_ISREG(inode->attributes.mode)) {
		mem_pages_drop(m, &inode->pages, 0, UINT64_MAX);
	} else if (S_ISLNK(inode->attributes.mode) && inode->target) {
		mem_refund(m, inode->attributes.size_bytes + 1);
		free(inode->target);
	}
	mem_xattrs_free(m, inode);
	mem_locks_free(m, inode);
	if (inode->previous)
		inode->previous->next = inode->next;
	else
		m->inodes = inode->next;
	if (inode->next)
		inode->next->previous = inode->previous;
	mem_refund(m, INODE_COST);
	free(inode);
}

void mem_inode_release(struct mem *m, struct mem_inode *inode)
{
	if (inode->attributes.nlink == 0 && inode->handles == 0)
		inode_free(m, inode);
}

struct attributes mem_inode_attributes(const struct mem_inode *inode)
{
	struct attributes attributes = inode->attributes;

	if (S_ISREG(attributes.mode))
		attributes.blocks = inode->pages.count * (MEM_PAGE_BYTES / 512);
	return attributes;
}

void mem_tell_parent(struct op_context *ctx, const struct mem_inode *directory)
{
	if (ctx->facts)
		ctx->facts->parent = mem_inode_attributes(directory);
}

void mem_tell_object(struct op_context *ctx, const struct mem_inode *inode)
{
	if (ctx->facts)
		ctx->facts->object = mem_inode_attributes(inode);
}

int mem_walk(struct mem *m, const char *path, size_t length, struct mem_inode **ret_inode)
{
	struct mem_inode *inode = m->root;
	const char *end = path + length;

	while (path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		const char *name_end = slash ? slash : end;
		struct mem_dirent *dirent;

		if (S_ISLNK(inode->attributes.mode))
			return -ELOOP;
		if (!S_ISDIR(inode->attributes.mode))
			return -ENOTDIR;
		dirent = mem_directory_find(&inode->directory, path, (size_t)(name_end - path));
		if (!dirent)
			return -ENOENT;
		inode = dirent->inode;
		path = slash ? slash + 1 : end;
	}
	*ret_inode = inode;
	return 0;
}

int mem_find(struct mem *m, const struct object_ref *object, struct mem_inode **ret_inode)
{
	struct mem_inode *inode;
	int r;

	if (object->file) {
		*ret_inode = mem_file_of(object->file)->inode;
		return 0;
	}
	r = mem_walk(m, object->path, strlen(object->path), &inode);
	if (r < 0)
		return r;
	if (object->id.inode && !object_id_equal(&object->id, &inode->attributes.id))
		return -ESTALE;
	*ret_inode = inode;
	return 0;
}

bool mem_atime_is_due(const struct mem_inode *inode)
{
	const struct attributes *a = &inode->attributes;

	return !clock_is_later(&a->atime, &a->mtime) || !clock_is_later(&a->atime, &a->ctime) ||
	       mem_now().tv_sec - a->atime.tv_sec >= 24 * 60 * 60;
}

void mem_touch_atime(struct mem *m, struct mem_inode *inode)
{
	pthread_rwlock_wrlock(&m->tree_lock);
	inode->attributes.atime = mem_now();
	pthread_rwlock_unlock(&m->tree_lock);
}

void mem_content_changed(const struct op_context *ctx, struct mem_inode *inode)
{
	struct attributes *a = &inode->attributes;

	a->mtime = a->ctime = mem_now();
	if (ctx->uid == 0)
		return;
	a->mode &= ~(uint32_t)S_ISUID;
	if (a->mode & S_IXGRP)
		a->mode &= ~(uint32_t)S_ISGID;
}

/* ---- The workspace --------------------------------------------------------------- */

void mem_free(struct workspace *w)
{
	struct mem *m = mem_of(w);

	while (m->inodes)
		inode_free(m, m->inodes);
	pthread_cond_destroy(&m->locks_changed);
	pthread_mutex_destroy(&m->locks_mutex);
	pthread_rwlock_destroy(&m->tree_lock);
	free(m);
}

void mem_status(struct workspace *w, struct workspace_status *ret_status)
{
	struct mem *m = mem_of(w);

	*ret_status = (struct workspace_status){
		.capabilities = WORKSPACE_CAN_SEARCH | WORKSPACE_CAN_READ_FIRST,
		.link = LINK_ONLINE,
		.owner_uid = m->owner_uid,
		.owner_gid = m->owner_gid};
}

int mem_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	struct mem *m = mem_of(w);
	uint64_t free_bytes = m->limit_bytes - atomic_load(&m->used_bytes);

	(void)ctx;
	*ret_stats = (struct fs_stats){
		.block_size_bytes = MEM_PAGE_BYTES,
		.fragment_size_bytes = MEM_PAGE_BYTES,
		.blocks = m->limit_bytes / MEM_PAGE_BYTES,
		.blocks_free = free_bytes / MEM_PAGE_BYTES,
		.blocks_available = free_bytes / MEM_PAGE_BYTES,
		.inodes = m->limit_bytes / INODE_COST,
		.inodes_free = free_bytes / INODE_COST,
		.name_max_bytes = PATH_NAME_MAX_BYTES,
	};
	return 0;
}

static const struct workspace_ops mem_ops = {
	.name = "mem",
	.free = mem_free,
	.status = mem_status,
	.getattr = mem_getattr,
	.readdir = mem_readdir,
	.readlink = mem_readlink,
	.mkdir = mem_mkdir,
	.mknod = mem_mknod,
	.symlink = mem_symlink,
	.link = mem_link,
	.unlink = mem_unlink,
	.rmdir = mem_rmdir,
	.rename = mem_rename,
	.setattr = mem_setattr,
	.getxattr = mem_getxattr,
	.listxattr = mem_listxattr,
	.setxattr = mem_setxattr,
	.removexattr = mem_removexattr,
	.statfs = mem_statfs,
	.open_file = mem_open_file,
	.create = mem_create,
	.create_unnamed = mem_create_unnamed,
	.read = mem_read,
	.write = mem_write,
	.close = mem_close,
	.fallocate = mem_fallocate,
	.seek = mem_seek,
	.copy_range = mem_copy_range,
	.lock = mem_lock,
	.lock_test = mem_lock_test,
	.lock_release_owner = mem_lock_release_owner,
};

/* ---- The constructor ---------------------------------------------------------------- */

static uint64_t half_of_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);

	return pages > 0 && page_size > 0 ? (uint64_t)pages * (uint64_t)page_size / 2 : 1 << 30;
}

/* Writers go first: a stream of readers must not starve them. */
static void init_locks(struct mem *m)
{
	pthread_rwlockattr_t rwlock_attributes;

	pthread_rwlockattr_init(&rwlock_attributes);
	pthread_rwlockattr_setkind_np(
		&rwlock_attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&m->tree_lock, &rwlock_attributes);
	pthread_rwlockattr_destroy(&rwlock_attributes);
	pthread_mutex_init(&m->locks_mutex, NULL);
	clock_cond_init(&m->locks_changed);
}

static int mem_new(uint64_t limit_bytes, struct workspace **ret_workspace)
{
	struct mem *m = calloc(1, sizeof(*m));
	struct timespec now = mem_now();
	int r;

	if (!m)
		return -ENOMEM;
	m->workspace.ops = &mem_ops;
	m->limit_bytes = limit_bytes;
	m->device = 0x6d656d; /* "mem": one tree, one device */
	m->last_generation = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	m->owner_uid = geteuid();
	m->owner_gid = getegid();
	init_locks(m);
	r = mem_inode_new(m, S_IFDIR | 0755, m->owner_uid, m->owner_gid, &m->root);
	if (r < 0) {
		mem_free(&m->workspace);
		return r;
	}
	m->root->attributes.nlink = 2;
	*ret_workspace = &m->workspace;
	return 0;
}

static int mem_open(const struct scheme *scheme, const char *rest,
	const struct workspace_options *options, struct workspace **ret_workspace,
	char **ret_reason)
{
	uint64_t limit_bytes = half_of_memory();
	const char *size = workspace_option(options, "size");
	int r = 0;

	(void)scheme;
	if (*rest) {
		if (asprintf(ret_reason,
			    "\"mem:%s\" names a place, but a workspace in memory has none; write "
			    "\"mem:\"",
			    rest) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	if (size)
		r = backend_parse_size("size", size, SIZE_MIN_BYTES, &limit_bytes, ret_reason);
	return r < 0 ? r : mem_new(limit_bytes, ret_workspace);
}

static const struct workspace_scheme_option mem_options[] = {{"size", "BYTES"}, {0}};

const struct scheme mem_scheme = {
	.about = {.name = "mem",
		.form = "mem:",
		.summary = "a tree in memory; lost at the unmount",
		.options = mem_options},
	.open = mem_open,
};
