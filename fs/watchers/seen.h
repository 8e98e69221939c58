/*
 * fs/watchers/seen.h - what watchers have seen of the workspace: names in directories, and the
 * version of the objects there, as of the last events.
 *
 * Kept for watched directories.  A change by others is announced if it differs from what is kept
 * here; the kernel has announced what was done through this mount, which is only noted.  So each
 * change is announced once, by whatever way it is noticed first.  Pure: no thread, clock, lock or
 * call but of the inode table (references).  The caller has one lock around all of it.
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
	bool is_known;          /* what was announced is known; else `was` is nothing */
	bool is_wanted;         /* the object itself is watched */

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
	bool is_whole;  /* the directory is watched; else only names that are wanted */
	bool is_listed; /* the names are complete */
	bool is_missed; /* to be listed again: changes were missed */
	unsigned turn;  /* of the last scan that found it watched */
	unsigned blocked_turn;
	char *vanished;       /* a name that came and went unseen, ... */
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

/* References to be dropped without the lock, as that may call the workspace: the caller takes the
 * list under the lock and frees it afterwards. */
void seen_release(struct seen *seen, struct inode *inode);
struct seen_released *seen_take_released(struct seen *seen);
void seen_free_released(struct inode_table *inodes, struct seen_released *released);

/* The state of the name was announced.  `attributes` NULL: nothing is there. */
void seen_set(struct seen *seen, struct seen_name *name, const struct attributes *attributes,
	uint64_t at);
void seen_set_before(struct seen *seen, struct seen_name *name, const struct seen_object *object);

/* Makes this state of the name pending; NULL: nothing is there. */
void seen_want(struct seen *seen, struct seen_name *name, const struct attributes *now, uint64_t at,
	uint64_t now_ns);
void seen_settle(struct seen *seen, struct seen_name *name); /* no longer */

/* The name from which the object was moved: where it was last announced, and is not by what is
 * pending; NULL: there is none.  `or_may_be`: also one of which nothing is pending (yet). */
struct seen_name *seen_find_old_name(
	struct seen *seen, const struct seen_name *name, bool or_may_be);
