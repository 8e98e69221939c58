#include "tools/run.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "tools/base/call_log.h"
#include "tools/base/output_file.h"
#include "tools/base/registry.h"
#include "tools/base/schema.h"
#include "tools/permission/permission.h"

/* ---- Running ------------------------------------------------------------------------ */

static int check_arguments(struct tool_call *call)
{
	const cJSON *schema = registry_input_schema(call->tool);
	struct buffer problem cleanup_buffer = {0};
	int r;

	if (call->tool->adapt)
		call->tool->adapt(call->arguments);
	r = schema_check(schema, call->arguments, &problem);
	if (r != -EINVAL && r < 0)
		return tool_fail_errno(call, r, "check the arguments", NULL);
	if (r < 0)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL, "%s: %.*s.", call->tool->name,
			(int)problem.size, (const char *)problem.data);
	permission_take_look_alike(call);
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

	/* Files with long output are outside the root, and may always be read. */
	if (output >= 0)
		return 0;
	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (asprintf(&sentence, "%s: %s", call->tool->label, *path ? path : ".") < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	return permission_ask_path(call, call->tool->level, call->tool->uses, path, sentence);
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

/* Loads the project's rules if they were unreachable when the session began. */
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

	call->near_names = permission_near_names;
	if (call->session->control_socket)
		tool_mount_begin(call);
	r = load_missing_rules(call);
	if (r == 0)
		r = check_arguments(call);
	if (r == 0)
		r = call->tool->permission ? call->tool->permission(call) : ask_about_path(call);
	if (r == 0)
		r = execute(call);
	if (call->session->control_socket)
		tool_mount_end(call);
	call->latency_ms = (double)(clock_now_ns() - start_ns) / 1e6;
	if (!call->session->control_socket && !call->session->problem && !call->deferred)
		call_log_add(call, start_wall_ns);
	return r;
}

/* ---- Results ---------------------------------------------------------------------------- */

static void add_error(const struct tool_call *call, cJSON *result)
{
	cJSON *error = cJSON_AddObjectToObject(result, "error");

	cJSON_AddStringToObject(error, "code", tool_error_info(call->code)->name);
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
