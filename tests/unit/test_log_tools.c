#include "ops/support/log_tools.h"
#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "ops/support/log_segment.h"
#include "tests/remove_tree.h"

/* ---- A private log --------------------------------------------------------------- */

static char state[64], directory[80];

static void begin(void)
{
	strcpy(state, "/tmp/isthmus-test-log-XXXXXX");
	CHECK(mkdtemp(state) != NULL);
	setenv("XDG_STATE_HOME", state, 1);
	snprintf(directory, sizeof(directory), "%s/isthmus", state);
}

static void end(void)
{
	remove_tree(state);
}

static int append(const char *detail, uint64_t *ret_seq)
{
	const struct log_record record = {.op = "tool_call", .start_ns = 1};
	const char *const strings[LOG_STRINGS] = {[LOG_TOOL] = "bash", [LOG_DETAIL] = detail};

	return log_tools_append(&record, strings, ret_seq);
}

static void append_many(unsigned count, const char *detail)
{
	uint64_t seq;

	while (count--)
		CHECK_RC(0, append(detail, &seq));
}

static void verify(struct log_verify_report *ret_report)
{
	const struct log_verify_means means = {.ring = LOG_TOOLS_RING};

	CHECK_RC(0, log_verify(directory, &means, ret_report));
}

static int open_log(int flags)
{
	cleanup_free char *path = state_path("tools.jsonl");

	return open(path, flags | O_CLOEXEC);
}

/* ---- The tests ------------------------------------------------------------------- */

static void test_processes_append_in_turn(void)
{
	enum { PROCESSES = 8, RECORDS = 25 };
	struct log_verify_report report;
	uint64_t seq;

	begin();
	for (int i = 0; i < PROCESSES; i++) {
		if (fork() > 0)
			continue;
		for (int k = 0; k < RECORDS; k++)
			if (append("true", &seq) < 0)
				_exit(1);
		_exit(0);
	}
	for (int i = 0, status; i < PROCESSES; i++)
		CHECK(wait(&status) > 0 && status == 0);
	verify(&report);
	CHECK_STRING("", report.problem);
	CHECK_RC(0, report.gap_count);
	CHECK_RC(PROCESSES * RECORDS, report.last_seq);
	end();
}

static void test_the_size_is_bounded(void)
{
	enum { DETAIL_BYTES = 16000, LIMIT_BYTES = 16 << 20 };
	static char detail[DETAIL_BYTES + 1];
	cleanup_free struct log_segment_name *names = NULL;
	struct log_verify_report report;
	cleanup_fd int fd = -1;
	off_t total = 0;
	int count;

	begin();
	memset(detail, 'x', DETAIL_BYTES);
	append_many(LIMIT_BYTES / DETAIL_BYTES * 5 / 4, detail);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	count = log_segment_names(fd, LOG_TOOLS_RING, &names);
	CHECK(count > 2);
	for (int i = 0; i < count; i++) {
		struct stat attributes;

		CHECK_RC(0, fstatat(fd, names[i].name, &attributes, 0));
		total += attributes.st_size;
	}
	CHECK(total < LIMIT_BYTES + 2 * DETAIL_BYTES);
	verify(&report);
	CHECK_STRING("", report.problem);
	CHECK_RC(0, report.gap_count);
	CHECK(report.oldest_gone);
	end();
}

static void test_a_changed_line_is_found(void)
{
	struct log_verify_report report;
	char text[4096] = "", *at;
	cleanup_fd int fd = -1;

	begin();
	append_many(3, "rm important");
	fd = open_log(O_RDWR);
	CHECK(pread(fd, text, sizeof(text) - 1, 0) > 0);
	at = strstr(text, "important");
	CHECK_RC(1, at ? pwrite(fd, "I", 1, at - text) : -1);
	append_many(1, "true");
	verify(&report);
	CHECK(report.problem[0] != '\0');
	end();
}

static unsigned long long bytes_read(void)
{
	FILE *file = fopen("/proc/self/io", "re");
	unsigned long long count = 0;

	CHECK_RC(1, file ? fscanf(file, "rchar: %llu", &count) : -1);
	if (file)
		fclose(file);
	return count;
}

/* Each call would else read, and hash, up to 2 MB of what others wrote. */
static void test_a_call_reads_little_of_a_long_log(void)
{
	static char detail[8192];
	unsigned long long before, after;

	begin();
	memset(detail, 'x', sizeof(detail) - 1);
	append_many(100, detail);
	before = bytes_read();
	append_many(10, "true");
	after = bytes_read();
	if (after - before >= 10 * 8192)
		printf("%llu bytes\n", after - before);
	CHECK(after - before < 10 * 8192);
	end();
}

static void test_half_a_line_of_a_killed_process_stops_nobody(void)
{
	struct log_verify_report report;
	cleanup_fd int fd = -1;
	uint64_t seq;

	begin();
	append_many(2, "true");
	fd = open_log(O_WRONLY | O_APPEND);
	CHECK_RC(10, write(fd, "{\"seq\":3,\"", 10));
	CHECK_RC(0, append("false", &seq));
	CHECK_RC(3, seq);
	verify(&report);
	CHECK_STRING("", report.problem);
	CHECK_RC(1, report.gap_count);
	CHECK_RC(3, report.last_seq);
	end();
}

static void test_a_log_that_cannot_be_written_is_an_error(void)
{
	uint64_t seq = 0;
	int fd;

	begin();
	fd = creat(directory, 0600);
	close(fd);
	CHECK_RC(-ENOTDIR, append("true", &seq));
	CHECK_RC(0, seq);
	end();
}

TEST_MAIN("log_tools", TEST(test_processes_append_in_turn), TEST(test_the_size_is_bounded),
	TEST(test_a_changed_line_is_found), TEST(test_a_call_reads_little_of_a_long_log),
	TEST(test_half_a_line_of_a_killed_process_stops_nobody),
	TEST(test_a_log_that_cannot_be_written_is_an_error))
