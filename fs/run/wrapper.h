/*
 * fs/run/wrapper.h - what an agent's shell is asked to do: from its argv to a plan.
 *
 * Agents wrap the command of the model: they source a snapshot of the user's shell, or have the
 * shell write its working directory or its background jobs to a file of theirs.  The snapshot and
 * the files belong to this machine, the command to the workspace.
 * Pure: nothing here looks at a file.  Threads: any.
 */
#pragma once

#include <stdbool.h>

enum agent_kind { AGENT_OTHER, AGENT_CLAUDE, AGENT_CODEX, AGENT_GEMINI, AGENT_OPENCODE, AGENT_PI };

enum shell_where {
	SHELL_HERE,   /* the real shell of this machine runs argv as it is */
	SHELL_THERE,  /* argv with `script` in its place runs at the workspace */
	SHELL_REFUSED /* the agent's wrapper has a form that is not known: run it nowhere */
};

struct shell_plan {
	enum shell_where where;
	int script_index;          /* of argv */
	char *script;              /* to run instead of argv[script_index]; owned */
	char *report_file;         /* here; gets what the script reports; owned; NULL: none */
	bool report_needs_success; /* exit code 0, else the file is left alone */
};

/* Strings that mark the begin and the end of the script's report in its standard output, with a
 * number that nobody can guess in them.  They must need no quoting in a shell. */
struct report_marks {
	const char *begin, *end;
};

/* 0, -ENOMEM. */
int shell_plan_make(enum agent_kind agent, char *const argv[], const struct report_marks *marks,
	struct shell_plan *ret_plan);

void shell_plan_done(struct shell_plan *plan);

/* `text` with each path at or below `from` (an absolute path) moved to `to`; the caller frees.
 * NULL: no memory. */
char *shell_map_paths(const char *text, const char *from, const char *to);
