/*
 * tools/custom/custom.h - tools that are not built in: found on disk when somebody asks for one.
 *
 * A tool is an executable (or a directory with tool.json) in one of the places of
 * isthmus-tools(1), CUSTOM TOOLS.  It speaks Amp's toolbox protocol (one process a call, text or
 * JSON) or isthmus-tool/1 (JSON lines).  Nothing is looked for, and nothing runs, before the
 * registry is asked for a name that is not built in, or for all of them.
 * Threads: custom_use() before any other; the rest as the registry.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CUSTOM_PATHS_MAX = 64 };

struct custom_options {
	const char *root;                    /* the directory that calls work in */
	const char *paths[CUSTOM_PATHS_MAX]; /* of --tool, in their order */
	size_t path_count;
	void (*changed)(void); /* may be NULL; from any thread, once the tools are others */
	const char *session;   /* that calls are in which name none; NULL: it has no name */
};

/* Has the registry find custom tools.  `options` is kept, not copied. */
void custom_use(const struct custom_options *options);

/* Ends what runs for custom tools: the session is over, and so are all calls. */
void custom_end(void);

/* Shows the tools of a project that are not trusted as they are, and asks on the terminal.  True:
 * they are trusted now, and the registry looks again. */
bool custom_trust_ask(const struct custom_options *options);

/* isthmus tool list, trust and new, and isthmus session: each the exit code.  `argv[0]` is that
 * word. */
int custom_list_command(const struct custom_options *options, bool as_json);
int custom_trust_command(const struct custom_options *options, bool yes);
int custom_new_command(int argc, char **argv);
int custom_session_command(int argc, char **argv);

/* The command at-workspace: runs argv[2], a request for the mount whose control socket is argv[1],
 * in the place of this process. */
int custom_at_workspace_command(int argc, char **argv);
