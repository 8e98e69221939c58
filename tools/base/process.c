#include "tools/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ops/support/control.h"
#include "ops/support/exec_client.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/process.h"
#include "ops/support/thread.h"
#include "tools/base/tool.h"

/* ---- Input -------------------------------------------------------------------------------- */

/* A thread that copies input to the command until the input or the command ends. */
struct feeder {
	int from, stop;          /* the input; an eventfd that ends the thread */
	int socket;              /* to the mount's daemon; -1: the command runs here */
	struct command *command; /* on this machine */
	struct command_interrupt interrupt;
	pthread_t thread;
	bool runs;
};

static int feed_piece(struct feeder *feeder, const void *data, size_t size)
{
	const uint8_t *at = data;

	if (feeder->socket >= 0)
		return control_send(
			feeder->socket, size ? CONTROL_STDIN : CONTROL_STDIN_EOF, data, size);
	if (!size)
		return command_close_stdin(feeder->command);
	while (size > 0) {
		ssize_t done = command_write(feeder->command, feeder->interrupt, at, size);

		if (done < 0)
			return (int)done;
		at += done;
		size -= (size_t)done;
	}
	return 0;
}

static void *feed(void *user)
{
	struct feeder *feeder = user;
	struct pollfd fds[2] = {
		{.fd = feeder->from, .events = POLLIN}, {.fd = feeder->stop, .events = POLLIN}};
	char data[16384];
	ssize_t got;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno == EINTR)
			continue;
		if (fds[1].revents)
			return NULL;
		got = read(feeder->from, data, sizeof(data));
		if (feed_piece(feeder, data, got > 0 ? (size_t)got : 0) < 0 || got <= 0)
			return NULL;
	}
}

static int feeder_start(struct feeder *feeder, const struct process_request *request)
{
	int r;

	if (!request->has_input)
		return 0;
	feeder->from = request->input;
	feeder->stop = eventfd(0, EFD_CLOEXEC);
	if (feeder->stop < 0)
		return -errno;
	r = thread_start(&feeder->thread, "command-input", 0, feed, feeder);
	feeder->runs = r == 0;
	return r;
}

static void feeder_end(struct feeder *feeder)
{
	const uint64_t one = 1;

	if (feeder->runs) {
		/* The thread may be blocked in a write to the daemon. */
		if (feeder->socket >= 0)
			shutdown(feeder->socket, SHUT_RDWR);
		(void)!write(feeder->stop, &one, sizeof(one));
		pthread_join(feeder->thread, NULL);
	}
	if (feeder->stop >= 0)
		close(feeder->stop);
}

/* ---- On this machine ------------------------------------------------------------------ */

static const char *const basic_names[] = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"};

/* The value of the first "NAME=value" with that name; NULL: there is none. */
static const char *find_value(const char *const *pairs, const char *name)
{
	size_t length = strlen(name);

	for (; pairs && *pairs; pairs++)
		if (strncmp(*pairs, name, length) == 0 && (*pairs)[length] == '=')
			return *pairs + length + 1;
	return NULL;
}

/* Variables that set safe.bareRepository=explicit: git must not run commands from the settings of a
 * directory that merely looks like a bare repository. */
static const char *const git_names[] = {"GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"};

static int make_git_settings(const char *const *more, char *settings[3])
{
	const char *before = find_value(more, git_names[0]);
	unsigned long count = before ? strtoul(before, NULL, 10) : 0;

	if (asprintf(&settings[0], "%s=%lu", git_names[0], count + 1) < 0)
		settings[0] = NULL;
	if (asprintf(&settings[1], "%s%lu=safe.bareRepository", git_names[1], count) < 0)
		settings[1] = NULL;
	if (asprintf(&settings[2], "%s%lu=explicit", git_names[2], count) < 0)
		settings[2] = NULL;
	return settings[0] && settings[1] && settings[2] ? 0 : -ENOMEM;
}

/* The variables of the request plus the settings for git.  The strings are borrowed.  NULL: no
 * memory. */
static const char **environment_add(const char *const *more, char *const settings[3])
{
	size_t count = 0, used = 0;
	const char **list;

	while (more && more[count])
		count++;
	list = calloc(count + 4, sizeof(*list));
	for (size_t i = 0; list && i < count; i++)
		if (strncmp(more[i], "GIT_CONFIG_COUNT=", 17) != 0)
			list[used++] = more[i];
	for (size_t i = 0; list && i < 3; i++)
		list[used++] = settings[i];
	return list;
}

/* Those plus the variables in basic_names of this process.  The strings are borrowed.  NULL: no
 * memory. */
static const char **environment_make(const char *const *more)
{
	size_t count = 0, used = 0;
	const char **environment;

	while (more[count])
		count++;
	environment = calloc(count + array_size(basic_names) + 1, sizeof(*environment));
	if (!environment)
		return NULL;
	for (size_t i = 0; i < array_size(basic_names); i++) {
		const char *value = find_value((const char *const *)environ, basic_names[i]);

		if (value && *value && !find_value(more, basic_names[i]))
			environment[used++] = value - strlen(basic_names[i]) - 1;
	}
	memcpy(environment + used, more, count * sizeof(*more));
	return environment;
}

static bool is_cancelled(void *call)
{
	return tool_cancelled(call);
}

/* Passes the output on until the command and all processes that it left behind have ended. */
static int take_events(struct tool_call *call, const struct process_request *request,
	struct command *command, struct process_result *result)
{
	struct command_interrupt interrupt = {is_cancelled, call};
	struct exec_event event;
	char data[65536];

	for (;;) {
		int r = command_next(command, interrupt, data, sizeof(data), &event);

		if (r == 0 && event.type != EXEC_EXIT)
			r = request->output(
				request->user, event.type == EXEC_STDERR, data, event.size);
		if (r < 0)
			return r == -EINTR ? -ECANCELED : r;
		if (event.type != EXEC_EXIT)
			continue;
		result->exit_code = event.exit_code;
		result->signal = event.signal;
		result->timed_out = event.timed_out;
		return 0;
	}
}

static int run_here(struct tool_call *call, const struct process_request *request,
	const char *const *argv, struct process_result *result)
{
	cleanup_free const char **environment = environment_make(request->environment);
	cleanup_fd int cwd =
		files_open(&call->session->root, request->directory, O_RDONLY | O_DIRECTORY, 0);
	struct exec_request exec = {
		.argv = argv,
		.environment = environment,
		.timeout_ms = request->timeout_ms,
		.flags = EXEC_KILL_LEFTOVERS | (request->has_input ? 0u : EXEC_STDIN_CLOSED) |
			 (request->merged ? EXEC_MERGED : 0u),
	};
	struct feeder feeder = {.stop = -1, .socket = -1, .interrupt = {is_cancelled, call}};
	struct command *command;
	int r;

	if (!environment)
		return -ENOMEM;
	if (cwd < 0)
		return cwd;
	r = command_start(&exec, cwd, &command);
	if (r < 0)
		return r;
	feeder.command = command;
	r = feeder_start(&feeder, request);
	if (r == 0)
		r = take_events(call, request, command, result);
	feeder_end(&feeder);
	command_free(command);
	return r;
}

/* ---- At the workspace ------------------------------------------------------------------ */

static char *exec_request_json(
	struct tool_call *call, const struct process_request *request, const char *const *argv)
{
	cleanup_free char *cwd = path_join(call->session->workspace_path, request->directory);
	cJSON *json = cJSON_CreateObject(), *list, *environment;
	char *text = NULL;

	cJSON_AddStringToObject(json, "request", "exec");
	list = cJSON_AddArrayToObject(json, "argv");
	for (size_t i = 0; argv[i]; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(argv[i]));
	cJSON_AddStringToObject(json, "cwd", cwd ? cwd : "");
	environment = cJSON_AddObjectToObject(json, "env");
	for (size_t i = 0; request->environment && request->environment[i]; i++) {
		const char *entry = request->environment[i];
		cleanup_free char *name = strndup(entry, strcspn(entry, "="));

		if (name)
			cJSON_AddStringToObject(environment, name, entry + strlen(name) + 1);
	}
	cJSON_AddNumberToObject(json, "timeout_ms", request->timeout_ms);
	cJSON_AddBoolToObject(json, "stdin_closed", !request->has_input);
	cJSON_AddTrueToObject(json, "kill_leftovers");
	cJSON_AddBoolToObject(json, "merged", request->merged);
	exec_client_add_umask(json);
	cJSON_AddStringToObject(json, "call_id", call->call_id);
	cJSON_AddBoolToObject(json, "ends_call", request->ends_call);
	if (cwd)
		text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	return text;
}

static void take_exit(struct tool_call *call, const char *text, struct process_result *result)
{
	cJSON *json = cJSON_Parse(text);

	result->exit_code = (int)cJSON_GetNumberValue(json_member(json, "exit_code"));
	if (cJSON_IsNumber(json_member(json, "signal")))
		result->signal = json_member(json, "signal")->valueint;
	result->timed_out = json_is_true(json, "timed_out");
	result->changed_truncated = json_is_true(json, "changed_truncated");
	result->changed = cJSON_DetachItemFromObjectCaseSensitive(json, "changed");
	if (json_text(json, "path")) {
		free(call->search_path);
		call->search_path = strdup(json_text(json, "path"));
	}
	call->mount_ended = json_is_true(json, "call_ended");
	if (call->mount_ended)
		call->last_seq = (uint64_t)json_integer(json, "last_seq");
	cJSON_Delete(json);
}

/* Records the error message of the mount. */
static int take_failure(struct tool_call *call, const char *text)
{
	cJSON *json = cJSON_Parse(text);
	const char *message = json_text(json, "message");
	const char *name = json_text(json, "error");
	int error = name && strcmp(name, "ENOENT") == 0       ? -ENOENT
		    : name && strcmp(name, "EACCES") == 0     ? -EACCES
		    : name && strcmp(name, "ENOTDIR") == 0    ? -ENOTDIR
		    : name && strcmp(name, "EOPNOTSUPP") == 0 ? -EOPNOTSUPP
		    : name && strcmp(name, "ENOTCONN") == 0   ? -ENOTCONN
							      : -EIO;

	if (message && error != -ENOENT) {
		const char *reason;

		tool_fail(call, tool_error_from_errno(error, &reason), NULL, "%s.", message);
	}
	cJSON_Delete(json);
	return error;
}

/* Waits for a frame of the daemon.  0; -ECANCELED: the call was cancelled; -errno. */
static int await_frame(struct tool_call *call, int fd)
{
	struct pollfd fds[2] = {
		{.fd = fd, .events = POLLIN}, {.fd = call->cancel_fd, .events = POLLIN}};

	for (;;) {
		int ready = poll(fds, 2, -1);

		if (tool_cancelled(call))
			return -ECANCELED;
		if (ready > 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

static int check_directory(struct tool_call *call, const char *directory)
{
	struct stat status;
	int r = files_stat(&call->session->root, directory, &status);

	return r == 0 && !S_ISDIR(status.st_mode) ? -ENOTDIR : r;
}

static int take_frames(struct tool_call *call, const struct process_request *request, int fd,
	struct process_result *result)
{
	struct buffer payload cleanup_buffer = {0};
	int r = 0;

	while (r >= 0) {
		enum control_frame_type type;

		r = await_frame(call, fd);
		if (r < 0)
			break;
		r = control_receive(fd, &type, &payload);
		if (r < 0)
			break;
		if (type == CONTROL_EXIT) {
			take_exit(call, (const char *)payload.data, result);
			return 0;
		}
		if (type == CONTROL_FAILURE)
			return take_failure(call, (const char *)payload.data);
		if (type == CONTROL_STDOUT || type == CONTROL_STDERR)
			r = request->output(
				request->user, type == CONTROL_STDERR, payload.data, payload.size);
	}
	return r;
}

static int run_at_workspace(struct tool_call *call, const struct process_request *request,
	const char *const *argv, struct process_result *result)
{
	cleanup_fd int fd = control_connect(call->session->control_socket);
	cleanup_free char *json = exec_request_json(call, request, argv);
	struct feeder feeder = {.stop = -1, .socket = fd};
	int r = check_directory(call, request->directory);

	if (r < 0 || fd < 0)
		return r < 0 ? r : fd;
	if (!json)
		return -ENOMEM;
	r = control_send(fd, CONTROL_JSON, json, strlen(json));
	if (r == 0)
		r = feeder_start(&feeder, request);
	if (r == 0)
		r = take_frames(call, request, fd, result);
	feeder_end(&feeder);
	return r;
}

static int run_argv(struct tool_call *call, const struct process_request *request,
	const char *const *argv, struct process_result *ret_result)
{
	struct process_result result = {0};
	bool is_here = request->is_here || !call->session->control_socket;
	int r = is_here ? run_here(call, request, argv, &result)
			: run_at_workspace(call, request, argv, &result);

	if (r == 0)
		*ret_result = result;
	else
		cJSON_Delete(result.changed);
	return r;
}

/* Runs "bash -c", not its full path, so that the mount's log shows the command without more. */
static int run_shell(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result)
{
	atomic_bool *no_bash = &call->session->no_bash;
	const char *shell[] = {"/bin/bash", "-c", request->command, NULL};
	int r = -ENOENT;

	if (!atomic_load(no_bash)) {
		r = run_argv(call, request, shell, ret_result);
		if (r != -ENOENT || check_directory(call, request->directory) < 0)
			return r;
		atomic_store(no_bash, true);
	}
	if (!request->any_shell)
		return -ENOEXEC;
	shell[0] = "/bin/sh";
	return run_argv(call, request, shell, ret_result);
}

int process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result)
{
	char *settings[3] = {NULL};
	int r = make_git_settings(request->environment, settings);
	cleanup_free const char **environment =
		r < 0 ? NULL : environment_add(request->environment, settings);
	struct process_request whole = *request;

	whole.environment = environment;
	if (!environment)
		r = -ENOMEM;
	else if (request->argv)
		r = run_argv(call, &whole, request->argv, ret_result);
	else
		r = run_shell(call, &whole, ret_result);
	for (size_t i = 0; i < array_size(settings); i++)
		free(settings[i]);
	return r;
}
