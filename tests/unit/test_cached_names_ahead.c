/* Walks through a tree with more names than one scan brings: to save time, the place reports each
 * file many times, and counts it as often. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/listing_order.h"
#include "ops/support/clock.h"
#include "ops/workspace_ops.h"
#include "tests/check.h"
#include "tests/unit/cached_fixture.h"

enum {
	TOPS = 8,    /* directories a to h in the root, ... */
	SUBS = 8,    /* each with so many, 0 to 7, ... */
	FILES = 6,   /* of so many files, ... */
	TIMES = 150, /* each of which is reported so often */
	COUNTS = 100,
};

static struct workspace_ops watched_ops;
static const struct workspace_ops *real_ops;
static atomic_uint loads, scans_ahead, scans_of_root; /* loads: scans that a caller waits for */
static atomic_bool is_slow;                           /* scans that no caller waits for */
static atomic_char scanned_ahead;                     /* the last one */
static char order[TOPS + 1];

struct receiver {
	dir_entry_sink sink;
	void *user;
	bool is_ahead;
};

static int report(void *user, const struct dir_entry *entry)
{
	const struct receiver *receiver = user;
	int times = S_ISREG(entry->attributes.mode) ? TIMES : 1, r = 0;

	if (is_slow && receiver->is_ahead)
		usleep(50000);
	while (r == 0 && times-- > 0)
		r = receiver->sink(receiver->user, entry);
	return r;
}

static int scan_some(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *scanned, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct receiver receiver = {sink, user, request->flags & SCAN_GUESS};
	struct scan_request fewer = *request;

	fewer.entries_max /= COUNTS;
	loads += request->depth_max != 0;
	if (request->depth_max == 0 && (request->flags & SCAN_GUESS)) {
		scanned_ahead = *scanned->path;
		scans_ahead++;
	}
	scans_of_root += request->depth_max == 0 && !*scanned->path;
	return real_ops->scan(ctx, workspace, scanned, &fewer, report, &receiver);
}

static int compare_order(const void *a, const void *b)
{
	uint64_t first = listing_order_of(a, 1), second = listing_order_of(b, 1);

	return (first > second) - (first < second);
}

static void make_tree(unsigned tops, unsigned files)
{
	char command[300];

	snprintf(command, sizeof(command),
		"python3 -c 'import os\nfor t in \"abcdefgh\"[:%u]:\n for s in range(%u):\n"
		"  os.makedirs(f\"{t}/{s}\")\n  for f in range(%u): os.mknod(f\"{t}/{s}/{f}\")'",
		tops, SUBS, files);
	setup(command);
	real_ops = counter->ops;
	watched_ops = *real_ops;
	watched_ops.scan = scan_some;
	counter->ops = &watched_ops;
	loads = scans_ahead = scans_of_root = 0;
	snprintf(order, sizeof(order), "abcdefgh");
	order[tops] = '\0';
	qsort(order, tops, 1, compare_order);
}

/* Lists the directory, and the first `subs` in it in order, as find(1) does. */
static void walk(char top, unsigned subs, unsigned files)
{
	char path[4] = {top}, names[] = "01234567";

	qsort(names, SUBS, 1, compare_order);
	CHECK_RC(SUBS, count(path));
	for (unsigned i = 0; i < subs; i++) {
		snprintf(path, sizeof(path), "%c/%c", top, names[i]);
		CHECK_RC(files, count(path));
		cached_quiesce(w);
	}
}

static void test_a_walk_through_a_large_tree_finds_what_it_comes_to(void)
{
	for (int backwards = 0; backwards < 2; backwards++) {
		make_tree(TOPS, FILES);
		CHECK_RC(TOPS, count(""));
		for (int i = 0; i < TOPS; i++) {
			if (i == 2)
				loads = 0;
			walk(order[backwards ? TOPS - 1 - i : i], SUBS, FILES);
		}
		CHECK_RC(0, loads);
		CHECK_RC(1, scans_of_root); /* a second one would end at the same bound */
		teardown();
	}
}

static void test_a_walk_that_stops_has_fetched_one_directory_too_many(void)
{
	unsigned before;

	make_tree(TOPS, FILES);
	CHECK_RC(TOPS, count(""));
	walk(order[0], SUBS, FILES);
	walk(order[1], 1, FILES);
	before = scans_ahead;
	walk(order[1], SUBS, FILES);
	CHECK_RC(before, scans_ahead);
	CHECK(before <= 1);
	teardown();
}

static void test_who_looks_at_the_upper_directories_gets_nothing_ahead(void)
{
	char path[2] = "";

	make_tree(TOPS, FILES);
	CHECK_RC(TOPS, count(""));
	walk(order[0], 2, FILES);
	for (int i = 1; i < TOPS; i++) {
		path[0] = order[i];
		CHECK_RC(SUBS, count(path));
		cached_quiesce(w);
	}
	CHECK_RC(0, scans_ahead);
	teardown();
}

static void test_a_tree_that_one_scan_brings_is_not_scanned_ahead(void)
{
	make_tree(TOPS, 1);
	CHECK_RC(TOPS, count(""));
	for (int i = 0; i < TOPS; i++)
		walk(order[i], SUBS, 1);
	CHECK_RC(0, scans_ahead);
	CHECK(loads <= 3);
	teardown();
}

static bool is_scanned_ahead(void)
{
	for (int i = 0; i < 20 && scans_ahead == 0; i++)
		usleep(10000);
	return scans_ahead > 0;
}

/* Lists it, and directories in it until something is fetched ahead. */
static void list_below(char top)
{
	char path[] = {top, '\0', '0', '\0'};

	CHECK_RC(SUBS, count(path));
	path[1] = '/';
	CHECK_RC(FILES, count(path));
	if (is_scanned_ahead())
		return;
	cached_quiesce(w);
	path[2] = '1';
	CHECK_RC(FILES, count(path));
	is_scanned_ahead();
}

/* The attributes of a file that is being written have to be asked for. */
static void test_a_listing_is_not_renewed_by_what_is_fetched_ahead(void)
{
	int64_t shortest_ms = INT64_MAX;
	struct open_file *file;
	char path[] = "x/0/0";

	make_tree(TOPS, FILES);
	CHECK_RC(TOPS, count(""));
	walk(order[0], SUBS, FILES);
	is_slow = true;
	for (int i = 1; i < TOPS && scans_ahead == 0; i++)
		list_below(order[i]);
	path[0] = scanned_ahead;
	file = open_it(path, O_WRONLY);
	CHECK_RC(1, workspace_write(&context, file, "x", 1, 0));
	path[3] = '\0';
	CHECK_RC(FILES, count(path));
	CHECK_RC(1, scans_ahead);
	for (int i = 0; i < 3; i++) {
		int64_t started_ms = clock_now_ms(), took_ms;

		CHECK_RC(FILES, count(path));
		took_ms = clock_now_ms() - started_ms;
		shortest_ms = took_ms < shortest_ms ? took_ms : shortest_ms;
	}
	CHECK(shortest_ms < 300);
	is_slow = false;
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

TEST_MAIN("cached_names_ahead", TEST(test_a_walk_through_a_large_tree_finds_what_it_comes_to),
	TEST(test_a_walk_that_stops_has_fetched_one_directory_too_many),
	TEST(test_who_looks_at_the_upper_directories_gets_nothing_ahead),
	TEST(test_a_tree_that_one_scan_brings_is_not_scanned_ahead),
	TEST(test_a_listing_is_not_renewed_by_what_is_fetched_ahead))
