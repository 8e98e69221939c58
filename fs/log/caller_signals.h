/*
 * fs/log/caller_signals.h - finds out which signals are pending for a caller that waits for its
 * reply.
 *
 * FUSE reports that a signal arrived, but not which one.  A local file system interrupts a call
 * only for a fatal signal: a timer or an exiting child must not make a program's write() fail.
 * Threads: any.
 */
#pragma once

#include <sys/types.h>

enum caller_wish {
	CALLER_WAITS,        /* no signal is pending, or it can wait for the end of the call */
	CALLER_ASKED_TO_END, /* it handles a pending SIGINT, SIGTERM, SIGHUP or SIGQUIT */
	CALLER_ENDS,         /* the pending signal kills it */
	CALLER_UNKNOWN,      /* it is in another pid namespace, or has ended */
};

/* Reads /proc.  `tid`: the calling thread; 0: unknown. */
enum caller_wish caller_wish(pid_t tid);
