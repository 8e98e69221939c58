/* What the cached decorator believes to be watched, and what it has the place watch: a place of
 * many directories, d1 to d99. */
#include <sys/stat.h>

#include "ops/cached.h"
#include "ops/support/cleanup.h"
#include "ops/support/position.h"
#include "tests/check.h"
#include "tests/no_memory.h"
#include "tests/unit/place.h"

static bool is_watched_there[100]; /* the first is the root */
static change_sink place_sink;
static void *place_user;
static void (*while_scanning)(void); /* once d5 is watched, before that is told */
static void (*while_listing)(void);  /* once "new" is watched, before what is in it is told; once */

static struct workspace *w;
static struct op_context context;
static struct attributes ignored;
static unsigned told_of_watches;

/* ---- The place --------------------------------------------------------------------- */

static const struct attributes any_directory = {
	.id = {.inode = 1}, .mode = S_IFDIR | 0755, .nlink = 2};

static unsigned watches(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < array_size(is_watched_there); i++)
		count += is_watched_there[i];
	return count;
}

static int place_getattr(struct op_context *ctx, struct workspace *place,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	(void)place;
	(void)object;
	ctx->served.position = position_draw();
	*ret_attributes = any_directory;
	return 0;
}

static int place_mkdir(struct op_context *ctx, struct workspace *place, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	(void)place;
	(void)path;
	(void)mode;
	ctx->served.position = position_draw();
	if (ctx->facts)
		ctx->facts->parent = any_directory;
	*ret_attributes = any_directory;
	return 0;
}

/* The entry is looked at now, and was watched before that. */
static void look_at(struct dir_entry *entry)
{
	entry->watched_since = position_draw();
	entry->at = position_draw();
}

/* Somebody else has made "new/x" before it was watched. */
static int list_new(dir_entry_sink sink, void *user)
{
	struct dir_entry entry = {.path = "", .attributes = any_directory, .complete = true};
	void (*run)(void) = while_listing;
	int r;

	look_at(&entry);
	r = sink(user, &entry);
	while_listing = NULL;
	if (run)
		run();
	entry.path = "x";
	entry.attributes.id.inode = 2;
	look_at(&entry);
	r = r < 0 ? r : sink(user, &entry);
	return r < 0 ? r : 0;
}

static int place_scan(struct op_context *ctx, struct workspace *place,
	const struct object_ref *scanned, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct dir_entry entry = {.path = "", .attributes = any_directory, .complete = true};
	char name[16];
	int r = 0;

	(void)ctx;
	(void)place;
	(void)request;
	if (strcmp(scanned->path, "new") == 0)
		return list_new(sink, user);
	for (unsigned i = 0; r >= 0 && i < 100 && !*scanned->path; i++) {
		is_watched_there[i] = true;
		look_at(&entry);
		if (i == 5 && while_scanning)
			while_scanning();
		r = sink(user, &entry);
		snprintf(name, sizeof(name), "d%u", i + 1);
		entry.path = name;
		entry.attributes.id.inode = 100 + i;
	}
	return r < 0 ? r : 0;
}

static int place_watch(struct workspace *place, change_sink sink, void *user)
{
	(void)place;
	place_sink = sink;
	place_user = user;
	return 0;
}

/* And tells of the end, as every place does. */
static void place_unwatch(struct workspace *place, const struct object_ref *directory)
{
	const struct change end = {.kind = CHANGE_UNWATCHED,
		.path = directory->path,
		.directory = directory->id,
		.at = position_draw()};

	(void)place;
	is_watched_there[*directory->path ? atoi(directory->path + 1) : 0] = false;
	place_sink(place_user, &end);
}

static const struct workspace_ops place_ops = {
	.name = "place",
	.free = place_free,
	.status = place_status,
	.getattr = place_getattr,
	.mkdir = place_mkdir,
	.scan = place_scan,
	.watch = place_watch,
	.unwatch = place_unwatch,
};

/* ---- What the tests do ---------------------------------------------------------------- */

static void count_change(void *user, const struct change *change)
{
	(void)user;
	told_of_watches += change->kind == CHANGE_UNWATCHED;
}

static void setup(uint64_t names_max)
{
	static struct workspace place = {&place_ops};
	const struct cached_options options = {.ttl_ms = 1000, .names_max = names_max};

	op_context_init(&context);
	memset(is_watched_there, 0, sizeof(is_watched_there));
	CHECK_RC(0, cached_new(&place, &options, &w));
	CHECK_RC(0, workspace_watch(w, count_change, NULL));
}

static void teardown(void)
{
	while_scanning = NULL;
	workspace_free(w);
}

static int look(const char *path)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), &ignored);
}

static bool is_watched(const char *path)
{
	bool watched = false;

	CHECK_RC(0, workspace_watch_directory(&context, w, &OBJECT_AT(path), &watched));
	return watched;
}

static void unwatch(const char *path, uint64_t number)
{
	workspace_unwatch(w, &(struct object_ref){.path = path, .id = {.inode = number}});
}

static bool new_is_watched;
static int look_in_new;

static void look_while_it_is_listed(void)
{
	struct op_context ctx;
	struct attributes attributes;

	op_context_init(&ctx);
	workspace_watch_directory(&ctx, w, &OBJECT_AT("new"), &new_is_watched);
	look_in_new = workspace_getattr(&ctx, w, &OBJECT_AT("new/x"), &attributes);
}

/* Whoever is told that it is watched believes for long what he hears then. */
static void test_what_we_made_is_not_watched_before_it_is_listed(void)
{
	setup(0);
	while_listing = look_while_it_is_listed;
	CHECK_RC(0, workspace_mkdir(&context, w, "new", 0755, &ignored));
	cached_quiesce(w);
	CHECK(!while_listing);
	CHECK(!new_is_watched || look_in_new == 0);
	CHECK(is_watched("new"));
	teardown();
}

/* What is forgotten as it is too much is watched no more, but where whoever is above listens. */
static void test_what_is_forgotten_is_not_watched(void)
{
	setup(40);
	CHECK_RC(0, look("d1"));
	cached_quiesce(w);
	CHECK(watches() > 40);
	CHECK(is_watched("d1"));
	told_of_watches = 0;
	CHECK_RC(0, look("elsewhere/d1"));
	CHECK(is_watched_there[1]);
	CHECK(watches() <= 2); /* that, and the first directory that was too much */
	CHECK(told_of_watches >= 40);
	unwatch("d1", 100);
	CHECK(!is_watched_there[1]);
	teardown();
}

static void look_elsewhere(void)
{
	CHECK_RC(0, look("elsewhere/d1"));
}

/* Without memory it is not forgotten that they are watched there. */
static void test_what_is_forgotten_without_memory_is_not_watched(void)
{
	for (int lasts = 0; lasts < 90; lasts++) {
		setup(40);
		CHECK_RC(0, look("d1"));
		cached_quiesce(w);
		CHECK(is_watched("d1"));
		memory_ends_after(lasts);
		look("elsewhere/d1");
		memory_is_back();
		look_elsewhere();
		look_elsewhere();
		CHECK(watches() <= 2);
		teardown();
	}
}

static void unwatch_d5(void)
{
	unwatch("d5", 104);
}

/* The kernel forgets what nobody here knew any more, and which somebody is reading again. */
static void test_a_watch_that_ends_before_it_is_known_is_not_believed(void)
{
	setup(0);
	while_scanning = unwatch_d5;
	CHECK_RC(0, look("d1"));
	cached_quiesce(w);
	CHECK(is_watched("d4"));
	CHECK(is_watched("d5") == is_watched_there[5]);
	teardown();
}

static void lose_d5(void)
{
	const struct change loss = {.kind = CHANGE_UNWATCHED,
		.path = "d5",
		.directory = {.inode = 104},
		.at = position_draw()};

	is_watched_there[5] = false;
	place_sink(place_user, &loss);
}

/* Events overtake answers. */
static void test_a_watch_that_is_lost_before_it_is_known_is_not_believed(void)
{
	setup(0);
	while_scanning = lose_d5;
	CHECK_RC(0, look("d1"));
	cached_quiesce(w);
	CHECK(is_watched("d4"));
	CHECK(is_watched("d5") == is_watched_there[5]);
	teardown();
}

static void tell_of_many(void)
{
	char path[16];
	struct change change = {.kind = CHANGE_ENTRY,
		.path = path,
		.directory = any_directory.id,
		.exists = true,
		.attributes = {.id = {.inode = 7}, .mode = S_IFREG, .nlink = 1}};

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), i % 2 ? "x%u" : "y%u/z", i);
		change.at = position_draw();
		place_sink(place_user, &change);
	}
}

/* Whoever tells us may tell us anything. */
static void test_what_the_feed_tells_is_bounded_too(void)
{
	struct cached_stats stats;

	setup(40);
	while_scanning = tell_of_many;
	look("d1");
	cached_quiesce(w);
	cached_statistics(w, &stats);
	CHECK(stats.nodes <= 42);
	teardown();
}

TEST_MAIN("cached_watches", TEST(test_what_we_made_is_not_watched_before_it_is_listed),
	TEST(test_what_is_forgotten_is_not_watched), TEST(test_what_the_feed_tells_is_bounded_too),
	TEST(test_what_is_forgotten_without_memory_is_not_watched),
	TEST(test_a_watch_that_ends_before_it_is_known_is_not_believed),
	TEST(test_a_watch_that_is_lost_before_it_is_known_is_not_believed))
