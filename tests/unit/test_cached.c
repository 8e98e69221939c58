/* What the cached decorator spares the place, and that it stays true while it does. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/cached.h"
#include "ops/content_store.h"
#include "ops/faulty.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/remove_tree.h"
#include "tests/unit/place.h"

/* cached over faulty (which counts the calls) over a directory, here or at a helper's. */
static char directory[64];
static bool through_helper;
static struct workspace *counter, *w;
static struct op_context context;
static struct attributes ignored;

static void behind(const char *command)
{
	cleanup_free char *text = NULL;

	if (asprintf(&text, "cd '%s/tree' && %s", directory, command) > 0)
		CHECK_RC(0, system(text));
}

static void mount_with(const struct cached_options *options, const char *faults)
{
	struct workspace *local = NULL;
	char tree[80], *reason = NULL;

	op_context_init(&context);
	snprintf(tree, sizeof(tree), "%s/tree", directory);
	if (through_helper)
		CHECK_RC(0, remote_open("helper", tree, &(struct workspace_options){0}, &local,
				    &reason));
	else
		CHECK_RC(0, local_open("local", tree, NULL, &local, &reason));
	CHECK_RC(0, faulty_new(local, faults, &counter));
	CHECK_RC(0, cached_new(counter, options, &w));
}

static void mount_it(const struct cached_options *options)
{
	mount_with(options, "");
}

static void setup(const char *command)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	char tree[80];

	snprintf(directory, sizeof(directory), "/tmp/isthmus-cached-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	snprintf(tree, sizeof(tree), "%s/tree", directory);
	CHECK_RC(0, mkdir(tree, 0755));
	behind(command);
	mount_it(&options);
}

static void teardown(void)
{
	workspace_free(w);
	CHECK_RC(0, remove_tree(directory));
}

static uint64_t calls(void)
{
	return faulty_calls(counter, NULL);
}

static void forget_calls(void)
{
	cached_quiesce(w);
	faulty_set(counter, "");
}

static int look(const char *path, struct attributes *ret_attributes)
{
	struct object_ref object = OBJECT_AT(path);

	return workspace_getattr(&context, w, &object, ret_attributes);
}

static int count_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(int *)user;
	return 0;
}

static int count(const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	bool watched;
	int entries = 0;
	int r = workspace_readdir(&context, w, &object, true, count_entry, &entries, &watched);

	return r < 0 ? r : entries;
}

static struct open_file *open_it(const char *path, int flags)
{
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_open_file(&context, w, &object, flags, &file, &ignored));
	return file;
}

/* The text of a file, in static memory. */
static const char *text_of(const char *path)
{
	static char text[4096];
	struct open_file *file = open_it(path, O_RDONLY);
	ssize_t got = file ? workspace_read(&context, file, text, sizeof(text) - 1, 0) : 0;

	text[got > 0 ? got : 0] = '\0';
	CHECK_RC(0, workspace_close(&context, file));
	return text;
}

/* Waits up to 2 s for the feed to make it so. */
static bool comes_true(bool (*condition)(void))
{
	for (int i = 0; i < 200; i++) {
		if (condition())
			return true;
		usleep(10000);
	}
	return false;
}

static void test_what_is_known_is_not_asked_again(void)
{
	setup("mkdir d && echo 1 > d/a && echo 2 > d/b && ln -s a d/l");
	CHECK_RC(3, count("d"));
	CHECK_RC(0, look("d/a", &ignored));
	CHECK_STRING("1\n", text_of("d/a"));
	CHECK_STRING("2\n", text_of("d/b"));
	forget_calls();
	CHECK_RC(3, count("d"));
	CHECK_RC(0, look("d/a", &ignored));
	CHECK_RC(0, look("d", &ignored));
	CHECK_RC(-ENOENT, look("d/none", &ignored));
	CHECK_RC(-ENOTDIR, look("d/a/x", &ignored));
	CHECK_STRING("1\n", text_of("d/a"));
	CHECK_STRING("2\n", text_of("d/b"));
	CHECK_RC(0, calls());
	CHECK(context.served.from_cache);
	teardown();
}

static void test_a_walk_costs_a_handful_of_calls(void)
{
	char path[32];

	setup("for i in 1 2 3 4 5 6 7 8; do mkdir -p $i/a $i/b; echo $i > $i/f; echo $i > "
	      "$i/b/g; done");
	CHECK_RC(8, count(""));
	for (int i = 1; i <= 8; i++) {
		snprintf(path, sizeof(path), "%d", i);
		CHECK_RC(3, count(path));
		snprintf(path, sizeof(path), "%d/b", i);
		CHECK_RC(1, count(path));
	}
	CHECK(faulty_calls(counter, "scan") <= 5);
	CHECK_RC(0, faulty_calls(counter, "getattr"));
	for (int i = 1; i <= 8; i++) {
		snprintf(path, sizeof(path), "%d/f", i);
		CHECK_RC(i, atoi(text_of(path)));
		snprintf(path, sizeof(path), "%d/b/g", i);
		CHECK_RC(i, atoi(text_of(path)));
	}
	CHECK(faulty_calls(counter, "open") <= 4);
	teardown();
}

/* Nobody watches: everything is fetched anew when its time is over, but in few calls. */
static void test_a_walk_without_a_feed_costs_a_handful_of_calls_each_time(void)
{
	static const struct cached_options options = {.ttl_ms = 500};
	char path[32];

	setup("for i in 1 2 3 4 5 6 7 8; do mkdir -p $i/a/x $i/b/y; done");
	workspace_free(w);
	mount_with(&options, "watch:1:EOPNOTSUPP");
	for (int round = 0; round < 2; round++) {
		forget_calls();
		CHECK_RC(8, count(""));
		for (int i = 1; i <= 8; i++) {
			snprintf(path, sizeof(path), "%d/a", i);
			CHECK_RC(1, count(path));
			snprintf(path, sizeof(path), "%d/b", i);
			CHECK_RC(1, count(path));
		}
		CHECK(calls() < 16);
		usleep(600000);
	}
	teardown();
}

static bool has_grown(void)
{
	struct attributes a;

	return look("d/a", &a) == 0 && a.size_bytes == 6 && strcmp(text_of("d/a"), "longer") == 0;
}

static bool is_gone(void)
{
	return look("d/a", &ignored) == -ENOENT && count("d") == 1;
}

static bool has_come(void)
{
	return look("d/new", &ignored) == 0 && count("d") == 3;
}

static void test_changes_of_others_show(void)
{
	setup("mkdir d && echo 1 > d/a && echo 2 > d/b");
	CHECK_RC(2, count("d"));
	CHECK_RC(-ENOENT, look("d/new", &ignored));
	CHECK_STRING("1\n", text_of("d/a"));
	behind("echo 3 > d/new");
	CHECK(comes_true(has_come));
	behind("rm d/new; printf longer > d/a");
	CHECK(comes_true(has_grown));
	behind("rm d/a");
	CHECK(comes_true(is_gone));
	teardown();
}

static void test_without_a_feed_the_ttl_counts(void)
{
	static const struct cached_options options = {.ttl_ms = 300};

	setup("echo 1 > a");
	workspace_free(w);
	mount_with(&options, "watch:1:EOPNOTSUPP");
	CHECK_STRING("1\n", text_of("a"));
	CHECK_RC(1, count(""));
	forget_calls();
	CHECK_RC(0, look("a", &ignored));
	CHECK_RC(-ENOENT, look("b", &ignored));
	CHECK_RC(0, calls());
	behind("echo 22 > a; echo 3 > b");
	usleep(310000);
	CHECK_STRING("22\n", text_of("a"));
	CHECK_RC(0, look("b", &ignored));
	CHECK_RC(2, count(""));
	teardown();
}

static void test_own_changes_show_at_once(void)
{
	struct open_file *file = NULL;
	struct attributes a;

	setup("mkdir d && echo 1 > d/a");
	CHECK_RC(1, count("d"));
	CHECK_RC(0, workspace_create(&context, w, "d/n", O_RDWR, 0644, &file, &a));
	CHECK_RC(5, workspace_write(&context, file, "12345", 5, 0));
	CHECK_RC(0, look("d/n", &a));
	CHECK_RC(5, a.size_bytes);
	CHECK_RC(5, workspace_write(&context, file, "67890", 5, 5));
	CHECK_RC(2, count("d"));
	CHECK_RC(2, count("d"));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(2, count("d"));
	CHECK_RC(0, workspace_rename(&context, w, "d/n", "d/m", 0, NULL));
	CHECK_RC(-ENOENT, look("d/n", &a));
	CHECK_RC(0, look("d/m", &a));
	CHECK_RC(10, a.size_bytes);
	CHECK_STRING("1234567890", text_of("d/m"));
	CHECK_RC(0, workspace_unlink(&context, w, "d/m", NULL));
	CHECK_RC(-ENOENT, look("d/m", &a));
	CHECK_RC(1, count("d"));
	teardown();
}

/* As long as a far place takes: the feed tells of a call before the next one is made. */
static void far_away(void)
{
	usleep(50000);
}

/* An agent's step: look, read, write anew beside it and rename over it, read back, list. */
static void test_an_agents_step_costs_three_calls(void)
{
	struct open_file *file = NULL;
	struct attributes a;

	through_helper = true; /* it tells hashes of what was written */
	setup("mkdir d && echo old > d/a && echo x > d/b");
	through_helper = false;
	CHECK_RC(2, count("d"));
	CHECK_STRING("old\n", text_of("d/a"));
	forget_calls();
	CHECK_RC(0, look("d/a", &a));
	CHECK_STRING("old\n", text_of("d/a"));
	CHECK_RC(0, workspace_create(&context, w, "d/t", O_WRONLY, 0644, &file, &a));
	far_away();
	CHECK_RC(4, workspace_write(&context, file, "new\n", 4, 0));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, workspace_close(&context, file));
	far_away();
	CHECK_RC(0, workspace_rename(&context, w, "d/t", "d/a", 0, NULL));
	far_away();
	CHECK_STRING("new\n", text_of("d/a"));
	CHECK_RC(2, count("d"));
	CHECK_RC(1, faulty_calls(counter, "create"));
	CHECK_RC(1, faulty_calls(counter, "rename"));
	CHECK_RC(0, faulty_calls(counter, "open"));
	CHECK_RC(0, faulty_calls(counter, "read"));
	CHECK_RC(0, faulty_calls(counter, "getattr"));
	CHECK_RC(0, faulty_calls(counter, "scan"));
	teardown();
}

/* As tar, cp -p and install do: owner, times and mode before the file is closed. */
static void test_attributes_of_a_new_file_wait_for_its_flush(void)
{
	struct attributes want = {.mode = 0640, .mtime = {1000000000, 5}}, a;
	struct object_ref object = OBJECT_AT("d/n");
	struct open_file *file = NULL;

	setup("mkdir d");
	CHECK_RC(0, count("d"));
	CHECK_RC(0, workspace_create(&context, w, "d/n", O_WRONLY, 0600, &file, &a));
	want.uid = a.uid;
	want.gid = a.gid;
	CHECK_RC(4, workspace_write(&context, file, "text", 4, 0));
	forget_calls();
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MTIME, &want, &a));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_UID | SET_GID, &want, &a));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MODE, &want, &a));
	CHECK_RC(0, faulty_calls(counter, "setattr"));
	CHECK_RC(0640, a.mode & 07777);
	CHECK_RC(4, a.size_bytes);
	CHECK_RC(1000000000, a.mtime.tv_sec);
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(1, faulty_calls(counter, "setattr"));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, look("d/n", &a));
	CHECK_RC(0640, a.mode & 07777);
	CHECK_RC(1000000000, a.mtime.tv_sec);
	CHECK_RC(5, a.mtime.tv_nsec);
	CHECK_STRING("text", text_of("d/n"));
	teardown();
}

static void test_attributes_that_wait_show_to_all_who_look(void)
{
	struct attributes want = {.mode = 0640}, a;
	struct object_ref object = OBJECT_AT("d/n");
	struct open_file *file = NULL;

	setup("mkdir d");
	CHECK_RC(0, workspace_create(&context, w, "d/n", O_WRONLY, 0600, &file, &a));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MODE, &want, &a));
	CHECK_RC(0, look("d/n", &a));
	CHECK_RC(0640, a.mode & 07777);
	want.mode = 0600;
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MODE, &want, &a));
	CHECK_RC(2, workspace_write(&context, file, "ab", 2, 0));
	behind("test $(stat -c %a d/n) = 600");
	CHECK_RC(0, workspace_flush(&context, file));
	want.mode = 0644;
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MODE, &want, &a));
	behind("test $(stat -c %a d/n) = 644");
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_the_flush_tells_that_attributes_failed(void)
{
	struct attributes want = {.mode = 0640}, a;
	struct object_ref object = OBJECT_AT("n");
	struct open_file *file = NULL;

	setup("true");
	CHECK_RC(0, workspace_create(&context, w, "n", O_WRONLY, 0600, &file, &a));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MODE, &want, &a));
	faulty_set(counter, "setattr:1:EIO");
	CHECK_RC(-EIO, workspace_flush(&context, file));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, look("n", &a));
	CHECK_RC(0600, a.mode & 07777);
	teardown();
}

static void test_an_unlock_does_not_depend_on_the_flush(void)
{
	struct file_lock lock = {.kind = LOCK_KIND_FLOCK, .type = LOCK_EXCLUSIVE, .owner = 1};
	struct open_file *one, *other;

	through_helper = true; /* a local flush cannot fail */
	setup("touch a");
	one = open_it("a", O_RDWR);
	other = open_it("a", O_RDWR);
	CHECK_RC(0, workspace_lock(&context, one, &lock, false));
	CHECK_RC(-EAGAIN, workspace_lock(&context, other, &lock, false));
	CHECK_RC(1, workspace_write(&context, one, "x", 1, 0));
	faulty_set(counter, "flush:1:EIO");
	lock.type = LOCK_NONE;
	CHECK_RC(-EIO, workspace_lock(&context, one, &lock, false));
	lock.type = LOCK_EXCLUSIVE;
	CHECK_RC(0, workspace_lock(&context, other, &lock, false));
	CHECK_RC(0, workspace_close(&context, one));
	CHECK_RC(0, workspace_close(&context, other));
	teardown();
	through_helper = false;
}

static void test_an_open_file_outlives_its_name(void)
{
	struct open_file *file;
	char text[16];

	setup("echo kept > a && echo other > b");
	CHECK_STRING("kept\n", text_of("a"));
	file = open_it("a", O_RDONLY);
	behind("mv b a");
	usleep(200000);
	CHECK_STRING("other\n", text_of("a"));
	CHECK_RC(5, workspace_read(&context, file, text, sizeof(text), 0));
	CHECK(memcmp(text, "kept\n", 5) == 0);
	CHECK_RC(0, workspace_unlink(&context, w, "a", NULL));
	CHECK_RC(5, workspace_read(&context, file, text, sizeof(text), 0));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_an_open_file_outlives_what_led_to_it(void)
{
	static const struct cached_options options = {.ttl_ms = 100};
	struct open_file *file;
	char text[16];

	setup("mkdir d && echo kept > d/a");
	workspace_free(w);
	mount_with(&options, "watch:1:EOPNOTSUPP");
	CHECK_RC(1, count("d"));
	CHECK_STRING("kept\n", text_of("d/a"));
	file = open_it("d/a", O_RDONLY);
	behind("rm -r d && echo other > d");
	usleep(110000);
	CHECK_RC(5, workspace_read(&context, file, text, sizeof(text), 0));
	CHECK_RC(0, workspace_getattr(&context, w, &OBJECT_OF(file), &ignored));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* Closing any handle of a file drops its process's locks, whatever the file is called by then. */
static void test_locks_are_dropped_at_the_place_after_a_rename(void)
{
	const struct file_lock lock = {.kind = LOCK_KIND_POSIX, .type = LOCK_EXCLUSIVE, .owner = 7};
	struct open_file *file, *again;

	setup("mkdir d && echo 1 > d/a");
	CHECK_RC(1, count("d"));
	file = open_it("d/a", O_RDWR);
	CHECK_RC(0, workspace_lock(&context, file, &lock, false));
	CHECK_RC(0, workspace_rename(&context, w, "d/a", "d/b", 0, NULL));
	again = open_it("d/b", O_RDONLY);
	CHECK_RC(0, workspace_lock_release_owner(&context, again, 7));
	CHECK_RC(1, faulty_calls(counter, "lock_release_owner"));
	CHECK_RC(0, workspace_close(&context, again));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static bool reads_more(void)
{
	return strcmp(text_of("a"), "one\ntwo\n") == 0;
}

static void test_an_open_file_sees_what_is_appended(void)
{
	struct open_file *file;
	char text[16];

	setup("echo one > a");
	CHECK_STRING("one\n", text_of("a"));
	file = open_it("a", O_RDONLY);
	CHECK_RC(4, workspace_read(&context, file, text, sizeof(text), 0));
	behind("echo two >> a");
	CHECK(comes_true(reads_more));
	CHECK_RC(8, workspace_read(&context, file, text, sizeof(text), 0));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void test_a_failed_write_is_not_believed(void)
{
	struct open_file *file = NULL;
	struct attributes a;

	setup("true");
	CHECK_RC(0, workspace_create(&context, w, "a", O_WRONLY, 0644, &file, &a));
	faulty_set(counter, "write:1:ENOSPC");
	CHECK_RC(-ENOSPC, workspace_write(&context, file, "data", 4, 0));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, look("a", &a));
	CHECK_RC(0, a.size_bytes);
	CHECK_STRING("", text_of("a"));
	teardown();
}

static void test_what_is_refused_as_another_kind_is_looked_at_again(void)
{
	struct object_ref file = OBJECT_AT("file");
	struct open_file *opened;
	struct attributes now;

	setup("echo text >file");
	CHECK_RC(0, look("file", &now));
	behind("rm file && mkdir file");
	CHECK_RC(-EISDIR,
		workspace_open_file(&context, w, &file, O_RDONLY | O_NOATIME, &opened, &ignored));
	CHECK_RC(0, look("file", &now));
	CHECK(S_ISDIR(now.mode));
	teardown();
}

static void test_another_object_is_stale(void)
{
	struct object_ref object = OBJECT_AT("a");

	setup("echo 1 > a");
	CHECK_RC(0, look("a", &ignored));
	object.id = ignored.id;
	object.id.inode++;
	CHECK_RC(-ESTALE, workspace_getattr(&context, w, &object, &ignored));
	teardown();
}

static void test_big_files_are_whole(void)
{
	enum { SIZE = 24 << 20, STEP = 128 << 10 };
	uint32_t *numbers = malloc(STEP);
	struct open_file *file;
	bool good = true;

	setup("perl -e 'binmode STDOUT; print pack(\"V*\", ($_*32768)..(($_+1)*32768-1)) for "
	      "0..191' > big");
	file = open_it("big", O_RDONLY);
	for (off_t at = 0; at < SIZE; at += STEP) {
		good = good && workspace_read(&context, file, numbers, STEP, at) == STEP;
		for (uint32_t i = 0; i < STEP / 4; i++)
			good = good && numbers[i] == (uint32_t)(at / 4) + i;
	}
	CHECK(good);
	CHECK_RC(0, workspace_read(&context, file, numbers, STEP, SIZE));
	CHECK_RC(100, workspace_read(&context, file, numbers, STEP, SIZE - 100));
	CHECK_RC(0, workspace_close(&context, file));
	free(numbers);
	teardown();
}

/* In an order of the kernel's own, as when it is mapped. */
static bool read_in_pieces(const char *path, char first)
{
	enum { SIZE = 600000, STEP = 128 << 10 };
	static const int order[] = {0, 4, 1, 3, 2, 2};
	struct open_file *file = open_it(path, O_RDONLY);
	char *piece = malloc(STEP);
	bool good = true;

	for (size_t i = 0; i < array_size(order); i++) {
		off_t at = (off_t)order[i] * STEP;
		ssize_t want = SIZE - at < STEP ? SIZE - at : STEP;

		good = good && workspace_read(&context, file, piece, STEP, at) == want;
		for (ssize_t j = 0; good && j < want; j++)
			good = piece[j] ==
			       (at + j == 0 ? first : 'a' + (char)((at + j) / 4096 % 26));
	}
	free(piece);
	CHECK_RC(0, workspace_close(&context, file));
	return good;
}

static bool starts_with_z(void)
{
	struct open_file *file = open_it("big", O_RDONLY);
	char c = 0;
	ssize_t got = workspace_read(&context, file, &c, 1, 0);

	CHECK_RC(0, workspace_close(&context, file));
	return got == 1 && c == 'z';
}

static void test_a_larger_file_that_was_read_is_known(void)
{
	struct open_file *file;

	setup("perl -e 'print substr(join(\"\", map {chr(97 + $_ % 26) x 4096} 0..150), 0, "
	      "600000)' "
	      "> big");
	CHECK(read_in_pieces("big", 'a'));
	forget_calls();
	CHECK(read_in_pieces("big", 'a'));
	file = open_it("big", O_RDONLY);
	CHECK_RC(0, calls());
	behind("printf z | dd of=big conv=notrunc status=none");
	CHECK(comes_true(starts_with_z));
	CHECK(read_in_pieces("big", 'z'));
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

/* ---- The store on disk ------------------------------------------------------------ */

static void setup_with_store(struct cached_options *ret_options)
{
	static char store[80];

	/* Larger than what comes along with the names. */
	setup("for i in 1 2 3 4 5 6; do echo content of $i > f$i; truncate -s 5000 f$i; done; "
	      "touch -d '1 hour ago' f*");
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

	setup_with_store(&options);
	read_all();
	workspace_free(w);

	mount_it(&options);
	read_all();
	CHECK_RC(0, faulty_calls(counter, "open"));
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

	setup_with_store(&options);
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
	.free = place_free,
	.status = place_status,
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

/* ---- Searches -------------------------------------------------------------------- */

static void test_who_searches_finds_the_next_directory_on_its_way(void)
{
	setup("mkdir a b c && for i in a b c; do for k in $(seq 100); do truncate -s 200K $i/$k; "
	      "done; done");
	CHECK_RC(3, count(""));
	CHECK_RC(100, count("a"));
	forget_calls();
	for (int i = 1; i <= 4; i++) {
		char path[8];

		snprintf(path, sizeof(path), "a/%d", i);
		CHECK_STRING("", text_of(path));
	}
	cached_quiesce(w);
	CHECK_RC(2, faulty_calls(counter, "scan")); /* of "a" and of one beside it */
	teardown();
}

/* ---- A far end that is slow ------------------------------------------------------- */

static struct workspace_ops slow_ops;
static const struct workspace_ops *quick_ops;

struct slow_sink {
	dir_entry_sink sink;
	void *user;
	bool is_guess;
};

/* Of content, that of empty files only, and late. */
static int take_slowly(void *user, const struct dir_entry *entry)
{
	const struct slow_sink *slow = user;
	struct dir_entry bare = *entry;
	int r;

	if (entry->content_size || !slow->is_guess)
		bare.content = NULL;
	r = slow->sink(slow->user, &bare);
	if (bare.content)
		usleep(50000);
	return r;
}

static int slow_scan(struct op_context *ctx, struct workspace *slow_one,
	const struct object_ref *scanned, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct slow_sink slow = {sink, user, request->flags & SCAN_GUESS};

	return quick_ops->scan(ctx, slow_one, scanned, request, take_slowly, &slow);
}

static void test_who_searches_waits_for_no_flow_of_empty_files(void)
{
	setup("touch e1 e2 e3 e4 && echo 1 > f1 && echo 2 > f2");
	quick_ops = counter->ops;
	slow_ops = *quick_ops;
	slow_ops.scan = slow_scan;
	counter->ops = &slow_ops;
	CHECK_RC(6, count(""));
	CHECK_STRING("1\n", text_of("f1"));
	CHECK_STRING("2\n", text_of("f2"));
	teardown();
}

TEST_MAIN("cached", TEST(test_what_is_known_is_not_asked_again),
	TEST(test_a_walk_without_a_feed_costs_a_handful_of_calls_each_time),
	TEST(test_a_walk_costs_a_handful_of_calls), TEST(test_changes_of_others_show),
	TEST(test_without_a_feed_the_ttl_counts), TEST(test_own_changes_show_at_once),
	TEST(test_an_agents_step_costs_three_calls),
	TEST(test_attributes_of_a_new_file_wait_for_its_flush),
	TEST(test_attributes_that_wait_show_to_all_who_look),
	TEST(test_the_flush_tells_that_attributes_failed),
	TEST(test_an_unlock_does_not_depend_on_the_flush),
	TEST(test_an_open_file_outlives_its_name), TEST(test_an_open_file_outlives_what_led_to_it),
	TEST(test_an_open_file_sees_what_is_appended),
	TEST(test_locks_are_dropped_at_the_place_after_a_rename),
	TEST(test_a_failed_write_is_not_believed),
	TEST(test_what_is_refused_as_another_kind_is_looked_at_again),
	TEST(test_another_object_is_stale), TEST(test_big_files_are_whole),
	TEST(test_a_larger_file_that_was_read_is_known),
	TEST(test_the_store_spares_reading_and_is_verified),
	TEST(test_what_the_place_has_just_changed_is_not_stored),
	TEST(test_a_store_is_private_and_its_hashes_its_own),
	TEST(test_what_killed_writers_left_in_a_store_goes),
	TEST(test_content_of_another_size_is_not_believed),
	TEST(test_who_searches_finds_the_next_directory_on_its_way),
	TEST(test_who_searches_waits_for_no_flow_of_empty_files))
