/*
 * ops/support/exec.h - a command to run, and what comes of it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exec_flags {
	EXEC_PTY = 1 << 0,            /* one terminal for all three; output is EXEC_STDOUT */
	EXEC_STDIN_CLOSED = 1 << 1,   /* stdin is /dev/null; process_write is not called */
	EXEC_KILL_LEFTOVERS = 1 << 2, /* when the command itself has ended, kill what it left
				       * running (also what left its group or session) */
	EXEC_STREAM = 1 << 3, /* no program but a connection: argv as ops/support/socket_stream.h */
	EXEC_TELL_PORTS = 1 << 4, /* EXEC_LISTENING is wanted */
	EXEC_MERGED = 1 << 5, /* stdout and stderr are one pipe, which keeps their order; its output
			       * is EXEC_STDOUT */
	EXEC_LOGIN = 1 << 6,  /* the environment is that of a login shell there */
};

struct exec_request {
	const char *const *argv; /* NULL-terminated; NULL: run `command` */
	const char *command;     /* for "/bin/sh -c"; used when argv is NULL */
	const char *cwd;         /* workspace path */
	const char *const
		*environment; /* "NAME=value", NULL-terminated: added to what commands have there,
			       * and winning over it.  On another machine that is what a login or
			       * a container engine gives; on this one PATH, HOME, USER, LOGNAME,
			       * SHELL, LANG and LC_*, and nothing else.  May be NULL */
	bool has_umask; /* `umask` counts, if the command runs on this machine; else it is ... */
	uint16_t umask; /* ... the one that the login gave */
	uint32_t timeout_ms;    /* 0: none.  After it the whole tree gets TERM, 3 s later KILL */
	unsigned flags;         /* enum exec_flags */
	uint16_t rows, columns; /* EXEC_PTY: initial window; 0: 24 x 80 */
};

enum exec_event_type {
	EXEC_STDOUT,
	EXEC_STDERR,
	EXEC_STDOUT_END, /* of a stream: no more EXEC_STDOUT comes, input may still be sent */
	EXEC_LISTENING,  /* something that the command started listens on a TCP port */
	EXEC_EXIT,
};

enum { EXEC_PORTS_MAX = 16 };

struct exec_event {
	enum exec_event_type type;
	size_t size;   /* EXEC_STDOUT, EXEC_STDERR: bytes put into the buffer; never 0 */
	uint16_t port; /* EXEC_LISTENING; each port once, at most EXEC_PORTS_MAX of them */

	/* EXEC_EXIT only; always the last event.  Output that the command wrote before it
	 * ended comes first; a process it left behind does not hold the event up.  All
	 * changes it made have been reported through watch by then. */
	int exit_code; /* 0-255 as by exit(3); -1 when killed by a signal */
	int signal;    /* which signal; 0: none */
	bool timed_out;
};
