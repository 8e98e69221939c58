/*
 * ops/tree_internal.h - the tree's own structures, for the tree and its tests.
 */
#pragma once

#include <sys/queue.h>

#include "ops/support/hash_table.h"
#include "ops/tree.h"

/*
 * The rules, by their names in ops/COHERENCE.md.  A test builds the tree once more so that it can
 * switch each of them off in turn, and must find out.
 */
#define TREE_RULES(X)   \
	X(HIGHEST_WINS) \
	X(KEEP_UNKNOWN) \
	X(LOSS)         \
	X(LOST_WATCH)   \
	X(NO_MEMORY)    \
	X(BACKED)       \
	X(WATCH_ORDER)  \
	X(WATCH_DOUBT)  \
	X(EVICTED)      \
	X(EVICT_LISTED) \
	X(EVICT_HELD)   \
	X(ONE_NAME)     \
	X(ALL_LINKS)    \
	X(SAME_TICK)    \
	X(FORGET)       \
	X(CERTAIN)      \
	X(REPEAT)       \
	X(OWN_AGREES)   \
	X(OWN_MOVED)    \
	X(OWN_MIXED)    \
	X(OWN_WAITS)    \
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

enum { FORGET_REPEAT_MS = 1000 };

/* What the kernel was given when it was given nothing. */
static const uint64_t GIVEN_NONE = UINT64_MAX;

enum forget_kind { FORGET_NO, FORGET_DOUBT, FORGET_CERTAIN };
enum forget_queue { QUEUE_NONE, QUEUE_FORGETS, QUEUE_REPEATS };

/* A name in a directory, whether something is there or not. */
struct slot {
	TAILQ_ENTRY(slot) queue;
	struct object *in;    /* the directory */
	struct object *of;    /* what the look at `at` found; NULL: nothing */
	struct slot *next;    /* in the bucket */
	struct slot *next_of; /* of the object */
	uint64_t at;          /* position of the look */
	uint64_t looked_ms;
	uint64_t given;    /* number of the object that the kernel was last given; 0: nothing is
			    * there; GIVEN_NONE: it has no entry */
	uint64_t given_ms; /* when */
	uint64_t due_ms;   /* in the queue of repeats */
	uint32_t hash;
	uint16_t own;            /* changes of our own under way */
	uint8_t wanted : 2;      /* enum forget_kind */
	uint8_t queued : 2;      /* enum forget_queue */
	uint8_t taken : 1;       /* the kernel is being notified */
	uint8_t given_since : 1; /* ... and was given something meanwhile */
	uint8_t mixed : 1;       /* the kernel may hold something else than `given` */
	uint8_t held : 1;        /* the kernel may use `of` without asking */
	uint8_t unknown : 1;     /* ask */
	uint8_t used : 1;        /* since the sweep last passed */
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
	bool on;
};

struct object {
	struct attributes attributes; /* what the look at `at` found; mode 0: there was none yet */
	uint64_t at;
	uint64_t looked_ms;
	uint64_t state;                    /* see tree_state() */
	uint64_t number;                   /* unique in the tree, from 1 on */
	struct object *next;               /* in the bucket */
	struct slot *slots;                /* all whose `of` it is */
	struct directory_facts *directory; /* of a directory of which something was said */
	void *kept;                        /* the caller's */
	uint8_t mark;                      /* the caller's, of this state */
	bool unknown;                      /* ask for the attributes */
	bool is_directory;
	bool used; /* since the sweep last passed */
};

TAILQ_HEAD(slot_queue, slot);

struct tree {
	struct tree_options options;
	struct hash_table objects; /* by id */
	uint64_t numbers, states;  /* of objects, and of their states; given out so far */
	uint64_t highest;          /* position of all facts applied */
	uint64_t lost_at;          /* what was looked at before is not backed */
	uint64_t evicted_at;       /* highest position of the objects that were dropped */
	uint64_t command_ms;
	uint64_t links_ms; /* attributes of files with several links are as old at least */
	size_t names, name_bytes, directories;
	size_t sweep_hand, clean_hand; /* the buckets that were swept last */
	uint64_t mark_at, mark_ms;     /* `highest`, and when */
	uint64_t settled_at;           /* nothing from before is on its way any more */
	struct slot_queue forgets, repeats;
};

struct object *tree_object(const struct tree *t, const struct object_id *id); /* or NULL */
struct slot *tree_slot(const struct object *directory, const char *name);     /* or NULL */

/* Drops what is known of a name, or of an object without names.  False: the kernel holds it, or it
 * is needed. */
bool tree_evict_slot(struct tree *t, struct slot *s);
bool tree_evict_object(struct tree *t, struct object *o);

/* Found or made; NULL: no memory.  tree_slot_make(): only where there is none. */
struct object *tree_directory_make(struct tree *t, const struct object_id *id);
struct slot *tree_slot_make(struct tree *t, struct object *in, const char *name);

/* Of what was looked at there at that position. */
enum tree_validity tree_validity_at(const struct tree *t, const struct directory_facts *d,
	uint64_t at, uint64_t looked_ms, uint64_t now_ms);

/* ---- tree_kernel.c -------------------------------------------------------------------------- */

/* The kernel is to be notified.  It may be using what it was given until that is done. */
void tree_forget_slot(struct tree *t, struct slot *s, enum forget_kind kind);
bool tree_is_forgetting(const struct slot *s);
void tree_queue_leave(struct tree *t, struct slot *s);

/* The slot of a name that a change of our own is about no more; NULL: no memory. */
struct slot *tree_own_end(struct tree *t, const struct object_id *directory, const char *name);
