/*
 * tools/custom/session.h - the session that the program's calls are in, when they name none.
 *
 * Its name is given when the program starts.  The journal of that session says where those go on
 * that were given its name, when the agent went to another one (isthmus session switch).
 * Threads: any; custom_session_begin() before any other.
 */
#pragma once

/* The name of a session: the one given, else that of the environment: ISTHMUS_SESSION, or what
 * Claude Code gives its commands, hooks and servers.  NULL: it has none. */
const char *custom_session_name(const char *given);

/* `name` is kept, and may be NULL. */
void custom_session_begin(const char *name);

/* Where it is now; the caller frees it.  NULL: it has no name. */
char *custom_session_current(void);

/* Has tools that live told what happened to their sessions. */
void custom_session_look(void);

/* The agent goes on from the result of the call `parent` (NULL: before the first), in a session
 * that is NULL without a name: what custom tools know of later ones does not count any more. */
void custom_session_at(const char *session, const char *parent);
