#include "fs/edge/foreign.h"
#include "tests/check.h"

#include <stdlib.h>

static void test_own_changes_are_not_reported(void)
{
	struct foreign *foreign = calloc(1, sizeof(*foreign));
	const struct object_id id = {.device = 1, .inode = 2}, other = {.device = 1, .inode = 3};

	foreign_own(foreign, "a", &id, 10000);
	CHECK_RC(FOREIGN_NOT, foreign_judge(foreign, "a", NULL, 10001));
	CHECK_RC(FOREIGN_NOT, foreign_judge(foreign, "a", &other, 14999));
	CHECK_RC(FOREIGN_NOT, foreign_judge(foreign, "another name of it", &id, 14999));
	CHECK_RC(FOREIGN_PATH, foreign_judge(foreign, "b", &other, 10001));
	CHECK_RC(FOREIGN_PATH, foreign_judge(foreign, "a", &id, 15000));
	free(foreign);
}

static void test_a_path_is_reported_once_in_a_while(void)
{
	struct foreign *foreign = calloc(1, sizeof(*foreign));

	CHECK_RC(FOREIGN_PATH, foreign_judge(foreign, "a", NULL, 10000));
	CHECK_RC(FOREIGN_NOT, foreign_judge(foreign, "a", NULL, 10999));
	CHECK_RC(FOREIGN_PATH, foreign_judge(foreign, "a", NULL, 11000));
	free(foreign);
}

static void test_a_storm_is_reported_as_one(void)
{
	struct foreign *foreign = calloc(1, sizeof(*foreign));
	int paths = 0, many = 0;
	char path[16];

	for (int i = 0; i < 10000; i++) {
		enum foreign_verdict verdict;

		snprintf(path, sizeof(path), "%d", i);
		verdict = foreign_judge(foreign, path, NULL, 20000);
		paths += verdict == FOREIGN_PATH;
		many += verdict == FOREIGN_MANY;
	}
	CHECK_RC(FOREIGN_MAX, paths);
	CHECK_RC(1, many);
	CHECK_RC(FOREIGN_PATH, foreign_judge(foreign, "later", NULL, 21000));
	free(foreign);
}

/* As many as a checkout changes. */
static void test_many_own_changes_are_remembered(void)
{
	struct foreign *foreign = calloc(1, sizeof(*foreign));
	int forgotten = 0;
	char path[16];

	for (int i = 0; i < 10000; i++) {
		snprintf(path, sizeof(path), "%d", i);
		foreign_own(foreign, path, NULL, 10000);
	}
	for (int i = 0; i < 10000; i++) {
		snprintf(path, sizeof(path), "%d", i);
		forgotten += foreign_judge(foreign, path, NULL, 10100) != FOREIGN_NOT;
	}
	CHECK(forgotten < 100);
	free(foreign);
}

TEST_MAIN("foreign", TEST(test_own_changes_are_not_reported),
	TEST(test_a_path_is_reported_once_in_a_while), TEST(test_a_storm_is_reported_as_one),
	TEST(test_many_own_changes_are_remembered))
