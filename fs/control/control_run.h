/*
 * fs/control/control_run.h - runs a process at the workspace whose input and output are the frames
 * of a connection.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fs/control/changed_paths.h"
#include "fs/control/control_server.h"
#include "ops/support/buffer.h"

struct exec_event;
struct exec_request;
struct op_context;
struct process;

struct exec_run {
	struct exec_run *next; /* guarded by the server's lock */
	struct connection *connection;
	struct process *process;
	int64_t started_ms; /* of clock_now_ms() */
	uint64_t since;     /* position from before it was started; 0: not known */
	uint64_t start_ns;  /* of its record, whose caller is looked up meanwhile; 0: it is not */
	atomic_bool client_gone;
	atomic_bool ended;

	struct changed_paths changed; /* guarded by the server's lock */

	pthread_t reader; /* reads the client's frames; valid if `has_reader` */
	bool has_reader;
	struct buffer input; /* for the process's stdin; used by the reader only */
	bool input_ended;
	atomic_uint_fast64_t bytes; /* passed in either direction */
};

/* Runs `exec` to its end.  The caller sets run->connection; all other fields are zero.  0 with
 * `*ret_exit`, or -errno: the process was not started (`*ret_started` false), or its exit status is
 * unknown.  If the client closes the connection, the process is ended. */
int control_run(struct exec_run *run, const struct exec_request *exec, struct op_context *ctx,
	bool *ret_started, struct exec_event *ret_exit);

/* Waits for the reader and frees the process.  Called after the reply was sent, which need not wait
 * for that.  After it `client_gone` and `bytes` are final. */
void control_run_settle(struct exec_run *run);

/* Calls control_run_settle() if that was not done, and frees the members of `run`. */
void control_run_done(struct exec_run *run);
