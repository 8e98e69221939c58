/*
 * tools/base/changed.h - reports the paths that changed while a command ran.
 *
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

struct tool_call;

/* Adds `changed` to the call's data.  `changed`: an array of paths in the workspace; NULL: not
 * known.  Paths in the root become relative to it, others stay whole.  For a new directory, adds
 * the files in it instead of the directory. */
void changed_add(struct tool_call *call, const cJSON *changed, bool truncated);

/* Appends the first of the paths that changed_add() added to the text.  0, or -1: no memory. */
int changed_tell(struct tool_call *call);
