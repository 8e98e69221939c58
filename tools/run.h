/*
 * tools/run.h - running a call (tools/base/tool.h), and its whole result.
 */
#pragma once

#include "tools/base/tool.h"

/* Runs the call to its end.  0, or -1 with `code` set. */
int tool_run(struct tool_call *call);

/* The whole result as isthmus-tools(1) has it: {success, data | error, ...}.  The caller deletes
 * it; NULL when there is no memory. */
cJSON *tool_result_json(const struct tool_call *call);

/* JSON Schema of that, with the tool's own data schema in it. */
cJSON *tool_result_schema(const struct tool *tool);
