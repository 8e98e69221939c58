/*
 * tools/base/process.h - runs a command for a tool: at the workspace if the session's root is on a
 * mount (through its control socket), else on this machine.
 *
 * The command's environment has PATH, HOME and the like of this process, and nothing else.  It also
 * sets safe.bareRepository=explicit for git, which then ignores bare repositories in the tree.
 * Threads: a run belongs to the calling thread.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tool_call;

struct process_request {
	const char *const *argv;        /* NULL-terminated; NULL: run `command` */
	const char *command;            /* for "/bin/bash -c" */
	bool any_shell;                 /* use sh if bash is not installed */
	const char *directory;          /* working directory, below the root */
	bool is_here;                   /* run on this machine, even on a mount */
	bool merged;                    /* stderr goes where stdout goes, in order */
	const char *const *environment; /* "NAME=value" to add, NULL-terminated; may be NULL */
	uint32_t timeout_ms;            /* 0: none */
	bool ends_call;                 /* the call does nothing on the mount after it */
	bool has_input;                 /* else its standard input is empty */
	int input;                      /* where that comes from, until its end */

	/* Called with output as it arrives.  A negative result ends the run, which returns it. */
	int (*output)(void *user, bool is_stderr, const void *data, size_t size);
	void *user;
};

struct process_result {
	int exit_code; /* -1: `signal` ended the command */
	int signal;
	bool timed_out;
	cJSON *changed; /* array of paths that changed during the run; NULL: unknown */
	bool changed_truncated;
};

/* Runs the command to its end.  0; -ECANCELED: the call was cancelled; -ENOENT: no such program or
 * directory; -ENOEXEC: bash is not installed and `any_shell` is not set; errors of the mount, such
 * as -ENOTCONN.  In every case no process that the command started is left running.  The caller
 * deletes `changed`. */
int process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result);
