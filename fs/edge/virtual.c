#define XXH_INLINE_ALL
#include "fs/edge/virtual.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "ops/support/cleanup.h"
#include "ops/support/utf8.h"
#include "ops/workspace.h"

#define DIRECTORY_NAME ".isthmus"

/* ---- The objects ---------------------------------------------------------------------- */

enum { NODE_DIRECTORY, NODE_STATUS, NODE_STATS, NODE_LOG, NODES };

/* The log shows everybody's work, command lines included: only its owner may read it. */
static struct node {
	const char *name;
	mode_t mode;
	struct inode inode;
} nodes[NODES] = {
	[NODE_DIRECTORY] = {DIRECTORY_NAME, S_IFDIR | 0555, {.is_virtual = true}},
	[NODE_STATUS] = {"status", S_IFREG | 0444, {.is_virtual = true}},
	[NODE_STATS] = {"stats", S_IFREG | 0444, {.is_virtual = true}},
	[NODE_LOG] = {"log", S_IFREG | 0400, {.is_virtual = true}},
};

/* Node of a virtual inode, or -1. */
static int node_of(fuse_ino_t ino)
{
	for (int node = 0; node < NODES; node++)
		if (ino == (fuse_ino_t)(uintptr_t)&nodes[node].inode)
			return node;
	return -1;
}

static bool is_directory_entry(fuse_ino_t parent, const char *name)
{
	return parent == FUSE_ROOT_ID && name[0] == '.' && strcmp(name, DIRECTORY_NAME) == 0;
}

bool virtual_hides(const struct inode *directory, const char *name)
{
	return name[0] == '.' && strcmp(name, DIRECTORY_NAME) == 0 && directory->is_root;
}

static void fill_stat(const struct session *s, int node, struct stat *stat)
{
	*stat = (struct stat){.st_ino = NUMBERS_END - 1 - (uint64_t)node,
		.st_mode = nodes[node].mode,
		.st_nlink = node == NODE_DIRECTORY ? 2 : 1,
		.st_uid = s->mount->mount_uid,
		.st_gid = s->mount->mount_gid,
		.st_blksize = 4096,
		.st_atim = s->mount->started,
		.st_mtim = s->mount->started,
		.st_ctim = s->mount->started};
}

/* ---- Refusals ---------------------------------------------------------------------------- */

static bool refuse(fuse_req_t fuse, bool is_ours)
{
	if (is_ours)
		fuse_reply_err(fuse, EPERM);
	return is_ours;
}

bool virtual_refuses(fuse_req_t fuse, fuse_ino_t ino)
{
	return refuse(fuse, node_of(ino) >= 0);
}

bool virtual_refuses_entry(fuse_req_t fuse, fuse_ino_t parent, const char *name)
{
	return refuse(fuse, is_directory_entry(parent, name) || node_of(parent) >= 0);
}

/* ---- Files and directory ------------------------------------------------------------------- */

bool virtual_lookup(fuse_req_t fuse, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {0};
	int node = -1;

	if (is_directory_entry(parent, name))
		node = NODE_DIRECTORY;
	else if (parent != (fuse_ino_t)(uintptr_t)&nodes[NODE_DIRECTORY].inode)
		return false;
	for (int i = NODE_STATUS; node < 0 && i < NODES; i++)
		if (strcmp(name, nodes[i].name) == 0)
			node = i;
	if (node < 0) {
		fuse_reply_err(fuse, ENOENT);
		return true;
	}
	entry.ino = (fuse_ino_t)(uintptr_t)&nodes[node].inode;
	fill_stat(fuse_req_userdata(fuse), node, &entry.attr);
	fuse_reply_entry(fuse, &entry);
	return true;
}

bool virtual_getattr(fuse_req_t fuse, fuse_ino_t ino)
{
	int node = node_of(ino);
	struct stat stat;

	if (node < 0)
		return false;
	fill_stat(fuse_req_userdata(fuse), node, &stat);
	fuse_reply_attr(fuse, &stat, 0);
	return true;
}

bool virtual_access(fuse_req_t fuse, fuse_ino_t ino, int mask)
{
	int node = node_of(ino);

	if (node < 0)
		return false;
	fuse_reply_err(
		fuse, (mask & W_OK) || ((mask & X_OK) && node != NODE_DIRECTORY) ? EACCES : 0);
	return true;
}

static int open_log(struct mount *m)
{
	int fd;

	if (!m->log)
		return -ENODATA;
	mount_log_flush(m->log);
	fd = open(mount_log_path(m->log), O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Its content when it is opened.  Takes over the text (NULL: no memory for it). */
static int open_text(char *text)
{
	cleanup_free char *owned = text;
	cleanup_fd int fd = memfd_create("isthmus", MFD_CLOEXEC);
	size_t size = text ? strlen(text) : 0;

	if (!text)
		return -ENOMEM;
	if (fd < 0)
		return -errno;
	if (write(fd, text, size) != (ssize_t)size)
		return -ENOSPC;
	return steal_fd(&fd);
}

static int open_node(struct mount *m, int node)
{
	if (node == NODE_LOG)
		return open_log(m);
	return open_text(
		utf8_repair(node == NODE_STATUS ? mount_status_json(m, 0) : mount_stats_json(m)));
}

bool virtual_open(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct session *s = fuse_req_userdata(fuse);
	int node = node_of(ino), fd;

	if (node < 0)
		return false;
	fd = (fi->flags & O_ACCMODE) == O_RDONLY ? open_node(s->mount, node) : -EACCES;
	if (fd < 0) {
		fuse_reply_err(fuse, -fd);
		return true;
	}
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1; /* the size is not known beforehand */
	fi->noflush = 1;
	if (fuse_reply_open(fuse, fi) < 0)
		close(fd);
	return true;
}

bool virtual_read(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	ssize_t got;
	char *data;

	if (node_of(ino) < 0)
		return false;
	data = session_thread_buffer(size);
	got = data ? pread((int)fi->fh, data, size, offset) : -1;
	if (got < 0)
		fuse_reply_err(fuse, data ? errno : ENOMEM);
	else
		fuse_reply_buf(fuse, data, (size_t)got);
	return true;
}

bool virtual_release(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (node_of(ino) < 0)
		return false;
	close((int)fi->fh);
	fuse_reply_err(fuse, 0);
	return true;
}

bool virtual_readdir(fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	struct fuse_entry_param entry = {0};
	char data[1024];
	size_t used = 0;

	if (node_of(ino) < 0)
		return false;
	assert(size >= sizeof(data));
	for (off_t at = offset; at < NODES - 1; at++) {
		const char *name = nodes[at + 1].name;

		fill_stat(fuse_req_userdata(fuse), (int)at + 1, &entry.attr);
		if (plus)
			used += fuse_add_direntry_plus(
				fuse, data + used, sizeof(data) - used, name, &entry, at + 1);
		else
			used += fuse_add_direntry(
				fuse, data + used, sizeof(data) - used, name, &entry.attr, at + 1);
	}
	fuse_reply_buf(fuse, data, used);
	return true;
}

/* ---- Extended attributes ------------------------------------------------------------------ */

#define XATTR_PREFIX "user.isthmus."

static void reply_xattr(fuse_req_t fuse, const char *value, size_t size)
{
	size_t length = strlen(value);

	if (!size)
		fuse_reply_xattr(fuse, length);
	else if (size < length)
		fuse_reply_err(fuse, ERANGE);
	else
		fuse_reply_buf(fuse, value, length);
}

enum { HASH_CHUNK_BYTES = 1 << 20, HASH_TEXT_BYTES = 33 };

static int hash_file(struct request *r, struct open_file *file, char *ret_text)
{
	char *data = session_thread_buffer(HASH_CHUNK_BYTES);
	XXH3_state_t *state = XXH3_createState();
	XXH128_canonical_t hash;
	ssize_t got = -ENOMEM;
	off_t offset = 0;

	if (state && data && XXH3_128bits_reset(state) == XXH_OK)
		while ((got = workspace_read(&r->op, file, data, HASH_CHUNK_BYTES, offset)) > 0) {
			XXH3_128bits_update(state, data, (size_t)got);
			offset += got;
		}
	if (got == 0) {
		XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state));
		for (size_t i = 0; i < sizeof(hash.digest); i++)
			snprintf(ret_text + 2 * i, 3, "%02x", hash.digest[i]);
	}
	XXH3_freeState(state);
	return (int)got;
}

static void reply_hash(fuse_req_t fuse, struct inode *inode, size_t size)
{
	char text[HASH_TEXT_BYTES];
	struct attributes attributes;
	struct object_ref object;
	struct open_file *file;
	struct request r;
	int result;

	request_begin(&r, fuse, "hash", 0);
	do {
		result = request_locate(&r, inode, &object);
		if (result == 0)
			result = workspace_open_file(
				&r.op, r.mount->workspace, &object, O_RDONLY, &file, &attributes);
	} while (request_retry(&r, result, inode));
	if (result == 0) {
		result = hash_file(&r, file, text);
		workspace_close(&r.op, file);
	}
	if (request_failed(&r, result))
		return;
	reply_xattr(fuse, text, size);
}

static bool is_regular(struct session *s, struct inode *inode)
{
	struct inode_state state;

	inode_table_state(s->mount->inodes, inode, &state);
	return S_ISREG(state.version.mode);
}

bool virtual_getxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, size_t size)
{
	struct session *s = fuse_req_userdata(fuse);
	const char *ours;

	if (strncmp(name, XATTR_PREFIX, sizeof(XATTR_PREFIX) - 1) != 0) {
		if (node_of(ino) < 0)
			return false;
		fuse_reply_err(fuse, ENODATA);
		return true;
	}
	ours = name + sizeof(XATTR_PREFIX) - 1;
	if (strcmp(ours, "control") == 0 && s->mount->control_path)
		reply_xattr(fuse, s->mount->control_path, size);
	else if (strcmp(ours, "uri") == 0)
		reply_xattr(fuse, s->mount->options->uri, size);
	else if (strcmp(ours, "hash") == 0 && node_of(ino) < 0 &&
		 is_regular(s, session_inode(s, ino)))
		reply_hash(fuse, session_inode(s, ino), size);
	else
		fuse_reply_err(fuse, ENODATA);
	return true;
}

bool virtual_listxattr(fuse_req_t fuse, fuse_ino_t ino, size_t size)
{
	if (node_of(ino) < 0)
		return false;
	if (size)
		fuse_reply_buf(fuse, NULL, 0);
	else
		fuse_reply_xattr(fuse, 0);
	return true;
}

bool virtual_refuses_xattr(fuse_req_t fuse, const char *name)
{
	return refuse(fuse, strncmp(name, XATTR_PREFIX, sizeof(XATTR_PREFIX) - 1) == 0);
}
