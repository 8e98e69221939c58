/* A pace on links that are simulated in simulated time. */
#include <stddef.h>

#include "backends/remote/wire/pace.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"

enum { FRAMES_MAX = 4096, STEP_US = 50 };

struct link {
	uint64_t bytes_per_second, round_trip_us, ack_every_us;
	size_t frame_bytes;
};

struct frame {
	struct pace_mark mark;
	uint64_t there_us; /* when it arrives; what arrived is acknowledged half a round trip later
			    */
};

static struct pace pace;
static struct frame frames[FRAMES_MAX]; /* a ring */
static size_t head, tail;
static bool was_thin, was_thick; /* once PACE_FIRST_BYTES had arrived */
static uint64_t now_us, free_us, acked_us, longest_us, carried_bytes, queued_us, steps;

static void set_out(void)
{
	pace_init(&pace);
	head = tail = 0;
	now_us = 1000000;
	free_us = acked_us = longest_us = carried_bytes = 0;
	was_thin = was_thick = false;
}

static void send_what_is_allowed(const struct link *link)
{
	while (tail - head < FRAMES_MAX &&
		pace_allows(&pace, (tail - head) * link->frame_bytes, now_us)) {
		struct frame *f = &frames[tail % FRAMES_MAX];

		pace_sent(&pace, (tail - head) * link->frame_bytes, now_us, &f->mark);
		free_us = (free_us > now_us ? free_us : now_us) +
			  link->frame_bytes * 1000000 / link->bytes_per_second;
		f->there_us = free_us + link->round_trip_us / 2;
		tail++;
	}
	if (free_us > now_us && free_us - now_us > longest_us)
		longest_us = free_us - now_us;
	queued_us += free_us > now_us ? free_us - now_us : 0;
	steps++;
}

static void take_acknowledgements(const struct link *link)
{
	struct pace_mark mark;
	size_t bytes = 0;

	if (now_us - acked_us < link->ack_every_us)
		return;
	for (; head < tail &&
		frames[head % FRAMES_MAX].there_us + link->round_trip_us / 2 <= now_us;
		head++) {
		mark = frames[head % FRAMES_MAX].mark;
		bytes += link->frame_bytes;
	}
	if (!bytes)
		return;
	acked_us = now_us;
	carried_bytes += bytes;
	pace_arrived(&pace, bytes, &mark, now_us);
}

/* A sender who always has more.  Returns the share of the link that was used. */
static double run(const struct link *link, uint64_t for_us)
{
	uint64_t end_us = now_us + for_us;

	carried_bytes = longest_us = queued_us = steps = 0;
	for (; now_us < end_us; now_us += STEP_US) {
		take_acknowledgements(link);
		send_what_is_allowed(link);
		if (pace.arrived_bytes >= PACE_FIRST_BYTES && pace_is_thin(&pace))
			was_thin = true;
		else if (pace.arrived_bytes >= PACE_FIRST_BYTES)
			was_thick = true;
	}
	return (double)carried_bytes * 1e6 / (double)for_us / (double)link->bytes_per_second;
}

static void test_a_slow_link_is_busy_and_its_queue_short(void)
{
	static const struct link slow = {1000000, 20000, 10000, 16 << 10};

	set_out();
	run(&slow, 2000000);
	was_thick = false;
	CHECK(run(&slow, 20000000) > 0.95);
	CHECK(longest_us < 120000);
	CHECK(!was_thick);
}

/* That of 20 Mbit/s and 40 ms, of which a small request has shown how long it is. */
static void test_who_comes_later_waits_little(void)
{
	static const struct link link = {2500000, 40000, 10000, 16 << 10};
	struct pace_mark mark;

	set_out();
	pace_sent(&pace, 0, now_us, &mark);
	now_us += link.round_trip_us + 2000;
	pace_arrived(&pace, 100, &mark, now_us);
	run(&link, 2000000);
	CHECK(!was_thick);
	CHECK(run(&link, 20000000) > 0.98);
	CHECK(queued_us / steps < 40000);
}

static void test_a_fast_link_is_used_to_the_full(void)
{
	static const struct link fast[] = {
		{300000000, 300, 2000, 256 << 10},
		{300000000, 20000, 2000, 256 << 10},
		{100000000, 100000, 10000, 256 << 10},
	};

	for (size_t i = 0; i < array_size(fast); i++) {
		set_out();
		run(&fast[i], 1000000);
		CHECK(run(&fast[i], 3000000) > 0.9);
		CHECK(!was_thin); /* however narrow the first windows were */
	}
}

/* The window grows fast at first, but what it lets queue up delays others only briefly. */
static void test_a_fast_link_is_soon_used(void)
{
	static const struct link fast = {100000000, 20000, 2000, 32 << 10};
	static const struct link others[] = {
		{50000000, 20000, 2000, 32 << 10},
		{25000000, 20000, 2000, 32 << 10},
		{12500000, 20000, 2000, 32 << 10},
		{12500000, 100000, 10000, 32 << 10},
	};

	set_out();
	CHECK(run(&fast, 5 * fast.round_trip_us) > 0.42);
	for (size_t i = 0; i < array_size(others); i++) {
		set_out();
		run(&others[i], 1000000);
		CHECK(longest_us < 75000 + others[i].round_trip_us / 2);
	}
}

static void test_a_link_that_changes_is_followed(void)
{
	static const struct link fast = {50000000, 20000, 5000, 64 << 10};
	static const struct link slow = {1000000, 20000, 10000, 8 << 10};

	set_out();
	run(&fast, 3000000);
	run(&slow, 10000000);
	CHECK(run(&slow, 5000000) > 0.9);
	CHECK(longest_us < 300000);
	run(&fast, 3000000);
	CHECK(run(&fast, 3000000) > 0.9);
}

static void test_little_to_send_narrows_nothing(void)
{
	static const struct link link = {50000000, 20000, 5000, 100};
	struct pace_mark mark;

	set_out();
	for (int i = 0; i < 100; i++) {
		pace_sent(&pace, 0, now_us, &mark);
		now_us += 40000;
		pace_arrived(&pace, link.frame_bytes, &mark, now_us);
	}
	CHECK(pace_allows(&pace, PACE_FIRST_BYTES - 1, now_us));
}

static void test_something_may_always_leave(void)
{
	static const struct link hopeless = {1000, 2000000, 10000, 64 << 10};

	set_out();
	run(&hopeless, 200000000);
	CHECK(pace_allows(&pace, 0, now_us));
	CHECK(pace_allows(&pace, PACE_MIN_BYTES - 1, now_us));
}

TEST_MAIN("pace", TEST(test_a_slow_link_is_busy_and_its_queue_short),
	TEST(test_who_comes_later_waits_little), TEST(test_a_fast_link_is_used_to_the_full),
	TEST(test_a_fast_link_is_soon_used), TEST(test_a_link_that_changes_is_followed),
	TEST(test_little_to_send_narrows_nothing), TEST(test_something_may_always_leave))
