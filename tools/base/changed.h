/*
 * tools/base/changed.h - the paths that changed while a command ran, as a model can use them.
 *
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

struct tool_call;

/* Adds `changed` (paths in the workspace, an array, or NULL where that is not known) to the data,
 * relative to the root; what lies outside it in full.  What is in a new directory counts, not the
 * directory. */
void changed_add(struct tool_call *call, const cJSON *changed, bool truncated);

/* Names the first of what changed_add() added at the end of the text. */
int changed_tell(struct tool_call *call);
