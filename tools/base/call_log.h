/*
 * tools/base/call_log.h - records calls on directories that are no mount in the log of tools
 * (ops/support/log_tools.h); calls on a mount are in the mount's log.
 * Threads: any.
 */
#pragma once

#include <stdint.h>

struct tool_call;

/* Records the call, which has ended, and sets its first_seq and last_seq.  A log that cannot be
 * written is reported once, and does not fail the call. */
void call_log_add(struct tool_call *call, uint64_t start_wall_ns);
