#include "tests/contract/contract.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static const char *text_of(struct fixture *f, struct open_file *file)
{
	static char text[256];
	ssize_t got = workspace_read(&f->ctx, file, text, sizeof(text) - 1, 0);

	if (!CHECK(got >= 0))
		return strerror((int)-got);
	text[got] = '\0';
	return text;
}

static int write_text(struct fixture *f, struct open_file *file, const char *text, off_t offset)
{
	return (int)workspace_write(&f->ctx, file, text, strlen(text), offset);
}

PROMISE(create_makes_a_new_file_only)
{
	struct open_file *file = NULL;
	struct attributes seen;

	CHECK_RC(0, workspace_create(&f->ctx, f->w, "f", O_RDWR, 0640, &file, &f->a));
	CHECK(S_ISREG(f->a.mode));
	CHECK_RC(0640, f->a.mode & 07777);
	CHECK_RC(1, f->a.nlink);
	CHECK_RC(0, f->a.size_bytes);
	CHECK_RC(0, stat_of(f, "f", &seen));
	CHECK(attributes_same_version(&f->a, &seen));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "nowhere", "s", &f->a));
	CHECK_RC(-EEXIST, put(f, "f", ""));
	CHECK_RC(-EEXIST, put(f, "s", ""));
	CHECK_RC(-EEXIST, put(f, "", ""));
	CHECK_RC(-ENOENT, put(f, "missing/f", ""));
	CHECK_RC(-ENOTDIR, put(f, "f/f", ""));
}

PROMISE(a_file_without_permissions_can_be_written_by_its_creator)
{
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_create(&f->ctx, f->w, "f", O_WRONLY, 0, &file, &f->a));
	CHECK_RC(2, write_text(f, file, "ok", 0));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK_RC(2, f->a.size_bytes);
}

PROMISE(open_refuses_what_is_no_regular_file)
{
	struct open_file *file = NULL;

	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "p", S_IFIFO | 0600, 0, &f->a));
	CHECK_RC(-EISDIR,
		workspace_open_file(&f->ctx, f->w, &OBJECT_AT("d"), O_RDONLY, &file, &f->a));
	CHECK_RC(
		-EISDIR, workspace_open_file(&f->ctx, f->w, &OBJECT_AT("d"), O_RDWR, &file, &f->a));
	CHECK_RC(-ENXIO,
		workspace_open_file(&f->ctx, f->w, &OBJECT_AT("p"), O_RDONLY, &file, &f->a));
	CHECK_RC(-ENOENT,
		workspace_open_file(&f->ctx, f->w, &OBJECT_AT("none"), O_RDONLY, &file, &f->a));
}

PROMISE(open_of_another_object_is_stale_and_truncates_nothing)
{
	struct object_ref stale = {.path = "f", .id = {.device = 1, .inode = 2}};
	struct open_file *file = NULL;

	CHECK_RC(0, put(f, "f", "keep"));
	CHECK_RC(-ESTALE,
		workspace_open_file(&f->ctx, f->w, &stale, O_RDWR | O_TRUNC, &file, &f->a));
	CHECK_STRING("keep", get(f, "f"));
	stale.id = id_of(f, "f");
	CHECK_RC(0, workspace_open_file(&f->ctx, f->w, &stale, O_RDONLY, &file, &f->a));
	CHECK(object_id_equal(&stale.id, &f->a.id));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(open_can_truncate)
{
	struct open_file *file = NULL;

	CHECK_RC(0, put(f, "f", "old text"));
	file = open_or_fail(f, "f", O_WRONLY | O_TRUNC);
	CHECK_RC(0, f->a.size_bytes);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_STRING("", get(f, "f"));
}

PROMISE(read_stops_at_end_of_file)
{
	struct open_file *file = NULL;
	char text[16];

	CHECK_RC(0, put(f, "f", "12345"));
	file = open_or_fail(f, "f", O_RDONLY);
	CHECK_RC(5, workspace_read(&f->ctx, file, text, sizeof(text), 0));
	CHECK_RC(2, workspace_read(&f->ctx, file, text, 2, 1));
	CHECK(memcmp(text, "23", 2) == 0);
	CHECK_RC(1, workspace_read(&f->ctx, file, text, sizeof(text), 4));
	CHECK_RC(0, workspace_read(&f->ctx, file, text, sizeof(text), 5));
	CHECK_RC(0, workspace_read(&f->ctx, file, text, sizeof(text), 1LL << 40));
	CHECK_RC(-EINVAL, workspace_read(&f->ctx, file, text, sizeof(text), -1));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

/* More than any backend asks a far end for at once. */
PROMISE(a_read_may_be_far_larger_than_its_file)
{
	const size_t size = (size_t)260 << 20;
	cleanup_free char *room = malloc(size);
	struct open_file *file = NULL;

	CHECK(room != NULL);
	CHECK_RC(0, put(f, "f", "12345"));
	file = open_or_fail(f, "f", O_RDONLY);
	CHECK_RC(5, workspace_read(&f->ctx, file, room, size, 0));
	CHECK(memcmp(room, "12345", 5) == 0);
	CHECK_RC(5, workspace_read(&f->ctx, file, room, size, 0));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(a_handle_keeps_to_its_access)
{
	struct open_file *reader = NULL, *writer = NULL;
	char text[4];

	CHECK_RC(0, put(f, "f", "123"));
	reader = open_or_fail(f, "f", O_RDONLY);
	writer = open_or_fail(f, "f", O_WRONLY);
	CHECK_RC(-EBADF, write_text(f, reader, "x", 0));
	CHECK_RC(-EBADF, workspace_read(&f->ctx, writer, text, 1, 0));
	CHECK_RC(0, workspace_close(&f->ctx, reader));
	CHECK_RC(0, workspace_close(&f->ctx, writer));
	CHECK_STRING("123", get(f, "f"));
}

PROMISE(writes_go_where_they_are_told)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	char text[8];

	CHECK_RC(3, write_text(f, file, "abc", 0));
	CHECK_RC(1, write_text(f, file, "X", 1));
	CHECK_RC(1, write_text(f, file, "Z", 6));
	CHECK_RC(7, workspace_read(&f->ctx, file, text, sizeof(text), 0));
	CHECK(memcmp(text, "aXc\0\0\0Z", 7) == 0);
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(large_writes_come_back_whole)
{
	enum { LARGE_BYTES = 3 * 1024 * 1024 + 17 };
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	cleanup_free unsigned char *data = malloc(LARGE_BYTES);
	cleanup_free unsigned char *back = malloc(LARGE_BYTES + 1);

	for (size_t i = 0; i < LARGE_BYTES; i++)
		data[i] = (unsigned char)(i * 2654435761U >> 13);
	CHECK_RC(LARGE_BYTES, workspace_write(&f->ctx, file, data, LARGE_BYTES, 5));
	CHECK_RC(LARGE_BYTES, workspace_read(&f->ctx, file, back, LARGE_BYTES + 1, 5));
	CHECK(memcmp(data, back, LARGE_BYTES) == 0);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK_RC(LARGE_BYTES + 5, f->a.size_bytes);
}

PROMISE(a_stat_follows_the_writes_before_it)
{
	static char block[1 << 20];
	struct open_file *file = create_or_fail(f, "f", O_WRONLY);
	struct object_ref object = OBJECT_AT("f");

	CHECK_RC(0, stat_of(f, "f", &f->a));
	object.id = f->a.id;
	for (off_t at = 0; at < 12 * (off_t)sizeof(block); at += (off_t)sizeof(block))
		CHECK_RC(sizeof(block), workspace_write(&f->ctx, file, block, sizeof(block), at));
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &object, &f->a));
	CHECK_RC(12 * sizeof(block), f->a.size_bytes);
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &OBJECT_OF(file), &f->a));
	CHECK_RC(12 * sizeof(block), f->a.size_bytes);
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(two_handles_see_each_other)
{
	struct open_file *a = create_or_fail(f, "f", O_RDWR);
	struct open_file *b = open_or_fail(f, "f", O_RDWR);

	CHECK_RC(5, write_text(f, a, "hello", 0));
	CHECK_RC(0, workspace_flush(&f->ctx, a));
	CHECK_STRING("hello", text_of(f, b));
	CHECK_RC(1, write_text(f, b, "J", 0));
	CHECK_RC(0, workspace_flush(&f->ctx, b));
	CHECK_STRING("Jello", text_of(f, a));
	CHECK_RC(0, workspace_close(&f->ctx, a));
	CHECK_RC(0, workspace_close(&f->ctx, b));
}

PROMISE(a_new_owner_comes_with_the_size_that_others_wrote)
{
	struct open_file *creator = create_or_fail(f, "f", O_RDWR);
	struct open_file *other = open_or_fail(f, "f", O_RDWR);
	struct attributes want;

	CHECK_RC(4, write_text(f, other, "text", 0));
	CHECK_RC(0, workspace_close(&f->ctx, other));
	CHECK_RC(0, stat_of(f, "f", &want));
	CHECK_RC(0, workspace_setattr(&f->ctx, f->w, &OBJECT_AT("f"), SET_UID, &want, &f->a));
	CHECK_RC(4, f->a.size_bytes);
	CHECK_RC(0, workspace_close(&f->ctx, creator));
}

PROMISE(times_that_were_set_give_way_to_what_others_write)
{
	struct open_file *creator = create_or_fail(f, "f", O_RDWR);
	struct open_file *other = open_or_fail(f, "f", O_RDWR);
	struct attributes want = {.mtime.tv_sec = 1000};

	CHECK_RC(0, workspace_setattr(&f->ctx, f->w, &OBJECT_OF(creator), SET_MTIME, &want, &f->a));
	CHECK_RC(4, write_text(f, other, "text", 0));
	CHECK_RC(0, workspace_close(&f->ctx, other));
	CHECK_RC(0, workspace_close(&f->ctx, creator));
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK(f->a.mtime.tv_sec > 1000);
}

PROMISE(a_handle_outlives_its_name)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	struct open_file *again = NULL;

	CHECK_RC(3, write_text(f, file, "old", 0));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(0, put(f, "f", "other"));
	CHECK_STRING("old", text_of(f, file));
	CHECK_RC(3, write_text(f, file, "new", 3));
	CHECK_STRING("oldnew", text_of(f, file));
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &OBJECT_OF(file), &f->a));
	CHECK_RC(0, f->a.nlink);
	CHECK_RC(6, f->a.size_bytes);
	CHECK_RC(0, workspace_open_file(&f->ctx, f->w, &OBJECT_OF(file), O_RDONLY, &again, &f->a));
	CHECK_STRING("oldnew", text_of(f, again));
	CHECK_RC(0, workspace_close(&f->ctx, again));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_STRING("other", get(f, "f"));
}

PROMISE(a_handle_follows_its_object_through_a_rename)
{
	struct open_file *file = NULL, *replaced = NULL;

	CHECK_RC(0, put(f, "target", "target"));
	replaced = open_or_fail(f, "target", O_RDONLY);
	file = create_or_fail(f, "f", O_RDWR);
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "f", "target", 0, NULL));
	CHECK_RC(5, write_text(f, file, "moved", 0));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_STRING("moved", get(f, "target"));
	CHECK_STRING("target", text_of(f, replaced));
	CHECK_RC(0, workspace_close(&f->ctx, replaced));
}

PROMISE(appends_go_to_the_end_whatever_the_offset)
{
	struct open_file *a = create_or_fail(f, "f", O_WRONLY | O_APPEND);
	struct open_file *b = open_or_fail(f, "f", O_WRONLY | O_APPEND);

	CHECK_RC(2, write_text(f, a, "a1", 0));
	CHECK_RC(0, workspace_flush(&f->ctx, a));
	CHECK_RC(2, write_text(f, b, "b1", 0));
	CHECK_RC(0, workspace_flush(&f->ctx, b));
	CHECK_RC(2, write_text(f, a, "a2", 100));
	CHECK_RC(0, workspace_close(&f->ctx, a));
	CHECK_RC(0, workspace_close(&f->ctx, b));
	CHECK_STRING("a1b1a2", get(f, "f"));
}

enum { APPENDERS = 4, APPENDS = 100, LINE_BYTES = 20 };

struct appender {
	pthread_t thread;
	struct fixture *f;
	int number;
};

static void *append_lines(void *user)
{
	const struct appender *me = user;
	struct op_context ctx = me->f->ctx;
	struct open_file *file = NULL;
	struct attributes a;
	char line[LINE_BYTES + 1];

	if (workspace_open_file(&ctx, me->f->w, &OBJECT_AT("f"), O_WRONLY | O_APPEND, &file, &a) <
		0)
		return NULL;
	for (int i = 0; i < APPENDS; i++) {
		snprintf(line, sizeof(line), "writer %d line %05d\n", me->number, i);
		workspace_write(&ctx, file, line, LINE_BYTES, 0);
	}
	workspace_close(&ctx, file);
	return NULL;
}

PROMISE(appends_from_many_threads_lose_no_line)
{
	struct appender appenders[APPENDERS];
	static char text[APPENDERS * APPENDS * LINE_BYTES + 1];
	int next[APPENDERS] = {0}, number, line, good = 0;
	struct open_file *file = NULL;

	CHECK_RC(0, put(f, "f", ""));
	for (int i = 0; i < APPENDERS; i++) {
		appenders[i] = (struct appender){.f = f, .number = i};
		pthread_create(&appenders[i].thread, NULL, append_lines, &appenders[i]);
	}
	for (int i = 0; i < APPENDERS; i++)
		pthread_join(appenders[i].thread, NULL);
	file = open_or_fail(f, "f", O_RDONLY);
	CHECK_RC(sizeof(text) - 1, workspace_read(&f->ctx, file, text, sizeof(text), 0));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	for (size_t at = 0; at < sizeof(text) - 1; at += LINE_BYTES)
		if (sscanf(text + at, "writer %d line %d\n", &number, &line) == 2 && number >= 0 &&
			number < APPENDERS && next[number] == line) {
			next[number]++;
			good++;
		}
	CHECK_RC(APPENDERS * APPENDS, good);
}

/* ---- A replace by rename that races with opens ------------------------------------------ */

struct replacer {
	struct fixture own; /* the other thread's: a context is in use by one call at a time */
	atomic_bool stop;
};

static void *keep_replacing(void *user)
{
	struct replacer *me = user;

	while (!me->stop) {
		put(&me->own, "new", "whole");
		workspace_rename(&me->own.ctx, me->own.w, "new", "f", 0, NULL);
	}
	return NULL;
}

PROMISE(opens_race_with_replaces_without_a_failure_but_stale)
{
	struct replacer replacer;
	struct object_ref object = {.path = "f"};
	struct open_file *file = NULL;
	struct attributes a;
	pthread_t thread;
	int r = 0;

	CHECK_RC(0, put(f, "f", "whole"));
	replacer = (struct replacer){.own = *f};
	pthread_create(&thread, NULL, keep_replacing, &replacer);
	for (int i = 0; i < 200 && r == 0; i++) {
		object.id = (struct object_id){0};
		r = workspace_getattr(&f->ctx, f->w, &object, &a);
		object.id = a.id;
		if (r == 0)
			r = workspace_open_file(&f->ctx, f->w, &object, O_RDONLY, &file, &a);
		if (r == 0) {
			CHECK_STRING("whole", text_of(f, file));
			CHECK(object_id_equal(&a.id, &object.id));
			workspace_close(&f->ctx, file);
		}
		r = r == -ESTALE ? 0 : r;
	}
	replacer.stop = true;
	pthread_join(thread, NULL);
	CHECK_RC(0, r);
}

/* ---- Files without a name ---------------------------------------------------------------- */

PROMISE(an_unnamed_file_can_be_given_a_name)
{
	struct open_file *file = NULL;
	int r = workspace_create_unnamed(&f->ctx, f->w, "", O_RDWR, 0640, &file, &f->a);

	if (r == -EOPNOTSUPP)
		return;
	CHECK_RC(0, r);
	CHECK_RC(0, f->a.nlink);
	CHECK_RC(0640, f->a.mode & 07777);
	CHECK_STRING("", names(f, ""));
	CHECK_RC(4, write_text(f, file, "text", 0));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_OF(file), "named", &f->a));
	CHECK_RC(1, f->a.nlink);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_STRING("text", get(f, "named"));
}

PROMISE(link_works_through_a_handle)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);

	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_OF(file), "g", &f->a));
	CHECK_RC(2, f->a.nlink);
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "g", NULL));
	CHECK_RC(-ENOENT, workspace_link(&f->ctx, f->w, &OBJECT_OF(file), "h", &f->a));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

/* ---- Space ---------------------------------------------------------------------------------- */

static uint64_t size_of(struct fixture *f, struct open_file *file)
{
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &OBJECT_OF(file), &f->a));
	return f->a.size_bytes;
}

PROMISE(fallocate_makes_and_frees_room)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	char data[3 * 4096];
	int r = workspace_fallocate(&f->ctx, file, 0, 0, 100);

	if (r == -EOPNOTSUPP) {
		workspace_close(&f->ctx, file);
		return;
	}
	CHECK_RC(0, r);
	CHECK_RC(100, size_of(f, file));
	CHECK_RC(0, workspace_fallocate(&f->ctx, file, ALLOCATE_KEEP_SIZE, 0, 8192));
	CHECK_RC(100, size_of(f, file));
	memset(data, 'x', sizeof(data));
	CHECK_RC(sizeof(data), workspace_write(&f->ctx, file, data, sizeof(data), 0));
	CHECK_RC(0, workspace_fallocate(
			    &f->ctx, file, ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE, 4096, 4096));
	CHECK_RC(sizeof(data), workspace_read(&f->ctx, file, data, sizeof(data), 0));
	CHECK(data[4095] == 'x' && data[4096] == 0 && data[8191] == 0 && data[8192] == 'x');
	CHECK_RC(-EINVAL, workspace_fallocate(&f->ctx, file, 0, 0, 0));
	CHECK_RC(-EINVAL, workspace_fallocate(&f->ctx, file, 0, -1, 5));
	CHECK_RC(-EFBIG, workspace_fallocate(&f->ctx, file, 0, INT64_MAX, 5));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(zeroed_ranges_read_as_zeros)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	char data[16];

	CHECK_RC(16, write_text(f, file, "0123456789abcdef", 0));
	if (workspace_fallocate(&f->ctx, file, ALLOCATE_ZERO_RANGE, 4, 4) == 0) {
		CHECK_RC(16, workspace_read(&f->ctx, file, data, sizeof(data), 0));
		CHECK(memcmp(data, "0123\0\0\0\08", 9) == 0);
	}
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(seek_finds_data_and_holes)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);

	CHECK_RC(1, write_text(f, file, "x", 1 << 20));
	CHECK_RC((1 << 20) + 1, workspace_seek(&f->ctx, file, 1 << 20, SEEK_HOLE));
	CHECK(workspace_seek(&f->ctx, file, 0, SEEK_DATA) <= 1 << 20);
	CHECK_RC(-ENXIO, workspace_seek(&f->ctx, file, (1 << 20) + 1, SEEK_DATA));
	CHECK_RC(-ENXIO, workspace_seek(&f->ctx, file, 2 << 20, SEEK_HOLE));
	CHECK_RC(-EINVAL, workspace_seek(&f->ctx, file, 0, SEEK_SET));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(copy_range_copies)
{
	struct open_file *from = create_or_fail(f, "from", O_RDWR);
	struct open_file *to = create_or_fail(f, "to", O_RDWR);
	ssize_t copied;

	CHECK_RC(10, write_text(f, from, "0123456789", 0));
	copied = workspace_copy_range(&f->ctx, from, 2, to, 1, 5);
	if (copied != -EOPNOTSUPP) {
		CHECK_RC(5, copied);
		CHECK_RC(6, size_of(f, to));
		CHECK_RC(0, workspace_copy_range(&f->ctx, from, 10, to, 0, 5));
		CHECK_RC(1, workspace_copy_range(&f->ctx, from, 9, to, 0, 100));
		CHECK_STRING("923456", text_of(f, to));
	}
	CHECK_RC(0, workspace_close(&f->ctx, from));
	CHECK_RC(0, workspace_close(&f->ctx, to));
}

PROMISE(fsync_works_on_files_and_directories)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);

	CHECK_RC(1, write_text(f, file, "x", 0));
	CHECK_RC(0, workspace_flush(&f->ctx, file));
	CHECK_RC(0, workspace_fsync(&f->ctx, f->w, file, "", false));
	CHECK_RC(0, workspace_fsync(&f->ctx, f->w, file, "", true));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, workspace_fsync(&f->ctx, f->w, NULL, "", false));
}

TEST_GROUP(files_promises, TEST(create_makes_a_new_file_only),
	TEST(a_file_without_permissions_can_be_written_by_its_creator),
	TEST(open_refuses_what_is_no_regular_file),
	TEST(open_of_another_object_is_stale_and_truncates_nothing), TEST(open_can_truncate),
	TEST(read_stops_at_end_of_file), TEST(a_read_may_be_far_larger_than_its_file),
	TEST(a_handle_keeps_to_its_access), TEST(writes_go_where_they_are_told),
	TEST(large_writes_come_back_whole), TEST(a_stat_follows_the_writes_before_it),
	TEST(two_handles_see_each_other), TEST(a_new_owner_comes_with_the_size_that_others_wrote),
	TEST(times_that_were_set_give_way_to_what_others_write), TEST(a_handle_outlives_its_name),
	TEST(a_handle_follows_its_object_through_a_rename),
	TEST(appends_go_to_the_end_whatever_the_offset),
	TEST(appends_from_many_threads_lose_no_line),
	TEST(opens_race_with_replaces_without_a_failure_but_stale),
	TEST(an_unnamed_file_can_be_given_a_name), TEST(link_works_through_a_handle),
	TEST(fallocate_makes_and_frees_room), TEST(zeroed_ranges_read_as_zeros),
	TEST(seek_finds_data_and_holes), TEST(copy_range_copies),
	TEST(fsync_works_on_files_and_directories));
