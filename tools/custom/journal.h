/*
 * tools/custom/journal.h - what custom tools answered earlier in this session, for their state.
 *
 * A session that has a name (--conversation) is kept in a file of the user's, else it is as long
 * as the program.  Threads: any.
 */
#pragma once

#include "tools/custom/internal.h"

/* The earlier results of the source's tools, the oldest first: [{tool, call, is_error, details}];
 * the caller deletes it.  The oldest are left out of what is too long for a line. */
cJSON *custom_journal_entries(
	const struct tool_session *session, const struct custom_source *source);

/* One more result; `details` may be NULL. */
void custom_journal_add(const struct tool_call *call, const cJSON *details, bool is_error);
