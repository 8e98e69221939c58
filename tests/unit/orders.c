#include "tests/unit/orders.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tests/unit/arena.h"
#include "tests/unit/seen.h"

enum { STEPS_MAX = 128, NUMBERS_MAX = 2048, POSITIONS_MAX = 256 };

static const struct orders *world;
static const void *config;
static struct step offered[ORDERS_DEPTH_MAX][STEPS_MAX];
static struct step *list;
static int offered_count;
static struct step path[ORDERS_DEPTH_MAX];
static int depth;
static const char *broken;

void orders_offer(struct step step)
{
	assert(offered_count < STEPS_MAX);
	list[offered_count++] = step;
}

void orders_fail(const char *what)
{
	if (!broken)
		broken = what;
}

static void list_steps(int level)
{
	list = offered[level];
	offered_count = 0;
	world->offer();
}

static void start(void)
{
	broken = NULL;
	world->start(config);
}

static void stop(void)
{
	if (world->stop)
		world->stop();
}

/* ---- Failures ------------------------------------------------------------------------ */

static bool is_offered(const struct step *step)
{
	for (int i = 0; i < offered_count; i++)
		if (memcmp(&list[i], step, sizeof(*step)) == 0)
			return true;
	return false;
}

static void make_step(const struct step *step)
{
	path[depth++] = *step;
	world->step(step);
	world->check();
}

/* Runs those of the steps that are possible, and keeps them. */
static void run_again(const struct step *steps, int count)
{
	start();
	depth = 0;
	for (int i = 0; i < count && !broken; i++) {
		list_steps(0);
		if (is_offered(&steps[i]))
			make_step(&steps[i]);
	}
}

/* Leaves out what the failure does not need.  The world has stopped, and stops again. */
static void shorten(void)
{
	static struct step shortest[ORDERS_DEPTH_MAX], tried[ORDERS_DEPTH_MAX];
	const char *failure = broken;
	int count = depth;

	memcpy(shortest, path, sizeof(path));
	for (int i = count - 1; i >= 0; i--) {
		memcpy(tried, shortest, sizeof(tried));
		memmove(&tried[i], &tried[i + 1], (size_t)(count - i - 1) * sizeof(tried[0]));
		run_again(tried, count - 1);
		stop();
		if (!broken)
			continue;
		failure = broken;
		count = depth;
		memcpy(shortest, path, sizeof(path));
		i = i > count ? count : i;
	}
	/* Once more, for who looks with a debugger. */
	run_again(shortest, count);
	broken = failure;
	stop();
}

static void note_failure(const char *name, struct orders_result *result)
{
	size_t size = 0;

	snprintf(result->failure, sizeof(result->failure), "%s: %s", name, broken);
	for (int i = 0; i < depth && size + 200 < sizeof(result->steps); i++) {
		size += (size_t)snprintf(result->steps + size, 3, "  ");
		size += (size_t)world->describe(
			result->steps + size, sizeof(result->steps) - size - 2, &path[i]);
		size += (size_t)snprintf(result->steps + size, 2, "\n");
	}
}

/* ---- Random orders ------------------------------------------------------------------- */

uint64_t orders_mixed(uint64_t number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
	number = (number ^ number >> 27) * 0x94d049bb133111eb;
	return number ^ number >> 31;
}

void orders_run_random(const struct orders *orders, const void *of, const char *name, uint64_t seed,
	struct orders_result *result)
{
	uint64_t random = seed << 20;

	world = orders;
	config = of;
	start();
	for (depth = 0; !broken;) {
		list_steps(0);
		if (offered_count == 0)
			break;
		if (depth == ORDERS_DEPTH_MAX) {
			broken = "it never comes to rest";
			note_failure(name, result);
			stop();
			return;
		}
		make_step(&list[orders_mixed(++random) % (uint64_t)offered_count]);
	}
	result->states += (uint64_t)depth;
	stop();
	if (!broken)
		return;
	shorten();
	note_failure(name, result);
}

/* ---- Hashes of states ---------------------------------------------------------------- */

static uint64_t positions[POSITIONS_MAX], numbers[NUMBERS_MAX];
static int position_count, number_count;
static bool is_ranked; /* the positions are known; numbers are written */

void orders_put(uint64_t number)
{
	if (!is_ranked)
		return;
	assert(number_count < NUMBERS_MAX);
	numbers[number_count++] = number;
}

void orders_put_at(uint64_t at)
{
	int low = 0, high = position_count;

	while (low < high) {
		int middle = (low + high) / 2;

		if (positions[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	if (is_ranked) {
		orders_put((uint64_t)low);
		return;
	}
	if (low < position_count && positions[low] == at)
		return;
	assert(position_count < POSITIONS_MAX);
	memmove(&positions[low + 1], &positions[low],
		(size_t)(position_count - low) * sizeof(positions[0]));
	positions[low] = at;
	position_count++;
}

static uint64_t state_hash(void)
{
	position_count = number_count = 0;
	is_ranked = false;
	orders_put_at(0);
	world->put();
	is_ranked = true;
	world->put();
	return XXH3_64bits(numbers, (size_t)number_count * sizeof(numbers[0]));
}

/* ---- All orders ---------------------------------------------------------------------- */

static struct saved {
	_Alignas(16) uint8_t state[16384];
	struct arena arena;
} saved[ORDERS_DEPTH_MAX];

static void save(struct saved *to)
{
	memcpy(to->state, world->state, world->state_size);
	arena_copy(&to->arena, &arena);
}

static void restore(const struct saved *from)
{
	memcpy(world->state, from->state, world->state_size);
	arena_copy(&arena, &from->arena);
}

/* From the state that the world is in; it is left in another. */
static void run_all(int level, uint64_t states_max, struct orders_result *result)
{
	int count;

	assert(level < ORDERS_DEPTH_MAX);
	list_steps(level);
	count = offered_count;
	if (count > 1)
		save(&saved[level]);
	for (int i = 0; i < count && !broken; i++) {
		if (result->states >= states_max) {
			result->is_complete = false;
			return;
		}
		if (i > 0)
			restore(&saved[level]);
		depth = level;
		make_step(&offered[level][i]);
		if (!broken && seen_add(state_hash())) {
			result->states++;
			run_all(level + 1, states_max, result);
		}
	}
}

void orders_run_all(const struct orders *orders, const void *of, const char *name,
	uint64_t states_max, struct orders_result *result)
{
	world = orders;
	config = of;
	assert(world->state_size <= sizeof(saved[0].state));
	memset(result, 0, sizeof(*result));
	result->is_complete = true;
	arena_begin();
	start();
	run_all(0, states_max, result);
	arena_end();
	if (broken)
		note_failure(name, result);
	seen_clear();
}
