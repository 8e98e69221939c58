/*
 * ops/cache/tree.h - what is known about a workspace: one fact per name and object, ordered by
 * position.
 *
 * The store of the cached decorator (ops/cache/cached.h).  ops/cache/COHERENCE.md has the rules and
 * the races that each rule resolves.
 *
 * The helper at the workspace draws a number, the position, right before each look at the workspace
 * (for a change made through this mount: after the change, before the look at its result).
 * Everything that it reports is a fact with such a position.  The fact with the highest position
 * counts, in whichever order facts arrive.  Directories are identified by id, never by path.
 *
 * Threads: the owner's lock guards all of it.  No function waits or reads a clock: the caller
 *          passes times (ms, one monotonic clock).
 * Memory:  no function fails for lack of memory unless it says so.  A fact that cannot be stored
 *          counts as a loss of events: callers then ask the workspace again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/workspace_values.h"

struct tree;

/* Positions are in 1 .. TREE_POSITIONS - 1. */
static const uint64_t TREE_POSITIONS = (uint64_t)1 << 62;

struct tree_options {
	uint64_t ttl_ms;  /* how long unwatched facts stay valid; 0: not at all */
	size_t facts_max; /* bound of objects plus names; above it, facts that were not used lately
			   * are dropped.  0: no bound */

	/* Called before an object is dropped, while it still has its names, and for each object
	 * when the tree is freed.  Returns whether the object may be dropped; if so, it has freed
	 * the `kept` of tree_keep().  May read the tree, but not change it.  NULL: every object may
	 * be dropped. */
	bool (*drop)(void *user, const struct object_id *id, void *kept);
	void *user;
};

/* NULL: no memory. */
struct tree *tree_new(const struct tree_options *options);
void tree_free(struct tree *t); /* NULL is fine */

/* ---- Facts: the only way to change what is known ------------------------------------------- */

/* When the workspace was looked at. */
struct tree_look {
	uint64_t at; /* position of the look */
	uint64_t ms; /* when the look was requested, or was last confirmed */
};

/* These functions return 0, or -EPROTO without an effect if the position is invalid.  The directory
 * or object need not be known: a fact may arrive before the fact that introduces its object. */

/* The object that is at a name, with its attributes; NULL: the name is absent. */
int tree_learn_name(struct tree *t, const struct tree_look *look, const struct object_id *directory,
	const char *name, const struct attributes *found);

/* The attributes of an object, from a look by name or by handle. */
int tree_learn_attributes(
	struct tree *t, const struct tree_look *look, const struct attributes *attributes);

/* The listing of a directory began at position look->at, and tree_learn_name() was called for each
 * of its names with that position or a higher one. */
int tree_learn_listing(
	struct tree *t, const struct tree_look *look, const struct object_id *directory);

/* `on`: a watch was added at position `since`; the feed reports a change of whatever was looked at
 * after that.  Otherwise the directory is not watched.  -ENOMEM: it counts as unwatched. */
int tree_learn_watch(struct tree *t, const struct tree_look *look,
	const struct object_id *directory, bool on, uint64_t since);

/* Events were lost, and perhaps watches.  The position was drawn after the last lost event; when a
 * new helper replaces the former one, it is below all positions of the new helper and not below any
 * position of the former one. */
int tree_learn_loss(struct tree *t, const struct tree_look *look);

/* A command has run, or a lock was granted: earlier looks at unwatched directories are no longer
 * valid. */
void tree_expire_unwatched(struct tree *t, uint64_t now_ms);

/* ---- What is known ------------------------------------------------------------------------- */

enum tree_validity {
	TREE_ASK,     /* only the workspace knows */
	TREE_BRIEFLY, /* valid until the time-to-live ends */
	TREE_WATCHED, /* valid until a change is reported */
};

/* `*ret_id` is the last known object at the name, even with TREE_ASK; inode 0: none. */
enum tree_validity tree_get_name(struct tree *t, const struct object_id *directory,
	const char *name, uint64_t now_ms, struct object_id *ret_id);

/* Writes `*ret_attributes` unless it returns TREE_ASK.  NULL: only the validity is needed. */
enum tree_validity tree_get_attributes(struct tree *t, const struct object_id *id, uint64_t now_ms,
	struct attributes *ret_attributes);

/* Whether the known names of the directory are complete. */
enum tree_validity tree_get_listing(
	struct tree *t, const struct object_id *directory, uint64_t now_ms);

/* A known name that leads to an object. */
struct tree_entry {
	const char *name;
	const struct attributes *attributes; /* with TREE_ASK only `id` is valid */
	enum tree_validity name_validity, attributes_validity;
	void *kept; /* tree_keep() of the object, or NULL */
};

/* Calls the sink for each known entry until it returns false.  With TREE_ASK, entries may be
 * missing and some may be stale.  The sink may read the tree, but not change it. */
enum tree_validity tree_list(struct tree *t, const struct object_id *directory, uint64_t now_ms,
	bool (*sink)(void *user, const struct tree_entry *entry), void *user);

/* Writes the attributes of the latest look, valid or not; NULL: the caller needs the position only.
 * Returns the position of that look; 0: there was none. */
uint64_t tree_last_attributes(
	const struct tree *t, const struct object_id *id, struct attributes *ret_attributes);

/* The type of the object (mode & S_IFMT); 0: unknown. */
uint32_t tree_type(const struct tree *t, const struct object_id *id);

/* One known name of the object, and the directory of that name; NULL: no name is known. */
const char *tree_name_of(
	const struct tree *t, const struct object_id *id, struct object_id *ret_directory);

/* The position at which the present watch was added: changes after it are reported.  0: the
 * directory is not watched. */
uint64_t tree_watched_since(const struct tree *t, const struct object_id *directory);

/* A number for the present known state of the object; another state has another number.  0: the
 * object is unknown.  Content belongs to the known attributes if the number is still the one from
 * before the content was requested.  Content that was not requested (a scan) comes with attributes
 * that were looked at before the content was read: it is valid if those are the known ones and had
 * not changed lately. */
uint64_t tree_state(const struct tree *t, const struct object_id *id);

/* ---- Invalidation: the workspace is asked until a later look answers --------------------------
 *
 * `at`: the position of the reply that is the reason; 0: the reason is no reply. */

void tree_invalidate_name(
	struct tree *t, uint64_t at, const struct object_id *directory, const char *name);
void tree_invalidate_attributes(struct tree *t, uint64_t at, const struct object_id *id);

/* An unknown file has lost a name: invalidates the attributes of every file with several links. */
void tree_invalidate_links(struct tree *t, uint64_t at);

/* A change made through this mount was abandoned before its reply, or its reply has no facts.
 * Invalidates the name, the listing and the attributes of the directory and of the object at the
 * name.  `linked`: the object that was to get the name, whose attributes are invalidated too, or
 * NULL.  A late reply is still applied. */
void tree_own_unclear(struct tree *t, uint64_t at, const struct object_id *directory,
	const char *name, const struct object_id *linked);

/* ---- The caller's data of an object ---------------------------------------------------------- */

/* `kept` points into a slab of the caller (ops/support/slab.h).  NULL: no data. */
void *tree_kept(const struct tree *t, const struct object_id *id);
int tree_keep(struct tree *t, const struct object_id *id, void *kept); /* 0 or -ENOMEM */

/* A number below 8 that belongs to the present state of the object; a new state starts with 0. */
uint8_t tree_mark(const struct tree *t, const struct object_id *id);
void tree_set_mark(struct tree *t, const struct object_id *id, uint8_t mark);

/* ---- Cleaning ----------------------------------------------------------------------------------
 *
 * Every fact also checks a few objects without names, and a few absent names that the listing
 * implies anyway.  They are dropped once no fact about them can still arrive.  If no facts come,
 * they stay: the owner calls tree_clean() after a quiet time to drop all of them.  If a fact about
 * one of them arrives all the same, the workspace is asked again.  Each call cleans one part:
 * `*part` is 0 at first; false means that this was the last part. */
bool tree_clean(struct tree *t, size_t *part);

/* ---- State --------------------------------------------------------------------------------- */

size_t tree_names(const struct tree *t);
