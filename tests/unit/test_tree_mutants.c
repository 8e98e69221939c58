/*
 * Each rule of the tree is switched off in turn, and each mistake made around it: the played world
 * (tree_world.h) must find out.
 */
#include "ops/cache/tree_internal.h"
#include "tests/check.h"
#include "tests/unit/tree_world.h"

enum { STATES_MAX = 20000, SCHEDULES_FIRST = 10000, SCHEDULES = 500000 };

static struct world_result result;

static void check_is_found(const char *what)
{
	uint64_t seed = 0;

	memset(&result, 0, sizeof(result));
	/* Most are found soon. */
	while (!result.failure[0] && seed < SCHEDULES_FIRST)
		world_run_random(++seed, &result);
	for (int i = 0; i < WORLD_SMALL && !result.failure[0]; i++)
		world_run_all(&world_cases[i], STATES_MAX, &result);
	while (!result.failure[0] && seed < SCHEDULES)
		world_run_random(++seed, &result);
	printf("%s: %s (%llu)\n", what, result.failure[0] ? result.failure : "NOT FOUND",
		(unsigned long long)seed);
	fflush(stdout);
	CHECK(result.failure[0]);
}

static void test_each_rule_is_needed(void)
{
	static const char *const rules[] = {
#define X(name) #name,
		TREE_RULES(X)
#undef X
	};

	for (int rule = 0; rule < RULE_COUNT; rule++) {
		tree_rule_off = (enum tree_rule)rule;
		check_is_found(rules[rule]);
	}
	tree_rule_off = RULE_COUNT;
}

static void test_each_mistake_around_the_tree_is_found(void)
{
	for (int mistake = 1; mistake < MISTAKE_COUNT; mistake++) {
		world_mistake = (enum world_mistake)mistake;
		check_is_found(world_mistakes[mistake]);
	}
	world_mistake = MISTAKE_NONE;
}

TEST_MAIN("tree mutants", TEST(test_each_rule_is_needed),
	TEST(test_each_mistake_around_the_tree_is_found))
