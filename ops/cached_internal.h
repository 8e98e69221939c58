/*
 * ops/cached_internal.h - the parts of the cached decorator.
 *
 * cached.c       constructor, table, what is passed through
 * cached_tree.c  the tree of names that are known
 * cached_assemble.c  content of larger files, as it is read
 * cached_load.c  misses and prefetch: how the tree fills itself
 * cached_name.c  operations on names
 * cached_file.c  operations on open files
 * cached_content.c  file content: memory bound, the store on disk
 * cached_change.c  what own changes did to what is known
 * cached_defer.c  attribute changes that wait for a flush
 * cached_feed.c  what the change feed says
 *
 * Order.  Answers, own changes and events of the feed overtake one another on their way here.
 * What they tell carries the position of the look at it (ops/workspace.h), and the look with the
 * higher position counts: of a name, node->at; of the attributes of the object that it leads to,
 * node->object_at.  Own changes tell what they left of the object and of directories; that says
 * nothing of the names that lead there.
 *
 * `clock` counts changes of what is known.  A reply that was asked for at clock S adds nothing
 * (content, link target, extended attributes) to a name that changed after S, nor anything at all
 * after a loss of events.
 * All functions here want `lock` held unless they say otherwise.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "ops/cached.h"
#include "ops/worker_pool.h"

enum {
	SMALL_FILE_MAX_BYTES = 256 << 10, /* files whose content is fetched whole */
	LARGE_FILE_MAX_BYTES = 4 << 20,   /* ... or kept once all of it was read */
	OBJECT_BUCKETS = 1 << 15,
	HASH_BYTES = 16,
};

enum node_state {
	NODE_PRESENT,
	NODE_ABSENT,  /* nothing has that name */
	NODE_UNKNOWN, /* ask */
};

enum xattr_knowledge { XATTRS_UNKNOWN, XATTRS_NO_CAPABILITY, XATTRS_NONE };

/* When something was learnt: the clock here when it was asked for, and the position of the look. */
struct learnt {
	uint64_t asked;
	uint64_t at;
};

/* A call of the inner workspace that changes something.  Where its position was not told, or events
 * were lost meanwhile, nothing is known of what it left as of `at` (`told` is false). */
struct own {
	struct learnt learnt;
	bool told;
	struct facts facts;
	struct facts *callers; /* where the caller wants them */
};

struct content {
	struct content *newer, *older; /* of those that belong to a node */
	struct node *node;
	uint32_t refs; /* the node's and those of handles */
	uint64_t at;   /* position before it was read */
	size_t size;
	uint8_t data[];
};

struct directory {
	struct node **buckets;
	size_t bucket_count, count;
	bool complete;         /* every name is here */
	bool scanned;          /* it has been read; else it was made here */
	bool watched;          /* the feed reports changes ... */
	uint64_t watched_at;   /* ... of what was looked at from this position on */
	uint64_t unwatched_at; /* clock when the watch was last lost */
	uint64_t loaded_ms;
	uint64_t listed_at;         /* position before all names were looked at */
	unsigned branches;          /* in which directories were loaded because somebody asked */
	uint32_t last_branch;       /* hash of its name */
	unsigned opens;             /* branches in which content was missed */
	uint32_t last_opened;       /* hash of the last one's name */
	uint64_t refused_ms;        /* when it last could not be loaded */
	bool listed;                /* somebody read it as a directory */
	bool heard;                 /* the listener wants to hear of its entries ... */
	bool quiet;                 /* ... or does not any more */
	uint64_t names_wanted_ms;   /* when a prefetch of names below was last started ... */
	uint64_t content_wanted_ms; /* ... and of content */
};

struct node {
	struct node *parent, *next; /* next: in the bucket */
	struct node *same_bucket;   /* in the table of objects; not of directories */
	struct node **same_link;    /* the pointer there that leads here */
	uint32_t hash;
	uint16_t name_length;
	uint8_t state;  /* enum node_state */
	uint8_t xattrs; /* enum xattr_knowledge */
	bool attributes_known;
	bool removed_here;  /* by an own change: whoever asked for that knows */
	uint32_t moves;     /* own renames under way, which will take along what is known ... */
	bool gone;          /* ... although the name leads nowhere by now */
	uint32_t writers;   /* handles with writes that are not flushed */
	uint64_t at;        /* position of the look that found what the name leads to */
	uint64_t object_at; /* ... of the one at the object's attributes: none from before counts */
	uint64_t became_at; /* what is said of names below from before that is of another object */
	uint64_t known_at;  /* clock when what is known was asked for; 0: it is doubtful */
	uint64_t changed_at; /* clock of the last change, by whomever */
	uint64_t fetched_ms;
	uint64_t links_epoch;
	uint64_t write_count;
	bool locked;                  /* byte ranges have been locked through this mount */
	struct attributes attributes; /* id always valid when present */
	struct directory *directory;  /* of a directory once looked into */
	char *link_target;
	struct content *content;
	struct cached_file *files; /* handles that were opened by this name */
	char name[];
};

/* A directory that a caller is reading, at the path that he knows it by: a directory that is
 * moved away meanwhile is not waited for. */
struct load {
	struct load *next;
	const char *path;
};

/* A caller that waits for what is learnt of something of this name: thousands of others may come
 * in meanwhile. */
struct waiter {
	struct waiter *next;
	const char *name; /* "": of anything */
};

/* A scan under way that was not asked for by a waiting caller. */
struct prefetch {
	struct prefetch *next;
	struct cached *cached;
	bool content;
	uint64_t started_ms, first_content_ms; /* 0: none has come */
	uint64_t flowed_ms;                    /* when something last came */
	uint64_t expected_bytes, received_bytes;
	struct scan_request request;
	char path[];
};

struct cached {
	struct workspace workspace;
	struct workspace_ops ops;
	struct workspace *inner;
	uint64_t memory_bytes_max;
	uint32_t ttl_ms;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* something awaited was learnt, or a load ended */
	uint64_t clock;
	uint64_t highest;   /* position of all that was told */
	uint64_t rescan_at; /* clock of the last loss of everything: what was asked for by then is
			       void */
	uint64_t links_epoch;
	uint64_t exec_ms;     /* unwatched knowledge from before does not count */
	bool feed;            /* the inner workspace has one */
	atomic_bool stopping; /* also without the lock */
	bool ranges_locked;   /* somebody has locked byte ranges through this mount */
	struct node *root;
	struct node **objects; /* by inode number: the names of one object */
	uint64_t node_count, node_count_max;
	bool forgetting; /* cached_forget_all() is at it */
	unsigned asking; /* calls under way whose replies will be stored */
	struct content *newest, *oldest;
	uint64_t content_bytes;
	uint64_t assembling_bytes;
	struct load *loads;
	struct waiter *waiters;
	uint64_t keeping_bytes; /* waiting to be written to the store */
	struct prefetch *prefetches;
	uint64_t content_opened_ms;   /* when somebody last opened a small file */
	struct cached_file *deferred; /* handles with attribute changes that wait */
	uint64_t round_trip_us;       /* smoothed */
	struct fs_stats stats;
	uint64_t stats_ms;
	struct cached_stats statistics;

	struct worker_pool *scanners;
	struct worker_pool *keepers; /* write to the store */
	struct content_store *store;
	change_sink sink;
	void *sink_user;
};

struct cached_file {
	struct open_file file;
	struct cached_file *next;     /* on the same node; under lock */
	struct node *node;            /* NULL once the name means something else; under lock */
	char *path;                   /* when opened; under lock */
	struct attributes attributes; /* when opened */
	int flags;
	pthread_mutex_t open_lock; /* guards the making of `inner` */
	_Atomic(struct open_file *) inner;
	struct content *content;   /* what a file without `inner` is read from; under lock */
	struct assembly *assembly; /* of what was read so far, or NULL; under lock */
	bool dirty;                /* counted in node->writers; under lock */
	bool was_written;          /* and not flushed since; under lock */
	uint8_t *capture;          /* what was written so far, from 0 on; under lock */
	size_t capture_size, capture_room;
	uint64_t captured_writes;
	bool capturing;
	struct attributes
		left;        /* what the last write left, where the place tells that at once ... */
	uint64_t left_at;    /* ... and its position; under lock */
	atomic_bool created; /* by this handle, at ... */
	uint64_t created_ms; /* ... by cached_now_ms() */
	bool has_locks;      /* or had; under lock */
	unsigned deferred_mask; /* attribute changes that wait for its flush ... */
	struct attributes deferred;
	int deferred_error; /* ... or failed when they did not wait */
	struct cached_file *next_deferred;
};

static inline struct cached *cached_of(struct workspace *w)
{
	return (struct cached *)w;
}

static inline struct cached_file *cached_file_of(struct open_file *file)
{
	return (struct cached_file *)file;
}

uint64_t cached_now_ms(void); /* never 0 */

/* Waits until something is learnt of what has the path's last name ("": of anything), or a
 * directory is complete, or the feed tells something; 20 ms at most.  -EINTR when the caller
 * gave up. */
int cached_wait(struct cached *c, struct op_context *ctx, const char *path);

/* Wakes those who wait for what is now known of the node. */
void cached_learnt(struct cached *c, const struct node *node);

/* ---- cached_tree.c -------------------------------------------------------------- */

/* Forgets what is at and below the node but not the name itself: content, entries. */
void node_clear(struct cached *c, struct node *node);

/* Takes the node out of the tree and frees it with all below it. */
void node_remove(struct cached *c, struct node *node);

/* Everything is forgotten but the root. */
void tree_drop(struct cached *c, struct node *top);

/* What has been asked for until now is not believed when it comes; what is from now on is. */
void cached_forget_answers(struct cached *c);

/* Everything is, and what is watched for ourselves alone is watched no longer.  Releases the lock.
 */
void cached_forget_all(struct cached *c);

/* The node after this one at or below `top`, parents first; NULL: that was the last. */
struct node *tree_next(const struct node *top, struct node *node);

/* The node's directory part, made if need be; NULL: no memory, or no directory. */
struct directory *node_directory(struct node *node);

/* What is known may be believed: the name; the attributes too; all names of a directory. */
bool node_name_is_fresh(const struct cached *c, const struct node *node);
bool node_attributes_are_fresh(const struct cached *c, const struct node *node);
bool node_is_complete(const struct cached *c, const struct node *node);

/* What was looked at then is not older than what is known of the name.  Without a node: `parent` is
 * where there is none. */
bool node_takes(const struct node *node, const struct node *parent, uint64_t at);

/* They may well have the same content: size and mtime agree. */
bool attributes_same_content_times(const struct attributes *a, const struct attributes *b);

/* The name leads to this object, as far as is known. */
bool node_is_object(const struct node *node, const struct attributes *attributes);

/* Records what is at a name now, whatever was known; of the attributes, only if no later look at
 * the object is. */
void node_set_present(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct learnt *learnt);
void node_set_absent(struct cached *c, struct node *node, const struct learnt *learnt);

/* Records what is known of the object now, whichever names lead to it; `mode` 0: nothing is. */
void node_set_object(struct cached *c, struct node *node, const struct attributes *attributes,
	bool keeps_content, uint64_t at);

/* Nothing that was looked at before is believed of the name. */
void node_raise(struct node *node, uint64_t at);

/* A handle of this mount has had a lock on the file: nothing is believed of it. */
bool node_is_locked(const struct node *node);
void node_set_unknown(struct cached *c, struct node *node);

/* What is known stays, with the handles on it, but only the place can tell whether it is so. */
void node_set_doubtful(struct cached *c, struct node *node);

/* The attributes changed by then, nobody knows how. */
void node_set_stale(struct cached *c, struct node *node, uint64_t at);

/* Finds a known node by path, whether fresh or not; NULL. */
struct node *tree_find(const struct cached *c, const char *path, size_t length);

/* Finds or makes the node of a path whose parent is known; else NULL. */
struct node *tree_make(struct cached *c, const char *path);

/* The same, and makes nodes of what is not known on the way to it. */
struct node *tree_make_all(struct cached *c, const char *path);

/* Looks a path up in what is fresh.  0 and `*ret_node`; -ENOENT, -ENOTDIR, -ELOOP as known;
 * -EAGAIN: not known, and `*ret_directory` (may be NULL) is the directory to load. */
int tree_lookup(const struct cached *c, const char *path, struct node **ret_node,
	struct node **ret_directory);

/* The path of a node, the caller's to free; NULL: no memory. */
char *node_path(const struct node *node);

/* Moves a node below another name, with all below it. */
void node_move(struct cached *c, struct node *node, struct node *to, const struct learnt *learnt);

/* ---- cached_assemble.c --------------------------------------------------------- */

/* Before a read that the place will answer, and after it: the bytes that came. */
void cached_assemble_begin(struct cached *c, struct cached_file *file);
void cached_assemble_take(
	struct cached *c, struct cached_file *file, const void *data, size_t size, off_t offset);

/* Gives up what was gathered, if anything. */
void cached_assemble_end(struct cached *c, struct cached_file *file);

/* ---- cached_content.c ---------------------------------------------------------- */

struct content *content_new(const void *data, size_t size, uint64_t at);
/* The bytes are the caller's to fill. */
struct content *content_new_blank(size_t size, uint64_t at);

/* One file of this size does not displace most others. */
bool content_may_be_kept(const struct cached *c, uint64_t size);
struct content *content_ref(struct content *content);
void content_unref(struct content *content);

/* Makes it the node's content (takes over the caller's reference). */
void content_attach(struct cached *c, struct node *node, struct content *content);
void content_detach(struct cached *c, struct node *node);
void content_used(struct cached *c, struct content *content);
bool bytes_have_hash(const void *data, size_t size, const uint8_t *hash);

/* Puts the node's content into the store on disk, some time.  `version`: as it was looked at before
 * that content was read. */
void content_keep(struct cached *c, const struct node *node, const struct attributes *version);

/* The store may have it.  Fetches it from there; releases the lock. */
bool content_is_kept(const struct cached *c, const struct node *node);
void content_restore(struct cached *c, const char *path);

/* ---- cached_load.c --------------------------------------------------------------- */

/* Finds a fresh node by path, loading directories as need be.  With `attributes` its
 * attributes are fresh too.  Releases the lock meanwhile.  0; -EAGAIN: ask the place; else
 * as tree_lookup(), or -EINTR and what the place says. */
int cached_resolve(struct cached *c, struct op_context *ctx, const char *path, bool attributes,
	struct node **ret_node);

/* Reads a directory whole, as somebody wants to list it. */
int cached_load_listing(struct cached *c, struct op_context *ctx, const char *path);

/* The same, as somebody will look names up in it.  One that was made here a moment ago is known
 * without that, though not watched yet. */
int cached_load_names(
	struct cached *c, struct op_context *ctx, const char *path, struct node **ret_node);

/* Waits for the content of a small file if it is on its way, and thinks about fetching more.
 * Releases the lock.  The node may have changed. */
int cached_await_content(
	struct cached *c, struct op_context *ctx, const char *path, struct node **ret_node);

/* Begin and end of a call of the inner workspace whose reply will be stored: of one that looks,
 * and of one that changes something. */
struct learnt cached_begin_asking(struct cached *c, struct op_context *ctx);
void cached_end_asking(struct cached *c, const struct op_context *ctx, struct learnt *learnt);
void cached_begin_change(struct cached *c, struct op_context *ctx, struct own *own);
void cached_end_change(struct cached *c, struct op_context *ctx, struct own *own);

/* A directory that was just made is empty, and wants to be watched.  NULL is fine. */
void cached_own_directory(struct cached *c, struct node *node, const struct own *own);

/* Counts a call of the inner workspace for a caller. */
void cached_count_trip(struct cached *c, uint64_t started_ms);

/* ---- cached_feed.c ------------------------------------------------------------------ */

/* The sink of the inner workspace's feed; without the lock. */
void cached_take_change(void *user, const struct change *change);

/* The directory is not watched any more, whatever an answer under way says.  What is known of it,
 * or NULL. */
struct directory *cached_note_unwatched(struct cached *c, const char *path);

/* ---- cached_change.c: what calls of the inner workspace told ------------------------------ */

/* The answer of a look at `path`: attributes, or -ENOENT; or the error of a call for which another
 * is there than was thought (-ESTALE, -ELOOP, -EISDIR, -EINVAL): it is to be looked at again. */
void cached_store_answer(struct cached *c, const char *path, int r,
	const struct attributes *attributes, const struct learnt *learnt);

/* An own change succeeded: this is at the path now (NULL: but nobody can say so); nothing is; or
 * (also when it failed) nobody knows. */
struct node *cached_own_present(struct cached *c, const char *path,
	const struct attributes *attributes, const struct own *own);
void cached_own_absent(struct cached *c, const char *path, const struct own *own);
void cached_own_unknown(struct cached *c, const char *path, const struct own *own);

/* The place found another directory there than was meant: it is asked before that is believed. */
void cached_doubt_parent(struct cached *c, const char *path);

/* An own change of something at the path that was not known here: an answer from before it may be
 * on its way, or have come meanwhile. */
void cached_own_done(struct cached *c, const char *path, uint64_t at);

/* What an own rename moves. */
struct moved {
	struct object_id id; /* inode 0: unknown */
	bool was_there;      /* the new name led to it before, too */
};

/* Around the call: what is known of the object stays at its name, whatever is told of that. */
void cached_begin_move(struct cached *c, const char *from, const char *to, struct moved *ret_moved);
void cached_end_move(struct cached *c, const char *from);

/* After that: it succeeded. */
void cached_own_moved(struct cached *c, const char *from, const char *to, const struct moved *moved,
	const struct own *own);

/* A rename whose result nobody knows, or that left something at both names. */
void cached_own_names(struct cached *c, const char *from, const char *to, const struct own *own);

/* An own change told what it left of the object; its content is what it was. */
void cached_own_object(struct cached *c, struct node *node, const struct own *own);

/* An own change of attributes: what they are now. */
void cached_own_attributes(struct cached *c, struct node *node, unsigned mask,
	const struct attributes *attributes, const struct own *own);

/* ---- cached_defer.c: attribute changes of a file that its creator has open ------------------ */

/* Holds the change back until the creator's flush, if nothing speaks against it. */
bool cached_defer(struct cached *c, const struct op_context *ctx, struct node *node, unsigned mask,
	const struct attributes *want, struct attributes *ret_attributes);

/* Makes what waits happen: of one handle (without the lock; in its own calls; with `last`
 * nothing will wait for it any more), of the file at a
 * path, or of all (both release the lock). */
int cached_apply_deferred(
	struct cached *c, struct op_context *ctx, struct cached_file *file, bool last);
void cached_apply_deferred_at(struct cached *c, struct op_context *ctx, const char *path);
void cached_apply_all_deferred(struct cached *c, struct op_context *ctx);

/* What is known of the attributes is void until the handle is flushed. */
void cached_mark_dirty(struct cached *c, struct cached_file *file);

/* ---- Operations: cached_name.c and cached_file.c ----------------------------------------------
 */

int cached_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes);
int cached_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since);
int cached_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched);
int cached_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target);
int cached_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes);
int cached_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes);
int cached_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes);
int cached_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes);
int cached_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected);
int cached_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected);
int cached_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected);
int cached_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes);
ssize_t cached_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size);
ssize_t cached_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size);
int cached_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags);
int cached_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name);

int cached_open(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes);
int cached_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes);
int cached_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes);
ssize_t cached_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset);
ssize_t cached_write(struct op_context *ctx, struct open_file *file, const void *data, size_t size,
	off_t offset);
int cached_flush(struct op_context *ctx, struct open_file *file);
int cached_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only);
int cached_close(struct op_context *ctx, struct open_file *file);
int cached_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length);
off_t cached_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence);
ssize_t cached_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size);
int cached_lock(
	struct op_context *ctx, struct open_file *file, const struct file_lock *lock, bool wait);
int cached_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock);
int cached_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner);

/* Attributes through a handle; without the lock. */
int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes);

/* Before a name goes: has files at the path that were opened here only opened by the inner
 * workspace too, where they stay valid.  With the lock, which it drops meanwhile. */
void cached_hold_open(struct cached *c, struct op_context *ctx, const char *path);

/* The same object for the inner workspace.  Without the lock. */
int cached_inner_object(
	struct op_context *ctx, const struct object_ref *object, struct object_ref *ret_object);
