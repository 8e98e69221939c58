/* What the contract suite does not ask of every place: the bound, sparse files, big
 * directories, and locks that wait. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/workspace.h"
#include "tests/check.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static struct op_context context;

static struct workspace *new_workspace(const char *size_option)
{
	const char *pairs[] = {size_option, NULL};
	struct workspace_options options = {pairs};
	struct workspace *w = NULL;
	char *reason = NULL;

	op_context_init(&context);
	CHECK_RC(0, scheme_open("mem", "", &options, &w, &reason));
	free(reason);
	return w;
}

static struct open_file *new_file(struct workspace *w, const char *path)
{
	struct open_file *file = NULL;
	struct attributes attributes;

	CHECK_RC(0, workspace_create(&context, w, path, O_RDWR, 0644, &file, &attributes));
	return file;
}

static uint64_t free_blocks(struct workspace *w)
{
	struct fs_stats stats;

	CHECK_RC(0, workspace_statfs(&context, w, &stats));
	return stats.blocks_free;
}

static void test_options_are_checked(void)
{
	static const char *const bad[] = {
		"size=", "size=12x", "size=-1", "size=4k", "size=99999999999T", "sise=1M"};
	struct workspace *w = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *pairs[] = {bad[i], NULL};
		struct workspace_options options = {pairs};
		char *reason = NULL;

		CHECK_RC(-EINVAL, scheme_open("mem", "", &options, &w, &reason));
		CHECK(reason != NULL);
		free(reason);
	}
}

static void test_a_sparse_terabyte_costs_nothing(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = new_file(w, "sparse");
	off_t end = (off_t)1 << 40;
	char data[8];

	CHECK_RC(4, workspace_write(&context, file, "tail", 4, end));
	CHECK_RC(4, workspace_read(&context, file, data, sizeof(data), end));
	CHECK(memcmp(data, "tail", 4) == 0);
	CHECK_RC(8, workspace_read(&context, file, data, sizeof(data), end / 2));
	CHECK(memcmp(data, "\0\0\0\0\0\0\0\0", 8) == 0);
	CHECK_RC(end, workspace_seek(&context, file, 0, SEEK_DATA));
	CHECK_RC(0, workspace_seek(&context, file, 0, SEEK_HOLE));
	CHECK_RC(end + 4, workspace_seek(&context, file, end, SEEK_HOLE));
	CHECK_RC(-ENXIO, workspace_seek(&context, file, end + 4, SEEK_DATA));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_a_punched_hole_reads_as_zeros_and_gives_its_pages_back(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = new_file(w, "file");
	static char data[64 * KIB], zeros[64 * KIB];
	uint64_t before;

	memset(data, 'x', sizeof(data));
	CHECK_RC(sizeof(data), workspace_write(&context, file, data, sizeof(data), 0));
	before = free_blocks(w);
	CHECK_RC(0, workspace_fallocate(
			    &context, file, ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE, 1000, 40000));
	CHECK(free_blocks(w) >= before + 8);
	CHECK_RC(4096, workspace_seek(&context, file, 0, SEEK_HOLE));
	CHECK_RC(sizeof(data), workspace_read(&context, file, data, sizeof(data), 0));
	CHECK(data[999] == 'x' && data[41000] == 'x');
	CHECK(memcmp(data + 1000, zeros, 40000) == 0);
	CHECK_RC(
		-EOPNOTSUPP, workspace_fallocate(&context, file, ALLOCATE_COLLAPSE_RANGE, 0, 4096));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_shrinking_and_growing_again_shows_zeros(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = new_file(w, "file");
	struct object_ref object = OBJECT_OF(file);
	struct attributes want = {.size_bytes = 3}, got;
	char data[16];

	CHECK_RC(10, workspace_write(&context, file, "0123456789", 10, 0));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_SIZE, &want, &got));
	want.size_bytes = 10;
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_SIZE, &want, &got));
	CHECK_RC(10, workspace_read(&context, file, data, sizeof(data), 0));
	CHECK(memcmp(data, "012\0\0\0\0\0\0\0", 10) == 0);
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_the_bound_is_kept_and_comes_back(void)
{
	struct workspace *w = new_workspace("size=1M");
	uint64_t at_start = free_blocks(w);
	struct open_file *file = new_file(w, "file");
	static char data[2 * MIB];
	ssize_t written = workspace_write(&context, file, data, sizeof(data), 0);

	CHECK(written > MIB / 2 && written < MIB);
	CHECK_RC(-ENOSPC, workspace_write(&context, file, data, sizeof(data), written));
	CHECK_RC(-ENOSPC, workspace_fallocate(&context, file, 0, 0, (off_t)1 << 50));
	CHECK_RC(0, free_blocks(w));
	CHECK_RC(0, workspace_unlink(&context, w, "file", NULL));
	CHECK_RC(0, free_blocks(w));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(at_start, free_blocks(w));
	workspace_free(w);
}

static void test_names_count_against_the_bound(void)
{
	struct workspace *w = new_workspace("size=64k");
	struct attributes attributes;
	char path[16];
	int made = 0, r = 0;

	while (r == 0 && made < 100000) {
		snprintf(path, sizeof(path), "d%d", made);
		r = workspace_mkdir(&context, w, path, 0755, &attributes);
		made += r == 0;
	}
	CHECK_RC(-ENOSPC, r);
	CHECK(made > 50 && made < 1000);
	CHECK_RC(0, workspace_rename(&context, w, "d1", "d2", 0, NULL));
	workspace_free(w);
}

static int count_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(int *)user;
	return 0;
}

static void test_a_directory_of_200000_entries_is_quick(void)
{
	struct workspace *w = new_workspace("size=512M");
	struct object_ref root = OBJECT_AT("");
	struct attributes attributes;
	clock_t start = clock();
	uint64_t since;
	bool good = true;
	int count = 0;
	char path[16];

	for (int i = 0; i < 200000; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		good = good &&
		       workspace_mknod(&context, w, path, S_IFREG | 0644, 0, &attributes) == 0;
	}
	CHECK_RC(0, workspace_readdir(&context, w, &root, false, count_entry, &count, &since));
	CHECK_RC(200000, count);
	for (int i = 0; i < 200000; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		good = good && workspace_unlink(&context, w, path, NULL) == 0;
	}
	CHECK(good);
	CHECK(clock() - start < 10 * CLOCKS_PER_SEC);
	workspace_free(w);
}

struct waiter {
	struct open_file *file;
	struct file_lock lock;
	atomic_bool give_up;
	atomic_int result;
};

static bool gave_up(struct op_context *ctx)
{
	struct waiter *waiter = ctx->interrupted_data;

	return atomic_load(&waiter->give_up);
}

static void *wait_for_lock(void *user)
{
	struct waiter *waiter = user;
	struct op_context ctx = {.interrupted = gave_up, .interrupted_data = waiter};

	atomic_store(&waiter->result, workspace_lock(&ctx, waiter->file, &waiter->lock, true));
	return NULL;
}

static void test_a_waiter_gets_the_lock_or_gives_up(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = new_file(w, "file");
	struct file_lock mine = {LOCK_KIND_POSIX, LOCK_EXCLUSIVE, .owner = 1, .length = 100};
	struct file_lock theirs = {LOCK_KIND_POSIX, LOCK_SHARED, .owner = 2, .offset = 50};
	struct waiter waiter = {.file = file, .lock = theirs, .result = 1};
	pthread_t thread;

	CHECK_RC(0, workspace_lock(&context, file, &mine, false));
	CHECK_RC(-EAGAIN, workspace_lock(&context, file, &theirs, false));
	pthread_create(&thread, NULL, wait_for_lock, &waiter);
	usleep(20000);
	CHECK_RC(1, atomic_load(&waiter.result));
	mine = (struct file_lock){
		LOCK_KIND_POSIX, LOCK_NONE, .owner = 1, .offset = 50, .length = 50};
	CHECK_RC(0, workspace_lock(&context, file, &mine, false));
	pthread_join(thread, NULL);
	CHECK_RC(0, atomic_load(&waiter.result));

	mine = (struct file_lock){LOCK_KIND_POSIX, LOCK_EXCLUSIVE, .owner = 1, .offset = 60};
	waiter.lock = mine;
	atomic_store(&waiter.result, 1);
	pthread_create(&thread, NULL, wait_for_lock, &waiter);
	usleep(20000);
	atomic_store(&waiter.give_up, true);
	pthread_join(thread, NULL);
	CHECK_RC(-EINTR, atomic_load(&waiter.result));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_unlocking_the_middle_leaves_both_sides(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = new_file(w, "file");
	struct file_lock lock = {LOCK_KIND_POSIX, LOCK_EXCLUSIVE, .owner = 1, .length = 100};
	struct file_lock middle = {
		LOCK_KIND_POSIX, LOCK_NONE, .owner = 1, .offset = 40, .length = 20};
	struct file_lock probe = {
		LOCK_KIND_POSIX, LOCK_EXCLUSIVE, .owner = 2, .offset = 40, .length = 20};

	CHECK_RC(0, workspace_lock(&context, file, &lock, false));
	CHECK_RC(0, workspace_lock(&context, file, &middle, false));
	CHECK_RC(0, workspace_lock_test(&context, file, &probe));
	CHECK_RC(LOCK_NONE, probe.type);
	probe.type = LOCK_EXCLUSIVE;
	probe.offset = 39;
	CHECK_RC(0, workspace_lock_test(&context, file, &probe));
	CHECK_RC(LOCK_EXCLUSIVE, probe.type);
	CHECK_RC(0, probe.offset);
	CHECK_RC(40, probe.length);
	CHECK_RC(0, workspace_lock_release_owner(&context, file, 1));
	probe = (struct file_lock){LOCK_KIND_POSIX, LOCK_EXCLUSIVE, .owner = 2};
	CHECK_RC(0, workspace_lock_test(&context, file, &probe));
	CHECK_RC(LOCK_NONE, probe.type);
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_an_unnamed_file_gets_a_name(void)
{
	struct workspace *w = new_workspace("size=1M");
	struct open_file *file = NULL;
	struct attributes attributes;
	struct object_ref object;

	CHECK_RC(0, workspace_create_unnamed(&context, w, "", O_RDWR, 0600, &file, &attributes));
	CHECK_RC(0, attributes.nlink);
	object = OBJECT_OF(file);
	CHECK_RC(0, workspace_link(&context, w, &object, "named", &attributes));
	CHECK_RC(1, attributes.nlink);
	CHECK_RC(0, workspace_unlink(&context, w, "named", NULL));
	CHECK_RC(-ENOENT, workspace_link(&context, w, &object, "again", &attributes));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

TEST_MAIN("mem", TEST(test_options_are_checked), TEST(test_a_sparse_terabyte_costs_nothing),
	TEST(test_a_punched_hole_reads_as_zeros_and_gives_its_pages_back),
	TEST(test_shrinking_and_growing_again_shows_zeros),
	TEST(test_the_bound_is_kept_and_comes_back), TEST(test_names_count_against_the_bound),
	TEST(test_a_directory_of_200000_entries_is_quick),
	TEST(test_a_waiter_gets_the_lock_or_gives_up),
	TEST(test_unlocking_the_middle_leaves_both_sides), TEST(test_an_unnamed_file_gets_a_name))
