/*
 * tools/custom/journal.h - what custom tools answered earlier in a session, for their state.
 *
 * A session is a tree: each result follows the one before, until somebody moves to an earlier one
 * and goes on from there.  What counts is the branch, from the first result to where the session
 * is. A session that has a name (--conversation) is kept in a file of the user's until nothing came
 * for 30 days, else (NULL) it is as long as the program.  Threads: any.
 */
#pragma once

#include "tools/custom/internal.h"

/* The earlier results of the source's tools on the branch, the oldest first: [{tool, call,
 * is_error, details}]; the caller deletes it.  The oldest are left out of what is too long for a
 * line. */
cJSON *custom_journal_entries(const char *session, const struct custom_source *source);

/* One more result {content, details}, which may have neither.  `writer` names the process that
 * knows of it already. */
void custom_journal_add(
	const struct tool_call *call, const cJSON *result, bool is_error, const char *writer);

/* The result of a call in any session that has a name, with what it was called for: {source, tool,
 * call, is_error, args, content, details, root}, without what was too long; the caller deletes it.
 * NULL: there is none. */
cJSON *custom_journal_find(const char *call_id);

/* Moves to the result of the call `to`, or with NULL to before the first.  `how`: "branch" or
 * "tree".  0; -ENOENT: there is no such result; -errno. */
int custom_journal_move(const char *session, const char *to, const char *how);

/* The call whose result is where the session is, which the caller frees; NULL: before the first. */
char *custom_journal_place(const char *session);

/* Something else that happens to the session: "start", "shutdown", or "switch" to the session `to`
 * (of the others NULL).  0 or -errno. */
int custom_journal_event(const char *session, const char *event, const char *to);

/* The session that was last switched to since the journal had `*bytes`, which are brought up to
 * date, or this one itself when it was started after that; the caller frees it.  NULL: neither. */
char *custom_journal_switched(const char *session, size_t *bytes);

/* What happened since the journal had `*bytes`, likewise: "shutdown", "start", "branch" or "tree"
 * (that also when the state of the source is another one now than `writer` knows); else NULL. */
const char *custom_journal_changed(
	const char *session, const struct custom_source *source, const char *writer, size_t *bytes);

/* All results, on the branch or not, and moves: [{tool, call, is_error, on_branch}]. */
cJSON *custom_journal_list(const char *session);

/* The file of a session that has a name, which the caller frees; NULL: none. */
char *custom_journal_path(const char *session);
