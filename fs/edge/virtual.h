/*
 * fs/edge/virtual.h - what a mount shows of itself: .isthmus/{status,stats,log} in the root, which
 * no listing of the root contains and nobody can change, and the xattrs user.isthmus.*.
 *
 * The virtual_*() functions look at a request first; true: it was theirs and is answered.
 * Threads: any.
 */
#pragma once

#include "fs/edge/session.h"

/* True for an entry that a listing of `directory` leaves out. */
bool virtual_hides(const struct inode *directory, const char *name);

/* A change of a virtual object, or of a name that would hide it: answers EPERM. */
bool virtual_refuses(fuse_req_t fuse, fuse_ino_t ino);
bool virtual_refuses_entry(fuse_req_t fuse, fuse_ino_t parent, const char *name);
bool virtual_refuses_xattr(fuse_req_t fuse, const char *name);

bool virtual_lookup(fuse_req_t fuse, fuse_ino_t parent, const char *name);
bool virtual_getattr(fuse_req_t fuse, fuse_ino_t ino);
bool virtual_access(fuse_req_t fuse, fuse_ino_t ino, int mask);
bool virtual_open(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
bool virtual_read(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
bool virtual_release(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
bool virtual_readdir(fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, bool plus);
bool virtual_getxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, size_t size);
bool virtual_listxattr(fuse_req_t fuse, fuse_ino_t ino, size_t size);
