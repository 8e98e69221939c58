/*
 * fs/edge/drops.h - when the kernel is to be told that an inode's attributes and pages are not
 * valid.
 *
 * A drop (FUSE_NOTIFY_INVAL_INODE) does more than it says.  The kernel discards the reply to each
 * GETATTR that it had asked for before, and the read that needed it goes on with the size of
 * before: whoever reads under a lock must not be disturbed by one.  The reply to SETATTR (and LINK)
 * it installs in any case, also over a later drop.
 *
 * So drops are wanted here, and taken when the rules allow it (ops/cache/COHERENCE.md, by the names
 * that RULE() has in drops.c).  Pure: no thread, clock, lock or call.  The caller has one lock
 * around all of it, and none while it talks to the kernel.  All tables are bounded: when one is
 * full, the oldest lock or reply is forgotten, and a drop is not kept.
 */
#pragma once

#include "fs/inode/inode.h"

#ifndef DROPS_MAX
#define DROPS_MAX 256
#endif

/* The kernel knows no drop of pages without the attributes. */
enum drop_what { DROP_NOTHING, DROP_ATTRIBUTES, DROP_PAGES };

/* Nanoseconds. */
static const uint64_t DROPS_LOCK_NS = 2000000000;  /* some locks are held for ever */
static const uint64_t DROPS_INSTALL_NS = 2000000;  /* nearly always enough for a reply ... */
static const uint64_t DROPS_REPEAT_NS = 100000000; /* ... and on a machine under load */

struct drops {
	struct drop {
		struct inode *inode;
		enum drop_what wanted;
		bool attributes_first;        /* pages that have to wait do not keep them back */
		unsigned under_way;           /* threads that are sending it now */
		struct inode_version version; /* that was found; mode 0: not known */
		uint64_t wanted_ns, not_before_ns;
		uint64_t taken_ns;  /* when the first of what is being sent was wanted */
		uint64_t repeat_ns; /* 0: not at all */
		bool is_pressing;
	} drops[DROPS_MAX];
	struct held {
		const struct inode *inode;
		struct file_lock lock;
		uint64_t until_ns;
		bool is_ready; /* what was stale when it was granted has been dropped */
		bool is_cut;   /* a part of it was released */
	} held[DROPS_MAX];
	struct reply {
		const struct inode *inode; /* NULL: none */
		pid_t caller;
		bool is_under_way, is_overtaken;
		struct inode_version version; /* that the inode has, once it is done */
		uint64_t done_ns;
	} replies[DROPS_MAX];
	struct clean {
		const struct inode *inode;
		struct inode_version version; /* the kernel has no older pages */
	} clean[DROPS_MAX];
	unsigned count, held_count, reply_next, clean_next;
};

/* The inode is to be dropped, as this version was found (mode 0: it is not known which); pages not
 * before `not_before_ns`, as a map of them is being written back.  FULL: now, by the caller, or
 * never.  NEW: there is an entry now that has to be referenced until drops_end() says that it is
 * gone. */
enum drops_added { DROPS_FULL, DROPS_KNOWN, DROPS_NEW };
enum drops_added drops_want(struct drops *drops, struct inode *inode, bool pages,
	const struct inode_version *version, uint64_t not_before_ns, uint64_t now_ns);

/* Takes what may be dropped of this inode, or of any one, now: it is told to the kernel, and
 * drops_end() follows.  0 or NULL: nothing; `*ret_due_ns` becomes earlier where something will be
 * (0: never).  BARRIER: what drops_press() was called for does not wait for a map; HURRY: nothing
 * does.  GRANT: whatever is locked. */
enum drops_mode { DROPS_USUAL, DROPS_BARRIER, DROPS_HURRY, DROPS_GRANT };
enum drop_what drops_take(struct drops *drops, const struct inode *inode, enum drops_mode mode,
	uint64_t now_ns, uint64_t *ret_due_ns);
struct inode *drops_next(struct drops *drops, enum drops_mode mode, uint64_t now_ns,
	enum drop_what *ret_what, uint64_t *ret_due_ns);

/* Others have changed the content, for certain: its drop, which is wanted, is pressing. */
void drops_press(struct drops *drops, const struct inode *inode);
bool drops_is_pressing(const struct drops *drops, const struct inode *inode);

/* The drop has been sent.  True: the entry is gone. */
bool drops_end(struct drops *drops, const struct inode *inode);

/* It is being sent. */
bool drops_is_under_way(const struct drops *drops, const struct inode *inode);

/* It is wanted, and may be taken from `*ret_due_ns` on (0: now). */
bool drops_is_wanted(struct drops *drops, const struct inode *inode, enum drops_mode mode,
	uint64_t now_ns, uint64_t *ret_due_ns);

/* Everything that was wanted until then has been sent (but for repetitions), or with DROPS_BARRIER
 * everything that may be. */
bool drops_are_sent(
	const struct drops *drops, enum drops_mode mode, uint64_t until_ns, uint64_t now_ns);

/* A lock was granted through this mount: drops_decide() says what must be done before the reply to
 * its holder.  DROPS: everything is wanted, taken (DROPS_GRANT) and sent; after a while that may be
 * done in spite of WAITS, at the risk that the holder reads old data.  At last drops_granted(). */
enum drops_decision { DROPS_GRANT_WAITS, DROPS_GRANT_DROPS, DROPS_GRANT_NOTHING };
void drops_lock(struct drops *drops, const struct inode *inode, const struct file_lock *lock,
	uint64_t now_ns);
enum drops_decision drops_decide(const struct drops *drops, const struct inode *inode,
	const struct file_lock *lock, uint64_t now_ns, uint64_t *ret_due_ns);
void drops_granted(struct drops *drops, const struct inode *inode, const struct file_lock *lock);

/* All pages were dropped for a lock, when this was the version; and whether that was so for the
 * version found now. */
void drops_clean(
	struct drops *drops, const struct inode *inode, const struct inode_version *version);
bool drops_is_clean(
	const struct drops *drops, const struct inode *inode, const struct inode_version *version);

/* Before the workspace is asked: what `lock` covers of its owner's locks is released; or another
 * lock is asked for in its place, which may be to lose it for a moment. */
void drops_unlock(struct drops *drops, const struct inode *inode, const struct file_lock *lock);
void drops_relock(struct drops *drops, const struct inode *inode, const struct file_lock *lock);

/* Around a reply that the kernel installs in any case: from before the workspace is asked until it
 * is written.  Returns a number for drops_replied().  `version`: what the reply has, or mode 0.
 * True: the entry is gone. */
unsigned drops_reply(struct drops *drops, const struct inode *inode, pid_t caller);
bool drops_replied(struct drops *drops, unsigned number, const struct inode *inode,
	const struct inode_version *version, uint64_t now_ns);

/* The thread `caller` asks for something else: what was replied to it is installed.  0: not
 * known which one it is. */
void drops_installed(struct drops *drops, const struct inode *inode, pid_t caller);
