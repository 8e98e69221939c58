/*
 * tools/web/web_limits.h - limits a program to 4 requests at a time, and 10 per minute and host.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

/* Waits until a request may start.  0: web_limit_leave() must follow; -1 (recorded): the host's
 * limit is used up, or the call was cancelled.  `what`: the action, for the message. */
int web_limit_enter(struct tool_call *call, const char *host, const char *what);
void web_limit_leave(void);
