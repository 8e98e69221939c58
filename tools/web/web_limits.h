/*
 * tools/web/web_limits.h - how much one program asks of the web: 4 requests at once, 10 a minute of
 * each host.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

/* Waits for one of the places.  0: web_limit_leave() must follow; -1: the call, which wanted to do
 * `what`, has failed: the host was asked too often, or the call was cancelled. */
int web_limit_enter(struct tool_call *call, const char *host, const char *what);
void web_limit_leave(void);
