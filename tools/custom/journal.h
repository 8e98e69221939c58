/*
 * tools/custom/journal.h - the earlier results of custom tools in a session, from which they
 * restore their state.
 *
 * A session is a tree: each result follows the one before, until the session moves to an earlier
 * result and continues from there.  The branch is the path from the first result to the session's
 * present position.  A session with a name (--conversation) is kept in a file of the user until it
 * was not used for 30 days; one without a name (NULL) lives as long as the program.
 * Threads: any.
 */
#pragma once

#include "tools/custom/internal.h"

/* The results of the source's tools on the branch, the oldest first: [{tool, call, is_error,
 * details}], without the oldest if they do not fit into a line.  The caller deletes it. */
cJSON *custom_journal_entries(const char *session, const struct custom_source *source);

/* Adds a result {content, details}; both members are optional.  `writer`: the process that has
 * produced it and needs no notice. */
void custom_journal_add(
	const struct tool_call *call, const cJSON *result, bool is_error, const char *writer);

/* The result of a call in any session with a name, with its arguments: {source, tool, call,
 * is_error, args, content, details, root}; members that were too long are missing.  The caller
 * deletes it; NULL: there is none. */
cJSON *custom_journal_find(const char *call_id);

/* Moves the session to the result of the call `to`; NULL: before the first result.  `how`: "branch"
 * or "tree".  0; -ENOENT: no such result; -errno. */
int custom_journal_move(const char *session, const char *to, const char *how);

/* The call whose result is the session's present position; the caller frees it.  NULL: before the
 * first result. */
char *custom_journal_place(const char *session);

/* Records another event of the session: "start", "shutdown", or "switch" to the session `to` (NULL
 * for the other events).  0 or -errno. */
int custom_journal_event(const char *session, const char *event, const char *to);

/* The session of the last "switch" since the journal had `*bytes` bytes, or this session itself if
 * it was started after that; the caller frees it.  NULL: neither.  Updates `*bytes`. */
char *custom_journal_switched(const char *session, size_t *bytes);

/* The event since the journal had `*bytes` bytes, which it updates: "shutdown", "start", "branch"
 * or "tree"; "tree" also if the source's state is no longer the one that `writer` knows.  NULL:
 * none. */
const char *custom_journal_changed(
	const char *session, const struct custom_source *source, const char *writer, size_t *bytes);

/* All results, on the branch or not: [{tool, call, is_error, on_branch}]. */
cJSON *custom_journal_list(const char *session);

/* The file of a session with a name; the caller frees it.  NULL: there is none. */
char *custom_journal_path(const char *session);
