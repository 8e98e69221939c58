/*
 * ops/cache/cached_internal.h - the parts of the cached decorator.
 *
 * cached.c           constructor, table of operations, statfs, exec
 * cached_path.c      path walks through the tree; struct extra
 * cached_learn.c     facts from answers, own changes and the feed: the only way into the tree
 * cached_fetch.h     scans that fill the tree:
 *   cached_load.c      directories that a caller waits for
 *   cached_prefetch.c  scans without a waiting caller
 *   cached_names_ahead.c  names that come next in a walk through a large tree
 *   cached_intake.c    the entries of a scan, entered into the tree
 *   cached_ahead.c     prefetch of the content of small files
 * cached_search.c    searches: which part of a tree is cached, and one scan for the rest
 * cached_name.c      operations on names
 * cached_xattr.c     extended attributes
 * cached_open.c      open and create
 * cached_file.c      attributes, reads and locks of an open file
 * cached_write.c     writes to an open file
 * cached_content.c   file content: memory bound, the store on disk
 * cached_idle.c      handles of large files that stay open at the workspace
 * cached_assemble.c  content of larger files, collected while it is read
 * cached_defer.c     attribute changes that wait for a flush
 * cached_async.c     files that were created or truncated without waiting
 * cached_tidy.c      memory released when idle
 *
 * One struct tree (ops/cache/tree.h) has the facts about names, attributes, listings and watches;
 * its rules (ops/cache/COHERENCE.md) do not depend on the order of arrival.  The decorator adds the
 * other data of an object (struct extra) and decides what to fetch.  Callers of all functions here
 * hold `lock` unless a comment says otherwise.
 *
 * "Own" changes are those made through this mount; "others" change the workspace in any other way.
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
	LARGE_FILE_MAX_BYTES = 4 << 20, /* larger than those: kept once a caller has read it all */
	SIZE_GUESS_MS = 1000, /* after this the size of a file written here is asked for again */
	HASH_BYTES = 16,
	MISSED_NAMES = 16,
};

/* What is known about an object's extended attributes.  Stored in the tree's mark of its state,
 * with MARK_READ: a caller got the content from here, so the workspace permits reading it, and the
 * caller (the kernel) most likely has it still. */
enum xattr_knowledge { XATTRS_UNKNOWN, XATTRS_NO_CAPABILITY, XATTRS_NONE };
enum { MARK_XATTRS = 3, MARK_READ = 4 };

struct content {
	TAILQ_ENTRY(content) used; /* in cached.contents or cached.guesses, while attached */
	struct extra *extra;       /* the file that it is attached to, or NULL */
	uint64_t at;               /* position of the attributes that it belongs to */
	uint32_t refs;             /* one by the file, one by each handle */
	uint32_t size;             /* bytes */
	bool settled;  /* the times were old enough: a later change would have changed them */
	bool is_own;   /* written here, and no event has confirmed its hash yet */
	bool is_guess; /* prefetched, and no caller has opened the file since */
	bool waits;    /* queued to be written to the store */
	uint8_t data[];
};

/* How callers use a directory, which decides what to prefetch around it. */
struct directory {
	bool is_own;     /* created through this mount */
	bool scanned;    /* a scan had it watched, if that is possible; another scan need not try */
	bool listed;     /* a caller listed it */
	bool subscribed; /* the upper layer wants changes of its entries */
	bool unsubscribed;  /* the upper layer wanted them, and no longer does */
	bool names_partial; /* the last prefetch of the names below left out what git ignores */
	bool names_cut;     /* it ended at its bound: there are more */
	uint64_t walked;    /* then: inode of the entry that a walk came into last */
	unsigned branches; /* subdirectories in which a caller caused a load, since that prefetch */
	uint64_t last_branch;       /* inode of the latest of them */
	unsigned opens;             /* entries below which an open missed content, or found what
				     * was fetched ahead for a search */
	uint64_t last_opened;       /* inode of the latest of them */
	uint64_t opened_at;         /* its listing_order_of(), ... */
	bool is_opened_backwards;   /* ... which is below that of the one before */
	bool is_ahead;              /* its content was fetched before the search came to it */
	uint64_t refused_ms;        /* when a load of it last failed */
	uint64_t names_wanted_ms;   /* when a prefetch of the names below it last started */
	uint64_t content_wanted_ms; /* when a prefetch of the content below it last started */
};

/* Data of an object that the tree does not have (tree_keep()); NULL for most objects.  An object
 * with open handles is never dropped from the tree. */
struct extra {
	struct object_id id;
	struct content *content;        /* content of the state that is known, or NULL */
	char *link_target;              /* of a symbolic link, or NULL */
	LIST_HEAD(, cached_file) files; /* open handles */
	struct directory *directory;
	uint64_t write_count;
	uint64_t turn;       /* number (of cached.turns) of the last write or deferred change */
	uint64_t seen_turn;  /* `turn` at the last look that came after all of them had ended */
	uint32_t writers;    /* handles with unflushed writes */
	bool locked;         /* byte ranges have been locked through this mount */
	uint64_t granted_at; /* position of the last lock grant: while a handle has or had locks,
			      * attributes from below it are not used; UINT64_MAX: none are */
	uint64_t granted_ms; /* time of that grant: after a later loss of events no attributes are
			      * used, as the session and its locks may be lost as well */
};

/* Where a path leads. */
struct found {
	struct object_id id;        /* the object; inode 0: absent or unknown */
	struct object_id directory; /* of the last name; inode 0: unknown, or the path is "" */
};

/* A directory that a caller is loading. */
struct load {
	LIST_ENTRY(load) link;
	const char *path; /* the path of the call */
};

/* A caller that waits for a fact about an entry with this name.  Only a fact with the same name
 * wakes it, as thousands of others may arrive first. */
struct waiter {
	LIST_ENTRY(waiter) link;
	const char *name;
};

/* A directory that was dropped from the tree and that the workspace still watches for the cache:
 * cached_leave() ends the watch. */
struct unheard {
	struct unheard *next;
	struct object_id id;
};

/* A running scan that no caller waits for. */
struct prefetch {
	LIST_ENTRY(prefetch) link;
	struct cached *cached;
	bool content;
	uint64_t started_ms, first_content_ms; /* first_content_ms 0: no content has arrived */
	uint64_t flowed_ms;                    /* when data last arrived */
	uint64_t expected_bytes, received_bytes;
	uint64_t names; /* that have arrived */
	struct scan_request request;
	char path[];
};

/* An asynchronous create was answered with success, but another process had already made the name.
 */
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
	pthread_cond_t changed; /* a fact that a caller waits for was learnt, or a load ended */
	struct tree *tree;
	struct slab extras;    /* of struct extra and struct directory */
	struct object_id root; /* inode 0: not known yet */
	bool feed;             /* the inner workspace has a change feed */
	atomic_bool stopping;  /* may be read without the lock */
	uint64_t lost_ms;      /* when events were last lost */
	uint64_t expired_ms;   /* when facts that no event backs last expired */
	struct unheard *unheard;
	TAILQ_HEAD(content_list, content)
	contents;                      /* attached content, most recently used first ... */
	struct content_list guesses;   /* ... and what has is_guess, the newest first */
	uint64_t content_bytes;        /* of attached content */
	uint64_t waiting_bytes;        /* of detached content that is queued for the store */
	uint64_t guessed_bytes;        /* of attached content with is_guess */
	uint64_t guessed_before_bytes; /* the part of guessed_bytes that is too old to count */
	uint64_t guessed_ms;           /* when content was last prefetched */
	uint64_t assembling_bytes;     /* of content that cached_assemble.c is collecting */
	LIST_HEAD(, load) loads;
	LIST_HEAD(, waiter) waiters;
	uint64_t keeping_bytes; /* of all content that is queued for the store */
	LIST_HEAD(, prefetch) prefetches;
	uint64_t content_opened_ms;        /* when a caller last opened a small file */
	LIST_HEAD(, cached_file) deferred; /* handles with deferred attribute changes */
	LIST_HEAD(, applying) applying;    /* deferred changes that are being sent */
	uint64_t applied;                  /* how many were ever put into `applying` */
	LIST_HEAD(, cached_file) idle;     /* closed handles to be opened again, newest first ... */
	LIST_HEAD(, cached_file) unwanted; /* ... and those that a worker is to close */
	LIST_HEAD(, cached_file) unnamed;  /* handles whose create or open has no reply yet */
	struct missed_name missed[MISSED_NAMES]; /* a ring */
	unsigned missed_next;                    /* next entry of `missed` to write */
	uint64_t round_trip_us;                  /* smoothed */
	struct fs_stats stats;                   /* the last answer to statfs */
	uint64_t stats_ms;                       /* when `stats` was requested; 0: never */
	uint64_t stats_changes;                  /* value of `changes` at that time */
	bool stats_come;                         /* a request for them is running */
	uint64_t changes;                        /* counts own changes and changes from the feed */
	uint64_t turns; /* counts writes and deferred changes, when they begin */
	struct cached_stats statistics;

	uint64_t updates;     /* counts facts learnt and content attached */
	bool tidies, is_tidy; /* cached_tidy.c: the thread runs; it has nothing to do */
	pthread_t tidier;
	pthread_cond_t tidier_wanted;

	struct worker_pool scanners;
	struct worker_pool keepers; /* write content to the store */
	struct content_store *store;
	change_sink sink;
	void *sink_user;
};

/* Counts the writes and deferred attribute changes of a handle.  begun - ended are in progress. */
struct writes {
	uint64_t begun, ended;
};

/* Deferred attribute changes of a handle that a thread is sending to the workspace. */
struct applying {
	LIST_ENTRY(applying) link;
	struct cached_file *file; /* cannot be closed while it is listed here */
	uint64_t begun;           /* value of cached.applied at the start */
};

struct cached_file {
	struct open_file file;
	LIST_ENTRY(cached_file) link; /* in extra->files; under lock */
	struct extra *extra;          /* of the open object */
	char *path;                   /* when opened */
	struct attributes attributes; /* when opened */
	int flags;
	pthread_mutex_t open_lock;         /* serialises the opening of `inner` */
	_Atomic(struct open_file *) inner; /* NULL: not open at the workspace yet */
	struct content
		*content; /* of the file when it was opened, if it was in memory; under lock */
	struct assembly *assembly; /* content collected from reads so far, or NULL; under lock */
	bool dirty;                /* has unflushed writes, counted in extra->writers; under lock */
	struct writes writes;      /* under lock */
	struct sized {
		uint64_t ms;          /* when the size was asked for; 0: it is not known */
		uint64_t write_count; /* that `extra` has as long as only cached_write() follows */
		uint64_t written_end; /* the highest end of those writes; 0: there was none */
	} sized;                      /* under lock */
	struct buffer capture;        /* what was written so far, from offset 0; under lock */
	uint64_t captured_writes;
	bool capturing;
	bool written;           /* `dirty` by a write; false: only by deferred attribute changes */
	uint64_t opened_at;     /* position from before the workspace opened it */
	uint64_t opened_state;  /* tree_state() at the open: what is read may be as old as that */
	atomic_bool created;    /* this handle created or truncated the file */
	uint64_t created_ms;    /* when, by cached_now_ms() */
	bool has_locks;         /* has or had locks; under lock */
	bool closing;           /* cached_hold_open() must not open it any more; under lock */
	unsigned deferred_mask; /* attribute changes that wait for its flush (enum setattr_mask) */
	struct attributes deferred; /* their values */
	int deferred_error; /* of a deferred change that was sent; returned by the next flush */
	uid_t deferred_uid; /* credentials of the last call that deferred a change */
	gid_t deferred_gid;
	unsigned applying; /* threads that are sending its deferred changes; under lock */
	LIST_ENTRY(cached_file) deferred_link;
	bool unnamed; /* its create or open has no reply yet; under lock, as all fields below */
	struct object_id made_in; /* the directory of its name */
	pid_t made_by;            /* the process that created it */
	uint64_t made_ms;         /* when the create or open was sent */
	unsigned awaiting;        /* calls that wait for the reply */
	bool was_there;           /* the file existed and was truncated */
	bool is_other;            /* another process made the name first: the file is that one's */
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

/* Take and release `lock`.  cached_leave() then ends the watches of directories that were dropped
 * from the tree while it was held (cached.unheard). */
void cached_enter(struct cached *c);
void cached_leave(struct cached *c);

/* ---- Calls of the inner workspace whose reply is a fact -------------------------------------- */

struct asking {
	uint64_t asked_ms;
	struct tree_look look;
	struct facts facts, *outcome; /* what a change left; `outcome`: `facts`, or the caller's */
};

/* What no event backs, others may have changed: a command has ended, or a lock was granted. */
void cached_expire_unwatched(struct cached *c);

/* A look at position `at` that was requested at `asked_ms`.  It counts from now on, or from
 * `asked_ms` if cached_expire_unwatched() was called since. */
struct tree_look cached_look(const struct cached *c, uint64_t at, uint64_t asked_ms);

/* Adds a call of the inner workspace to the statistics and to the smoothed round trip. */
void cached_count_trip(struct cached *c, uint64_t started_ms);

/* Release the lock before a call of the inner workspace that looks, or that changes something. */
void cached_ask(struct cached *c, struct op_context *ctx, struct asking *asking);
void cached_begin_change(struct cached *c, struct op_context *ctx, struct asking *asking);

/* Take the lock again after it and set asking->look to the look of the reply.  cached_end_asking()
 * also calls cached_count_trip(). */
void cached_take_reply(struct cached *c, struct op_context *ctx, struct asking *asking);
void cached_end_asking(struct cached *c, struct op_context *ctx, struct asking *asking);

/* ---- cached_path.c ----------------------------------------------------------------------------
 */

/* Follows a path through valid facts.  0; -ENOENT, -ENOTDIR, -ELOOP if valid facts say so; -EAGAIN:
 * not known; then the caller loads ret_found->directory, if that is set, or the root.  In every
 * case ret_found->directory is set only if all facts before the last name are valid. */
int cached_walk(struct cached *c, const char *path, struct found *ret_found);

/* Follows a path through known facts, valid or not. */
struct found cached_find(struct cached *c, const char *path);

/* The same for the last name of the path only, in `directory`; inode 0: cached_find(). */
struct found cached_find_in(struct cached *c, const struct object_id *directory, const char *path);

/* A known path of the object, valid or not; the caller frees it.  -ENOENT: none; -ENOMEM. */
int cached_path_of(struct cached *c, const struct object_id *id, char **ret_path);

/* The attributes are valid, and no handle here has changed or locked the file. */
bool cached_get_attributes(
	struct cached *c, const struct object_id *id, struct attributes *ret_attributes);

struct extra *extra_find(struct cached *c, const struct object_id *id); /* or NULL */
struct extra *extra_make(struct cached *c, const struct object_id *id); /* NULL: no memory */
struct directory *directory_find(struct cached *c, const struct object_id *id);
struct directory *directory_make(struct cached *c, const struct object_id *id);

/* Whether an open handle of this mount has or had a lock on the file. */
bool extra_is_locked(const struct extra *x);

/* Whether the known attributes may be used: no handle has or had locks, or they were looked at
 * after the last grant. */
bool extra_is_usable(const struct cached *c, const struct extra *x);

/* Keeps the target of a symbolic link, which never changes. */
void extra_set_target(struct cached *c, const struct object_id *id, const char *target);

/* Frees it if it has no data left. */
void extra_tidy(struct cached *c, struct extra *x);

/* Makes cached_leave() end the workspace's watch of the directory.  False: no memory. */
bool cached_end_watch(struct cached *c, const struct object_id *id);

/* The `drop` of struct tree_options. */
bool cached_drop(void *user, const struct object_id *id, void *kept);

/* ---- cached_learn.c ---------------------------------------------------------------------------
 */

enum source {
	FROM_LOOK,
	FROM_CHANGE, /* own change */
	FROM_TIMES,  /* own change that set mtime */
	FROM_EVENT,
};

/* Learn the object at a name (`found` NULL: the name is absent), or the attributes of an object. In
 * an unknown directory (inode 0), and for the name "" of the root, only the attributes are learnt.
 * `hash`: of the content, with FROM_EVENT; may be NULL. */
void cached_learn_name(struct cached *c, const struct tree_look *look,
	const struct object_id *directory, const char *name, const struct attributes *found,
	enum source source, const uint8_t *hash);
void cached_learn_attributes(struct cached *c, const struct tree_look *look,
	const struct attributes *attributes, enum source source, const uint8_t *hash);

/* Whether the known attributes of the object are those of the look at position `at`. */
bool cached_is_newest(struct cached *c, const struct object_id *id, uint64_t at);

/* Drops the content of an object that has neither a name nor a handle: no caller can reach it. */
void cached_drop_dead(struct cached *c, const struct object_id *id);

/* Invalidate the last name of a path, which is in `parent` (inode 0: unknown), or the name of its
 * directory.  `at`: position of the reply that is the reason, or 0. */
void cached_invalidate(
	struct cached *c, uint64_t at, const struct object_id *parent, const char *path);
void cached_invalidate_parent(struct cached *c, uint64_t at, const char *path);

/* Learn the reply `r` of an own change.  end_making: a new object was created at the path, or a
 * hard link to `linked` if that is not NULL; `made`: its attributes.  made: the same with the lock
 * held and the reply already taken.  end_removing: the name was removed; `gone`: the object that it
 * last led to.  end_moving: a rename. */
void cached_end_making(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *linked, int r, const struct attributes *made);
void cached_made(struct cached *c, const struct asking *asking, const struct object_id *directory,
	const char *path, const struct object_id *linked, int r, const struct attributes *made);
void cached_end_removing(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *gone, int r);
void cached_end_moving(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *from, const char *to, unsigned flags, int r);

/* An own change left the attributes `outcome`; invalidates them if the reply has none (mode 0). */
void cached_changed(struct cached *c, const struct asking *asking, const struct object_id *id,
	const struct attributes *outcome, enum source source);

static inline enum source cached_source_of(unsigned mask) /* enum setattr_mask */
{
	return mask & (SET_MTIME | SET_MTIME_NOW) ? FROM_TIMES : FROM_CHANGE;
}

/* The sink of the inner workspace's feed; called without the lock. */
void cached_take_change(void *user, const struct change *change);

/* ---- cached_async.c: files that were created or truncated without waiting ------------------ */

enum create_hint cached_create_hint(
	struct cached *c, const struct op_context *ctx, const char *path, int flags);

/* Each call walks the list of unnamed files, so its length is bounded: when it is reached, waits
 * for the reply of the oldest one, which has usually arrived. */
void cached_bound_async(struct cached *c, struct op_context *ctx);

/* The workspace answers the create or open later: adds the handle to `unnamed`.  cached_close()
 * waits for the reply if no other call has. */
void cached_begin_async(struct cached *c, const struct op_context *ctx, struct cached_file *file);

/* Waits for the reply of the create, and learns it.  0; -EAGAIN: no reply yet; else the error of
 * the create.  Releases the lock meanwhile, as do the next three functions. */
int cached_wait_for_name(struct cached *c, struct op_context *ctx, struct cached_file *file);

/* The same for each unnamed file at the path, below it or on the way to it; and for all.  0, even
 * if creates failed; -EINTR, -EIO: some have no reply yet. */
int cached_await_at(struct cached *c, struct op_context *ctx, const char *path);
int cached_await_all(struct cached *c, struct op_context *ctx);

/* The same for the object that a call refers to. */
void cached_await_object(struct cached *c, struct op_context *ctx, const struct object_ref *object);

/* Learns the reply of the create, which has arrived, since a later call on the handle returned. The
 * facts and the position of that later call stay in `ctx`.  Called without the lock.  0, or the
 * error of the create. */
int cached_take_name(struct cached *c, struct op_context *ctx, struct cached_file *file);

/* missed: the calling process created the name asynchronously, but another process had made it
 * first.  Until the caller opens or creates the name again (forget_missed), its unlink or rename of
 * the path does not mean the other process's file, and fails. */
bool cached_has_missed(const struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path);
void cached_forget_missed(struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path);

/* The handle whose create or open of the object has no reply yet; NULL if there is none. */
struct cached_file *cached_find_async(const struct cached *c, const struct object_id *id);

/* Asks for the attributes of an unnamed file through its handle: one round trip brings them and the
 * reply of the create.  Releases the lock meanwhile.  False: the call failed, or the name leads to
 * another object. */
bool cached_ask_async(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct attributes *ret_attributes);

/* The handle is being closed: waits until no call uses it, and takes it off the list of unnamed
 * files.  A missing reply counts as -EIO. */
void cached_forget_async(struct cached *c, struct cached_file *file);

/* ---- cached_idle.c ---------------------------------------------------------------- */

/* A handle that is being closed: true: it stays open, and the list owns it. */
bool cached_idle_keep(struct cached *c, struct cached_file *file);

/* A handle of the object that was opened with this path and these flags; the caller adds it to the
 * object, or discards it.  NULL: none. */
struct cached_file *cached_idle_take(
	struct cached *c, const struct object_id *id, const char *path, int flags);
void cached_idle_discard(struct cached *c, struct cached_file *file);

/* The object is forgotten; NULL: the feed no longer tells which ones lose their name. */
void cached_idle_drop(struct cached *c, const struct object_id *id);

/* Some name is no longer that of the object. */
void cached_idle_drop_nameless(struct cached *c, const struct object_id *id);

/* What is at the path is to lose its name.  Releases the lock meanwhile. */
void cached_idle_close_at(struct cached *c, const char *path);

/* Called without the lock, before the end of the workers. */
void cached_idle_close_all(struct cached *c);

/* ---- cached_assemble.c --------------------------------------------------------- */

/* Called before a read that the workspace answers, and after it with the bytes that it returned. */
void cached_assemble_begin(struct cached *c, struct cached_file *file);
void cached_assemble_take(
	struct cached *c, struct cached_file *file, const void *data, size_t size, off_t offset);

/* Discards the collected content, if any. */
void cached_assemble_end(struct cached *c, struct cached_file *file);

/* ---- cached_content.c ---------------------------------------------------------- */

struct content *content_new(const void *data, size_t size); /* NULL: no memory */
/* The caller fills `data`.  NULL: no memory. */
struct content *content_new_blank(size_t size);

/* Whether a file of this size may be cached; a larger one would displace most other content. */
bool content_may_be_kept(const struct cached *c, uint64_t size);
struct content *content_ref(struct content *content);
void content_unref(struct content *content);

/* Makes it the content of the object's known state.  Takes over the caller's reference, also on
 * failure.  False: the size does not match or no state is known; `x` may have been freed. */
bool content_attach(struct cached *c, struct extra *x, struct content *content);

/* Drops it from memory.  detach: it may no longer be the content of the file, so that no caller has
 * that either. */
void content_evict(struct cached *c, struct extra *x);
void content_detach(struct cached *c, struct extra *x);
void content_used(struct cached *c, struct content *content);

/* Drops content from memory that the store has, but for a little of it that was used last. */
void content_shrink(struct cached *c);

/* Attached content was prefetched; a caller opened the file: it no longer counts as a guess. */
void content_guessed(struct cached *c, struct content *content);
void content_opened(struct cached *c, struct content *content);
bool bytes_have_hash(const void *data, size_t size, const uint8_t *hash);

/* Queues the object's content for the store on disk. */
void content_keep(struct cached *c, const struct extra *x);
/* Whether the store has the content of this version; reads it from there (NULL: it does not have
 * it), and attaches it.  The last two release the lock meanwhile. */
bool content_is_kept(const struct cached *c, const struct attributes *version);
struct content *content_load(struct cached *c, const struct attributes *version);
void content_restore(struct cached *c, const struct attributes *version);

/* ---- Loading; see also cached_fetch.h ------------------------------------------------ */

/* Finds the object at a path and loads directories where needed.  `ret_attributes`: its valid
 * attributes; NULL: not needed.  Releases the lock meanwhile.  0; -EAGAIN: ask the workspace; the
 * errors of cached_walk(); -EINTR; errors of the workspace. */
int cached_resolve(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes);

/* Receives the entries of a scan after the cache has learnt them.  dir_entry.lacks_texts is cleared
 * for a file if something newer is known about it, or if it has unflushed writes or locks here. */
struct onward {
	dir_entry_sink sink;
	void *user;
};

/* Has the workspace scan the directory at the path, and learns the entries.  Releases the lock
 * meanwhile.  `prefetch` and `onward` may be NULL.  `*ret_id`: the id of the directory; inode 0:
 * the workspace did not report it. */
int cached_run_scan(struct cached *c, struct op_context *ctx, const char *path,
	const struct scan_request *request, struct prefetch *prefetch, const struct onward *onward,
	struct object_id *ret_id);

/* Scans the directory at a path; `id` is the last known object there (inode 0: unknown).
 * `listing`: the caller wants to list it. */
int cached_load(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, bool listing);

enum wanted_of_directory {
	WANT_NAMES,        /* for lookups.  A directory that was just created here needs no load,
			    * although it is not watched yet */
	WANT_LISTING,      /* for a listing.  -EAGAIN: a load would not help */
	WANT_LISTING_ANEW, /* for a listing, even if the listing is known */
};

/* Loads the directory at a path unless what is wanted is known; waits for a running load or scan
 * instead of starting another. */
int cached_load_directory(struct cached *c, struct op_context *ctx, const char *path,
	enum wanted_of_directory wanted, struct found *ret_found);

/* As cached_resolve(), for a file that is about to be read.  Also restores small content from the
 * store, waits for a prefetch that will bring it, and may start a prefetch. */
int cached_await_content(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes);

/* A directory was created at the path: it is empty, and a scan has it watched. */
void cached_own_directory(struct cached *c, const struct tree_look *look, const char *path,
	const struct object_id *id);

/* Has the workspace asked how full it is: nobody waits for the answer. */
void cached_renew_stats(struct cached *c);

/* A fact about an entry with this name was learnt: wakes the callers that wait for one. */
void cached_wake(struct cached *c, const char *name);

/* ---- cached_defer.c: attribute changes of a file that its creator has open ------------------ */

/* A handle that created or truncated the object; NULL: none is open.  Under the lock. */
struct cached_file *cached_creator_of(const struct extra *x);

/* Holds the change back until the creator's flush, and writes the attributes that it will lead to.
 * False: the change cannot wait. */
bool cached_defer(struct cached *c, struct op_context *ctx, const struct extra *x, unsigned mask,
	const struct attributes *want, struct attributes *ret_attributes);

/* Send deferred changes to the workspace.  cached_apply_deferred(): those of one handle, in a call
 * on that handle, without the lock; `last`: no later change may be deferred.  The others: those of
 * the file at a path, or of all files; both are called with the lock and release it meanwhile. */
int cached_apply_deferred(
	struct cached *c, struct op_context *ctx, struct cached_file *file, bool last);
void cached_apply_deferred_at(struct cached *c, struct op_context *ctx, const char *path);
void cached_apply_all_deferred(struct cached *c, struct op_context *ctx);

/* Around each write and deferred change of the handle.  The cached attributes of the file are not
 * used from the begin until a flush that started after the end. */
void cached_begin_write(struct cached_file *file);
void cached_end_write(struct cached_file *file);

/* Call these before and after asking the workspace for the attributes of an object: if no write to
 * it was under way, or began meanwhile, the attributes count although it has unflushed writes.
 * `extra` may be NULL. */
uint64_t cached_begin_looking(const struct extra *extra);
void cached_end_looking(struct extra *extra, uint64_t begun);

/* ---- cached_tidy.c ----------------------------------------------------------------- */

int cached_tidy_start(struct cached *c); /* 0; -EAGAIN: no thread */
void cached_tidy_stop(struct cached *c); /* called without the lock, after `stopping` was set */

/* A fact was learnt, or content attached: the tidy thread will clean up after the next quiet time.
 */
void cached_note_update(struct cached *c);

/* ---- cached_name.c ------------------------------------------------------------------------ */

/* Answers `r` from known facts and releases the lock.  The facts may be older than a load that this
 * call has waited for. */
int cached_answer(struct cached *c, struct op_context *ctx, int r);

/* The object that the call refers to, as far as is known. */
struct object_id cached_object_of(struct cached *c, const struct object_ref *object);

/* ---- Operations: cached.c, cached_name.c, cached_xattr.c, cached_open.c, cached_file.c,
 * cached_write.c ------ */

WORKSPACE_DECLARE_OPERATIONS(cached)

bool cached_may_write(int flags);

/* Whether an open with these flags may be answered without the workspace; whether a caller has got
 * the content of the object's known state from here. */
bool cached_may_be_known(int flags);
bool cached_was_read(const struct cached *c, const struct object_id *id);

/* The handle at the workspace; opens it if it is not open yet.  Called without the lock. */
int cached_file_inner(
	struct op_context *ctx, struct cached_file *file, struct open_file **ret_inner);

/* Take a handle that no caller has any more out of its object, and free it. */
void cached_leave_object(struct cached *c, struct cached_file *file);
void cached_file_free(struct cached_file *file);

/* The handle turned out to refer to another object.  -ENOMEM: it stays with the former one. */
int cached_move_to_object(
	struct cached *c, struct cached_file *file, const struct attributes *attributes);

/* Reads a small file whole, and caches it if it is still in the state in which it was opened.
 * Returns the bytes in the caller's range.  Called without the lock. */
ssize_t cached_read_whole(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset);

/* Whether cached_read_whole() is worth it: the file is small, and no handle here has unflushed
 * writes or locks. */
bool cached_is_worth_keeping(const struct cached_file *file);

/* Attributes through a handle.  Called without the lock. */
int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes);

/* ftruncate(2) that does not wait for the reply; a later error is reported like that of a write.
 * -EAGAIN: nothing was done, use workspace_setattr(). */
int cached_truncate(struct op_context *ctx, struct open_file *open_file, uint64_t size_bytes,
	struct attributes *ret_attributes);

/* Before a name is removed or replaced: opens the files at the path at the workspace that so far
 * were open in the cache only, so that their handles stay valid.  Releases the lock meanwhile. */
void cached_hold_open(struct cached *c, struct op_context *ctx, const char *path);

/* Translates the object of a call for the inner workspace: its file becomes the inner handle.
 * Called without the lock. */
int cached_inner_object(
	struct op_context *ctx, const struct object_ref *object, struct object_ref *ret_object);
