/*
 * tools/base/call_log.h - what becomes of a call on a directory that is no mount goes to the log of
 * tools (ops/support/log_tools.h); on a mount, its log has it.
 * Threads: any.
 */
#pragma once

#include <stdint.h>

struct tool_call;

/* Records the call, which has ended, and sets its first_seq and last_seq.  A log that cannot be
 * written is said once, and does not fail the call. */
void call_log_add(struct tool_call *call, uint64_t start_wall_ns);
