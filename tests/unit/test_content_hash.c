#include "fs/edge/content_hash.h"

#include <fcntl.h>

#include "backends/open.h"
#include "ops/workspace.h"
#include "tests/check.h"

static struct workspace *w;
static struct op_context ctx;

static struct open_file *new_file(const char *path)
{
	struct attributes attributes;
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_create(&ctx, w, path, O_RDWR, 0644, &file, &attributes));
	return file;
}

/* Writes to the file and to the hash. */
static void put(struct content_hash *hash, struct open_file *file, const char *text, off_t offset)
{
	CHECK_RC(strlen(text), workspace_write(&ctx, file, text, strlen(text), offset));
	content_hash_write(hash, text, strlen(text), offset);
}

/* Both have the same content: one is hashed on the way, the other by reading. */
static void test_both_ways_give_the_same_hash(void)
{
	struct open_file *straight = new_file("straight"), *crooked = new_file("crooked");
	struct content_hash *on_the_way = content_hash_new(true),
			    *by_reading = content_hash_new(true);
	uint8_t one[CONTENT_HASH_BYTES], other[CONTENT_HASH_BYTES];
	struct attributes attributes;

	put(on_the_way, straight, "hello ", 0);
	put(on_the_way, straight, "world", 6);
	put(by_reading, crooked, "world", 6);
	put(by_reading, crooked, "hello ", 0);
	CHECK(content_hash_end(on_the_way, &ctx, straight, true, one, &attributes));
	CHECK(content_hash_end(by_reading, &ctx, crooked, true, other, &attributes));
	CHECK(memcmp(one, other, sizeof(one)) == 0);
	CHECK(content_hash_end(on_the_way, &ctx, straight, false, other, &attributes));
	CHECK(memcmp(one, other, sizeof(one)) == 0);
	CHECK(!content_hash_end(by_reading, &ctx, crooked, false, other, &attributes));
	content_hash_free(on_the_way);
	content_hash_free(by_reading);
	workspace_close(&ctx, straight);
	workspace_close(&ctx, crooked);
}

static void test_what_was_not_written_has_no_hash(void)
{
	struct open_file *file = new_file("unwritten");
	struct content_hash *hash = content_hash_new(true);
	uint8_t digest[CONTENT_HASH_BYTES];
	struct attributes attributes;

	CHECK(!content_hash_end(hash, &ctx, file, true, digest, &attributes));
	CHECK(!content_hash_end(NULL, &ctx, file, true, digest, &attributes));
	content_hash_free(hash);
	workspace_close(&ctx, file);
}

static const struct test_case cases[] = {
	TEST(test_both_ways_give_the_same_hash), TEST(test_what_was_not_written_has_no_hash)};

int main(void)
{
	char *reason;
	int status;

	op_context_init(&ctx);
	if (workspace_open("mem:", NULL, &w, &reason) < 0)
		return 2;
	status = test_run("content_hash", cases, sizeof(cases) / sizeof(cases[0]));
	workspace_free(w);
	return status;
}
