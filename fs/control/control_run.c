#include "fs/control/control_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "ops/support/cleanup.h"
#include "ops/support/exec.h"
#include "ops/support/thread.h"
#include "ops/workspace.h"

enum {
	READER_STACK_BYTES = 256 << 10,
	OUTPUT_BYTES = 64 << 10,       /* per frame */
	STDIN_QUEUE_BYTES = 256 << 10, /* bound of queued input; the client keeps the rest */
};

/* ---- The client's frames ---------------------------------------------------------- */

static bool is_ready(int fd, short events)
{
	struct pollfd one = {.fd = fd, .events = events};

	return poll(&one, 1, 0) > 0 && (one.revents & (events | POLLHUP | POLLERR));
}

/* A frame of the client, which may be a signal, interrupts the writing to a stdin that is full. */
static bool stdin_interrupted(struct op_context *ctx)
{
	struct exec_run *run = ctx->interrupted_data;
	short events = POLLRDHUP;

	if (run->input.size < STDIN_QUEUE_BYTES)
		events |= POLLIN;
	return run->ended || is_ready(run->connection->fd, events);
}

/* Writes the queued input to stdin; stops early when a frame arrives. */
static int feed_stdin(struct exec_run *run)
{
	struct op_context ctx;
	ssize_t done;

	op_context_init(&ctx);
	ctx.interrupted = stdin_interrupted;
	ctx.interrupted_data = run;
	done = workspace_process_write(&ctx, run->process, run->input.data, run->input.size);
	if (done == -EINTR)
		return is_ready(run->connection->fd, POLLRDHUP) &&
				       run->input.size >= STDIN_QUEUE_BYTES
			       ? -ECONNRESET
			       : 0;
	if (done < 0) {
		/* stdin is closed: discard the input, so that the client can go on sending. */
		run->input.size = 0;
		return 0;
	}
	run->bytes += (uint64_t)done;
	buffer_consume(&run->input, (size_t)done);
	return 0;
}

static int take_frame(struct exec_run *run, struct buffer *payload)
{
	enum control_frame_type type;
	const uint8_t *data;
	struct op_context ctx;
	int r;

	op_context_init(&ctx);
	r = control_receive(run->connection->fd, &type, payload);
	if (r < 0)
		return r;
	data = payload->data;
	switch (type) {
	case CONTROL_STDIN:
		return run->input_ended ? 0
					: buffer_append(&run->input, payload->data, payload->size);
	case CONTROL_STDIN_EOF:
		run->input_ended = true;
		return 0;
	case CONTROL_SIGNAL:
		if (payload->size != 4 || data[0] == 0 || data[0] > SIGRTMAX || data[1] ||
			data[2] || data[3])
			return -EPROTO;
		workspace_process_signal(&ctx, run->process, data[0]);
		return 0;
	case CONTROL_RESIZE:
		if (payload->size != 4)
			return -EPROTO;
		workspace_process_resize(&ctx, run->process, (uint16_t)(data[0] | data[1] << 8),
			(uint16_t)(data[2] | data[3] << 8));
		return 0;
	default:
		return -EPROTO;
	}
}

static void *reader_run(void *user)
{
	cleanup_buffer struct buffer payload = {0};
	struct exec_run *run = user;
	bool closed = false;
	struct op_context ctx;
	int r = 0;

	pthread_setname_np(pthread_self(), "control-stdin");
	op_context_init(&ctx);
	while (r == 0 && !run->ended) {
		if (run->input.size > 0)
			r = feed_stdin(run);
		if (run->input.size == 0 && run->input_ended && !closed) {
			workspace_process_close_stdin(&ctx, run->process);
			closed = true;
		}
		if (r == 0 && !run->ended &&
			(run->input.size == 0 || (run->input.size < STDIN_QUEUE_BYTES &&
							 is_ready(run->connection->fd, POLLIN))))
			r = take_frame(run, &payload);
	}
	if (r < 0)
		run->client_gone = true;
	return NULL;
}

/* ---- The command's output ----------------------------------------------------------- */

static bool output_interrupted(struct op_context *ctx)
{
	const struct exec_run *run = ctx->interrupted_data;

	/* The reader would notice the end of the client, but it starts with the command only. */
	return run->client_gone || is_ready(run->connection->fd, POLLRDHUP);
}

/* Sends an event other than the exit to the client. */
static int pass_on(struct exec_run *run, const struct exec_event *event, const uint8_t *data)
{
	const uint8_t port[] = {(uint8_t)event->port, (uint8_t)(event->port >> 8)};
	int fd = run->connection->fd;

	run->bytes += event->size;
	switch (event->type) {
	case EXEC_STDOUT_END:
		return control_send(fd, CONTROL_STDOUT_END, NULL, 0);
	case EXEC_LISTENING:
		return control_send(fd, CONTROL_LISTENING, port, sizeof(port));
	case EXEC_STDOUT:
		return control_send(fd, CONTROL_STDOUT, data, event->size);
	default:
		return control_send(fd, CONTROL_STDERR, data, event->size);
	}
}

/* Passes events on until the command has ended.  A slow client blocks the command's output.  -EPIPE
 * or similar: the client has closed the connection. */
static int pump_output(struct exec_run *run, struct op_context *ctx, struct exec_event *ret_exit)
{
	cleanup_free uint8_t *buffer = malloc(OUTPUT_BYTES);
	int r = buffer ? 0 : -ENOMEM;

	while (r == 0) {
		struct exec_event event;

		r = workspace_process_next(ctx, run->process, buffer, OUTPUT_BYTES, &event);
		if (r == 0 && event.type == EXEC_EXIT) {
			*ret_exit = event;
			return 0;
		}
		if (r == 0)
			r = pass_on(run, &event, buffer);
	}
	return r;
}

/* ---- Start and end ---------------------------------------------------------------------- */

void control_run_settle(struct exec_run *run)
{
	if (run->has_reader)
		pthread_join(run->reader, NULL);
	run->has_reader = false;
	workspace_process_free(run->process);
	run->process = NULL;
}

int control_run(struct exec_run *run, const struct exec_request *exec, struct op_context *ctx,
	bool *ret_started, struct exec_event *ret_exit)
{
	int r;

	*ret_started = false;
	ctx->interrupted = output_interrupted;
	ctx->interrupted_data = run;
	r = workspace_exec(ctx, run->connection->server->mount->workspace, exec, &run->process);
	run->since = ctx->served.position;
	if (r == 0)
		r = thread_start(
			&run->reader, "control-input", READER_STACK_BYTES, reader_run, run);
	if (r < 0)
		return r;
	*ret_started = run->has_reader = true;
	/* While the command runs, not between its end and the reply. */
	if (run->start_ns)
		mount_log_look_up(run->connection->server->mount->log, run->connection->peer.pid,
			run->start_ns);
	r = pump_output(run, ctx, ret_exit);
	run->ended = true;
	shutdown(run->connection->fd, SHUT_RD);
	if (r < 0)
		control_run_settle(run);
	return r;
}

void control_run_done(struct exec_run *run)
{
	control_run_settle(run);
	changed_paths_done(&run->changed);
	buffer_done(&run->input);
}
