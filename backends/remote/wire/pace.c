#include "backends/remote/wire/pace.h"

enum {
	RATE_PERIOD_US = 1000000,
	JITTER_US = 15000,                  /* above all: acknowledgements are gathered for 10 ms */
	EARLY_BYTES = 2 * PACE_FIRST_BYTES, /* a window up to here grows in larger steps */
};

void pace_init(struct pace *pace)
{
	*pace = (struct pace){.window_bytes = PACE_FIRST_BYTES};
}

void pace_sent(
	struct pace *pace, size_t under_way_bytes, uint64_t now_us, struct pace_mark *ret_mark)
{
	if (!under_way_bytes)
		pace->arrived_us = now_us; /* the link was idle: that time does not count */
	*ret_mark = (struct pace_mark){
		.sent_us = now_us,
		.arrived_bytes = pace->arrived_bytes,
		.arrived_us = pace->arrived_us,
	};
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* If the sender had nothing more to send, only a high rate is meaningful.  `is_full`: what was sent
 * waited for the link, so that this is what it carries. */
static void note_rate(
	struct pace *pace, uint64_t rate, bool was_limited, bool is_full, uint64_t now_us)
{
	if (!was_limited && rate <= larger(pace->rates[0], pace->rates[1]))
		return;
	if (now_us - pace->rates_since_us > RATE_PERIOD_US) {
		pace->rates[1] = pace->rates[0];
		pace->was_full[1] = pace->was_full[0];
		pace->rates[0] = 0;
		pace->was_full[0] = false;
		pace->rates_since_us = now_us;
	}
	pace->rates[0] = larger(pace->rates[0], rate);
	pace->was_full[0] = pace->was_full[0] || is_full;
}

void pace_arrived(struct pace *pace, size_t bytes, const struct pace_mark *mark, uint64_t now_us)
{
	bool was_limited = pace->refused_us && pace->refused_us >= mark->sent_us;
	uint64_t took_us = larger(now_us - mark->sent_us, 1), for_us, window;
	bool queues_up;

	pace->arrived_bytes += bytes;
	pace->arrived_us = now_us;
	for_us = larger(now_us - mark->arrived_us, took_us);
	if (!pace->quickest_us || took_us < pace->quickest_us)
		pace->quickest_us = took_us;
	queues_up = took_us > pace->quickest_us + pace->quickest_us / 4 + JITTER_US;
	note_rate(pace, (pace->arrived_bytes - mark->arrived_bytes) * 1000000 / for_us, was_limited,
		was_limited && queues_up, now_us);
	window = larger(pace->rates[0], pace->rates[1]) * (pace->quickest_us + PACE_QUEUE_US) /
		 1000000;
	/* Nothing queues up although everything allowed is under way: the link may carry more. */
	if (was_limited && !queues_up)
		window = larger(window,
			pace->window_bytes + (pace->window_bytes < EARLY_BYTES ? 3 : 1) * bytes);
	if (!was_limited)
		window = larger(window, pace->window_bytes);
	window = larger(window, PACE_MIN_BYTES);
	pace->window_bytes = window < PACE_MAX_BYTES ? (size_t)window : PACE_MAX_BYTES;
}

bool pace_is_thin(const struct pace *pace)
{
	bool may_be = pace->quickest_us >= PACE_NEAR_US && pace->arrived_bytes < PACE_FIRST_BYTES;

	return larger(pace->rates[0], pace->rates[1]) < PACE_THIN_BYTES &&
	       (pace->was_full[0] || pace->was_full[1] || may_be);
}

bool pace_allows(struct pace *pace, size_t under_way_bytes, uint64_t now_us)
{
	if (under_way_bytes < pace->window_bytes)
		return true;
	pace->refused_us = now_us;
	return false;
}
