/* What the cached decorator believes when answers, own changes and events of the feed overtake one
 * another. */
#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tests/check.h"
#include "tests/unit/scripted_cached.h"

struct listed {
	const char *name;
	time_t ctime;
};

static int take_ctime(void *user, const struct dir_entry *entry)
{
	struct listed *listed = user;

	if (strcmp(entry->path, listed->name) == 0)
		listed->ctime = entry->attributes.ctime.tv_sec;
	return 0;
}

static time_t ctime_listed(const char *directory, const char *name)
{
	struct listed listed = {.name = name};
	uint64_t since;

	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT(directory), true, take_ctime, &listed, &since));
	return listed.ctime;
}

/* Who was told by the look need not be the only one who believes in the name. */
static void test_a_removal_that_a_look_saw_first_is_news(void)
{
	setup();
	place_remove("d/a");
	CHECK_RC(-ENOENT, workspace_unlink(&context, w, "d/a", NULL));
	CHECK_RC(-ENOENT, look("d/a"));
	place_tell("d/a");
	CHECK_RC(1, told);
	CHECK_RC(-ENOENT, look("d/a"));
	teardown();
}

static void test_the_echo_of_an_own_removal_changes_nothing(void)
{
	setup();
	CHECK_RC(0, workspace_unlink(&context, w, "d/a", NULL));
	place_tell("d/a");
	CHECK_RC(-ENOENT, look("d/a"));
	CHECK_RC(0, place_looks());
	teardown();
}

static void test_what_others_do_shows_without_a_look(void)
{
	setup();
	place_set_size("d/a", 5);
	place_tell("d/a");
	CHECK_RC(0, look("d/a"));
	CHECK_RC(5, seen.size_bytes);
	CHECK_RC(0, place_looks());
	CHECK_RC(1, told);
	teardown();
}

/* The tree has no room for it. */
static void test_a_time_too_far_away_is_asked_for(void)
{
	const time_t far = (time_t)1 << 40;

	setup();
	place_set_ctime("d/a", far);
	place_tell("d/a");
	for (int i = 0; i < 2; i++) {
		CHECK_RC(0, look("d/a"));
		CHECK_RC(far, seen.ctime.tv_sec);
		CHECK_RC(1, place_looks());
	}
	CHECK_RC(far, ctime_listed("d", "a"));
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
	struct change older;

	setup();
	place_set_size("d/a", 5);
	older = place_event("d/a");
	set_size(7);
	place_deliver(&older);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(7, seen.size_bytes);
	CHECK_RC(0, place_looks());
	teardown();
}

/* Whatever its times say: clocks of file systems are set back. */
static void test_an_event_from_after_an_own_change_is_believed_at_once(void)
{
	setup();
	place_set_ctime("d/a", 1000);
	set_size(7);
	place_set_ctime("d/a", 500);
	place_set_size("d/a", 9);
	place_tell("d/a");
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(0, place_looks());
	teardown();
}

static void grow_unseen(void)
{
	place_set_size("d/a", 9);
	place_tell("d/a");
}

static void test_what_an_own_change_left_counts_against_an_event_from_before_that_look(void)
{
	setup();
	before_it_looks = grow_unseen;
	set_size(7);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(0, place_looks());
	teardown();
}

static int watch_it(const char *path, bool *ret_watched)
{
	return workspace_watch_directory(&context, w, &OBJECT_AT(path), ret_watched);
}

static void change_the_directory(void)
{
	place_set_size("d/s", 9);
	place_tell("d/s");
}

static void test_what_is_stale_is_asked_for_when_it_is_to_be_watched(void)
{
	struct attributes want = {.size_bytes = 7}, ignored;
	bool watched = false;

	setup();
	before_it_looks = grow_unseen;
	set_size(7);
	CHECK_RC(-ENOTDIR, watch_it("d/a", &watched));
	place_make("d/s", S_IFDIR | 0755);
	place_tell("d/s");
	before_it_looks = change_the_directory;
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_AT("d/s"), SET_SIZE, &want, &ignored));
	CHECK_RC(0, watch_it("d/s", &watched));
	CHECK(watched);
	teardown();
}

/* The kernel knows "d/s" all the same. */
static void test_what_is_in_unknown_directories_can_be_watched(void)
{
	struct object_ref object = {.path = "d/s"};
	bool watched = false;

	setup();
	place_make("d/s", S_IFDIR | 0755);
	place_tell("d/s");
	CHECK_RC(0, look("d/s"));
	object.id = seen.id;
	place_lose();
	CHECK_RC(0, workspace_watch_directory(&context, w, &object, &watched));
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
	CHECK_RC(0, place_looks());
	teardown();
}

static void test_an_answer_from_before_an_own_change_is_not_believed(void)
{
	setup();
	workspace_unlink(&context, w, "d/none", NULL); /* so that nobody knows */
	place_remove("d/a");
	workspace_unlink(&context, w, "d/a", NULL);
	place_make("d/a", S_IFREG | 0600);
	before_it_arrives = set_size_7;
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0, seen.size_bytes);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(7, seen.size_bytes);
	teardown();
}

static struct open_file *written;

static void write_and_flush(void)
{
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(4, workspace_write(&ctx, written, "data", 4, 4));
	CHECK_RC(0, workspace_flush(&ctx, written));
}

static void test_an_answer_from_before_a_flush_is_not_believed(void)
{
	setup();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &written, &seen));
	CHECK_RC(4, workspace_write(&context, written, "data", 4, 0));
	before_it_arrives = write_and_flush;
	CHECK_RC(0, look("d/a"));
	CHECK_RC(4, seen.size_bytes);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(8, seen.size_bytes);
	CHECK_RC(0, workspace_close(&context, written));
	teardown();
}

static void remove_and_tell(void)
{
	place_remove("d/a");
	place_tell("d/a");
}

static void test_an_answer_that_an_event_overtook_is_not_believed(void)
{
	setup();
	place_make("d/b", S_IFREG | 0644);
	CHECK_RC(-EEXIST, /* so that nobody knows what is there */
		workspace_rename(&context, w, "d/b", "d/a", RENAME_KEEP_TARGET, NULL));
	before_it_arrives = remove_and_tell;
	CHECK_RC(0, look("d/a"));
	CHECK_RC(-ENOENT, look("d/a"));
	teardown();
}

static void test_an_event_from_before_an_own_removal_brings_nothing_back(void)
{
	struct change older;

	setup();
	older = place_event("d/a");
	CHECK_RC(0, workspace_unlink(&context, w, "d/a", NULL));
	place_deliver(&older);
	CHECK_RC(-ENOENT, look("d/a"));
	CHECK_RC(0, place_looks());
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
	unsigned count = 0;
	uint64_t since;

	setup();
	place_lose();
	before_it_arrives = make_directory;
	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT("d"), true, ignore_entry, &count, &since));
	cached_quiesce(w);
	CHECK_RC(0, look("d/new"));
	teardown();
}

static void remove_made(void)
{
	place_remove("d/new");
	place_tell("d/new");
}

static void test_what_we_made_may_be_gone_before_we_hear_that_it_is_made(void)
{
	setup();
	before_it_looks = remove_made;
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

	place_opens();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), 0, &file, &seen));
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK_RC(letter, data[0]);
	CHECK_RC(0, workspace_close(&context, file));
	cached_quiesce(w);
	CHECK_RC(opens, place_opens());
}

/* Two changes within a tick of the place's file system look the same. */
static void test_content_is_as_old_as_the_look_at_it(void)
{
	struct change older, late;

	setup();
	place_set_size("d/a", 4);
	place_tell("d/a");
	place_set_letter('a');
	older = place_event("d/a");
	check_content('a', 1);
	check_content('a', 0);
	place_deliver(&older);
	check_content('a', 0);
	place_set_letter('b');
	late = place_event("d/a");
	place_deliver(&late);
	check_content('b', 1);
	teardown();
}

/* The place has never seen the handle, and would find another there. */
static void test_who_has_what_was_replaced_does_not_ask_for_it(void)
{
	struct open_file *file = NULL;
	char data[8] = "";

	setup();
	place_set_size("d/a", 4);
	place_tell("d/a");
	place_set_letter('a');
	check_content('a', 1);
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), 0, &file, &seen));
	place_make("d/a", S_IFREG | 0644);
	place_tell("d/a");
	place_set_letter('b');
	place_opens();
	place_looks();
	CHECK_RC(0, workspace_getattr(&context, w, &OBJECT_OF(file), &seen));
	CHECK_RC(0, seen.nlink);
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK_RC('a', data[0]);
	CHECK_RC(0, place_opens() + place_looks());
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* Whoever moves a file away and back has us lose sight of the handle. */
static void test_a_look_from_before_a_write_is_not_believed_after_it(void)
{
	struct open_file *file = NULL;

	setup();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &file, &seen));
	place_remove("d/a");
	place_tell("d/a");
	CHECK_RC(4, workspace_write(&context, file, "data", 4, 0));
	place_put_back("d/a");
	place_tell("d/a");
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(4, seen.size_bytes);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_what_is_learnt_after_a_loss_is_known(void)
{
	setup();
	place_lose();
	CHECK_RC(0, look("d"));
	cached_quiesce(w);
	CHECK_RC(0, look("d/a"));
	cached_quiesce(w);
	place_looks();
	CHECK_RC(0, look("d"));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0, place_looks());
	teardown();
}

/* Else an event of before what was loaded would be taken for older. */
static void test_what_was_known_has_not_the_position_of_what_is_loaded(void)
{
	unsigned count = 0;
	uint64_t since;

	setup();
	place_lose();
	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT("d"), true, ignore_entry, &count, &since));
	CHECK(count > 0 && since > 0);
	CHECK(context.served.position == 0);
	teardown();
}

/* The kernel forgot the directory, and has it listed again while a file in it is being written. */
static void test_what_is_in_a_directory_that_is_listed_again_is_told(void)
{
	struct open_file *file = NULL;
	unsigned count = 0;
	uint64_t since = 0;

	setup();
	CHECK_RC(0, look("d"));
	workspace_unwatch(w, &(struct object_ref){.path = "d", .id = seen.id});
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &file, &seen));
	CHECK_RC(4, workspace_write(&context, file, "data", 4, 0));
	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT("d"), true, ignore_entry, &count, &since));
	cached_quiesce(w);
	CHECK(since);
	told = 0;
	place_make("d/b", S_IFREG | 0644);
	place_tell("d/b");
	CHECK_RC(1, told);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* ---- What own changes leave ------------------------------------------------------------ */

static void test_what_a_new_name_left_of_its_directory_is_known(void)
{
	struct attributes before;

	setup();
	CHECK_RC(0, look("d"));
	before = seen;
	make_directory();
	cached_quiesce(w);
	place_looks();
	CHECK_RC(0, look("d"));
	CHECK_RC(before.nlink + 1, seen.nlink);
	CHECK(before.mtime.tv_nsec < seen.mtime.tv_nsec);
	CHECK_RC(0, workspace_rmdir(&context, w, "d/new", NULL));
	CHECK_RC(0, look("d"));
	CHECK_RC(before.nlink, seen.nlink);
	CHECK_RC(0, place_looks());
	teardown();
}

/* The reply arrives first. */
static void test_what_an_own_change_left_of_a_directory_says_nothing_of_its_name(void)
{
	struct change late;

	setup();
	place_move("d", "e");
	place_make("d", S_IFDIR | 0700);
	late = place_event("d");
	place_move("d", "f"); /* on the way, the call found the former one */
	place_move("e", "d");
	make_directory();
	place_move("d", "e");
	place_move("f", "d");
	place_deliver(&late);
	CHECK_RC(0, look("d"));
	CHECK_RC(0700, seen.mode & 07777);
	CHECK_RC(-ENOENT, look("d/new"));
	teardown();
}

static struct change replaced;

static void replace_file(void)
{
	place_make("d/a", S_IFREG | 0600);
	replaced = place_event("d/a");
}

static void write_it(struct open_file *file, const char *data)
{
	CHECK_RC((int)strlen(data), workspace_write(&context, file, data, strlen(data), 0));
	CHECK_RC(0, workspace_flush(&context, file));
}

static struct open_file *open_to_write(void)
{
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &file, &seen));
	return file;
}

/* Its event is older than what the flush says of the file that was replaced. */
static void test_what_a_flush_left_says_nothing_of_the_name(void)
{
	struct open_file *file;

	setup();
	file = open_to_write();
	before_it_looks = replace_file;
	write_it(file, "aaaa");
	place_deliver(&replaced);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0600, seen.mode & 07777);
	CHECK_RC(0, seen.size_bytes);
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void move_made(void)
{
	place_move("d/new", "d/old");
	place_tell("d/new");
	place_tell("d/old");
}

static void test_what_was_made_and_moved_by_others_is_not_believed_to_be_there(void)
{
	setup();
	before_it_looks = move_made;
	make_directory();
	CHECK_RC(-ENOENT, look("d/new"));
	CHECK_RC(0, look("d/old"));
	teardown();
}

/* Both saw the same. */
static void test_an_event_from_between_the_number_of_a_look_and_the_look_counts(void)
{
	setup();
	while_it_looks = grow_unseen;
	set_size(7);
	CHECK_RC(0, look("d/a"));
	CHECK_RC(9, seen.size_bytes);
	CHECK_RC(0, place_looks());
	teardown();
}

/* The path is that of another by now. */
static void test_an_event_of_a_directory_that_was_replaced_is_not_of_the_new_one(void)
{
	struct change late;

	setup();
	place_make("d/x", S_IFREG | 0644);
	late = place_event("d/x");
	place_make("d", S_IFDIR | 0755);
	place_tell("d");
	CHECK_RC(-ENOENT, look("d/x"));
	cached_quiesce(w);
	late.at = UINT32_MAX; /* however late it was looked at */
	place_deliver(&late);
	CHECK_RC(-ENOENT, look("d/x"));
	teardown();
}

/* ---- What was written ------------------------------------------------------------------ */

static void hash_of(const char *data, uint8_t hash[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, strlen(data)));
	memcpy(hash, canonical.digest, 16);
}

/* Writes "aaaa" from the first byte on. */
static struct open_file *setup_written(void)
{
	struct open_file *file;

	setup();
	file = open_to_write();
	write_it(file, "aaaa");
	place_looks();
	return file;
}

static void close_it(struct open_file *file)
{
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_what_was_written_is_known(void)
{
	struct open_file *file = setup_written();

	CHECK_RC(0, look("d/a"));
	CHECK_RC(4, seen.size_bytes);
	check_content('a', 0);
	CHECK_RC(0, place_looks());
	close_it(file);
}

static void test_an_event_with_the_hash_of_what_was_written_keeps_it(void)
{
	struct open_file *file = setup_written();
	struct change echo = place_event("d/a");
	uint8_t hash[16];

	hash_of("aaaa", hash);
	echo.hash = hash;
	place_deliver(&echo);
	check_content('a', 0);
	close_it(file);
}

static void test_an_event_with_another_hash_drops_what_was_written(void)
{
	struct open_file *file = setup_written();
	struct change change;
	uint8_t hash[16];

	place_set_letter('b');
	change = place_event("d/a");
	hash_of("bbbb", hash);
	change.hash = hash;
	place_deliver(&change);
	check_content('b', 1);
	close_it(file);
}

/* It was written to in the same tick of the clock, maybe. */
static void test_an_event_without_a_hash_drops_what_was_written_just_now(void)
{
	struct open_file *file = setup_written();

	place_set_letter('b');
	place_tell("d/a");
	check_content('b', 1);
	close_it(file);
}

static struct change early;
static uint8_t early_hash[16];

static void overwrite_unseen(void)
{
	place_set_letter('b');
	early = place_event("d/a");
	hash_of("bbbb", early_hash);
	early.hash = early_hash;
	place_deliver(&early);
}

/* While the flush was on its way, and as many bytes. */
static void test_what_others_wrote_over_it_is_not_taken_for_what_was_written(void)
{
	struct open_file *file;

	setup();
	file = open_to_write();
	before_it_looks = overwrite_unseen;
	write_it(file, "aaaa");
	check_content('b', 1);
	close_it(file);
}

/* As the helper does of what was written through it. */
static void tell_with_hash(const char *path)
{
	struct change change = place_event(path);
	uint8_t hash[16];

	hash_of("aaaa", hash);
	change.hash = change.exists ? hash : NULL;
	place_deliver(&change);
}

static void test_content_stays_over_an_own_rename_and_a_change_of_mode(void)
{
	const struct attributes want = {.mode = 0600};
	struct open_file *file = setup_written();

	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	tell_with_hash("d/a");
	tell_with_hash("d/b");
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_AT("d/b"), SET_MODE, &want, &seen));
	tell_with_hash("d/b");
	CHECK_RC(0, workspace_rename(&context, w, "d/b", "d/a", 0, NULL));
	CHECK_RC(-ENOENT, look("d/b"));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0600, seen.mode & 07777);
	check_content('a', 0);
	CHECK_RC(0, place_looks());
	close_it(file);
}

static void tell_of_the_move(void)
{
	tell_with_hash("d/a");
	tell_with_hash("d/b");
}

static void test_content_stays_over_a_rename_that_the_feed_tells_first(void)
{
	struct open_file *file = setup_written();

	before_it_arrives = tell_of_the_move;
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	CHECK_RC(0, workspace_rename(&context, w, "d/b", "d/a", 0, NULL));
	check_content('a', 0);
	close_it(file);
}

/* Which the place has not seen yet. */
static void test_a_handle_follows_a_rename_that_the_feed_tells_first(void)
{
	struct open_file *file = setup_written(), *known = NULL;

	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDONLY, &known, &seen));
	before_it_arrives = tell_of_the_move;
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	place_looks();
	CHECK_RC(-ENOENT, look("d/a"));
	CHECK_RC(0, look("d/b"));
	CHECK_RC(0, workspace_getattr(&context, w, &OBJECT_OF(known), &seen));
	CHECK_RC(1, seen.nlink);
	CHECK_RC(0, place_looks());
	CHECK_RC(0, workspace_close(&context, known));
	close_it(file);
}

static void take_the_old_name(void)
{
	tell_of_the_move();
	place_make("d/a", S_IFREG | 0600);
	place_tell("d/a");
}

static void test_what_others_put_at_the_old_name_during_a_rename_counts(void)
{
	setup();
	before_it_arrives = take_the_old_name;
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	CHECK_RC(0, look("d/a"));
	CHECK_RC(0600, seen.mode & 07777);
	CHECK_RC(0, look("d/b"));
	CHECK_RC(0644, seen.mode & 07777);
	teardown();
}

static void take_the_new_name(void)
{
	tell_of_the_move();
	place_make("d/b", S_IFREG | 0600);
	place_tell("d/b");
}

static void make_a_device(void)
{
	place_make("d/a", S_IFCHR | 0600);
}

static void test_an_event_from_before_a_rename_does_not_hide_what_others_left(void)
{
	struct change before;

	setup();
	before = place_event("d/a");
	before_it_looks = make_a_device;
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	place_deliver(&before);
	CHECK_RC(0, look("d/a"));
	CHECK(S_ISCHR(seen.mode));
	teardown();
}

static void test_what_others_put_at_the_new_name_during_a_rename_counts(void)
{
	setup();
	before_it_arrives = take_the_new_name;
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	CHECK_RC(-ENOENT, look("d/a"));
	CHECK_RC(0, look("d/b"));
	CHECK_RC(0600, seen.mode & 07777);
	teardown();
}

static void test_a_rename_that_fails_leaves_what_others_did(void)
{
	setup();
	place_make("d/b", S_IFREG | 0600);
	before_it_arrives = remove_and_tell;
	CHECK_RC(-EEXIST, workspace_rename(&context, w, "d/a", "d/b", RENAME_KEEP_TARGET, NULL));
	CHECK_RC(-ENOENT, look("d/a"));
	CHECK_RC(0, look("d/b"));
	teardown();
}

TEST_MAIN("cached_order", TEST(test_a_removal_that_a_look_saw_first_is_news),
	TEST(test_the_echo_of_an_own_removal_changes_nothing),
	TEST(test_what_others_do_shows_without_a_look), TEST(test_a_time_too_far_away_is_asked_for),
	TEST(test_an_event_from_before_an_own_change_is_not_believed),
	TEST(test_an_event_from_after_an_own_change_is_believed_at_once),
	TEST(test_what_an_own_change_left_counts_against_an_event_from_before_that_look),
	TEST(test_what_is_stale_is_asked_for_when_it_is_to_be_watched),
	TEST(test_what_is_in_unknown_directories_can_be_watched),
	TEST(test_an_event_that_is_quicker_than_our_answer_counts),
	TEST(test_an_answer_from_before_an_own_change_is_not_believed),
	TEST(test_an_answer_from_before_a_flush_is_not_believed),
	TEST(test_an_answer_that_an_event_overtook_is_not_believed),
	TEST(test_an_event_from_before_an_own_removal_brings_nothing_back),
	TEST(test_a_listing_from_before_an_own_change_takes_nothing_away),
	TEST(test_what_we_made_may_be_gone_before_we_hear_that_it_is_made),
	TEST(test_content_is_as_old_as_the_look_at_it),
	TEST(test_who_has_what_was_replaced_does_not_ask_for_it),
	TEST(test_a_look_from_before_a_write_is_not_believed_after_it),
	TEST(test_what_is_in_a_directory_that_is_listed_again_is_told),
	TEST(test_what_is_learnt_after_a_loss_is_known),
	TEST(test_what_was_known_has_not_the_position_of_what_is_loaded),
	TEST(test_what_a_new_name_left_of_its_directory_is_known),
	TEST(test_what_an_own_change_left_of_a_directory_says_nothing_of_its_name),
	TEST(test_what_a_flush_left_says_nothing_of_the_name),
	TEST(test_what_was_made_and_moved_by_others_is_not_believed_to_be_there),
	TEST(test_an_event_from_between_the_number_of_a_look_and_the_look_counts),
	TEST(test_an_event_of_a_directory_that_was_replaced_is_not_of_the_new_one),
	TEST(test_what_was_written_is_known),
	TEST(test_an_event_with_the_hash_of_what_was_written_keeps_it),
	TEST(test_an_event_with_another_hash_drops_what_was_written),
	TEST(test_an_event_without_a_hash_drops_what_was_written_just_now),
	TEST(test_what_others_wrote_over_it_is_not_taken_for_what_was_written),
	TEST(test_content_stays_over_an_own_rename_and_a_change_of_mode),
	TEST(test_content_stays_over_a_rename_that_the_feed_tells_first),
	TEST(test_a_handle_follows_a_rename_that_the_feed_tells_first),
	TEST(test_what_others_put_at_the_old_name_during_a_rename_counts),
	TEST(test_an_event_from_before_a_rename_does_not_hide_what_others_left),
	TEST(test_what_others_put_at_the_new_name_during_a_rename_counts),
	TEST(test_a_rename_that_fails_leaves_what_others_did))
