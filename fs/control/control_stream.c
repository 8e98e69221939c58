/* Network connections of the workspace's machine, for `isthmus forward`. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_run.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/support/json.h"
#include "ops/workspace.h"

/* ---- Replies ------------------------------------------------------------------------------ */

static void reply_no_stream(
	struct connection *connection, const char *op, const char *endpoint, int error)
{
	const char *uri = connection->server->mount->options->uri;
	bool listens = strcmp(op, "listen") == 0;

	if (error == -EOPNOTSUPP)
		control_reply_failure(connection, error,
			"\"%s\" has no ports: it holds files only, or its helper is older than "
			"this program",
			uri);
	else if (!listens && (error == -ECONNREFUSED || error == -ENOENT))
		control_reply_failure(connection, error,
			"nothing listens on %s at the workspace (%s)", endpoint, strerror(-error));
	else if (error == -EADDRINUSE)
		control_reply_failure(connection, error,
			"%s is in use at the workspace: give another, as in 8080:3000", endpoint);
	else if (error == -EINVAL)
		control_reply_failure(
			connection, error, "\"%s\" is no port, ADDRESS:PORT or path", endpoint);
	else if (error == -EIO)
		control_reply_no_reach(connection, "is out of reach");
	else
		control_reply_failure(connection, error, "cannot %s %s at the workspace: %s",
			listens ? "listen on" : "connect to", endpoint, strerror(-error));
}

static void reply_end(struct connection *connection, bool broke)
{
	const char *text = broke ? "{\"exit_code\":1}" : "{\"exit_code\":0}";

	control_send(connection->fd, CONTROL_EXIT, text, strlen(text));
}

/* ---- The log ------------------------------------------------------------------------------ */

static void log_stream(struct connection *connection, struct log_record *record, int result)
{
	uint64_t elapsed_us = (clock_wall_ns() - record->start_ns) / 1000;

	record->flags |= LOG_IS_MUTATION;
	record->path = "";
	record->pid = connection->peer.pid;
	record->uid = connection->peer.uid;
	record->latency_us = elapsed_us > UINT32_MAX ? UINT32_MAX : (uint32_t)elapsed_us;
	record->result = result;
	mount_log_record(connection->server->mount->log, record);
}

static bool log_refuses(struct connection *connection)
{
	if (!mount_log_refuses(connection->server->mount->log))
		return false;
	control_reply_failure(connection, -EIO,
		"the mount log cannot be written, and the mount requires it: 'isthmus status' "
		"says why");
	return true;
}

/* ---- Requests ----------------------------------------------------------------------------- */

/* Runs a stream to its end.  `shown`: its endpoint, for messages. */
static void run_stream(
	struct connection *connection, const char *op, const char *shown, const char *const *argv)
{
	const struct exec_request exec = {.argv = argv, .cwd = "", .flags = EXEC_STREAM};
	struct log_record record = {.op = op, .start_ns = clock_wall_ns(), .detail = shown};
	struct exec_run run = {.connection = connection};
	struct exec_event event = {0};
	struct op_context ctx;
	bool started;
	int r;

	if (log_refuses(connection))
		return;
	op_context_init(&ctx);
	r = control_run(&run, &exec, &ctx, &started, &event);
	control_run_settle(&run);
	if (r == 0 && event.exit_code != 0)
		r = -ECONNRESET;
	record.flags = LOG_HAS_BYTES;
	record.bytes = run.bytes;
	record.round_trips = ctx.served.round_trips;
	/* A client ends its stream by closing the connection, so that is no error. */
	log_stream(connection, &record, started && run.client_gone ? 0 : r);
	if (started)
		reply_end(connection, r < 0);
	else if (r < 0)
		reply_no_stream(connection, argv[0], shown, r);
	control_run_done(&run);
}

/* The member of the request; NULL: it is missing, and the client got an error. */
static const char *need_text(struct connection *connection, const cJSON *request, const char *name)
{
	const char *text = json_text(request, name);

	if (!text)
		control_reply_failure(connection, -EINVAL, "the request needs \"%s\"", name);
	return text;
}

void control_connect_to(struct connection *connection, const cJSON *request)
{
	const char *endpoint = need_text(connection, request, "endpoint");
	const char *argv[] = {"connect", endpoint, NULL};

	if (endpoint)
		run_stream(connection, "connect", endpoint, argv);
}

void control_listen_at(struct connection *connection, const cJSON *request)
{
	const char *endpoint = need_text(connection, request, "endpoint");
	const char *argv[] = {"listen", endpoint, NULL};

	if (endpoint)
		run_stream(connection, "forward", endpoint, argv);
}

void control_accept_from(struct connection *connection, const cJSON *request)
{
	const char *listener = need_text(connection, request, "listener");
	const char *number = listener ? need_text(connection, request, "connection") : NULL;
	const char *argv[] = {"accept", listener, number, NULL};
	const char *shown = json_text(request, "endpoint");

	if (number)
		run_stream(connection, "connect", shown ? shown : "", argv);
}

void control_forward(struct connection *connection, const cJSON *request)
{
	struct pollfd end = {.fd = connection->fd, .events = POLLIN | POLLRDHUP};
	struct log_record record = {.op = "forward", .start_ns = clock_wall_ns()};
	struct workspace_status status;

	record.detail = need_text(connection, request, "text");
	if (!record.detail || log_refuses(connection))
		return;
	workspace_status(connection->server->mount->workspace, &status);
	if (!(status.capabilities & WORKSPACE_CAN_STREAM)) {
		reply_no_stream(connection, "connect", record.detail, -EOPNOTSUPP);
		return;
	}
	log_stream(connection, &record, 0);
	if (control_send(connection->fd, CONTROL_JSON, "{}", 2) < 0)
		return;
	while (poll(&end, 1, -1) < 0 && errno == EINTR)
		;
}
