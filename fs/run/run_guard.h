/*
 * fs/run/run_guard.h - a process that cleans up for `isthmus run` when that is killed.
 * Threads: the process has one.
 */
#pragma once

#include <sys/types.h>

struct run_guard {
	pid_t pid; /* of the guard; 0: there is none */
	int fd;    /* a socket to it: what closes that without a word was killed */
};

/* Starts the guard.  Once this process is killed, it ends the agent (HUP, then KILL), and calls
 * `clean_up`.  It has its own session, and no standard input and output.  0; -errno. */
int run_guard_start(void (*clean_up)(void *user), void *user, struct run_guard *ret_guard);

/* The process to end. */
void run_guard_set_agent(const struct run_guard *guard, pid_t agent);

/* This process cleans up itself: ends the guard, and waits for its end. */
void run_guard_end(struct run_guard *guard);
