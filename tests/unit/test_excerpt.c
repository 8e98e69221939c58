#include "ops/support/excerpt.h"

#include <errno.h>
#include <limits.h>

#include "ops/support/clock.h"
#include "tests/check.h"

static struct literals *literals_for(const char *a, const char *b)
{
	const struct literal_text texts[] = {
		{(const uint8_t *)a, strlen(a)}, {(const uint8_t *)b, strlen(b)}};
	struct literals *literals = NULL;

	CHECK_RC(0, literals_new(texts, 2, false, &literals));
	return literals;
}

static const char *made(const char *content, unsigned context, struct buffer *out)
{
	struct literals *texts = literals_for("needle", "pin");

	out->size = 0;
	CHECK_RC(0,
		excerpt_make(texts, context, (const uint8_t *)content, strlen(content), 1000, out));
	CHECK_RC(0, buffer_append(out, "", 1));
	literals_free(texts);
	return (const char *)out->data;
}

static void test_lines_that_have_a_text_are_told_with_their_numbers(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_STRING("", made("", 0, &out));
	CHECK_STRING("", made("a\nb\n", 3, &out));
	CHECK_STRING("1 9\na needle\n", made("a needle\nb", 0, &out));
	CHECK_STRING("2 5\npins\n4 4\nxpin", made("a\npins\nb\nxpin", 0, &out));
}

static void test_context_overlaps_and_ends_with_the_file(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_STRING("1 10\na\npin\nb\nc\n", made("a\npin\nb\nc\nd\n", 2, &out));
	CHECK_STRING("1 15\na\npin\nb\nneedle\n", made("a\npin\nb\nneedle\n", 1, &out));
	CHECK_STRING("1 6\npin\nb\n4 8\nd\nneedle", made("pin\nb\nc\nd\nneedle", 1, &out));
	CHECK_STRING("1 12\npin\nb\nneedle", made("pin\nb\nneedle", 1, &out));
}

/* Which took half a minute when each line walked over all the others. */
static void test_that_every_line_matches_costs_no_more(void)
{
	enum { LINES = 60000 };
	struct literals *texts = literals_for("n", "pin");
	struct buffer content cleanup_buffer = {0}, out cleanup_buffer = {0};
	const uint64_t started_ns = clock_now_ns();

	for (int i = 0; i < LINES; i++)
		buffer_append_string(&content, "n\n");
	CHECK_RC(0, excerpt_make(texts, UINT_MAX, content.data, content.size, SIZE_MAX / 2, &out));
	CHECK_RC((long long)strlen("1 120000\n") + 2 * LINES, (long long)out.size);
	CHECK(clock_now_ns() - started_ns < 2000000000);
	literals_free(texts);
}

static void test_more_than_is_wanted_is_refused(void)
{
	struct literals *texts = literals_for("needle", "pin");
	struct buffer out cleanup_buffer = {0};

	CHECK_RC(-E2BIG, excerpt_make(texts, 0, (const uint8_t *)"pin\n", 4, 7, &out));
	out.size = 0;
	CHECK_RC(0, excerpt_make(texts, 0, (const uint8_t *)"pin\n", 4, 8, &out));
	literals_free(texts);
}

static void test_what_is_malformed_is_the_end(void)
{
	static const char *const wrong[] = {"", "1", "1 ", "1 3", "1 3\n", "1 3\nab", "0 1\na",
		"1 0\n", "x 1\na", "1 -1\na", "1  1\na", "1 99999999999999999999\na",
		"18446744073709551617 1\na"};
	const uint8_t *at = (const uint8_t *)"12 2\na\n13 1\nb", *end = at + strlen((char *)at);
	struct excerpt_block block;

	CHECK(excerpt_next(&at, end, &block));
	CHECK(block.line == 12 && block.size == 2 && memcmp(block.bytes, "a\n", 2) == 0);
	CHECK(excerpt_next(&at, end, &block));
	CHECK(block.line == 13 && block.size == 1 && *block.bytes == 'b');
	CHECK(!excerpt_next(&at, end, &block));
	for (size_t i = 0; i < array_size(wrong); i++) {
		at = (const uint8_t *)wrong[i];
		CHECK(!excerpt_next(&at, at + strlen(wrong[i]), &block));
	}
}

TEST_MAIN("excerpt", TEST(test_lines_that_have_a_text_are_told_with_their_numbers),
	TEST(test_context_overlaps_and_ends_with_the_file),
	TEST(test_that_every_line_matches_costs_no_more), TEST(test_more_than_is_wanted_is_refused),
	TEST(test_what_is_malformed_is_the_end))
