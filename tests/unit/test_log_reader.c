#include "fs/log_reader.h"
#include "fs/log_view.h"
#include "fs/mount_log.h"
#include "tests/check.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/remove_tree.h"

static char directory[64];

static struct mount_log *new_log(uint64_t limit_bytes)
{
	struct mount_log *log = NULL;

	strcpy(directory, "/tmp/isthmus-test-reader-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, mount_log_open(directory,
			    &(struct mount_log_options){.limit_bytes = limit_bytes}, &log));
	return log;
}

static void remove_log(struct mount_log *log)
{
	mount_log_close(log);
	remove_tree(directory);
}

static void fill(struct mount_log *log, int records)
{
	for (int i = 0; i < records; i++) {
		const struct log_record one = {
			.op = "write", .flags = LOG_IS_MUTATION, .path = "a/b", .pid = getpid()};

		mount_log_record(log, &one);
		if (i % 20 == 19)
			mount_log_flush(log);
	}
	mount_log_flush(log);
}

/* Reads to the end; returns how many records came, each the successor of `*last`. */
static int read_on(struct log_reader *reader, uint64_t *last)
{
	size_t length;
	int r, count = 0;
	char *line;

	while ((r = log_reader_next(reader, &line, &length)) > 0) {
		uint64_t seq;

		CHECK_RC(strlen(line), length);
		if (sscanf(line, "{\"seq\":%" SCNu64, &seq) != 1)
			continue;
		CHECK_RC(*last + 1, seq);
		*last = seq;
		count++;
	}
	CHECK_RC(0, r);
	return count;
}

static void test_all_segments_are_read_in_order(void)
{
	struct mount_log *log = new_log(512 << 10);
	struct log_reader *reader = NULL;
	uint64_t last = 0;

	fill(log, 2000);
	CHECK_RC(0, log_reader_open(directory, &reader));
	CHECK_RC(2000, read_on(reader, &last));
	CHECK_RC(0, read_on(reader, &last));
	log_reader_close(reader);
	remove_log(log);
}

static void test_rotation_is_followed(void)
{
	struct mount_log *log = new_log(512 << 10);
	struct log_reader *reader = NULL;
	uint64_t last = 0;

	CHECK_RC(0, log_reader_open(directory, &reader));
	for (int i = 0; i < 20; i++) {
		fill(log, 100);
		CHECK_RC(100, read_on(reader, &last));
	}
	/* Several rotations between two looks. */
	fill(log, 1500);
	CHECK_RC(1500, read_on(reader, &last));
	log_reader_close(reader);
	remove_log(log);
}

static void test_a_reader_that_is_too_slow_goes_on_with_what_is_there(void)
{
	struct mount_log *log = new_log(64 << 10);
	struct log_reader *reader = NULL;
	uint64_t last = 0;
	size_t length;
	char *line;
	int r;

	fill(log, 20);
	CHECK_RC(0, log_reader_open(directory, &reader));
	CHECK_RC(20, read_on(reader, &last));
	fill(log, 3000);
	while ((r = log_reader_next(reader, &line, &length)) > 0)
		sscanf(line, "{\"seq\":%" SCNu64, &last);
	CHECK_RC(0, r);
	CHECK_RC(3020, last);
	log_reader_close(reader);
	remove_log(log);
}

static void test_waiting_ends_with_the_next_line(void)
{
	struct mount_log *log = new_log(0);
	struct log_reader *reader = NULL;
	uint64_t last = 0;

	CHECK_RC(0, log_reader_open(directory, &reader));
	CHECK_RC(0, log_reader_wait(reader));
	CHECK_RC(0, read_on(reader, &last));
	fill(log, 1);
	CHECK_RC(0, log_reader_wait(reader));
	CHECK_RC(1, read_on(reader, &last));
	log_reader_close(reader);
	remove_log(log);
}

static void test_no_log_is_an_error(void)
{
	struct log_reader *reader = NULL;

	strcpy(directory, "/tmp/isthmus-test-reader-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(-ENOENT, log_reader_open(directory, &reader));
	CHECK_RC(0, rmdir(directory));
	CHECK_RC(-ENOENT, log_reader_open(directory, &reader));
}

static bool matches(const struct log_filter *filter, const char *line)
{
	cJSON *record = NULL;
	bool match = log_filter_match(filter, line, strlen(line), &record);

	cJSON_Delete(record);
	return match;
}

static void test_filters(void)
{
	static const char line[] =
		"{\"seq\":7,\"op\":\"rename\",\"path\":\"src/a.c\",\"path2\":\"b.h\",\"pid\":12,"
		"\"call\":\"c1\",\"latency_us\":500,\"result\":\"EXDEV\"}";
	static const char good[] = "{\"seq\":8,\"op\":\"read\",\"path\":\"\\\"result\\\":0\","
				   "\"latency_us\":1,\"result\":0}";
	static const char hostile[] = "{\"seq\":9,\"op\":\"read\",\"path\":\"\\\"result\\\":0\","
				      "\"latency_us\":1,\"result\":\"EIO\"}";
	static const char bytes[] = "{\"seq\":9,\"op\":\"read\",\"path\":\"\xef\xbf\xbd\","
				    "\"path_hex\":\"ff\",\"latency_us\":1,\"result\":0}";

	CHECK(matches(&(struct log_filter){0}, line));
	CHECK(!matches(&(struct log_filter){0}, "{\"op\":\"seal\",\"last_seq\":7}"));
	CHECK(!matches(&(struct log_filter){0}, "{\"seq\":7,"));
	CHECK(matches(&(struct log_filter){.ops = "read,rename"}, line));
	CHECK(!matches(&(struct log_filter){.ops = "read,renam,ename"}, line));
	CHECK(matches(&(struct log_filter){.glob = "*.c"}, line));
	CHECK(matches(&(struct log_filter){.glob = "b.?"}, line));
	CHECK(!matches(&(struct log_filter){.glob = "a.c"}, line));
	CHECK(matches(&(struct log_filter){.glob = "\xff"}, bytes));
	CHECK(matches(&(struct log_filter){.pid = 12}, line));
	CHECK(!matches(&(struct log_filter){.pid = 1}, line));
	CHECK(matches(&(struct log_filter){.call = "c1"}, line));
	CHECK(!matches(&(struct log_filter){.call = "c"}, line));
	CHECK(matches(&(struct log_filter){.slow_us = 500}, line));
	CHECK(!matches(&(struct log_filter){.slow_us = 501}, line));
	CHECK(matches(&(struct log_filter){.errors = true}, line));
	CHECK(!matches(&(struct log_filter){.errors = true}, good));
	CHECK(matches(&(struct log_filter){.errors = true}, hostile));
}

TEST_MAIN("log reader", TEST(test_all_segments_are_read_in_order), TEST(test_rotation_is_followed),
	TEST(test_a_reader_that_is_too_slow_goes_on_with_what_is_there),
	TEST(test_waiting_ends_with_the_next_line), TEST(test_no_log_is_an_error),
	TEST(test_filters))
