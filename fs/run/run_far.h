/*
 * fs/run/run_far.h - what `isthmus run` has to know of the place where the workspace is.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

struct run_far {
	char *root; /* the workspace's directory there, absolute */
	bool has_bash;
	bool has_git_identity; /* commits there have an author */
};

/* Asks by a command there.  -EOPNOTSUPP and the like with a message for people in `*ret_reason`
 * (allocated, or NULL). */
int run_far_ask(const char *control_path, struct run_far *ret_far, char **ret_reason);

void run_far_done(struct run_far *far);

/* As the end of a terminal does: commands there that have "NAME=VALUE" (`mark`) in their
 * environment, and what these left running, get HUP.  `*ret_survivors`: those that go on, a line
 * each with the number of the process and its words; NULL: none.  Takes 10 s at most. */
int run_far_end(const char *control_path, const char *mark, char **ret_survivors);
