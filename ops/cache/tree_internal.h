/*
 * ops/cache/tree_internal.h - the tree's own structures, for the tree and its tests.
 */
#pragma once

#include "ops/cache/tree.h"
#include "ops/support/file_kinds.h"
#include "ops/support/slab_table.h"

/*
 * The rules, by their names in ops/cache/COHERENCE.md.  A test builds the tree once more so that it
 * can switch each of them off in turn, and must find out.
 */
#define TREE_RULES(X)   \
	X(HIGHEST_WINS) \
	X(KEEP_UNKNOWN) \
	X(LOSS)         \
	X(LOST_WATCH)   \
	X(NO_MEMORY)    \
	X(BACKED)       \
	X(WATCH_ORDER)  \
	X(EVICTED)      \
	X(EVICT_LISTED) \
	X(ONE_NAME)     \
	X(ALL_LINKS)    \
	X(SAME_TICK)    \
	X(UNCLEAR)

enum tree_rule {
#define X(name) RULE_##name,
	TREE_RULES(X)
#undef X
		RULE_COUNT
};

#ifdef TREE_MUTANTS
extern enum tree_rule tree_rule_off;
#define RULE(name) (tree_rule_off != RULE_##name)
#else
#define RULE(name) true
#endif

/* A name in a directory, whether something is there or not. */
struct slot {
	slab_ref in;          /* the directory */
	slab_ref of;          /* what the look at `at` found; 0: nothing */
	slab_ref next;        /* in the bucket */
	slab_ref next_of;     /* of the object */
	uint64_t at : 62;     /* position of the look */
	uint64_t unknown : 1; /* ask */
	uint64_t used : 1;    /* since the sweep last passed */
	uint64_t looked_ms : 40;
	uint64_t hash : 24;
	char name[];
};

struct directory_facts {
	struct slab_table slots;
	uint64_t watch_seen; /* position of the fact that says so: */
	uint64_t watch_at;   /* looks from here on have an event when what they saw changes */
	uint64_t listed_at;  /* names without slot were absent at that look; 0: ask */
	uint64_t listed_ms;
	uint64_t evicted_at; /* highest position of the slots that were dropped */
	size_t hand;         /* the bucket that was cleaned last */
	slab_ref kept;       /* the caller's, with the directory */
	bool on;
};

/* From 1697 to 2242. */
struct short_time {
	int64_t seconds : 34;
	uint64_t ns : 30;
};

/* Every known file has one, with its attributes in as few bytes as most of them fit in. */
struct object {
	uint64_t inode, generation; /* with the device of its kind: its id */
	uint64_t size_or_rdev;      /* of a device: its number; it has no size */
	struct short_time atime, mtime, ctime;
	uint64_t at : 62;     /* position of the look that found the attributes */
	uint64_t unknown : 1; /* ask for the attributes */
	uint64_t used : 1;    /* since the sweep last passed */
	uint64_t looked_ms : 40;
	uint64_t mark : 3;           /* the caller's, of this state */
	uint64_t changed_lately : 1; /* as in struct attributes */
	uint64_t is_directory : 1;
	uint64_t has_facts : 1;
	uint32_t blocks;
	uint32_t state; /* see tree_state(); comes again after 4 billion changes in the workspace */
	slab_ref kind;  /* mode 0: there was no look yet */
	slab_ref next;  /* in the bucket */
	slab_ref slots; /* all whose `of` it is */
	slab_ref kept;  /* the caller's; with has_facts: its directory_facts */
};

struct tree {
	struct tree_options options;
	struct slab slab;          /* objects, slots and facts of directories */
	struct file_kinds kinds;   /* of objects */
	struct slab_table objects; /* by id */
	uint32_t states;           /* of objects; given out so far */
	uint64_t highest;          /* position of all facts applied */
	uint64_t lost_at;          /* what was looked at before is not backed */
	uint64_t evicted_at;       /* highest position of the objects that were dropped */
	uint64_t command_ms;
	uint64_t links_at; /* attributes of files with several links count from above this on */
	size_t names;
	size_t sweep_hand, clean_hand; /* the buckets that were swept last */
	uint64_t mark_at, mark_ms;     /* `highest`, and when */
	uint64_t settled_at;           /* nothing from before is on its way any more */
};

struct object *tree_object(const struct tree *t, const struct object_id *id); /* or NULL */
struct slot *tree_slot(const struct object *directory, const char *name);     /* or NULL */

static inline struct object *slot_directory(const struct slot *s)
{
	return slab_at_some(s->in);
}

static inline struct object *slot_object(const struct slot *s) /* or NULL */
{
	return slab_at(s->of);
}

/* Of what was said of it as a directory; NULL: nothing was. */
static inline struct directory_facts *tree_facts(const struct object *o)
{
	return o->has_facts ? slab_at_some(o->kept) : NULL;
}

static inline struct directory_facts *slot_facts(const struct slot *s)
{
	return slab_at_some(slot_directory(s)->kept);
}

static inline struct object_id object_id_of(const struct object *o)
{
	return (struct object_id){.device = file_kind_at(o->kind)->device,
		.inode = o->inode,
		.generation = o->generation};
}

/* Drops what is known of a name, or of an object without names.  False: it has some. */
void tree_slot_release(struct tree *t, struct slot *s); /* its memory only */
void tree_evict_slot(struct tree *t, struct slot *s);
bool tree_evict_object(struct tree *t, struct object *o);

static inline uint64_t tree_higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- tree_store.c: what is kept; tree.c: what follows from it -------------------- */

/* The first and the next of all slots of a directory; `*bucket` is the walk's. */
struct slot *tree_slot_first(const struct directory_facts *d, size_t *bucket);
struct slot *tree_slot_next(const struct directory_facts *d, const struct slot *s, size_t *bucket);

/* False: they do not fit, and what is kept differs from them. */
bool tree_set_attributes(struct tree *t, struct object *o, const struct attributes *a);
struct attributes tree_attributes_of(const struct object *o);

/* Whatever was looked at before may have changed without a fact, and later what is in directories
 * whose watch was lost, too. */
void tree_lose(struct tree *t, uint64_t at);

/* There is no memory for a fact of that position. */
void tree_lose_fact(struct tree *t, uint64_t at);

/* A look at that position has an event when what it saw changes. */
bool tree_is_backed(const struct tree *t, const struct directory_facts *d, uint64_t at);

slab_ref *tree_kept_of(struct object *o);
void tree_object_release(struct tree *t, struct object *o); /* its memory only */

/* The slot's name leads no longer, or from now on, to the object. */
void tree_object_leave(struct slot *s);
void tree_object_join(struct slot *s, struct object *o);

/* Drops names that are not there, where the listing says so as well, and what was not used since
 * the last time while too much is known; a few each time. */
void tree_clean_names(struct tree *t, struct directory_facts *d);
void tree_sweep(struct tree *t, uint64_t now_ms);

/* Found or made; NULL: no memory. */
struct object *tree_object_make(struct tree *t, const struct object_id *id);

/* The directory with room for what is said of it; NULL: no memory. */
struct object *tree_directory_make(struct tree *t, const struct object_id *id);

/* What is known of a name without slot becomes a slot; NULL: no memory. */
struct slot *tree_slot_make(struct tree *t, struct object *in, const char *name);
