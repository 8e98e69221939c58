#include "tools/base/call_log.h"

#include <stdatomic.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/log_tools.h"
#include "ops/support/path.h"
#include "ops/support/redact.h"
#include "tools/base/tool.h"

/* The path that the call is about, as an absolute one; the caller frees it. */
static char *subject(const struct tool_call *call)
{
	const char *root = call->session->root.path, *path = tool_string(call, "path");

	if (!path)
		path = tool_string(call, "workdir");
	if (!path || !*path || strcmp(path, ".") == 0)
		return strdup(root);
	return *path == '/' || *path == '~' ? strdup(path) : path_join(root, path);
}

/* The command, the program or the page, without secrets; never what files hold. */
static char *detail(const struct tool_call *call, bool *redacted)
{
	static const char *const names[] = {"command", "app_name", "url", "query", "pattern"};
	const cJSON *words = json_member(call->arguments, "args"), *word;
	cleanup_buffer struct buffer line = {0}, safe = {0};
	cleanup_free char *text = NULL;
	int r = 0;

	for (size_t i = 0; i < array_size(names) && !line.size && r == 0; i++)
		if (tool_string(call, names[i]))
			r = buffer_append_string(&line, tool_string(call, names[i]));
	if (line.size && cJSON_IsArray(words))
		cJSON_ArrayForEach(word, words) if (cJSON_IsString(word) && r == 0) r =
			buffer_printf(&line, " %s", word->valuestring);
	text = r == 0 && line.size ? buffer_steal_string(&line) : NULL;
	return text && redact_line(&safe, text, redacted) == 0 ? buffer_steal_string(&safe) : NULL;
}

static void complain(int error)
{
	static atomic_int said;

	if (atomic_exchange(&said, error) != error && error)
		log_warning("the log of tools cannot be written (%s): the call is not in it, and "
			    "was made all the same",
			strerror(-error));
}

void call_log_add(struct tool_call *call, uint64_t start_wall_ns)
{
	bool redacted = false;
	cleanup_free char *path = subject(call), *words = detail(call, &redacted);
	const cJSON *exit_code = json_member(call->data, "exit_code");
	const char *user = call->user ? call->user : call->session->user;
	const char *const strings[LOG_STRINGS] = {
		[LOG_PATH] = path,
		[LOG_CALL] = call->call_id,
		[LOG_TOOL] = call->tool->name,
		[LOG_AGENT] = *call->agent ? call->agent : NULL,
		[LOG_USER] = user,
		[LOG_CONVERSATION] = tool_conversation(call),
		[LOG_RESULT] = call->code == TOOL_OK ? NULL : tool_error_info(call->code)->name,
		[LOG_DETAIL] = words,
	};
	const struct log_record record = {
		.op = "tool_call",
		.flags = (redacted ? LOG_IS_REDACTED : 0U) |
			 (cJSON_IsNumber(exit_code) ? LOG_HAS_EXIT : 0U),
		.start_ns = start_wall_ns,
		.latency_us =
			call->latency_ms < 4e6 ? (uint32_t)(call->latency_ms * 1e3) : UINT32_MAX,
		.exit_code = cJSON_IsNumber(exit_code) ? exit_code->valueint : 0,
	};
	int r = log_tools_append(&record, strings, &call->first_seq);

	call->last_seq = r == 0 ? call->first_seq : 0;
	complain(r);
}
