/*
 * What somebody can do to a log who may write all of its files, and what is found of it.
 */
#include "fs/log/mount_log.h"
#include "tests/check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/hex.h"
#include "ops/support/log_segment.h"
#include "tests/remove_tree.h"

static char directory[64];
static uint8_t key[LOG_KEY_BYTES];

/* ---- Files ------------------------------------------------------------------------- */

static char *path_of(const char *name)
{
	static char path[192];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static char *read_file(const char *name)
{
	struct buffer text = {0};
	cleanup_file FILE *file = fopen(path_of(name), "re");
	char chunk[4096];
	size_t got;

	while (file && (got = fread(chunk, 1, sizeof(chunk), file)) > 0)
		buffer_append(&text, chunk, got);
	return buffer_steal_string(&text);
}

static void write_file(const char *name, const char *text, size_t size)
{
	cleanup_file FILE *file = fopen(path_of(name), "we");

	CHECK(file && fwrite(text, 1, size, file) == size);
}

static int open_directory(void)
{
	return open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- Logs -------------------------------------------------------------------------- */

static void new_directory(void)
{
	strcpy(directory, "/tmp/isthmus-test-seal-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
}

static void new_keys(void)
{
	char text[LOG_KEY_TEXT_BYTES];
	cleanup_fd int fd = -1;

	new_directory();
	fd = open_directory();
	CHECK_RC(0, log_keys_setup(fd, text));
	CHECK(hex_read(text, key, sizeof(key)));
}

static struct mount_log *open_log(uint64_t limit_bytes)
{
	const struct mount_log_options options = {.limit_bytes = limit_bytes};
	struct mount_log *log = NULL;

	CHECK_RC(0, mount_log_open(directory, &options, &log));
	return log;
}

/* A batch and its seal for each record. */
static void record(struct mount_log *log, const char *path, int count)
{
	for (int i = 0; i < count; i++) {
		const struct log_record one = {
			.op = "write", .flags = LOG_IS_MUTATION, .path = path, .pid = getpid()};

		mount_log_record(log, &one);
		mount_log_flush(log);
	}
}

/* The life of a daemon. */
static void run_daemon(const char *path, int count)
{
	struct mount_log *log = open_log(0);

	record(log, path, count);
	mount_log_close(log);
}

static struct log_verify_report verify_with(const uint8_t *with)
{
	struct log_verify_report report;

	CHECK_RC(0, log_verify(directory, &(struct log_verify_means){.key = with}, &report));
	return report;
}

static void expect_good(void)
{
	struct log_verify_report report = verify_with(key);

	CHECK_STRING("", report.problem);
	CHECK_STRING("", report.gap);
	CHECK(report.is_keyed && report.ended);
}

static void expect_problem(const char *words)
{
	struct log_verify_report report = verify_with(key);

	CHECK(strstr(report.problem, words) != NULL);
	if (!strstr(report.problem, words))
		fprintf(stderr, "not \"%s\" but \"%s\" (%s)\n", words, report.problem, report.gap);
}

static void expect_gap(const char *words)
{
	struct log_verify_report report = verify_with(key);

	CHECK_STRING("", report.problem);
	CHECK(strstr(report.gap, words) != NULL);
	if (!strstr(report.gap, words))
		fprintf(stderr, "not \"%s\" but \"%s\"\n", words, report.gap);
}

/* ---- Who knows how the log is made --------------------------------------------------- */

/* Drops the lines that contain `unwanted` and makes the digests anew, so that the chain is whole;
 * of HMACs one has those that are there, or leaves all out. */
static void rechain(const char *unwanted, bool leave_hmac_out)
{
	cleanup_free char *text = read_file(LOG_CURRENT_NAME);
	cleanup_buffer struct buffer out = {0}, batch = {0};
	uint8_t digest[32] = {0};
	uint64_t last_seq = 0;

	for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
		size_t length = (size_t)(end + 1 - line);
		cleanup_buffer struct buffer seal = {0};
		const char *hmac;

		*end = '\0';
		if (strncmp(line, "{\"op\":\"seal\"", strlen("{\"op\":\"seal\"")) != 0) {
			if (unwanted && strstr(line, unwanted))
				continue;
			sscanf(line, "{\"seq\":%" SCNu64, &last_seq);
			*end = '\n';
			buffer_append(&batch, line, length);
			continue;
		}
		log_digest(digest, batch.data, batch.size, digest);
		CHECK_RC(0, log_format_seal(&seal, last_seq, digest));
		hmac = leave_hmac_out ? NULL : strstr(line, ",\"key\":");
		buffer_printf(&seal, "%s\n", hmac ? hmac : "}");
		buffer_append(&out, batch.data, batch.size);
		buffer_append(&out, seal.data, seal.size);
		batch.size = 0;
	}
	write_file(LOG_CURRENT_NAME, (char *)out.data, out.size);
}

static void expect_good_chain(void)
{
	struct log_verify_report report = verify_with(NULL);

	CHECK_STRING("", report.problem);
}

/* ---- Good ones ------------------------------------------------------------------------ */

static void test_a_sealed_log_is_good(void)
{
	struct log_verify_report report;
	char *text;

	new_keys();
	run_daemon("a", 3);
	run_daemon("b", 0);
	run_daemon("c", 2);
	expect_good();
	text = read_file(LOG_CURRENT_NAME);
	CHECK(strstr(text, "\"hmac\":") != NULL);
	free(text);
	report = verify_with(NULL);
	CHECK_STRING("", report.problem);
	CHECK(report.is_keyed && report.gap_count == 0);
	remove_tree(directory);
}

static void test_a_sealed_log_rotates(void)
{
	struct mount_log *log;
	struct log_verify_report report;

	new_keys();
	log = open_log(32 << 10);
	record(log, "some/file", 400);
	mount_log_close(log);
	log = open_log(32 << 10);
	record(log, "some/file", 100);
	mount_log_close(log);
	expect_good();
	report = verify_with(key);
	CHECK(report.oldest_gone && report.segments > 3);
	remove_tree(directory);
}

static void test_another_key_proves_nothing(void)
{
	new_keys();
	run_daemon("a", 3);
	key[0] ^= 1;
	expect_problem("of another key");
	remove_tree(directory);
}

static void test_a_log_of_before_its_keys_is_good(void)
{
	char text[LOG_KEY_TEXT_BYTES];
	cleanup_fd int fd = -1;

	new_directory();
	run_daemon("a", 3);
	fd = open_directory();
	CHECK_RC(0, log_keys_setup(fd, text));
	CHECK(hex_read(text, key, sizeof(key)));
	CHECK_RC(-EEXIST, log_keys_setup(fd, text));
	expect_gap("no daemon has sealed");
	run_daemon("b", 3);
	expect_good();
	remove_tree(directory);
}

static void test_the_key_file_holds_no_key_of_a_daemon_that_runs(void)
{
	struct log_generation generation;
	cleanup_fd int fd = -1, former = -1;
	struct stat attributes;
	struct mount_log *log;
	char old[64] = "";

	new_keys();
	former = open(path_of(LOG_KEY_NAME), O_RDONLY | O_CLOEXEC);
	CHECK(fstat(former, &attributes) == 0 && (attributes.st_mode & 07777) == 0600);
	log = open_log(0);
	CHECK(pread(former, old, sizeof(old), 0) == (ssize_t)sizeof(old));
	CHECK(memcmp(old, (char[64]){0}, sizeof(old)) == 0);
	CHECK(stat(path_of(LOG_KEY_NAME), &attributes) == 0 &&
		(attributes.st_mode & 07777) == 0600);
	fd = open_directory();
	CHECK_RC(0, log_generation_take(fd, &generation));
	CHECK_RC(1, generation.number);
	CHECK(memcmp(generation.key, key, sizeof(key)) != 0);
	mount_log_close(log);
	remove_tree(directory);
}

/* ---- Accidents ------------------------------------------------------------------------- */

static void test_a_killed_daemon_leaves_a_gap_and_nothing_altered(void)
{
	pid_t child;
	int status;

	new_keys();
	child = fork();
	if (child == 0) {
		struct mount_log *log = open_log(0);

		record(log, "a", 3);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(!verify_with(key).ended);
	CHECK_STRING("", verify_with(key).problem);
	run_daemon("b", 3);
	expect_gap("was killed");
	remove_tree(directory);
}

static void test_a_daemon_killed_before_its_first_line_leaves_a_gap(void)
{
	struct log_generation generation;
	cleanup_fd int fd = -1;

	new_keys();
	run_daemon("a", 3);
	fd = open_directory();
	CHECK_RC(0, log_generation_take(fd, &generation));
	expect_gap("nothing is left of the last daemon");
	run_daemon("b", 3);
	expect_gap("nothing is left of a daemon before it");
	remove_tree(directory);
}

static void test_a_daemon_killed_while_it_wrote_a_key_does_no_harm(void)
{
	new_keys();
	write_file(LOG_KEY_NAME ".new", "isthmus-seal", 12);
	run_daemon("a", 3);
	expect_good();
	remove_tree(directory);
}

/* ---- Attacks ---------------------------------------------------------------------------- */

static void test_records_removed_and_rechained_are_found(void)
{
	new_keys();
	run_daemon("a", 3);
	run_daemon("secret", 1);
	run_daemon("b", 3);
	rechain("secret", false);
	expect_good_chain();
	expect_problem("not what the key seals");
	remove_tree(directory);
}

static void test_a_log_without_its_hmacs_is_found(void)
{
	new_keys();
	run_daemon("secret", 3);
	rechain("secret", true);
	expect_good_chain();
	expect_problem("nothing is left of the last daemon");
	CHECK_RC(0, unlink(path_of(LOG_KEY_NAME)));
	expect_problem("nothing in it is sealed with this key");
	remove_tree(directory);
}

static void test_a_cut_tail_with_a_forged_end_is_found(void)
{
	cleanup_free char *text = NULL;
	char *cut;

	new_keys();
	run_daemon("secret", 3);
	text = read_file(LOG_CURRENT_NAME);
	cut = strstr(text, "{\"seq\":2,");
	strcpy(cut, LOG_END_LINE "{\"op\":\"seal\",\"last_seq\":1}\n");
	write_file(LOG_CURRENT_NAME, text, strlen(text));
	rechain(NULL, false);
	expect_good_chain();
	CHECK(verify_with(NULL).ended);
	expect_gap("not sealed with the key there");
	remove_tree(directory);
}

static void test_a_tail_cut_at_a_seal_is_found(void)
{
	cleanup_free char *text = NULL;

	new_keys();
	run_daemon("a", 3);
	run_daemon("secret", 3);
	text = read_file(LOG_CURRENT_NAME);
	*strstr(text, "{\"seq\":5,") = '\0';
	write_file(LOG_CURRENT_NAME, text, strlen(text));
	CHECK(!verify_with(key).ended);
	*strstr(strstr(text, LOG_END_LINE), "{\"op\":\"begin\"") = '\0';
	write_file(LOG_CURRENT_NAME, text, strlen(text));
	expect_gap("nothing is left of the last daemon");
	remove_tree(directory);
}

static void test_a_deleted_log_is_found(void)
{
	new_keys();
	run_daemon("secret", 3);
	CHECK_RC(0, unlink(path_of(LOG_CURRENT_NAME)));
	expect_problem("nothing is left of the last daemon");
	run_daemon("a", 3);
	expect_gap("nothing is left of a daemon before it");
	CHECK_RC(0, unlink(path_of(LOG_CURRENT_NAME)));
	CHECK_RC(0, unlink(path_of(LOG_KEY_NAME)));
	expect_problem("nothing in it is sealed with this key");
	remove_tree(directory);
}

static void test_an_old_copy_of_the_lines_is_found(void)
{
	cleanup_free char *log = NULL;

	new_keys();
	run_daemon("a", 3);
	log = read_file(LOG_CURRENT_NAME);
	run_daemon("secret", 3);
	write_file(LOG_CURRENT_NAME, log, strlen(log));
	expect_gap("nothing is left of the last daemon");
	remove_tree(directory);
}

static void test_an_old_copy_of_the_key_file_is_found(void)
{
	cleanup_free char *before = NULL;

	new_keys();
	before = read_file(LOG_KEY_NAME);
	run_daemon("a", 3);
	write_file(LOG_KEY_NAME, before, strlen(before));
	expect_problem("an older copy was put back");
	run_daemon("b", 3);
	expect_problem("seals were removed");
	remove_tree(directory);
}

static void test_a_forged_generation_does_not_keep_the_reader_busy(void)
{
	cleanup_free char *text = NULL;
	cleanup_buffer struct buffer forged = {0};
	char *number;

	new_keys();
	run_daemon("a", 1);
	text = read_file(LOG_CURRENT_NAME);
	number = strstr(text, "\"generation\":0");
	buffer_append(&forged, text, (size_t)(number - text));
	buffer_append_string(&forged, "\"generation\":4000000000");
	buffer_append_string(&forged, number + strlen("\"generation\":0"));
	write_file(LOG_CURRENT_NAME, (char *)forged.data, forged.size);
	expect_problem("line 2");
	remove_tree(directory);
}

/* ---- With an anchor -------------------------------------------------------------------------- */

static char anchor_path[] = "/tmp/isthmus-test-anchor-XXXXXX";

static void new_anchor(void)
{
	int fd;

	new_directory();
	strcpy(strrchr(anchor_path, '-'), "-XXXXXX");
	fd = mkstemp(anchor_path);
	CHECK(fd >= 0);
	close(fd);
}

static void remove_anchor(void)
{
	unlink(anchor_path);
	remove_tree(directory);
}

/* The life of a daemon whose log is anchored; `where` is as in the mount option. */
static void run_anchored(const char *where, uint64_t limit_bytes, const char *path, int count)
{
	struct mount_log_options options = {.limit_bytes = limit_bytes};
	struct mount_log *log = NULL;

	CHECK_RC(0, log_anchor_open(where, strrchr(directory, '/') + 1, &options.anchor));
	CHECK_RC(0, mount_log_open(directory, &options, &log));
	record(log, path, count);
	mount_log_close(log);
	log_anchor_close(options.anchor);
}

static struct log_verify_report verify_anchored(void)
{
	struct log_verify_report report;
	const struct log_verify_means means = {.anchor = anchor_path};

	CHECK_RC(0, log_verify(directory, &means, &report));
	return report;
}

static void expect_anchored(uint64_t seq)
{
	struct log_verify_report report = verify_anchored();

	CHECK_STRING("", report.problem);
	CHECK_STRING("", report.gap);
	CHECK(report.anchored);
	CHECK_RC(seq, report.anchored_seq);
}

static void expect_other_than_anchored(void)
{
	CHECK(strstr(verify_anchored().problem, "the anchor has a seal") != NULL);
	remove_anchor();
}

static void test_an_anchored_log_is_good(void)
{
	new_anchor();
	run_anchored(anchor_path, 0, "a", 3);
	run_anchored(anchor_path, 0, "b", 2);
	expect_anchored(5);
	run_daemon("c", 1);
	CHECK_STRING("", verify_anchored().problem);
	CHECK(strstr(verify_anchored().gap, "nothing after number 5") != NULL);
	run_anchored(anchor_path, 0, "d", 1);
	expect_anchored(7);
	remove_anchor();
}

static void test_an_anchored_log_rotates(void)
{
	new_anchor();
	run_anchored(anchor_path, 32 << 10, "some/file", 500);
	CHECK(verify_anchored().oldest_gone);
	expect_anchored(500);
	remove_anchor();
}

static void test_an_anchor_finds_what_was_rechained(void)
{
	new_anchor();
	run_anchored(anchor_path, 0, "secret", 3);
	run_anchored(anchor_path, 0, "b", 3);
	rechain("secret", false);
	expect_good_chain();
	expect_other_than_anchored();
}

static void test_an_anchor_finds_a_cut_tail_with_a_forged_end(void)
{
	cleanup_free char *text = NULL;

	new_anchor();
	run_anchored(anchor_path, 0, "secret", 3);
	text = read_file(LOG_CURRENT_NAME);
	strcpy(strstr(text, "{\"seq\":2,"), LOG_END_LINE "{\"op\":\"seal\",\"last_seq\":1}\n");
	write_file(LOG_CURRENT_NAME, text, strlen(text));
	rechain(NULL, false);
	CHECK(verify_with(NULL).ended);
	expect_other_than_anchored();
}

static void test_an_anchor_finds_an_older_copy_of_everything(void)
{
	cleanup_free char *log = NULL;

	new_anchor();
	run_anchored(anchor_path, 0, "a", 3);
	log = read_file(LOG_CURRENT_NAME);
	run_anchored(anchor_path, 0, "secret", 3);
	write_file(LOG_CURRENT_NAME, log, strlen(log));
	expect_good_chain();
	expect_other_than_anchored();
}

static void test_an_anchor_finds_a_deleted_log(void)
{
	new_anchor();
	run_anchored(anchor_path, 0, "secret", 3);
	CHECK_RC(0, unlink(path_of(LOG_CURRENT_NAME)));
	run_daemon("a", 3);
	expect_other_than_anchored();
}

/* A reader that is late does not hold the log up, and gets the end of it. */
static void test_a_full_pipe_holds_nothing_up_and_gets_the_last_seal(void)
{
	static const char filling[4096];
	struct mount_log_options options = {0};
	struct mount_log *log = NULL;
	char where[32], *got = malloc(1 << 20);
	size_t size = 0;
	int ends[2];
	FILE *file;

	new_anchor();
	CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	while (write(ends[1], filling, sizeof(filling)) > 0)
		;
	snprintf(where, sizeof(where), "fd:%d", ends[1]);
	CHECK_RC(0, log_anchor_open(where, strrchr(directory, '/') + 1, &options.anchor));
	close(ends[1]);
	CHECK_RC(0, mount_log_open(directory, &options, &log));
	record(log, "a", 3);
	mount_log_close(log);
	while (read(ends[0], got, 1 << 20) > 0)
		;
	log_anchor_close(options.anchor);
	for (ssize_t more; (more = read(ends[0], got + size, (1 << 20) - size)) > 0;)
		size += (size_t)more;
	file = fopen(anchor_path, "we");
	CHECK(file && fwrite(got, 1, size, file) == size);
	fclose(file);
	close(ends[0]);
	free(got);
	expect_anchored(3);
	remove_anchor();
}

static void test_a_closed_pipe_is_an_error_and_the_log_goes_on(void)
{
	struct mount_log_options options = {0};
	struct mount_log_stats stats;
	struct mount_log *log = NULL;
	char where[32];
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	new_anchor();
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	snprintf(where, sizeof(where), "fd:%d", ends[1]);
	CHECK_RC(0, log_anchor_open(where, "log", &options.anchor));
	close(ends[1]);
	close(ends[0]);
	CHECK_RC(0, mount_log_open(directory, &options, &log));
	record(log, "a", 1);
	mount_log_stats(log, &stats);
	CHECK_RC(-EPIPE, stats.anchor_error);
	CHECK_RC(0, stats.last_error);
	mount_log_close(log);
	log_anchor_close(options.anchor);
	CHECK_STRING("", verify_with(NULL).problem);
	remove_anchor();
}

static void test_an_anchor_says_where_it_cannot_be(void)
{
	struct log_anchor *anchor = NULL;

	CHECK_RC(-EINVAL, log_anchor_open("fd:", "log", &anchor));
	CHECK_RC(-EINVAL, log_anchor_open("fd:3x", "log", &anchor));
	CHECK_RC(-EBADF, log_anchor_open("fd:999999", "log", &anchor));
	CHECK_RC(-ENOENT, log_anchor_open("/nowhere/file", "log", &anchor));
}

TEST_MAIN("log seal", TEST(test_a_sealed_log_is_good), TEST(test_a_sealed_log_rotates),
	TEST(test_another_key_proves_nothing), TEST(test_a_log_of_before_its_keys_is_good),
	TEST(test_the_key_file_holds_no_key_of_a_daemon_that_runs),
	TEST(test_a_killed_daemon_leaves_a_gap_and_nothing_altered),
	TEST(test_a_daemon_killed_before_its_first_line_leaves_a_gap),
	TEST(test_a_daemon_killed_while_it_wrote_a_key_does_no_harm),
	TEST(test_records_removed_and_rechained_are_found),
	TEST(test_a_log_without_its_hmacs_is_found),
	TEST(test_a_cut_tail_with_a_forged_end_is_found), TEST(test_a_tail_cut_at_a_seal_is_found),
	TEST(test_a_deleted_log_is_found), TEST(test_an_old_copy_of_the_lines_is_found),
	TEST(test_an_old_copy_of_the_key_file_is_found),
	TEST(test_a_forged_generation_does_not_keep_the_reader_busy),
	TEST(test_an_anchored_log_is_good), TEST(test_an_anchored_log_rotates),
	TEST(test_an_anchor_finds_what_was_rechained),
	TEST(test_an_anchor_finds_a_cut_tail_with_a_forged_end),
	TEST(test_an_anchor_finds_an_older_copy_of_everything),
	TEST(test_an_anchor_finds_a_deleted_log),
	TEST(test_a_full_pipe_holds_nothing_up_and_gets_the_last_seal),
	TEST(test_a_closed_pipe_is_an_error_and_the_log_goes_on),
	TEST(test_an_anchor_says_where_it_cannot_be))
