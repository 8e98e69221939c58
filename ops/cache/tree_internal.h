/*
 * ops/cache/tree_internal.h - structures of the tree, for tree*.c and its tests.
 */
#pragma once

#include "ops/cache/tree.h"
#include "ops/support/file_kinds.h"
#include "ops/support/slab_table.h"

/*
 * The rules, by their names in ops/cache/COHERENCE.md.  test_tree_mutants builds the tree with
 * TREE_MUTANTS, switches each rule off in turn, and fails if no check notices.
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

/* A name in a directory, present or absent. */
struct slot {
	slab_ref in;          /* the directory */
	slab_ref of;          /* the object that the look at `at` found; 0: absent */
	slab_ref next;        /* in the bucket of directory_facts.slots */
	slab_ref next_of;     /* in object.slots */
	uint64_t at : 62;     /* position of the look */
	uint64_t unknown : 1; /* invalidated: ask the workspace */
	uint64_t used : 1;    /* since the last sweep of this slot */
	uint64_t looked_ms : 40;
	uint64_t hash : 24;
	char name[];
};

struct directory_facts {
	struct slab_table slots;
	uint64_t watch_seen; /* position of the latest fact about the watch (`on`, `watch_at`) */
	uint64_t watch_at;   /* changes of what was looked at after this position have an event */
	uint64_t listed_at;  /* names without slot were absent at this position; 0: ask */
	uint64_t listed_ms;
	uint64_t evicted_at; /* highest position of the slots that were dropped */
	size_t hand;         /* the bucket that tree_clean_names() last cleaned */
	slab_ref kept;       /* tree_keep() of the directory */
	bool on;             /* watched */
};

/* A time from 1697 to 2242. */
struct short_time {
	int64_t seconds : 34;
	uint64_t ns : 30;
};

/* A known file or directory.  The tree has one for each, so its attributes are packed: those of
 * most files fit, see tree_set_attributes(). */
struct object {
	uint64_t inode, generation; /* the id, together with the device in `kind` */
	uint64_t size_or_rdev;      /* device files: the device number; they have no size */
	struct short_time atime, mtime, ctime;
	uint64_t at : 62;     /* position of the look that found the attributes */
	uint64_t unknown : 1; /* attributes invalidated: ask the workspace */
	uint64_t used : 1;    /* since the last sweep of this object */
	uint64_t looked_ms : 40;
	uint64_t mark : 3;           /* tree_set_mark() for this state */
	uint64_t changed_lately : 1; /* as in struct attributes ... */
	uint64_t is_generated : 1;   /* ... likewise */
	uint64_t is_directory : 1;
	uint64_t has_facts : 1;
	uint32_t blocks;
	uint32_t state; /* tree_state(); wraps around after 4 billion changes in the workspace */
	slab_ref kind;  /* mode 0: no look has found the object yet */
	slab_ref next;  /* in the bucket of tree.objects */
	slab_ref slots; /* its known names: the slots with `of` == this object */
	slab_ref kept;  /* with has_facts: its directory_facts, else the data of tree_keep() */
};

struct tree {
	struct tree_options options;
	struct slab slab;          /* of struct object, struct slot and struct directory_facts */
	struct file_kinds kinds;   /* device, mode, owner and links of objects, shared */
	struct slab_table objects; /* by id */
	uint32_t states;           /* last number given to an object.state */
	uint64_t highest;          /* highest position of all facts so far */
	uint64_t lost_at;          /* looks below this position are not backed */
	uint64_t evicted_at;       /* highest position of the objects that were dropped */
	uint64_t expired_ms; /* tree_expire_unwatched(): older looks at unwatched names are stale */
	uint64_t links_at;   /* attributes of files with several links are stale up to here */
	size_t names;
	size_t sweep_hand, clean_hand; /* the buckets of `objects` that were last swept, cleaned */
	uint64_t mark_at, mark_ms;     /* an earlier value of `highest`, and its time */
	uint64_t settled_at;           /* no fact below this position can still arrive */
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

/* NULL: no fact was learnt about it as a directory. */
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

/* Frees the memory of a slot; nothing else changes. */
void tree_slot_release(struct tree *t, struct slot *s);

/* Drop what is known about a name, or about an object, and record the position in `evicted_at`.
 * False: the object still has a name, or names in it. */
void tree_evict_slot(struct tree *t, struct slot *s);
bool tree_evict_object(struct tree *t, struct object *o);

static inline uint64_t tree_higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- tree_store.c stores facts; tree.c derives validity from them ---------------------------- */

/* Iterate over all slots of a directory; `*bucket` is the state of the walk. */
struct slot *tree_slot_first(const struct directory_facts *d, size_t *bucket);
struct slot *tree_slot_next(const struct directory_facts *d, const struct slot *s, size_t *bucket);

/* False: the attributes do not fit into the object, so that the stored ones differ from them. */
bool tree_set_attributes(struct tree *t, struct object *o, const struct attributes *a);
struct attributes tree_attributes_of(const struct object *o);

/* Events up to position `at` were lost: no look below it is backed, nor later looks at directories
 * whose watch may have been lost too. */
void tree_lose(struct tree *t, uint64_t at);

/* A fact at position `at` could not be stored for lack of memory. */
void tree_lose_fact(struct tree *t, uint64_t at);

/* Whether the feed reports a change of what was looked at in the directory at position `at`. */
bool tree_is_backed(const struct tree *t, const struct directory_facts *d, uint64_t at);

slab_ref *tree_kept_of(struct object *o);

/* Frees the memory of an object; nothing else changes. */
void tree_object_release(struct tree *t, struct object *o);

/* Take the slot out of its object's list of names, and put it into the list of another object. */
void tree_object_leave(struct slot *s);
void tree_object_join(struct slot *s, struct object *o);

/* Each call checks a few buckets.  tree_clean_names() drops absent names that the listing implies
 * anyway; tree_sweep() drops facts that were not used since its last pass, while the tree has more
 * than options.facts_max. */
void tree_clean_names(struct tree *t, struct directory_facts *d);
void tree_sweep(struct tree *t, uint64_t now_ms);

/* Finds the object, or creates it without attributes.  NULL: no memory. */
struct object *tree_object_make(struct tree *t, const struct object_id *id);

/* The same, with directory_facts.  NULL: no memory. */
struct object *tree_directory_make(struct tree *t, const struct object_id *id);

/* Creates the slot of a name; it says what the directory's listing says about the name.  NULL: no
 * memory. */
struct slot *tree_slot_make(struct tree *t, struct object *in, const char *name);
