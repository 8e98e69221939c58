/*
 * backends/remote/client/heartbeat.h - when to ping a silent connection, and when to give it up.
 *
 * Whatever comes in after a ping answers it: on a slow link a PONG may be queued behind data.  What
 * came in is counted in bytes, not by the clock: a PONG may arrive in the millisecond of its PING.
 * Threads: the caller guards it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	HEARTBEAT_IDLE_MS = 15000, /* how long a silence lasts before a ping ... */
	HEARTBEAT_BUSY_MS = 1000,  /* ... while a call waits */
	HEARTBEAT_LATE_MS = 1000,  /* an answer that takes longer is late */
	HEARTBEAT_SLEPT_MS = 1000, /* a longer pause between two checks means that the machine
				    * slept: no answer is late */
};

/* Zeroed: a new connection. */
struct heartbeat {
	int64_t pinged_ms;   /* 0: no ping is out */
	int64_t checked_ms;  /* when the last check was */
	uint64_t ping_bytes; /* received when the ping was sent */
};

struct heartbeat_state {
	int64_t now_ms;
	int64_t silence_ms;      /* since the last byte came in */
	uint64_t received_bytes; /* ever; never goes back */
	bool is_busy;            /* a call waits for an answer */
	int64_t patience_ms;     /* after so long without an answer the link is given up */
};

enum heartbeat_verdict {
	HEARTBEAT_QUIET, /* nothing to do */
	HEARTBEAT_SEND,  /* send a ping now */
	HEARTBEAT_GOOD,  /* the ping was answered, or does not count */
	HEARTBEAT_LATE,  /* no answer for so long that the link counts as degraded */
	HEARTBEAT_LOST,  /* ... and as broken */
};

/* To be called every second at least, and several times a second while a ping is out. */
enum heartbeat_verdict heartbeat_check(
	struct heartbeat *heartbeat, const struct heartbeat_state *state);
