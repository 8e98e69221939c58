/*
 * fs/edge/dropper.h - tells the kernel which inodes' attributes and pages are not valid any more.
 * fs/edge/drops.h decides when.
 *
 * A thread sends what has to wait.
 */
#pragma once

#include <sys/queue.h>

#include "fs/edge/session.h"

struct dropper;

int dropper_start(struct session *s, struct dropper **ret_dropper);
void dropper_stop(struct dropper *dropper); /* ends the thread; NULL is fine */
void dropper_free(struct dropper *dropper); /* after the inode table is free; NULL is fine */

/* A program here has just written to the file, and one (perhaps the same) may have mapped it: if
 * pages are dropped while the write is on its way, they come back with the old content, and the map
 * may be written back over the new data.  dropper_drop() waits for the end of it. */
bool dropper_is_being_written(const struct inode *inode);

/* Makes the kernel drop the attributes, and with `pages` the content too; `found`: the current
 * version (NULL: not known).  0: sent, or will be.  -ENOENT: the kernel does not know the inode
 * (yet).  -EALREADY: that version is no newer than the access list that was set here, and a drop
 * could make the kernel refuse access: the caller has the name expire instead. */
int dropper_drop(struct dropper *dropper, struct inode *inode, bool pages,
	const struct inode_version *found);

/* The same for pages that others have changed for certain: before a lock is granted
 * (dropper_catch_up()) it does not wait for the end of writes. */
int dropper_drop_foreign(
	struct dropper *dropper, struct inode *inode, const struct inode_version *found);

/* The file was locked: the holder must read what the last one wrote, perhaps through another mount,
 * though the feed may not have reported it yet.  `found`: the current version; NULL: not known, or
 * one more change may not show in it. */
void dropper_locked(struct dropper *dropper, struct inode *inode, const struct file_lock *lock,
	const struct inode_version *found);

/* Before what `lock` covers of its owner's locks is released at the workspace, or exchanged.
 * `caller`: the thread that asks for it. */
void dropper_unlocking(struct dropper *dropper, const struct inode *inode,
	const struct file_lock *lock, pid_t caller);

/* An access list was set through this mount, before the reply; `found`: the current version, and
 * `pages`: the content may have changed too.  After the reply the kernel asks for the mode before
 * it grants access, and goes by the old mode if a drop overtakes the answer.  So the drop is sent
 * now, and none for a version that is no newer. */
void dropper_listed(
	struct dropper *dropper, struct inode *inode, const struct attributes *found, bool pages);

/* Around a READ or WRITE of pages, which the kernel has locked until the reply: dropping them would
 * wait for the reply, which may never come.  Until the end, which comes before the reply, a drop
 * leaves these pages out, and those that the kernel reads ahead behind them; they are dropped
 * later. */
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

/* Waits until everything so far has been sent: waits for locks, but not for maps that are being
 * written. */
void dropper_drain(struct dropper *dropper);

/* Waits until everything so far has been sent that need not wait for a lock, or, unless it is
 * foreign, for a map that is being written.  -EINTR. */
int dropper_catch_up(struct dropper *dropper, struct op_context *ctx);
