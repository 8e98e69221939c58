#include "fs/edge/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fs/edge/dropper.h"
#include "fs/edge/virtual.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

/* Of a removed working directory: ENOENT, not ESTALE. */
static ssize_t object_result(struct request *r, struct inode *inode, ssize_t result)
{
	if (result >= 0 || (result == -ENOENT && inode->is_directory))
		return result;
	return request_object_result(r, inode, (int)result);
}

/* The kernel asks before it lets others than the owner in; only "there is none" makes it use the
 * mode. */
static ssize_t without_list(const char *name, ssize_t got)
{
	bool is_list = strcmp(name, "system.posix_acl_access") == 0 ||
		       strcmp(name, "system.posix_acl_default") == 0;

	return got == -EOPNOTSUPP && is_list ? -ENODATA : got;
}

/* `name` NULL: the names of all. */
static void read_xattr(
	fuse_req_t fuse, fuse_ino_t ino, const char *op, const char *name, size_t size)
{
	cleanup_free char *value = size ? malloc(size) : NULL;
	struct object_ref object;
	struct workspace *w;
	struct inode *inode;
	struct request r;
	ssize_t got;

	request_begin(&r, fuse, op, 0);
	r.is_step = name;
	w = r.mount->workspace;
	inode = session_inode(r.session, ino);
	do {
		got = size && !value ? -ENOMEM : request_locate_open(&r, inode, &object);
		if (got == 0)
			got = name ? workspace_getxattr(&r.op, w, &object, name, value, size)
				   : workspace_listxattr(&r.op, w, &object, value, size);
	} while (request_retry_name(&r, (int)got, inode));
	got = object_result(&r, inode, got);
	if (request_failed(&r, name ? without_list(name, got) : got))
		return;
	if (size)
		fuse_reply_buf(fuse, value, (size_t)got);
	else
		fuse_reply_xattr(fuse, (size_t)got);
}

void session_getxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, size_t size)
{
	if (!virtual_getxattr(fuse, ino, name, size))
		read_xattr(fuse, ino, "getxattr", name, size);
}

void session_listxattr(fuse_req_t fuse, fuse_ino_t ino, size_t size)
{
	if (!virtual_listxattr(fuse, ino, size))
		read_xattr(fuse, ino, "listxattr", NULL, size);
}

static void clear_sgid(struct request *r, const struct object_ref *object, struct inode *inode)
{
	struct attributes attributes;
	struct inode_note note;

	if (workspace_getattr(&r->op, r->mount->workspace, object, &attributes) < 0)
		return;
	attributes.mode &= 07777 & ~(uint32_t)S_ISGID;
	if (workspace_setattr(
		    &r->op, r->mount->workspace, object, SET_MODE, &attributes, &attributes) < 0)
		return;
	inode_table_note(r->mount->inodes, inode, &attributes, &note);
	session_drop_inode(r->session, inode, false);
}

/* The reply does not tell the kernel what the mode is now. */
static void note_access_list(
	struct request *r, const struct object_ref *object, struct inode *inode)
{
	struct attributes attributes;
	struct inode_note note;

	if (workspace_getattr(&r->op, r->mount->workspace, object, &attributes) < 0)
		return;
	inode_table_note(r->mount->inodes, inode, &attributes, &note);
	dropper_listed(r->session->dropper, inode, &attributes, note.data_changed);
}

/* `value` NULL: removes it. */
static void change_xattr(fuse_req_t fuse, fuse_ino_t ino, const char *op, const char *name,
	const char *value, size_t size, unsigned flags)
{
	struct object_ref object;
	struct workspace *w;
	struct inode *inode;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino) || virtual_refuses_xattr(fuse, name))
		return;
	request_begin(&r, fuse, op, LOG_IS_MUTATION);
	r.record.detail = name;
	w = r.mount->workspace;
	inode = session_inode(r.session, ino);
	do {
		result = request_locate_open(&r, inode, &object);
		if (result == 0)
			result = value ? workspace_setxattr(
						 &r.op, w, &object, name, value, size, flags)
				       : workspace_removexattr(&r.op, w, &object, name);
	} while (request_retry_name(&r, result, inode));
	if (result == 0 && session_raw_kills_sgid())
		clear_sgid(&r, &object, inode);
	if (result == 0 && strcmp(name, "system.posix_acl_access") == 0)
		note_access_list(&r, &object, inode);
	request_finish(&r, (int)object_result(&r, inode, result));
}

void session_setxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, const char *value,
	size_t size, int flags)
{
	change_xattr(fuse, ino, "setxattr", name, value, size,
		(flags & XATTR_CREATE ? XATTR_MUST_CREATE : 0) |
			(flags & XATTR_REPLACE ? XATTR_MUST_REPLACE : 0));
}

void session_removexattr(fuse_req_t fuse, fuse_ino_t ino, const char *name)
{
	change_xattr(fuse, ino, "removexattr", name, NULL, 0, 0);
}
