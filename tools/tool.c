#include "tools/tool.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#include "ops/support/clock.h"
#include "ops/support/control.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "tools/base/call_log.h"
#include "tools/base/jobs.h"
#include "tools/base/output_file.h"
#include "tools/base/reach.h"
#include "tools/base/schema.h"
#include "tools/permission/permission.h"

/* ---- Session and call ------------------------------------------------------- */

int tool_session_open(const char *directory, struct tool_session *ret_session)
{
	struct tool_session session = {0};
	int r = files_root_open(directory, &session.root);

	if (r < 0)
		return r;
	/* Not on a mount is fine; a mount whose daemon is dead has failed above. */
	control_find(session.root.path, &session.control_socket, &session.mount_point,
		&session.workspace_path);
	session.jobs = jobs_new();
	*ret_session = session;
	return session.jobs ? 0 : -ENOMEM;
}

void tool_session_close(struct tool_session *session)
{
	jobs_free(session->jobs);
	files_root_close(&session->root);
	permissions_free(session->permissions);
	free(session->control_socket);
	free(session->mount_point);
	free(session->workspace_path);
	free(session->problem);
}

static void make_call_id(char id[64])
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	snprintf(id, 64, "call-%016llx", (unsigned long long)random);
}

struct tool_call *tool_call_new(struct tool_session *session, const struct tool *tool,
	cJSON *arguments, const char *call_id)
{
	struct tool_call *call = calloc(1, sizeof(*call));

	if (!arguments)
		arguments = cJSON_CreateObject();
	if (!call || !arguments) {
		free(call);
		cJSON_Delete(arguments);
		return NULL;
	}
	call->tool = tool;
	call->session = session;
	call->arguments = arguments;
	call->data = cJSON_CreateObject();
	call->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (call_id)
		snprintf(call->call_id, sizeof(call->call_id), "%s", call_id);
	else
		make_call_id(call->call_id);
	if (!call->data || call->cancel_fd < 0) {
		tool_call_free(call);
		return NULL;
	}
	return call;
}

void tool_call_free(struct tool_call *call)
{
	if (!call)
		return;
	if (call->state_free)
		call->state_free(call->state);
	cJSON_Delete(call->arguments);
	cJSON_Delete(call->data);
	free(call->conversation);
	buffer_done(&call->text);
	free(call->remark);
	free(call->user);
	buffer_done(&call->notes);
	buffer_done(&call->image.bytes);
	free(call->image.mime_type);
	free(call->message);
	free(call->ai_message);
	if (call->cancel_fd >= 0)
		close(call->cancel_fd);
	free(call);
}

void tool_cancel(struct tool_call *call)
{
	const uint64_t one = 1;

	atomic_store(&call->cancelled, true);
	(void)!write(call->cancel_fd, &one, sizeof(one));
}

/* ---- Failing ------------------------------------------------------------------ */

/* What failed because the workspace is out of reach says so. */
static enum tool_error_code see_reach(
	const struct tool_session *session, enum tool_error_code code, struct buffer *message)
{
	cleanup_free char *problem = NULL;

	if ((code != TOOL_IO_ERROR && code != TOOL_NOT_CONNECTED) || !session->control_socket)
		return code;
	problem = reach_problem(session->control_socket);
	if (!problem)
		return code;
	buffer_printf(message, " %s", problem);
	return TOOL_NOT_CONNECTED;
}

static int fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	struct buffer *message)
{
	const struct tool_error_words *words;
	struct buffer clean cleanup_buffer = {0};

	if (call->code != TOOL_OK)
		return -1;
	call->code = code = see_reach(call->session, code, message);
	words = tool_error_words(code);
	call->recoverable = words->recoverable;
	utf8_append_clean(&clean, message->data, message->size);
	call->message = buffer_steal_string(&clean);
	if (asprintf(&call->ai_message, "%s %s", call->message ? call->message : words->name,
		    next_step ? next_step : words->next_step) < 0)
		call->ai_message = NULL;
	return -1;
}

int tool_fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	const char *format, ...)
{
	struct buffer message cleanup_buffer = {0};
	va_list arguments;

	va_start(arguments, format);
	buffer_vprintf(&message, format, arguments);
	va_end(arguments);
	return fail(call, code, next_step, &message);
}

static bool may_name(void *user, const char *path)
{
	return permission_filter_shows(user, path);
}

/* Names that rules keep from the call are not among them. */
static char *near_names(const struct tool_call *call, const char *path)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct permission_filter filter cleanup_filter = {0};

	if (!parent)
		return NULL;
	permission_filter_init(&filter, call, PERMISSION_READS, parent);
	return files_near_names(&call->session->root, path, may_name, &filter);
}

int tool_fail_errno(struct tool_call *call, int error, const char *action, const char *path)
{
	struct buffer message cleanup_buffer = {0};
	cleanup_free char *near = NULL;
	const char *reason;
	enum tool_error_code code = tool_error_from_errno(error, &reason);

	if (code == TOOL_NOT_FOUND && path)
		near = near_names(call, path);
	if (path)
		buffer_printf(
			&message, "Cannot %s \"%s\": %s.", action, *path ? path : ".", reason);
	else
		buffer_printf(&message, "Cannot %s: %s.", action, reason);
	if (near)
		buffer_printf(&message, " Names like it: %s.", near);
	return fail(call, code, NULL, &message);
}

int tool_check_reach(struct tool_call *call, const char *action, const char *path)
{
	const char *socket = call->session->control_socket;
	cleanup_free char *problem = socket ? reach_problem(socket) : NULL;

	return problem ? tool_fail_errno(call, -ENOTCONN, action, path) : 0;
}

/* ---- Output and arguments -------------------------------------------------------- */

void tool_update(struct tool_call *call, const char *text, size_t size)
{
	if (call->sink.update && size)
		call->sink.update(call->sink.user, text, size);
}

int tool_text(struct tool_call *call, const char *format, ...)
{
	struct buffer piece cleanup_buffer = {0};
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = buffer_vprintf(&piece, format, arguments);
	va_end(arguments);
	if (r == 0)
		r = utf8_append_clean(&call->text, piece.data, piece.size);
	return r < 0 ? tool_fail_errno(call, r, "keep the output", NULL) : 0;
}

static const cJSON *argument(const struct tool_call *call, const char *name)
{
	return json_member(call->arguments, name);
}

const char *tool_string(const struct tool_call *call, const char *name)
{
	return cJSON_GetStringValue(argument(call, name));
}

double tool_number(const struct tool_call *call, const char *name, double fallback)
{
	const cJSON *item = argument(call, name);

	return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

int64_t tool_integer(const struct tool_call *call, const char *name, int64_t fallback)
{
	return (int64_t)tool_number(call, name, (double)fallback);
}

bool tool_flag(const struct tool_call *call, const char *name)
{
	return cJSON_IsTrue(argument(call, name));
}

int tool_path(struct tool_call *call, const char *name, char **ret_path)
{
	const char *given = tool_string(call, name);
	int r = files_resolve(&call->session->root, given ? given : "", ret_path);

	if (r == -EXDEV)
		return tool_fail(call, TOOL_PATH_OUTSIDE_ROOT, NULL,
			"\"%s\" is outside the root directory \"%s\".", given,
			call->session->root.path);
	return r < 0 ? tool_fail_errno(call, r, "use", given) : 0;
}

/* ---- Running ------------------------------------------------------------------------ */

static int check_arguments(struct tool_call *call)
{
	const cJSON *schema = registry_input_schema(call->tool);
	struct buffer problem cleanup_buffer = {0};
	int r = schema_check(schema, call->arguments, &problem);

	if (r < 0)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL, "%s: %.*s.", call->tool->name,
			(int)problem.size, (const char *)problem.data);
	if (!call->tool->validate)
		return 0;
	return permission_deny_early(call) < 0 ? -1 : call->tool->validate(call);
}

static int ask_about_path(struct tool_call *call)
{
	const char *given = tool_string(call, "path");
	cleanup_fd int output =
		given && call->tool->uses == PERMISSION_READS ? output_file_open(given) : -1;
	cleanup_free char *path = NULL, *sentence = NULL;

	/* The files that keep long output are outside the root, and ours. */
	if (output >= 0)
		return 0;
	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (asprintf(&sentence, "%s: %s", call->tool->label, *path ? path : ".") < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	return permission_ask_path(call, call->tool->level, call->tool->uses, path, sentence);
}

static cJSON *ask_mount(const struct tool_session *session, cJSON *request)
{
	cleanup_free char *text = request ? cJSON_PrintUnformatted(request) : NULL;
	cleanup_free char *reply = NULL;

	cJSON_Delete(request);
	if (!text || control_call(session->control_socket, text, &reply) < 0)
		return NULL;
	return cJSON_Parse(reply);
}

static uint64_t take_seq(cJSON *reply, const char *name)
{
	const cJSON *item = json_member(reply, name);
	uint64_t seq = cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : 0;

	cJSON_Delete(reply);
	return seq;
}

static void add_name(cJSON *request, const char *key, const char *value)
{
	char name[TOOL_AGENT_MAX_BYTES + 1];

	if (!value || !*value)
		return;
	snprintf(name, sizeof(name), "%s", value);
	cJSON_AddStringToObject(request, key, name);
}

/* The kernel tells the mount the id of the thread that made a request. */
static void call_begin(struct tool_call *call)
{
	cJSON *request = cJSON_CreateObject();

	call->thread = gettid();
	cJSON_AddStringToObject(request, "request", "call_begin");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	cJSON_AddStringToObject(request, "tool", call->tool->name);
	cJSON_AddNumberToObject(request, "pid", call->thread);
	add_name(request, "agent", call->agent);
	add_name(request, "user", call->user ? call->user : call->session->user);
	add_name(request, "conversation", tool_conversation(call));
	call->first_seq = take_seq(ask_mount(call->session, request), "first_seq");
}

void tool_join_thread(struct tool_call *call)
{
	cJSON *request;

	/* Threads of the process that registered the call are known already. */
	if (!call->session->control_socket || call->thread == getpid())
		return;
	request = cJSON_CreateObject();
	cJSON_AddStringToObject(request, "request", "call_join");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	cJSON_AddNumberToObject(request, "pid", gettid());
	cJSON_Delete(ask_mount(call->session, request));
}

static void call_end(struct tool_call *call)
{
	cJSON *request = cJSON_CreateObject();

	cJSON_AddStringToObject(request, "request", "call_end");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	call->last_seq = take_seq(ask_mount(call->session, request), "last_seq");
}

static int execute(struct tool_call *call)
{
	int r;

	if (tool_cancelled(call))
		return tool_fail(
			call, TOOL_ABORTED, NULL, "The call was cancelled before it began.");
	r = call->tool->execute(call);
	if (r < 0)
		return tool_fail(call, TOOL_IO_ERROR, NULL, "%s failed.", call->tool->name);
	return 0;
}

/* The project's rules that could not be reached when the session began. */
static int load_missing_rules(struct tool_call *call)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct tool_session *session = call->session;
	struct buffer problem cleanup_buffer = {0};
	int r = 0;

	if (session->problem)
		return tool_fail(call, TOOL_NOT_CONNECTED, NULL, "Cannot work in \"%s\". %s",
			session->root.path, session->problem);
	if (!atomic_load(&session->lacks_project_rules))
		return 0;
	pthread_mutex_lock(&lock);
	if (atomic_load(&session->lacks_project_rules))
		r = permissions_load_project(session->permissions, &session->root, &problem);
	if (r == 0)
		atomic_store(&session->lacks_project_rules, false);
	pthread_mutex_unlock(&lock);
	if (r == 0)
		return 0;
	return tool_fail(call, TOOL_IO_ERROR, NULL, "Nothing was done: %.*s.", (int)problem.size,
		(const char *)problem.data);
}

int tool_run(struct tool_call *call)
{
	uint64_t start_ns = clock_now_ns(), start_wall_ns = clock_wall_ns();
	int r;

	if (call->session->control_socket)
		call_begin(call);
	r = load_missing_rules(call);
	if (r == 0)
		r = check_arguments(call);
	if (r == 0)
		r = call->tool->permission ? call->tool->permission(call) : ask_about_path(call);
	if (r == 0)
		r = execute(call);
	if (call->session->control_socket)
		call_end(call);
	call->latency_ms = (double)(clock_now_ns() - start_ns) / 1e6;
	if (!call->session->control_socket && !call->session->problem && !call->deferred)
		call_log_add(call, start_wall_ns);
	return r;
}

/* ---- Results ---------------------------------------------------------------------------- */

static void add_error(const struct tool_call *call, cJSON *result)
{
	cJSON *error = cJSON_AddObjectToObject(result, "error");

	cJSON_AddStringToObject(error, "code", tool_error_words(call->code)->name);
	cJSON_AddStringToObject(error, "message", call->message ? call->message : "");
	cJSON_AddStringToObject(error, "ai_message", call->ai_message ? call->ai_message : "");
	cJSON_AddBoolToObject(error, "recoverable", call->recoverable);
}

cJSON *tool_result_json(const struct tool_call *call)
{
	cJSON *result = cJSON_CreateObject();

	cJSON_AddBoolToObject(result, "success", call->code == TOOL_OK);
	if (call->code != TOOL_OK)
		add_error(call, result);
	if (call->data && (call->code == TOOL_OK || call->data->child))
		cJSON_AddItemToObject(result, "data", cJSON_Duplicate(call->data, true));
	cJSON_AddNumberToObject(
		result, "latency_ms", (double)(int64_t)(call->latency_ms * 1e3) / 1e3);
	cJSON_AddStringToObject(result, "tool_name", call->tool->name);
	cJSON_AddStringToObject(result, "call_id", call->call_id);
	if (call->first_seq) {
		cJSON *log = cJSON_AddObjectToObject(result, "log");

		cJSON_AddNumberToObject(log, "first_seq", (double)call->first_seq);
		cJSON_AddNumberToObject(log, "last_seq", (double)call->last_seq);
	}
	return result;
}

cJSON *tool_result_schema(const struct tool *tool)
{
	static const char envelope[] =
		"{\"type\":\"object\",\"properties\":{"
		"\"success\":{\"type\":\"boolean\"},"
		"\"error\":{\"type\":\"object\",\"properties\":{"
		"\"code\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},"
		"\"ai_message\":{\"type\":\"string\",\"description\":\"what to do next\"},"
		"\"recoverable\":{\"type\":\"boolean\"}},"
		"\"required\":[\"code\",\"message\",\"ai_message\",\"recoverable\"]},"
		"\"latency_ms\":{\"type\":\"number\"},\"tool_name\":{\"type\":\"string\"},"
		"\"call_id\":{\"type\":\"string\"},"
		"\"log\":{\"type\":\"object\",\"properties\":{\"first_seq\":{\"type\":\"number\"},"
		"\"last_seq\":{\"type\":\"number\"}}}},"
		"\"required\":[\"success\",\"latency_ms\",\"tool_name\",\"call_id\"]}";
	cJSON *schema = cJSON_Parse(envelope);

	cJSON_AddItemToObject(
		json_member(schema, "properties"), "data", cJSON_Parse(tool->data_schema));
	return schema;
}
