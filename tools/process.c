#include "tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "ops/support/control.h"
#include "ops/support/path.h"
#include "tools/process_local.h"

/* Runs the command with bash where there is one. */
static const char shell_script[] = "if command -v bash >/dev/null 2>&1; then exec bash -c \"$1\"; "
				   "else exec /bin/sh -c \"$1\"; fi";

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Waits for one of the descriptors or the call's cancellation.  1, or 0 at `deadline` (0:
 * none), -ECANCELED, -errno. */
static int wait_for(struct tool_call *call, struct pollfd *fds, size_t count, long long deadline)
{
	for (;;) {
		long long left = deadline ? deadline - now_ms() : -1;
		int ready;

		if (deadline && left <= 0)
			return 0;
		ready = poll(fds, count, (int)left);
		if (tool_cancelled(call))
			return -ECANCELED;
		if (ready > 0)
			return 1;
		if (ready < 0 && errno != EINTR)
			return -errno;
	}
}

/* ---- Here ---------------------------------------------------------------------------- */

enum { BASIC_COUNT = 6 };

static const char *basic_value(const char *name, const struct passwd *user)
{
	const char *value = getenv(name);

	if (value && *value)
		return value;
	if (strcmp(name, "PATH") == 0)
		return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	if (strcmp(name, "LANG") == 0)
		return "C.UTF-8";
	if (!user)
		return NULL;
	if (strcmp(name, "HOME") == 0)
		return user->pw_dir;
	return strcmp(name, "SHELL") == 0 ? user->pw_shell : user->pw_name;
}

static void environment_free(char ***environment)
{
	for (char **at = *environment; at && *at; at++)
		free(*at);
	free(*environment);
}

static bool is_given(const char *const *more, const char *name)
{
	size_t length = strlen(name);

	for (; more && *more; more++)
		if (strncmp(*more, name, length) == 0 && (*more)[length] == '=')
			return true;
	return false;
}

/* What a command may know of our own environment, and what the request adds. */
static char **environment_make(const char *const *more)
{
	static const char *const basic[BASIC_COUNT] = {
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"};
	cleanup_with(environment_free) char **environment = NULL;
	size_t count = 0, used = 0;
	char memory[4096];
	struct passwd entry, *user = NULL;

	while (more && more[count])
		count++;
	environment = calloc(count + BASIC_COUNT + 1, sizeof(*environment));
	if (!environment)
		return NULL;
	getpwuid_r(geteuid(), &entry, memory, sizeof(memory), &user);
	for (size_t i = 0; i < BASIC_COUNT; i++) {
		const char *value = basic_value(basic[i], user);

		if (value && !is_given(more, basic[i]) &&
			asprintf(&environment[used++], "%s=%s", basic[i], value) < 0)
			return NULL;
	}
	for (size_t i = 0; i < count; i++) {
		environment[used] = strdup(more[i]);
		if (!environment[used++])
			return NULL;
	}
	return steal_ptr(&environment);
}

static int take_output(
	struct local_process *process, const struct process_request *request, bool is_stderr)
{
	int *fd = is_stderr ? &process->error_fd : &process->output_fd;
	char data[65536];
	ssize_t got = read(*fd, data, sizeof(data));

	if (got > 0)
		return request->output(request->user, is_stderr, data, (size_t)got);
	if (got < 0 && errno == EINTR)
		return 0;
	close(*fd);
	*fd = -1;
	return 0;
}

/* Until both pipes are at their end, which they are once every descendant is gone. */
static int pump_local(struct tool_call *call, const struct process_request *request,
	long long deadline, struct local_process *process, struct process_result *result)
{
	while (process->output_fd >= 0 || process->error_fd >= 0) {
		struct pollfd fds[3] = {{.fd = process->output_fd, .events = POLLIN},
			{.fd = process->error_fd, .events = POLLIN},
			{.fd = call->cancel_fd, .events = POLLIN}};
		int r = wait_for(call, fds, 3, result->timed_out ? 0 : deadline);

		if (r < 0)
			return r;
		if (r == 0) {
			result->timed_out = true;
			local_process_end(process);
			continue;
		}
		for (int i = 0; i < 2 && r >= 0; i++)
			if (fds[i].revents)
				r = take_output(process, request, i == 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The pipes may close long before the command ends. */
static int wait_local(struct tool_call *call, long long deadline, struct local_process *process,
	struct process_result *result)
{
	struct local_outcome outcome;
	int r;

	for (;;) {
		struct pollfd fds[2] = {{.fd = process->control_fd, .events = POLLIN},
			{.fd = call->cancel_fd, .events = POLLIN}};

		r = wait_for(call, fds, 2, result->timed_out ? 0 : deadline);
		if (r < 0)
			return r;
		if (r > 0)
			break;
		result->timed_out = true;
		local_process_end(process);
	}
	r = local_process_wait(process, &outcome);
	if (r < 0)
		return r;
	if (outcome.error)
		return outcome.error;
	result->exit_code = WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -1;
	result->signal = WIFSIGNALED(outcome.status) ? WTERMSIG(outcome.status) : 0;
	return 0;
}

static int run_here(struct tool_call *call, const struct process_request *request,
	struct process_result *result)
{
	const char *shell[] = {"/bin/sh", "-c", shell_script, "sh", request->command, NULL};
	const char *const *argv = request->argv ? request->argv : shell;
	cleanup_with(environment_free) char **environment = environment_make(request->environment);
	cleanup_fd int cwd =
		files_open(&call->session->root, request->directory, O_RDONLY | O_DIRECTORY, 0);
	long long deadline = request->timeout_ms ? now_ms() + request->timeout_ms : 0;
	struct local_process process;
	int r;

	if (!environment)
		return -ENOMEM;
	if (cwd < 0)
		return cwd;
	r = local_process_start((char *const *)argv, environment, cwd, &process);
	if (r < 0)
		return r;
	r = pump_local(call, request, deadline, &process, result);
	if (r == 0)
		r = wait_local(call, deadline, &process, result);
	local_process_done(&process);
	return r;
}

/* ---- At the workspace ------------------------------------------------------------------ */

static char *exec_request_json(struct tool_call *call, const struct process_request *request)
{
	const char *shell[] = {"/bin/sh", "-c", shell_script, "sh", request->command, NULL};
	const char *const *argv = request->argv ? request->argv : shell;
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
	cJSON_AddTrueToObject(json, "stdin_closed");
	cJSON_AddTrueToObject(json, "kill_leftovers");
	cJSON_AddStringToObject(json, "call_id", call->call_id);
	if (cwd)
		text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	return text;
}

static void take_exit(const char *text, struct process_result *result)
{
	cJSON *json = cJSON_Parse(text);

	result->exit_code =
		(int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, "exit_code"));
	if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(json, "signal")))
		result->signal = cJSON_GetObjectItemCaseSensitive(json, "signal")->valueint;
	result->timed_out = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "timed_out"));
	result->changed_truncated =
		cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "changed_truncated"));
	result->changed = cJSON_DetachItemFromObjectCaseSensitive(json, "changed");
	cJSON_Delete(json);
}

/* What the mount says went wrong, in its own words. */
static int take_failure(struct tool_call *call, const char *text)
{
	cJSON *json = cJSON_Parse(text);
	const char *message =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "message"));
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "error"));
	int error = name && strcmp(name, "ENOENT") == 0       ? -ENOENT
		    : name && strcmp(name, "EACCES") == 0     ? -EACCES
		    : name && strcmp(name, "EOPNOTSUPP") == 0 ? -EOPNOTSUPP
		    : name && strcmp(name, "ENOTCONN") == 0   ? -ENOTCONN
							      : -EIO;

	if (message && error != -ENOENT) {
		const char *reason;

		tool_fail(call, tool_error_from_errno(error, &reason), NULL, "%s", message);
	}
	cJSON_Delete(json);
	return error;
}

static int run_at_workspace(struct tool_call *call, const struct process_request *request,
	struct process_result *result)
{
	cleanup_fd int fd = control_connect(call->session->control_socket);
	cleanup_free char *json = exec_request_json(call, request);
	struct buffer payload cleanup_buffer = {0};
	int r;

	if (fd < 0)
		return fd;
	if (!json)
		return -ENOMEM;
	r = control_send(fd, CONTROL_JSON, json, strlen(json));
	while (r >= 0) {
		struct pollfd fds[2] = {
			{.fd = fd, .events = POLLIN}, {.fd = call->cancel_fd, .events = POLLIN}};
		enum control_frame_type type;

		r = wait_for(call, fds, 2, 0);
		if (r < 0)
			break;
		r = control_receive(fd, &type, &payload);
		if (r < 0)
			break;
		if (type == CONTROL_EXIT) {
			take_exit((const char *)payload.data, result);
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

int process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result)
{
	struct process_result result = {0};
	int r = call->session->control_socket ? run_at_workspace(call, request, &result)
					      : run_here(call, request, &result);

	if (r == 0)
		*ret_result = result;
	else
		cJSON_Delete(result.changed);
	return r;
}
