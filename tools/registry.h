/* tools/registry.h - every built-in tool; a new one is a line here and one in registry.c. */
#pragma once

#include "tools/tool.h"

extern const struct tool tool_bash;
extern const struct tool tool_edit;

extern const struct tool tool_ls;
extern const struct tool tool_read;
extern const struct tool tool_write;
