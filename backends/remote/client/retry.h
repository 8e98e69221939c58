/*
 * backends/remote/client/retry.h - when to try to connect again.
 *
 * After failures the pauses get longer.  While a call waits they are short, and a call that is made
 * or a change of this machine's network ends one early.
 * Threads: the caller guards it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	RETRY_FIRST_MS = 100,
	RETRY_MAX_MS = 10000,
	RETRY_WAITED_MS = 2000, /* the longest pause while a call waits */
	RETRY_EARLY_MS = 200,   /* the shortest pause */
};

struct retry {
	int64_t began_ms; /* the pause */
	int64_t pause_ms; /* while nobody needs the far end */
	bool has_waiting; /* calls wait for it */
	bool is_wanted;   /* one was made since the pause began, or the network has changed */
};

/* When to try again, by the clock of `began_ms`. */
int64_t retry_at_ms(const struct retry *retry);

/* Listens for changes of this machine's links, addresses and routes.  A descriptor, which the
 * caller owns; -errno: not available. */
int retry_network_open(void);

/* Whether there was one since it was last asked.  Never waits; false for -1. */
bool retry_network_has_changed(int fd);
