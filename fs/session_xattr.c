#include "fs/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fs/invalidate.h"
#include "fs/virtual.h"
#include "ops/support/cleanup.h"

/* A directory that is gone is, to who works in it. */
static ssize_t object_result(struct request *r, struct inode *inode, ssize_t result)
{
	if (result >= 0 || (result == -ENOENT && inode->is_directory))
		return result;
	return request_object_result(r, inode, (int)result);
}

static void reply_value(struct request *r, ssize_t got, size_t size, const char *value)
{
	if (got < 0) {
		request_finish(r, (int)got);
		return;
	}
	request_record(r, 0);
	if (size)
		fuse_reply_buf(r->fuse, value, (size_t)got);
	else
		fuse_reply_xattr(r->fuse, (size_t)got);
}

/* To the kernel, which asks before it lets others than the owner in, only "there is none" means
 * that the mode decides. */
static ssize_t without_list(const char *name, ssize_t got)
{
	bool is_list = strcmp(name, "system.posix_acl_access") == 0 ||
		       strcmp(name, "system.posix_acl_default") == 0;

	return got == -EOPNOTSUPP && is_list ? -ENODATA : got;
}

void session_getxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, size_t size)
{
	cleanup_free char *value = size ? malloc(size) : NULL;
	struct object_ref object;
	struct inode *inode;
	struct request r;
	ssize_t got;

	if (virtual_getxattr(fuse, ino, name, size))
		return;
	request_begin(&r, fuse, "getxattr", 0);
	r.is_step = true;
	inode = session_inode(r.session, ino);
	do {
		got = size && !value ? -ENOMEM : request_locate_open(&r, inode, &object);
		if (got == 0)
			got = workspace_getxattr(
				&r.op, r.mount->workspace, &object, name, value, size);
	} while (request_retry_name(&r, (int)got, inode));
	got = object_result(&r, inode, got);
	reply_value(&r, without_list(name, got), size, value);
}

void session_listxattr(fuse_req_t fuse, fuse_ino_t ino, size_t size)
{
	cleanup_free char *names = size ? malloc(size) : NULL;
	struct object_ref object;
	struct inode *inode;
	struct request r;
	ssize_t got;

	if (virtual_listxattr(fuse, ino, size))
		return;
	request_begin(&r, fuse, "listxattr", 0);
	inode = session_inode(r.session, ino);
	do {
		got = size && !names ? -ENOMEM : request_locate_open(&r, inode, &object);
		if (got == 0)
			got = workspace_listxattr(&r.op, r.mount->workspace, &object, names, size);
	} while (request_retry_name(&r, (int)got, inode));
	got = object_result(&r, inode, got);
	reply_value(&r, got, size, names);
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

void session_setxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, const char *value,
	size_t size, int flags)
{
	struct object_ref object;
	struct inode *inode;
	struct request r;
	unsigned our_flags = 0;
	int result;

	if (virtual_refuses(fuse, ino) || virtual_refuses_xattr(fuse, name))
		return;
	request_begin(&r, fuse, "setxattr", LOG_IS_MUTATION);
	r.record.detail = name;
	inode = session_inode(r.session, ino);
	if (flags & XATTR_CREATE)
		our_flags |= XATTR_MUST_CREATE;
	if (flags & XATTR_REPLACE)
		our_flags |= XATTR_MUST_REPLACE;
	do {
		result = request_locate_open(&r, inode, &object);
		if (result == 0)
			result = workspace_setxattr(
				&r.op, r.mount->workspace, &object, name, value, size, our_flags);
	} while (request_retry_name(&r, result, inode));
	if (result == 0 && session_raw_kills_sgid())
		clear_sgid(&r, &object, inode);
	result = (int)object_result(&r, inode, result);
	request_finish(&r, result);
}

void session_removexattr(fuse_req_t fuse, fuse_ino_t ino, const char *name)
{
	struct object_ref object;
	struct inode *inode;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino) || virtual_refuses_xattr(fuse, name))
		return;
	request_begin(&r, fuse, "removexattr", LOG_IS_MUTATION);
	r.record.detail = name;
	inode = session_inode(r.session, ino);
	do {
		result = request_locate_open(&r, inode, &object);
		if (result == 0)
			result = workspace_removexattr(&r.op, r.mount->workspace, &object, name);
	} while (request_retry_name(&r, result, inode));
	result = (int)object_result(&r, inode, result);
	request_finish(&r, result);
}
