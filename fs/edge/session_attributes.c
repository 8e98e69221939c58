#include "fs/edge/announce.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/edge/dropper.h"
#include "fs/edge/virtual.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

static struct timespec time_of(int64_t ns)
{
	bool borrows = ns % 1000000000 < 0;

	return (struct timespec){.tv_sec = ns / 1000000000 - borrows,
		.tv_nsec = ns % 1000000000 + (borrows ? 1000000000 : 0)};
}

/* With the times that the kernel has: at others it would drop its pages. */
static void keep_times(struct request *r, struct inode *inode, struct attributes *attributes)
{
	struct inode_state state;

	inode_table_state(r->mount->inodes, inode, &state);
	attributes->mtime = time_of(state.version.mtime_ns);
	attributes->ctime = time_of(state.version.ctime_ns);
}

static void reply_attributes(
	struct request *r, struct inode *inode, int result, struct attributes *attributes)
{
	bool is_async = r->op.served.is_async;
	struct inode_note note;
	struct stat stat;
	double ttl = 0;

	if (result < 0) {
		request_finish(r, result);
		return;
	}
	if (is_async && r->op.size_only)
		keep_times(r, inode, attributes);
	session_stat(r->session, inode, attributes, &stat);
	if (!r->by_name && (!is_async || r->op.size_only)) {
		inode_table_note(r->mount->inodes, inode, attributes, &note);
		ttl = is_async ? 0 : session_ttl(r->session, note.lifetime);
		session_keep_pages(r->session, inode, &note);
	}
	request_record(r, 0);
	fuse_reply_attr(r->fuse, &stat, ttl);
}

/* The object of a request that may come with a handle. */
static int locate_object(struct request *r, struct inode *inode, const struct fuse_file_info *fi,
	struct object_ref *ret_object)
{
	const struct open_handle *handle = fi ? (void *)(uintptr_t)fi->fh : NULL;
	int result = request_locate_open(r, inode, ret_object);

	if (!handle || inode->is_directory)
		return result;
	*ret_object = (struct object_ref){.path = r->path.path,
		.id = inode_table_id(r->mount->inodes, inode),
		.file = handle->file};
	return 0;
}

/* A directory that was removed or replaced, and that a process may still have open or work in; or a
 * link (or the like) that was replaced after the kernel found it, and again after its retry.  A
 * file may have been written to since; it has a handle then (keep_retry_handle()). */
static bool removed_object(
	struct request *r, struct inode *inode, int result, struct attributes *ret_attributes)
{
	struct inode_state state;
	const struct inode_version *v = &state.version;

	if (!request_is_stale(r, inode, result) || inode->is_stale ||
		(!inode->is_directory && !request_means_name(r, inode)))
		return false;
	inode_table_state(r->mount->inodes, inode, &state);
	if (!v->mode || S_ISREG(v->mode))
		return false;
	*ret_attributes = (struct attributes){.id = state.id,
		.mode = v->mode,
		.uid = v->uid,
		.gid = v->gid,
		.size_bytes = v->size_bytes,
		.blocks = (v->size_bytes + 511) / 512,
		.block_size_bytes = 4096,
		.mtime = time_of(v->mtime_ns),
		.ctime = time_of(v->ctime_ns),
		.atime = time_of(v->mtime_ns)};
	return true;
}

static int get_attributes(struct request *r, struct inode *inode, const struct fuse_file_info *fi,
	struct attributes *ret_attributes)
{
	struct object_ref object;
	int result;

	do {
		result = locate_object(r, inode, fi, &object);
		if (result == 0)
			result = workspace_getattr(
				&r->op, r->mount->workspace, &object, ret_attributes);
	} while (request_retry(r, result, inode));
	if (removed_object(r, inode, result, ret_attributes))
		return 0;
	return request_object_result(r, inode, result);
}

void session_getattr(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct attributes attributes;
	struct inode *inode;
	struct request r;
	int result;

	if (virtual_getattr(fuse, ino))
		return;
	request_begin(&r, fuse, "getattr", 0);
	r.is_step = true;
	inode = session_inode(r.session, ino);
	session_watch_around(&r, inode);
	/* Not fstat(2), which comes without the handle: the kernel is about to read or to seek. */
	r.op.size_only = fi;
	result = get_attributes(&r, inode, fi, &attributes);
	reply_attributes(&r, inode, result, &attributes);
}

/* Sent only where the kernel does not check permissions itself: only root gets in, and
 * root may do anything but execute a file that has no execute bit. */
void session_access(fuse_req_t fuse, fuse_ino_t ino, int mask)
{
	struct attributes attributes;
	struct inode *inode;
	struct request r;
	int result;

	if (virtual_access(fuse, ino, mask))
		return;
	request_begin(&r, fuse, "access", 0);
	r.is_step = true;
	inode = session_inode(r.session, ino);
	result = get_attributes(&r, inode, NULL, &attributes);
	if (result == 0 && (mask & X_OK) && !S_ISDIR(attributes.mode) && !(attributes.mode & 0111))
		result = -EACCES;
	request_finish(&r, result);
}

static const struct {
	int fuse;
	unsigned ours;
} set_masks[] = {
	{FUSE_SET_ATTR_MODE, SET_MODE},
	{FUSE_SET_ATTR_UID, SET_UID},
	{FUSE_SET_ATTR_GID, SET_GID},
	{FUSE_SET_ATTR_SIZE, SET_SIZE},
	{FUSE_SET_ATTR_ATIME, SET_ATIME},
	{FUSE_SET_ATTR_MTIME, SET_MTIME},
	{FUSE_SET_ATTR_ATIME_NOW, SET_ATIME_NOW},
	{FUSE_SET_ATTR_MTIME_NOW, SET_MTIME_NOW},
};

static unsigned set_mask(int fuse_mask)
{
	unsigned mask = 0;

	for (size_t i = 0; i < array_size(set_masks); i++)
		if (fuse_mask & set_masks[i].fuse)
			mask |= set_masks[i].ours;
	return mask;
}

static const char *setattr_name(unsigned mask)
{
	if (mask & SET_SIZE)
		return "truncate";
	if (mask & (SET_UID | SET_GID))
		return "chown";
	if (mask & SET_MODE)
		return "chmod";
	return "utimens";
}

void session_setattr(fuse_req_t fuse, fuse_ino_t ino, struct stat *stat, int fuse_mask,
	struct fuse_file_info *fi)
{
	unsigned mask = set_mask(fuse_mask), reply;
	struct attributes attributes, want;
	struct object_ref object;
	struct inode *inode;
	struct session *s;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino))
		return;
	request_begin(&r, fuse, setattr_name(mask), LOG_IS_MUTATION);
	s = r.session;
	if (r.is_announcement) { /* answered with the attributes that are there */
		mask = 0;
		fi = NULL;
	}
	inode = session_inode(s, ino);
	want = (struct attributes){.mode = stat->st_mode & 07777,
		.uid = mount_swap_uid(r.mount, stat->st_uid),
		.gid = mount_swap_gid(r.mount, stat->st_gid),
		.size_bytes = (uint64_t)stat->st_size,
		.atime = stat->st_atim,
		.mtime = stat->st_mtim};
	if ((mask & SET_SIZE) && !(mask & SET_MODE) && session_raw_kills_suid() &&
		session_clears_suid(&r, inode, &want.mode))
		mask |= SET_MODE;
	if ((mask & SET_SIZE) && fi)
		content_hash_disturb(session_handle(fi)->hash);
	inode_table_ref(r.mount->inodes, inode);
	reply = dropper_reply(s->dropper, inode, r.op.pid);
	do {
		result = locate_object(&r, inode, fi, &object);
		if (result == 0 && mask)
			result = workspace_setattr(
				&r.op, r.mount->workspace, &object, mask, &want, &attributes);
		else if (result == 0)
			result = workspace_getattr(&r.op, r.mount->workspace, &object, &attributes);
	} while (request_retry_name(&r, result, inode));
	result = request_object_result(&r, inode, result);
	reply_attributes(&r, inode, result, &attributes);
	dropper_replied(s->dropper, reply, inode, result == 0 ? &attributes : NULL);
	inode_table_unref(s->mount->inodes, inode);
}

void session_statfs(fuse_req_t fuse, fuse_ino_t ino)
{
	struct fs_stats stats;
	struct request r;
	int result;

	(void)ino;
	request_begin(&r, fuse, "statfs", 0);
	result = workspace_statfs(&r.op, r.mount->workspace, &stats);
	if (request_failed(&r, result))
		return;
	fuse_reply_statfs(fuse, &(struct statvfs){.f_bsize = stats.block_size_bytes,
					.f_frsize = stats.fragment_size_bytes,
					.f_blocks = stats.blocks,
					.f_bfree = stats.blocks_free,
					.f_bavail = stats.blocks_available,
					.f_files = stats.inodes,
					.f_ffree = stats.inodes_free,
					.f_namemax = stats.name_max_bytes});
}
