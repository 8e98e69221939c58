/*
 * tools/base/jobs.h - commands that run in the background.
 *
 * A job belongs to a session.  It is killed at the end of the session or on request; on a mount,
 * also at unmount.  The last JOB_OUTPUT_BYTES of unread output are kept.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum {
	JOBS_MAX = 16,             /* per session, including ended jobs with unread output */
	JOB_OUTPUT_BYTES = 1 << 20 /* bound of the unread output of a job */
};

struct jobs;
struct tool_call;

struct jobs *jobs_new(void);       /* NULL: no memory */
void jobs_free(struct jobs *jobs); /* kills running jobs; NULL is fine */

/* The command; fields as in struct process_request. */
struct job_request {
	const char *command;
	bool any_shell;
	const char *directory;
	const char *const *environment;
};

/* Starts a job in the call's session; the log records its operations under the call's id.
 * `*ret_number`: the number of the job in the functions below.  -EAGAIN: JOBS_MAX exist; -errno. */
int jobs_start(struct tool_call *call, const struct job_request *request, unsigned *ret_number);

struct job_look {
	struct buffer output; /* unread output; the caller frees it */
	uint64_t missed;      /* bytes before it that were dropped */
	bool ended;
	int exit_code, signal;
	int error;        /* -errno: the command could not run, or its exit status is unknown */
	unsigned seconds; /* since the start */
};

/* Takes the unread output.  Waits up to `wait_ms` for output or for the end of the job; a cancelled
 * call stops waiting.  A job that has ended is freed by this call.  -ENOENT: no such job. */
int jobs_look(struct tool_call *call, unsigned number, unsigned wait_ms, struct job_look *ret_look);

/* Writes to the job's standard input; `end`: and closes it then.  -ENOENT; -EPIPE: the job has
 * closed its input. */
int jobs_write(struct jobs *jobs, unsigned number, const void *data, size_t size, bool end);

/* Kills the job and all processes that it started, and waits for their end.  -ENOENT. */
int jobs_kill(struct jobs *jobs, unsigned number);

/* Appends one line per job: "1  running 12 s  npm run dev". */
int jobs_list(struct jobs *jobs, struct buffer *out);
