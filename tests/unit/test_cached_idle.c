/* Large files that were read stay open at the place, until they lose their name. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ops/faulty.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"
#include "tests/check.h"
#include "tests/unit/cached_fixture.h"

#define MAKE_BIG "head -c 300000 /dev/zero"

/* This process has the place's files open itself. */
static int descriptors_of(const char *name)
{
	DIR *all = opendir("/proc/self/fd");
	const struct dirent *entry;
	int count = 0;

	while ((entry = readdir(all))) {
		char to[512];
		ssize_t length = readlinkat(dirfd(all), entry->d_name, to, sizeof(to) - 1);

		to[length > 0 ? length : 0] = '\0';
		count += strstr(to, directory) && strstr(to, name);
	}
	closedir(all);
	return count;
}

/* Within 2 s. */
static bool is_closed(const char *name)
{
	for (int i = 0; i < 200 * test_patience() && descriptors_of(name); i++)
		usleep(10000);
	return descriptors_of(name) == 0;
}

static char first_of(const char *path)
{
	struct open_file *file = open_it(path, O_RDONLY);
	char first = '?';

	CHECK_RC(1, workspace_read(&context, file, &first, 1, 0));
	CHECK_RC(0, workspace_close(&context, file));
	return first;
}

static void test_the_next_open_does_not_ask(void)
{
	struct open_file *file, *other;
	char first;

	setup("mkdir d && " MAKE_BIG " >d/big");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, first_of("d/big"));
	CHECK_RC(1, descriptors_of("big"));
	for (int i = 0; i < 3; i++) {
		forget_calls();
		file = open_it("d/big", O_RDONLY);
		CHECK_RC(0, calls());
		other = open_it("d/big", O_RDONLY);
		CHECK_RC(1, faulty_calls(counter, "open_file"));
		CHECK_RC(1, workspace_read(&context, file, &first, 1, 299999));
		CHECK_RC(0, workspace_read(&context, file, &first, 1, 300000));
		CHECK_RC(0, workspace_close(&context, file));
		CHECK_RC(0, workspace_close(&context, other));
	}
	teardown();
	CHECK_RC(0, descriptors_of("big"));
}

static void test_who_wants_to_write_gets_a_handle_of_its_own(void)
{
	struct open_file *file;

	setup("mkdir d && " MAKE_BIG " >d/big");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, first_of("d/big"));
	file = open_it("d/big", O_RDWR);
	CHECK_RC(1, workspace_write(&context, file, "x", 1, 0));
	CHECK_RC('x', first_of("d/big"));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC('x', first_of("d/big"));
	teardown();
}

static void test_what_must_be_opened_there_each_time_does_not_stay_open(void)
{
	setup("mkdir d && " MAKE_BIG " >d/big");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, workspace_close(&context, open_it("d/big", O_RDONLY | O_NOATIME)));
	CHECK_RC(0, descriptors_of("big"));
	teardown();
}

static void test_what_has_lost_its_name_is_closed(void)
{
	setup("mkdir d; for i in one two three four; do " MAKE_BIG " >d/$i; done; echo >d/small");
	CHECK_RC(5, count("d"));
	CHECK_RC(0, first_of("d/one"));
	CHECK_RC(0, first_of("d/two"));
	CHECK_RC(0, first_of("d/three"));
	CHECK_RC(0, first_of("d/four"));
	CHECK_RC(4, descriptors_of("d/"));
	CHECK_RC(0, workspace_unlink(&context, w, "d/one", NULL));
	CHECK_RC(0, descriptors_of("one"));
	CHECK_RC(0, workspace_rename(&context, w, "d/small", "d/two", 0, NULL));
	CHECK_RC(0, descriptors_of("two"));
	behind("rm d/three");
	CHECK(is_closed("three"));
	behind("echo y >d/new; mv d/new d/four");
	CHECK(is_closed("four"));
	CHECK_RC('y', first_of("d/four"));
	teardown();
}

static void test_a_handle_that_is_still_used_stays(void)
{
	struct open_file *file;
	char first;

	setup("mkdir d && " MAKE_BIG " >d/big");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, first_of("d/big"));
	file = open_it("d/big", O_RDONLY);
	behind("rm d/big");
	for (int i = 0; i < 200 && look("d/big", &ignored) == 0; i++)
		usleep(10000);
	CHECK_RC(1, workspace_read(&context, file, &first, 1, 0));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, descriptors_of("big"));
	teardown();
}

static void test_what_was_changed_is_opened_anew(void)
{
	setup("mkdir d && " MAKE_BIG " >d/big");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, first_of("d/big"));
	behind("printf x | dd of=d/big conv=notrunc status=none; echo >>d/big");
	for (int i = 0; i < 200 && look("d/big", &ignored) == 0 && ignored.size_bytes == 300000;
		i++)
		usleep(10000);
	forget_calls();
	CHECK_RC('x', first_of("d/big"));
	CHECK_RC(1, faulty_calls(counter, "open_file"));
	teardown();
}

static void test_sixteen_stay_open(void)
{
	char path[16];

	setup("mkdir d; for i in $(seq 20); do " MAKE_BIG " >d/f$i; done");
	CHECK_RC(20, count("d"));
	for (int i = 1; i <= 20; i++) {
		snprintf(path, sizeof(path), "d/f%d", i);
		CHECK_RC(0, first_of(path));
	}
	CHECK(is_closed("d/f4"));
	CHECK_RC(16, descriptors_of("d/f"));
	forget_calls();
	CHECK_RC(0, first_of("d/f5"));
	CHECK_RC(0, faulty_calls(counter, "open_file"));
	teardown();
}

static void test_without_a_watch_none_stays_open(void)
{
	static const struct cached_options options = {.ttl_ms = 60000};

	setup("mkdir d && " MAKE_BIG " >d/big");
	workspace_free(w);
	mount_with(&options, "watch:1:EOPNOTSUPP");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, first_of("d/big"));
	CHECK_RC(0, descriptors_of("big"));
	teardown();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEASURES_MEMORY = 0 }; /* what was freed stays resident */
#else
enum { MEASURES_MEMORY = 1 };
#endif

static long resident_kb(void)
{
	cleanup_file FILE *file = fopen("/proc/self/statm", "re");
	long pages = 0;

	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
	return pages * (sysconf(_SC_PAGESIZE) >> 10);
}

/* Sequential, so that the next megabytes come ahead. */
static void read_the_start(struct open_file *file)
{
	static char data[128 << 10];

	for (off_t at = 0; at < 1 << 20; at += sizeof(data))
		CHECK_RC(sizeof(data), workspace_read(&context, file, data, sizeof(data), at));
}

static void test_what_was_read_ahead_is_given_back(void)
{
	enum { FILES = 8, AHEAD_KB = FILES * (1 << 10) };
	struct open_file *files[FILES];
	char path[16];
	long before, after;

	through_helper = true;
	setup("for i in $(seq 8); do head -c 20m /dev/zero >f$i; done");
	before = resident_kb();
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "f%d", i + 1);
		files[i] = open_it(path, O_RDONLY);
		read_the_start(files[i]);
	}
	usleep(300000); /* until it has come */
	CHECK(resident_kb() - before > AHEAD_KB);
	for (int i = 0; i < (MEASURES_MEMORY ? 100 : 30) * test_patience() &&
			resident_kb() - before > AHEAD_KB / 2;
		i++)
		usleep(100000);
	after = resident_kb();
	CHECK(!MEASURES_MEMORY || after - before <= AHEAD_KB / 2);
	for (int i = 0; i < FILES; i++) {
		read_the_start(files[i]);
		CHECK_RC(0, workspace_close(&context, files[i]));
	}
	teardown();
	through_helper = false;
}

TEST_MAIN("cached_idle", TEST(test_the_next_open_does_not_ask),
	TEST(test_who_wants_to_write_gets_a_handle_of_its_own),
	TEST(test_what_must_be_opened_there_each_time_does_not_stay_open),
	TEST(test_what_has_lost_its_name_is_closed), TEST(test_a_handle_that_is_still_used_stays),
	TEST(test_what_was_changed_is_opened_anew), TEST(test_sixteen_stay_open),
	TEST(test_without_a_watch_none_stays_open), TEST(test_what_was_read_ahead_is_given_back))
