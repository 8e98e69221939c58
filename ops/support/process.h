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

/* For the beginning of main(), in a program that sets the modes of files itself: its umask becomes
 * 0, and commands start with the one that it had. */
void process_keep_umask(void);

/* In a forked child: the umask that was kept, if one was.  Async-signal-safe. */
void process_restore_umask(void);

/* A program that is started in the environment that this one is in marks it with this variable, so
 * that the environment of this machine does not reach commands elsewhere. */
#define PROCESS_LOCAL_MARK "ISTHMUS_LOCAL_ENVIRONMENT"

/* For the beginning of main(), in a program that a login, a container engine or the like has
 * started for commands: they get its whole environment, unless that has the mark. */
void process_inherit_environment(void);

/* Starts `request` in the directory open as `cwd_fd` (O_PATH will do; request->cwd is not
 * looked at).  It runs as this process's user.  Errors as exec of ops/workspace.h. */
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
