/*
 * fs/run/run_child.h - the process that becomes the agent: it sees the workspace at its own path,
 * and our shell in the place of its own.
 * Threads: the process has one.
 */
#pragma once

#include "fs/run/run_agent.h"
#include "fs/run/run_config.h"
#include "fs/run/run_far.h"

struct run_child {
	const char *directory; /* of run_directory_make() */
	const struct agent *agent;
	const char *mount_point, *control_path;
	const char *at; /* where to show it; NULL: nowhere else */
	const struct run_far *far;
	const cJSON *environment; /* that the user gives to commands there */
	const char *mark;         /* of run_mark_make() */
	char *const *command;     /* the agent, NULL-terminated */
};

enum { RUN_MARK_SIZE = sizeof(RUN_PROOF_VARIABLE "=") + 32 };

/* Makes the pair NAME=VALUE, with a value of its own, that is in the environment of all that the
 * agent's shell runs at the workspace.  0; -errno. */
int run_mark_make(char ret_mark[RUN_MARK_SIZE]);

/* A private directory for the shells, and its end. */
int run_directory_make(char **ret_path);
void run_directory_remove(const char *path);

/* Returns only when it failed, with the exit code, after saying why. */
int run_child_exec(const struct run_child *child);
