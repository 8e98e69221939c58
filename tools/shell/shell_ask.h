/*
 * tools/shell/shell_ask.h - asks for permission for what an analysis of a command found.
 * Threads: as tools/base/tool.h.
 */
#pragma once

#include "tools/shell/shell.h"

/* True when no rule can be about a command of this call: it needs no analysis. */
bool shell_allowed(const struct tool_call *call);

/* Where commands of the call run; `directory` is below the root. */
struct shell_context shell_context_of(const struct tool_call *call, const char *directory);

/* Asks once about all commands and paths.  `text` is the command as it was given, `reason` (NULL:
 * none) why no rule may allow it, besides those of the analysis.  0, or -1 (recorded). */
int shell_ask(struct tool_call *call, const struct shell_analysis *analysis, const char *text,
	const char *sentence, const char *reason);
