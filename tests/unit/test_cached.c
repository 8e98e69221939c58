/* What the cached decorator spares the place, and that it stays true while it does. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ops/faulty.h"
#include "ops/listing_order.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/unit/cached_fixture.h"

/* Waits up to 2 s for the feed to make it so. */
static bool comes_true(bool (*condition)(void))
{
	for (int i = 0; i < 200 * test_patience(); i++) {
		if (condition())
			return true;
		usleep(10000);
	}
	return false;
}

static uint64_t names_known(void)
{
	struct cached_stats statistics;

	cached_statistics(w, &statistics);
	return statistics.names;
}

static void test_what_is_gone_is_forgotten_when_nothing_happens(void)
{
	char path[16];

	setup("seq -f 'echo > file%.0f' 100 | sh");
	CHECK_RC(100, count(""));
	for (int i = 1; i <= 100; i++) {
		snprintf(path, sizeof(path), "file%d", i);
		CHECK_RC(0, workspace_unlink(&context, w, path, NULL));
	}
	CHECK_RC(100, names_known());
	for (int i = 0; i < 1000 * test_patience() && names_known(); i++)
		usleep(20000);
	CHECK_RC(0, names_known());
	forget_calls();
	CHECK_RC(0, count(""));
	CHECK_RC(-ENOENT, look("file7", &ignored));
	CHECK_RC(0, calls());
	teardown();
}

/* How far it has come, as `status` would tell it meanwhile. */
static int note_progress(void *user, const struct dir_entry *entry)
{
	uint64_t *scanned_names = user;
	struct cached_stats statistics;

	(void)entry;
	cached_statistics(w, &statistics);
	CHECK_RC(1, statistics.scanning);
	CHECK(statistics.scanned_names > *scanned_names);
	*scanned_names = statistics.scanned_names;
	return 0;
}

static void test_while_a_scan_is_under_way_its_progress_is_told(void)
{
	const struct scan_request request = {.flags = SCAN_NOT_IGNORED};
	struct cached_stats statistics;
	uint64_t scanned_names = 0;

	setup("mkdir a && seq -f 'echo > a/file%.0f' 200 | sh");
	CHECK_RC(0, workspace_scan(
			    &context, w, &OBJECT_AT(""), &request, note_progress, &scanned_names));
	CHECK_RC(202, scanned_names);
	cached_statistics(w, &statistics);
	CHECK_RC(0, statistics.scanning);
	CHECK_RC(0, statistics.scanned_names);
	CHECK(statistics.names >= 201);
	teardown();
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
	CHECK(faulty_calls(counter, "open_file") <= 4);
	teardown();
}

/* Nobody watches: everything is fetched anew when its time is over, but in few calls. */
/* As git status does: it looks at every file, then lists every directory and reads its .gitignore.
 */
static void test_the_lists_of_git_come_with_the_names(void)
{
	enum { DIRECTORIES = 300 };
	struct cached_stats stats;
	char path[32];

	setup("mkdir -p .git/objects/00; for i in $(seq 300); do mkdir -p a$i/b; echo '*.o' | "
	      "tee .gitignore a$i/.gitignore > a$i/b/.gitignore; truncate -s 9000 a$i/b/f; "
	      "touch .git/objects/00/$i; done");
	forget_calls();
	for (int i = 1; i <= DIRECTORIES; i++) {
		snprintf(path, sizeof(path), "a%d", i);
		CHECK_RC(0, look(path, &ignored));
		snprintf(path, sizeof(path), "a%d/b", i);
		CHECK_RC(0, look(path, &ignored));
		snprintf(path, sizeof(path), "a%d/b/f", i);
		CHECK_RC(0, look(path, &ignored));
	}
	for (int i = 1; i <= DIRECTORIES; i++) {
		snprintf(path, sizeof(path), "a%d", i);
		CHECK_RC(2, count(path));
		snprintf(path, sizeof(path), "a%d/.gitignore", i);
		CHECK_STRING("*.o\n", text_of(path));
		snprintf(path, sizeof(path), "a%d/b", i);
		CHECK_RC(2, count(path));
		snprintf(path, sizeof(path), "a%d/b/.gitignore", i);
		CHECK_STRING("*.o\n", text_of(path));
	}
	CHECK(calls() <= 8);
	cached_statistics(w, &stats);
	CHECK(stats.prefetched_bytes < 9000);
	teardown();
}

/* At the edge of what was loaded nobody watches: there the time-to-live counts. */
static void test_a_path_costs_a_call_for_three_directories(void)
{
	char path[] = "a/b/c/d/e/f/g";

	setup("mkdir -p a/b/c/d/e/f/g");
	workspace_free(w);
	mount_it(&(struct cached_options){.ttl_ms = 1});
	forget_calls();
	for (size_t length = 1; length <= strlen(path); length += 2) {
		char part[sizeof(path)] = {0};

		memcpy(part, path, length);
		CHECK_RC(0, look(part, &ignored));
		usleep(5000);
	}
	CHECK(calls() <= 3 + 1); /* and how full the place is, with the first */
	teardown();
}

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
	CHECK_RC(0, faulty_calls(counter, "open_file"));
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

/* Nobody waits for what has hardly changed. */
static void test_the_room_is_asked_for_in_the_background(void)
{
	struct fs_stats stats;

	setup("touch a");
	CHECK_RC(0, workspace_statfs(&context, w, &stats));
	CHECK_RC(0, workspace_statfs(&context, w, &stats));
	CHECK_RC(1, faulty_calls(counter, "statfs"));
	usleep(1100000);
	faulty_set(counter, "statfs:1:EIO");
	CHECK_RC(0, workspace_statfs(&context, w, &stats));
	CHECK(stats.blocks > 0);
	cached_quiesce(w);
	CHECK_RC(1, faulty_calls(counter, "statfs"));
	faulty_set(counter, "");
	CHECK_RC(0, workspace_unlink(&context, w, "a", NULL));
	CHECK_RC(0, workspace_statfs(&context, w, &stats));
	CHECK(!context.served.from_cache);
	CHECK_RC(1, faulty_calls(counter, "statfs"));
	teardown();
}

/* It comes behind what was written, and so does the next lock behind it. */
static void test_an_unlock_waits_for_nothing(void)
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
	context.served.round_trips = 0;
	lock.type = LOCK_NONE;
	CHECK_RC(0, workspace_lock(&context, one, &lock, false));
	CHECK_RC(0, context.served.round_trips);
	lock.type = LOCK_EXCLUSIVE;
	CHECK_RC(0, workspace_lock(&context, other, &lock, false));
	behind("test $(cat a) = x || echo late >>a");
	CHECK_STRING("x", text_of("a"));
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

/* ---- Searches -------------------------------------------------------------------- */

static void test_who_searches_finds_the_next_directory_on_its_way(void)
{
	setup("mkdir a b c && for k in $(seq 100); do truncate -s 200K a/$k; done && "
	      "for i in b c; do for k in $(seq 60); do truncate -s 200K $i/$k; done; done");
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

static int compare_order(const void *a, const void *b)
{
	uint64_t first = listing_order_of(a, 1), second = listing_order_of(b, 1);

	return (first > second) - (first < second);
}

/* Opens a file in the directory, which is listed first, as a search does.  If it is to be `known`,
 * without the workspace. */
static int search_in(char name, bool known)
{
	const char listed[] = {name, '\0'}, path[] = {name, '/', '1', '\0'};
	struct open_file *file;
	int r;

	CHECK_RC(20, count(listed));
	CHECK_RC(0, faulty_set(counter, known ? "open_file:1+:EIO,scan:1+:EIO" : ""));
	r = workspace_open_file(&context, w, &OBJECT_AT(path), O_RDONLY, &file, &ignored);
	if (r == 0)
		workspace_close(&context, file);
	cached_quiesce(w);
	return r;
}

/* Directories that the search comes to last would take up the link and all the room. */
static void test_a_search_finds_what_it_comes_to_next_in_either_direction(void)
{
	enum { FIRST = 4, LAST = 7 }; /* after FIRST directories it is a search */
	char names[] = "abcdefghijkl";

	qsort(names, strlen(names), 1, compare_order);
	for (int next = FIRST; next <= LAST; next++)
		for (int backwards = 0; backwards < 2; backwards++) {
			setup("for i in a b c d e f g h i j k l; do mkdir $i; for k in $(seq 20); "
			      "do truncate -s 200K $i/$k; done; done");
			CHECK_RC(12, count(""));
			for (int i = 0; i <= next; i++)
				CHECK_RC(0, search_in(names[backwards ? 11 - i : i], i == next));
			teardown();
		}
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

/* Each scan comes late; of content, the first piece at once and the rest after a pause. */
struct growing_sink {
	dir_entry_sink sink;
	void *user;
	unsigned contents;
};

static int take_growing(void *user, const struct dir_entry *entry)
{
	struct growing_sink *growing = user;
	int r = growing->sink(growing->user, entry);

	if (entry->content_size && ++growing->contents == 1)
		usleep(300000);
	return r;
}

static int growing_scan(struct op_context *ctx, struct workspace *slow_one,
	const struct object_ref *scanned, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct growing_sink growing = {sink, user, !(request->flags & SCAN_GUESS)};

	usleep(100000);
	return quick_ops->scan(ctx, slow_one, scanned, request, take_growing, &growing);
}

/* What a slow start says of the rate would have each file asked for singly. */
static void test_who_searches_waits_for_a_flow_that_begins_slowly(void)
{
	uint64_t singly;

	setup("for k in $(seq 40); do truncate -s 100K $k; done");
	quick_ops = counter->ops;
	slow_ops = *quick_ops;
	slow_ops.scan = growing_scan;
	counter->ops = &slow_ops;
	CHECK_RC(40, count(""));
	CHECK_STRING("", text_of("1"));
	CHECK_STRING("", text_of("2"));
	singly = faulty_calls(counter, "open_file");
	CHECK_STRING("", text_of("3"));
	CHECK_STRING("", text_of("40"));
	CHECK_RC(singly, faulty_calls(counter, "open_file"));
	teardown();
}

/* The processor time that it takes to list so many names of one file. */
static double list_names(int names)
{
	char command[200];
	clock_t before;

	snprintf(command, sizeof(command),
		"touch f0 && python3 -c 'import os\nfor i in range(1, %d): os.link(\"f0\", "
		"f\"f{i}\")'",
		names);
	setup(command);
	before = clock();
	CHECK_RC(names, count(""));
	before = clock() - before;
	teardown();
	return (double)before;
}

/* 8 times the names took 50 times as long when each doubted all others. */
static void test_many_names_of_one_file_take_no_longer_than_others(void)
{
	double few = list_names(2500);

	CHECK(list_names(20000) < 24 * few);
}

TEST_MAIN("cached", TEST(test_what_is_gone_is_forgotten_when_nothing_happens),
	TEST(test_while_a_scan_is_under_way_its_progress_is_told),
	TEST(test_what_is_known_is_not_asked_again),
	TEST(test_the_lists_of_git_come_with_the_names),
	TEST(test_a_path_costs_a_call_for_three_directories),
	TEST(test_a_walk_without_a_feed_costs_a_handful_of_calls_each_time),
	TEST(test_a_walk_costs_a_handful_of_calls), TEST(test_changes_of_others_show),
	TEST(test_without_a_feed_the_ttl_counts), TEST(test_own_changes_show_at_once),
	TEST(test_an_agents_step_costs_three_calls),
	TEST(test_attributes_of_a_new_file_wait_for_its_flush),
	TEST(test_attributes_that_wait_show_to_all_who_look),
	TEST(test_the_flush_tells_that_attributes_failed),
	TEST(test_the_room_is_asked_for_in_the_background), TEST(test_an_unlock_waits_for_nothing),
	TEST(test_an_open_file_outlives_its_name), TEST(test_an_open_file_outlives_what_led_to_it),
	TEST(test_an_open_file_sees_what_is_appended),
	TEST(test_locks_are_dropped_at_the_place_after_a_rename),
	TEST(test_a_failed_write_is_not_believed),
	TEST(test_what_is_refused_as_another_kind_is_looked_at_again),
	TEST(test_another_object_is_stale), TEST(test_big_files_are_whole),
	TEST(test_a_larger_file_that_was_read_is_known),
	TEST(test_who_searches_finds_the_next_directory_on_its_way),
	TEST(test_a_search_finds_what_it_comes_to_next_in_either_direction),
	TEST(test_who_searches_waits_for_no_flow_of_empty_files),
	TEST(test_who_searches_waits_for_a_flow_that_begins_slowly),
	TEST(test_many_names_of_one_file_take_no_longer_than_others))
