/* What the cached decorator believes when answers, own changes and events of the feed overtake one
 * another: a place that does what the test says when it says so. */
#include <errno.h>
#include <sys/stat.h>

#include "ops/cached.h"
#include "ops/support/path.h"
#include "tests/check.h"

enum { ENTRIES = 16 };

static struct place {
	struct workspace base;
	change_sink sink;
	void *sink_user;
	uint64_t now_ns, next_inode;
	unsigned looks; /* getattr calls */
	struct entry {
		char path[16];
		bool exists;
		struct attributes attributes;
	} entries[ENTRIES]; /* the first is the root */
} place;

static struct workspace *w;
static struct op_context context;
static struct attributes seen;
static unsigned told; /* events that the cache passed on */

/* ---- The place --------------------------------------------------------------------- */

static struct entry *entry_at(const char *path)
{
	for (size_t i = 0; i < ENTRIES; i++)
		if (place.entries[i].attributes.mode && strcmp(place.entries[i].path, path) == 0)
			return &place.entries[i];
	return NULL;
}

static struct entry *present(const char *path)
{
	struct entry *entry = entry_at(path);

	return entry && entry->exists ? entry : NULL;
}

static struct entry *make(const char *path, uint32_t mode)
{
	struct entry *entry = entry_at(path);

	for (size_t i = 0; !entry; i++)
		if (!place.entries[i].attributes.mode)
			entry = &place.entries[i];
	snprintf(entry->path, sizeof(entry->path), "%s", path);
	entry->exists = true;
	entry->attributes = (struct attributes){
		.id = {.inode = ++place.next_inode}, .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1};
	return entry;
}

static void change_size(const char *path, uint64_t size)
{
	struct entry *entry = present(path);

	entry->attributes.size_bytes = size;
}

/* The feed says what is at the path now. */
static void tell(const char *path)
{
	struct entry *entry = present(path);
	struct change change = {
		.kind = CHANGE_ENTRY, .path = path, .exists = entry, .looked_ns = ++place.now_ns};

	if (entry)
		change.attributes = entry->attributes;
	place.sink(place.sink_user, &change);
}

static int reply(struct op_context *ctx, int r)
{
	ctx->served.done_ns = ++place.now_ns;
	return r;
}

static void place_free(struct workspace *workspace)
{
	(void)workspace;
}

static void place_status(struct workspace *workspace, struct workspace_status *ret_status)
{
	(void)workspace;
	*ret_status = (struct workspace_status){.link = LINK_ONLINE};
}

static int place_getattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	const struct entry *entry = present(object->path);

	(void)workspace;
	place.looks++;
	if (!entry)
		return reply(ctx, -ENOENT);
	*ret_attributes = entry->attributes;
	return reply(ctx, 0);
}

static int place_readdir(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	bool *ret_watched)
{
	int r = 0;

	(void)workspace;
	for (size_t i = 1; r >= 0 && i < ENTRIES; i++) {
		const struct entry *entry = &place.entries[i];
		size_t parent = path_parent_length(entry->path);
		struct dir_entry listed = {
			.path = path_name(entry->path), .attributes = entry->attributes};

		if (entry->exists && strlen(directory->path) == parent &&
			memcmp(directory->path, entry->path, parent) == 0)
			r = sink(user, &listed);
	}
	*ret_watched = watch;
	return reply(ctx, r < 0 ? r : 0);
}

/* Nobody gets at content. */
static int place_open(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	(void)workspace;
	(void)object;
	(void)flags;
	(void)ret_file;
	(void)ret_attributes;
	return reply(ctx, -EACCES);
}

static int place_unlink(struct op_context *ctx, struct workspace *workspace, const char *path,
	const struct object_id *expected)
{
	struct entry *entry = present(path);

	(void)workspace;
	(void)expected;
	if (!entry)
		return reply(ctx, -ENOENT);
	entry->exists = false;
	return reply(ctx, 0);
}

static int place_watch(struct workspace *workspace, change_sink sink, void *user)
{
	(void)workspace;
	place.sink = sink;
	place.sink_user = user;
	return 0;
}

static const struct workspace_ops place_ops = {
	.name = "place",
	.free = place_free,
	.status = place_status,
	.getattr = place_getattr,
	.readdir = place_readdir,
	.open = place_open,
	.unlink = place_unlink,
	.watch = place_watch,
};

/* ---- What the tests do ---------------------------------------------------------------- */

static void count_told(void *user, const struct change *change)
{
	(void)user;
	(void)change;
	told++;
}

static int look(const char *path)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), &seen);
}

/* With the directory "d", which is known and watched. */
static void setup(void)
{
	static const struct cached_options options = {.ttl_ms = 1000};

	place = (struct place){.base = {&place_ops}};
	op_context_init(&context);
	make("", S_IFDIR | 0755);
	make("d", S_IFDIR | 0755);
	make("d/a", S_IFREG | 0644);
	CHECK_RC(0, cached_new(&place.base, &options, &w));
	CHECK_RC(0, workspace_watch(w, count_told, NULL));
	CHECK_RC(0, look("d"));
	CHECK_RC(0, look("d/a"));
	cached_quiesce(w);
	told = place.looks = 0;
}

static void teardown(void)
{
	workspace_free(w);
}

/* Who was told by the look need not be the only one who believes in the name. */
static void test_a_removal_that_a_look_saw_first_is_news(void)
{
	setup();
	present("d/a")->exists = false;
	CHECK_RC(-ENOENT, workspace_unlink(&context, w, "d/a", NULL));
	CHECK_RC(-ENOENT, look("d/a"));
	tell("d/a");
	CHECK_RC(1, told);
	CHECK_RC(-ENOENT, look("d/a"));
	teardown();
}

static void test_the_echo_of_an_own_removal_is_no_news(void)
{
	setup();
	CHECK_RC(0, workspace_unlink(&context, w, "d/a", NULL));
	tell("d/a");
	CHECK_RC(0, told);
	CHECK_RC(-ENOENT, look("d/a"));
	teardown();
}

static void test_what_others_do_shows_without_a_look(void)
{
	setup();
	change_size("d/a", 5);
	tell("d/a");
	CHECK_RC(0, look("d/a"));
	CHECK_RC(5, seen.size_bytes);
	CHECK_RC(0, place.looks);
	CHECK_RC(1, told);
	teardown();
}

TEST_MAIN("cached_order", TEST(test_a_removal_that_a_look_saw_first_is_news),
	TEST(test_the_echo_of_an_own_removal_is_no_news),
	TEST(test_what_others_do_shows_without_a_look))
