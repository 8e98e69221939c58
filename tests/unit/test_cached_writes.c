/* What the cached decorator believes of a file that one thread writes while another one has what
 * was written so far sent. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/unit/scripted_cached.h"

static struct open_file *file;

static void open_it(void)
{
	setup();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &file, &seen));
	place_looks();
}

static void close_it(void)
{
	CHECK_RC(0, workspace_close(&context, file));
	teardown();
}

static void write_at(off_t offset)
{
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(4, workspace_write(&ctx, file, "data", 4, offset));
}

static void write_more(void)
{
	write_at(4);
}

static void flush_it(void)
{
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_flush(&ctx, file));
}

static void sync_it(void)
{
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_fsync(&ctx, w, file, "", false));
}

static unsigned looks_for_attributes(void)
{
	place_looks();
	CHECK_RC(0, look("d/a"));
	return place_looks();
}

static void test_what_was_flushed_is_known(void)
{
	open_it();
	write_at(0);
	CHECK_RC(1, looks_for_attributes());
	flush_it();
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(4, seen.size_bytes);
	close_it();
}

static void test_what_is_written_during_a_flush_is_asked_for_until_the_next_one(void)
{
	open_it();
	write_at(0);
	before_it_arrives = write_more;
	flush_it();
	CHECK_RC(1, looks_for_attributes());
	flush_it();
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(8, seen.size_bytes);
	close_it();
}

static void test_what_is_written_during_an_fsync_is_asked_for_until_the_next_one(void)
{
	open_it();
	write_at(0);
	before_it_arrives = write_more;
	sync_it();
	CHECK_RC(1, looks_for_attributes());
	sync_it();
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(8, seen.size_bytes);
	close_it();
}

static void test_a_flush_during_a_write_does_not_settle_it(void)
{
	open_it();
	during_a_write = flush_it;
	write_at(0);
	CHECK_RC(1, looks_for_attributes());
	flush_it();
	CHECK_RC(0, looks_for_attributes());
	close_it();
}

static void flush_and_look(void)
{
	flush_it();
	CHECK_RC(1, looks_for_attributes());
}

/* Its end may be late; the attributes have changed by then. */
static void test_a_write_that_is_under_way_is_asked_for_after_a_flush(void)
{
	open_it();
	during_a_write = flush_and_look;
	write_at(0);
	close_it();
}

static void test_what_is_written_during_a_change_of_the_room_is_asked_for(void)
{
	open_it();
	before_it_arrives = write_more;
	CHECK_RC(0, workspace_fallocate(&context, file, 0, 0, 2));
	CHECK_RC(1, looks_for_attributes());
	flush_it();
	CHECK_RC(0, looks_for_attributes());
	close_it();
}

static void test_a_change_of_the_room_settles_itself(void)
{
	open_it();
	CHECK_RC(0, workspace_fallocate(&context, file, 0, 0, 2));
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(2, seen.size_bytes);
	close_it();
}

static void test_a_flush_during_a_change_of_the_room_does_not_settle_it(void)
{
	open_it();
	before_it_looks = flush_and_look;
	CHECK_RC(0, workspace_fallocate(&context, file, 0, 0, 2));
	CHECK_RC(0, looks_for_attributes());
	close_it();
}

/* ---- Between writes ------------------------------------------------------------------- */

static void test_a_look_after_the_last_write_counts(void)
{
	open_it();
	write_at(0);
	CHECK_RC(1, looks_for_attributes());
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(4, seen.size_bytes);
	write_at(4);
	CHECK_RC(1, looks_for_attributes());
	CHECK_RC(8, seen.size_bytes);
	place_set_size("d/a", 20);
	place_tell("d/a");
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(20, seen.size_bytes);
	close_it();
}

static void test_a_look_during_a_write_does_not(void)
{
	open_it();
	write_at(0);
	before_it_arrives = write_more;
	CHECK_RC(0, look("d/a"));
	CHECK_RC(1, looks_for_attributes());
	CHECK_RC(8, seen.size_bytes);
	close_it();
}

/* How the kernel asks before it reads. */
static unsigned looks_for_the_size(uint64_t expected)
{
	struct op_context ctx;

	op_context_init(&ctx);
	ctx.size_only = true;
	place_looks();
	CHECK_RC(0, workspace_getattr(&ctx, w, &OBJECT_OF(file), &seen));
	CHECK_RC(expected, seen.size_bytes);
	return place_looks();
}

static void test_the_size_of_what_is_written_here_is_not_asked_for(void)
{
	open_it();
	write_at(0);
	CHECK_RC(1, looks_for_the_size(4));
	write_at(8);
	CHECK_RC(0, looks_for_the_size(12));
	write_at(2);
	CHECK_RC(0, looks_for_the_size(12));
	CHECK_RC(1, looks_for_attributes());
	CHECK_RC(12, seen.size_bytes);
	close_it();
}

static void test_what_others_append_counts(void)
{
	open_it();
	write_at(0);
	CHECK_RC(1, looks_for_the_size(4));
	write_at(4);
	place_set_size("d/a", 20);
	place_tell("d/a");
	CHECK_RC(0, looks_for_the_size(20));
	close_it();
}

static void test_what_others_truncate_is_seen_after_a_while(void)
{
	open_it();
	write_at(0);
	CHECK_RC(1, looks_for_the_size(4));
	write_at(4);
	place_set_size("d/a", 1);
	place_tell("d/a");
	usleep(1100 * 1000);
	CHECK_RC(1, looks_for_the_size(1));
	close_it();
}

static void test_the_size_is_asked_for_after_another_change(void)
{
	struct open_file *other;
	struct attributes want = {.size_bytes = 2};

	open_it();
	CHECK_RC(0, workspace_open_file(&context, w, &OBJECT_AT("d/a"), O_RDWR, &other, &seen));
	write_at(0);
	CHECK_RC(1, looks_for_the_size(4));
	write_at(4);
	CHECK_RC(0, looks_for_the_size(8));
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_OF(other), SET_SIZE, &want, &seen));
	CHECK_RC(1, looks_for_the_size(2));
	CHECK_RC(0, workspace_close(&context, other));
	close_it();
}

/* ---- Attribute changes that wait for the flush ------------------------------------- */

static pthread_t flusher;
static atomic_bool has_flushed;

static void *flush_meanwhile(void *unused)
{
	flush_it();
	has_flushed = true;
	return unused;
}

static void start_a_flush(void)
{
	CHECK_RC(0, pthread_create(&flusher, NULL, flush_meanwhile, NULL));
	usleep(50 * 1000);
	CHECK(!has_flushed);
}

static void test_a_flush_waits_for_what_another_caller_applies(void)
{
	struct attributes want = {.mode = 0600};

	setup();
	CHECK_RC(0, workspace_create(&context, w, "d/b", O_WRONLY, 0644, &file, &seen));
	write_at(0);
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_OF(file), SET_MODE, &want, &seen));
	has_flushed = false;
	before_it_arrives = start_a_flush;
	CHECK_RC(0, look("d/b"));
	CHECK_RC(0, pthread_join(flusher, NULL));
	CHECK(has_flushed);
	CHECK_RC(0, look("d/b"));
	CHECK_RC(0600, seen.mode & 07777);
	close_it();
}

static void test_what_was_closed_is_known(void)
{
	open_it();
	write_at(0);
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, looks_for_attributes());
	CHECK_RC(4, seen.size_bytes);
	teardown();
}

TEST_MAIN("cached_writes", TEST(test_what_was_flushed_is_known),
	TEST(test_a_flush_waits_for_what_another_caller_applies),
	TEST(test_what_is_written_during_a_flush_is_asked_for_until_the_next_one),
	TEST(test_what_is_written_during_an_fsync_is_asked_for_until_the_next_one),
	TEST(test_a_flush_during_a_write_does_not_settle_it),
	TEST(test_a_write_that_is_under_way_is_asked_for_after_a_flush),
	TEST(test_what_is_written_during_a_change_of_the_room_is_asked_for),
	TEST(test_a_change_of_the_room_settles_itself),
	TEST(test_a_flush_during_a_change_of_the_room_does_not_settle_it),
	TEST(test_what_was_closed_is_known), TEST(test_a_look_after_the_last_write_counts),
	TEST(test_a_look_during_a_write_does_not),
	TEST(test_the_size_of_what_is_written_here_is_not_asked_for),
	TEST(test_what_others_append_counts), TEST(test_what_others_truncate_is_seen_after_a_while),
	TEST(test_the_size_is_asked_for_after_another_change))
