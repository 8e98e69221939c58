#include "fs/inode/inode.h"
#include "fs/inode/misses.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "ops/support/clock.h"
#include "tests/check.h"

static char last_forgotten[64];

static struct object_id last_forgotten_id;

static void keep_forgotten(void *user, const struct object_ref *directory)
{
	(void)user;
	snprintf(last_forgotten, sizeof(last_forgotten), "%s", directory->path);
	last_forgotten_id = directory->id;
}

static struct attributes object(uint64_t number, uint32_t mode)
{
	return (struct attributes){.id = {.device = 1, .inode = number}, .mode = mode, .nlink = 1};
}

static struct inode_table *new_table(void)
{
	struct attributes root = object(1, S_IFDIR | 0755);
	struct inode_table *table = NULL;

	last_forgotten[0] = '\0';
	CHECK_RC(0, inode_table_new(&root, keep_forgotten, NULL, &table));
	return table;
}

static struct inode *enter(struct inode_table *table, struct inode *parent, const char *name,
	struct attributes attributes)
{
	struct inode *inode = NULL;
	struct inode_note note;

	CHECK_RC(0, inode_table_enter(table, parent, name, &attributes, 0, &inode, &note));
	inode_table_unref(table, note.superseded);
	return inode;
}

/* What was looked at at position `at`; true: something newer is known. */
static bool is_old(struct inode_table *table, struct inode *parent, const char *name,
	struct attributes attributes, uint64_t at)
{
	struct inode *inode;
	struct inode_note note;

	CHECK_RC(0, inode_table_enter(table, parent, name, &attributes, at, &inode, &note));
	inode_table_unref(table, note.superseded);
	return note.is_old;
}

/* The feed says so. */
static enum name_change told(struct inode_table *table, struct inode *parent, const char *name,
	const struct attributes *found, uint64_t at)
{
	struct inode *lost = NULL;
	enum name_change news = inode_table_changed(table, parent, name, found, at, &lost);

	CHECK((news == NAME_LEADS_ELSEWHERE) == (lost != NULL));
	inode_table_unref(table, lost);
	return news;
}

static int check_path(struct inode_table *table, struct inode *inode, const char *want)
{
	struct path_string path;
	int r = inode_table_path(table, inode, NULL, &path);

	if (r == 0) {
		CHECK_STRING(want, path.path);
		path_string_done(&path);
	}
	return r;
}

static void test_paths_follow_renames_of_directories(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *b = enter(table, a, "b", object(3, S_IFDIR));
	struct inode *file = enter(table, b, "file", object(4, S_IFREG));

	CHECK_RC(0, check_path(table, file, "a/b/file"));
	inode_table_renamed(table, a, "b", root, "c", b, false, 0);
	CHECK_RC(0, check_path(table, file, "c/file"));
	CHECK_RC(0, check_path(table, root, ""));
	inode_table_free(table);
}

static void test_of_two_things_told_of_a_name_the_later_look_counts(void)
{
	const struct attributes first = object(2, S_IFREG), second = object(3, S_IFREG);
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table), *at;

	CHECK(!is_old(table, root, "a", first, 10));
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", NULL, 9));
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", &second, 9));
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", &first, 20));
	CHECK(is_old(table, root, "a", second, 19));
	at = inode_table_child(table, root, "a");
	CHECK_RC(2, inode_table_number(table, at));
	inode_table_unref(table, at);
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "a", &second, 21));
	CHECK(!is_old(table, root, "a", second, 22));
	/* Of a file with one name, too. */
	CHECK(is_old(table, root, "before", second, 18));
	CHECK(!inode_table_child(table, root, "before"));
	CHECK(!is_old(table, root, "now", second, 23));
	CHECK(!inode_table_child(table, root, "a"));
	inode_table_free(table);
}

/* Else a path that leads to it in the kernel only would end there with ENOENT. */
static void test_a_name_that_the_kernel_still_has_was_not_lost_long_ago(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *below = enter(table, a, "below", object(3, S_IFDIR));
	uint64_t before_ns;

	CHECK_RC(0, inode_table_lost_ns(table, below));
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "a", NULL, 9));
	CHECK(inode_table_lost_ns(table, below) == LOST_UNSENT);
	before_ns = clock_now_ns();
	inode_table_loss_sent(table, a);
	CHECK(inode_table_lost_ns(table, below) >= before_ns);
	CHECK(inode_table_lost_ns(table, below) <= clock_now_ns());
	enter(table, root, "a", object(2, S_IFDIR));
	CHECK_RC(0, inode_table_lost_ns(table, below));
	inode_table_free(table);
}

static void check_last(struct inode_table *table, struct inode *inode, const char *want)
{
	struct path_string path;

	if (!CHECK_RC(0, inode_table_last_path(table, inode, NULL, &path)))
		return;
	CHECK_STRING(want, path.path);
	path_string_done(&path);
}

static void test_where_a_replaced_object_was_is_known_until_it_has_a_name_again(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *seen = enter(table, a, "seen", object(3, S_IFREG));
	struct inode *gone = enter(table, a, "gone", object(4, S_IFREG));
	struct inode *over = enter(table, a, "over", object(5, S_IFREG));

	check_last(table, seen, "a/seen");
	enter(table, a, "seen", object(6, S_IFREG));
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, a, "gone", NULL, 9));
	inode_table_renamed(table, a, "seen", a, "over", NULL, false, 0);
	inode_table_renamed(table, root, "a", root, "b", a, false, 0);
	check_last(table, seen, "b/seen");
	check_last(table, gone, "b/gone");
	check_last(table, over, "b/over");
	enter(table, root, "again", object(3, S_IFREG));
	CHECK_RC(0, check_path(table, seen, "again"));
	check_last(table, seen, "again");
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "b", NULL, 9));
	CHECK_RC(-ENOENT, check_path(table, gone, ""));
	check_last(table, gone, "b/gone");
	inode_table_forget(table, gone, 1);
	inode_table_forget(table, over, 1);
	inode_table_free(table);
}

static void test_of_our_removal_the_feed_tells_nothing_new(void)
{
	const struct attributes file = object(2, S_IFREG);
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);

	enter(table, root, "a", file);
	inode_table_removed(table, root, "a", 10);
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", &file, 9));
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", NULL, 9));
	CHECK_RC(NAME_AS_KNOWN, told(table, root, "a", NULL, 11));
	/* Somebody else has made and removed it meanwhile. */
	CHECK_RC(NAME_WAS_UNKNOWN, told(table, root, "a", NULL, 12));
	inode_table_removed(table, root, "a", 20);
	CHECK_RC(NAME_WAS_UNKNOWN, told(table, root, "a", &file, 21));
	inode_table_removed(table, root, "a", 30);
	enter(table, root, "a", file);
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "a", NULL, 31));
	CHECK_RC(NAME_WAS_UNKNOWN, told(table, root, "a", NULL, 32));
	inode_table_free(table);
}

/* Told to watchers only after it was removed: the kernel must not keep the name. */
static void test_what_was_there_before_our_removal_is_old(void)
{
	const struct attributes file = object(2, S_IFREG);
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);

	enter(table, root, "a", file);
	inode_table_removed(table, root, "a", 10);
	CHECK(is_old(table, root, "a", file, 9));
	CHECK(!is_old(table, root, "other", object(3, S_IFREG), 9));
	CHECK(!is_old(table, root, "a", file, 11));
	inode_table_free(table);
}

static void test_a_watch_that_ends_while_it_begins_is_none(void)
{
	struct inode_table *table = new_table();
	struct inode *a = enter(table, inode_table_root(table), "a", object(2, S_IFDIR));
	uint32_t losses = inode_table_watch_losses(table, a);

	inode_table_watch_lost(table, a);
	inode_table_set_watched(table, a, true, losses);
	CHECK(!inode_directory(a)->watched);
	inode_table_set_watched(table, a, true, inode_table_watch_losses(table, a));
	CHECK(inode_directory(a)->watched);
	inode_table_watch_lost(table, a);
	CHECK(!inode_directory(a)->watched);
	inode_table_free(table);
}

/* The far end may watch it still. */
static void test_a_forgotten_directory_is_told_of_though_its_watch_was_lost(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *b = enter(table, a, "b", object(3, S_IFDIR));

	inode_table_set_watched(table, b, true, 0);
	inode_table_watch_lost(table, NULL);
	CHECK(!inode_directory(b)->watched);
	inode_table_forget(table, b, 1);
	CHECK_STRING("a/b", last_forgotten);
	CHECK(last_forgotten_id.inode == 3);
	inode_table_free(table);
}

static void test_a_watch_that_was_denied_is_not_wanted_again_at_once(void)
{
	struct inode_table *table = new_table();
	struct inode *a = enter(table, inode_table_root(table), "a", object(2, S_IFDIR));
	size_t count;
	uint32_t losses;

	CHECK(inode_table_wants_watch(table, a, &losses));
	CHECK_RC(0, inode_table_on_ttl(table, NULL, 0, &count));
	inode_table_set_watched(table, a, false, losses);
	CHECK(!inode_table_wants_watch(table, a, &losses));
	CHECK_RC(1, inode_table_on_ttl(table, NULL, 0, &count));
	inode_table_watch_lost(table, a);
	CHECK(inode_table_wants_watch(table, a, &losses));
	CHECK_RC(0, inode_table_on_ttl(table, NULL, 0, &count));
	inode_table_watch_lost(table, a);
	inode_table_set_watched(table, a, true, losses); /* what was granted before that */
	CHECK(inode_table_wants_watch(table, a, &losses));
	CHECK_RC(0, inode_table_on_ttl(table, NULL, 0, &count));
	inode_table_set_watched(table, a, true, losses);
	CHECK(!inode_table_wants_watch(table, a, &losses));
	inode_table_free(table);
}

static void test_attributes_are_believed_as_those_who_tell_of_them(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct attributes attributes = object(2, S_IFDIR);
	struct inode *a = enter(table, root, "a", attributes);
	struct inode_note note;

	inode_table_note(table, a, &attributes, &note);
	CHECK_RC(LIFETIME_BRIEF, note.lifetime);
	inode_table_set_watched(table, root, true, 0);
	inode_table_note(table, a, &attributes, &note);
	CHECK_RC(LIFETIME_BRIEF, note.lifetime);
	inode_table_set_watched(table, a, false, 0);
	inode_table_note(table, a, &attributes, &note);
	CHECK_RC(LIFETIME_TTL, note.lifetime);
	inode_table_set_watched(table, a, true, 0);
	inode_table_note(table, a, &attributes, &note);
	CHECK_RC(LIFETIME_WATCHED, note.lifetime);
	inode_table_free(table);
}

/* How many names of the directory are kept as missing; they are not any more then. */
static size_t take_missing(struct inode_table *table, struct inode *directory)
{
	struct inode_entry *places = NULL;
	size_t count = 0, missing = 0;

	CHECK_RC(0, inode_table_entries(table, directory, &places, &count));
	for (size_t i = 0; i < count; i++) {
		if (places[i].inode)
			continue;
		CHECK(places[i].parent == directory);
		inode_table_not_missing(table, directory, places[i].name);
		missing++;
	}
	inode_table_entries_free(table, places, count);
	return missing;
}

static void test_missing_names_are_kept_once(void)
{
	struct inode_table *table = new_table();
	struct inode *a = enter(table, inode_table_root(table), "a", object(2, S_IFDIR));
	uint64_t inodes, bytes, before;

	inode_table_usage(table, &inodes, &before);
	CHECK_RC(LIFETIME_BRIEF, inode_table_missing(table, a, "one", inode_changes(a), 0));
	CHECK(take_missing(table, a) == 0);
	inode_table_set_watched(table, a, true, 0);
	CHECK_RC(LIFETIME_BRIEF, inode_table_missing(table, a, "one", inode_changes(a) - 2, 0));
	CHECK_RC(LIFETIME_WATCHED, inode_table_missing(table, a, "one", inode_changes(a), 0));
	CHECK_RC(LIFETIME_WATCHED, inode_table_missing(table, a, "two", inode_changes(a), 0));
	CHECK_RC(LIFETIME_WATCHED, inode_table_missing(table, a, "one", inode_changes(a), 0));
	CHECK(take_missing(table, a) == 2);
	CHECK(take_missing(table, a) == 0);
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(before, bytes);
	inode_table_free(table);
}

static void test_a_name_is_missed_again_from_the_second_time_on(void)
{
	static struct misses misses;
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));

	CHECK(!misses_again(&misses, root, "one", 10));
	CHECK(!misses_again(&misses, root, "two", 10));
	CHECK(!misses_again(&misses, a, "one", 10));
	CHECK(misses_again(&misses, root, "one", 10));
	CHECK(misses_again(&misses, root, "two", 10));
	CHECK(misses_again(&misses, root, "one", 10));
	CHECK(misses_again(&misses, root, "one", 9 + MISSES_MS));
	CHECK(!misses_again(&misses, root, "two", 10 + MISSES_MS));
	inode_table_free(table);
}

/* With long names, of which that is a quarter of a million. */
static void test_missing_names_have_a_bound(void)
{
	struct inode_table *table = new_table();
	struct inode *a = enter(table, inode_table_root(table), "a", object(2, S_IFDIR));
	uint64_t inodes, bytes;
	char name[256];
	int i;

	inode_table_set_watched(table, a, true, 0);
	for (i = 0; i < 1000000; i++) {
		snprintf(name, sizeof(name), "%0255d", i);
		if (inode_table_missing(table, a, name, inode_changes(a), 0) == LIFETIME_TTL)
			break;
	}
	CHECK(i > 100000 && i < 1000000);
	inode_table_usage(table, &inodes, &bytes);
	CHECK(bytes < 100 << 20);
	inode_table_not_missing(table, a, name);
	CHECK_RC(LIFETIME_TTL, inode_table_missing(table, a, name, inode_changes(a), 0));
	snprintf(name, sizeof(name), "%0255d", 0);
	inode_table_not_missing(table, a, name);
	CHECK_RC(LIFETIME_WATCHED, inode_table_missing(table, a, name, inode_changes(a), 0));
	inode_table_free(table);
}

/* Also more of them, one after the other, than are kept at once. */
static void test_names_that_are_made_are_missing_no_more(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table), *made;
	char name[256];

	inode_table_set_watched(table, root, true, 0);
	for (int i = 0; i < 250000; i++) {
		snprintf(name, sizeof(name), "%0255d", i);
		CHECK_RC(LIFETIME_WATCHED,
			inode_table_missing(table, root, name, inode_changes(root), 0));
		made = enter(table, root, i % 2 ? "made" : name, object(2, S_IFREG));
		if (i % 2)
			inode_table_renamed(table, root, "made", root, name, made, false, 0);
		inode_table_forget(table, made, 1);
	}
	CHECK(take_missing(table, root) == 0);
	inode_table_free(table);
}

static void test_directories_do_not_hold_each_other(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *b = enter(table, a, "b", object(3, S_IFDIR));
	struct inode *again;
	uint64_t inodes, bytes;

	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, a, "b", NULL, 9));
	check_last(table, b, "a/b");
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "a", NULL, 9));
	again = enter(table, b, "c", object(2, S_IFDIR));
	inode_table_forget(table, b, 1);
	inode_table_forget(table, a, 1);
	inode_table_forget(table, again, 1);
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(1, inodes);
	inode_table_free(table);
}

static void test_a_directory_that_was_moved_has_a_new_inode_where_it_is(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *b = enter(table, root, "b", object(3, S_IFDIR));
	struct inode *old = enter(table, a, "d", object(4, S_IFDIR));
	struct inode *new = enter(table, b, "d", object(4, S_IFDIR));
	uint64_t inodes, bytes;

	CHECK(old != new && old->is_superseded && !new->is_superseded);
	CHECK_RC(0, check_path(table, old, "b/d"));
	CHECK_RC(0, check_path(table, new, "b/d"));
	CHECK(enter(table, b, "e", object(4, S_IFDIR)) == new);
	CHECK_RC(0, check_path(table, old, "b/e"));
	CHECK(enter(table, a, "d", object(4, S_IFDIR)) == old);
	CHECK(!old->is_superseded && new->is_superseded);
	CHECK_RC(0, check_path(table, new, "a/d"));
	inode_table_forget(table, new, 2);
	inode_table_forget(table, old, 2);
	inode_table_forget(table, a, 1);
	inode_table_forget(table, b, 1);
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(1, inodes);
	inode_table_free(table);
}

static void test_who_holds_a_directory_goes_along_where_the_feed_says_it_is(void)
{
	const struct attributes directory = object(4, S_IFDIR);
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFDIR));
	struct inode *held = enter(table, root, "held", directory);
	struct inode *file = enter(table, held, "file", object(5, S_IFREG));
	struct inode *new;

	CHECK_RC(NAME_AS_KNOWN, told(table, root, "held", &directory, 10));
	CHECK_RC(NAME_WAS_UNKNOWN, told(table, a, "moved", &directory, 20));
	CHECK_RC(0, check_path(table, file, "a/moved/file"));
	CHECK(inode_table_child(table, root, "held") == NULL);
	CHECK_RC(NAME_WAS_UNKNOWN, told(table, root, "before", &directory, 19));
	CHECK_RC(0, check_path(table, held, "a/moved"));
	/* The kernel has it in the root. */
	new = enter(table, a, "moved", directory);
	CHECK(new != held);
	CHECK_RC(0, check_path(table, file, "a/moved/file"));
	CHECK_RC(0, check_path(table, new, "a/moved"));
	inode_table_free(table);
}

static void test_what_has_no_name_leads_nowhere(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *held = enter(table, root, "held", object(2, S_IFDIR));
	struct inode *file = enter(table, held, "file", object(3, S_IFREG));
	struct attributes attributes = object(4, S_IFREG);
	struct inode *stale = NULL;

	CHECK_RC(0, (int)inode_table_lost_ns(table, file));
	enter(table, root, "held", object(5, S_IFDIR));
	CHECK(inode_table_lost_ns(table, held) != 0);
	CHECK(inode_table_lost_ns(table, file) == inode_table_lost_ns(table, held));
	CHECK_RC(0, inode_table_enter_stale(table, &attributes, &stale));
	CHECK(enter(table, held, "file", attributes) != stale);
	CHECK_RC(-ENOENT, check_path(table, stale, ""));
	CHECK(inode_table_lost_ns(table, stale) != 0);
	inode_table_forget(table, stale, 1);
	inode_table_free(table);
}

static void test_swapped_names_lead_to_each_other(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFREG));
	struct inode *b = enter(table, root, "b", object(3, S_IFREG));

	inode_table_renamed(table, root, "a", root, "b", a, true, 0);
	CHECK_RC(0, check_path(table, a, "b"));
	CHECK_RC(0, check_path(table, b, "a"));
	inode_table_free(table);
}

static void test_a_name_that_comes_back_takes_no_more_memory(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFREG));
	uint64_t inodes, before, bytes;

	/* A name beside the first one has to be kept somewhere. */
	inode_table_renamed(table, root, "a", root, "b", a, false, 0);
	inode_table_renamed(table, root, "b", root, "a", a, false, 0);
	inode_table_usage(table, &inodes, &before);
	for (int i = 0; i < 3; i++) {
		inode_table_renamed(table, root, "a", root, "b", a, false, 0);
		CHECK_RC(0, check_path(table, a, "b"));
		inode_table_renamed(table, root, "b", root, "a", a, false, 0);
		CHECK_RC(0, check_path(table, a, "a"));
	}
	inode_table_removed(table, root, "a", 0);
	CHECK_RC(-ENOENT, check_path(table, a, ""));
	check_last(table, a, "a");
	CHECK(enter(table, root, "a", object(2, S_IFREG)) == a);
	CHECK_RC(0, check_path(table, a, "a"));
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(before, bytes);
	inode_table_free(table);
}

static void test_what_was_looked_up_too_often_to_be_counted_stays(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *a = enter(table, root, "a", object(2, S_IFREG));

	a->lookups = UINT32_MAX - 1;
	enter(table, root, "a", object(2, S_IFREG));
	enter(table, root, "a", object(2, S_IFREG));
	inode_table_forget(table, a, (uint64_t)UINT32_MAX + 1);
	CHECK(enter(table, root, "a", object(2, S_IFREG)) == a);
	CHECK_RC(0, check_path(table, a, "a"));
	inode_table_free(table);
}

static void test_links_share_an_inode_and_outlive_each_other(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct attributes file = object(2, S_IFREG);
	struct inode *one, *other;

	file.nlink = 2;
	one = enter(table, root, "one", file);
	other = enter(table, root, "other", file);
	CHECK(one == other);
	inode_table_removed(table, root, "other", 0);
	CHECK_RC(0, check_path(table, one, "one"));
	inode_table_removed(table, root, "one", 0);
	CHECK_RC(-ENOENT, check_path(table, one, ""));
	inode_table_free(table);
}

static void test_another_object_takes_the_name_over(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *old = enter(table, root, "a", object(2, S_IFREG));
	struct inode *new = enter(table, root, "a", object(3, S_IFREG));

	CHECK(old != new);
	CHECK_RC(-ENOENT, check_path(table, old, ""));
	CHECK_RC(0, check_path(table, new, "a"));
	inode_table_free(table);
}

/* Where objects have no generation. */
static void test_a_number_that_another_kind_of_object_has_now_is_another_inode(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *file = enter(table, root, "a", object(2, S_IFREG));
	struct inode *directory = enter(table, root, "b", object(2, S_IFDIR));
	struct attributes unnamed = object(2, S_IFREG);
	struct inode *again;

	CHECK(directory != file && directory->is_directory && !file->is_directory);
	CHECK_RC(-ENOENT, check_path(table, file, ""));
	CHECK_RC(0, check_path(table, directory, "b"));
	enter(table, directory, "c", object(3, S_IFREG));
	CHECK_RC(NAME_LEADS_ELSEWHERE, told(table, root, "b", &unnamed, 9));
	CHECK_RC(0, inode_table_enter_unnamed(table, &unnamed, &again));
	CHECK(again != directory && !again->is_directory);
	CHECK(inode_table_find_directory(table, &unnamed.id) == NULL);
	CHECK_RC(-ENOENT, check_path(table, directory, ""));
	CHECK(enter(table, root, "b", object(2, S_IFDIR)) == directory);
	CHECK_RC(0, check_path(table, directory, "b"));
	inode_table_free(table);
}

static struct attributes file_of_generation(uint64_t generation)
{
	struct attributes file = object(2, S_IFREG);

	file.id.generation = generation;
	return file;
}

static void test_an_open_file_keeps_its_number_for_itself(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *first = enter(table, root, "file", file_of_generation(1));
	struct open_handle *handle = calloc(1, sizeof(*handle));
	struct inode *second, *third;

	handle->inode = first;
	CHECK_RC(0, inode_table_handle_add(table, handle));
	second = enter(table, root, "file", file_of_generation(2));
	third = enter(table, root, "file", file_of_generation(3));
	CHECK_RC(2, inode_table_number(table, first));
	CHECK(inode_table_number(table, second) != 2);
	CHECK(inode_table_number(table, third) != 2);
	CHECK(inode_table_number(table, second) != inode_table_number(table, third));
	CHECK_RC(0, inode_table_handle_put(table, NULL, handle));
	CHECK_RC(2, inode_table_number(table, enter(table, root, "file", file_of_generation(4))));
	inode_table_free(table);
}

static uint64_t number(struct inode_table *table, uint64_t device, uint64_t inode)
{
	return inode_table_number_of(table, &(struct object_id){device, inode, 7});
}

/* btrfs numbers subvolumes alike, overlayfs puts the layer into the uppermost bits. */
static void test_numbers_are_unique_over_devices(void)
{
	const uint64_t devices[] = {1, 2, 3, 0x10001},
		       inodes[] = {1, 2, 256, 1ull << 40, 1ull << 51, 1ull << 52, 1ull << 62,
			       (1ull << 62) + 1, UINT64_MAX};
	enum { INODES = sizeof(inodes) / sizeof(*inodes), COUNT = 4 * INODES };
	struct inode_table *table = new_table(), *another = new_table();
	uint64_t numbers[COUNT];

	for (size_t i = 0; i < COUNT; i++) {
		uint64_t device = devices[i / INODES], inode = inodes[i % INODES];
		bool is_plain = device == 1 && inode < NUMBERS_MADE;

		numbers[i] = number(table, device, inode);
		CHECK(numbers[i] == number(another, device, inode));
		CHECK(is_plain ? numbers[i] == inode : numbers[i] >= NUMBERS_MADE);
		CHECK(numbers[i] < NUMBERS_END);
		for (size_t j = 0; j < i; j++)
			CHECK(numbers[i] != numbers[j]);
	}
	CHECK(number(table, PROVISIONAL_DEVICE, NUMBERS_END + 1) == NUMBERS_END + 1);
	inode_table_free(table);
	inode_table_free(another);
}

static void test_an_object_is_shown_with_the_number_of_its_name(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct attributes nested = object(2, S_IFREG);

	nested.id.device = 2;
	CHECK_RC(1, inode_table_number(table, root));
	CHECK_RC(2, inode_table_number(table, enter(table, root, "a", object(2, S_IFREG))));
	CHECK(inode_table_number(table, enter(table, root, "b", nested)) ==
		inode_table_number_of(table, &nested.id));
	inode_table_free(table);
}

static void test_a_long_path_leaves_the_fixed_buffer(void)
{
	struct inode_table *table = new_table();
	struct inode *directory = inode_table_root(table);
	struct path_string path;
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	for (uint64_t depth = 0; depth < 40; depth++)
		directory = enter(table, directory, name, object(2 + depth, S_IFDIR));
	CHECK_RC(0, inode_table_path(table, directory, "end", &path));
	CHECK_RC(40 * 256 + 3, strlen(path.path));
	path_string_done(&path);
	inode_table_free(table);
}

static void test_what_the_kernel_forgets_is_gone_when_nothing_needs_it(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct inode *directory = enter(table, root, "d", object(2, S_IFDIR));
	struct inode *file = enter(table, directory, "f", object(3, S_IFREG));
	uint64_t inodes, bytes;

	inode_directory(directory)->watched = true;
	inode_table_forget(table, directory, 1);
	CHECK_RC(0, check_path(table, file, "d/f"));
	CHECK_STRING("", last_forgotten);
	inode_table_forget(table, file, 1);
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(1, inodes);
	CHECK_STRING("d", last_forgotten);
	inode_table_free(table);
}

static void test_a_change_of_content_is_noticed(void)
{
	struct inode_table *table = new_table();
	struct attributes file = object(2, S_IFREG);
	struct inode *inode = enter(table, inode_table_root(table), "f", file);
	struct inode_note note;

	inode_table_note(table, inode, &file, &note);
	CHECK(!note.data_changed);
	file.mtime.tv_nsec++;
	inode_table_note(table, inode, &file, &note);
	CHECK(note.data_changed && !note.has_shrunk);
	file.ctime.tv_nsec++;
	inode_table_note(table, inode, &file, &note);
	CHECK(!note.data_changed);
	inode_table_free(table);
}

static void test_a_known_file_takes_less_than_112_bytes(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	uint64_t inodes, bytes;
	char name[32];

	for (uint64_t number = 0; number < 100000; number++) {
		snprintf(name, sizeof(name), "file_%07llu.c", (unsigned long long)number);
		enter(table, root, name, object(2 + number, S_IFREG));
	}
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(100001, inodes);
	CHECK(bytes / inodes < (SLAB_BY_MALLOC ? 155 : 112));
	inode_table_free(table);
}

static struct open_handle *open_to_write(struct inode_table *table, struct inode *inode)
{
	struct open_handle *handle = calloc(1, sizeof(*handle));

	handle->inode = inode;
	handle->flags = O_WRONLY;
	inode_table_handle_add(table, handle);
	return handle;
}

static void test_a_hash_is_of_one_version(void)
{
	struct inode_table *table = new_table();
	struct attributes file = object(2, S_IFREG), later;
	struct inode *inode = enter(table, inode_table_root(table), "file", file);
	const uint8_t digest[CONTENT_HASH_BYTES] = {1, 2, 3};
	uint8_t got[CONTENT_HASH_BYTES] = {0};
	uint64_t inodes, bytes, before;
	struct open_handle *handle, *other;

	handle = open_to_write(table, inode);
	inode_table_usage(table, &inodes, &before);
	CHECK(!inode_table_hash(table, inode, &file, got));
	CHECK(inode_table_keep_hash(table, inode, &file, digest));
	CHECK(inode_table_hash(table, inode, &file, got) && memcmp(digest, got, sizeof(got)) == 0);
	later = file;
	later.ctime.tv_nsec++;
	CHECK(!inode_table_hash(table, inode, &later, got));
	later = file;
	later.size_bytes++;
	CHECK(!inode_table_hash(table, inode, &later, got) && inode_table_has_hash(table, inode));

	/* Two that write at a time. */
	other = open_to_write(table, inode);
	CHECK(!inode_table_keep_hash(table, inode, &file, digest));
	CHECK(!inode_table_has_hash(table, inode));
	CHECK_RC(0, inode_table_handle_put(table, NULL, other));
	CHECK(!inode_table_keep_hash(table, inode, &file, digest));
	CHECK_RC(0, inode_table_handle_put(table, NULL, handle));
	handle = open_to_write(table, inode);
	CHECK(inode_table_keep_hash(table, inode, &file, digest));
	CHECK(inode_table_keep_hash(table, inode, NULL, digest));
	CHECK(!inode_table_has_hash(table, inode));
	CHECK_RC(0, inode_table_handle_put(table, NULL, handle));
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(before, bytes);
	handle = open_to_write(table, inode);
	CHECK(inode_table_keep_hash(table, inode, &file, digest));
	CHECK_RC(0, inode_table_handle_put(table, NULL, handle));
	inode_table_forget(table, inode, 1);
	inode_table_free(table);
}

static unsigned released;

static void count_released(struct open_handle *handle)
{
	(void)handle;
	released++;
}

static void test_what_hangs_on_a_handle_is_released_with_it(void)
{
	struct inode_table *table = new_table();
	struct inode *inode = enter(table, inode_table_root(table), "file", object(2, S_IFREG));
	struct open_handle *handle = open_to_write(table, inode);

	released = 0;
	handle->release = count_released;
	CHECK_RC(0, inode_table_handle_put(table, NULL, handle));
	CHECK_RC(1, released);
	open_to_write(table, inode)->release = count_released;
	inode_table_close_all(table, NULL);
	CHECK_RC(2, released);
	inode_table_free(table);
}

static void test_a_directory_below_itself_is_a_loop(void)
{
	struct inode_table *table = new_table();
	struct inode *root = inode_table_root(table);
	struct attributes of_root = object(1, S_IFDIR), of_a = object(2, S_IFDIR);
	struct inode *a = enter(table, root, "a", of_a);
	struct inode *again, *b;
	struct inode_note note;

	CHECK_RC(-ELOOP, inode_table_enter(table, a, "a", &of_a, 0, &again, &note));
	b = enter(table, a, "b", object(3, S_IFDIR));
	CHECK_RC(-ELOOP, inode_table_enter(table, a, "a", &of_a, 0, &again, &note));
	CHECK_RC(-ELOOP, inode_table_enter(table, b, "a", &of_a, 0, &again, &note));
	CHECK_RC(-ELOOP, inode_table_enter(table, b, "root", &of_root, 0, &again, &note));
	CHECK_RC(0, check_path(table, b, "a/b"));
	inode_table_renamed(table, root, "a", b, "a", a, false, 0);
	CHECK_RC(-ENOENT, check_path(table, a, ""));
	CHECK_RC(-ENOENT, check_path(table, b, ""));
	inode_table_free(table);
}

static void test_deep_trees_have_paths_and_can_be_forgotten(void)
{
	enum { LEVELS = 60000 };
	static struct inode *levels[LEVELS];
	struct inode_table *table = new_table();
	struct inode *at = inode_table_root(table);
	struct path_string path;
	uint64_t inodes, bytes;

	for (unsigned i = 0; i < LEVELS; i++)
		at = levels[i] = enter(table, at, "d", object(i + 2, S_IFDIR));
	if (CHECK_RC(0, inode_table_path(table, at, NULL, &path))) {
		CHECK_RC(2 * LEVELS - 1, strlen(path.path));
		path_string_done(&path);
	}
	for (unsigned i = 0; i < LEVELS; i++)
		inode_table_forget(table, levels[i], 1);
	inode_table_usage(table, &inodes, &bytes);
	CHECK_RC(1, inodes);
	inode_table_free(table);
}

/* Processor time so far. */
static uint64_t used_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* After a loss of events every directory is gone through: with all names at each of them, that
 * would take hours for a million files. */
static void test_names_of_one_directory_are_found_without_the_others(void)
{
	enum { DIRECTORIES = 2000, EACH = 100 };
	static struct inode *directories[DIRECTORIES];
	struct inode_table *table = new_table();
	uint64_t start_ns = used_ns(), made_ns, wrong = 0;
	struct inode_entry *places;
	char name[32];
	size_t count;

	for (unsigned d = 0; d < DIRECTORIES; d++) {
		snprintf(name, sizeof(name), "directory%u", d);
		directories[d] =
			enter(table, inode_table_root(table), name, object(2 + d, S_IFDIR));
		for (unsigned i = 0; i < EACH; i++) {
			snprintf(name, sizeof(name), "file%u", i);
			enter(table, directories[d], name, object(10000 + d * EACH + i, S_IFREG));
		}
	}
	made_ns = used_ns() - start_ns;
	start_ns = used_ns();
	for (unsigned d = 0; d < DIRECTORIES; d++) {
		wrong += inode_table_entries(table, directories[d], &places, &count) < 0 ||
			 count != EACH;
		inode_table_entries_free(table, places, count);
	}
	start_ns = used_ns() - start_ns;
	CHECK_RC(0, (long long)wrong);
	printf("%llu ms to make, %llu ms to find\n", (unsigned long long)made_ns / 1000000,
		(unsigned long long)start_ns / 1000000);
	CHECK(start_ns < 4 * made_ns);
	CHECK_RC(0, inode_table_entries(table, NULL, &places, &count));
	CHECK_RC(DIRECTORIES * (EACH + 1), (long long)count);
	inode_table_entries_free(table, places, count);
	inode_table_free(table);
}

TEST_MAIN("inode", TEST(test_paths_follow_renames_of_directories),
	TEST(test_of_two_things_told_of_a_name_the_later_look_counts),
	TEST(test_a_name_that_the_kernel_still_has_was_not_lost_long_ago),
	TEST(test_where_a_replaced_object_was_is_known_until_it_has_a_name_again),
	TEST(test_of_our_removal_the_feed_tells_nothing_new),
	TEST(test_what_was_there_before_our_removal_is_old),
	TEST(test_a_watch_that_ends_while_it_begins_is_none),
	TEST(test_a_forgotten_directory_is_told_of_though_its_watch_was_lost),
	TEST(test_a_watch_that_was_denied_is_not_wanted_again_at_once),
	TEST(test_attributes_are_believed_as_those_who_tell_of_them),
	TEST(test_missing_names_are_kept_once), TEST(test_missing_names_have_a_bound),
	TEST(test_names_that_are_made_are_missing_no_more),
	TEST(test_a_name_is_missed_again_from_the_second_time_on),
	TEST(test_names_of_one_directory_are_found_without_the_others),
	TEST(test_directories_do_not_hold_each_other),
	TEST(test_a_directory_that_was_moved_has_a_new_inode_where_it_is),
	TEST(test_who_holds_a_directory_goes_along_where_the_feed_says_it_is),
	TEST(test_what_has_no_name_leads_nowhere), TEST(test_swapped_names_lead_to_each_other),
	TEST(test_links_share_an_inode_and_outlive_each_other),
	TEST(test_another_object_takes_the_name_over),
	TEST(test_a_name_that_comes_back_takes_no_more_memory),
	TEST(test_what_was_looked_up_too_often_to_be_counted_stays),
	TEST(test_a_number_that_another_kind_of_object_has_now_is_another_inode),
	TEST(test_an_open_file_keeps_its_number_for_itself),
	TEST(test_numbers_are_unique_over_devices),
	TEST(test_an_object_is_shown_with_the_number_of_its_name),
	TEST(test_a_long_path_leaves_the_fixed_buffer),
	TEST(test_a_directory_below_itself_is_a_loop),
	TEST(test_deep_trees_have_paths_and_can_be_forgotten),
	TEST(test_what_the_kernel_forgets_is_gone_when_nothing_needs_it),
	TEST(test_a_change_of_content_is_noticed),
	TEST(test_a_known_file_takes_less_than_112_bytes), TEST(test_a_hash_is_of_one_version),
	TEST(test_what_hangs_on_a_handle_is_released_with_it))
