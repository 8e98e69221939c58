/*
 * fs/inode/inode.h - what the kernel knows of the workspace: objects, and the names they have.
 *
 * One `struct inode` per object (hard links share it), found by object_id; its address is
 * the node id that the kernel uses.  A name is (parent inode, name), so that paths are
 * computed from the names and a rename touches one of them, whatever lies below it.  An inode holds
 * the name that it was found by; others (hard links, and after renames) are kept beside it.
 * A directory that somebody else moved into another one gets a new inode, as the kernel cannot
 * always move what it has (ESTALE).
 * An inode lives as long as the kernel counts lookups of it, a handle of it is open, or
 * another inode's name has it as parent.
 * Threads: any; one lock in the table guards names, hashes and versions.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/slab_table.h"
#include "ops/workspace_values.h"

struct inode_table;

/* How long a handle is kept open for a process that must retry a replaced file and may be waiting
 * for the processor.  Meanwhile the removed file takes space, and its file system cannot be
 * unmounted. */
static const uint64_t RETRY_HANDLE_NS = 2000000000;

/* How the kernel gets at the data (session_open.c). */
enum handle_way { WAY_CACHED, WAY_DIRECT, WAY_BACKED };

/* A file handle that the kernel holds, or a request uses. */
struct open_handle {
	struct open_handle *next, **link; /* of the same inode; the table's lock */
	struct open_handle *number_next;  /* in the table of numbers, where one of an inode's is */
	struct inode *inode;
	struct open_file *file;
	atomic_uint references;
	int flags; /* as of open(2) */
	bool is_for_retry;
	struct open_handle *retry_next, **retry_link; /* of all retry handles; the table's lock */
	uint64_t retry_until_ns;                      /* CLOCK_MONOTONIC */
	bool holds_number;
	struct content_hash *hash; /* of what is written; NULL: not wanted; the edge's */
	void (*release)(struct open_handle *handle); /* frees what is the edge's; may be NULL */
	bool knows_before;
	uint8_t hash_before[CONTENT_HASH_BYTES]; /* of the content when it was opened */
	enum handle_way way;
};

/* What tells one state of an object from the next (see attributes_same_version).  Without padding:
 * it is compared as a whole. */
struct inode_version {
	uint64_t size_bytes;
	int64_t mtime_ns, ctime_ns;
	uint32_t uid, gid;
	uint16_t mode, nlink; /* as many as fit */
} __attribute__((packed, aligned(4)));

/* Of the content that a file had in one version. */
struct known_hash {
	struct inode_version version;
	uint8_t digest[CONTENT_HASH_BYTES];
};

/* What is known of a file that is or was open, or has had several names.  It lives as long as its
 * inode: a reference to the inode is enough to read it. */
struct inode_file {
	/* The table's lock: */
	struct open_handle *handles;
	slab_ref names;             /* beside its own, the latest first */
	struct known_hash *written; /* the content, if it was written here last; or NULL */
	char *target;               /* of a link, which is never open: keep_target(); or NULL */
	uint32_t writers;           /* handles open for writing */
	bool is_mixed; /* more than one handle may have written since none was open for it */

	/* struct session's backing_lock: */
	uint32_t backing_users; /* handles with the id ... */
	uint32_t cached_users;  /* ... and without */
	int32_t backing_id;

	/* Read without a lock: */
	atomic_uint direct_writes_done;             /* session_files.c; changed under ... */
	struct direct_write *_Atomic direct_writes; /* ... struct session's direct_writes_lock */
	atomic_uint mappers;         /* handles that a shared map can be written through */
	_Atomic uint16_t written_ms; /* through this mount, last: it wraps around */
	_Atomic uint32_t resized_ms; /* when a look found another size than the kernel's; 0: it has
				      * the size */
	atomic_bool content_given;   /* the kernel has all of it; session's store_lock */
	atomic_bool rewritten;       /* perhaps: ctime has moved since it was last opened */
	atomic_bool was_locked;      /* by fcntl(2), at some time ... */
	atomic_bool had_lock;        /* ... or by flock(2) */
};

/* What is known of a directory; made with its inode. */
struct inode_directory {
	struct slab_table entries;          /* names in it */
	struct missing *missing;            /* names known to be absent; the latest first */
	slab_ref names;                     /* of itself, beside its own; the latest first */
	uint32_t watch_losses;              /* times that a watch of it ended */
	uint32_t denied_ms;                 /* when a watch was last refused */
	const struct inode *kernels_parent; /* in the kernel; only compared, never followed */

	/* Changed under the table's lock, as those above, but read without it: */
	atomic_uint changes; /* names were removed, or changed while it was not watched */
	atomic_bool watched; /* its changes are reported */
	atomic_bool on_ttl;  /* a watch was refused: names in it expire by the time-to-live */
};

struct inode_name {
	slab_ref next;   /* in the table of the directory, unless the inode has lost it */
	slab_ref parent; /* holds a reference */
	/* Position of the look that found it there, or of the change that made it.  Of a lost one:
	 * since when (CLOCK_MONOTONIC), or LOST_UNSENT. */
	uint64_t at : 63;
	uint64_t is_own : 1;
	char name[];
};

struct inode {
	slab_ref next; /* in the table of inodes */
	/* What was last told to the kernel, with the times and the size: see inode_version_now();
	 * mode 0: nothing yet.  The device is that of the id. */
	slab_ref kind;
	uint64_t number, generation; /* of its id: inode_id() */
	uint64_t size_bytes;
	int64_t mtime_ns, ctime_ns;
	union {
		slab_ref directory;    /* if is_directory; else ... */
		_Atomic slab_ref file; /* ... from its first handle or second name on */
	};
	uint32_t lookups;    /* by the kernel; LOOKUPS_MAX: so many that it stays for good */
	uint32_t references; /* names that have it as parent, handles, requests */
	bool is_superseded;  /* found at another place, or as another type: another inode has its id
			      * now */
	bool is_lost; /* known to the kernel, but without a name: `own` is the last one it had */
	/* As it was made: */
	bool is_stale : 1; /* makes the kernel look up again; it never has a name */
	bool is_root : 1;
	bool is_virtual : 1; /* below .isthmus (fs/edge/virtual.h); in no table */
	bool is_directory : 1;
	bool is_renumbered : 1;   /* see inode_table_number() ... */
	bool has_made_number : 1; /* ... which is not that of its id */
	/* The oldest name, unless its parent is 0.  Others, which few have, are kept with what
	 * it has as a file or directory. */
	struct inode_name own;
};

/* What it has as a directory, which it is. */
static inline struct inode_directory *inode_directory(const struct inode *inode)
{
	return slab_at_some(inode->directory);
}

static inline struct inode *name_parent(const struct inode_name *name)
{
	return slab_at(name->parent);
}

/* What it has as a file; NULL: nothing yet.  One that a handle leads to was. */
static inline struct inode_file *inode_file(const struct inode *inode)
{
	return inode->is_directory ? NULL : slab_at(inode->file);
}

/* A name that the kernel may have cached as absent (inode_missing.c). */
struct missing {
	struct missing *hash_next;
	struct missing *next, **link; /* of the same directory */
	struct inode *parent;
	uint64_t at; /* answers from earlier looks are older */
	char name[];
};

/* A path in the caller's memory, short or long. */
struct path_string {
	char *path; /* points to `fixed` or `heap` */
	char *heap;
	char fixed[488];
};
void path_string_done(struct path_string *path);

/* A directory that the kernel forgot and that is, or was, watched; its path is "" when it has none.
 * Called without a lock. */
typedef void (*inode_forgotten)(void *user, const struct object_ref *directory);

/* `root`: attributes of the workspace's root. */
int inode_table_new(const struct attributes *root, inode_forgotten forgotten, void *user,
	struct inode_table **ret_table);
void inode_table_free(struct inode_table *table); /* NULL is fine */

struct inode *inode_table_root(struct inode_table *table); /* without a reference */

/* The number of inodes, and the bytes that they and their names take. */
void inode_table_usage(struct inode_table *table, uint64_t *ret_inodes, uint64_t *ret_bytes);

/* Gives back memory in which nothing is left. */
void inode_table_tidy(struct inode_table *table);

/* How long the kernel may cache: until the feed reports a change; briefly, as the directory is not
 * watched yet but can be; for the time-to-live. */
enum lifetime { LIFETIME_WATCHED, LIFETIME_BRIEF, LIFETIME_TTL };

/* ... the names in a directory. */
static inline enum lifetime inode_lifetime(const struct inode *directory)
{
	if (inode_directory(directory)->watched)
		return LIFETIME_WATCHED;
	return inode_directory(directory)->on_ttl ? LIFETIME_TTL : LIFETIME_BRIEF;
}

/* Taken before a look at names in a directory, and compared when its reply is used.  If it differs,
 * names may have changed unseen: some were removed, or the watch began only after the look, or has
 * ended. */
static inline uint32_t inode_changes(const struct inode *directory)
{
	return inode_directory(directory)->changes << 1 | inode_directory(directory)->watched;
}

/* How newer attributes of an object differ from what the kernel has. */
struct inode_note {
	enum lifetime lifetime; /* of the attributes; by the parent and a directory itself */
	bool data_changed;      /* the content is not what the kernel last got ... */
	bool has_shrunk;        /* ... and less of it */
	bool has_other_size;
	bool has_other_kind; /* mode, owner, links */
	bool only_handle;    /* at most one handle is open */
	bool is_old;         /* inode_table_enter(): a later look at the name is known */
	bool is_another;     /* inode_table_enter(): the kernel lately got another object for it */
	bool was_missing;    /* inode_table_enter(): ... or, at some time, that it is absent */
	struct inode *superseded; /* inode_table_enter(): what had this id, or the directory that
				   * had this name; with a reference for the caller; or NULL */
};

/* What is known of an inode now. */
struct inode_state {
	struct object_id id;
	struct inode_version version;
	uint32_t writers;
};

/* Its object; of NULL: unknown. */
struct object_id inode_table_id(struct inode_table *table, const struct inode *inode);

/* The inode number that programs see, which is unique in the mount and below NUMBERS_END: to them
 * all of it is one device.  It is the workspace's own on the file system of the root, unless a file
 * that is shown with that number was open here when the inode was made: the workspace may have
 * deleted that file and reused its number.  On other file systems, and from NUMBERS_MADE on, it is
 * made of device and inode number, and is the same on every mount.  _number_of(): of an object that
 * may have no inode here. */
uint64_t inode_table_number(struct inode_table *table, const struct inode *inode);
uint64_t inode_table_number_of(const struct inode_table *table, const struct object_id *id);

/* Numbers from here on are made; from the end on, they are those of objects that the workspace does
 * not have yet (PROVISIONAL_DEVICE). */
#define NUMBERS_MADE (UINT64_C(1) << 51)
#define NUMBERS_END  (UINT64_C(1) << 52)

void inode_table_state(
	struct inode_table *table, struct inode *inode, struct inode_state *ret_state);

/* The object `attributes` was found at (parent, name) at position `at` (0: unknown), and the kernel
 * is about to get it: counts one more lookup.  A name of which a later look is known stays as it
 * is.  -ENOMEM; -ELOOP: it is `parent` itself, or a directory above. */
int inode_table_enter(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, struct inode **ret_inode,
	struct inode_note *ret_note);

/* As inode_table_enter(), from a listing of `parent` that was begun when inode_changes() was
 * `changes`.  -ESTALE: it may be out of date. */
int inode_table_enter_listed(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, uint32_t changes,
	struct inode **ret_inode, struct inode_note *ret_note);

/* An object that has no name (O_TMPFILE); one lookup.  -ENOMEM. */
int inode_table_enter_unnamed(
	struct inode_table *table, const struct attributes *attributes, struct inode **ret_inode);

/* An inode with these attributes on which every request fails with -ESTALE, so that the kernel
 * looks up again.  One lookup.  -ENOMEM. */
int inode_table_enter_stale(
	struct inode_table *table, const struct attributes *attributes, struct inode **ret_inode);

/* Newer attributes of a known object. */
void inode_table_note(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, struct inode_note *ret_note);

/* A write through this mount has ended at `size_bytes`: the kernel knows that size or a larger one.
 */
void inode_table_grown(struct inode_table *table, struct inode *inode, uint64_t size_bytes);

/* The hash of the object's content in this version, if the last change through this mount made it.
 * False: not known.  has_hash(): the hash of some version is known. */
bool inode_table_has_hash(struct inode_table *table, const struct inode *inode);
bool inode_table_hash(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, uint8_t ret_digest[CONTENT_HASH_BYTES]);

/* A handle has changed the content (attributes NULL: the outcome is unknown).  False: others had it
 * open for writing meanwhile, so nothing is kept. */
bool inode_table_keep_hash(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, const uint8_t *digest);

/* The kernel forgets `count` lookups; the inode may be gone afterwards. */
void inode_table_forget(struct inode_table *table, struct inode *inode, uint64_t count);

/* Counts one more lookup of a known inode. */
void inode_table_add_lookup(struct inode_table *table, struct inode *inode);

/* The kernel has moved its dentry to another directory. */
void inode_table_moved_in_kernel(
	struct inode_table *table, struct inode *inode, const struct inode *parent);

/* The kernel has removed its dentry; a directory's node can never be used again, so it gets a new
 * inode when it is found elsewhere. */
void inode_table_removed_in_kernel(struct inode_table *table, struct inode *inode);

/* The kernel counts lookups of it. */
bool inode_table_is_known(struct inode_table *table, const struct inode *inode);

/* Of these node ids (sorted), the inodes that the kernel knows, each with a reference.  Returns
 * their count. */
size_t inode_table_find_nodes(struct inode_table *table, const uint64_t *sorted_nodes, size_t count,
	struct inode **ret_inodes);

/* Keeps the target of a symbolic link, for a caller that is about to read a link that was just
 * replaced.  Takes over the text.  inode_table_target() returns a copy that the caller frees, or
 * NULL. */
void inode_table_keep_target(struct inode_table *table, struct inode *inode, char *target);
char *inode_table_target(struct inode_table *table, struct inode *inode);

/* A reference keeps the inode when the kernel forgets it; dropping the last one may free it. */
void inode_table_ref(struct inode_table *table, struct inode *inode);
void inode_table_unref(struct inode_table *table, struct inode *inode);

/* The path of `inode` (`name` NULL) or of the entry `name` in it.
 * -ENOENT: it has no name any more; -ENOMEM. */
int inode_table_path(struct inode_table *table, struct inode *inode, const char *name,
	struct path_string *ret_path);

/* The same, but an object or directory above it without a name counts as being where it was last.
 * -ENOENT: it never had a name; -ENOMEM. */
int inode_table_last_path(struct inode_table *table, struct inode *inode, const char *name,
	struct path_string *ret_path);

/* The last name is gone, and the kernel has not been notified yet. */
#define LOST_UNSENT (UINT64_MAX >> 1)

/* Since when (CLOCK_MONOTONIC) the inode, or a directory above it, has no name; 0: it has one. */
uint64_t inode_table_lost_ns(struct inode_table *table, const struct inode *inode);

/* The known inode at a path or name, or of an object (_directory: if that is a directory), or the
 * directory that an inode is in, or was last; with a reference for the caller.  NULL: none. */
struct inode *inode_table_find(struct inode_table *table, const char *path);
struct inode *inode_table_find_id(struct inode_table *table, const struct object_id *id);
struct inode *inode_table_find_directory(struct inode_table *table, const struct object_id *id);
struct inode *inode_table_parent(struct inode_table *table, struct inode *inode);
struct inode *inode_table_last_parent(struct inode_table *table, struct inode *inode);
struct inode *inode_table_child(struct inode_table *table, struct inode *parent, const char *name);

/* The change feed reports what was at a name at position `at`: an object, or nothing (NULL).
 * Returns whether the kernel must be notified.  ELSEWHERE: `*ret_lost`, with a reference for the
 * caller, has lost the name.  A directory that the kernel has at another name moves here. */
enum name_change {
	NAME_AS_KNOWN,
	NAME_WAS_UNKNOWN, /* but perhaps the kernel has it */
	NAME_LEADS_ELSEWHERE,
};
enum name_change inode_table_changed(struct inode_table *table, struct inode *parent,
	const char *name, const struct attributes *found, uint64_t at, struct inode **ret_lost);

/* The kernel got an answer about the name in the last GIVEN_LATELY_MS (may be true of others, too).
 */
enum { GIVEN_LATELY_MS = 1000 };
bool inode_table_given_lately(
	struct inode_table *table, const struct inode *parent, const char *name);

/* The kernel has been notified that the name is gone: a later request on the inode means the
 * object. */
void inode_table_loss_sent(struct inode_table *table, struct inode *inode);

/* The highest position so far: a look after a change that begins now has a higher one. */
uint64_t inode_table_position(struct inode_table *table);

/* Changes of names through this mount, before a look at their outcome: `at` is a position before
 * the change (of a removal: or after it). */
void inode_table_removed(
	struct inode_table *table, struct inode *parent, const char *name, uint64_t at);

/* `inode`: what was at the old name before the rename, or NULL.  `swap`: the two names were
 * exchanged; else what was at the new one is gone. */
void inode_table_renamed(struct inode_table *table, struct inode *parent, const char *name,
	struct inode *new_parent, const char *new_name, struct inode *inode, bool swap,
	uint64_t at);

/* A name that the kernel may have cached; `inode` (NULL: absent) and `parent` carry references. */
struct inode_entry {
	struct inode *inode, *parent;
	char *name;
};

/* All names in the directory (NULL: in all) that are known, or kept as absent.  Earlier looks that
 * are entered later are refused by the `changes` of their directory.  -ENOMEM. */
int inode_table_entries(struct inode_table *table, struct inode *directory,
	struct inode_entry **ret_entries, size_t *ret_count);
void inode_table_entries_free(struct inode_table *table, struct inode_entry *entries, size_t count);

/* The outcome of a call that watches a directory.  `losses` was taken before the call: if it has
 * changed, the watch may have ended already, and counts as never asked for.  wants_watch(): a watch
 * should be asked for, as it was neither granted nor refused lately. */
bool inode_table_wants_watch(struct inode_table *table, struct inode *inode, uint32_t *ret_losses);
uint32_t inode_table_watch_losses(struct inode_table *table, struct inode *inode);
void inode_table_set_watched(
	struct inode_table *table, struct inode *inode, bool watched, uint32_t losses);

/* The directory (NULL: every one) is not watched any more, but may be again. */
void inode_table_watch_lost(struct inode_table *table, struct inode *directory);

/* A lookup that began when inode_changes() was `changes` found nothing at the name, at position
 * `at`: how long may the kernel cache that? (LIFETIME_BRIEF: a change might go unnoticed.) A name
 * that is cached until the feed reports it is kept here: should events be lost, the kernel can be
 * notified only by name. */
enum lifetime inode_table_missing(struct inode_table *table, struct inode *directory,
	const char *name, uint32_t changes, uint64_t at);

/* The kernel may have cached that the name is absent. */
bool inode_table_is_missing(
	struct inode_table *table, const struct inode *directory, const char *name);

/* It has not any more. */
void inode_table_not_missing(
	struct inode_table *table, const struct inode *directory, const char *name);

/* The number of directories that should be watched and are not; the paths of up to `max` of them,
 * which the caller frees, and their count (fewer without memory). */
uint64_t inode_table_on_ttl(struct inode_table *table, char **paths, size_t max, size_t *ret_count);

/* Handles.  A retry handle (is_for_retry) serves a process that is about to open a file that was
 * just replaced; it is closed with the inode, or after RETRY_HANDLE_NS without use.  Adding any
 * other takes a reference on the inode; handle_any() takes one on the handle (NULL: none is open,
 * or only a retry handle and not `for_retry`).  The last handle_put() closes the file and frees the
 * handle.  -EEXIST: it has a retry handle; -EISDIR; -ENOMEM: the caller keeps the handle.
 * is_kept(): the object has a retry handle, and the caller is going to use it. */
int inode_table_handle_add(struct inode_table *table, struct open_handle *handle);
bool inode_table_is_kept(struct inode_table *table, const struct object_id *id);
struct open_handle *inode_table_handle_any(
	struct inode_table *table, struct inode *inode, bool for_retry);
int inode_table_handle_put(
	struct inode_table *table, struct op_context *ctx, struct open_handle *handle);

/* Closes the retry handles that are due.  Returns when (CLOCK_MONOTONIC) the next one is; 0: there
 * is none. */
uint64_t inode_table_close_retry_handles(struct inode_table *table);

/* Closes what is still open, once no request is served any more. */
void inode_table_close_all(struct inode_table *table, struct op_context *ctx);

void inode_version_of(const struct attributes *attributes, struct inode_version *ret_version);
