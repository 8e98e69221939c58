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

#include "ops/workspace_values.h"

struct inode_table;

/* How long a handle is kept open for a process that must retry a replaced file and may be waiting
 * for the processor.  Meanwhile the removed file takes space, and its file system cannot be
 * unmounted. */
static const uint64_t SPARE_NS = 2000000000;

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
	bool is_spare;
	struct open_handle *spare_next, **spare_link; /* of all spare ones; the table's lock */
	uint64_t spare_until_ns;                      /* CLOCK_MONOTONIC */
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

/* What is known of a file that is or was open, or has had several names.  It goes with its inode,
 * so that who has the one may read the other. */
struct inode_file {
	/* The table's lock: */
	struct open_handle *handles;
	struct inode_name *names;   /* beside its own, the latest first */
	struct known_hash *written; /* the content, if it was written here last; or NULL */
	char *target;               /* of a link, which is never open: keep_target(); or NULL */
	uint32_t writers;           /* handles open for writing */
	bool is_mixed; /* more than one handle may have written since none was open for it */

	/* struct session's backing_lock: */
	uint32_t backing_users; /* handles with the id ... */
	uint32_t cached_users;  /* ... and without */
	int32_t backing_id;

	/* Read without a lock: */
	atomic_uint asides_done;            /* session_files.c; changed under ... */
	struct write_aside *_Atomic asides; /* ... struct session's asides_lock */
	atomic_uint mappers;                /* handles that a shared map can be written through */
	_Atomic uint16_t written_ms;        /* through this mount, last: it wraps around */
	atomic_bool content_told; /* the kernel was given all of it; session's store_lock */
	atomic_bool rewritten;    /* perhaps: ctime has moved since it was last opened */
	atomic_bool was_locked;   /* by fcntl(2), at some time */
};

/* What is known of a directory, from its making on. */
struct inode_directory {
	struct missing *missing;            /* names that are not in it; the latest first */
	struct inode_name *names;           /* of itself, beside its own; the latest first */
	const struct inode *kernels_parent; /* where the kernel has it; never used but compared */
	uint32_t watch_losses;              /* how often a watch of it ended */
	uint32_t denied_ms;                 /* when watching it was last asked for in vain */

	/* Changed under the table's lock, as those above, but read without it: */
	atomic_uint changes; /* names in it went, or changed unseen */
	atomic_bool watched; /* its changes are reported */
	atomic_bool on_ttl;  /* watching it was denied */
};

struct inode_name {
	struct inode_name *hash_next; /* unless the inode has lost it */
	struct inode *parent;         /* holds a reference */
	/* Position of the look that found it there, or of the change that put it.  Of one that is
	 * lost: since when (CLOCK_MONOTONIC), or LOST_UNTOLD. */
	uint64_t at : 63;
	uint64_t is_own : 1;
	char name[];
};

struct inode {
	struct inode *hash_next;
	struct object_id id;
	union {
		struct inode_directory *directory; /* if is_directory; else ... */
		struct inode_file *_Atomic file;   /* ... from its first handle or second name
						    * on; inode_file() */
	};
	uint32_t lookups;    /* by the kernel; LOOKUPS_MAX: so many that it stays for good */
	uint32_t references; /* names that have it as parent, handles, requests */
	struct inode_version version; /* as last told to the kernel; mode 0: none */
	bool is_former; /* found elsewhere, or as another kind: another has its id now */
	bool is_lost;   /* known to the kernel, without a name: what is below is the last one it had
			 */
	/* As it was made: */
	bool is_stale : 1; /* of no use but to be looked for again: it never has a name */
	bool is_root : 1;
	bool is_virtual : 1; /* below .isthmus (fs/edge/virtual.h); in no table */
	bool is_directory : 1;
	bool is_renumbered : 1;
	/* The oldest name, unless its parent is NULL.  Others, which few have, are kept with what
	 * it has as a file or directory. */
	struct inode_name own;
};

/* What it has as a file; NULL: nothing yet.  One that a handle leads to was. */
static inline struct inode_file *inode_file(const struct inode *inode)
{
	return inode->is_directory ? NULL : inode->file;
}

/* The number that programs see: the workspace's own, unless that was, when the inode was made, the
 * number of a file that is open here.  The workspace may have freed that one, and its number. */
uint64_t inode_number(const struct inode *inode);

/* A name that the kernel believes not to be in a directory (inode_missing.c). */
struct missing {
	struct missing *hash_next;
	struct missing *next, **link; /* of the same directory */
	struct inode *parent;
	uint64_t at; /* answers that were looked at before are older */
	char name[];
};

/* A path in the caller's memory, short or long. */
struct path_string {
	char *path; /* points to `fixed` or `heap` */
	char *heap;
	char fixed[488];
};
void path_string_done(struct path_string *path);

/* A directory that the kernel forgot and that is, or was once, watched; "" where it has no path.
 * Called without a lock. */
typedef void (*inode_forgotten)(void *user, const struct object_ref *directory);

/* `root`: attributes of the workspace's root. */
int inode_table_new(const struct attributes *root, inode_forgotten forgotten, void *user,
	struct inode_table **ret_table);
void inode_table_free(struct inode_table *table); /* NULL is fine */

struct inode *inode_table_root(struct inode_table *table); /* without a reference */

/* How many inodes there are, and the bytes they and their names take. */
void inode_table_usage(struct inode_table *table, uint64_t *ret_inodes, uint64_t *ret_bytes);

/* How long what is known stays true: until the feed says otherwise; briefly, as it is not watched
 * yet, but can be; for the time-to-live. */
enum belief { BELIEF_WATCHED, BELIEF_BRIEF, BELIEF_TTL };

/* ... of the names in a directory. */
static inline enum belief inode_belief(const struct inode *directory)
{
	if (directory->directory->watched)
		return BELIEF_WATCHED;
	return directory->directory->on_ttl ? BELIEF_TTL : BELIEF_BRIEF;
}

/* Before a look at names in a directory, and when its reply is used: if the two differ, they may
 * have changed unseen, as names went, or the watch began only after the look, or has ended. */
static inline uint32_t inode_changes(const struct inode *directory)
{
	return directory->directory->changes << 1 | directory->directory->watched;
}

/* What became of the kernel's idea of an object when newer attributes came. */
struct inode_note {
	enum belief belief; /* in the attributes: parent and (of a directory) itself are watched */
	bool data_changed;  /* content is not what the kernel last had ... */
	bool has_shrunk;    /* ... and less of it */
	bool only_handle;   /* one at most is open */
	bool is_old;        /* inode_table_enter(): something newer is known of the name */
	bool is_another;    /* inode_table_enter(): the kernel was told of another there lately */
	bool was_missing;   /* inode_table_enter(): ... or, at some time, that nothing is there */
	struct inode *former; /* inode_table_enter(): the object was this one, or this directory was
			       * there; with a reference for the caller; or NULL */
};

/* What is known of an inode right now. */
struct inode_state {
	struct inode_version version;
	uint32_t writers;
};

void inode_table_state(
	struct inode_table *table, struct inode *inode, struct inode_state *ret_state);

/* The object `attributes` is at (parent, name), looked at at position `at` (0: unknown); the kernel
 * is told of it: one more lookup.  A name of which something newer is known stays as it is.
 * -ENOMEM; -ELOOP: it is `parent` itself, or a directory above. */
int inode_table_enter(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, struct inode **ret_inode,
	struct inode_note *ret_note);

/* As inode_table_enter(), with what a listing of `parent` said when `changes` was the value
 * of its `changes`.  -ESTALE: that may no longer be so. */
int inode_table_enter_listed(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, uint32_t changes,
	struct inode **ret_inode, struct inode_note *ret_note);

/* An object that has no name (O_TMPFILE); one lookup.  -ENOMEM. */
int inode_table_enter_unnamed(
	struct inode_table *table, const struct attributes *attributes, struct inode **ret_inode);

/* An inode with these attributes that leads nowhere: whoever uses it has to look again.  One
 * lookup.  -ENOMEM. */
int inode_table_enter_stale(
	struct inode_table *table, const struct attributes *attributes, struct inode **ret_inode);

/* Newer attributes of a known object. */
void inode_table_note(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, struct inode_note *ret_note);

/* The hash of the content that the object has in this version, if the last change through this
 * mount made it.  False: not known.  has_hash(): that of some version is. */
bool inode_table_has_hash(struct inode_table *table, const struct inode *inode);
bool inode_table_hash(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, uint8_t ret_digest[CONTENT_HASH_BYTES]);

/* A handle has changed the content; attributes NULL: into what is not known.  False: others had it
 * open for writing meanwhile, so that nothing is kept. */
bool inode_table_keep_hash(struct inode_table *table, struct inode *inode,
	const struct attributes *attributes, const uint8_t *digest);

/* The kernel forgets `count` lookups; the inode may be gone afterwards. */
void inode_table_forget(struct inode_table *table, struct inode *inode, uint64_t count);

/* The kernel is told of a known inode once more. */
void inode_table_add_lookup(struct inode_table *table, struct inode *inode);

/* The kernel has moved what it has of it to another directory. */
void inode_table_moved_in_kernel(
	struct inode_table *table, struct inode *inode, const struct inode *parent);

/* The kernel has removed it; a directory can never be used again there, and gets a new inode when
 * it is found elsewhere. */
void inode_table_removed_in_kernel(struct inode_table *table, struct inode *inode);

/* The kernel knows it. */
bool inode_table_is_known(struct inode_table *table, const struct inode *inode);

/* Those of the nodes, sorted addresses, that are inodes which the kernel knows; each with a
 * reference.  Returns their count. */
size_t inode_table_find_nodes(struct inode_table *table, const uint64_t *sorted_nodes, size_t count,
	struct inode **ret_inodes);

/* Keeps what a link leads to, for who is about to read one that another has just replaced.  Takes
 * over the text.  The other returns a copy that the caller frees; NULL: there is none. */
void inode_table_keep_target(struct inode_table *table, struct inode *inode, char *target);
char *inode_table_target(struct inode_table *table, struct inode *inode);

/* Keeps the inode when the kernel forgets it.  Dropping the last one may free it. */
void inode_table_ref(struct inode_table *table, struct inode *inode);
void inode_table_unref(struct inode_table *table, struct inode *inode);

/* The path of `inode` (`name` NULL) or of the entry `name` in it.
 * -ENOENT: it has no name any more; -ENOMEM. */
int inode_table_path(struct inode_table *table, struct inode *inode, const char *name,
	struct path_string *ret_path);

/* The same, but what has no name any more (the object, or a directory above it) counts as being
 * where it was last: somebody removed it there, or put another in its place.
 * -ENOENT: it never had a name; -ENOMEM. */
int inode_table_last_path(struct inode_table *table, struct inode *inode, const char *name,
	struct path_string *ret_path);

/* The last name went, and the kernel does not know it yet. */
#define LOST_UNTOLD (UINT64_MAX >> 1)

/* Since when (CLOCK_MONOTONIC) the inode, or a directory above it, has no name; 0: it has one. */
uint64_t inode_table_lost_ns(struct inode_table *table, const struct inode *inode);

/* What is known at a path or name, of an object (that is a directory), or of the directory that
 * something is in, or was last: NULL, or an inode with a reference for the caller. */
struct inode *inode_table_find(struct inode_table *table, const char *path);
struct inode *inode_table_find_id(struct inode_table *table, const struct object_id *id);
struct inode *inode_table_find_directory(struct inode_table *table, const struct object_id *id);
struct inode *inode_table_parent(struct inode_table *table, struct inode *inode);
struct inode *inode_table_last_parent(struct inode_table *table, struct inode *inode);
struct inode *inode_table_child(struct inode_table *table, struct inode *parent, const char *name);

/* The change feed says what was at a name at position `at`: an object (with attributes), or
 * nothing.  Returns what the kernel has to hear of it.  ELSEWHERE: `*ret_lost` has the name no
 * more, with a reference for the caller.  A directory that the kernel has elsewhere goes along. */
enum name_news {
	NAME_AS_KNOWN,
	NAME_WAS_UNKNOWN, /* to the kernel perhaps not */
	NAME_LEADS_ELSEWHERE,
};
enum name_news inode_table_told(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *found, uint64_t at, struct inode **ret_lost);

/* The kernel was told of the name in the last GIVEN_LATELY_MS, or perhaps. */
enum { GIVEN_LATELY_MS = 1000 };
bool inode_table_given_lately(
	struct inode_table *table, const struct inode *parent, const char *name);

/* The kernel has been told that the name is gone: who still comes by it means the inode. */
void inode_table_told_of_loss(struct inode_table *table, struct inode *inode);

/* The highest position so far: what is looked at after a change that begins now has a higher one.
 */
uint64_t inode_table_position(struct inode_table *table);

/* What we did to names, which nobody has looked at since: `at` was the position before (of a
 * removal: may be one of after it, too). */
void inode_table_removed(
	struct inode_table *table, struct inode *parent, const char *name, uint64_t at);

/* `inode`: what was at the old name before the rename began, or NULL.  `swap`: the two names have
 * changed places; else what the new one led to is gone. */
void inode_table_renamed(struct inode_table *table, struct inode *parent, const char *name,
	struct inode *new_parent, const char *new_name, struct inode *inode, bool swap,
	uint64_t at);

/* A name that the kernel may have: `inode` (NULL: none is known there) and `parent` carry
 * references. */
struct inode_place {
	struct inode *inode, *parent;
	char *name;
};

/* All names of the directory that are known or that are kept as missing, or everywhere (NULL); what
 * was looked at before and is entered later shows by the `changes` of its directory.  -ENOMEM. */
int inode_table_places(struct inode_table *table, struct inode *directory,
	struct inode_place **ret_places, size_t *ret_count);
void inode_table_places_free(struct inode_table *table, struct inode_place *places, size_t count);

/* A directory begins to be watched by a call that told `watched`; if that ended since the number of
 * losses, which was taken before the call, was what it was, nobody has asked.  wants_watch(): it is
 * to be asked for, as it was neither granted nor denied lately. */
bool inode_table_wants_watch(struct inode_table *table, struct inode *inode, uint32_t *ret_losses);
uint32_t inode_table_watch_losses(struct inode_table *table, struct inode *inode);
void inode_table_set_watched(
	struct inode_table *table, struct inode *inode, bool watched, uint32_t losses);

/* It (NULL: no directory) is not watched any more, for no reason of which it could not be again. */
void inode_table_watch_lost(struct inode_table *table, struct inode *directory);

/* A name that was looked for in the directory, when `changes` was the value of its `changes`, is
 * not there, by a look at that position: for how long?  (BELIEF_BRIEF: nobody might tell.)  What
 * the feed is to take back is kept, as the kernel can be told of it only by its name, should events
 * be lost. */
enum belief inode_table_missing(struct inode_table *table, struct inode *directory,
	const char *name, uint32_t changes, uint64_t at);

/* The kernel may believe that the name is not there. */
bool inode_table_is_missing(
	struct inode_table *table, const struct inode *directory, const char *name);

/* The kernel does not believe that any more. */
void inode_table_not_missing(
	struct inode_table *table, const struct inode *directory, const char *name);

/* How many directories are to be watched and are not; the paths of up to `max` of them, which the
 * caller frees, and their count.  Without memory there are fewer. */
uint64_t inode_table_on_ttl(struct inode_table *table, char **paths, size_t max, size_t *ret_count);

/* Handles.  A spare one serves whoever is about to open a file that another has just replaced; it
 * is closed with the inode, or when nobody has used it for SPARE_NS.  Adding any other takes a
 * reference on the inode; handle_any() takes one on the handle (NULL: none is open, or only a spare
 * one without `spare`).  The last handle_put() closes the file and frees the handle.  -EEXIST: it
 * has a spare one; -EISDIR; -ENOMEM: the caller keeps the handle.  is_kept(): the object has a
 * spare one, and the caller is going to use it. */
int inode_table_handle_add(struct inode_table *table, struct open_handle *handle);
bool inode_table_is_kept(struct inode_table *table, const struct object_id *id);
struct open_handle *inode_table_handle_any(
	struct inode_table *table, struct inode *inode, bool spare);
int inode_table_handle_put(
	struct inode_table *table, struct op_context *ctx, struct open_handle *handle);

/* Closes spare handles whose time is over.  Returns when (CLOCK_MONOTONIC) that of another one will
 * be; 0: there is none. */
uint64_t inode_table_close_spares(struct inode_table *table);

/* Closes what is still open; nobody serves requests any more. */
void inode_table_close_all(struct inode_table *table, struct op_context *ctx);

void inode_version_of(const struct attributes *attributes, struct inode_version *ret_version);
