/*
 * tools/base/process.h - runs a command for a tool: at the workspace when the session's root is on
 * a mount (through its control socket), else here.
 *
 * Of our own environment it gets PATH, HOME and the like, and nothing else; git in it takes no
 * directory for a bare repository that it was not told of (safe.bareRepository=explicit).
 * Threads: a run belongs to the thread that calls it.
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
	bool any_shell;                 /* where there is no bash, sh does */
	const char *directory;          /* below the root */
	bool is_here;                   /* not at the workspace, on a mount too */
	const char *const *environment; /* "NAME=value" to add, NULL-terminated; may be NULL */
	uint32_t timeout_ms;            /* 0: none */
	bool ends_call;                 /* the call does nothing on the mount after it */
	bool has_input;                 /* else its standard input is empty */
	int input;                      /* where that comes from, until its end */

	/* Output as it comes.  A negative result ends the run and is returned from it. */
	int (*output)(void *user, bool is_stderr, const void *data, size_t size);
	void *user;
};

struct process_result {
	int exit_code; /* -1: ended by `signal` */
	int signal;
	bool timed_out;
	cJSON *changed; /* paths that changed meanwhile (array), or NULL where unknown */
	bool changed_truncated;
};

/* Runs to the end.  0; -ECANCELED once the call was cancelled; -ENOENT: no such program (or
 * directory); -ENOEXEC: there is no bash, and `any_shell` is not set; -ENOTCONN and the like from
 * the mount.  Whatever the outcome, nothing that the command started is left running.  The caller
 * deletes `changed`. */
int process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result);
