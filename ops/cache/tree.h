/*
 * ops/cache/tree.h - what is known of a workspace: one fact per name and object, ordered by
 * position.
 *
 * The store of the cached decorator (ops/cache/cached.h).  The rules, and the races that they
 * answer, are in ops/cache/COHERENCE.md.
 *
 * A helper at the workspace draws a number, the position, right before each look at the workspace
 * (after a change of our own: after the change, before the look at its result).  Whatever it
 * reports is a fact with such a position, and the fact with the highest position counts, in
 * whichever order facts arrive.  Directories are named by id, never by path.
 *
 * Threads: none; the owner has a lock around all of it.  No function waits or looks at a clock:
 *          times are the caller's (ms, one monotonic clock).
 * Memory:  nothing here fails for want of it.  A fact that cannot be kept counts as a loss of
 *          events: what was known is asked for again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/workspace_values.h"

struct tree;

/* A position is above 0 and below this. */
static const uint64_t TREE_POSITIONS = (uint64_t)1 << 62;

struct tree_options {
	uint64_t ttl_ms;  /* how long unwatched facts stay valid; 0: not at all */
	size_t facts_max; /* objects and names; beyond it, what was not used lately is dropped.  0:
			   * no bound */

	/* Called before an object is dropped, while its names are still there, and when the tree is
	 * freed: whether it may be dropped.  Frees what the caller kept with it (tree_keep).  May
	 * read the tree, but not change it.  NULL: always. */
	bool (*drop)(void *user, const struct object_id *id, void *kept);
	void *user;
};

/* NULL: no memory. */
struct tree *tree_new(const struct tree_options *options);
void tree_free(struct tree *t); /* NULL is fine */

/* ---- Facts: the only way in ---------------------------------------------------------------- */

/* When something was looked at. */
struct tree_look {
	uint64_t at; /* position of the look */
	uint64_t ms; /* when the look was requested, or was last confirmed */
};

/* Each returns 0; or -EPROTO without an effect: the position is invalid.  The directory or object
 * need not be known: facts may arrive before the one that introduces it. */

/* What is at a name, with its attributes; NULL: nothing. */
int tree_learn_name(struct tree *t, const struct tree_look *look, const struct object_id *directory,
	const char *name, const struct attributes *found);

/* Attributes of an object, however it was looked at. */
int tree_learn_attributes(
	struct tree *t, const struct tree_look *look, const struct attributes *attributes);

/* A directory was listed from position look->at on, and tree_learn_name() has been called for each
 * of its names, with a position that is not below that. */
int tree_learn_listing(
	struct tree *t, const struct tree_look *look, const struct object_id *directory);

/* The directory is watched by a watch that was added at position `since`: changes of what is looked
 * at later are reported.  Or it is not watched.  -ENOMEM: treated as unknown. */
int tree_learn_watch(struct tree *t, const struct tree_look *look,
	const struct object_id *directory, bool on, uint64_t since);

/* Events were lost, and perhaps watches, too.  The position was drawn after the last one that was;
 * or it is below all of a new helper, and not below any of the former one. */
int tree_learn_loss(struct tree *t, const struct tree_look *look);

/* A command has run: earlier looks at what is not watched are not valid any more. */
void tree_command_ran(struct tree *t, uint64_t now_ms);

/* ---- What is known ------------------------------------------------------------------------- */

enum tree_validity {
	TREE_ASK,     /* only the workspace knows */
	TREE_BRIEFLY, /* valid until the time-to-live ends */
	TREE_WATCHED, /* valid until a change is reported */
};

/* `*ret_id` is what is known at the name, also with TREE_ASK; inode 0: nothing. */
enum tree_validity tree_get_name(struct tree *t, const struct object_id *directory,
	const char *name, uint64_t now_ms, struct object_id *ret_id);

/* Written unless TREE_ASK is returned.  NULL: they are not needed. */
enum tree_validity tree_get_attributes(struct tree *t, const struct object_id *id, uint64_t now_ms,
	struct attributes *ret_attributes);

/* Whether the known names of the directory are all that it has. */
enum tree_validity tree_get_listing(
	struct tree *t, const struct object_id *directory, uint64_t now_ms);

/* A known name that leads to an object. */
struct tree_entry {
	const char *name;
	const struct attributes *attributes; /* `id` counts always, the rest if it is valid */
	enum tree_validity name_validity, attributes_validity;
	void *kept; /* with the object */
};

/* Calls the sink for each of them until it returns false.  With TREE_ASK there may be others, or
 * some may lead elsewhere.  The sink may read the tree, but not change it. */
enum tree_validity tree_list(struct tree *t, const struct object_id *directory, uint64_t now_ms,
	bool (*sink)(void *user, const struct tree_entry *entry), void *user);

/* Gives the attributes of the latest look, valid or not; NULL: not needed.  Returns its position;
 * 0: none. */
uint64_t tree_last_attributes(
	const struct tree *t, const struct object_id *id, struct attributes *ret_attributes);

/* Their type (S_IFMT); 0: unknown. */
uint32_t tree_type(const struct tree *t, const struct object_id *id);

/* A known name of the object, and the directory that it is in; NULL: none. */
const char *tree_name_of(
	const struct tree *t, const struct object_id *id, struct object_id *ret_directory);

/* The position from which on changes of what was looked at are reported; 0: it is not watched. */
uint64_t tree_watched_since(const struct tree *t, const struct object_id *directory);

/* Numbers the states of an object, as far as they are known; 0: nothing is known of it.  Content is
 * that of the object's attributes as long as this is the number that it was before the content was
 * asked for.  Content that comes unasked has attributes that were looked at before it was read: it
 * counts if those are what is known and have not changed lately. */
uint64_t tree_state(const struct tree *t, const struct object_id *id);

/* ---- Doubt: only the workspace can tell, until a later look has ------------------------------
 *
 * `at`: the position of the reply that brought it; 0: there is none. */

void tree_invalidate_name(
	struct tree *t, uint64_t at, const struct object_id *directory, const char *name);
void tree_invalidate_attributes(struct tree *t, uint64_t at, const struct object_id *id);

/* A file has lost a name, but it is not known which file: invalidates the attributes of files with
 * several links. */
void tree_invalidate_links(struct tree *t, uint64_t at);

/* A change of our own was abandoned, perhaps half way (its reply will be applied if it comes), or
 * its reply has no facts.  Invalidates the name, the listing and the attributes that it is about;
 * `linked`: also those of the object that was to get the name, or NULL. */
void tree_own_unclear(struct tree *t, uint64_t at, const struct object_id *directory,
	const char *name, const struct object_id *linked);

/* ---- What the caller keeps with an object ---------------------------------------------------- */

/* From a slab of the caller (ops/support/slab.h).  NULL: nothing. */
void *tree_kept(const struct tree *t, const struct object_id *id);
int tree_keep(struct tree *t, const struct object_id *id, void *kept); /* 0 or -ENOMEM */

/* A number below 8 that goes with the state of the object, and is 0 in the next one. */
uint8_t tree_mark(const struct tree *t, const struct object_id *id);
void tree_set_mark(struct tree *t, const struct object_id *id, uint8_t mark);

/* ---- Cleaning ----------------------------------------------------------------------------------
 *
 * Each fact has a few objects looked at that have no name any more, and names that lead nowhere
 * where the listing says the same: they go once no fact about them can be on its way.  Without
 * facts they stay.  tree_clean() drops all of them, for when nothing has come for a while; should
 * something about them be on its way all the same, it is asked for again.  A part at a time:
 * `*part` is 0 at first, and false says that it was the last one. */
bool tree_clean(struct tree *t, size_t *part);

/* ---- State --------------------------------------------------------------------------------- */

size_t tree_names(const struct tree *t);
