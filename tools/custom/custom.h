/*
 * tools/custom/custom.h - custom tools: tools that are found on disk.
 *
 * A custom tool is an executable, or a directory with tool.json, in one of the places listed in
 * isthmus-custom-tools(7).  It speaks Amp's toolbox protocol (one process per call, text or
 * JSON) or isthmus-tool/1 (JSON lines).  The search starts, and programs run, only when the
 * registry is asked for a name that is not built in, or for all names.
 * Threads: custom_use() first; the others as the registry.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

enum { CUSTOM_PATHS_MAX = 64 };

struct custom_options {
	const char *root;                    /* the root directory of calls */
	const char *paths[CUSTOM_PATHS_MAX]; /* of the options --tool, in their order */
	size_t path_count;
	void (*changed)(void); /* called by any thread when the tools have changed; may be NULL */
	const char *session;   /* session of calls that name none; NULL: one without a name */
};

/* Makes the registry find custom tools.  Keeps the pointer `options`. */
void custom_use(const struct custom_options *options);

/* Appends why tools that may be the one of this name, and those of the options, cannot be used,
 * after the registry has looked for it.  False: there are none. */
bool custom_explain_missing(const char *name, struct buffer *reasons);

/* Ends all processes of custom tools, after the last call of the session. */
void custom_end(void);

/* Shows the project's tools that are new or have changed since they were trusted, and asks on the
 * terminal whether to trust them.  True: they are trusted now, and the registry searches again. */
bool custom_trust_ask(const struct custom_options *options);

/* isthmus tool list, trust and new, and isthmus session.  Each returns the exit status; `argv[0]`
 * is the name of the command. */
int custom_list_command(const struct custom_options *options, bool as_json);
int custom_trust_command(const struct custom_options *options, bool yes);
int custom_new_command(int argc, char **argv);
int custom_session_command(int argc, char **argv);

/* The command at-workspace: runs argv[2], an exec request for the mount with the control socket
 * argv[1], and passes its input, output and exit status through this process. */
int custom_at_workspace_command(int argc, char **argv);
