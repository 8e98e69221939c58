#include "tools/base/call_log.h"

#include <stdatomic.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/log_tools.h"
#include "ops/support/path.h"
#include "ops/support/redact.h"
#include "tools/base/files.h"
#include "tools/base/tool.h"

/* The absolute path that the call refers to; the caller frees it. */
static char *subject(const struct tool_call *call)
{
	const struct files_root *root = &call->session->root;
	const char *given = call->tool->parsed_schema ? NULL : tool_string(call, "path");
	cleanup_free char *below = NULL;

	if (!given && !call->tool->parsed_schema)
		given = tool_string(call, "workdir");
	if (!given || !*given)
		return strdup(root->path);
	if (files_resolve(root, given, &below) < 0)
		return strdup(given); /* outside the root, or not a path */
	return path_join(root->path, below);
}

/* The command, program or page of the call, with secrets redacted.  Never the content of files, nor
 * the arguments of custom tools. */
static char *detail(const struct tool_call *call, bool *redacted)
{
	static const char *const names[] = {"command", "app_name", "url", "query", "pattern"};
	const cJSON *words = json_member(call->arguments, "args"), *word;
	cleanup_buffer struct buffer line = {0}, safe = {0};
	cleanup_free char *text = NULL;
	int r = 0;

	if (call->tool->parsed_schema)
		return NULL;
	for (size_t i = 0; i < array_size(names) && !line.size && r == 0; i++)
		if (tool_string(call, names[i]))
			r = buffer_append_string(&line, tool_string(call, names[i]));
	if (line.size && cJSON_IsArray(words))
		cJSON_ArrayForEach(word, words)
			if (cJSON_IsString(word) && r == 0)
				r = buffer_printf(&line, " %s", word->valuestring);
	text = r == 0 && line.size ? buffer_steal_string(&line) : NULL;
	return text && redact_line(&safe, text, redacted) == 0 ? buffer_steal_string(&safe) : NULL;
}

static void complain(int error)
{
	static atomic_bool said;

	if (error < 0 && !atomic_exchange(&said, true))
		log_warning("the log of tools cannot be written (%s): the call is not in it, and "
			    "was made all the same",
			strerror(-error));
}

void call_log_add(struct tool_call *call, uint64_t start_wall_ns)
{
	bool redacted = false;
	cleanup_free char *path = subject(call), *about = detail(call, &redacted);
	const cJSON *code = json_member(call->data, "exit_code");
	int signal = (int)json_integer(call->data, "signal");
	const char *user = call->user ? call->user : call->session->user;
	const char *const strings[LOG_STRINGS] = {
		[LOG_PATH] = path,
		[LOG_CALL] = call->call_id,
		[LOG_TOOL] = call->tool->name,
		[LOG_AGENT] = *call->agent ? call->agent : NULL,
		[LOG_USER] = user,
		[LOG_CONVERSATION] = tool_conversation(call),
		[LOG_RESULT] = call->code == TOOL_OK ? NULL : tool_error_info(call->code)->name,
		[LOG_DETAIL] = about,
	};
	const struct log_record record = {
		.op = "tool_call",
		.flags = (redacted ? LOG_IS_REDACTED : 0U) |
			 (cJSON_IsNumber(code) ? LOG_HAS_EXIT : 0U),
		.start_ns = start_wall_ns,
		.latency_us =
			call->latency_ms < 4e6 ? (uint32_t)(call->latency_ms * 1e3) : UINT32_MAX,
		.exit_code = signal                 ? -1
			     : cJSON_IsNumber(code) ? code->valueint
						    : 0,
		.signal = signal,
	};
	int r = log_tools_append(&record, strings, &call->first_seq);

	call->last_seq = r == 0 ? call->first_seq : 0;
	complain(r);
}
