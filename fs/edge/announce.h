/*
 * fs/edge/announce.h - changes of others, announced to programs that wait on inotify(7).
 *
 * The kernel raises an event when a process of this machine changes something, and for nothing
 * else.  So a process of ours, the event helper (fs/watchers/), makes on the mount the call that
 * would have made the change; its requests are recognised here and answered as if they had been
 * carried out.  The kernel raises the event, and nothing happens at the workspace: no change that
 * an event helper asks for is ever carried out.
 * Threads: any, but one slot belongs to one thread.
 */
#pragma once

#include "fs/edge/session.h"

enum { ANNOUNCE_HELPERS_MAX = ANNOUNCERS, ANNOUNCE_DEPTH_MAX = 64 };

enum announce_op {
	ANNOUNCE_NOTHING,
	ANNOUNCE_MODIFY, /* opens the file, sets its mtime */
	ANNOUNCE_ATTRIB,
	ANNOUNCE_CREATE,
	ANNOUNCE_DELETE,
	ANNOUNCE_RENAME,
};

/* What the helper is about to do.  It sees names as they were before the change. */
struct announcement {
	enum announce_op op;
	struct inode *parent, *new_parent; /* the latter of RENAME */
	char name[256], new_name[256];
	struct inode *inode;          /* DELETE, RENAME: what had the name; NULL: not known */
	struct inode *replaced;       /* RENAME: what the new name led to; or NULL */
	struct attributes attributes; /* CREATE, RENAME: of the object; DELETE: `mode` counts */
	uint64_t at;                  /* CREATE: position of the look that found it */

	/* DELETE in directories that are gone as well: the way to `parent`, from above. */
	struct announced_step {
		struct inode *parent, *inode;
		char name[256];
	} way[ANNOUNCE_DEPTH_MAX];
	unsigned way_length;
};

/* What the inode table knew of a name before a change. */
struct known_before {
	enum { BEFORE_UNKNOWN, BEFORE_NOTHING, BEFORE_OBJECT } kind;
	struct object_id id;
	struct inode_version version;
	bool is_ours; /* this mount changed the name, or the object, a moment ago */
};

/* The observer of changes; all functions are called without a lock, from several threads. */
struct change_observer {
	void *user;

	/* Called after the kernel's caches were invalidated. */
	void (*foreign)(void *user, struct inode *parent, const char *name,
		const struct change *change, const struct known_before *before);

	/* A request through this mount has changed what is at `path`; the kernel has raised the
	 * events.  `settled` false: the outcome may not be asked for yet. */
	void (*own)(void *user, struct op_context *op, const char *path, bool settled);

	/* Changes in the directory (NULL: anywhere) were missed. */
	void (*lost)(void *user, struct inode *directory);

	/* The mount is about to be unmounted. */
	void (*ending)(void *user);
};

/* `observer` must stay valid until mount_run() has returned; NULL: none. */
void announce_observe(struct mount *m, const struct change_observer *observer);

/* Whether own() is to be called: not while no program waits on inotify. */
void announce_wants_own(struct mount *m, bool wanted);

/* The process that uses the slot from now on; 0: none, before it is waited for. */
void announce_helper(struct mount *m, unsigned slot, pid_t pid);

/* Around a call of the helper.  The inodes are referenced meanwhile. */
void announce_begin(struct mount *m, unsigned slot, const struct announcement *announcement);
void announce_end(struct mount *m, unsigned slot);

/* Around a call of a helper, and around a notification that takes the lock of a directory: not both
 * at once.  The kernel may hold that lock for the helper until the daemon has answered; a thread of
 * the daemon that waits for it in the kernel cannot be killed, and after a kill -9 nobody would
 * ever answer. */
void announce_call_begin(struct mount *m);
void announce_call_end(struct mount *m);
static inline void announce_expiry_begin(struct session *s)
{
	s->expiring++;
	pthread_mutex_lock(&s->announcing);
	s->expiring--;
}

static inline void announce_expiry_end(struct session *s)
{
	pthread_mutex_unlock(&s->announcing);
}

/* The kernel may hold a lock of the inode, or of a page of it, until a request is answered: a
 * process that touches it would wait for that, and could not be killed. */
bool announce_must_wait(struct mount *m, const struct inode *inode);

/* Expires the entry if the kernel may have cached it as absent, or `always`. */
void announce_expire(struct mount *m, struct inode *parent, const char *name, bool always);

/* Changes in a directory are reported from now on, where that can be. */
void announce_watch(struct mount *m, struct op_context *op, struct inode *directory);

/* ---- For the operations of the session --------------------------------------------------- */

/* True: the request is one of an event helper's, and was answered. */
bool announce_lookup(fuse_req_t fuse, fuse_ino_t parent, const char *name);
bool announce_make(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode);
bool announce_remove(fuse_req_t fuse, fuse_ino_t parent, const char *name);
bool announce_rename(fuse_req_t fuse, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name);
bool announce_open(fuse_req_t fuse, struct fuse_file_info *fi);
bool announce_close(fuse_req_t fuse, const struct fuse_file_info *fi);

/* The caller is an event helper: nothing that it asks for is carried out, or logged. */
bool announce_is_helper(struct session *s, pid_t pid);

/* Around the processing of a request, which this thread has just read. */
struct announce_flight {
	atomic_uint *nodes[2];
};
void announce_flight_begin(
	struct session *s, const struct fuse_buf *buffer, struct announce_flight *ret_flight);
void announce_flight_end(const struct announce_flight *flight);

void announce_init(struct session *s);
void announce_done(struct session *s);
