/*
 * tools/base/call_log.h - records calls on directories outside any mount in the log of tools
 * (ops/support/log_tools.h).  Calls on a mount are in the mount's log.
 * Threads: any.
 */
#pragma once

#include <stdint.h>

struct tool_call;

/* Records a call that has ended, and sets its first_seq and last_seq.  If the log cannot be
 * written, that is reported once per process and the call does not fail. */
void call_log_add(struct tool_call *call, uint64_t start_wall_ns);
