#include "tools/custom/render.h"

#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"

enum { POLL_MS = 50 };

static const char *const phases[] = {[TOOL_PHASE_CALL] = "call",
	[TOOL_PHASE_PARTIAL] = "partial",
	[TOOL_PHASE_RESULT] = "result"};

bool custom_render_ask(struct custom_lines *lines, struct tool_call *call, enum tool_phase phase,
	const cJSON *result)
{
	cJSON *message;

	if (!call->sink.drawn || !custom_tool_of(call)->renders)
		return false;
	message = cJSON_CreateObject();
	cJSON_AddStringToObject(message, "type", "render");
	cJSON_AddStringToObject(message, "id", call->call_id);
	cJSON_AddStringToObject(message, "ask", phases[phase]);
	cJSON_AddStringToObject(message, "tool", custom_tool_of(call)->own_name);
	cJSON_AddStringToObject(message, "phase", phase == TOOL_PHASE_CALL ? "call" : "result");
	cJSON_AddItemToObject(message, "args", cJSON_Duplicate(call->arguments, true));
	if (result)
		cJSON_AddItemToObject(message, "result", cJSON_Duplicate(result, true));
	cJSON_AddBoolToObject(message, "expanded", call->sink.expanded);
	cJSON_AddBoolToObject(message, "partial", phase == TOOL_PHASE_PARTIAL);
	cJSON_AddNumberToObject(message, "width", call->sink.width);
	return custom_lines_send(lines, call, message) == 0;
}

static bool is_about(const cJSON *message, enum tool_phase phase)
{
	const char *type = json_text(message, "type"), *ask = json_text(message, "ask");

	return type && ask && strcmp(type, "rendered") == 0 && strcmp(ask, phases[phase]) == 0;
}

void custom_render_take(struct tool_call *call, const cJSON *message)
{
	for (size_t i = 0; i < array_size(phases); i++)
		if (call->sink.drawn && is_about(message, (enum tool_phase)i))
			call->sink.drawn(
				call->sink.user, (enum tool_phase)i, json_text(message, "text"));
}

void custom_render_result(struct custom_lines *lines, struct custom_channel *channel,
	struct tool_call *call, const cJSON *result, int wait_ms)
{
	int64_t until_ms = clock_now_ms() + wait_ms;
	bool waits = custom_render_ask(lines, call, TOOL_PHASE_RESULT, result);

	while (waits && clock_now_ms() < until_ms && !tool_cancelled(call)) {
		bool ended = custom_lines_ended(lines);
		cJSON *message = custom_channel_next(lines, channel, POLL_MS);

		custom_render_take(call, message);
		waits = message ? !is_about(message, TOOL_PHASE_RESULT) : !ended;
		cJSON_Delete(message);
	}
}
