/*
 * tools/custom/render.h - a tool draws its calls and results for the eyes of a person.
 *
 * Threads: those of a call.
 */
#pragma once

#include "tools/custom/lines.h"

/* Asks the tool to draw, when it can and somebody wants it; what it draws comes as a message
 * "rendered".  `result` may be NULL.  True: it was asked. */
bool custom_render_ask(struct custom_lines *lines, struct tool_call *call, enum tool_phase phase,
	const cJSON *result);

/* Hands on what it drew. */
void custom_render_take(struct tool_call *call, const cJSON *message);

/* Has the result drawn, and waits for it. */
void custom_render_result(struct custom_lines *lines, struct custom_channel *channel,
	struct tool_call *call, const cJSON *result, int wait_ms);
