/*
 * ops/cache/cached_internal.h - the parts of the cached decorator.
 *
 * cached.c       constructor, table, what is passed through
 * cached_path.c  paths through the tree, and what is kept with its objects
 * cached_learn.c what answers, own changes and the change feed tell: the one way into the tree
 * cached_fetch.h  how the tree fills itself:
 *   cached_load.c  directories that a caller needs
 *   cached_prefetch.c  scans that nobody waits for
 *   cached_intake.c  what a scan says, taken into the tree
 *   cached_ahead.c  content of small files, fetched ahead
 * cached_search.c  searches: what of a tree is here, and the rest in one scan
 * cached_name.c  operations on names
 * cached_open.c  handles: opened, created
 * cached_file.c  what is asked through them
 * cached_write.c  what is written through them
 * cached_content.c  file content: memory bound, the store on disk
 * cached_assemble.c content of larger files, as it is read
 * cached_defer.c  attribute changes that wait for a flush
 * cached_early.c  files that were created or truncated without waiting
 * cached_tidy.c   memory that is given back when nothing happens
 *
 * What is known of names, attributes, listings and watches is in one struct tree
 * (ops/cache/tree.h), by rules that do not depend on the order in which anything arrives
 * (ops/cache/COHERENCE.md).  Here is what belongs to an object otherwise (struct extra), and the
 * decision what to fetch. All functions here want `lock` held unless they say otherwise.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "ops/cache/cached.h"
#include "ops/forward.h"
#include "ops/support/buffer.h"
#include "ops/support/slab.h"
#include "ops/cache/tree.h"
#include "ops/support/worker_pool.h"

enum {
	SMALL_FILE_MAX_BYTES = 256 << 10, /* files whose content is fetched whole */
	LARGE_FILE_MAX_BYTES = 4 << 20,   /* ... or kept once all of it was read */
	HASH_BYTES = 16,
	MISSED_NAMES = 16,
};

/* What is known of an object's extended attributes: the tree's mark of its state. */
enum xattr_knowledge { XATTRS_UNKNOWN, XATTRS_NO_CAPABILITY, XATTRS_NONE };

struct content {
	TAILQ_ENTRY(content) used; /* of those that are attached */
	struct extra *extra;       /* that of the file whose content it is; or NULL */
	uint64_t at;               /* the attributes whose content it is were looked at then */
	uint32_t refs;             /* that of the file and those of handles */
	uint32_t size;
	bool settled;  /* nobody can have changed it since and left those times as they are */
	bool is_own;   /* we wrote it, perhaps others before that look; until its hash is told */
	bool is_guess; /* prefetched, and nobody has opened the file since */
	bool waits;    /* to be written to the store */
	uint8_t data[];
};

/* What a directory is used for: whether more of it is worth fetching. */
struct directory {
	bool is_own;        /* made here */
	bool scanned;       /* by a scan that had it watched, if it can be; else one may have it */
	bool listed;        /* somebody read it as a directory */
	bool subscribed;    /* the listener wants changes of its entries ... */
	bool unsubscribed;  /* ... or does not any more */
	bool names_partial; /* the last prefetch of names below left out what git ignores */
	unsigned branches; /* in which directories were loaded because somebody asked, since then */
	uint64_t last_branch;
	unsigned opens; /* branches in which content was missed */
	uint64_t last_opened;
	uint64_t refused_ms;        /* when it last could not be loaded */
	uint64_t names_wanted_ms;   /* when a prefetch of names below was last started ... */
	uint64_t content_wanted_ms; /* ... and of content */
};

/* What is kept with an object beside the knowledge in the tree; where there is something to keep.
 * An object with open handles stays in the tree. */
struct extra {
	struct object_id id;
	struct content *content;        /* that of the attributes which are known, or NULL */
	char *link_target;              /* or NULL */
	LIST_HEAD(, cached_file) files; /* open handles */
	struct directory *directory;
	uint64_t write_count;
	uint32_t writers;    /* handles with writes that are not flushed */
	bool locked;         /* byte ranges have been locked through this mount */
	uint64_t granted_at; /* for handles that have or had locks nothing counts that was looked at
			      * before; UINT64_MAX: nothing does.  Nor does anything since
			      * events were lost: with their session the lock may be, too */
	uint64_t granted_ms;
};

/* Where a path leads. */
struct found {
	struct object_id id;        /* what is there; inode 0: nothing, or unknown */
	struct object_id directory; /* that holds its last name; inode 0: unknown, or "" has none */
};

/* A directory that a caller is reading, at the path that he knows it by. */
struct load {
	LIST_ENTRY(load) link;
	const char *path;
};

/* A caller that waits for what is learnt of something of this name: thousands of others may come
 * in meanwhile. */
struct waiter {
	LIST_ENTRY(waiter) link;
	const char *name;
};

/* A directory that the workspace watches for us alone, and of which nothing is known any more. */
struct unheard {
	struct unheard *next;
	struct object_id id;
};

/* A scan under way that was not asked for by a waiting caller. */
struct prefetch {
	LIST_ENTRY(prefetch) link;
	struct cached *cached;
	bool content;
	uint64_t started_ms, first_content_ms; /* 0: none has come */
	uint64_t flowed_ms;                    /* when something last came */
	uint64_t expected_bytes, received_bytes;
	struct scan_request request;
	char path[];
};

/* The caller was told that it had made the name, and somebody else had. */
struct missed_name {
	struct object_id directory; /* inode 0: unused */
	pid_t pid;
	uint64_t ms;
	char name[256];
};

struct cached {
	struct forward base;
	uint64_t memory_bytes_max;
	uint32_t ttl_ms;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* something awaited was learnt, or a load ended */
	struct tree *tree;
	struct slab extras;    /* struct extra and struct directory */
	struct object_id root; /* inode 0: unknown yet */
	bool feed;             /* the inner workspace has one */
	atomic_bool stopping;  /* also without the lock */
	uint64_t lost_ms;      /* when events were last lost */
	uint64_t exec_ms;      /* when a command last ended */
	struct unheard *unheard;
	TAILQ_HEAD(content_list, content) contents; /* last used first */
	uint64_t content_bytes;                     /* attached ... */
	uint64_t waiting_bytes;        /* ... or no more, but waiting to be written to the store */
	uint64_t guessed_bytes;        /* of attached content that is a guess ... */
	uint64_t guessed_before_bytes; /* ... of long ago */
	uint64_t guessed_ms;           /* when content was last prefetched */
	uint64_t assembling_bytes;
	LIST_HEAD(, load) loads;
	LIST_HEAD(, waiter) waiters;
	uint64_t keeping_bytes; /* waiting to be written to the store, attached or not */
	LIST_HEAD(, prefetch) prefetches;
	uint64_t content_opened_ms;        /* when somebody last opened a small file */
	LIST_HEAD(, cached_file) deferred; /* handles with attribute changes that wait */
	LIST_HEAD(, applying) applying;    /* changes that are on their way */
	uint64_t applied;                  /* counts them */
	LIST_HEAD(, cached_file) unnamed;  /* handles whose create or open is not answered yet */
	struct missed_name missed[MISSED_NAMES]; /* the last that somebody else took */
	unsigned missed_next;
	uint64_t round_trip_us; /* smoothed */
	struct fs_stats stats;
	uint64_t stats_ms;      /* when they were asked for; 0: never ... */
	uint64_t stats_changes; /* ... after so many changes */
	bool stats_come;        /* they are asked for */
	uint64_t changes;       /* of our own, and those that were told of */
	struct cached_stats statistics;

	uint64_t news;        /* counts what is learnt */
	bool tidies, is_tidy; /* cached_tidy.c: its thread runs; waits for news */
	pthread_t tidier;
	pthread_cond_t tidier_wanted;

	struct worker_pool scanners;
	struct worker_pool keepers; /* write to the store */
	struct content_store *store;
	change_sink sink;
	void *sink_user;
};

/* Writes of a handle, deferred changes among them.  One that has not ended is under way. */
struct writes {
	uint64_t begun, ended;
};

/* Attribute changes of a handle that somebody is bringing to the workspace. */
struct applying {
	LIST_ENTRY(applying) link;
	struct cached_file *file; /* which is not closed meanwhile */
	uint64_t begun;           /* by cached.applied */
};

struct cached_file {
	struct open_file file;
	LIST_ENTRY(cached_file) link; /* of the same object; under lock */
	struct extra *extra;          /* of the object */
	char *path;                   /* when opened */
	struct attributes attributes; /* when opened */
	int flags;
	pthread_mutex_t open_lock; /* guards the making of `inner` */
	_Atomic(struct open_file *) inner;
	struct content *content;   /* what a file without `inner` is read from; under lock */
	struct assembly *assembly; /* of what was read so far, or NULL; under lock */
	bool dirty;                /* not flushed yet: one of extra->writers; under lock */
	struct writes writes;      /* under lock */
	struct buffer capture;     /* what was written so far, from 0 on; under lock */
	uint64_t captured_writes;
	bool capturing;
	bool written;           /* while dirty; else that is for what waits only */
	uint64_t opened_at;     /* position after which the workspace has opened it ... */
	uint64_t opened_state;  /* ... and the state of the file then: what is read may be as old */
	atomic_bool created;    /* or truncated by this handle, at ... */
	uint64_t created_ms;    /* ... by cached_now_ms() */
	bool has_locks;         /* or had; under lock */
	bool closing;           /* and not to be opened for what becomes of its name; under lock */
	unsigned deferred_mask; /* attribute changes that wait for its flush ... */
	struct attributes deferred;
	int deferred_error; /* ... or failed when they did not wait */
	uid_t deferred_uid; /* credentials of the last call that asked for them */
	gid_t deferred_gid;
	unsigned applying; /* calls that bring them to the workspace; under lock */
	LIST_ENTRY(cached_file) deferred_link;
	bool unnamed; /* its create or open is not answered; under lock, as are the next ones */
	struct object_id made_in; /* the directory that it is to have its name in ... */
	pid_t made_by;            /* ... and who made it */
	uint64_t made_ms;         /* when it was asked for */
	unsigned awaiting;        /* calls that wait for the name */
	bool was_there;           /* it is not new, but truncated */
	bool is_other;            /* the name was somebody else's, and so is the file */
	LIST_ENTRY(cached_file) unnamed_link;
};

static inline struct cached *cached_of(struct workspace *w)
{
	return (struct cached *)w;
}

static inline struct cached_file *cached_file_of(struct open_file *file)
{
	return (struct cached_file *)file;
}

static inline struct cached *cached_of_file(const struct cached_file *file)
{
	return cached_of(file->file.workspace);
}

uint64_t cached_now_ms(void); /* never 0 */

/* The lock.  Whoever leaves it has directories unwatched that were dropped meanwhile. */
void cached_enter(struct cached *c);
void cached_leave(struct cached *c);

/* ---- Calls of the inner workspace whose reply tells something ------------------------------- */

struct asking {
	uint64_t asked_ms;
	struct tree_look look;
	struct facts facts, *told; /* of a change: what it left behind */
};

/* Of a look at that position: as good as one made now, unless a command has ended meanwhile. */
struct tree_look cached_look(const struct cached *c, uint64_t at, uint64_t asked_ms);

/* Counts a call of the inner workspace for a caller. */
void cached_count_trip(struct cached *c, uint64_t started_ms);

/* Leaves the lock, for a look or for a change. */
void cached_ask(struct cached *c, struct op_context *ctx, struct asking *asking);
void cached_begin_change(struct cached *c, struct op_context *ctx, struct asking *asking);

/* Takes it again: `look` is what the reply tells of.  end_asking() counts the call, too. */
void cached_take_reply(struct cached *c, struct op_context *ctx, struct asking *asking);
void cached_end_asking(struct cached *c, struct op_context *ctx, struct asking *asking);

/* ---- cached_path.c ----------------------------------------------------------------------------
 */

/* Follows a path through what is valid.  0; -ENOENT, -ENOTDIR, -ELOOP as known; -EAGAIN: not known,
 * and the last name's directory is to be loaded if that is set, or is the root.  Whatever is
 * returned, ret_found->directory is set only if everything before the last name is valid. */
int cached_walk(struct cached *c, const char *path, struct found *ret_found);

/* Follows it as far as anything is known, valid or not. */
struct found cached_find(struct cached *c, const char *path);

/* The same, where the directory of the last name is known; inode 0: it is not. */
struct found cached_find_in(struct cached *c, const struct object_id *directory, const char *path);

/* A path that leads to the object as far as is known, the caller's to free.  -ENOENT, -ENOMEM. */
int cached_path_of(struct cached *c, const struct object_id *id, char **ret_path);

/* The attributes are valid, and no handle here has changed or locked the file. */
bool cached_get_attributes(
	struct cached *c, const struct object_id *id, struct attributes *ret_attributes);

struct extra *extra_find(struct cached *c, const struct object_id *id); /* or NULL */
struct extra *extra_make(struct cached *c, const struct object_id *id); /* NULL: no memory */
struct directory *directory_find(struct cached *c, const struct object_id *id);
struct directory *directory_make(struct cached *c, const struct object_id *id);

/* A handle of this mount has or had a lock on the file: the workspace is asked. */
bool extra_is_locked(const struct extra *x);

/* Whether the known attributes of a file that is or was locked here may be used. */
bool extra_is_believed(const struct cached *c, const struct extra *x);

/* Keeps the target of a symbolic link, which never changes. */
void extra_set_target(struct cached *c, const struct object_id *id, const char *target);

/* It is freed, and what it holds, unless somebody needs it. */
void extra_tidy(struct cached *c, struct extra *x);

/* Has the workspace end the watch of the directory, when the lock is left.  False: no memory. */
bool cached_end_watch(struct cached *c, const struct object_id *id);

/* struct tree_options */
bool cached_drop(void *user, const struct object_id *id, void *kept);

/* ---- cached_learn.c ---------------------------------------------------------------------------
 */

enum source {
	FROM_LOOK,
	FROM_CHANGE, /* of our own ... */
	FROM_TIMES,  /* ... which has set the times */
	FROM_EVENT,  /* with the hash of the content, or NULL */
};

/* What is at a name (NULL: nothing), or what the attributes of an object are.  Of a name in an
 * unknown directory (inode 0), or of the root's, "", only the latter counts. */
void cached_learn_name(struct cached *c, const struct tree_look *look,
	const struct object_id *directory, const char *name, const struct attributes *found,
	enum source source, const uint8_t *hash);
void cached_learn_attributes(struct cached *c, const struct tree_look *look,
	const struct attributes *attributes, enum source source, const uint8_t *hash);

/* What is known of the object's attributes was looked at at that position. */
bool cached_is_newest(struct cached *c, const struct object_id *id, uint64_t at);

/* Drops the content of what has neither a name nor a handle: nobody will look for it. */
void cached_drop_dead(struct cached *c, const struct object_id *id);

/* Only the workspace can tell where the path's last name leads, which is in `parent` (inode 0:
 * unknown); or its directory's.  `at`: position of the reply that causes it, or 0. */
void cached_invalidate(
	struct cached *c, uint64_t at, const struct object_id *parent, const char *path);
void cached_invalidate_parent(struct cached *c, uint64_t at, const char *path);

/* Take the reply of a change of our own that makes the name of what is new, or of `linked` if that
 * is set; or removes it (`gone`: what was there, as far as is known); or moves what is there. */
void cached_end_making(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *linked, int r, const struct attributes *made);
void cached_made(struct cached *c, const struct asking *asking, const struct object_id *directory,
	const char *path, const struct object_id *linked, int r, const struct attributes *made);
void cached_end_removing(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *gone, int r);
void cached_end_moving(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *from, const char *to, unsigned flags, int r);

/* A change of our own left the object's attributes so: `told`, if the workspace has. */
void cached_changed(struct cached *c, const struct asking *asking, const struct object_id *id,
	const struct attributes *told, enum source source);

static inline enum source cached_source_of(unsigned mask) /* enum setattr_mask */
{
	return mask & (SET_MTIME | SET_MTIME_NOW) ? FROM_TIMES : FROM_CHANGE;
}

/* The sink of the inner workspace's feed; without the lock. */
void cached_take_change(void *user, const struct change *change);

/* ---- cached_early.c: files that were created or truncated without waiting ------------------ */

enum create_hint cached_create_hint(
	struct cached *c, const struct op_context *ctx, const char *path, int flags);

/* Takes the reply for the oldest where many have none yet: it has come long since. */
void cached_bound_early(struct cached *c, struct op_context *ctx);

/* The workspace has answered early: what comes of it is awaited at last by cached_close(). */
void cached_early(struct cached *c, const struct op_context *ctx, struct cached_file *file);

/* Waits until the file has its name, and takes the reply.  0, -EAGAIN: it has none yet, or why it
 * has none.  The lock is left meanwhile, as it is by the next ones. */
int cached_wait_for_name(struct cached *c, struct op_context *ctx, struct cached_file *file);

/* The same for what is at the path, below it, or on the way to it; and for all.  0, whatever came
 * of them; -EINTR, -EIO: some have no name yet. */
int cached_await_at(struct cached *c, struct op_context *ctx, const char *path);
int cached_await_all(struct cached *c, struct op_context *ctx);

/* For the object of a call. */
void cached_await_object(struct cached *c, struct op_context *ctx, const struct object_ref *object);

/* The reply has come, with that of a call that came behind it: `ctx` still has what that left.
 * Without the lock.  0, or why there is no name. */
int cached_take_name(struct cached *c, struct op_context *ctx, struct cached_file *file);

/* A caller whose early create came too late, as another had made the name, does not mean that file
 * when it changes something by the path, until it has opened or made what is there. */
bool cached_has_missed(const struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path);
void cached_has_met(struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path);

/* The handle through which that object is made, if it has no name yet; or NULL. */
struct cached_file *cached_find_early(const struct cached *c, const struct object_id *id);

/* The attributes of such a file that was written to, through its handle: they come with the reply
 * about the name, in one round trip.  The lock is left meanwhile.  False: that is not what the name
 * leads to. */
bool cached_ask_early(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct attributes *ret_attributes);

/* Nobody waits for the name any more, whether it has come or not. */
void cached_forget_early(struct cached *c, struct cached_file *file);

/* ---- cached_assemble.c --------------------------------------------------------- */

/* Before a read that the workspace will answer, and after it: the bytes that came. */
void cached_assemble_begin(struct cached *c, struct cached_file *file);
void cached_assemble_take(
	struct cached *c, struct cached_file *file, const void *data, size_t size, off_t offset);

/* Gives up what was gathered, if anything. */
void cached_assemble_end(struct cached *c, struct cached_file *file);

/* ---- cached_content.c ---------------------------------------------------------- */

struct content *content_new(const void *data, size_t size); /* NULL: no memory */
/* The bytes are the caller's to fill. */
struct content *content_new_blank(size_t size);

/* One file of this size does not displace most others. */
bool content_may_be_kept(const struct cached *c, uint64_t size);
struct content *content_ref(struct content *content);
void content_unref(struct content *content);

/* Makes it the content of the object in the state in which it is known (takes over the caller's
 * reference).  False: it cannot be, and the object's extra may be freed. */
bool content_attach(struct cached *c, struct extra *x, struct content *content);
void content_detach(struct cached *c, struct extra *x);
void content_used(struct cached *c, struct content *content);

/* Somebody opens the file: that it was fetched ahead was right. */
void content_opened(struct cached *c, struct content *content);
bool bytes_have_hash(const void *data, size_t size, const uint8_t *hash);

/* Puts the object's content into the store on disk, some time. */
void content_keep(struct cached *c, const struct extra *x);

/* The store may have it.  Fetches it from there; releases the lock. */
bool content_is_kept(const struct cached *c, const struct attributes *version);
void content_restore(struct cached *c, const struct attributes *version);

/* ---- cached_fetch.h: what others use of it ------------------------------------------ */

/* Finds what is at a path, loading directories as need be; with `ret_attributes` these are valid
 * too.  Releases the lock meanwhile.  0; -EAGAIN: ask the workspace; else as cached_walk(), or
 * -EINTR and what the workspace says. */
int cached_resolve(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes);

/* Receives the entries of a scan after the cache has learnt them.  `lacks_texts` is cleared for a
 * file of which something newer is known, or that has unflushed writes or locks here. */
struct onward {
	dir_entry_sink sink;
	void *user;
};

/* Has the workspace scan, and takes in what it says.  Releases the lock meanwhile.  `prefetch`,
 * `onward`: or NULL.  `*ret_id`: of the directory, or inode 0. */
int cached_run_scan(struct cached *c, struct op_context *ctx, const char *path,
	const struct scan_request *request, struct prefetch *prefetch, const struct onward *onward,
	struct object_id *ret_id);

/* Loads the directory at a path, which is `id` as far as is known (inode 0: unknown). */
int cached_load(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, bool listing);

enum wanted_of_directory {
	WANT_NAMES,        /* somebody will look some up.  One that was made here a moment ago is
			    * known without a load, though not watched yet */
	WANT_LISTING,      /* somebody lists it; -EAGAIN: to load it is no use */
	WANT_LISTING_ANEW, /* the same, although it is known */
};

/* The same, unless what is wanted is known or on its way. */
int cached_load_directory(struct cached *c, struct op_context *ctx, const char *path,
	enum wanted_of_directory wanted, struct found *ret_found);

/* Waits for the content of a small file if it is on its way, and thinks about fetching more.
 * Releases the lock. */
int cached_await_content(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes);

/* A directory that was just made at the path is empty, and wants to be watched. */
void cached_own_directory(struct cached *c, const struct tree_look *look, const char *path,
	const struct object_id *id);

/* Wakes those who wait for what is now known of something of that name. */
void cached_wake(struct cached *c, const char *name);

/* ---- cached_defer.c: attribute changes of a file that its creator has open ------------------ */

/* Holds the change back until the creator's flush, if nothing speaks against it. */
bool cached_defer(struct cached *c, struct op_context *ctx, const struct extra *x, unsigned mask,
	const struct attributes *want, struct attributes *ret_attributes);

/* Makes what waits happen: of one handle (without the lock; in its own calls; with `last`
 * nothing will wait for it any more), of the file at a
 * path, or of all (both release the lock). */
int cached_apply_deferred(
	struct cached *c, struct op_context *ctx, struct cached_file *file, bool last);
void cached_apply_deferred_at(struct cached *c, struct op_context *ctx, const char *path);
void cached_apply_all_deferred(struct cached *c, struct op_context *ctx);

/* The workspace is asked for the attributes until a flush of the handle that began after the end.
 */
void cached_begin_write(struct cached_file *file);
void cached_end_write(struct cached_file *file);

/* ---- cached_tidy.c ----------------------------------------------------------------- */

int cached_tidy_start(struct cached *c); /* 0, -EAGAIN */
void cached_tidy_stop(struct cached *c); /* without the lock, once `stopping` is set */

/* Something was learnt: when nothing more comes for a while, there may be something to drop. */
void cached_has_news(struct cached *c);

/* ---- Operations: cached.c, cached_name.c, cached_open.c, cached_file.c, cached_write.c ------ */

WORKSPACE_DECLARE_OPERATIONS(cached)

bool cached_may_write(int flags);

/* The handle at the workspace, opened if that has not been done.  Without the lock. */
int cached_file_inner(
	struct op_context *ctx, struct cached_file *file, struct open_file **ret_inner);

/* Nobody has the handle any more: it no longer belongs to the object, and is freed. */
void cached_leave_object(struct cached *c, struct cached_file *file);
void cached_file_free(struct cached_file *file);

/* The handle leads to another object.  -ENOMEM: it stays with what it was. */
int cached_move_to_object(
	struct cached *c, struct cached_file *file, const struct attributes *attributes);

/* Reads a small file whole and keeps it, if it still is what it was when opened. Without the
 * lock. */
ssize_t cached_read_whole(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset);

/* Worth it: nobody here is changing the file. */
bool cached_is_worth_keeping(const struct cached_file *file);

/* Attributes through a handle; without the lock. */
int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes);

/* ftruncate(2): mostly not waited for, and then its error is that of a write.  -EAGAIN: it is to be
 * waited for. */
int cached_truncate(struct op_context *ctx, struct open_file *open_file, uint64_t size_bytes,
	struct attributes *ret_attributes);

/* Before a name goes: has files at the path that were opened here only opened by the inner
 * workspace too, where they stay valid.  With the lock, which it drops meanwhile. */
void cached_hold_open(struct cached *c, struct op_context *ctx, const char *path);

/* The same object for the inner workspace.  Without the lock. */
int cached_inner_object(
	struct op_context *ctx, const struct object_ref *object, struct object_ref *ret_object);
