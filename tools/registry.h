/* tools/registry.h - every built-in tool; a new one is a line here and one in registry.c. */
#pragma once

#include "tools/tool.h"

extern const struct tool tool_apply_patch;
extern const struct tool tool_bash;
extern const struct tool tool_bash_input;
extern const struct tool tool_bash_kill;
extern const struct tool tool_bash_output;
extern const struct tool tool_create_file;
extern const struct tool tool_delete;
extern const struct tool tool_edit;
extern const struct tool tool_edit_file;
extern const struct tool tool_find;
extern const struct tool tool_glob;
extern const struct tool tool_grep;
extern const struct tool tool_launch_app;
extern const struct tool tool_ls;
extern const struct tool tool_read;
extern const struct tool tool_webfetch;
extern const struct tool tool_websearch;
extern const struct tool tool_write;
