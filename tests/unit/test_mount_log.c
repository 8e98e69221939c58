#include "fs/log/mount_log.h"
#include "tests/check.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/log.h"
#include "ops/support/log_segment.h"
#include "tests/own_mounts.h"
#include "tests/remove_tree.h"
#include "tests/rename_without_flags.h"

/* ---- A private log directory ------------------------------------------------- */

static char directory[64];

static void remove_directory(void)
{
	remove_tree(directory);
}

static struct mount_log *open_log(uint64_t limit_bytes)
{
	struct mount_log *log = NULL;

	CHECK_RC(0, mount_log_open(directory,
			    &(struct mount_log_options){.limit_bytes = limit_bytes}, &log));
	return log;
}

static struct mount_log *new_log(uint64_t limit_bytes)
{
	strcpy(directory, "/tmp/isthmus-test-log-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	return open_log(limit_bytes);
}

static int verify(struct log_verify_report *ret_report)
{
	return log_verify(directory, &(struct log_verify_means){0}, ret_report);
}

static char *read_segment(const char *name)
{
	char path[128];
	struct buffer text = {0};
	cleanup_file FILE *file = NULL;
	char chunk[4096];
	size_t got;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	while (file && (got = fread(chunk, 1, sizeof(chunk), file)) > 0)
		buffer_append(&text, chunk, got);
	return buffer_steal_string(&text);
}

static void write_segment(const char *name, const char *text, size_t size)
{
	char path[128];
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "we");
	CHECK(file && fwrite(text, 1, size, file) == size);
}

static uint64_t record(struct mount_log *log, const char *op, const char *path, unsigned flags)
{
	const struct log_record one = {
		.op = op,
		.flags = flags,
		.path = path,
		.pid = getpid(),
		.start_ns = 1795302360123456789u,
		.latency_us = 7,
	};

	return mount_log_record(log, &one);
}

/* The line with this sequence number, parsed; the caller deletes it. */
static cJSON *line_of(struct mount_log *log, uint64_t seq)
{
	cleanup_free char *text = NULL;
	char start[48];
	const char *line;

	mount_log_flush(log);
	text = read_segment(LOG_CURRENT_NAME);
	snprintf(start, sizeof(start), "{\"seq\":%llu,", (unsigned long long)seq);
	line = text ? strstr(text, start) : NULL;
	return line ? cJSON_ParseWithOpts(line, NULL, 0) : NULL;
}

static const char *text_of(const cJSON *line, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, key));
}

static double number_of(const cJSON *line, const char *key)
{
	return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(line, key));
}

/* ---- Lines ------------------------------------------------------------------- */

static void test_every_field_reaches_the_line(void)
{
	struct mount_log *log = new_log(0);
	static const char *const changed[] = {"out.o", "bad\xff", NULL};
	const struct log_record full = {
		.op = "exec",
		.flags = LOG_IS_MUTATION | LOG_HAS_RANGE | LOG_HAS_HASH | LOG_HAS_EXIT |
			 LOG_FROM_CACHE | LOG_HAS_HASH_BEFORE,
		.path = "a",
		.path2 = "b",
		.pid = getpid(),
		.uid = 12,
		.call_id = "call-9",
		.start_ns = 1795302360123456789u,
		.latency_us = 31,
		.result = -ENOENT,
		.offset = 4096,
		.bytes = 10,
		.round_trips = 2,
		.hash = {0xab, 0xcd},
		.hash_before = {0xef},
		.exit_code = 3,
		.detail = "make test",
		.changed = changed,
	};
	cJSON *line, *names;

	CHECK_RC(1, mount_log_record(log, &full));
	line = line_of(log, 1);
	CHECK_STRING("exec", text_of(line, "op"));
	CHECK_STRING("2026-11-21T23:06:00.123456Z", text_of(line, "time"));
	CHECK_STRING("a", text_of(line, "path"));
	CHECK_STRING("b", text_of(line, "path2"));
	CHECK_RC(getpid(), number_of(line, "pid"));
	CHECK_STRING("test_mount_log", text_of(line, "process"));
	CHECK_RC(12, number_of(line, "uid"));
	CHECK_STRING("call-9", text_of(line, "call"));
	CHECK_RC(31, number_of(line, "latency_us"));
	CHECK_STRING("ENOENT", text_of(line, "result"));
	CHECK_RC(4096, number_of(line, "offset"));
	CHECK_RC(10, number_of(line, "bytes"));
	CHECK_RC(2, number_of(line, "round_trips"));
	CHECK(cJSON_IsTrue(cJSON_GetObjectItem(line, "cached")));
	CHECK_STRING("abcd0000000000000000000000000000", text_of(line, "hash"));
	CHECK_STRING("ef000000000000000000000000000000", text_of(line, "hash_before"));
	CHECK_RC(3, number_of(line, "exit_code"));
	CHECK_STRING("make test", text_of(line, "detail"));
	names = cJSON_GetObjectItem(line, "changed");
	CHECK_RC(2, cJSON_GetArraySize(names));
	CHECK_STRING("out.o", cJSON_GetStringValue(cJSON_GetArrayItem(names, 0)));
	CHECK_STRING("626164ff", text_of(cJSON_GetArrayItem(names, 1), "hex"));
	cJSON_Delete(line);
	mount_log_close(log);
	remove_directory();
}

static void check_path(struct mount_log *log, const char *path, const char *want, const char *hex)
{
	uint64_t seq = record(log, "open", path, 0);
	cJSON *line = line_of(log, seq);

	CHECK_STRING(want, text_of(line, "path"));
	if (hex)
		CHECK_STRING(hex, text_of(line, "path_hex"));
	else
		CHECK(text_of(line, "path_hex") == NULL);
	cJSON_Delete(line);
}

static void test_any_bytes_of_a_path_are_kept(void)
{
	struct mount_log *log = new_log(0);

	check_path(log, "", "", NULL);
	check_path(log, "a \"quoted\" \\ name", "a \"quoted\" \\ name", NULL);
	check_path(log, "tab\tnewline\nbell\adel\x7f", "tab\tnewline\nbell\adel\x7f", NULL);
	check_path(log, "gr\xc3\xbc\xc3\x9f/\xe2\x82\xac/\xf0\x9f\x98\x80",
		"gr\xc3\xbc\xc3\x9f/\xe2\x82\xac/\xf0\x9f\x98\x80", NULL);
	check_path(log, "latin\xfc", "latin\xef\xbf\xbd", "6c6174696efc");
	check_path(log, "cut\xe2\x82", "cut\xef\xbf\xbd\xef\xbf\xbd", "637574e282");
	check_path(log, "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd", "c0af");
	check_path(log, "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "eda080");
	mount_log_close(log);
	remove_directory();
}

static void test_a_very_long_path_is_cut_and_says_so(void)
{
	struct mount_log *log = new_log(0);
	cleanup_free char *path = malloc(100001);
	cJSON *line;

	memset(path, '\xff', 100000);
	path[100000] = '\0';
	record(log, "open", path, 0);
	line = line_of(log, 1);
	CHECK(cJSON_IsTrue(cJSON_GetObjectItem(line, "cut")));
	CHECK_RC(2 * 65535, strlen(text_of(line, "path_hex") ? text_of(line, "path_hex") : ""));
	cJSON_Delete(line);
	mount_log_close(log);
	remove_directory();
}

static void test_no_log_is_fine(void)
{
	struct mount_log_stats stats;

	CHECK_RC(0, record(NULL, "open", "a", 0));
	CHECK_RC(0, mount_log_last_seq(NULL));
	CHECK(mount_log_callers(NULL) == NULL);
	mount_log_stats(NULL, &stats);
	CHECK_RC(0, stats.records);
	mount_log_flush(NULL);
	mount_log_close(NULL);
}

/* ---- Order, pressure, restarts ------------------------------------------------ */

static void test_numbers_go_on_after_a_restart(void)
{
	struct mount_log *log = new_log(0);
	struct log_verify_report report;

	CHECK_RC(1, record(log, "open", "a", 0));
	CHECK_RC(2, record(log, "open", "b", 0));
	mount_log_close(log);
	log = open_log(0);
	CHECK_RC(2, mount_log_last_seq(log));
	CHECK_RC(3, record(log, "open", "c", 0));
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(3, report.last_seq);
	CHECK_RC(1, report.segments);
	remove_directory();
}

static void test_a_killed_daemon_leaves_a_log_that_goes_on(void)
{
	struct mount_log *log = new_log(0);
	struct log_verify_report report;
	cleanup_free char *text = NULL;
	static const char torn[] = "{\"seq\":2,\"op\":\"op";
	char path[128];
	cleanup_file FILE *file = NULL;

	record(log, "open", "a", 0);
	mount_log_close(log);
	snprintf(path, sizeof(path), "%s/%s", directory, LOG_CURRENT_NAME);
	file = fopen(path, "ae");
	CHECK(file && fputs(torn, file) >= 0 && fflush(file) == 0);
	log = open_log(0);
	CHECK_RC(2, record(log, "open", "b", 0));
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(2, report.segments);
	CHECK_RC(1, report.gap_count); /* the lines without a seal */
	text = read_segment("log-00000001.jsonl");
	CHECK(text && strstr(text, torn) != NULL);
	remove_directory();
}

/* Removes the lines from the first that begins with `start` on. */
static void cut_log_at(const char *start)
{
	cleanup_free char *text = read_segment(LOG_CURRENT_NAME);
	char *line = text ? strstr(text, start) : NULL;

	CHECK(line != NULL);
	if (line)
		write_segment(LOG_CURRENT_NAME, text, (size_t)(line - text));
}

static void test_a_daemon_that_did_not_end_leaves_a_gap(void)
{
	struct mount_log *log = new_log(0);
	struct log_verify_report report;

	record(log, "open", "a", 0);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK(report.ended && report.gap_count == 0);
	cut_log_at(LOG_END_LINE);
	CHECK_RC(0, verify(&report));
	CHECK(!report.ended);
	log = open_log(0);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(1, report.gap_count);
	CHECK(strstr(report.gap, "was killed") != NULL);
	remove_directory();
}

static void test_only_one_daemon_writes_a_log(void)
{
	struct mount_log *log = new_log(0), *second = NULL;

	CHECK_RC(-EBUSY, mount_log_open(directory, NULL, &second));
	mount_log_close(log);
	remove_directory();
}

enum { FLOOD_THREADS = 4, FLOOD_RECORDS = 40000 };

static void *flood(void *user)
{
	static const char path[] = "a/rather/long/path/as/source/trees/have/them/file.c";

	for (int i = 0; i < FLOOD_RECORDS; i++)
		record(user, i % 2 ? "read" : "write", path, i % 2 ? 0 : LOG_IS_MUTATION);
	return NULL;
}

static int count_lines(const char *needle, int *ret_dropped)
{
	cleanup_free char *line = NULL;
	cleanup_file FILE *file = NULL;
	size_t capacity = 0;
	char path[128];
	int count = 0;

	snprintf(path, sizeof(path), "%s/%s", directory, LOG_CURRENT_NAME);
	file = fopen(path, "re");
	*ret_dropped = 0;
	while (file && getline(&line, &capacity, file) > 0) {
		count += strstr(line, needle) != NULL;
		if (strstr(line, "\"op\":\"dropped\""))
			*ret_dropped += atoi(strstr(line, "\"count\":") + strlen("\"count\":"));
	}
	return count;
}

static void test_a_flood_drops_no_mutation_and_counts_the_reads_it_drops(void)
{
	struct mount_log *log = new_log(1u << 30);
	struct mount_log_stats stats;
	struct log_verify_report report;
	pthread_t threads[FLOOD_THREADS];
	int writes, reads, dropped;

	for (int i = 0; i < FLOOD_THREADS; i++)
		pthread_create(&threads[i], NULL, flood, log);
	for (int i = 0; i < FLOOD_THREADS; i++)
		pthread_join(threads[i], NULL);
	mount_log_flush(log);
	mount_log_stats(log, &stats);
	mount_log_close(log);
	writes = count_lines("\"op\":\"write\"", &dropped);
	reads = count_lines("\"op\":\"read\"", &dropped);
	CHECK_RC(FLOOD_THREADS * FLOOD_RECORDS / 2, writes);
	CHECK_RC(FLOOD_THREADS * FLOOD_RECORDS / 2, reads + dropped);
	CHECK_RC(stats.dropped, dropped);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	remove_directory();
}

static void fill(struct mount_log *log, int records)
{
	for (int i = 0; i < records; i++) {
		record(log, "write", "some/file", LOG_IS_MUTATION);
		if (i % 20 == 19)
			mount_log_flush(log);
	}
	mount_log_flush(log);
}

static void test_rotation_keeps_the_log_within_its_bound(void)
{
	struct mount_log *log = new_log(64 << 10);
	struct log_verify_report report;
	struct stat attributes;
	struct log_segment_name *names = NULL;
	uint64_t total = 0;
	char path[384];

	fill(log, 2000);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK(report.oldest_gone);
	CHECK_RC(2000, report.last_seq);
	int fd = open(directory, O_RDONLY | O_CLOEXEC);
	int segments = log_segment_names(fd, LOG_ALL_RING, &names);
	for (int i = 0; i < segments; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i].name);
		CHECK_RC(0, stat(path, &attributes));
		CHECK_RC(0600, attributes.st_mode & 07777);
		total += (uint64_t)attributes.st_size;
	}
	CHECK(total <= (64 << 10) + (16 << 10));
	CHECK(report.segments >= 4);
	free(names);
	close(fd);
	remove_directory();
}

static void test_a_file_of_another_name_is_no_segment(void)
{
	static const char *const others[] = {"log-5.jsonl", "log--0000001.jsonl",
		"log- 0000001.jsonl", "log-000000001.jsonl", "log-00000001.json"};
	struct mount_log *log = new_log(0);
	struct log_verify_report report;

	mount_log_close(log);
	for (size_t i = 0; i < array_size(others); i++)
		write_segment(others[i], "x\n", 2);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(1, report.segments);
	remove_directory();
}

/* True when a segment of the ring has a record of this operation. */
static bool ring_has(const char *ring, const char *op)
{
	int fd = open(directory, O_RDONLY | O_CLOEXEC);
	struct log_segment_name *names = NULL;
	char wanted[32];
	bool found = false;

	snprintf(wanted, sizeof(wanted), "\"op\":\"%s\"", op);
	int segments = log_segment_names(fd, ring, &names);
	close(fd);
	for (int i = 0; i < segments; i++) {
		cleanup_free char *text = read_segment(names[i].name);

		found |= text && strstr(text, wanted);
	}
	free(names);
	return found;
}

static void test_reads_do_not_push_changes_out(void)
{
	struct mount_log *log = new_log(64 << 10);
	struct log_verify_report report;

	record(log, "exec", "", LOG_IS_MUTATION);
	for (int i = 0; i < 3000; i++) {
		record(log, "getattr", "some/file", 0);
		if (i % 20 == 19)
			mount_log_flush(log);
	}
	mount_log_close(log);
	CHECK(!ring_has(LOG_ALL_RING, "exec"));
	CHECK(ring_has(LOG_CHANGES_RING, "exec"));
	CHECK(!ring_has(LOG_CHANGES_RING, "getattr"));
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(0, report.gap_count);
	CHECK(report.oldest_gone);
	CHECK_RC(1, report.changes_first_seq);
	log = open_log(0);
	CHECK_RC(3001, mount_log_last_seq(log));
	mount_log_close(log);
	remove_directory();
}

static void test_changes_have_a_bound_of_their_own(void)
{
	const struct mount_log_options options = {.keep_bytes = 64 << 10};
	struct mount_log *log = new_log(0);
	struct log_verify_report report;

	mount_log_close(log);
	CHECK_RC(0, mount_log_open(directory, &options, &log));
	fill(log, 1000);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK(!report.oldest_gone);
	CHECK(report.changes_first_seq > 1);
	remove_directory();
}

static void test_verify_detects_what_is_wrong_with_the_changes(void)
{
	static const char good[] = "\"op\":\"write\"", bad[] = "\"op\":\"wrote\"";
	struct log_verify_report report;
	struct mount_log *log = new_log(0);
	cleanup_free char *text = NULL;
	char path[128];

	fill(log, 10);
	mount_log_close(log);
	text = read_segment(LOG_CHANGES_RING ".jsonl");
	write_segment(LOG_CHANGES_RING ".jsonl", text,
		(size_t)(strstr(text, "{\"op\":\"end\"") - text)); /* right behind a seal */
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK(strstr(report.gap, "changes.jsonl\" was cut off") != NULL);
	memcpy(strstr(text, good), bad, strlen(bad));
	write_segment(LOG_CHANGES_RING ".jsonl", text, strlen(text));
	CHECK_RC(0, verify(&report));
	CHECK(strstr(report.problem, "changes.jsonl\": line") != NULL);
	snprintf(path, sizeof(path), "%s/" LOG_CHANGES_RING ".jsonl", directory);
	CHECK_RC(0, unlink(path));
	CHECK_RC(0, verify(&report));
	CHECK(strstr(report.problem, "was deleted") != NULL);
	remove_directory();
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	CHECK_RC(0, setrlimit(RLIMIT_FSIZE, &limit));
}

static void test_what_cannot_be_written_is_counted_in_a_line(void)
{
	struct mount_log *log = new_log(0);
	struct log_verify_report report;
	struct mount_log_stats stats;
	cJSON *line;

	signal(SIGXFSZ, SIG_IGN);
	fill(log, 10);
	limit_file_size(2000);
	fill(log, 100);
	mount_log_stats(log, &stats);
	CHECK(stats.lost > 0 && stats.last_error == -EFBIG);
	limit_file_size(RLIM_INFINITY);
	CHECK_RC(111, record(log, "write", "after", LOG_IS_MUTATION));
	line = line_of(log, 111);
	CHECK_STRING("after", text_of(line, "path"));
	cJSON_Delete(line);
	line = line_of(log, 111 - stats.lost);
	CHECK_STRING("lost", text_of(line, "op"));
	CHECK_RC(stats.lost, number_of(line, "count"));
	CHECK_STRING("EFBIG", text_of(line, "result"));
	cJSON_Delete(line);
	mount_log_stats(log, &stats);
	CHECK_RC(0, stats.last_error);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK_RC(stats.lost, report.lost);
	CHECK(strstr(report.gap, "could not be written") != NULL);
	remove_directory();
}

static void record_one_more(struct mount_log *log)
{
	record(log, "write", "again", LOG_IS_MUTATION);
	mount_log_flush(log);
}

/* Waits, through as many batches as it takes, until the log says that its file was removed. */
static void wait_for_removed(struct mount_log *log, uint64_t times)
{
	struct mount_log_stats stats = {0};

	while (stats.removed < times) {
		record_one_more(log);
		mount_log_stats(log, &stats);
	}
	mount_log_flush(log);
}

static void check_it_went_on(struct mount_log *log, uint64_t first, uint64_t records)
{
	struct log_verify_report report;
	cleanup_free char *text = NULL;
	char count[32];

	record(log, "write", "last", LOG_IS_MUTATION);
	mount_log_flush(log);
	mount_log_close(log);
	text = read_segment(LOG_CURRENT_NAME);
	snprintf(count, sizeof(count), "\"count\":%llu", (unsigned long long)records);
	CHECK(text && strstr(text, "\"op\":\"removed\"") && strstr(text, count));
	CHECK(text && strstr(text, "\"path\":\"last\""));
	CHECK_RC(0, verify(&report));
	CHECK(strstr(report.problem, "somebody else deleted") != NULL);
	CHECK_RC(first, report.first_seq);
}

static void test_a_file_that_is_removed_while_it_is_written_is_begun_anew(void)
{
	struct mount_log *log = new_log(0);
	char path[128];

	fill(log, 10);
	snprintf(path, sizeof(path), "%s/" LOG_CURRENT_NAME, directory);
	CHECK_RC(0, unlink(path));
	wait_for_removed(log, 1);
	check_it_went_on(log, 11, 10);
	remove_directory();
}

static void test_a_directory_that_is_removed_while_it_is_written_is_made_anew(void)
{
	struct mount_log *log = new_log(0), *second = NULL;
	cleanup_free char *text = NULL;

	fill(log, 10);
	do
		remove_directory(); /* the log may begin anew between its file and the directory */
	while (access(directory, F_OK) == 0);
	wait_for_removed(log, 1);
	while (access(directory, F_OK) < 0)
		record_one_more(log);
	CHECK_RC(-EBUSY, mount_log_open(directory, NULL, &second));
	mount_log_close(log);
	text = read_segment(LOG_CURRENT_NAME);
	CHECK(text && strstr(text, "\"op\":\"removed\""));
	remove_directory();
}

static void test_a_file_in_the_place_of_the_log_is_kept_aside(void)
{
	struct mount_log *log = new_log(0);
	cleanup_free char *text = NULL;
	char path[128];

	fill(log, 10);
	snprintf(path, sizeof(path), "%s/" LOG_CURRENT_NAME, directory);
	CHECK_RC(0, unlink(path));
	write_segment(LOG_CURRENT_NAME, "mine\n", 5);
	wait_for_removed(log, 1);
	text = read_segment("foreign-log-00000001.jsonl");
	CHECK_STRING("mine\n", text);
	check_it_went_on(log, 11, 10);
	remove_directory();
}

/* Nothing is recorded meanwhile. */
static void test_a_removed_file_is_noticed_by_an_idle_log(void)
{
	struct mount_log *log = new_log(0);
	struct mount_log_stats stats = {0};
	char path[128];

	fill(log, 10);
	snprintf(path, sizeof(path), "%s/" LOG_CURRENT_NAME, directory);
	CHECK_RC(0, unlink(path));
	while (stats.removed == 0) {
		usleep(10000);
		mount_log_stats(log, &stats);
	}
	check_it_went_on(log, 11, 10);
	remove_directory();
}

static void test_a_required_log_refuses_while_it_cannot_be_written(void)
{
	const struct mount_log_options options = {.is_required = true};
	struct mount_log *log = NULL;

	log = new_log(0);
	mount_log_close(log);
	CHECK_RC(0, mount_log_open(directory, &options, &log));
	signal(SIGXFSZ, SIG_IGN);
	fill(log, 10);
	CHECK(!mount_log_refuses(log));
	limit_file_size(1);
	fill(log, 10);
	CHECK(mount_log_refuses(log));
	limit_file_size(RLIM_INFINITY);
	while (mount_log_refuses(log)) /* nothing is recorded meanwhile */
		usleep(10000);
	CHECK_RC(21, record(log, "write", "after", LOG_IS_MUTATION));
	mount_log_close(log);
	log = open_log(0);
	CHECK(!mount_log_refuses(log));
	limit_file_size(1);
	fill(log, 10);
	CHECK(!mount_log_refuses(log));
	limit_file_size(RLIM_INFINITY);
	mount_log_close(log);
	remove_directory();
}

static void test_a_required_log_needs_its_sealing_key(void)
{
	const struct mount_log_options required = {.is_required = true};
	struct mount_log *log = new_log(0);

	mount_log_close(log);
	write_segment(LOG_KEY_NAME, "broken", 6);
	CHECK_RC(-EBADMSG, mount_log_open(directory, &required, &log));
	log = open_log(0);
	mount_log_close(log);
	remove_directory();
}

static bool segment_exists(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return access(path, F_OK) == 0;
}

/* A small file system of our own below the directory of the log. */
static bool mount_small(const char *options)
{
	strcpy(directory, "/tmp/isthmus-test-log-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	if (own_mounts() == 0 && mount("none", directory, "tmpfs", 0, options) == 0)
		return true;
	remove_directory();
	return false;
}

/* The sum of all "lost" lines, which must give this reason. */
static uint64_t lines_told_lost(const char *reason)
{
	static const char start[] = "\"op\":\"lost\"";
	int fd = open(directory, O_RDONLY | O_CLOEXEC);
	uint64_t count = 0;
	struct log_segment_name *names = NULL;

	int segments = log_segment_names(fd, LOG_ALL_RING, &names);
	close(fd);
	for (int i = 0; i < segments; i++) {
		cleanup_free char *text = read_segment(names[i].name);
		const char *at = text;

		while (at && (at = strstr(at, start))) {
			const char *line = at;
			cJSON *parsed;

			while (line > text && line[-1] != '\n')
				line--;
			parsed = cJSON_ParseWithOpts(line, NULL, 0);
			CHECK_STRING(reason, text_of(parsed, "result"));
			count += (uint64_t)number_of(parsed, "count");
			cJSON_Delete(parsed);
			at += strlen(start);
		}
	}
	free(names);
	return count;
}

static void test_a_full_disk_removes_no_old_lines(void)
{
	struct log_verify_report report;
	struct mount_log_stats stats;
	struct mount_log *log;
	cJSON *line;

	if (!mount_small("size=48k"))
		return; /* not root */
	log = open_log(64 << 10);
	fill(log, 1000);
	mount_log_stats(log, &stats);
	CHECK(stats.lost > 0 && stats.last_error == -ENOSPC);
	CHECK(segment_exists("log-00000001.jsonl"));
	CHECK_RC(0, mount("none", directory, "tmpfs", MS_REMOUNT, "size=1m"));
	CHECK_RC(1001, record(log, "write", "after", LOG_IS_MUTATION));
	line = line_of(log, 1001);
	CHECK_STRING("after", text_of(line, "path"));
	cJSON_Delete(line);
	CHECK_RC(stats.lost, lines_told_lost("ENOSPC"));
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK(!report.oldest_gone && report.first_seq == 1);
	CHECK_RC(0, umount(directory));
	remove_directory();
}

static void test_a_foreign_segment_does_not_stop_rotation(void)
{
	struct mount_log *log = new_log(64 << 10);
	struct log_verify_report report;

	write_segment("log-00000001.jsonl", "mine\n", 5);
	fill(log, 300);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK(report.problem[0] != '\0');
	CHECK(count_lines("\"op\":\"write\"", &(int){0}) < 300);
	remove_directory();
}

/* ---- Tampering ---------------------------------------------------------------- */

/* Several segments, the first of which is still there. */
static void make_log(void)
{
	struct mount_log *log = new_log(256 << 10);
	struct log_verify_report report;

	fill(log, 900);
	mount_log_close(log);
	CHECK_RC(0, verify(&report));
	CHECK_STRING("", report.problem);
	CHECK(report.segments >= 4);
}

static void test_segments_get_their_names_where_rename_knows_no_flags(void)
{
	rename_knows_no_flags = true;
	make_log();
	rename_knows_no_flags = false;
	remove_directory();
}

static void check_detected(const char *where)
{
	struct log_verify_report report;

	CHECK_RC(0, verify(&report));
	CHECK(report.problem[0] != '\0');
	CHECK(strstr(report.problem, where) != NULL);
	remove_directory();
}

static void test_verify_detects_an_edited_line(void)
{
	cleanup_free char *text = NULL;
	char *line;

	make_log();
	text = read_segment("log-00000002.jsonl");
	line = strstr(text, "\"op\":\"write\"");
	memcpy(line, "\"op\":\"wrote\"", strlen("\"op\":\"wrote\""));
	write_segment("log-00000002.jsonl", text, strlen(text));
	check_detected("log-00000002.jsonl\": line");
}

static void test_verify_detects_a_deleted_line(void)
{
	cleanup_free char *text = NULL;
	char *line, *next;

	make_log();
	text = read_segment("log-00000002.jsonl");
	line = strstr(text, "{\"seq\":");
	next = strchr(line, '\n') + 1;
	memmove(line, next, strlen(next) + 1);
	write_segment("log-00000002.jsonl", text, strlen(text));
	check_detected("log-00000002.jsonl\": line");
}

static void test_verify_detects_swapped_lines(void)
{
	cleanup_free char *text = NULL, *copy = NULL;
	char *first, *second, *third;

	make_log();
	text = read_segment("log-00000002.jsonl");
	copy = strdup(text);
	first = strstr(text, "{\"seq\":");
	second = strchr(first, '\n') + 1;
	third = strchr(second, '\n') + 1;
	memcpy(first, copy + (second - text), (size_t)(third - second));
	memcpy(first + (third - second), copy + (first - text), (size_t)(second - first));
	write_segment("log-00000002.jsonl", text, strlen(text));
	check_detected("log-00000002.jsonl\": line");
}

static void test_verify_detects_a_deleted_batch_and_its_seal(void)
{
	cleanup_free char *text = NULL;
	char *start, *end;

	make_log();
	text = read_segment("log-00000002.jsonl");
	start = strstr(text, "{\"seq\":");
	end = strchr(strstr(start, "{\"op\":\"seal\""), '\n') + 1;
	memmove(start, end, strlen(end) + 1);
	write_segment("log-00000002.jsonl", text, strlen(text));
	check_detected("log-00000002.jsonl\": line");
}

static void test_verify_detects_a_segment_cut_at_a_seal(void)
{
	cleanup_free char *text = NULL;
	char *start;

	make_log();
	text = read_segment("log-00000002.jsonl");
	start = strstr(text, "{\"seq\":");
	write_segment("log-00000002.jsonl", text, (size_t)(start - text));
	check_detected("log-00000003.jsonl\" does not continue");
}

static void test_verify_detects_lines_added_at_the_end_of_a_segment(void)
{
	cleanup_free char *text = NULL;
	struct buffer longer = {0};

	make_log();
	text = read_segment("log-00000002.jsonl");
	buffer_append_string(&longer, text);
	buffer_append_string(&longer, "{\"seq\":999999,\"op\":\"unlink\"}\n");
	write_segment("log-00000002.jsonl", (char *)longer.data, longer.size);
	buffer_done(&longer);
	check_detected("log-00000003.jsonl\"");
}

static void test_verify_detects_swapped_segments(void)
{
	char from[128], to[128];

	make_log();
	snprintf(from, sizeof(from), "%s/log-00000001.jsonl", directory);
	snprintf(to, sizeof(to), "%s/log-00000002.jsonl", directory);
	CHECK_RC(0, renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE));
	check_detected("log-00000002.jsonl\" is segment 1");
}

static void test_verify_detects_a_deleted_segment(void)
{
	char path[128];

	make_log();
	snprintf(path, sizeof(path), "%s/log-00000002.jsonl", directory);
	CHECK_RC(0, unlink(path));
	check_detected("log-00000003.jsonl\" is segment 3");
}

static void test_verify_detects_that_the_oldest_segments_were_deleted(void)
{
	char path[128];

	make_log();
	snprintf(path, sizeof(path), "%s/log-00000001.jsonl", directory);
	CHECK_RC(0, unlink(path));
	check_detected("begins with segment 2");
}

static void test_verify_detects_a_changed_first_line(void)
{
	cleanup_free char *text = NULL;

	make_log();
	text = read_segment("log-00000002.jsonl");
	text[strlen("{\"op\":\"segment\",\"schema\":2,\"segment\":2,\"time\":\"2")]++;
	write_segment("log-00000002.jsonl", text, strlen(text));
	check_detected("log-00000002.jsonl\": line");
}

static void test_verify_detects_a_log_that_is_not_one(void)
{
	make_log();
	write_segment("log-00000002.jsonl", "", 0);
	check_detected("log-00000002.jsonl\" has no first line");
}

TEST_MAIN("mount log", TEST(test_every_field_reaches_the_line),
	TEST(test_any_bytes_of_a_path_are_kept), TEST(test_a_very_long_path_is_cut_and_says_so),
	TEST(test_no_log_is_fine), TEST(test_numbers_go_on_after_a_restart),
	TEST(test_a_killed_daemon_leaves_a_log_that_goes_on),
	TEST(test_a_daemon_that_did_not_end_leaves_a_gap), TEST(test_only_one_daemon_writes_a_log),
	TEST(test_a_flood_drops_no_mutation_and_counts_the_reads_it_drops),
	TEST(test_rotation_keeps_the_log_within_its_bound),
	TEST(test_a_file_of_another_name_is_no_segment), TEST(test_reads_do_not_push_changes_out),
	TEST(test_changes_have_a_bound_of_their_own),
	TEST(test_verify_detects_what_is_wrong_with_the_changes),
	TEST(test_what_cannot_be_written_is_counted_in_a_line),
	TEST(test_a_file_that_is_removed_while_it_is_written_is_begun_anew),
	TEST(test_a_directory_that_is_removed_while_it_is_written_is_made_anew),
	TEST(test_a_file_in_the_place_of_the_log_is_kept_aside),
	TEST(test_a_removed_file_is_noticed_by_an_idle_log),
	TEST(test_a_required_log_refuses_while_it_cannot_be_written),
	TEST(test_a_required_log_needs_its_sealing_key),
	TEST(test_a_full_disk_removes_no_old_lines),
	TEST(test_a_foreign_segment_does_not_stop_rotation),
	TEST(test_segments_get_their_names_where_rename_knows_no_flags),
	TEST(test_verify_detects_an_edited_line), TEST(test_verify_detects_a_deleted_line),
	TEST(test_verify_detects_swapped_lines),
	TEST(test_verify_detects_a_deleted_batch_and_its_seal),
	TEST(test_verify_detects_a_segment_cut_at_a_seal),
	TEST(test_verify_detects_lines_added_at_the_end_of_a_segment),
	TEST(test_verify_detects_swapped_segments), TEST(test_verify_detects_a_deleted_segment),
	TEST(test_verify_detects_that_the_oldest_segments_were_deleted),
	TEST(test_verify_detects_a_changed_first_line),
	TEST(test_verify_detects_a_log_that_is_not_one))
