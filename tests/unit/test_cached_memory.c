/* What the cached decorator does when there is no memory: what fails says so, what was promised is
 * kept, nothing is believed that is not so, and nothing waits for ever. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/cache/cached.h"
#include "ops/forward.h"
#include "tests/check.h"
#include "tests/no_memory.h"
#include "tests/unit/scripted_place.h"

enum { ALLOCATIONS = 100, CALLS = 12 };

static struct workspace *w;
static struct op_context context;
static struct attributes seen;
static bool answers_early;

static struct workspace *early_new(struct workspace *inner);

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
	if (answers_early)
		place = early_new(place);
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

/* A place that answers create early; then it turns out that somebody else has made the name of
 * "d/c". */
static int create_async(struct op_context *ctx, struct workspace *place, const char *path,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int r = forward_create(ctx, place, path, flags, mode, ret_file, ret_attributes);

	ctx->served.is_async = r == 0 && ctx->create_hint == CREATE_ASYNC;
	return r;
}

static int find_other(
	struct op_context *ctx, struct open_file *file, struct attributes *ret_attributes)
{
	return workspace_getattr(ctx, file->workspace, &OBJECT_AT("d/c"), ret_attributes);
}

static struct workspace *early_new(struct workspace *inner)
{
	struct forward *early = calloc(1, sizeof(*early));

	if (!early)
		abort();
	forward_init(early, inner, &forward_ops);
	early->ops.create = create_async;
	early->ops.await_name = find_other;
	return &early->workspace;
}

static void test_a_file_of_another_that_cannot_be_followed_is_an_error(void)
{
	struct open_file *file = NULL;

	answers_early = true;
	setup();
	CHECK_RC(2, count_in("d"));
	CHECK_RC(0, look("d"));
	context.parent = seen.id;
	CHECK_RC(0, workspace_create(&context, w, "d/n", O_WRONLY, 0600, &file, &seen));
	CHECK(context.served.is_async);
	place_make("d/c", S_IFREG | 0644);
	memory_ends_after(0);
	CHECK_RC(-ENOMEM, workspace_flush(&context, file));
	memory_is_back();
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
	answers_early = false;
}

static void test_only_the_create_of_a_lock_file_waits(void)
{
	static const char *const locks[] = {"d/yarn.lock", "d/LCK..ttyS0", "d/.x.swp", "d/lockfile",
		"d/fileLock", "d/daemon.pid", "d/dotlock", "d/.lock", "d/Lock2"};
	static const char *const others[] = {
		"d/block.c", "d/clock.h", "d/x.swift", "d/unlocked", "d/rapid.c", "d/n"};
	struct open_file *file = NULL;

	answers_early = true;
	setup();
	for (size_t i = 0; i < array_size(locks) + array_size(others); i++) {
		bool is_lock = i < array_size(locks);
		const char *path = is_lock ? locks[i] : others[i - array_size(locks)];

		CHECK_RC(2 + (int)i, count_in("d"));
		CHECK_RC(0, look("d"));
		context.parent = seen.id;
		CHECK_RC(0,
			workspace_create(&context, w, path, O_WRONLY | O_EXCL, 0600, &file, &seen));
		if (!CHECK(context.served.is_async != is_lock))
			fprintf(stderr, "%s\n", path);
		context.served.is_async = false;
		workspace_flush(&context, file);
		CHECK_RC(0, workspace_close(&context, file));
	}
	teardown();
	answers_early = false;
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

TEST_MAIN("cached_memory", TEST(test_a_file_of_another_that_cannot_be_followed_is_an_error),
	TEST(test_only_the_create_of_a_lock_file_waits),
	TEST(test_attributes_that_wait_go_on_waiting),
	TEST(test_a_listing_that_is_not_all_known_hides_no_name),
	TEST(test_a_name_that_the_feed_tells_of_is_known_later),
	TEST(test_an_answer_from_before_what_could_not_be_kept_is_not_believed))
