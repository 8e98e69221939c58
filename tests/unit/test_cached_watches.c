/* What the cached decorator believes to be watched, and what it has the place watch: a place of
 * many directories, d1 to d99, and perhaps as many in each of them. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "ops/cache/cached.h"
#include "ops/support/cleanup.h"
#include "ops/support/position.h"
#include "tests/check.h"
#include "tests/no_memory.h"
#include "tests/unit/place.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next one */
static bool is_watched_there[100][100];                  /* "", dN and dN/dM, at N and M */
static bool is_deep;                                     /* in each directory there are as many */
static change_sink place_sink;
static void *place_user;
static void (*while_scanning)(void); /* once d5 is watched, before that is told */
static void (*while_listing)(void);  /* once "new" is watched, before what is in it is told; once */

static struct workspace *w;
static struct op_context context;
static struct attributes ignored;
static atomic_uint told_of_watches;
static atomic_bool told_of_d1;

/* ---- The place --------------------------------------------------------------------- */

enum { NEW = 50 };

/* Of "", dN, or dN/dM; of "new". */
static struct attributes directory_at(const char *path)
{
	const char *slash = strchr(path, '/');
	uint64_t inode = *path == 'd' ? 100 * (uint64_t)atoi(path + 1) : 1;

	if (slash)
		inode += (uint64_t)atoi(slash + 2);
	if (*path == 'n')
		inode = NEW;
	return (struct attributes){.id = {.inode = inode}, .mode = S_IFDIR | 0755, .nlink = 2};
}

static bool *watch_of_id(const struct object_id *id)
{
	return &is_watched_there[id->inode / 100][id->inode % 100];
}

static bool *watch_of(const char *path)
{
	const struct attributes directory = directory_at(path);

	return watch_of_id(&directory.id);
}

static unsigned watches(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < sizeof(is_watched_there); i++)
		count += is_watched_there[i / 100][i % 100];
	return count;
}

static int place_getattr(struct op_context *ctx, struct workspace *place,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	(void)place;
	ctx->served.position = position_draw();
	*ret_attributes = directory_at(object->path);
	return 0;
}

static int place_mkdir(struct op_context *ctx, struct workspace *place, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	(void)place;
	(void)mode;
	ctx->served.position = position_draw();
	if (ctx->facts)
		ctx->facts->parent = directory_at("");
	*ret_attributes = directory_at(path);
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
	struct dir_entry entry = {.path = "", .attributes = directory_at("new"), .complete = true};
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
	struct dir_entry entry = {
		.path = "", .attributes = directory_at(scanned->path), .complete = true};
	char name[16], path[32];
	int r = 0;

	(void)ctx;
	(void)place;
	(void)request;
	if (strcmp(scanned->path, "new") == 0)
		return list_new(sink, user);
	snprintf(path, sizeof(path), "%s", scanned->path);
	for (unsigned i = 0; r >= 0 && i < 100; i++) {
		pthread_mutex_lock(&lock);
		*watch_of(path) = true;
		look_at(&entry);
		pthread_mutex_unlock(&lock);
		if (i == 5 && while_scanning)
			while_scanning();
		r = sink(user, &entry);
		snprintf(name, sizeof(name), "d%u", i + 1);
		snprintf(path, sizeof(path), "%s%s%s", scanned->path, *scanned->path ? "/" : "",
			name);
		entry.path = name;
		entry.attributes = directory_at(path);
		entry.complete = !is_deep;
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
	struct change end = {
		.kind = CHANGE_UNWATCHED, .path = directory->path, .directory = directory->id};

	(void)place;
	pthread_mutex_lock(&lock);
	*watch_of_id(&directory->id) = false;
	end.at = position_draw();
	pthread_mutex_unlock(&lock);
	place_sink(place_user, &end);
}

static const struct workspace_ops place_ops = {
	.name = "place",
	.free = unvisited_free,
	.status = place_status,
	.statfs = place_statfs,
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
	if (change->kind == CHANGE_UNWATCHED &&
		change->directory.inode == directory_at("d1").id.inode)
		told_of_d1 = true;
}

static void setup(uint64_t names_max)
{
	static struct workspace place = {&place_ops};
	const struct cached_options options = {.ttl_ms = 1000, .names_max = names_max};

	op_context_init(&context);
	told_of_watches = 0;
	told_of_d1 = false;
	memset(is_watched_there, 0, sizeof(is_watched_there));
	CHECK_RC(0, cached_new(&place, &options, &w));
	CHECK_RC(0, workspace_watch(w, count_change, NULL));
}

static void teardown(void)
{
	while_scanning = NULL;
	is_deep = false;
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

static void unwatch(const char *path)
{
	workspace_unwatch(w, &(struct object_ref){.path = path, .id = directory_at(path).id});
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

enum { NAMES_MAX = 150, KNOWN_MAX = 2 * NAMES_MAX };

/* Whatever else is dropped for it. */
static void look_into(unsigned first, unsigned last)
{
	char path[32];

	for (unsigned i = first; i <= last; i++) {
		snprintf(path, sizeof(path), "d%u/d1", i);
		CHECK_RC(0, look(path));
	}
	cached_quiesce(w);
}

/* What is dropped as it is too much is watched no more; the layer above is told if it listens. */
static void test_what_is_dropped_is_not_watched(void)
{
	setup(NAMES_MAX);
	is_deep = true;
	CHECK(is_watched("d1"));
	look_into(2, 30);
	CHECK(told_of_watches > 100);
	CHECK(watches() <= KNOWN_MAX + 2);
	CHECK(*watch_of("d1") || told_of_d1);
	unwatch("d1");
	look_into(31, 60);
	CHECK(watches() <= KNOWN_MAX + 1);
	teardown();
}

/* Without memory it is not forgotten that they are watched there. */
static void test_what_is_dropped_without_memory_is_not_watched(void)
{
	for (int lasts = 0; lasts < 600; lasts += lasts < 90 ? 1 : 17) {
		setup(NAMES_MAX);
		is_deep = true;
		CHECK(is_watched("d1"));
		memory_ends_after(lasts);
		look("d2/d1");
		look("d3/d1");
		memory_is_back();
		look_into(4, 12);
		CHECK(watches() <= KNOWN_MAX + 4); /* as many as scans that ended so */
		teardown();
	}
}

static void unwatch_d5(void)
{
	unwatch("d5");
}

/* The kernel forgets what nobody here knew any more, and which somebody is reading again. */
static void test_a_watch_that_ends_before_it_is_known_is_not_believed(void)
{
	setup(0);
	while_scanning = unwatch_d5;
	CHECK_RC(0, look("d1"));
	cached_quiesce(w);
	CHECK(is_watched("d4"));
	CHECK(is_watched("d5") == *watch_of("d5"));
	teardown();
}

static void lose_d5(void)
{
	const struct change loss = {.kind = CHANGE_UNWATCHED,
		.path = "d5",
		.directory = {.inode = 500},
		.at = position_draw()};

	*watch_of("d5") = false;
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
	CHECK(is_watched("d5") == *watch_of("d5"));
	teardown();
}

static void tell_of_many(void)
{
	char path[16];
	struct change change = {.kind = CHANGE_ENTRY,
		.path = path,
		.directory = {.inode = 1},
		.exists = true,
		.attributes = {.id = {.inode = 7}, .mode = S_IFREG, .nlink = 1}};

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), i % 2 ? "x%u" : "y%u/z", i);
		change.at = position_draw();
		place_sink(place_user, &change);
	}
}

static uint64_t names_known(void)
{
	struct cached_stats stats;

	cached_statistics(w, &stats);
	return stats.names;
}

/* Whoever tells us may tell us anything. */
static void test_what_the_feed_tells_is_bounded_too(void)
{
	setup(40);
	while_scanning = tell_of_many;
	look("d1");
	cached_quiesce(w);
	CHECK(names_known() <= 80);
	teardown();
}

TEST_MAIN("cached_watches", TEST(test_what_we_made_is_not_watched_before_it_is_listed),
	TEST(test_what_is_dropped_is_not_watched), TEST(test_what_the_feed_tells_is_bounded_too),
	TEST(test_what_is_dropped_without_memory_is_not_watched),
	TEST(test_a_watch_that_ends_before_it_is_known_is_not_believed),
	TEST(test_a_watch_that_is_lost_before_it_is_known_is_not_believed))
