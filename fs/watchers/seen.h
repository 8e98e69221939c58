/*
 * fs/watchers/seen.h - what those who watch have seen of the workspace: names in directories, and
 * the version of what they lead to, as the last events told it.
 *
 * Kept for directories in which somebody watches.  A change of others is announced if it differs
 * from what is kept here; what was done through this mount was announced by the kernel, and is
 * only noted.  So each change is announced once, whatever else learns of it before.
 * Pure: no thread, clock, lock or call but of the inode table (references).  The caller has one
 * lock around all of it.
 */
#pragma once

#include "fs/edge/announce.h"
#include "ops/support/hash_table.h"

/* What is at a name. */
struct seen_object {
	bool exists;
	struct object_id id;
	struct inode_version version;
};

struct seen_directory;

struct seen_name {
	struct seen_name *hash_next; /* of the directory */
	struct seen_name *id_next;   /* in the table by object, while `was` exists */
	struct seen_directory *directory;
	struct seen_object was; /* as it was announced */
	uint64_t at;            /* position of that look */
	bool is_known;          /* whether it was announced is known; else `was` is nothing */
	bool is_wanted;         /* somebody watches the object itself */

	/* A change that is to be announced: */
	bool is_pending;
	struct seen_name *next_pending, **link_pending;
	struct attributes now;
	bool now_exists;
	uint64_t now_at;
	uint64_t arrived_ns, due_ns; /* CLOCK_MONOTONIC */
	uint64_t announced_ns;       /* last; 0: never */
	uint64_t written_ns;         /* by us, and not yet settled; 0: not so */
	char name[];
};

struct seen_directory {
	struct seen_directory *hash_next;
	struct seen_directory *next, **link; /* all of them */
	struct inode *inode;                 /* with a reference */
	struct hash_table names;
	bool is_whole;  /* somebody watches the directory; else only names that are wanted */
	bool is_listed; /* a name that is not here was not there */
	bool is_missed; /* to be listed again: changes were missed */
	unsigned turn;  /* of the last scan that found it watched */
	unsigned blocked_turn;
	char *vanished;       /* a name that came and went before anybody saw it, ... */
	uint64_t vanished_ns; /* ... the last one, and when; it may be NULL */
};

struct seen {
	struct inode_table *inodes;
	struct hash_table directories; /* by the address of the inode */
	struct hash_table objects;     /* names that lead to something, by its id */
	struct seen_directory *first;
	struct seen_name *pending, **last_pending; /* in the order of arrival */
	size_t pending_count, name_count;
	struct seen_released *released;
};

int seen_init(struct seen *seen, struct inode_table *inodes);
void seen_done(struct seen *seen);

struct seen_directory *seen_find(struct seen *seen, const struct inode *inode);
struct seen_directory *seen_add(struct seen *seen, struct inode *inode); /* NULL: no memory */
void seen_remove(struct seen *seen, struct seen_directory *directory);

struct seen_name *seen_find_name(const struct seen_directory *directory, const char *name);
struct seen_name *seen_add_name(
	struct seen *seen, struct seen_directory *directory, const char *name);
void seen_remove_name(struct seen *seen, struct seen_name *name);

/* A reference that is dropped once the lock is free, as the workspace may have to be told of it:
 * the caller takes the list under the lock and frees it without. */
void seen_release(struct seen *seen, struct inode *inode);
struct seen_released *seen_take_released(struct seen *seen);
void seen_free_released(struct inode_table *inodes, struct seen_released *released);

/* What is at the name has been announced.  `attributes` NULL: nothing is there. */
void seen_set(struct seen *seen, struct seen_name *name, const struct attributes *attributes,
	uint64_t at);
void seen_set_before(struct seen *seen, struct seen_name *name, const struct seen_object *object);

/* It is to be announced that this is there; NULL: nothing. */
void seen_want(struct seen *seen, struct seen_name *name, const struct attributes *now, uint64_t at,
	uint64_t now_ns);
void seen_settle(struct seen *seen, struct seen_name *name); /* no longer */

/* Another name, at which the object was when that was last announced, and is no more as far as is
 * pending; NULL: there is none.  `or_may_be`: nothing is pending of it (yet). */
struct seen_name *seen_find_former(struct seen *seen, const struct seen_name *name, bool or_may_be);
