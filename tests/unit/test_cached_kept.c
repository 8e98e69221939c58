/* What the cached decorator keeps, and for how long: content that comes while its file changes,
 * watches that end while a scan tells of them, what nobody can ask for any more. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/workspace_ops.h"
#include "tests/check.h"
#include "tests/unit/scripted_cached.h"

enum { REPLIES_MAX = 16 }; /* more than any list here takes */

static int replies_left;
static void (*at_reply)(void);

static void count_reply(void)
{
	if (replies_left-- > 0)
		before_it_arrives = count_reply;
	else
		at_reply();
}

/* Does that when so many replies of the place have arrived. */
static void do_at_reply(int count, void (*what)(void))
{
	replies_left = count;
	at_reply = what;
	before_it_arrives = count_reply;
}

static int count_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(int *)user;
	return 0;
}

static int count_of(struct op_context *ctx, const char *path)
{
	uint64_t since;
	int count = 0;
	int r = workspace_readdir(ctx, w, &OBJECT_AT(path), true, count_entry, &count, &since);

	return r < 0 ? r : count;
}

static char letter_of(const char *path)
{
	struct open_file *file = NULL;
	char data[8] = "";

	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT(path), O_RDONLY, &file, &seen));
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK_RC(0, workspace_close(&context, file));
	return data[0];
}

static void unwatch(struct workspace *of, const char *path, struct object_id id)
{
	workspace_unwatch(of, &(struct object_ref){.path = path, .id = id});
}

/* ---- Content -------------------------------------------------------------------------------- */

static void write_b_within_the_tick(void)
{
	place_set_letter('b');
	place_tell("d/a");
	place_time_passes();
	place_tell("d/a");
}

static void test_content_that_came_late_is_not_that_of_a_change_in_the_same_tick(void)
{
	for (int i = 0; i < REPLIES_MAX; i++) {
		setup();
		place_set_size("d/a", 4);
		place_set_letter('a');
		place_lose();
		do_at_reply(i, write_b_within_the_tick);
		CHECK_RC(1, count_of(&context, ""));
		cached_quiesce(w);
		if (before_it_arrives) /* there were fewer replies */
			write_b_within_the_tick();
		CHECK_RC('b', letter_of("d/a"));
		teardown();
	}
}

static void test_content_stays_when_times_are_set(void)
{
	const struct attributes want = {.mtime = {.tv_sec = 1000}};

	setup();
	place_set_size("d/a", 4);
	place_tell("d/a");
	CHECK(letter_of("d/a") != 'x');
	place_time_passes();
	place_tell("d/a");
	letter_of("d/a");
	place_opens();
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_AT("d/a"), SET_MTIME, &want, &seen));
	letter_of("d/a");
	CHECK_RC(0, place_opens());
	teardown();
}

static void test_a_new_file_whose_times_were_set_is_known(void)
{
	const struct attributes want = {.mtime = {.tv_sec = 1000}};
	struct open_file *file = NULL;

	setup();
	CHECK_RC(0, workspace_create(&context, w, "d/new", O_RDWR, 0644, &file, &seen));
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_OF(file), SET_MTIME, &want, &seen));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, workspace_close(&context, file));
	place_looks();
	CHECK_RC(0, look("d/new"));
	CHECK_RC(1000, seen.mtime.tv_sec);
	CHECK_RC(0, place_looks());
	teardown();
}

static uint64_t content_bytes(void)
{
	struct cached_stats stats;

	cached_statistics(w, &stats);
	return stats.content_bytes;
}

static void test_content_of_what_is_removed_goes_at_once(void)
{
	struct open_file *file = NULL;
	uint64_t before;

	setup();
	before = content_bytes();
	CHECK_RC(0, workspace_create(&context, w, "d/new", O_RDWR, 0644, &file, &seen));
	CHECK_RC(4, workspace_write(&context, file, "data", 4, 0));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK(content_bytes() > before);
	CHECK_RC(0, workspace_unlink(&context, w, "d/new", NULL));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(before, content_bytes());
	teardown();
}

/* ---- Watches -------------------------------------------------------------------------------- */

static void remove_s(void)
{
	place_remove("d/s");
	place_tell("d/s");
}

static void test_a_directory_that_vanishes_does_not_fail_the_scan_around_it(void)
{
	for (int i = 0; i < REPLIES_MAX; i++) {
		setup();
		place_make("d/s", S_IFDIR | 0755);
		place_lose();
		do_at_reply(i, remove_s);
		CHECK_RC(1, count_of(&context, ""));
		teardown();
	}
}

static int count_scanned(void *user, const struct dir_entry *entry)
{
	unsigned *directories = user; /* that were read */

	*directories += entry->complete;
	return 0;
}

static unsigned scan_all(const char *path)
{
	const struct scan_request request = {.entries_max = 1000};
	unsigned directories = 0;

	CHECK_RC(0, workspace_scan(
			    &context, w, &OBJECT_AT(path), &request, count_scanned, &directories));
	return directories;
}

/* As with a bind mount.  By that way it may hold other names than by its own. */
static void test_a_scan_does_not_read_a_directory_below_itself(void)
{
	setup();
	place_make("d/b", S_IFDIR | 0755);
	place_link("d", "d/b/self");
	place_lose();
	CHECK_RC(3, scan_all(""));
	CHECK_RC(2, scan_all("d"));
	CHECK_RC(1, scan_all("d/b"));
	CHECK_RC(0, scan_all("d/b/self"));
	CHECK_RC(0, scan_all("d/b/self/b"));
	teardown();
}

/* The kernel forgets it, and somebody lists it. */
static void forget_and_list(void)
{
	struct op_context ctx;

	op_context_init(&ctx);
	unwatch(w, "d/s", place_id("d/s"));
	CHECK_RC(0, count_of(&ctx, "d/s"));
}

static void test_a_watch_that_ends_and_begins_during_a_scan_is_known_as_it_is(void)
{
	for (int i = 0; i < REPLIES_MAX; i++) {
		setup();
		place_make("d/s", S_IFDIR | 0755);
		place_lose();
		do_at_reply(i, forget_and_list);
		count_of(&context, "d");
		cached_quiesce(w);
		place_make("d/s/x", S_IFREG | 0644);
		if (place_is_watched("d/s"))
			place_tell("d/s/x");
		CHECK_RC(0, look("d/s/x"));
		teardown();
	}
}

/* The kernel forgets what it had there; another one is there by now. */
static void test_an_unwatched_directory_is_the_one_with_that_id(void)
{
	struct object_id gone;

	setup();
	place_make("d/s", S_IFDIR | 0755);
	place_make("d/t", S_IFDIR | 0755);
	place_lose();
	CHECK_RC(0, count_of(&context, "d/s"));
	CHECK_RC(0, count_of(&context, "d/t"));
	cached_quiesce(w);
	gone = place_id("d/s");
	place_move("d/s", "d/u");
	place_move("d/t", "d/s");
	place_tell("d/u");
	place_tell("d/s");
	place_tell("d/t");
	unwatch(w, "d/s", gone);
	place_make("d/s/x", S_IFREG | 0644);
	told = 0;
	place_tell("d/s/x");
	CHECK_RC(1, told);
	CHECK_RC(0, look("d/s/x"));
	teardown();
}

/* ---- Extended attributes --------------------------------------------------------------------- */

/* The kernel asks for it before it writes. */
static void check_no_capability(struct open_file *file)
{
	char value[8];

	CHECK_RC(-ENODATA, workspace_getxattr(&context, w, &OBJECT_OF(file), "security.capability",
				   value, sizeof(value)));
	CHECK_RC(0, place_looks());
}

static void tell_of_new(void)
{
	place_tell("d/new");
}

static void test_what_is_made_has_no_capability_though_its_event_is_quicker(void)
{
	struct open_file *file = NULL;

	setup();
	before_it_arrives = tell_of_new;
	CHECK_RC(0, workspace_create(&context, w, "d/new", O_RDWR, 0644, &file, &seen));
	check_no_capability(file);
	CHECK_RC(4, workspace_write(&context, file, "data", 4, 0));
	check_no_capability(file);
	CHECK_RC(0, workspace_flush(&context, file));
	place_tell("d/new");
	check_no_capability(file);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_others_may_give_it_a_capability(void)
{
	struct open_file *file = NULL;
	char value[8];

	setup();
	CHECK_RC(0, workspace_create(&context, w, "d/new", O_RDWR, 0644, &file, &seen));
	place_set_ctime("d/new", 1000);
	place_tell("d/new");
	CHECK_RC(-ENODATA, workspace_getxattr(&context, w, &OBJECT_OF(file), "security.capability",
				   value, sizeof(value)));
	CHECK_RC(1, place_looks());
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* ---- Positions ------------------------------------------------------------------------------ */

static void test_what_the_hundredth_helper_tells_counts(void)
{
	struct change change;

	setup();
	place_set_size("d/a", 5);
	change = place_event("d/a");
	change.at += (uint64_t)100 << 42;
	place_deliver(&change);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(5, seen.size_bytes);
	CHECK_RC(0, place_looks());
	teardown();
}

static void remove_another(void)
{
	place_remove("d/a");
	place_tell("d/a");
}

static void test_what_is_made_is_known_though_the_event_of_a_removal_is_quicker(void)
{
	struct open_file *file = NULL;

	setup();
	before_it_arrives = remove_another;
	CHECK_RC(0, workspace_create(&context, w, "d/new", O_RDWR, 0644, &file, &seen));
	CHECK_RC(0, look("d/new"));
	CHECK_RC(0, place_looks());
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* ---- Replies without facts ------------------------------------------------------------------- */

static struct workspace_ops silent_ops;
static const struct workspace_ops *telling_ops;

static int refused_scan(struct op_context *ctx, struct workspace *place,
	const struct object_ref *directory, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	(void)ctx, (void)place, (void)directory, (void)request, (void)sink, (void)user;
	return -EACCES;
}

static int untold_link(struct op_context *ctx, struct workspace *place,
	const struct object_ref *object, const char *path, struct attributes *ret_attributes)
{
	int r = telling_ops->link(ctx, place, object, path, ret_attributes);

	if (ctx->facts)
		*ctx->facts = (struct facts){0};
	return r;
}

/* It knows the directory by its id only: no look has told where it is. */
static void test_a_name_is_made_in_a_directory_that_is_known_by_its_id(void)
{
	static const struct cached_options options = {.ttl_ms = 60000};
	struct object_ref object = {.path = "new/file"};
	struct workspace *place = place_new();

	op_context_init(&context);
	telling_ops = place->ops;
	silent_ops = *telling_ops;
	silent_ops.scan = refused_scan;
	silent_ops.link = untold_link;
	place->ops = &silent_ops;
	place_make("new", S_IFDIR | 0755);
	place_make("file", S_IFREG | 0644);
	CHECK_RC(0, cached_new(place, &options, &w));
	CHECK_RC(0, look(""));
	object.parent = place_id("new");
	CHECK_RC(-ENOENT, workspace_getattr(&context, w, &object, &seen));
	context.new_parent = object.parent;
	CHECK_RC(0, workspace_link(&context, w, &OBJECT_AT("file"), "new/file", &seen));
	CHECK_RC(0, look("new"));
	CHECK_RC(0, workspace_getattr(&context, w, &object, &seen));
	teardown();
}

TEST_MAIN("cached_kept", TEST(test_content_that_came_late_is_not_that_of_a_change_in_the_same_tick),
	TEST(test_content_stays_when_times_are_set),
	TEST(test_a_new_file_whose_times_were_set_is_known),
	TEST(test_content_of_what_is_removed_goes_at_once),
	TEST(test_a_directory_that_vanishes_does_not_fail_the_scan_around_it),
	TEST(test_a_scan_does_not_read_a_directory_below_itself),
	TEST(test_a_watch_that_ends_and_begins_during_a_scan_is_known_as_it_is),
	TEST(test_an_unwatched_directory_is_the_one_with_that_id),
	TEST(test_what_is_made_has_no_capability_though_its_event_is_quicker),
	TEST(test_others_may_give_it_a_capability),
	TEST(test_what_the_hundredth_helper_tells_counts),
	TEST(test_what_is_made_is_known_though_the_event_of_a_removal_is_quicker),
	TEST(test_a_name_is_made_in_a_directory_that_is_known_by_its_id))
