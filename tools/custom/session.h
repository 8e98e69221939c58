/*
 * tools/custom/session.h - the session of calls that name none.
 *
 * The program gets its name at the start.  When the agent switches to another session (isthmus
 * session switch), the journal of the former one says so, and the program follows.
 * Threads: any; custom_session_begin() before any other.
 */
#pragma once

/* The name of the session: `given`, else that in the environment: ISTHMUS_SESSION, or the variable
 * that Claude Code sets for its commands, hooks and servers.  NULL: no name. */
const char *custom_session_name(const char *given);

/* Keeps the pointer `name`, which may be NULL. */
void custom_session_begin(const char *name);

/* The name of the present session; the caller frees it.  NULL: it has no name. */
char *custom_session_current(void);

/* Tells the tools with "lifetime": "session" what happened to their sessions. */
void custom_session_look(void);

/* The agent continues from the result of the call `parent` (NULL: before the first result), in a
 * session (NULL: the one without a name): custom tools must forget later results. */
void custom_session_at(const char *session, const char *parent);
