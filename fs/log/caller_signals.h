/*
 * fs/log/caller_signals.h - which signals wait for a caller that waits for its answer.
 *
 * FUSE reports that a signal came, but not which.  A local file system would interrupt a call only
 * for a fatal signal; a program's timer or child must not fail its write().
 * Threads: any.
 */
#pragma once

#include <sys/types.h>

enum caller_wish {
	CALLER_WAITS,        /* the signal can wait for the end of the call, or is gone */
	CALLER_ASKED_TO_END, /* by SIGINT, SIGTERM, SIGHUP or SIGQUIT, which it handles */
	CALLER_ENDS,
	CALLER_UNKNOWN, /* it cannot be inspected (another pid namespace), or is gone */
};

/* Reads /proc; `tid`: the calling thread, 0 when unknown. */
enum caller_wish caller_wish(pid_t tid);
