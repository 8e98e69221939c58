/*
 * tools/base/jobs.h - commands that run on while the agent does other things.
 *
 * A job belongs to a session and ends with it, or when it is killed; with a mount, also when that
 * is unmounted.  Its output is kept up to a limit: of more, the last part. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum {
	JOBS_MAX = 16,             /* of a session, ended ones that were not looked at included */
	JOB_OUTPUT_BYTES = 1 << 20 /* kept of what nobody has looked at */
};

struct jobs;
struct tool_call;

struct jobs *jobs_new(void);       /* NULL: no memory */
void jobs_free(struct jobs *jobs); /* kills what runs; NULL is fine */

/* What to run: as struct process_request has it. */
struct job_request {
	const char *command;
	bool any_shell;
	const char *directory;
	const char *const *environment;
};

/* Starts one for the call's session, under the call's id in the log.  `*ret_number` names it from
 * now on.  -EAGAIN: there are JOBS_MAX; -errno. */
int jobs_start(struct tool_call *call, const struct job_request *request, unsigned *ret_number);

struct job_look {
	struct buffer output; /* since the last look; the caller's */
	uint64_t missed;      /* bytes before it that could not be kept */
	bool ended;
	int exit_code, signal;
	int error; /* -errno: it could not run, or how it ended is not known */
	unsigned seconds;
};

/* Takes the output since the last look.  Waits up to `wait_ms` for some, or for the end; a
 * cancelled call waits no longer.  What has ended is forgotten with its last look.  -ENOENT. */
int jobs_look(struct tool_call *call, unsigned number, unsigned wait_ms, struct job_look *ret_look);

/* Sends input; `end`: and then its end.  -ENOENT; -EPIPE: it reads no more. */
int jobs_write(struct jobs *jobs, unsigned number, const void *data, size_t size, bool end);

/* Ends it with everything it started, and waits for that.  -ENOENT. */
int jobs_kill(struct jobs *jobs, unsigned number);

/* Appends a line for each: "1  running 12 s  npm run dev". */
int jobs_list(struct jobs *jobs, struct buffer *out);
