/* What the cached decorator does when there is no memory: what fails says so, what was promised is
 * kept, nothing is believed that is not so, and nothing waits for ever. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/cache/cached.h"
#include "tests/check.h"
#include "tests/no_memory.h"
#include "tests/unit/scripted_place.h"

enum { ALLOCATIONS = 100, CALLS = 12 };

static struct workspace *w;
static struct op_context context;
static struct attributes seen;

static void ignore_change(void *user, const struct change *change)
{
	(void)user;
	(void)change;
}

/* With two files in the directory "d", of which nothing is known. */
static void setup(void)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	struct workspace *place = place_new();

	op_context_init(&context);
	place_make("d", S_IFDIR | 0755);
	place_make("d/a", S_IFREG | 0644);
	place_make("d/b", S_IFREG | 0644);
	CHECK_RC(0, cached_new(place, &options, &w));
	CHECK_RC(0, workspace_watch(w, ignore_change, NULL));
	alarm(20); /* lest it hangs */
}

static void teardown(void)
{
	memory_is_back();
	workspace_free(w);
}

static int look(const char *path)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), &seen);
}

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(unsigned *)user;
	return 0;
}

static int count_in(const char *path)
{
	unsigned count = 0;
	uint64_t since;
	int r = workspace_readdir(
		&context, w, &OBJECT_AT(path), true, ignore_entry, &count, &since);

	return r < 0 ? r : (int)count;
}

static void test_attributes_that_wait_go_on_waiting(void)
{
	const struct attributes want = {.mode = 0640};
	struct open_file *file = NULL;

	setup();
	CHECK_RC(0, look("d"));
	CHECK_RC(0, workspace_create(&context, w, "d/n", O_WRONLY, 0600, &file, &seen));
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_AT("d/n"), SET_MODE, &want, &seen));
	memory_ends_after(0);
	workspace_link(&context, w, &OBJECT_AT("d/a"), "d/l", &seen);
	memory_is_back();
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, look("d/n"));
	CHECK_RC(0640, seen.mode & 07777);
	teardown();
}

static void test_a_listing_that_is_not_all_known_hides_no_name(void)
{
	for (int lasts = 0; lasts < ALLOCATIONS; lasts++) {
		setup();
		memory_lacks_once_after(lasts);
		look("d");
		look("d/a");
		cached_quiesce(w);
		memory_is_back();
		CHECK_RC(0, look("d/a"));
		CHECK_RC(0, look("d/b"));
		CHECK_RC(2, count_in("d"));
		teardown();
	}
}

static void test_a_name_that_the_feed_tells_of_is_known_later(void)
{
	for (int lasts = 0; lasts < 4; lasts++) {
		setup();
		CHECK_RC(2, count_in("d"));
		cached_quiesce(w);
		place_make("d/new", S_IFREG | 0644);
		memory_lacks_once_after(lasts);
		place_tell("d/new");
		memory_is_back();
		CHECK_RC(0, look("d/new"));
		CHECK_RC(3, count_in("d"));
		teardown();
	}
}

static unsigned calls_before;

/* The feed tells of it between the place's look and what that said. */
static void remove_when_it_is_time(void)
{
	if (calls_before--) {
		before_it_arrives = remove_when_it_is_time;
		return;
	}
	place_remove("d/a");
	memory_ends_after(0);
	place_tell("d/a");
	memory_is_back();
}

static void test_an_answer_from_before_what_could_not_be_kept_is_not_believed(void)
{
	for (unsigned calls = 0; calls < CALLS; calls++) {
		setup();
		calls_before = calls;
		before_it_arrives = remove_when_it_is_time;
		look("d");
		look("d/a");
		before_it_arrives = NULL;
		cached_quiesce(w);
		if (calls_before == (unsigned)-1)
			CHECK_RC(-ENOENT, look("d/a"));
		teardown();
	}
}

TEST_MAIN("cached_memory", TEST(test_attributes_that_wait_go_on_waiting),
	TEST(test_a_listing_that_is_not_all_known_hides_no_name),
	TEST(test_a_name_that_the_feed_tells_of_is_known_later),
	TEST(test_an_answer_from_before_what_could_not_be_kept_is_not_believed))
