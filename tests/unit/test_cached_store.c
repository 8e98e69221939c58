/* What the cached decorator keeps on disk, and that nothing is believed of it that is not so. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ops/cache/content_store.h"
#include "ops/faulty.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/unit/cached_fixture.h"
#include "tests/unit/place.h"

/* Larger than what comes along with the names. */
#define SIX_FILES                                                                                  \
	"for i in 1 2 3 4 5 6; do echo content of $i > f$i; truncate -s 5000 f$i; done; touch -d " \
	"'1 hour ago' f*"

static void setup_with_store(struct cached_options *ret_options, const char *command)
{
	static char store[80];

	setup(command);
	workspace_free(w);
	snprintf(store, sizeof(store), "%s/store", directory);
	/* ctime is now; only what has settled is kept. */
	sleep(3);
	*ret_options = (struct cached_options){
		.ttl_ms = 1000, .disk_bytes = 1 << 20, .disk_directory = store, .identity = "test"};
	mount_it(ret_options);
}

static void read_all(void)
{
	char path[8], want[32];

	for (int i = 1; i <= 6; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		snprintf(want, sizeof(want), "content of %d\n", i);
		CHECK_STRING(want, text_of(path));
	}
}

static int damage_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)walk;
	if (type != FTW_F || strstr(path, "index"))
		return 0;
	return truncate(path, 3);
}

static void test_the_store_spares_reading_and_is_verified(void)
{
	struct cached_options options;
	struct cached_stats stats;

	setup_with_store(&options, SIX_FILES);
	read_all();
	workspace_free(w);

	mount_it(&options);
	read_all();
	CHECK_RC(0, faulty_calls(counter, "open_file"));
	CHECK_RC(1, faulty_calls(counter, "scan"));
	cached_statistics(w, &stats);
	CHECK_RC(6, stats.disk_hits);
	workspace_free(w);

	CHECK_RC(0, nftw(options.disk_directory, damage_one, 16, FTW_PHYS));
	mount_it(&options);
	read_all();
	cached_statistics(w, &stats);
	CHECK_RC(0, stats.disk_hits);
	workspace_free(w);

	behind("printf 'content of 2\\n' > g; mv g f1");
	mount_it(&options);
	CHECK_STRING("content of 2\n", text_of("f1"));
	teardown();
}

static time_t ahead; /* our clock's, of the place's */

time_t time(time_t *ret_seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += ahead;
	if (ret_seconds)
		*ret_seconds = now.tv_sec;
	return now.tv_sec;
}

/* It may change once more without its times telling. */
static void test_what_the_place_has_just_changed_is_not_stored(void)
{
	struct cached_options options;
	struct cached_stats stats;

	setup_with_store(&options, SIX_FILES);
	behind("printf 'content of 1\\n' > f1; truncate -s 5000 f1");
	ahead = 3600;
	read_all();
	workspace_free(w);

	mount_it(&options);
	read_all();
	cached_statistics(w, &stats);
	CHECK_RC(5, stats.disk_hits);
	ahead = 0;
	teardown();
}

/* What waits to be written counts, too. */
static void test_memory_is_bounded_while_much_is_read(void)
{
	enum { FILES = 40, MEMORY_BYTES = 100 << 10 };
	struct cached_options options;
	struct cached_stats stats;
	char path[16], want[16];

	setup_with_store(&options,
		"for i in $(seq 40); do mkdir d$i; echo $i > d$i/f; truncate -s 10000 d$i/f; done; "
		"touch -d '1 hour ago' d*/f");
	workspace_free(w);
	options.memory_bytes = MEMORY_BYTES;
	options.disk_bytes = 4 << 20;
	mount_it(&options);
	for (int i = 1; i <= 3 * FILES; i++) {
		snprintf(path, sizeof(path), "d%d/f", (i - 1) % FILES + 1);
		snprintf(want, sizeof(want), "%d\n", (i - 1) % FILES + 1);
		CHECK_STRING(want, text_of(path));
		cached_statistics(w, &stats);
		CHECK(stats.content_bytes <= MEMORY_BYTES);
		if (i % FILES == 0)
			cached_quiesce(w);
	}
	teardown();
}

/* Whoever opens a file that was read before may have its content: the kernel in its pages. */
static void test_what_was_read_is_loaded_again_only_to_be_read(void)
{
	enum { FILES = 20 };
	struct open_file *files[FILES + 1];
	struct cached_options options;
	struct cached_stats before, after;
	char path[16], data[16];

	setup_with_store(&options,
		"mkdir d; for i in $(seq 20); do echo $i > d/f$i; truncate -s 10000 d/f$i; done; "
		"touch -d '1 hour ago' d/f*");
	workspace_free(w);
	options.memory_bytes = 50 << 10;
	mount_it(&options);
	CHECK_RC(FILES, count("d"));
	/* Twice: the first may be read while too much is queued for the store. */
	for (int i = 0; i < 2 * FILES; i++) {
		snprintf(path, sizeof(path), "d/f%d", i % FILES + 1);
		text_of(path);
		cached_quiesce(w);
	}
	cached_statistics(w, &before);
	forget_calls();
	for (int i = 1; i <= FILES; i++) {
		snprintf(path, sizeof(path), "d/f%d", i);
		files[i] = open_it(path, O_RDONLY);
	}
	cached_statistics(w, &after);
	CHECK_RC((long)before.disk_hits, (long)after.disk_hits);
	CHECK_RC(2, workspace_read(&context, files[1], data, 2, 0));
	CHECK(memcmp(data, "1\n", 2) == 0);
	behind("rm d/f2");
	for (int i = 0; i < 200 * test_patience() && look("d/f2", &ignored) == 0; i++)
		usleep(10000);
	CHECK_RC(2, workspace_read(&context, files[2], data, 2, 0));
	CHECK(memcmp(data, "2\n", 2) == 0);
	CHECK_RC(0, faulty_calls(counter, "open_file"));
	CHECK_RC(0, faulty_calls(counter, "read"));
	for (int i = 1; i <= FILES; i++)
		CHECK_RC(0, workspace_close(&context, files[i]));
	teardown();
}

/* Without a store nothing here has the content of what others removed. */
static void test_without_a_store_what_others_removed_is_stale(void)
{
	static const struct cached_options options = {.ttl_ms = 1000, .memory_bytes = 20000};
	struct open_file *file;
	char first;

	setup("mkdir d; for i in 1 2 3; do head -c 10000 /dev/zero > d/f$i; done");
	workspace_free(w);
	sleep(3);
	mount_it(&options);
	CHECK_RC(3, count("d"));
	text_of("d/f1");
	text_of("d/f2");
	text_of("d/f3");
	forget_calls();
	file = open_it("d/f1", O_RDONLY);
	CHECK_RC(0, calls());
	behind("rm d/f1");
	CHECK_RC(-ESTALE, workspace_read(&context, file, &first, 1, 0));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_an_idle_mount_gives_memory_back(void)
{
	enum { IDLE_BYTES = 16 << 20 };
	struct cached_options options;
	struct cached_stats stats;
	char path[16];

	setup_with_store(&options,
		"mkdir d; for i in $(seq 150); do head -c 200000 /dev/zero > d/f$i; done; "
		"touch -d '1 hour ago' d/f*");
	workspace_free(w);
	options.memory_bytes = options.disk_bytes = 256 << 20;
	mount_it(&options);
	CHECK_RC(150, count("d"));
	for (int i = 1; i <= 150; i++) {
		snprintf(path, sizeof(path), "d/f%d", i);
		text_of(path);
	}
	cached_statistics(w, &stats);
	CHECK(stats.content_bytes > IDLE_BYTES);
	for (int i = 0; i < 100 * test_patience() && stats.content_bytes > IDLE_BYTES; i++) {
		usleep(100000);
		cached_statistics(w, &stats);
	}
	CHECK(stats.content_bytes <= IDLE_BYTES);
	teardown();
}

static char found_name[64];

static int find_content(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	if (type == FTW_F && walk->level == 2)
		snprintf(found_name, sizeof(found_name), "%s", path + walk->base - 3);
	return 0;
}

/* The name under which a store keeps this content. */
static void store_it(const char *path, const char *identity, const char *text, char name[64])
{
	struct attributes version = {.id = {.inode = 1}, .size_bytes = strlen(text)};
	struct content_store *store = NULL;
	cleanup_free void *data = NULL;

	CHECK_RC(0, content_store_open(path, identity, 1 << 20, &store));
	CHECK_RC(0, content_store_put(store, &version, text));
	CHECK_RC(0, content_store_get(store, &version, &data));
	CHECK(data && memcmp(data, text, strlen(text)) == 0);
	content_store_close(store);
	found_name[0] = '\0';
	CHECK_RC(0, nftw(path, find_content, 16, FTW_PHYS));
	strcpy(name, found_name);
}

static void test_a_store_is_private_and_its_hashes_its_own(void)
{
	char one[80], other[80], names[3][64];
	struct content_store *store = NULL;
	struct stat st;

	setup("true");
	snprintf(one, sizeof(one), "%s/one", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	CHECK_RC(0, mkdir(one, 0777));
	CHECK_RC(0, chmod(one, 0777));
	store_it(one, "a", "content", names[0]);
	store_it(one, "b", "content", names[1]);
	store_it(other, "a", "content", names[2]);
	CHECK_STRING(names[0], names[1]);
	CHECK(strlen(names[2]) == 33 && strcmp(names[0], names[2]) != 0);
	CHECK_RC(0, stat(one, &st));
	CHECK_RC(0700, st.st_mode & 0777);
	if (geteuid() == 0 && CHECK_RC(0, chown(one, 64001, 64001)))
		CHECK_RC(-EPERM, content_store_open(one, "a", 1 << 20, &store));
	teardown();
}

static void put_temporary(const char *path, const char *name, time_t written)
{
	struct timespec times[2] = {{.tv_sec = written}, {.tv_sec = written}};
	char whole[128];
	cleanup_fd int fd = -1;

	snprintf(whole, sizeof(whole), "%s/%s", path, name);
	fd = open(whole, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK_RC(0, futimens(fd, times));
}

static bool is_in(const char *path, const char *name)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "%s/%s", path, name);
	return access(whole, F_OK) == 0;
}

static void test_what_killed_writers_left_in_a_store_goes(void)
{
	char path[80], name[64];

	setup("true");
	snprintf(path, sizeof(path), "%s/store", directory);
	CHECK_RC(0, mkdir(path, 0700));
	put_temporary(path, "tmp-1-0x1000", time(NULL) - 7200);
	put_temporary(path, "tmp-2-0x2000", time(NULL));
	store_it(path, "a", "content", name);
	CHECK(!is_in(path, "tmp-1-0x1000"));
	CHECK(is_in(path, "tmp-2-0x2000"));
	teardown();
}

/* ---- A far end that lies --------------------------------------------------------- */

static const struct attributes lying_directory = {
	.id = {.inode = 1}, .mode = S_IFDIR | 0755, .nlink = 2};
static const struct attributes lying_file = {
	.id = {.inode = 2}, .mode = S_IFREG | 0644, .nlink = 1, .size_bytes = 32 << 20};

static int lying_getattr(struct op_context *ctx, struct workspace *liar,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	(void)ctx;
	(void)liar;
	*ret_attributes = *object->path ? lying_file : lying_directory;
	return 0;
}

/* Content that nobody asked for, and less than its size says. */
static int lying_scan(struct op_context *ctx, struct workspace *liar,
	const struct object_ref *scanned, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	const struct dir_entry top = {.path = "", .attributes = lying_directory, .complete = true};
	const struct dir_entry file = {
		.path = "f", .attributes = lying_file, .content = "short", .content_size = 5};
	int r = sink(user, &top);

	(void)ctx;
	(void)liar;
	(void)scanned;
	(void)request;
	return r < 0 ? r : sink(user, &file);
}

static const struct workspace_ops lying_ops = {
	.name = "liar",
	.free = unvisited_free,
	.status = place_status,
	.statfs = place_statfs,
	.getattr = lying_getattr,
	.scan = lying_scan,
};

static void test_content_of_another_size_is_not_believed(void)
{
	struct workspace liar = {&lying_ops};
	char store[80];
	const struct cached_options options = {
		.ttl_ms = 1000, .disk_bytes = 1 << 30, .disk_directory = store, .identity = "liar"};
	struct cached_stats stats;
	struct attributes a;

	setup("true");
	workspace_free(w);
	snprintf(store, sizeof(store), "%s/store", directory);
	CHECK_RC(0, cached_new(&liar, &options, &w));
	CHECK_RC(0, look("f", &a));
	cached_quiesce(w);
	cached_statistics(w, &stats);
	CHECK_RC(0, stats.content_bytes);
	teardown();
}

TEST_MAIN("cached_store", TEST(test_the_store_spares_reading_and_is_verified),
	TEST(test_what_the_place_has_just_changed_is_not_stored),
	TEST(test_memory_is_bounded_while_much_is_read),
	TEST(test_what_was_read_is_loaded_again_only_to_be_read),
	TEST(test_without_a_store_what_others_removed_is_stale),
	TEST(test_an_idle_mount_gives_memory_back),
	TEST(test_a_store_is_private_and_its_hashes_its_own),
	TEST(test_what_killed_writers_left_in_a_store_goes),
	TEST(test_content_of_another_size_is_not_believed))
