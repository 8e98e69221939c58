#include "ops/support/visible.h"

#include "tests/check.h"

static const char *shown(struct buffer *out, const char *text, size_t size, unsigned flags)
{
	out->size = 0;
	CHECK_RC(0, visible_append(out, text, size, flags));
	CHECK_RC(0, buffer_append(out, "", 1));
	return (const char *)out->data;
}

#define CHECK_SHOWN(want, text, flags) \
	CHECK_STRING(want, shown(&out, text, sizeof(text) - 1, flags))

static void test_plain_text_stays(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_SHOWN("", "", 0);
	CHECK_SHOWN("a b\\c", "a b\\c", 0);
	CHECK_SHOWN("Grüße, 日本語 😀", "Grüße, 日本語 😀", 0);
}

static void test_what_cannot_be_seen_is_shown_as_bytes(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_SHOWN("\\x1b[2K\\x07\\x00\\x7f", "\x1b[2K\x07\0\x7f", 0);
	CHECK_SHOWN("\\xc2\\x9b", "\xc2\x9b", 0); /* CSI in 8 bits */
	CHECK_SHOWN("a\\xe2\\x80\\xae"
		    "b",
		"a\xe2\x80\xae"
		"b",
		0);                                                 /* right to left */
	CHECK_SHOWN("\\xe2\\x81\\xa6", "\xe2\x81\xa6", 0);          /* isolate */
	CHECK_SHOWN("\\xe2\\x80\\x8b", "\xe2\x80\x8b", 0);          /* zero width */
	CHECK_SHOWN("\\xef\\xbb\\xbf", "\xef\xbb\xbf", 0);          /* byte order mark */
	CHECK_SHOWN("\\xef\\xb8\\x8f", "\xef\xb8\x8f", 0);          /* variation selector */
	CHECK_SHOWN("\\xf3\\xa0\\x81\\x81", "\xf3\xa0\x81\x81", 0); /* tag letter */
	CHECK_SHOWN("\\xe3\\x85\\xa4", "\xe3\x85\xa4", 0);          /* Hangul filler */
	CHECK_SHOWN("\\xff\\xc3", "\xff\xc3", 0);                   /* not UTF-8 */
	CHECK_SHOWN("\\x0a\\x09\\x0d", "\n\t\r", 0);
}

static void test_lines_stay_where_they_are_wanted(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_SHOWN("a\tb\nc\n\\x0dd", "a\tb\r\nc\n\rd", VISIBLE_LINES);
	CHECK_SHOWN("a\n    b", "a\nb", VISIBLE_INDENT);
}

static void test_long_runs_of_blanks_are_counted(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_SHOWN("a               b", "a               b", VISIBLE_BLANKS);
	CHECK_SHOWN("a[16 blanks]b", "a                b", VISIBLE_BLANKS);
	/* Whatever they are made of. */
	CHECK_SHOWN("a[16 blanks]b",
		"a       \xc2\xa0       \xe3\x80\x80"
		"b",
		VISIBLE_BLANKS);
	CHECK_SHOWN("ls[5 blanks]\n    rm", "ls\n\n \n\nrm", VISIBLE_BLANKS | VISIBLE_INDENT);
	CHECK_SHOWN("a\n    \n    b", "a\n\nb", VISIBLE_BLANKS | VISIBLE_INDENT);
}

static void test_json_stays_json(void)
{
	struct buffer out cleanup_buffer = {0};

	CHECK_SHOWN("{\n\t\"a\": \"\\u202e\\u007f\\udb40\\udc41\"}\n",
		"{\n\t\"a\": \"\xe2\x80\xae\x7f\xf3\xa0\x81\x81\"}\n", VISIBLE_JSON);
}

/* Cut at each byte, the pieces show what the whole does. */
static void test_a_stream_may_be_cut_anywhere(void)
{
	static const char text[] = "a\r\nb\xe2\x80\xae\xf0\x9f\x98\x80\rc\xc3\xbc\xff";
	size_t size = sizeof(text) - 1;

	for (size_t cut = 0; cut <= size; cut++) {
		struct visible_stream stream = {0};
		char *memory = NULL;
		size_t length = 0;
		FILE *file = open_memstream(&memory, &length);

		visible_stream_print(&stream, file, text, cut, false);
		visible_stream_print(&stream, file, text + cut, size - cut, false);
		visible_stream_print(&stream, file, "", 0, true);
		fclose(file);
		CHECK_STRING("a\nb\\xe2\\x80\\xae\xf0\x9f\x98\x80\\x0dc\xc3\xbc\\xff", memory);
		free(memory);
	}
}

TEST_MAIN("visible", TEST(test_plain_text_stays), TEST(test_what_cannot_be_seen_is_shown_as_bytes),
	TEST(test_lines_stay_where_they_are_wanted), TEST(test_long_runs_of_blanks_are_counted),
	TEST(test_json_stays_json), TEST(test_a_stream_may_be_cut_anywhere))
