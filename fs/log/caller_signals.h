/*
 * fs/log/caller_signals.h - what signals tell a caller that waits for its answer.
 *
 * The kernel says that some signal came, no matter which.  A local file system would go on
 * unless the caller is to end; a program's timer or child must not fail its write().
 * Threads: any.
 */
#pragma once

#include <sys/types.h>

enum caller_wish {
	CALLER_WAITS,        /* what came can wait for the end of the call, or has gone */
	CALLER_ASKED_TO_END, /* by SIGINT, SIGTERM, SIGHUP or SIGQUIT, which it handles */
	CALLER_ENDS,
	CALLER_UNKNOWN, /* it cannot be looked at (another pid namespace), or is not there */
};

/* Reads /proc; `tid`: the thread that asks, 0 when unknown. */
enum caller_wish caller_wish(pid_t tid);
