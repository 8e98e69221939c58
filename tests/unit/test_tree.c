/* The tree's promises one by one; that they hold together is for test_tree_orders. */
#include <malloc.h>
#include <sys/stat.h>

#include "ops/cache/tree_internal.h"
#include "tests/check.h"
#include "tests/no_memory.h"

static struct tree *tree;
static const struct object_id root = {.inode = 1};

static void start(uint64_t ttl_ms, size_t facts_max)
{
	const struct tree_options options = {.ttl_ms = ttl_ms, .facts_max = facts_max};

	tree_free(tree);
	tree = tree_new(&options);
	if (!CHECK(tree))
		exit(1);
}

static struct tree_look look(uint64_t at)
{
	return (struct tree_look){.at = at, .ms = tree->options.ttl_ms ? at : 0};
}

static struct attributes file(uint64_t inode, uint32_t nlink)
{
	return (struct attributes){.id.inode = inode, .mode = S_IFREG | 0644, .nlink = nlink};
}

static void learn(uint64_t at, const char *name, uint64_t inode)
{
	const struct tree_look l = look(at);
	const struct attributes a = file(inode, 1);

	CHECK_RC(0, tree_learn_name(tree, &l, &root, name, inode ? &a : NULL));
}

static void watch(uint64_t at, bool on, uint64_t since)
{
	const struct tree_look l = look(at);

	CHECK_RC(0, tree_learn_watch(tree, &l, &root, on, since));
}

static void list(uint64_t at)
{
	const struct tree_look l = look(at);

	CHECK_RC(0, tree_learn_listing(tree, &l, &root));
}

static void check_name(enum tree_validity want, uint64_t inode, const char *name, uint64_t now_ms)
{
	struct object_id id;

	CHECK_RC(want, tree_get_name(tree, &root, name, now_ms, &id));
	CHECK_RC(inode, id.inode);
}

static void test_highest_position_wins_in_any_order_of_arrival(void)
{
	start(0, 0);
	watch(1, true, 1);
	learn(9, "x", 0);
	learn(5, "x", 7);
	check_name(TREE_WATCHED, 0, "x", 0);
	learn(12, "x", 8);
	check_name(TREE_WATCHED, 8, "x", 0);
}

/* A look from before that is late does not end that. */
static void test_a_file_that_lost_a_name_is_asked_for(void)
{
	const struct tree_look before = look(5), late = look(7), after = look(9);
	const struct attributes two = file(7, 2), one = file(7, 1);

	start(100000, 0);
	watch(1, true, 1);
	CHECK_RC(0, tree_learn_name(tree, &before, &root, "x", &two));
	CHECK_RC(0, tree_learn_name(tree, &before, &root, "y", &two));
	CHECK_RC(TREE_WATCHED, tree_get_attributes(tree, &two.id, 10, NULL));
	learn(8, "y", 0);
	CHECK_RC(TREE_ASK, tree_get_attributes(tree, &two.id, 10, NULL));
	CHECK_RC(0, tree_learn_attributes(tree, &late, &two));
	CHECK_RC(TREE_ASK, tree_get_attributes(tree, &two.id, 10, NULL));
	CHECK_RC(0, tree_learn_attributes(tree, &after, &one));
	CHECK_RC(TREE_WATCHED, tree_get_attributes(tree, &two.id, 10, NULL));
}

static void test_what_is_listed_is_complete(void)
{
	start(0, 0);
	watch(1, true, 1);
	learn(2, "gone", 7);
	learn(9, "new", 8);
	learn(4, "there", 9);
	list(3);
	check_name(TREE_WATCHED, 0, "gone", 0);
	check_name(TREE_WATCHED, 8, "new", 0);
	check_name(TREE_WATCHED, 9, "there", 0);
	check_name(TREE_WATCHED, 0, "never", 0);
}

static void test_a_loss_makes_ask_for_all_that_is_older(void)
{
	const struct tree_look l = look(6);

	start(1000, 0);
	watch(1, true, 1);
	learn(5, "old", 7);
	learn(7, "new", 8);
	CHECK_RC(0, tree_learn_loss(tree, &l));
	watch(8, true, 1);
	check_name(TREE_ASK, 7, "old", 8);
	check_name(TREE_WATCHED, 8, "new", 8);
}

static void test_what_nobody_watches_is_valid_for_its_time(void)
{
	start(100, 0);
	learn(50, "x", 7);
	check_name(TREE_BRIEFLY, 7, "x", 149);
	check_name(TREE_ASK, 7, "x", 150);
	learn(200, "x", 7);
	tree_expire_unwatched(tree, 201);
	check_name(TREE_ASK, 7, "x", 202);
}

static void test_watch_is_known_in_any_order_of_arrival(void)
{
	start(0, 0);
	watch(9, true, 9);
	watch(7, false, 0);
	learn(10, "x", 7);
	learn(8, "y", 8);
	check_name(TREE_WATCHED, 7, "x", 0);
	check_name(TREE_ASK, 8, "y", 0);
	watch(12, false, 0);
	watch(11, true, 11);
	check_name(TREE_ASK, 7, "x", 0);
}

static void test_a_watch_of_before_a_loss_backs_nothing(void)
{
	const struct tree_look loss = look(20);

	start(0, 0);
	watch(1, true, 1);
	learn(19, "x", 7);
	CHECK_RC(0, tree_learn_loss(tree, &loss));
	learn(21, "x", 8);
	check_name(TREE_ASK, 8, "x", 0);
	watch(22, true, 1);
	check_name(TREE_WATCHED, 8, "x", 0);
}

static void test_no_position_is_refused(void)
{
	struct tree_look l = look(0);

	start(0, 0);
	CHECK_RC(-EPROTO, tree_learn_loss(tree, &l));
	l.at = TREE_POSITIONS;
	CHECK_RC(-EPROTO, tree_learn_name(tree, &l, &root, "x", NULL));
	l.at = 5;
	CHECK_RC(-EPROTO, tree_learn_watch(tree, &l, &root, true, 6));
}

static void test_a_file_is_known_when_all_its_names_are(void)
{
	const struct object_id id = {.inode = 7};
	struct attributes a = file(7, 2);
	struct tree_look l = look(3);

	start(0, 0);
	watch(1, true, 1);
	CHECK_RC(0, tree_learn_name(tree, &l, &root, "x", &a));
	CHECK_RC(TREE_ASK, tree_get_attributes(tree, &id, 0, &a));
	l.at = 4;
	a = file(7, 2);
	CHECK_RC(0, tree_learn_name(tree, &l, &root, "y", &a));
	CHECK_RC(TREE_WATCHED, tree_get_attributes(tree, &id, 0, &a));
	CHECK_RC(2, a.nlink);
}

static void test_an_equal_look_within_a_tick_is_another_state(void)
{
	const struct object_id id = {.inode = 7};
	struct attributes a = file(7, 1);
	struct tree_look l = look(3);
	uint64_t state;

	start(0, 0);
	CHECK_RC(0, tree_state(tree, &id));
	a.changed_lately = true;
	CHECK_RC(0, tree_learn_attributes(tree, &l, &a));
	state = tree_state(tree, &id);
	a.changed_lately = false;
	l.at = 4;
	CHECK_RC(0, tree_learn_attributes(tree, &l, &a));
	CHECK(tree_state(tree, &id) != state);
	state = tree_state(tree, &id);
	l.at = 5;
	CHECK_RC(0, tree_learn_attributes(tree, &l, &a));
	CHECK(tree_state(tree, &id) == state);
}

static void test_a_change_that_was_given_up_is_asked_for(void)
{
	const struct object_id id = {.inode = 7};
	struct attributes a;

	start(0, 0);
	watch(1, true, 1);
	list(2);
	learn(3, "x", 7);
	tree_own_unclear(tree, 0, &root, "y", &id);
	check_name(TREE_ASK, 0, "y", 0);
	CHECK_RC(TREE_ASK, tree_get_attributes(tree, &id, 0, &a));
	check_name(TREE_WATCHED, 7, "x", 0);
}

static void test_what_a_reply_leaves_open_is_not_known_from_before_it(void)
{
	const struct object_id id = {.inode = 7};
	struct tree_look l = look(5);
	struct attributes a = file(7, 1);

	start(0, 0);
	watch(1, true, 1);
	learn(2, "x", 7);
	tree_invalidate_name(tree, 6, &root, "x");
	tree_invalidate_attributes(tree, 6, &id);
	learn(5, "x", 8);
	CHECK_RC(0, tree_learn_attributes(tree, &l, &a));
	check_name(TREE_ASK, 7, "x", 0);
	CHECK_RC(TREE_ASK, tree_get_attributes(tree, &id, 0, &a));
	learn(7, "x", 7);
	check_name(TREE_WATCHED, 7, "x", 0);
	CHECK_RC(TREE_WATCHED, tree_get_attributes(tree, &id, 0, &a));
}

/* Of one that is made while the event of another one's removal is quicker. */
static void test_a_removal_says_nothing_of_other_names(void)
{
	start(0, 1000);
	watch(1, true, 1);
	list(2);
	learn(9, "x", 0);
	learn(8, "y", 7);
	check_name(TREE_WATCHED, 7, "y", 0);
}

static void test_a_dropped_name_does_not_come_back(void)
{
	start(0, 0);
	watch(1, true, 1);
	list(2);
	learn(9, "x", 0);
	tree_evict_slot(tree, tree_slot(tree_object(tree, &root), "x"));
	learn(5, "x", 7);
	check_name(TREE_ASK, 0, "x", 0);
	learn(10, "x", 7);
	check_name(TREE_WATCHED, 7, "x", 0);
}

static void test_facts_are_bounded(void)
{
	char name[32];

	start(0, 1000);
	watch(1, true, 1);
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "name %u", i);
		learn(10 + i, name, i % 2 ? 0 : 100 + i);
	}
	CHECK(tree->objects.count + tree->names <= 1100);
	check_name(TREE_ASK, 0, "name 0", 0);
}

static bool is_not_root(void *user, const struct object_id *id, void *kept)
{
	(void)user;
	(void)kept;
	return id->inode != root.inode;
}

/* A file each second comes and goes. */
static void test_what_is_gone_is_dropped_when_nothing_of_it_is_on_its_way(void)
{
	const struct tree_options options = {.facts_max = 1000000, .drop = is_not_root};
	const struct object_id id = {.inode = 999};

	start(0, 0);
	tree_free(tree);
	tree = tree_new(&options);
	watch(1, true, 1);
	list(2);
	for (uint64_t i = 3; i < 1000; i++) {
		const struct tree_look l = {.at = 2 * i, .ms = 1000 * i},
				       later = {.at = 2 * i + 1, .ms = 1000 * i};
		const struct attributes a = file(i, 1);

		CHECK_RC(0, tree_learn_name(tree, &l, &root, "x", &a));
		CHECK_RC(0, tree_learn_name(tree, &later, &root, "x", NULL));
	}
	CHECK(tree->objects.count < 60);
	CHECK(tree_state(tree, &id) != 0); /* a moment ago */
	check_name(TREE_WATCHED, 0, "x", 0);
	for (uint64_t i = 1000; i < 1100; i++) {
		const struct tree_look l = {.at = 2 * i, .ms = 1000 * i};
		const struct attributes a = file(7, 1);

		CHECK_RC(0, tree_learn_name(tree, &l, &root, "y", &a));
	}
	CHECK_RC(2, tree->objects.count);
	CHECK_RC(1, tree->names);
	check_name(TREE_WATCHED, 0, "x", 0);
}

/* Thousands of files come and go, and then nothing more comes. */
static void test_what_is_gone_is_dropped_when_nothing_comes(void)
{
	const struct tree_options options = {.facts_max = 1000000, .drop = is_not_root};
	const struct attributes late = file(7, 1);
	const struct tree_look l = {.at = 10, .ms = 1000};
	char name[16];
	size_t part = 0;
	int parts = 1;

	start(0, 0);
	tree_free(tree);
	tree = tree_new(&options);
	watch(1, true, 1);
	list(2);
	for (uint64_t i = 3; i < 5000; i++) {
		const struct tree_look made = {.at = 2 * i, .ms = 1000},
				       removed = {.at = 2 * i + 1, .ms = 1000};
		const struct attributes a = file(i, 1);

		snprintf(name, sizeof(name), "name %d", (int)i);
		CHECK_RC(0, tree_learn_name(tree, &made, &root, name, &a));
		CHECK_RC(0, tree_learn_name(tree, &removed, &root, name, NULL));
	}
	CHECK(tree->objects.count > 4000 && tree->names > 4000);
	learn(20000, "y", 8);
	while (tree_clean(tree, &part))
		parts++;
	CHECK(parts > 1);
	CHECK_RC(2, tree->objects.count);
	CHECK_RC(1, tree->names);
	CHECK(tree->objects.mask < 4096);
	check_name(TREE_WATCHED, 0, "name 7", 0);
	check_name(TREE_WATCHED, 8, "y", 0);
	/* A fact of before, which was on its way for that long, counts for nothing. */
	CHECK_RC(0, tree_learn_name(tree, &l, &root, "name 7", &late));
	check_name(TREE_ASK, 0, "name 7", 0);
}

static void test_without_memory_it_is_a_loss(void)
{
	start(0, 0);
	watch(1, true, 1);
	learn(2, "x", 7);
	memory_ends_after(0);
	learn(5, "y", 8);
	memory_is_back();
	check_name(TREE_ASK, 7, "x", 5000);
	watch(6, true, 1);
	learn(7, "x", 7);
	check_name(TREE_WATCHED, 7, "x", 9000);
}

static struct attributes odd_attributes(void)
{
	return (struct attributes){.id = {1, 7, 3},
		.mode = S_IFREG | 07777,
		.nlink = UINT32_MAX,
		.uid = UINT32_MAX - 1,
		.gid = UINT32_MAX - 2,
		.size_bytes = UINT64_MAX,
		.blocks = UINT32_MAX,
		.block_size_bytes = UINT32_MAX,
		.atime = {-1, 999999999},
		.mtime = {-8500000000, 1},
		.ctime = {8500000000, 0},
		.changed_lately = true,
		.is_generated = true};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* How the tree tells what it learnt: as it is. */
static enum tree_validity told(const struct attributes *learnt)
{
	const struct tree_look l = {.at = 9, .ms = 9};
	struct attributes a = {0};
	enum tree_validity v;

	start(1000, 0);
	CHECK_RC(0, tree_learn_attributes(tree, &l, learnt));
	v = tree_get_attributes(tree, &learnt->id, 9, &a);
	if (v != TREE_ASK)
		CHECK(attributes_same_version(&a, learnt) && same_time(&a.atime, &learnt->atime) &&
			a.blocks == learnt->blocks && a.rdev == learnt->rdev &&
			a.block_size_bytes == learnt->block_size_bytes &&
			a.changed_lately == learnt->changed_lately &&
			a.is_generated == learnt->is_generated);
	return v;
}

static void test_attributes_are_told_as_they_are_or_asked_for(void)
{
	const struct attributes odd = odd_attributes();
	struct attributes a = odd;

	CHECK_RC(TREE_BRIEFLY, told(&a));
	a.mode = S_IFBLK | 0600;
	a.size_bytes = 0;
	a.rdev = UINT64_MAX;
	CHECK_RC(TREE_BRIEFLY, told(&a));
	a = odd;
	a.atime.tv_sec = (time_t)1 << 40;
	CHECK_RC(TREE_ASK, told(&a));
	a = odd;
	a.mtime.tv_sec = -((time_t)1 << 40);
	CHECK_RC(TREE_ASK, told(&a));
	a = odd;
	a.ctime.tv_sec = (time_t)1 << 62;
	CHECK_RC(TREE_ASK, told(&a));
	a = odd;
	a.blocks++;
	CHECK_RC(TREE_ASK, told(&a));
	a = odd;
	a.mode |= 1 << 16;
	CHECK_RC(TREE_BRIEFLY, told(&a));
}

/* With what malloc adds to it. */
static size_t bytes_of(void *allocated)
{
	return malloc_usable_size(allocated) + sizeof(size_t);
}

/* With what a slab adds to it: a region's own pages, and up to an eighth of a page that is left. */
static size_t bytes_in_slab(size_t size)
{
	size_t rounded = (size + SLAB_STEP - 1) / SLAB_STEP * SLAB_STEP, pages = 254, page = 4096;

	return (pages + 2) * page / (pages * (page / rounded));
}

static size_t bytes_of_directory(const struct directory_facts *d)
{
	size_t bytes = bytes_in_slab(sizeof(*d)) + bytes_of(d->slots.buckets);

	for (size_t i = 0; i <= d->slots.mask; i++)
		for (struct slot *s = slab_at(d->slots.buckets[i]); s; s = slab_at(s->next))
			bytes += bytes_in_slab(offsetof(struct slot, name) + strlen(s->name) + 1);
	return bytes;
}

static size_t bytes_of_tree(void)
{
	size_t bytes = bytes_of(tree) + bytes_of(tree->objects.buckets);

	for (size_t i = 0; i <= tree->objects.mask; i++)
		for (struct object *o = slab_at(tree->objects.buckets[i]); o; o = slab_at(o->next))
			bytes += bytes_in_slab(sizeof(*o)) +
				 (o->has_facts ? bytes_of_directory(tree_facts(o)) : 0);
	return bytes;
}

/* A far end may tell another owner at each look. */
static void test_what_no_file_has_any_more_takes_no_memory(void)
{
	start(0, 0);
	for (unsigned i = 0; i < 1000; i++) {
		const struct tree_look l = look(10 + i);
		struct attributes a = file(1, 1);

		a.uid = i;
		CHECK_RC(0, tree_learn_attributes(tree, &l, &a));
	}
	CHECK(tree->kinds.table.count <= 2);
	tree_free(tree);
	tree = NULL;
}

static void test_a_known_file_takes_168_bytes_at_most(void)
{
	enum { FILES = 100000, PER_DIRECTORY = 100 };
	char name[32];

	start(0, 0);
	for (unsigned i = 0; i < FILES; i++) {
		const struct object_id directory = {.inode = 1000000 + i / PER_DIRECTORY};
		const struct tree_look l = look(10 + i);
		const struct attributes a = file(10 + i, 1);

		/* As long as the names in a tree of sources are. */
		snprintf(name, sizeof(name), "a_source_%05u.c", i);
		CHECK_RC(0, tree_learn_name(tree, &l, &directory, name, &a));
	}
	printf("%zu bytes a file, of which %zu for its name and %zu for the object\n",
		bytes_of_tree() / FILES, offsetof(struct slot, name) + 17, sizeof(struct object));
	CHECK_RC(FILES, tree->names);
	CHECK(bytes_of_tree() / FILES <= (SLAB_BY_MALLOC ? 224 : 168));
	tree_free(tree);
	tree = NULL;
}

TEST_MAIN("tree", TEST(test_highest_position_wins_in_any_order_of_arrival),
	TEST(test_a_file_that_lost_a_name_is_asked_for), TEST(test_what_is_listed_is_complete),
	TEST(test_a_loss_makes_ask_for_all_that_is_older),
	TEST(test_what_nobody_watches_is_valid_for_its_time),
	TEST(test_watch_is_known_in_any_order_of_arrival),
	TEST(test_a_watch_of_before_a_loss_backs_nothing), TEST(test_no_position_is_refused),
	TEST(test_a_file_is_known_when_all_its_names_are),
	TEST(test_an_equal_look_within_a_tick_is_another_state),
	TEST(test_a_change_that_was_given_up_is_asked_for),
	TEST(test_what_a_reply_leaves_open_is_not_known_from_before_it),
	TEST(test_a_removal_says_nothing_of_other_names),
	TEST(test_a_dropped_name_does_not_come_back),
	TEST(test_what_is_gone_is_dropped_when_nothing_of_it_is_on_its_way),
	TEST(test_facts_are_bounded), TEST(test_what_is_gone_is_dropped_when_nothing_comes),
	TEST(test_without_memory_it_is_a_loss),
	TEST(test_attributes_are_told_as_they_are_or_asked_for),
	TEST(test_what_no_file_has_any_more_takes_no_memory),
	TEST(test_a_known_file_takes_168_bytes_at_most))
