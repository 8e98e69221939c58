/*
 * The tree in a played world (tree_world.h): all orders of small cases, then random schedules of
 * larger ones.
 *
 *   TREE_SECONDS=N  random schedules for so long, from a random seed on, and nothing else
 *   TREE_SEED=N     the first seed; a failure prints its own
 */
#include <time.h>

#include "tests/check.h"
#include "tests/unit/seen.h"
#include "tests/unit/tree_world.h"

#ifdef IS_SANITIZED
enum { STATES_MAX = 2000, SCHEDULES = 20000, IS_SLOW = 1 };
#else
enum { STATES_MAX = 1500000, SCHEDULES = 1000000, IS_SLOW = 0 };
#endif

static struct world_result result;

static void report(void)
{
	if (result.failure[0])
		fprintf(stderr, "%s, after these steps:\n%s", result.failure, result.steps);
}

static void test_all_orders_of_small_cases_are_right(void)
{
	for (int i = 0; i < WORLD_SMALL; i++) {
		world_run_all(&world_cases[i], STATES_MAX, &result);
		report();
		CHECK(!result.failure[0]);
		CHECK(result.is_complete || IS_SLOW);
		CHECK(result.at_rest > 0 && result.valid_attributes > 0);
		printf("%s: %llu states\n", world_cases[i].name, (unsigned long long)result.states);
	}
}

static void test_random_schedules_are_right(void)
{
	const char *seconds = getenv("TREE_SECONDS"), *first = getenv("TREE_SEED");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : 0);
	uint64_t seed = seconds ? (uint64_t)time(NULL) << 32 : 1, count = 0;

	memset(&result, 0, sizeof(result));
	if (first)
		seed = strtoull(first, NULL, 10);
	while (!result.failure[0] && (seconds ? time(NULL) < end : count < SCHEDULES)) {
		world_run_random(seed++, &result);
		count++;
	}
	report();
	if (!CHECK(!result.failure[0]))
		fprintf(stderr, "TREE_SEED=%llu\n", (unsigned long long)seed - 1);
	/* The tree may not be right by asking always. */
	CHECK(result.valid_names > result.at_rest / 2);
	CHECK(result.valid_attributes > result.at_rest / 2);
	printf("%llu schedules, %llu states\n", (unsigned long long)count,
		(unsigned long long)result.states);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_random_schedules_are_right),
		TEST(test_all_orders_of_small_cases_are_right),
	};

	return test_run("tree orders", cases, getenv("TREE_SECONDS") ? 1 : 2);
}
