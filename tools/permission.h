/*
 * tools/permission.h - may this call do that?
 *
 * Rules (allow, ask, deny) by tool and pattern, the last that matches wins; without one READ
 * and MODIFY are allowed and DANGEROUS asks.  Who answers is the asker's affair: a terminal,
 * MCP elicitation, nobody.
 */
#pragma once

#include "tools/tool.h"

/* Asks for one thing the call is about to do.  `subject` is what rules match ("src/a.c",
 * "git push"), `sentence` is for people ("Edit file: src/a.c").  0, or -1 (recorded). */
int permission_ask(
	struct tool_call *call, enum tool_level level, const char *subject, const char *sentence);
