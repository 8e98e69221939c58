/*
 * ops/support/process.h - commands on this machine, each with its whole process tree in hand.
 *
 * A command runs under a supervisor: a forked, single-threaded process that adopts whatever
 * the command leaves behind (a subreaper), so that signals, timeouts and the end reach every
 * descendant, those that changed their process group or session included.  When this
 * process dies, the supervisor kills the tree.
 * SIGPIPE must be ignored by the program.
 * Threads: one may fetch events, one may write and others may signal at the same time.
 */
#pragma once

#include <sys/types.h>

#include "ops/support/exec.h"

struct command;

/* Starts `request` in the directory open as `cwd_fd` (O_PATH will do; request->cwd is not
 * looked at).  It runs as this process's user, with its umask (022 where that is 0).
 * Errors as exec of ops/workspace.h. */
int command_start(const struct exec_request *request, int cwd_fd, struct command **ret_command);

/* When to give up waiting: asked 20 times a second.  `is_true` NULL: never. */
struct command_interrupt {
	bool (*is_true)(void *user);
	void *user;
};

/* As process_next, process_write, process_close_stdin, process_signal and process_resize of
 * ops/workspace.h; -EINTR once interrupted. */
int command_next(struct command *command, struct command_interrupt interrupt, void *buffer,
	size_t size, struct exec_event *ret_event);
ssize_t command_write(
	struct command *command, struct command_interrupt interrupt, const void *data, size_t size);
int command_close_stdin(struct command *command);
int command_signal(struct command *command, int signal);
int command_resize(struct command *command, uint16_t rows, uint16_t columns);

/* Kills the tree when the command still runs, and frees.  NULL is fine. */
void command_free(struct command *command);
