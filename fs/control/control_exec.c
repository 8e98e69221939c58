#include "fs/control/control_server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/log/callers.h"
#include "fs/control/changed_paths.h"
#include "fs/log/redact.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/json.h"

enum {
	OUTPUT_BYTES = 64 << 10, /* of one frame */
	STDIN_QUEUE_BYTES =
		256 << 10, /* while the command does not read, more is left to the client */
	CHANGED_REPLY_MAX_BYTES = 128 << 10, /* as JSON at most 6 times that: below a frame */
};

/* A command that runs for a connection. */
struct exec_run {
	struct exec_run *next; /* guarded by the server's lock */
	struct connection *connection;
	struct process *process;
	atomic_bool client_gone;
	atomic_bool ended;

	struct changed_paths changed; /* guarded by the server's lock */

	struct buffer input; /* the reader's: for the command's stdin */
	bool input_ended;
};

/* ---- What changed meanwhile ------------------------------------------------------ */

bool control_exec_note_change(struct control_server *server, const char *path)
{
	bool taken;

	pthread_mutex_lock(&server->lock);
	for (struct exec_run *run = server->commands; run; run = run->next) {
		if (path)
			changed_paths_add(&run->changed, path);
		else
			run->changed.truncated = true;
	}
	taken = server->commands;
	pthread_mutex_unlock(&server->lock);
	return taken;
}

static void enlist(struct exec_run *run)
{
	struct control_server *server = run->connection->server;

	pthread_mutex_lock(&server->lock);
	run->next = server->commands;
	server->commands = run;
	server->command_count++;
	pthread_mutex_unlock(&server->lock);
}

static void delist(struct exec_run *run)
{
	struct control_server *server = run->connection->server;
	struct exec_run **at = &server->commands;

	pthread_mutex_lock(&server->lock);
	while (*at != run)
		at = &(*at)->next;
	*at = run->next;
	server->command_count--;
	pthread_mutex_unlock(&server->lock);
}

/* ---- The client's frames ---------------------------------------------------------- */

static bool is_ready(int fd, short events)
{
	struct pollfd one = {.fd = fd, .events = events};

	return poll(&one, 1, 0) > 0 && (one.revents & (events | POLLHUP | POLLERR));
}

/* While the command does not read its stdin, signals must still get through. */
static bool stdin_interrupted(struct op_context *ctx)
{
	struct exec_run *run = ctx->interrupted_data;
	short events = POLLRDHUP;

	if (run->input.size < STDIN_QUEUE_BYTES)
		events |= POLLIN;
	return run->ended || is_ready(run->connection->fd, events);
}

/* Writes what is queued; stops early when a frame comes in. */
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
		/* Nobody will read it: the client may go on sending, as to a closed pipe. */
		run->input.size = 0;
		return 0;
	}
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

	/* The reader tells of the end too, but only once the command runs. */
	return run->client_gone || is_ready(run->connection->fd, POLLRDHUP);
}

/* Passes events on until the command has ended.  A client that is slow holds the command
 * up; -EPIPE or so when it has gone. */
static int pump_output(struct exec_run *run, struct op_context *ctx, struct exec_event *ret_exit)
{
	cleanup_free uint8_t *buffer = malloc(OUTPUT_BYTES);
	int r = buffer ? 0 : -ENOMEM;

	while (r == 0) {
		struct exec_event event;

		r = workspace_process_next(ctx, run->process, buffer, OUTPUT_BYTES, &event);
		if (r < 0)
			break;
		if (event.type == EXEC_EXIT) {
			mount_drain_changes(run->connection->server->mount);
			*ret_exit = event;
			return 0;
		}
		r = control_send(run->connection->fd,
			event.type == EXEC_STDOUT ? CONTROL_STDOUT : CONTROL_STDERR, buffer,
			event.size);
	}
	return r;
}

/* ---- The request ---------------------------------------------------------------------- */

struct exec_words {
	const char **argv;
	char **environment;
	const char *call_id;
};

static void exec_words_done(struct exec_words *words)
{
	for (char **at = words->environment; at && *at; at++)
		free(*at);
	free(words->environment);
	free(words->argv);
}

static long long bounded_member(const cJSON *request, const char *name, long long max)
{
	long long number = json_integer(request, name);

	return number < 0 ? 0 : number > max ? max : number;
}

static int parse_argv(const cJSON *list, struct exec_words *words)
{
	const cJSON *item;
	size_t count = 0;

	words->argv = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*words->argv));
	if (!words->argv)
		return -ENOMEM;
	cJSON_ArrayForEach(item, list)
	{
		if (!cJSON_IsString(item))
			return -EINVAL;
		words->argv[count++] = item->valuestring;
	}
	return count > 0 ? 0 : -EINVAL;
}

static int parse_environment(const cJSON *pairs, struct exec_words *words)
{
	const cJSON *item;
	size_t count = 0;

	words->environment =
		calloc((size_t)cJSON_GetArraySize(pairs) + 1, sizeof(*words->environment));
	if (!words->environment)
		return -ENOMEM;
	cJSON_ArrayForEach(item, pairs)
	{
		/* The elements of an array have no name. */
		if (!cJSON_IsString(item) || !item->string || !*item->string ||
			strchr(item->string, '='))
			return -EINVAL;
		words->environment[count] = string_printf("%s=%s", item->string, item->valuestring);
		if (!words->environment[count++])
			return -ENOMEM;
	}
	return 0;
}

static int parse(const cJSON *request, struct exec_words *words, struct exec_request *ret_exec)
{
	static const struct {
		const char *name;
		unsigned flag;
	} flags[] = {
		{"pty", EXEC_PTY},
		{"stdin_closed", EXEC_STDIN_CLOSED},
		{"kill_leftovers", EXEC_KILL_LEFTOVERS},
	};
	const cJSON *argv = cJSON_GetObjectItemCaseSensitive(request, "argv");
	const char *cwd = json_text(request, "cwd"), *command = json_text(request, "command");
	int r;

	words->call_id = json_text(request, "call_id");
	if (cJSON_IsArray(argv))
		r = parse_argv(argv, words);
	else
		r = command ? 0 : -EINVAL;
	if (r == 0)
		r = parse_environment(cJSON_GetObjectItemCaseSensitive(request, "env"), words);
	if (r < 0)
		return r;
	*ret_exec = (struct exec_request){
		.argv = words->argv,
		.command = command,
		.cwd = cwd ? cwd : "",
		.environment = (const char *const *)words->environment,
		.timeout_ms = (uint32_t)bounded_member(request, "timeout_ms", UINT32_MAX),
		.rows = (uint16_t)bounded_member(request, "rows", UINT16_MAX),
		.columns = (uint16_t)bounded_member(request, "columns", UINT16_MAX),
	};
	for (size_t i = 0; i < array_size(flags); i++)
		if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, flags[i].name)))
			ret_exec->flags |= flags[i].flag;
	return 0;
}

/* ---- Start and end ---------------------------------------------------------------------- */

static void reply_not_started(
	struct connection *connection, const struct exec_request *exec, int error)
{
	struct workspace *w = connection->server->mount->workspace;
	struct attributes attributes;
	struct op_context ctx;
	struct workspace_status status;
	int cwd_error;

	workspace_status(w, &status);
	if (error == -EIO && status.link != LINK_ONLINE) {
		control_reply_failure(connection, error,
			"\"%s\" is out of reach: 'isthmus status' says why",
			connection->server->mount->options->uri);
		return;
	}
	op_context_init(&ctx);
	if (error == -EOPNOTSUPP) {
		control_reply_failure(connection, error,
			"commands cannot run at \"%s\": it holds files only",
			connection->server->mount->options->uri);
		return;
	}
	cwd_error = workspace_getattr(&ctx, w, &OBJECT_AT(exec->cwd), &attributes);
	if (cwd_error == 0 && (attributes.mode & S_IFMT) != S_IFDIR)
		cwd_error = -ENOTDIR;
	if (cwd_error < 0)
		control_reply_failure(connection, -ENOTDIR,
			"the directory \"/%s\" of the workspace: %s", exec->cwd,
			strerror(-cwd_error));
	else
		control_reply_failure(connection, error, "\"%s\": %s",
			exec->argv ? exec->argv[0] : exec->command,
			error == -ENOENT   ? "no such command at the workspace"
			: error == -EACCES ? "may not be executed at the workspace (chmod +x?)"
					   : strerror(-error));
}

/* It ran, and how it ended is not known. */
static void reply_lost(struct connection *connection, int error)
{
	const char *uri = connection->server->mount->options->uri;

	if (error == -ECONNRESET)
		control_reply_failure(connection, error,
			"the session at \"%s\" ended while the command ran, and the command with "
			"it: "
			"somebody killed the helper there, or the machine restarted; see what the "
			"command has done, and run it again",
			uri);
	else if (error == -EIO)
		control_reply_failure(connection, error,
			"\"%s\" was out of reach for too long while the command ran; it may run "
			"there "
			"still: 'isthmus status' says how the link is",
			uri);
	else
		control_reply_failure(
			connection, error, "the command was given up: %s", strerror(-error));
}

/* The command line as it may be logged; the caller frees.  NULL: no memory. */
static char *line_to_log(const struct mount *m, const struct exec_request *exec, bool *redacted)
{
	cleanup_buffer struct buffer line = {0};
	const char *const *words = exec->argv;
	int r = 0;

	if (!m->options->log_secrets)
		r = words ? redact_words(&line, words, redacted)
			  : redact_line(&line, exec->command, redacted);
	else if (!words)
		r = buffer_append_string(&line, exec->command);
	else
		for (; r == 0 && *words; words++)
			r = buffer_printf(&line, "%s%s", line.size ? " " : "", *words);
	return r < 0 ? NULL : buffer_steal_string(&line);
}

static uint64_t log_command(const struct exec_run *run, const char *call_id,
	const struct exec_request *exec, const struct log_record *outcome)
{
	const struct mount *m = run->connection->server->mount;
	struct log_record record = *outcome;
	uint64_t elapsed_us = (clock_wall_ns() - record.start_ns) / 1000;
	bool redacted = false;
	cleanup_free char *line = line_to_log(m, exec, &redacted);

	record.op = "exec";
	record.flags |= LOG_IS_MUTATION | (redacted ? LOG_IS_REDACTED : 0);
	record.path = exec->cwd;
	record.pid = run->connection->peer.pid;
	record.uid = run->connection->peer.uid;
	record.call_id = call_id;
	record.latency_us = elapsed_us > UINT32_MAX ? UINT32_MAX : (uint32_t)elapsed_us;
	record.detail = line;
	record.changed = (const char *const *)run->changed.names;
	record.changed_truncated = run->changed.truncated;
	return mount_log_record(m->log, &record);
}

/* The first of them, as many as a frame holds for certain. */
static void add_changed(cJSON *reply, const struct changed_paths *changed)
{
	bool truncated = changed->truncated;
	size_t count = 0, bytes = 0;

	while (count < changed->count) {
		bytes += strlen(changed->names[count]) + 1;
		if (bytes > CHANGED_REPLY_MAX_BYTES)
			break;
		count++;
	}
	truncated = truncated || count < changed->count;
	cJSON_AddItemToObject(reply, "changed",
		count ? cJSON_CreateStringArray((const char *const *)changed->names, (int)count)
		      : cJSON_CreateArray());
	cJSON_AddBoolToObject(reply, "changed_truncated", truncated);
}

static void reply_exit(const struct exec_run *run, const struct exec_event *event,
	uint64_t first_seq, uint64_t last_seq)
{
	cJSON *reply = cJSON_CreateObject();
	cleanup_free char *text = NULL;

	cJSON_AddNumberToObject(reply, "exit_code", event->exit_code);
	cJSON_AddNumberToObject(reply, "signal", event->signal);
	cJSON_AddBoolToObject(reply, "timed_out", event->timed_out);
	add_changed(reply, &run->changed);
	cJSON_AddNumberToObject(reply, "first_seq", (double)first_seq);
	cJSON_AddNumberToObject(reply, "last_seq", (double)last_seq);
	text = cJSON_PrintUnformatted(reply);
	cJSON_Delete(reply);
	if (text)
		control_send(run->connection->fd, CONTROL_EXIT, text, strlen(text));
}

static void run_command(
	struct connection *connection, const char *call_id, const struct exec_request *exec)
{
	struct exec_run *run = calloc(1, sizeof(*run));
	struct log_record outcome = {.start_ns = clock_wall_ns()};
	struct mount *m = connection->server->mount;
	struct exec_event event = {.exit_code = -1, .signal = SIGKILL};
	uint64_t first_seq = mount_log_last_seq(m->log) + 1, last_seq;
	struct op_context ctx;
	bool started = false;
	pthread_t reader;

	if (!run) {
		control_reply_failure(connection, -ENOMEM, "out of memory");
		return;
	}
	op_context_init(&ctx);
	ctx.interrupted = output_interrupted;
	ctx.interrupted_data = run;
	run->connection = connection;
	enlist(run);
	mount_watch(m, exec->cwd);
	outcome.result = workspace_exec(&ctx, m->workspace, exec, &run->process);
	if (outcome.result == 0)
		outcome.result = -pthread_create(&reader, NULL, reader_run, run);
	if (outcome.result < 0) {
		reply_not_started(connection, exec, outcome.result);
	} else {
		started = true;
		outcome.result = pump_output(run, &ctx, &event);
		run->ended = true;
		shutdown(connection->fd, SHUT_RD);
		pthread_join(reader, NULL);
	}
	workspace_process_free(run->process);
	delist(run);

	if (outcome.result == 0) {
		outcome.flags = LOG_HAS_EXIT;
		outcome.exit_code = event.exit_code;
		outcome.signal = event.signal;
	}
	outcome.round_trips = ctx.served.round_trips;
	last_seq = log_command(run, call_id, exec, &outcome);
	if (outcome.result == 0)
		reply_exit(run, &event, first_seq, last_seq);
	else if (started)
		reply_lost(connection, outcome.result);
	changed_paths_done(&run->changed);
	buffer_done(&run->input);
	free(run);
}

void control_exec(struct connection *connection, const cJSON *request)
{
	cleanup_with(exec_words_done) struct exec_words words = {0};
	struct mount_log *log = connection->server->mount->log;
	struct exec_request exec;
	int r;

	r = parse(request, &words, &exec);
	if (r < 0)
		control_reply_failure(connection, r,
			"exec needs argv or command as strings, and env as names with values");
	else if (mount_log_refuses(log))
		control_reply_failure(connection, -EIO,
			"the mount log cannot be written, and the mount requires it: 'isthmus "
			"status' says why");
	else if (log && words.call_id &&
		 callers_call_check(mount_log_callers(log), words.call_id, connection->peer.pid) <
			 0)
		control_reply_failure(connection, -EPERM,
			"call \"%s\" is one of another process tree: run the command without it",
			words.call_id);
	else
		run_command(connection, words.call_id, &exec);
}
