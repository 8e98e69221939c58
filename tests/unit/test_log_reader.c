#include "fs/commands/log_reader.h"
#include "fs/commands/log_view.h"
#include "fs/log/mount_log.h"
#include "tests/check.h"
#include "tests/no_memory.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/log_segment.h"
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
	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
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

	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
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
	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
	CHECK_RC(20, read_on(reader, &last));
	fill(log, 3000);
	while ((r = log_reader_next(reader, &line, &length)) > 0)
		sscanf(line, "{\"seq\":%" SCNu64, &last);
	CHECK_RC(0, r);
	CHECK_RC(3020, last);
	log_reader_close(reader);
	remove_log(log);
}

/* How far to go back, and what was seen on the way. */
struct back {
	uint64_t to; /* the number of the record to stop at; 0: none */
	enum log_visit wish;
	uint64_t last; /* the number that was seen last; each is one less than the one before */
	int count;
};

static enum log_visit visit(void *user, const char *line, size_t length)
{
	struct back *back = user;
	uint64_t seq;

	CHECK_RC(strlen(line), length);
	if (sscanf(line, "{\"seq\":%" SCNu64, &seq) != 1)
		return LOG_GO_BACK;
	CHECK(!back->last || seq == back->last - 1);
	back->last = seq;
	back->count++;
	return seq == back->to ? back->wish : LOG_GO_BACK;
}

static void check_back(uint64_t to, enum log_visit wish, int want_seen, int want_read)
{
	struct back back = {.to = to, .wish = wish};
	struct log_reader *reader = NULL;
	uint64_t last = 2000 - (uint64_t)want_read;

	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
	CHECK_RC(0, log_reader_go_back(reader, visit, &back));
	CHECK_RC(want_seen, back.count);
	CHECK_RC(want_read, read_on(reader, &last));
	CHECK_RC(2000, last);
	log_reader_close(reader);
}

static void test_going_back_ends_where_it_is_wanted(void)
{
	struct mount_log *log = new_log(512 << 10);

	fill(log, 2000);
	check_back(2000, LOG_BEGIN_HERE, 1, 1);
	check_back(2000, LOG_BEGIN_AFTER, 1, 0);
	check_back(1991, LOG_BEGIN_HERE, 10, 10);
	check_back(1991, LOG_BEGIN_AFTER, 10, 9);
	check_back(3, LOG_BEGIN_HERE, 1998, 1998); /* several segments before */
	check_back(1, LOG_BEGIN_HERE, 2000, 2000);
	check_back(0, LOG_GO_BACK, 2000, 2000);
	remove_log(log);
}

/* A line of more than one chunk, and one that is on its way still. */
static void test_going_back_passes_long_and_unfinished_lines(void)
{
	static const char unfinished[] = "{\"seq\":3,\"op\":\"wri";
	struct mount_log *log = new_log(8 << 20);
	struct back back = {.to = 1, .wish = LOG_BEGIN_HERE};
	struct log_reader *reader = NULL;
	struct log_record record = {.op = "exec", .flags = LOG_IS_MUTATION, .pid = getpid()};
	const char **names = calloc(8193, sizeof(*names));
	cleanup_file FILE *file = NULL;
	uint64_t last = 0;

	for (int i = 0; i < 8192; i++)
		names[i] = "a/path/that/changed/while/a/command/ran/of/sixty/bytes/or/so";
	record.changed = names;
	mount_log_record(log, &record);
	mount_log_record(log, &(struct log_record){.op = "write", .flags = LOG_IS_MUTATION});
	mount_log_flush(log);
	file = fopen(mount_log_path(log), "ae");
	CHECK(file && fputs(unfinished, file) > 0 && fflush(file) == 0);
	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
	CHECK_RC(0, log_reader_go_back(reader, visit, &back));
	CHECK_RC(2, back.count);
	CHECK_RC(2, read_on(reader, &last));
	log_reader_close(reader);
	free(names);
	remove_log(log);
}

static void test_waiting_ends_with_the_next_line(void)
{
	struct mount_log *log = new_log(0);
	struct log_reader *reader = NULL;
	uint64_t last = 0;

	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
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
	CHECK_RC(-ENOENT, log_reader_open(directory, LOG_ALL_RING, &reader));
	CHECK_RC(0, rmdir(directory));
	CHECK_RC(-ENOENT, log_reader_open(directory, LOG_ALL_RING, &reader));
}

static bool matches(const struct log_filter *filter, const char *line)
{
	cJSON *record = NULL;
	int r = log_filter_match(filter, line, strlen(line), &record);

	cJSON_Delete(record);
	CHECK(r >= 0);
	return r > 0;
}

static void test_no_memory_is_not_taken_for_no_match(void)
{
	static const char bytes[] = "{\"seq\":9,\"op\":\"read\",\"path\":\"\xef\xbf\xbd\","
				    "\"path_hex\":\"ff\",\"latency_us\":1,\"result\":0}";
	const struct log_filter filter = {.glob = "\xff"};
	cJSON *record = NULL;

	memory_ends_after(0);
	CHECK_RC(-ENOMEM, log_filter_match(&filter, bytes, strlen(bytes), &record));
	memory_is_back();
	CHECK(!record);
	CHECK(matches(&filter, bytes));
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

static void test_misses_are_no_errors(void)
{
	static const char miss[] = "{\"seq\":1,\"op\":\"lookup\",\"result\":\"ENOENT\"}";
	static const char no_attribute[] = "{\"seq\":1,\"op\":\"getxattr\",\"result\":\"ENODATA\"}";
	static const char failed[] = "{\"seq\":1,\"op\":\"lookup\",\"result\":\"EACCES\"}";
	static const char gone[] = "{\"seq\":1,\"op\":\"rename\",\"result\":\"ENOENT\"}";
	const struct log_filter errors = {.errors = true};

	CHECK(!matches(&errors, miss));
	CHECK(!matches(&errors, no_attribute));
	CHECK(matches(&errors, failed));
	CHECK(matches(&errors, gone));
	CHECK(matches(&(struct log_filter){0}, miss));
}

static void test_times_bound_what_is_shown(void)
{
	static const char line[] = "{\"seq\":7,\"time\":\"2026-11-23T10:28:12.500000Z\","
				   "\"op\":\"exec\",\"latency_us\":60000000,\"result\":0}";
	struct log_filter filter = {0};

	CHECK(log_parse_time("2026-11-23T10:28:12Z", filter.since));
	CHECK_STRING("2026-11-23T10:28:12.000000Z", filter.since);
	CHECK(matches(&filter, line));
	CHECK(log_parse_time("2026-11-23T10:28:13Z", filter.since));
	CHECK(!matches(&filter, line));
	CHECK(!log_filter_is_past(&filter, line));
	/* It ended, and was written, a minute later. */
	CHECK(log_parse_time("2026-11-23T10:29:12Z", filter.since));
	CHECK(!log_filter_is_past(&filter, line));
	CHECK(log_parse_time("2026-11-23T11:00Z", filter.since));
	CHECK(log_filter_is_past(&filter, line));
	*filter.since = '\0';
	CHECK(log_parse_time("2026-11-23T10:28:13Z", filter.until));
	CHECK(matches(&filter, line));
	CHECK(log_parse_time("2026-11-23T10:28:12Z", filter.until));
	CHECK(!matches(&filter, line));
	CHECK(!matches(&filter, "{\"seq\":7,\"op\":\"exec\"}"));
}

static void test_times_are_read_as_people_write_them(void)
{
	char time[LOG_TIME_BYTES];

	setenv("TZ", "UTC-2", 1); /* two hours east */
	tzset();
	CHECK(log_parse_time("2026-11-23 10:28:12", time));
	CHECK_STRING("2026-11-23T08:28:12.000000Z", time);
	CHECK(log_parse_time("2026-11-23T10:28", time));
	CHECK_STRING("2026-11-23T08:28:00.000000Z", time);
	CHECK(log_parse_time("2026-11-23", time));
	CHECK_STRING("2026-11-22T22:00:00.000000Z", time);
	CHECK(log_parse_time("10:28", time));
	CHECK(strstr(time, "T08:28:00.000000Z") != NULL);
	CHECK(!log_parse_time("", time));
	CHECK(!log_parse_time("yesterday", time));
	CHECK(!log_parse_time("2026-11-23 10:28 x", time));
	CHECK(!log_parse_time("10m", time));
}

/* Every second record is a change, and those are kept longer than all others. */
static struct mount_log *new_log_with_old_changes(void)
{
	struct mount_log *log = new_log(64 << 10);

	for (int i = 1; i <= 2000; i++) {
		const struct log_record one = {.op = i % 2 ? "getattr" : "write",
			.flags = i % 2 ? 0 : LOG_IS_MUTATION,
			.path = "a/b",
			.pid = getpid()};

		mount_log_record(log, &one);
		if (i % 20 == 19)
			mount_log_flush(log);
	}
	mount_log_flush(log);
	return log;
}

static void check_order(const uint64_t *numbers, int count)
{
	bool all = false; /* from the first that is not a change on */

	CHECK(count > 1000 && count < 2000);
	CHECK_RC(2, numbers[0]);
	CHECK_RC(2000, numbers[count - 1]);
	for (int i = 1; i < count; i++) {
		all |= numbers[i] % 2;
		CHECK_RC(numbers[i - 1] + (all ? 1 : 2), numbers[i]);
	}
}

static void test_old_changes_come_before_all_that_is_left(void)
{
	struct mount_log *log = new_log_with_old_changes();
	struct log_reader *reader = NULL;
	static uint64_t numbers[2001];
	size_t length;
	int count = 0;
	char *line;

	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
	while (count <= 2000 && log_reader_next(reader, &line, &length) > 0)
		count += sscanf(line, "{\"seq\":%" SCNu64, &numbers[count]) == 1;
	check_order(numbers, count);
	log_reader_close(reader);
	remove_log(log);
}

struct collected {
	uint64_t numbers[2001];
	int count;
};

static enum log_visit collect(void *user, const char *line, size_t length)
{
	struct collected *collected = user;
	uint64_t seq;

	(void)length;
	if (sscanf(line, "{\"seq\":%" SCNu64, &seq) == 1 && collected->count <= 2000)
		collected->numbers[2000 - collected->count++] = seq;
	return LOG_GO_BACK;
}

static void test_going_back_passes_into_old_changes(void)
{
	struct mount_log *log = new_log_with_old_changes();
	struct log_reader *reader = NULL;
	static struct collected collected;

	CHECK_RC(0, log_reader_open(directory, LOG_ALL_RING, &reader));
	CHECK_RC(0, log_reader_go_back(reader, collect, &collected));
	check_order(collected.numbers + 2001 - collected.count, collected.count);
	log_reader_close(reader);
	remove_log(log);
}

TEST_MAIN("log reader", TEST(test_old_changes_come_before_all_that_is_left),
	TEST(test_going_back_passes_into_old_changes), TEST(test_all_segments_are_read_in_order),
	TEST(test_rotation_is_followed),
	TEST(test_a_reader_that_is_too_slow_goes_on_with_what_is_there),
	TEST(test_going_back_ends_where_it_is_wanted),
	TEST(test_going_back_passes_long_and_unfinished_lines), TEST(test_misses_are_no_errors),
	TEST(test_times_bound_what_is_shown), TEST(test_times_are_read_as_people_write_them),
	TEST(test_waiting_ends_with_the_next_line), TEST(test_no_log_is_an_error),
	TEST(test_filters), TEST(test_no_memory_is_not_taken_for_no_match))
