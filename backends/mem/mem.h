/*
 * backends/mem/mem.h - the workspace `mem:`, a POSIX tree in memory: its parts.
 *
 * mem.c holds the constructor and the table of operations, mem_name.c the operations on
 * names, mem_attributes.c how attributes are set, mem_file.c the operations on open files,
 * mem_lock.c the file locks, mem_xattr.c the extended attributes, mem_directory.c the names
 * of a directory, and mem_pages.c the sparse content of a file.
 *
 * Threads: `tree_lock` guards every inode, directory, page and xattr: shared to look, exclusive
 * to change.  `locks_mutex` guards the file locks; no one waits for the one while holding the
 * other.  `used_bytes` is atomic.
 * Memory:  everything that callers can grow is charged against `limit_bytes`, page by page
 * and name by name; what does not fit is -ENOSPC.
 * Times:   the clock's own nanoseconds; atime as "relatime" does it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "ops/support/hash_table.h"
#include "ops/workspace_ops.h"

enum { MEM_PAGE_BYTES = 4096 };

struct mem_inode;

/* ---- Content: mem_pages.c --------------------------------------------------- */

/* A radix tree of pages; a page that is not there reads as zeros and costs nothing. */
struct mem_pages {
	void *root;      /* a page when height is 0, else a node */
	unsigned height; /* levels of nodes */
	uint64_t count;  /* pages present */
};

/* ---- Directories: mem_directory.c --------------------------------------------- */

struct mem_dirent {
	struct mem_dirent *next; /* in the table */
	struct mem_inode *inode;
	uint64_t hash;
	size_t length;
	char name[];
};

struct mem_directory {
	struct hash_table names; /* no buckets until there is one */
	size_t most;             /* names at once, which is what is charged for buckets */
};

/* The one after `dirent` (NULL: the first), in no order. */
struct mem_dirent *mem_directory_next(
	const struct mem_directory *directory, struct mem_dirent *dirent);

/* ---- Inodes and the workspace --------------------------------------------------- */

struct mem_xattr {
	struct mem_xattr *next;
	char *name;
	void *value;
	size_t size;
};

struct mem_lock {
	struct mem_lock *next;
	struct file_lock lock; /* LOCK_KIND_POSIX; length 0 as in the contract */
	const void *handle;    /* through which it was taken; LOCK_KIND_FLOCK: whose */
};

struct mem_inode {
	struct attributes attributes; /* `blocks` is filled in by mem_inode_attributes() */
	uint32_t handles;             /* open */
	bool linkable;                /* made by create_unnamed and not linked yet */
	struct mem_inode *parent;     /* of a directory; NULL for the root */
	union {
		struct mem_directory directory;
		struct mem_pages pages;
		char *target;
	};
	struct mem_xattr *xattrs;
	size_t xattr_bytes;
	struct mem_lock *locks; /* under locks_mutex */
	struct mem_inode *previous, *next;
};

struct mem {
	struct workspace workspace;
	uint64_t limit_bytes;
	atomic_uint_fast64_t used_bytes;
	pthread_rwlock_t tree_lock;
	struct mem_inode *root;
	struct mem_inode *inodes; /* all of them */
	uint64_t device;
	uint64_t last_inode;
	uint64_t last_generation;
	uid_t owner_uid;
	gid_t owner_gid;
	pthread_mutex_t locks_mutex;
	pthread_cond_t locks_changed;
};

struct mem_file {
	struct open_file file;
	struct mem_inode *inode;
	int flags;
};

static inline struct mem *mem_of(struct workspace *w)
{
	return (struct mem *)w;
}

static inline struct mem_file *mem_file_of(struct open_file *file)
{
	return (struct mem_file *)file;
}

/* ---- mem.c ------------------------------------------------------------------------ */

/* Charge and refund memory of the bound.  -ENOSPC. */
int mem_charge(struct mem *m, uint64_t bytes);
void mem_refund(struct mem *m, uint64_t bytes);

/* Takes tree_lock for an operation, and draws its position: nothing changes between that and what
 * is looked at, or left, under the lock. */
void mem_lock_to_look(struct mem *m, struct op_context *ctx);
void mem_lock_to_change(struct mem *m, struct op_context *ctx);

/* Fills in the facts of a change, if they are wanted; under tree_lock. */
void mem_tell_parent(struct op_context *ctx, const struct mem_inode *directory);
void mem_tell_object(struct op_context *ctx, const struct mem_inode *inode);

/* The clock of all timestamps. */
struct timespec mem_now(void);

/* True when the caller may keep a set-group-ID bit for `gid`. */
bool mem_in_group(const struct op_context *ctx, gid_t gid);

/* A new inode with no name (nlink 0), in the list of all.  -ENOSPC, -ENOMEM. */
int mem_inode_new(struct mem *m, uint32_t mode, uid_t uid, gid_t gid, struct mem_inode **ret_inode);

/* Frees the inode once neither a name nor a handle holds it. */
void mem_inode_release(struct mem *m, struct mem_inode *inode);

/* Attributes as callers see them. */
struct attributes mem_inode_attributes(const struct mem_inode *inode);

/* The object that `object` means, with its identity checked.  -ESTALE. */
int mem_find(struct mem *m, const struct object_ref *object, struct mem_inode **ret_inode);

/* The object at a path of `length` bytes. */
int mem_walk(struct mem *m, const char *path, size_t length, struct mem_inode **ret_inode);

/* True when a read now has to move atime ("relatime"). */
bool mem_atime_is_due(const struct mem_inode *inode);

/* Marks a read; called without tree_lock held, after atime_is_due() said so under it. */
void mem_touch_atime(struct mem *m, struct mem_inode *inode);

/* Content changed: mtime and ctime are now; a caller other than root loses setuid bits. */
void mem_content_changed(const struct op_context *ctx, struct mem_inode *inode);

/* ---- mem_directory.c ---------------------------------------------------------------- */

/* The entry, or NULL.  `name` has `length` bytes and need not end there. */
struct mem_dirent *mem_directory_find(
	const struct mem_directory *directory, const char *name, size_t length);

/* Adds a name that is not there.  -ENOSPC, -ENOMEM. */
int mem_directory_add(
	struct mem *m, struct mem_directory *directory, const char *name, struct mem_inode *inode);

/* Removes and frees an entry; its inode stays. */
void mem_directory_remove(
	struct mem *m, struct mem_directory *directory, struct mem_dirent *dirent);

void mem_directory_done(struct mem *m, struct mem_directory *directory); /* every entry */

/* ---- mem_pages.c ---------------------------------------------------------------------- */

/* The page, or NULL for a hole. */
uint8_t *mem_pages_get(const struct mem_pages *pages, uint64_t index);

/* The page, made (zeroed) where it is missing; `*ret_page`.  -ENOSPC, -ENOMEM. */
int mem_pages_make(struct mem *m, struct mem_pages *pages, uint64_t index, uint8_t **ret_page);

/* Drops the pages from `first` up to, not including, `end`. */
void mem_pages_drop(struct mem *m, struct mem_pages *pages, uint64_t first, uint64_t end);

/* The first page at or after `index` that is (or is not) present; UINT64_MAX: none. */
uint64_t mem_pages_next(const struct mem_pages *pages, uint64_t index, bool present);

/* Zeroes bytes; whole pages become holes. */
void mem_pages_zero(struct mem *m, struct mem_pages *pages, uint64_t offset, uint64_t end);

/* ---- The operations, for the table in mem.c ----------------------------------------------- */

WORKSPACE_DECLARE_OPERATIONS(mem)

/* All of the inode's, with the room they take. */
void mem_xattrs_free(struct mem *m, struct mem_inode *inode);

/* A handle on an inode; takes tree_lock's exclusive side for granted.  -ENOMEM. */
int mem_file_new(struct mem *m, struct mem_inode *inode, int flags, struct open_file **ret_file);

/* Sets the size of a regular file; growing makes a hole. */
void mem_set_size(struct mem *m, struct mem_inode *inode, uint64_t size);

/* Releases what was locked through the handle, and wakes those that wait for it. */
void mem_locks_drop_handle(struct mem *m, struct mem_file *file);

/* Frees all locks of an inode that cannot be reached any more. */
void mem_locks_free(struct mem *m, struct mem_inode *inode);
