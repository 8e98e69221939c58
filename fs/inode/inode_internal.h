/*
 * fs/inode/inode_internal.h - the parts of the table of inodes.
 *
 * inode.c          the table, the life of inodes, what is known of one
 * inode_names.c    the names of an inode, and the table of them
 * inode_entries.c  where replies and changes say that objects are, and what became of them
 * inode_paths.c    the paths to objects, and what is known at them
 * inode_handles.c  open files
 * inode_watches.c  which directories are watched
 *
 * All functions here want the table's lock held unless they say otherwise.  What must not happen
 * under it is put into a list, for inode_report_forgotten() once the lock is free.
 */
#pragma once

#include <pthread.h>

#include "ops/support/file_kinds.h"
#include "ops/support/hash_table.h"
#include "fs/inode/inode.h"
#include "fs/inode/inode_rules.h"

enum { MALLOC_OVERHEAD_BYTES = 8 };
#ifndef REMOVALS /* a test has fewer */
#define REMOVALS 4096
#endif

#define LOOKUPS_MAX UINT32_MAX

/* Names that were lately removed through this mount, by hash: the change feed will echo that. */
struct removal {
	size_t hash;
	uint64_t at;
	bool is_due; /* the echo is still to come */
};

struct inode_table {
	pthread_mutex_t lock; /* all below, and the inodes' fields */
	struct inode *root;
	uint64_t device;  /* of the root; does not change */
	struct slab slab; /* inodes, what they have as files or directories, other names */
	struct file_kinds kinds;
	struct slab_table inodes;          /* by object id */
	struct hash_table numbers;         /* of inodes that are open: one handle of each */
	struct hash_table missing;         /* by parent and name: names that are not there */
	size_t names;                      /* in all directories */
	uint64_t bytes, bytes_most;        /* now; and the most since memory was returned */
	uint64_t on_ttl;                   /* inodes with that flag */
	uint64_t missing_bytes;            /* of those */
	struct open_handle *retry_handles; /* the first one due comes first */
	struct open_handle **last_retry_handle;
	uint64_t highest; /* position so far */
	struct removal removals[REMOVALS];
	uint32_t given_ms[REMOVALS]; /* when the kernel last got an answer about a name, by hash */
	inode_forgotten forgotten;
	void *user;
};

/* What to do once the lock is free: close a retry handle, or report a directory. */
struct forgotten {
	struct forgotten *next;
	struct open_handle *retry_handle;
	struct object_id id;
	char path[];
};

/* ---- inode_versions.c: the state that the kernel was given.  With the table's lock. */

struct inode_version inode_version_now(const struct inode *inode);

/* Keeps what the version has beside size and times.  False: no memory, and it is as before. */
bool inode_set_kind(struct inode_table *t, struct inode *inode, uint64_t device,
	const struct inode_version *version);

/* It has a link less than the kernel was told. */
void inode_lose_link(struct inode_table *t, struct inode *inode);

void inode_forget_hash(struct inode_table *t, struct inode_file *file);

/* ---- inode.c */

/* The first inode of a chain that has all with this id. */
struct inode *inode_chain(const struct inode_table *t, const struct object_id *id);

struct object_id inode_id(const struct inode *inode);
bool inode_has_id(const struct inode *inode, const struct object_id *id);

/* inode_table_number(). */
uint64_t inode_number(const struct inode *inode);

/* The inode of an object, not superseded.  NULL: there is none. */
struct inode *inode_find(struct inode_table *t, const struct object_id *id);

/* A new inode without references, which is going to get this name.  NULL: no memory. */
struct inode *inode_make(
	struct inode_table *t, const struct attributes *attributes, const char *name);

/* Counts one more lookup by the kernel. */
void inode_add_lookup(struct inode *inode);

/* inode_file() of an inode that is no directory; makes it.  NULL: no memory. */
struct inode_file *inode_make_file(struct inode_table *t, struct inode *inode);

/* Frees it when neither the kernel nor a reference holds it. */
void inode_free_if_unused(struct inode_table *t, struct inode *inode, struct forgotten **list);

/* Drops a reference; the inode may be gone afterwards. */
void inode_unref(struct inode_table *t, struct inode *inode, struct forgotten **list);

/* Without the lock: does what the list asks for, and frees it. */
void inode_report_forgotten(struct inode_table *t, struct forgotten *list);

/* Takes newer attributes over; `ret_note` says what they changed. */
void inode_note(struct inode_table *t, struct inode *inode, const struct attributes *a,
	struct inode_note *ret_note);

/* ---- inode_names.c */

/* Calls `visit` for each name in the directory, which it must not remove. */
void name_each_in(const struct inode *directory, void (*visit)(void *user, struct inode_name *name),
	void *user);

/* Gives back what the table of a directory that had many names does not need. */
void name_shrink_table(struct inode *directory);

size_t name_hash(const struct inode *parent, const char *name);

/* What is known at a name.  NULL: nothing. */
struct inode_name *name_find(struct inode_table *t, const struct inode *parent, const char *name);

struct inode *name_inode(struct inode_name *name);

/* The names of an inode, from the latest one on.  NULL: there is none; a lost one does not count,
 * but for name_last(). */
struct inode_name *name_latest(const struct inode *inode);
struct inode_name *name_older(const struct inode *inode, const struct inode_name *name);
struct inode_name *name_last(const struct inode *inode);

/* One that is not `name`.  NULL: there is none. */
struct inode_name *name_besides(const struct inode *inode, const struct inode_name *name);

/* True when it is `top` itself, too. */
bool inode_is_below(const struct inode *inode, const struct inode *top);

/* Adds a name.  Paths end at the root, whatever the workspace says: a directory that shows up again
 * below itself (a bind mount there, or a far end that lies) gets no name there: -ELOOP.  -ENOMEM.
 */
int name_add(struct inode_table *t, struct inode *parent, const char *text, struct inode *inode,
	uint64_t at, struct forgotten **list);

/* Removes a name; of name_detach() the caller gets the reference that it had on its parent. */
struct inode *name_detach(struct inode_table *t, struct inode_name *name);
void name_drop(struct inode_table *t, struct inode_name *name, struct forgotten **list);

/* The name is gone, or another's: as name_drop(), but an inode that the kernel knows keeps its last
 * name as the place where it was (is_lost). */
void name_lose(struct inode_table *t, struct inode_name *name, struct forgotten **list);

/* For an inode that is freed with the whole table. */
void name_free_all(struct inode_table *t, struct inode *inode);

/* Forgets where an object without names was last. */
void inode_forget_lost(struct inode_table *t, struct inode *inode, struct forgotten **list);

/* ---- inode_paths.c */

/* `last`: an inode without a name counts as being at its last one.  -ENOENT, -ENOMEM. */
int name_build_path(struct inode_table *t, const struct inode *inode, const char *name, bool last,
	struct path_string *path);

/* ---- inode_missing.c */

/* Keeps a name that the kernel may have cached though no object is known there, so that it can be
 * expired when events are lost.  `at`: of the look that found nothing; 0: none did.  False: there
 * is no room for it. */
bool inode_missing_keep(struct inode_table *t, struct inode *parent, const char *name, uint64_t at);

/* A look at that position is older than the answer that the name is absent. */
bool inode_missing_since(
	struct inode_table *t, const struct inode *parent, const char *name, uint64_t at);

/* inode_table_not_missing(), and the same for all names in a directory.  inode_found(): whether it
 * was kept. */
bool inode_found(struct inode_table *t, const struct inode *parent, const char *name);
void inode_forget_missing(struct inode_table *t, struct inode_directory *directory);
void inode_shrink_missing(struct inode_table *t);

/* ---- inode_handles.c */

/* Another file is open and shown with this inode number. */
bool handle_has_number(const struct inode_table *t, const struct object_id *id);

/* Moves the retry handle of an inode that is being freed, its only handle, to the list. */
void handle_take_retry(struct inode_table *t, struct inode *inode, struct forgotten **list);

/* Closes and frees it; without the lock, unless there is no memory for a list. */
void handle_close_retry(struct open_handle *handle);
