/*
 * tests/unit/orders.h - runs a played world in all orders of its steps, or in a random one.
 *
 * The world advances in steps, each of which happens at once; between any two of them anything
 * else may happen.  All of its state is in the parts that it names, and in the arena, so that it
 * can be copied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORDERS_DEPTH_MAX = 200 };

struct step {
	uint8_t kind, a, b, c, d, e, f, g;
};

struct orders {
	void (*start)(const void *config); /* the first state */
	void (*stop)(void);                /* frees what is in no arena; or NULL */
	void (*offer)(void);               /* orders_offer() for each step that is possible */
	void (*step)(const struct step *step);
	void (*check)(void); /* after each step; orders_fail() */
	void (*put)(void);   /* the state, by orders_put() and orders_put_at() */
	/* Prints a step that was made, without its line's end. */
	int (*describe)(char *text, size_t size, const struct step *step);
	void *state;
	size_t state_size;
};

struct orders_result {
	uint64_t states;
	char failure[256]; /* empty: none */
	char steps[16384]; /* that led to it */
	bool is_complete;  /* every order was run */
};

void orders_offer(struct step step);
void orders_fail(const char *what); /* of one step the first one counts */

/* For hashes of states: equal ones have the same hash.  Of positions only the order counts. */
void orders_put(uint64_t number);
void orders_put_at(uint64_t at);

/* Runs all orders, at most so many states, and adds to the result. */
void orders_run_all(const struct orders *orders, const void *config, const char *name,
	uint64_t states_max, struct orders_result *result);

/* Runs the random order of that seed; what fails is shortened. */
void orders_run_random(const struct orders *orders, const void *config, const char *name,
	uint64_t seed, struct orders_result *result);

/* The finalizer of splitmix64. */
uint64_t orders_mixed(uint64_t number);
