/*
 * tests/tools/bash_verdict.h - what the rules say to one call of bash or launch_app, and what
 * would run, without running it.
 *
 * The whole tool runs, but process_run() only notes what it was given: link with
 * -Wl,--wrap=process_run.
 * Threads: one.
 */
#pragma once

#include "tools/permission/permission.h"

struct bash_verdict {
	enum permission_action action;
	char *reason; /* of the question or the failure; NULL: none */
	char *line;   /* allowed, bash: what would run; else NULL */
	bool failed;  /* ended before the question, or by a failure that no rule is to blame for */
};

/* Runs `tool` ("bash", "launch_app") with `arguments`, which it takes ownership of. */
struct bash_verdict bash_verdict(struct tool_session *session, const char *tool, cJSON *arguments);
void bash_verdict_done(struct bash_verdict *verdict);

/* Makes the tree that the lines are about below `directory`: directory/w is the root, and
 * directory/out is outside of it.  0 or -errno. */
int bash_verdict_tree(const char *directory);
