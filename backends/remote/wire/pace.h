/*
 * backends/remote/wire/pace.h - how much bulk data may be under way at a time.
 *
 * What has been handed to ssh and the kernel cannot be overtaken any more: on a slow link megabytes
 * of it keep an answer waiting that somebody needs now.  A pace learns from the acknowledgements
 * what the link carries, and allows so much to be under way that it is always busy and that
 * a frame waits for about 30 ms.  Nothing is held back that a fast link would carry.
 * Threads: the caller guards it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PACE_QUEUE_US = 25000,
	PACE_MIN_BYTES = 32 << 10,
	PACE_FIRST_BYTES = 256 << 10, /* before anything is known */
	PACE_MAX_BYTES = 32 << 20,
	PACE_THIN_BYTES = 12500000, /* per second: 100 Mbit/s */
	PACE_NEAR_US = 5000,        /* a link so short is thin only if it has shown that */
};

struct pace {
	size_t window_bytes;
	uint64_t arrived_bytes, arrived_us; /* in all; when the last did */
	uint64_t refused_us;                /* when somebody last had to wait */
	uint64_t rates[2];                  /* bytes per second: most of this period, of the last */
	bool was_full[2];                   /* ... in which what was sent waited for the link */
	uint64_t rates_since_us;
	uint64_t quickest_us; /* from sending to acknowledgement, ever; 0: unknown */
};

/* Goes with what is sent. */
struct pace_mark {
	uint64_t sent_us, arrived_bytes, arrived_us;
};

void pace_init(struct pace *pace);

/* Something leaves; `under_way_bytes` were before it. */
void pace_sent(
	struct pace *pace, size_t under_way_bytes, uint64_t now_us, struct pace_mark *ret_mark);

/* `bytes` are now known to have arrived, the last of which had this mark. */
void pace_arrived(struct pace *pace, size_t bytes, const struct pace_mark *mark, uint64_t now_us);

/* Whether the link carries so little that it is slower than compressing.  A rate that only the
 * window has limited says nothing of that; until PACE_FIRST_BYTES have arrived, a far link counts
 * as thin. */
bool pace_is_thin(const struct pace *pace);

/* Whether more may leave while so much is under way. */
bool pace_allows(struct pace *pace, size_t under_way_bytes, uint64_t now_us);
