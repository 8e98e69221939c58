#include "ops/support/buffer.h"

#include "tests/check.h"

static void test_append_past_the_limit_changes_nothing(void)
{
	cleanup_buffer struct buffer b = {.limit_bytes = 4};

	CHECK_RC(0, buffer_append_string(&b, "abc"));
	CHECK_RC(-EMSGSIZE, buffer_append_string(&b, "de"));
	CHECK_RC(3, b.size);
}

static void test_consume_keeps_the_rest(void)
{
	cleanup_buffer struct buffer b = {0};

	CHECK_RC(0, buffer_printf(&b, "%s-%d", "abc", 7));
	buffer_consume(&b, 2);
	CHECK(b.size == 3 && memcmp(b.data, "c-7", 3) == 0);
	buffer_consume(&b, 99);
	CHECK_RC(0, b.size);
}

static void test_stolen_string_is_terminated(void)
{
	cleanup_buffer struct buffer b = {0};
	char *string;

	CHECK_RC(0, buffer_append(&b, "xyz", 3));
	string = buffer_steal_string(&b);
	CHECK_STRING("xyz", string);
	CHECK(b.data == NULL);
	free(string);
}

TEST_MAIN("buffer", TEST(test_append_past_the_limit_changes_nothing),
	TEST(test_consume_keeps_the_rest), TEST(test_stolen_string_is_terminated))
