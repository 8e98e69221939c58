/*
 * fs/watchers/event_helper.h - the daemon's side of the event helpers (event_program.c).
 *
 * Usually there is one.  One that does not answer is blocked in the kernel: it is left alone, and
 * another one is started.
 * Threads: one.
 */
#pragma once

#include "fs/edge/announce.h"
#include "fs/watchers/event_protocol.h"

struct event_helpers {
	struct mount *mount;
	int root_fd; /* the mount's root, detached from all mount points; -1: use the mount point */
	int wake_fd; /* readable: give up waiting */
	struct event_helper {
		pid_t pid;  /* 0: none */
		int socket; /* -1 */
		bool is_stuck;
	} helpers[ANNOUNCE_HELPERS_MAX];
};

/* `root_fd` (or -1) is taken over.  Starts none yet. */
void event_helpers_init(
	struct event_helpers *helpers, struct mount *mount, int root_fd, int wake_fd);

/* Kills and waits for all of them; one that cannot be killed now ends when the mount does. */
void event_helpers_done(struct event_helpers *helpers);

/* Has a helper make the call.  0; -errno of the call; -EBUSY: all helpers are stuck; -ETIMEDOUT:
 * this one is from now on; -EINTR: `wake_fd`; -ECHILD: there is none to be had. */
int event_helpers_call(struct event_helpers *helpers, const struct event_command *command,
	const struct announcement *announcement);

/* The number of stuck helpers; those that have answered meanwhile do not count. */
unsigned event_helpers_stuck(struct event_helpers *helpers);
