/*
 * fs/edge/dropper.h - tells the kernel which inodes' attributes and pages are not valid any more.
 *
 * When it may is decided by fs/edge/drops.h.  What has to wait is done by a thread.
 */
#pragma once

#include <sys/queue.h>

#include "fs/edge/session.h"

struct dropper;

int dropper_start(struct session *s, struct dropper **ret_dropper);
void dropper_stop(struct dropper *dropper); /* ends the thread; NULL is fine */
void dropper_free(struct dropper *dropper); /* after the inode table is free; NULL is fine */

/* A program here wrote to the file just now, and one (perhaps the same) may map it: pages that are
 * dropped while what was written is on its way come back as they were before, and then a map may be
 * written back over that.  dropper_drop() waits for the end of it. */
bool dropper_is_being_written(const struct inode *inode);

/* The kernel is to ask for the attributes again, and with `pages` for content too; `found`: what is
 * there now (NULL: not known).  0: it has been told, or will be.  -ENOENT: it does not know the
 * inode (yet). */
int dropper_drop(struct dropper *dropper, struct inode *inode, bool pages,
	const struct inode_version *found);

/* The file was locked: the holder is to read what the last one has written, perhaps through another
 * mount, and not what the feed has come to.  `found`: what is there now; NULL: not known, or the
 * same may be found after one more change. */
void dropper_locked(struct dropper *dropper, struct inode *inode, const struct file_lock *lock,
	const struct inode_version *found);

/* Before what `lock` covers of its owner's locks is released at the workspace, or exchanged.
 * `caller`: the thread that asks for it. */
void dropper_unlocking(struct dropper *dropper, const struct inode *inode,
	const struct file_lock *lock, pid_t caller);

/* An access list is set through this mount, before and after it is.  The kernel then asks for the
 * mode before it lets anybody in, and is not to be disturbed by a drop: those wait for a while. */
void dropper_listed(struct dropper *dropper, const struct inode *inode);

/* Around a READ or WRITE of pages, which the kernel has locked until the reply: to drop them would
 * wait for that, which may never come.  Until the end, which is told before the reply, a drop
 * leaves these pages out, and what the kernel reads ahead behind them; they are dropped thereafter.
 */
struct page_request {
	LIST_ENTRY(page_request) link; /* the dropper's */
	const struct inode *inode;
	off_t start, end; /* whole pages */
	uint64_t number;
	struct late_drop *late;
};

void dropper_begin_pages(struct dropper *dropper, struct page_request *request,
	const struct inode *inode, off_t offset, size_t size);
void dropper_end_pages(struct dropper *dropper, struct page_request *request);

/* Around SETATTR and LINK (drops_reply()): before the workspace is asked, and after the reply, to
 * which the inode has to stay referenced.  `attributes`: that were replied, or NULL. */
unsigned dropper_reply(struct dropper *dropper, const struct inode *inode, pid_t caller);
void dropper_replied(struct dropper *dropper, unsigned number, struct inode *inode,
	const struct attributes *attributes);

/* Waits until the kernel has been told of everything so far: locks are waited for, maps that are
 * being written are not. */
void dropper_drain(struct dropper *dropper);
