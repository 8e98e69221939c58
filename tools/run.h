/*
 * tools/run.h - runs a call (tools/base/tool.h) and builds its result.
 */
#pragma once

#include "tools/base/tool.h"

/* Runs the call to its end.  0, or -1 with `code` set. */
int tool_run(struct tool_call *call);

/* The result as documented in isthmus-tools(1): {success, data | error, ...}.  The caller deletes
 * it; NULL: no memory. */
cJSON *tool_result_json(const struct tool_call *call);

/* The JSON Schema of tool_result_json(), including the tool's data schema.  The caller deletes it;
 * NULL: no memory. */
cJSON *tool_result_schema(const struct tool *tool);
