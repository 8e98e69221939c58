/*
 * fs/control/control_run.h - a process of the workspace whose streams are a connection's frames.
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
	uint64_t start_ns;  /* of its record, whose caller is looked up meanwhile; 0: it is not */
	atomic_bool client_gone;
	atomic_bool ended;

	struct changed_paths changed; /* guarded by the server's lock */

	pthread_t reader; /* of the client's frames, once `has_reader` */
	bool has_reader;
	struct buffer input; /* the reader's: for the process's stdin */
	bool input_ended;
	atomic_uint_fast64_t bytes; /* that went either way */
};

/* Runs `exec` for the connection of `run`, which is else zero, to its end.  Its exit, or -errno:
 * it was not started, or how it ended is not known.  The client that closes its connection ends
 * it. */
int control_run(struct exec_run *run, const struct exec_request *exec, struct op_context *ctx,
	bool *ret_started, struct exec_event *ret_exit);

/* Waits for the reader, and frees the process; to be called after the reply, which need not wait
 * for it.  `client_gone` and `bytes` are final only then. */
void control_run_settle(struct exec_run *run);

/* control_run_settle(), unless it was called, and frees what `run` holds. */
void control_run_done(struct exec_run *run);
