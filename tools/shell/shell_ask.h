/*
 * tools/shell/shell_ask.h - asks for permission to run an analysed command.
 * Threads: as tools/base/tool.h.
 */
#pragma once

#include "tools/shell/shell.h"

/* Whether every command is allowed, so that the call needs no analysis. */
bool shell_allowed(const struct tool_call *call);

/* Where commands of the call run; `directory` is below the root. */
struct shell_context shell_context_of(const struct tool_call *call, const char *directory);

/* Asks once about all commands and paths.  `text`: the command as given.  `reason`: a reason why no
 * rule can allow it, besides those of the analysis; NULL: none.  0, or -1 (recorded). */
int shell_ask(struct tool_call *call, const struct shell_analysis *analysis, const char *text,
	const char *sentence, const char *reason);
