/* What the cached decorator believes when answers, own changes and events of the feed overtake one
 * another: a place that does what the test says when it says so. */
#include <errno.h>
#include <fcntl.h>
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
	unsigned looks, opens; /* calls of getattr and open */
	char letter;
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
static void (*before_it_is_done)(void), (*before_it_arrives)(void);

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

/* What the feed will say that is at the path now. */
static struct change event_of(const char *path)
{
	struct entry *entry = present(path);
	struct change change = {
		.kind = CHANGE_ENTRY, .path = path, .exists = entry, .looked_ns = ++place.now_ns};

	if (entry)
		change.attributes = entry->attributes;
	return change;
}

static void deliver(const struct change *change)
{
	place.sink(place.sink_user, change);
}

static void tell(const char *path)
{
	struct change change = event_of(path);

	deliver(&change);
}

/* What the test does once the place has done its work, before it is done with the call, or before
 * the answer is here; once. */
static void run_once(void (**hook)(void))
{
	void (*run)(void) = *hook;

	*hook = NULL;
	if (run)
		run();
}

static void begin(struct op_context *ctx)
{
	ctx->served.began_ns = ++place.now_ns;
}

static int reply(struct op_context *ctx, int r)
{
	uint64_t began_ns = ctx->served.began_ns;

	run_once(&before_it_is_done);
	ctx->served.began_ns = began_ns;
	ctx->served.done_ns = ++place.now_ns;
	run_once(&before_it_arrives);
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
	begin(ctx);
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
	begin(ctx);
	for (size_t i = 1; r >= 0 && i < ENTRIES; i++) {
		const struct entry *entry = &place.entries[i];
		size_t parent = path_parent_length(entry->path);
		struct dir_entry listed = {.path = path_name(entry->path),
			.attributes = entry->attributes,
			.looked_ns = ctx->served.began_ns};

		if (entry->exists && strlen(directory->path) == parent &&
			memcmp(directory->path, entry->path, parent) == 0)
			r = sink(user, &listed);
	}
	*ret_watched = watch;
	return reply(ctx, r < 0 ? r : 0);
}

static int place_open(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	const struct entry *entry = present(object->path);

	(void)flags;
	begin(ctx);
	place.opens++;
	*ret_file = calloc(1, sizeof(**ret_file));
	(*ret_file)->workspace = workspace;
	*ret_attributes = entry->attributes;
	return reply(ctx, 0);
}

/* As many of one letter as the only file with content is long. */
static ssize_t place_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	size_t length = present("d/a")->attributes.size_bytes;

	(void)file;
	(void)offset;
	begin(ctx);
	size = size < length ? size : length;
	memset(data, place.letter, size);
	reply(ctx, 0);
	return (ssize_t)size;
}

/* It arrives when it is flushed. */
static ssize_t place_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	(void)ctx;
	(void)file;
	(void)data;
	(void)offset;
	return (ssize_t)size;
}

static int place_flush(struct op_context *ctx, struct open_file *file)
{
	(void)file;
	begin(ctx);
	change_size("d/a", 4);
	return reply(ctx, 0);
}

static int place_close(struct op_context *ctx, struct open_file *file)
{
	(void)ctx;
	free(file);
	return 0;
}

static int place_mkdir(struct op_context *ctx, struct workspace *workspace, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	(void)workspace;
	begin(ctx);
	*ret_attributes = make(path, S_IFDIR | mode)->attributes;
	return reply(ctx, 0);
}

static int place_setattr(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	struct entry *entry = present(object->path);

	(void)workspace;
	(void)mask;
	begin(ctx);
	entry->attributes.size_bytes = want->size_bytes;
	*ret_attributes = entry->attributes;
	return reply(ctx, 0);
}

static int place_unlink(struct op_context *ctx, struct workspace *workspace, const char *path,
	const struct object_id *expected)
{
	struct entry *entry = present(path);

	(void)workspace;
	(void)expected;
	begin(ctx);
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
	.read = place_read,
	.write = place_write,
	.flush = place_flush,
	.close = place_close,
	.mkdir = place_mkdir,
	.setattr = place_setattr,
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

static void set_size(uint64_t size)
{
	struct attributes want = {.size_bytes = size}, ignored;
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_setattr(&ctx, w, &OBJECT_AT("d/a"), SET_SIZE, &want, &ignored));
}

static void set_size_7(void)
{
	set_size(7);
}

static void test_an_event_from_before_an_own_change_is_not_believed(void)
{
	struct change early;

	setup();
	change_size("d/a", 5);
	early = event_of("d/a");
	set_size(7);
	deliver(&early);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(7, seen.size_bytes);
	CHECK_RC(0, place.looks);
	teardown();
}

/* Whatever its times say: clocks of file systems are set back. */
static void test_an_event_from_after_an_own_change_is_believed_at_once(void)
{
	setup();
	present("d/a")->attributes.ctime.tv_sec = 1000;
	set_size(7);
	present("d/a")->attributes.ctime.tv_sec = 500;
	change_size("d/a", 9);
	tell("d/a");
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(0, place.looks);
	teardown();
}

static void grow_unseen(void)
{
	change_size("d/a", 9);
	tell("d/a");
}

static void test_an_event_from_while_an_own_change_was_made_makes_us_ask(void)
{
	setup();
	before_it_is_done = grow_unseen;
	set_size(7);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(1, place.looks);
	teardown();
}

static int watch_it(const char *path, bool *ret_watched)
{
	return workspace_watch_directory(&context, w, &OBJECT_AT(path), ret_watched);
}

static void change_the_directory(void)
{
	change_size("d/s", 9);
	tell("d/s");
}

static void test_what_is_doubtful_is_asked_for_when_it_is_to_be_watched(void)
{
	struct attributes want = {.size_bytes = 7}, ignored;
	bool watched = false;

	setup();
	before_it_is_done = grow_unseen;
	set_size(7);
	CHECK_RC(-ENOTDIR, watch_it("d/a", &watched));
	make("d/s", S_IFDIR | 0755);
	tell("d/s");
	before_it_is_done = change_the_directory;
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_AT("d/s"), SET_SIZE, &want, &ignored));
	CHECK_RC(0, watch_it("d/s", &watched));
	CHECK(watched);
	teardown();
}

static void test_an_event_that_is_quicker_than_our_answer_counts(void)
{
	setup();
	before_it_arrives = grow_unseen;
	set_size(7);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(0, place.looks);
	teardown();
}

static void test_an_answer_from_before_an_own_change_is_not_believed(void)
{
	setup();
	workspace_unlink(&context, w, "d/none", NULL); /* so that nobody knows */
	present("d/a")->exists = false;
	workspace_unlink(&context, w, "d/a", NULL);
	make("d/a", S_IFREG | 0600);
	before_it_arrives = set_size_7;
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0, seen.size_bytes);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(7, seen.size_bytes);
	teardown();
}

static void make_directory(void)
{
	struct op_context ctx;
	struct attributes ignored;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_mkdir(&ctx, w, "d/new", 0755, &ignored));
}

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(unsigned *)user;
	return 0;
}

static void test_a_listing_from_before_an_own_change_takes_nothing_away(void)
{
	static const struct change loss = {.kind = CHANGE_RESCAN, .path = ""};
	unsigned count = 0;
	bool watched;

	setup();
	deliver(&loss);
	before_it_arrives = make_directory;
	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT("d"), true, ignore_entry, &count, &watched));
	cached_quiesce(w);
	CHECK_RC(0, look("d/new"));
	teardown();
}

static void remove_made(void)
{
	present("d/new")->exists = false;
	tell("d/new");
}

static void test_what_we_made_may_be_gone_before_we_hear_that_it_is_made(void)
{
	setup();
	before_it_is_done = remove_made;
	make_directory();
	CHECK_RC(-ENOENT, look("d/new"));
	cached_quiesce(w); /* what the look set off is no answer to what follows */
	before_it_arrives = remove_made;
	make_directory();
	CHECK_RC(-ENOENT, look("d/new"));
	CHECK_RC(2, told);
	teardown();
}

static void check_content(char letter, unsigned opens)
{
	struct open_file *file = NULL;
	char data[8] = "";

	place.opens = 0;
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), 0, &file, &seen));
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK_RC(letter, data[0]);
	CHECK_RC(0, workspace_close(&context, file));
	cached_quiesce(w);
	CHECK_RC(opens, place.opens);
}

/* Two changes within a tick of the place's file system look the same. */
static void test_content_is_as_old_as_the_look_at_it(void)
{
	struct change early, late;

	setup();
	change_size("d/a", 4);
	tell("d/a");
	place.letter = 'a';
	early = event_of("d/a");
	check_content('a', 1);
	check_content('a', 0);
	deliver(&early);
	check_content('a', 0);
	place.letter = 'b';
	late = event_of("d/a");
	deliver(&late);
	check_content('b', 1);
	teardown();
}

/* The place has never seen the handle, and would find another there. */
static void test_who_has_what_was_replaced_does_not_ask_for_it(void)
{
	struct open_file *file = NULL;
	char data[8] = "";

	setup();
	change_size("d/a", 4);
	tell("d/a");
	place.letter = 'a';
	check_content('a', 1);
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), 0, &file, &seen));
	present("d/a")->attributes.id.inode = ++place.next_inode;
	tell("d/a");
	place.letter = 'b';
	place.opens = place.looks = 0;
	CHECK_RC(0, workspace_getattr(&context, w, &OBJECT_OF(file), &seen));
	CHECK_RC(0, seen.nlink);
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK_RC('a', data[0]);
	CHECK_RC(0, place.opens + place.looks);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* Whoever moves a file away and back has us lose sight of the handle. */
static void test_a_look_from_before_a_write_is_not_believed_after_it(void)
{
	struct open_file *file = NULL;
	struct entry *entry;

	setup();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &file, &seen));
	entry = present("d/a");
	entry->exists = false;
	tell("d/a");
	CHECK_RC(4, workspace_write(&context, file, "data", 4, 0));
	entry->exists = true;
	tell("d/a");
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(4, seen.size_bytes);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_what_is_learnt_after_a_loss_is_known(void)
{
	static const struct change loss = {.kind = CHANGE_RESCAN, .path = ""};

	setup();
	deliver(&loss);
	CHECK_RC(0, look("d"));
	cached_quiesce(w);
	CHECK_RC(0, look("d/a"));
	cached_quiesce(w);
	place.looks = 0;
	CHECK_RC(0, look("d"));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0, place.looks);
	teardown();
}

TEST_MAIN("cached_order", TEST(test_a_removal_that_a_look_saw_first_is_news),
	TEST(test_the_echo_of_an_own_removal_is_no_news),
	TEST(test_what_others_do_shows_without_a_look),
	TEST(test_an_event_from_before_an_own_change_is_not_believed),
	TEST(test_an_event_from_after_an_own_change_is_believed_at_once),
	TEST(test_an_event_from_while_an_own_change_was_made_makes_us_ask),
	TEST(test_what_is_doubtful_is_asked_for_when_it_is_to_be_watched),
	TEST(test_an_event_that_is_quicker_than_our_answer_counts),
	TEST(test_an_answer_from_before_an_own_change_is_not_believed),
	TEST(test_a_listing_from_before_an_own_change_takes_nothing_away),
	TEST(test_what_we_made_may_be_gone_before_we_hear_that_it_is_made),
	TEST(test_content_is_as_old_as_the_look_at_it),
	TEST(test_who_has_what_was_replaced_does_not_ask_for_it),
	TEST(test_a_look_from_before_a_write_is_not_believed_after_it),
	TEST(test_what_is_learnt_after_a_loss_is_known))
