#include <fcntl.h>

#include "backends/backend.h"
#include "ops/forward.h"
#include "ops/support/literals.h"
#include "ops/workspace.h"
#include "ops/workspace_scan.h"
#include "tests/check.h"

/* Reads of it end early, as they do in front of a bad sector. */
static struct forward cut;
static size_t readable_bytes;

static ssize_t read_cut(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	size_t left = (size_t)offset < readable_bytes ? readable_bytes - (size_t)offset : 0;

	return forward_read(ctx, file, data, size < left ? size : left, offset);
}

static struct op_context context;

static void put(const char *path, const char *content, size_t size)
{
	struct workspace *w = &cut.workspace;
	struct attributes attributes;
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_create(&context, w, path, O_RDWR, 0644, &file, &attributes));
	CHECK_RC((ssize_t)size, workspace_write(&context, file, content, size, 0));
	CHECK_RC(0, workspace_close(&context, file));
}

/* A letter for each of the files 0, 1 and 2. */
static int note(void *user, const struct dir_entry *entry)
{
	char *told = user;

	if (entry->lacks_texts || entry->lines)
		told[*entry->path - '0'] = entry->lines ? 'L' : '-';
	return 0;
}

static const char *told_when(size_t readable)
{
	static char told[4];
	const struct literal_text text = {(const uint8_t *)"pin", 3};
	struct scan_request request = {.flags = SCAN_NOT_IGNORED, .wants_lines = true};
	struct literals *literals = NULL;

	readable_bytes = readable;
	strcpy(told, "...");
	CHECK_RC(0, literals_new(&text, 1, false, &literals));
	request.texts = literals;
	CHECK_RC(0, workspace_scan_by_walking(
			    &context, &cut.workspace, &OBJECT_AT(""), &request, note, told));
	literals_free(literals);
	return told;
}

static void test_what_was_not_read_to_its_end_is_not_known(void)
{
	struct workspace *inner = NULL;
	char *reason = NULL;

	op_context_init(&context);
	CHECK_RC(0, scheme_open("mem", "", NULL, &inner, &reason));
	forward_init(&cut, inner, &forward_ops);
	cut.ops.read = read_cut;
	put("0", "pin\nb\nc\nd\ne\nf\ng\n", 16);
	put("1", "a\nb\nc\nd\ne\nf\ng\nh\n", 16);
	put("2", "a\n\0b\nc\nd\ne\nf\ng\nh\n", 16);
	CHECK_STRING("L--", told_when(16));
	CHECK_STRING("..-", told_when(8));
	CHECK_STRING("...", told_when(0));
	workspace_free(inner);
}

TEST_MAIN("search", TEST(test_what_was_not_read_to_its_end_is_not_known))
