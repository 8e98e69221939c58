#include "fs/control/control_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/edge/edge.h"
#include "fs/log/callers.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/redact.h"
#include "ops/workspace.h"

enum {
	SHELL_NOT_FOUND = 127,
	ASK_WAIT_MS = 5000,
	ASK_MAX_BYTES = 64 << 10,
	CHANGED_REPLY_MAX_BYTES = 128 << 10, /* JSON takes up to 6 times that, which fits a frame */
};

/* ---- What changed meanwhile ------------------------------------------------------ */

bool control_exec_note_change(
	struct control_server *server, const char *path, uint32_t own_age_ms, uint64_t at)
{
	int64_t now_ms = clock_now_ms();
	bool taken;

	pthread_mutex_lock(&server->lock);
	for (struct exec_run *run = server->commands; run; run = run->next) {
		if (!path)
			run->changed.truncated = true;
		else if (own_age_ms >= now_ms - run->started_ms)
			changed_paths_add(&run->changed, path, at);
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

/* ---- The request ---------------------------------------------------------------------- */

struct exec_words {
	const char **argv;
	char **environment;
	const char *call_id;
	bool ends_call;
	bool cwd_is_absolute; /* as the person gave it */
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
	cJSON_ArrayForEach(item, list) {
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
	cJSON_ArrayForEach(item, pairs) {
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
		{"tell_ports", EXEC_TELL_PORTS},
		{"merged", EXEC_MERGED},
	};
	const cJSON *argv = cJSON_GetObjectItemCaseSensitive(request, "argv");
	const char *cwd = json_text(request, "cwd"), *command = json_text(request, "command");
	int r;

	words->call_id = json_text(request, "call_id");
	words->ends_call = words->call_id && json_is_true(request, "ends_call");
	words->cwd_is_absolute = json_is_true(request, "cwd_is_absolute");
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
	ret_exec->has_umask = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(request, "umask"));
	ret_exec->umask = (uint16_t)bounded_member(request, "umask", 0777);
	for (size_t i = 0; i < array_size(flags); i++)
		if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, flags[i].name)))
			ret_exec->flags |= flags[i].flag;
	return 0;
}

/* ---- What only the workspace knows ---------------------------------------------------- */

static bool is_late(struct op_context *ctx)
{
	return clock_now_ms() >= *(const int64_t *)ctx->interrupted_data;
}

/* What the script prints there, where the command of `exec` would have run; the caller frees.
 * NULL: it cannot be run, or says nothing within 5 s. */
static char *ask_there(
	struct connection *connection, const struct exec_request *exec, const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	const struct exec_request question = {.argv = argv,
		.cwd = "",
		.environment = exec->environment,
		.timeout_ms = ASK_WAIT_MS,
		.flags = EXEC_STDIN_CLOSED | (exec->flags & EXEC_LOGIN)};
	cleanup_buffer struct buffer said = {.limit_bytes = ASK_MAX_BYTES};
	struct workspace *w = connection->server->mount->workspace;
	struct exec_event event = {0};
	struct process *process;
	struct op_context ctx;
	int64_t until_ms = clock_now_ms() + ASK_WAIT_MS;
	char data[4096];
	int r;

	op_context_init(&ctx);
	ctx.interrupted = is_late;
	ctx.interrupted_data = &until_ms;
	r = workspace_exec(&ctx, w, &question, &process);
	if (r < 0)
		return NULL;
	while (r == 0 && event.type != EXEC_EXIT) {
		r = workspace_process_next(&ctx, process, data, sizeof(data), &event);
		if (r == 0 && event.type == EXEC_STDOUT)
			r = buffer_append(&said, data, event.size);
	}
	workspace_process_free(process);
	return r == 0 && said.size ? buffer_steal_string(&said) : NULL;
}

/* Where a command is looked for. */
static char *search_path(struct connection *connection, const struct exec_request *exec)
{
	return ask_there(connection, exec, "printf %s \"$PATH\"");
}

/* A person may give the directory by the path that it has at the workspace, as pwd(1) prints it
 * there.  -ENOENT: it is none below the root. */
static int strip_root(struct connection *connection, struct exec_request *exec)
{
	cleanup_free char *root = ask_there(connection, exec, "printf %s \"$(pwd -P)\"");

	if (!root || *root != '/' || !path_is_within(exec->cwd, root + 1))
		return -ENOENT;
	exec->cwd += strlen(root + 1);
	exec->cwd += *exec->cwd == '/';
	return 0;
}

/* ---- Start and end ---------------------------------------------------------------------- */

static void reply_not_found(struct connection *connection, const struct exec_request *exec)
{
	const char *name = exec->argv ? exec->argv[0] : "/bin/sh";
	cleanup_free char *path = strchr(name, '/') ? NULL : search_path(connection, exec);

	if (!path)
		control_reply_failure(
			connection, -ENOENT, "\"%s\": no such command at the workspace", name);
	else
		control_reply_failure(connection, -ENOENT,
			"\"%s\": no such command at the workspace, where PATH is %s%s", name, path,
			exec->flags & EXEC_LOGIN ? ""
						 : "; that of a login shell may have more (mount "
						   "with -o env=login)");
}

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
		control_reply_no_reach(connection, "is out of reach");
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
	else if (error == -ENOENT)
		reply_not_found(connection, exec);
	else if (error == -EBADMSG && (exec->flags & EXEC_LOGIN))
		control_reply_failure(connection, error,
			"the login shell at the workspace gives no environment (-o env=login): "
			"what it runs first (.profile) must come to an end within 10 s, and it "
			"must know the options -l and -c");
	else
		control_reply_failure(connection, error, "\"%s\": %s",
			exec->argv ? exec->argv[0] : exec->command,
			error == -EACCES ? "may not be executed at the workspace (chmod +x?)"
					 : strerror(-error));
}

/* The command ran, but its exit status is unknown. */
static void reply_lost(struct connection *connection, int error)
{
	const char *uri = connection->server->mount->options->uri;

	if (error == -ECONNRESET)
		control_reply_failure(connection, error,
			"the session at \"%s\" ended while the command ran, and the command with "
			"it: "
			"the helper there was killed, or the machine restarted; see what the "
			"command has done, and run it again",
			uri);
	else if (error == -EIO)
		control_reply_no_reach(connection,
			"was out of reach for too long while the command ran, which may run there "
			"still");
	else
		control_reply_failure(
			connection, error, "gave up the command: %s", strerror(-error));
}

/* The command line with secrets redacted, for the log; the caller frees it.  NULL: no memory. */
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

/* Adds as many of the first paths as certainly fit into a frame. */
static void add_changed(cJSON *reply, const struct changed_paths *changed)
{
	bool truncated = changed->truncated;
	size_t count = 0, bytes = 0;

	while (count < changed->known.count) {
		bytes += strlen(changed->names[count]) + 1;
		if (bytes > CHANGED_REPLY_MAX_BYTES)
			break;
		count++;
	}
	truncated = truncated || count < changed->known.count;
	cJSON_AddItemToObject(reply, "changed",
		count ? cJSON_CreateStringArray((const char *const *)changed->names, (int)count)
		      : cJSON_CreateArray());
	cJSON_AddBoolToObject(reply, "changed_truncated", truncated);
}

/* The call's tool does nothing else on the mount: it is spared a request. */
static bool end_call(const struct exec_run *run, const char *call_id, uint64_t *ret_last_seq)
{
	const struct connection *connection = run->connection;
	struct callers *callers = mount_log_callers(connection->server->mount->log);
	struct tool_call *call;

	if (!callers || callers_call_end(callers, call_id, connection->peer.pid, &call) < 0)
		return false;
	*ret_last_seq = atomic_load(&call->last_seq);
	tool_call_unref(call);
	return true;
}

static void reply_exit(const struct exec_run *run, const struct exec_request *exec,
	const struct exec_event *event, uint64_t first_seq, uint64_t last_seq, bool call_ended)
{
	cJSON *reply = cJSON_CreateObject();
	cleanup_free char *path =
		event->exit_code == SHELL_NOT_FOUND ? search_path(run->connection, exec) : NULL;
	cleanup_free char *text = NULL;

	cJSON_AddNumberToObject(reply, "exit_code", event->exit_code);
	cJSON_AddNumberToObject(reply, "signal", event->signal);
	cJSON_AddBoolToObject(reply, "timed_out", event->timed_out);
	add_changed(reply, &run->changed);
	cJSON_AddNumberToObject(reply, "first_seq", (double)first_seq);
	cJSON_AddNumberToObject(reply, "last_seq", (double)last_seq);
	if (call_ended)
		cJSON_AddTrueToObject(reply, "call_ended");
	if (path)
		cJSON_AddStringToObject(reply, "path", path);
	text = cJSON_PrintUnformatted(reply);
	cJSON_Delete(reply);
	if (text)
		control_send(run->connection->fd, CONTROL_EXIT, text, strlen(text));
}

static void run_command(
	struct connection *connection, const struct exec_words *words, struct exec_request *exec)
{
	struct exec_run *run = calloc(1, sizeof(*run));
	struct log_record outcome = {.start_ns = clock_wall_ns()};
	struct mount *m = connection->server->mount;
	struct exec_event event = {.exit_code = -1, .signal = SIGKILL};
	uint64_t first_seq = mount_log_last_seq(m->log) + 1, last_seq;
	struct op_context ctx;
	bool started, call_ended;

	if (!run) {
		control_reply_failure(connection, -ENOMEM, "out of memory");
		return;
	}
	op_context_init(&ctx);
	run->connection = connection;
	run->started_ms = clock_now_ms();
	run->start_ns = words->call_id ? 0 : outcome.start_ns;
	enlist(run);
	mount_watch(m, exec->cwd);
	outcome.result = control_run(run, exec, &ctx, &started, &event);
	if (outcome.result == -ENOENT && words->cwd_is_absolute && *exec->cwd &&
		strip_root(connection, exec) == 0)
		outcome.result = control_run(run, exec, &ctx, &started, &event);
	if (outcome.result < 0 && !started)
		reply_not_started(connection, exec, outcome.result);
	if (outcome.result == 0)
		mount_drain_changes(m);
	delist(run);
	changed_paths_forget(&run->changed, run->since);

	if (outcome.result == 0) {
		outcome.flags = LOG_HAS_EXIT;
		outcome.exit_code = event.exit_code;
		outcome.signal = event.signal;
	}
	outcome.round_trips = ctx.served.round_trips;
	last_seq = log_command(run, words->call_id, exec, &outcome);
	call_ended =
		words->ends_call && outcome.result == 0 && end_call(run, words->call_id, &last_seq);
	if (outcome.result == 0)
		reply_exit(run, exec, &event, first_seq, last_seq, call_ended);
	else if (started)
		reply_lost(connection, outcome.result);
	control_run_done(run);
	free(run);
}

/* False if the workspace is on this machine, whose ports need no forward. */
static bool ports_are_elsewhere(const struct mount *m)
{
	struct workspace_status status;

	workspace_status(m->workspace, &status);
	return status.capabilities & WORKSPACE_IS_REMOTE;
}

void control_exec(struct connection *connection, const cJSON *request)
{
	cleanup_with(exec_words_done) struct exec_words words = {0};
	struct mount_log *log = connection->server->mount->log;
	struct exec_request exec;
	int r;

	r = parse(request, &words, &exec);
	if (r == 0 && connection->server->mount->options->env_login)
		exec.flags |= EXEC_LOGIN;
	if (r == 0 && !ports_are_elsewhere(connection->server->mount))
		exec.flags &= ~(unsigned)EXEC_TELL_PORTS;
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
		run_command(connection, &words, &exec);
}
