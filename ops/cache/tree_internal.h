/*
 * ops/cache/tree_internal.h - the tree's own structures, for the tree and its tests.
 */
#pragma once

#include "ops/support/hash_table.h"
#include "ops/cache/tree.h"

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
	struct object *in;    /* the directory */
	struct object *of;    /* what the look at `at` found; NULL: nothing */
	struct slot *next;    /* in the bucket */
	struct slot *next_of; /* of the object */
	uint64_t at;          /* position of the look */
	uint64_t looked_ms : 40;
	uint64_t unknown : 1; /* ask */
	uint64_t used : 1;    /* since the sweep last passed */
	uint32_t hash;
	char name[];
};

struct directory_facts {
	struct hash_table slots;
	uint64_t watch_seen; /* position of the fact that says so: */
	uint64_t watch_at;   /* looks from here on have an event when what they saw changes */
	uint64_t listed_at;  /* names without slot were absent at that look; 0: ask */
	uint64_t listed_ms;
	uint64_t evicted_at; /* highest position of the slots that were dropped */
	size_t hand;         /* the bucket that was cleaned last */
	void *kept;          /* the caller's, with the directory */
	bool on;
};

/* From 1697 to 2242. */
struct short_time {
	int64_t seconds : 34;
	uint64_t ns : 30;
};

/* Every known file has one, with its attributes in as few bytes as most of them fit in. */
struct object {
	struct object_id id;
	uint64_t size_or_rdev; /* of a device: its number; it has no size */
	struct short_time atime, mtime, ctime;
	uint32_t blocks, block_size_bytes;
	uint32_t nlink, uid, gid;
	uint32_t state; /* see tree_state(); comes again after 4 billion changes in the workspace */
	uint64_t at;    /* position of the look that found the attributes */
	uint64_t looked_ms : 40;
	uint64_t mode : 16;          /* 0: there was no look yet */
	uint64_t mark : 3;           /* the caller's, of this state */
	uint64_t changed_lately : 1; /* as in struct attributes */
	uint64_t unknown : 1;        /* ask for the attributes */
	uint64_t is_directory : 1;
	uint64_t has_facts : 1;
	uint64_t used : 1;   /* since the sweep last passed */
	struct object *next; /* in the bucket */
	struct slot *slots;  /* all whose `of` it is */
	union {
		void *kept;                    /* the caller's; with has_facts: theirs */
		struct directory_facts *facts; /* with has_facts: see tree_facts() */
	};
};

struct tree {
	struct tree_options options;
	struct hash_table objects; /* by id */
	uint32_t states;           /* of objects; given out so far */
	uint64_t highest;          /* position of all facts applied */
	uint64_t lost_at;          /* what was looked at before is not backed */
	uint64_t evicted_at;       /* highest position of the objects that were dropped */
	uint64_t command_ms;
	uint64_t links_ms; /* attributes of files with several links are as old at least */
	size_t names;
	size_t sweep_hand, clean_hand; /* the buckets that were swept last */
	uint64_t mark_at, mark_ms;     /* `highest`, and when */
	uint64_t settled_at;           /* nothing from before is on its way any more */
};

struct object *tree_object(const struct tree *t, const struct object_id *id); /* or NULL */
struct slot *tree_slot(const struct object *directory, const char *name);     /* or NULL */

/* What was said of it as a directory; NULL: nothing. */
static inline struct directory_facts *tree_facts(const struct object *o)
{
	return o->has_facts ? o->facts : NULL;
}

/* Drops what is known of a name, or of an object without names.  False: it has some. */
void tree_evict_slot(struct tree *t, struct slot *s);
bool tree_evict_object(struct tree *t, struct object *o);
