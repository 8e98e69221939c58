/*
 * tests/unit/tree_world.h - a workspace, its helper, and the way from it, all played: around the
 * real ops/cache/tree.c, in every order or in random ones.
 *
 * The world advances in steps, each of which happens at once; between any two of them anything
 * else may happen.  What is played, and what is not, is in ops/cache/COHERENCE.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How often each may happen in one schedule. */
enum budget {
	B_CHANGE,     /* others make or remove a name */
	B_RENAME,     /* others rename, over what is there, or exchange */
	B_LINK,       /* others link */
	B_WRITE,      /* others write */
	B_DROP,       /* an event of that is lost */
	B_UNWATCH,    /* the helper loses a watch */
	B_SESSION,    /* the connection is lost, and the helper */
	B_LOOKUP,     /* the daemon asks for a name */
	B_OWN,        /* we make or remove a name */
	B_OWN_RENAME, /* rename or exchange */
	B_OWN_LINK,
	B_OWN_WRITE,
	B_FAIL,  /* an own change is made, and its reply does not arrive in time */
	B_LIST,  /* the daemon lists a directory */
	B_WATCH, /* has it watched */
	B_GETATTR,
	B_READ, /* reads a file's content */
	B_EVICT,
	B_MEMORY, /* there is none while a frame is applied */
	B_COUNT
};

struct world_case {
	const char *name;
	uint8_t directories, names; /* 1 or 2 */
	bool is_cold;               /* nothing is known but the root; else all is */
	uint8_t budgets[B_COUNT];
};

/* The first ones are small enough for all orders, the last ones are everything at once. */
enum { WORLD_CASES = 34, WORLD_SMALL = 17, WORLD_LARGE = 2 };
extern const struct world_case world_cases[WORLD_CASES];

/* Mistakes of the others around the tree, which must be found too. */
enum world_mistake {
	MISTAKE_NONE,
	MISTAKE_NUMBER_AFTER_LOOK,    /* the helper draws the position after the look */
	MISTAKE_NUMBER_BEFORE_CHANGE, /* ... of an own change before it is made */
	MISTAKE_NO_MOVE_SELF,         /* a directory's own move has no event */
	MISTAKE_NO_PARENT_LOOK,       /* a name's event does not look at the directory */
	MISTAKE_LOSS_TOO_EARLY,       /* LOSS is numbered before the last event that was lost */
	MISTAKE_WATCH_TOO_EARLY,      /* a watch may end before the position of the look at it */
	MISTAKE_SESSION_COUNTS_FROM_1,
	MISTAKE_COUNT
};

extern enum world_mistake world_mistake;
extern const char *const world_mistakes[MISTAKE_COUNT];

struct world_result {
	uint64_t states, at_rest, valid_names, valid_attributes;
	char failure[256]; /* empty: none */
	char steps[8192];  /* that led to it */
	bool is_complete;  /* every order was run */
};

/* Runs all orders of a case, at most so many states. */
void world_run_all(const struct world_case *c, uint64_t states_max, struct world_result *ret);

/* Runs the random schedule of that seed, of some case, and adds to the result. */
void world_run_random(uint64_t seed, struct world_result *result);
