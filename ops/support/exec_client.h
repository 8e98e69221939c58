/*
 * ops/support/exec_client.h - one command at the workspace in the place of this process: its
 * standard input, output, signals and terminal are those of the command.
 *
 * It uses threads for input and signals that nothing ends: the process is expected to leave with
 * exec_client_leave() once the command has ended, or to exec.
 * Threads: one command a process; all functions from its main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

enum exec_exit_code {
	EXEC_EXIT_TIMED_OUT = 124,
	EXEC_EXIT_OWN_FAILURE = 125,
	EXEC_EXIT_NOT_EXECUTABLE = 126,
	EXEC_EXIT_NOT_FOUND = 127,
	EXEC_EXIT_SIGNALLED = 128, /* plus the signal */
};

/* Standard input is /dev/null.  The request should say so (stdin_closed), for the command to have
 * the same: some programs read a pipe rather than files (rg). */
bool exec_client_has_no_input(void);

/* Standard output and standard error are one file, pipe or terminal.  The request should say so
 * (merged), or what comes by them would lose its order. */
bool exec_client_has_one_output(void);

/* Adds `umask` to a request: that of this process. */
void exec_client_add_umask(struct cJSON *request);

struct exec_client {
	const char *control_path; /* of the mount's daemon */
	const char *request;      /* JSON, as in ops/support/control.h */
	bool tty;                 /* standard input is a terminal, which becomes raw */
	bool no_input;            /* the request says stdin_closed */

	/* Receives the output; 0 or -errno.  NULL: it goes to standard output and standard error.
	 */
	int (*output)(void *user, bool is_stderr, const void *data, size_t size);

	/* The command listens on the port; of requests with tell_ports.  NULL: passed over. */
	void (*listening)(void *user, unsigned port);

	/* Nothing has come for seconds as the workspace cannot be reached: `problem` says why
	 * (reach_problem).  Called once at most.  NULL: passed over. */
	void (*waiting)(void *user, const char *problem);
	void *user;
};

struct exec_client_end {
	int code;  /* what a shell would show: enum exec_exit_code, or the command's own */
	int error; /* -errno: it was not started, or its end is not known; -EPIPE: its output could
		    * not be written; 0: it ended */
	char *message;  /* for people, of `error`; the caller frees.  NULL: none */
	char *path;     /* with the code 127 of a command that ran: the PATH there, in which a shell
			 * has not found a program; the caller frees.  NULL: not known */
	bool timed_out; /* the request's timeout_ms ended it */
};

/* Connects and sends the request.  0; -E2BIG: it is longer than a frame may be; or as
 * control_connect(). */
int exec_client_start(const struct exec_client *client);

/* Passes everything on until the command has ended.  The first signal goes to the command; the
 * second, or 3 s after the first, ends the process, and the daemon kills what runs. */
void exec_client_run(const struct exec_client *client, struct exec_client_end *ret_end);

/* Ends the process; a terminal that was made raw is as before. */
_Noreturn void exec_client_leave(int code);
