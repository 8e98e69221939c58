/* A heartbeat in simulated time. */
#include "backends/remote/client/heartbeat.h"
#include "tests/check.h"

enum { PATIENCE_MS = 5000 };

static struct heartbeat heartbeat;
static struct heartbeat_state state;
static int64_t heard_ms;

static void set_out(void)
{
	heartbeat = (struct heartbeat){0};
	state = (struct heartbeat_state){.now_ms = 1000000, .patience_ms = PATIENCE_MS};
	heard_ms = state.now_ms;
}

static void hear(void)
{
	state.received_bytes += 20;
	heard_ms = state.now_ms;
}

static enum heartbeat_verdict check(void)
{
	state.silence_ms = state.now_ms - heard_ms;
	return heartbeat_check(&heartbeat, &state);
}

/* Until the verdict is another than HEARTBEAT_QUIET, for 100 s at most. */
static enum heartbeat_verdict wait_for_verdict(int64_t tick_ms)
{
	enum heartbeat_verdict verdict = HEARTBEAT_QUIET;

	for (int i = 0; i < 1000 && verdict == HEARTBEAT_QUIET; i++) {
		state.now_ms += tick_ms;
		verdict = check();
	}
	return verdict;
}

static void test_an_answer_within_the_millisecond_of_its_ping_counts(void)
{
	set_out();
	for (int i = 0; i < 10; i++) {
		CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(1000));
		hear();
		CHECK_RC(HEARTBEAT_GOOD, wait_for_verdict(100));
	}
}

static void test_an_answer_that_comes_at_any_later_time_counts(void)
{
	for (int64_t after_ms = 1; after_ms <= PATIENCE_MS; after_ms += 7) {
		set_out();
		CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(1000));
		for (int64_t end = state.now_ms + after_ms; state.now_ms < end;) {
			int64_t left = end - state.now_ms;

			check();
			state.now_ms += left < 100 ? left : 100;
		}
		hear();
		CHECK_RC(HEARTBEAT_GOOD, wait_for_verdict(100));
	}
}

static void test_an_idle_link_is_pinged_seldom_a_busy_one_at_once(void)
{
	set_out();
	CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(1000));
	CHECK(state.now_ms - heard_ms > HEARTBEAT_IDLE_MS);
	CHECK(state.now_ms - heard_ms <= HEARTBEAT_IDLE_MS + 1000);
	set_out();
	state.is_busy = true;
	CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(100));
	CHECK(state.now_ms - heard_ms > HEARTBEAT_BUSY_MS);
	CHECK(state.now_ms - heard_ms <= HEARTBEAT_BUSY_MS + 100);
}

static void test_no_answer_makes_it_late_and_then_lost(void)
{
	enum heartbeat_verdict verdict;
	int64_t pinged_ms;

	set_out();
	CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(1000));
	pinged_ms = state.now_ms;
	CHECK_RC(HEARTBEAT_LATE, wait_for_verdict(100));
	CHECK(state.now_ms - pinged_ms <= HEARTBEAT_LATE_MS + 100);
	do {
		state.now_ms += 100;
		verdict = check();
	} while (verdict == HEARTBEAT_LATE);
	CHECK_RC(HEARTBEAT_LOST, verdict);
	CHECK(state.now_ms - pinged_ms > PATIENCE_MS);
	CHECK(state.now_ms - pinged_ms <= PATIENCE_MS + 100);
}

static void test_after_a_sleep_it_is_asked_anew(void)
{
	set_out();
	CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(1000));
	state.now_ms += 3600000;
	CHECK_RC(HEARTBEAT_GOOD, check());
	CHECK_RC(HEARTBEAT_SEND, wait_for_verdict(100));
	hear();
	CHECK_RC(HEARTBEAT_GOOD, wait_for_verdict(100));
}

TEST_MAIN("heartbeat", TEST(test_an_answer_within_the_millisecond_of_its_ping_counts),
	TEST(test_an_answer_that_comes_at_any_later_time_counts),
	TEST(test_an_idle_link_is_pinged_seldom_a_busy_one_at_once),
	TEST(test_no_answer_makes_it_late_and_then_lost), TEST(test_after_a_sleep_it_is_asked_anew))
