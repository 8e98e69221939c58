/*
 * tools/custom/render.h - lets a custom tool draw its calls and results for a person.
 *
 * Threads: that of the call.
 */
#pragma once

#include "tools/custom/lines.h"

/* Asks the tool to draw, if it can and the sink wants it; the drawing arrives as a message
 * "rendered".  `result` may be NULL.  True: the tool was asked. */
bool custom_render_ask(struct custom_lines *lines, struct tool_call *call, enum tool_phase phase,
	const cJSON *result);

/* Passes the drawing in the message to the sink. */
void custom_render_take(struct tool_call *call, const cJSON *message);

/* Asks the tool to draw the result, and waits for the drawing, at most `wait_ms`. */
void custom_render_result(struct custom_lines *lines, struct custom_channel *channel,
	struct tool_call *call, const cJSON *result, int wait_ms);
