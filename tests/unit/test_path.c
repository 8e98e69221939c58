#include "ops/support/path.h"

#include "ops/support/cleanup.h"
#include "tests/check.h"

static void test_normal_paths_are_recognised(void)
{
	CHECK(path_is_normal(""));
	CHECK(path_is_normal("a/b/.c"));
	CHECK(!path_is_normal("/a"));
	CHECK(!path_is_normal("a/"));
	CHECK(!path_is_normal("a//b"));
	CHECK(!path_is_normal("a/./b"));
	CHECK(!path_is_normal("../b"));
	CHECK(path_is_normal("..."));
}

static void test_normalise_resolves_dots_as_text(void)
{
	cleanup_free char *path = NULL;

	CHECK_RC(0, path_normalise("/a//./b/../c/", &path));
	CHECK_STRING("a/c", path);
}

static void test_normalise_refuses_to_leave_the_root(void)
{
	char *path = NULL;

	CHECK_RC(-EINVAL, path_normalise("a/../../b", &path));
	CHECK(path == NULL);
}

static void test_normalise_refuses_a_name_of_256_bytes(void)
{
	char name[257];
	char *path = NULL;

	memset(name, 'n', 256);
	name[256] = '\0';
	CHECK_RC(-ENAMETOOLONG, path_normalise(name, &path));
	name[255] = '\0';
	CHECK_RC(0, path_normalise(name, &path));
	free(path);
}

static void test_join_of_the_root_is_the_name(void)
{
	cleanup_free char *below_root = path_join("", "a");
	cleanup_free char *below = path_join("a/b", "c");
	cleanup_free char *itself = path_join("a/b", "");

	CHECK_STRING("a", below_root);
	CHECK_STRING("a/b/c", below);
	CHECK_STRING("a/b", itself);
}

static void test_within_respects_component_borders(void)
{
	CHECK(path_is_within("a/b", "a"));
	CHECK(path_is_within("a", "a"));
	CHECK(path_is_within("a", ""));
	CHECK(!path_is_within("ab", "a"));
}

TEST_MAIN("path", TEST(test_normal_paths_are_recognised),
	TEST(test_normalise_resolves_dots_as_text), TEST(test_normalise_refuses_to_leave_the_root),
	TEST(test_normalise_refuses_a_name_of_256_bytes), TEST(test_join_of_the_root_is_the_name),
	TEST(test_within_respects_component_borders))
