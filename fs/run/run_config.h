/*
 * fs/run/run_config.h - what `isthmus run` leaves in its private directory for the shell that
 * stands in for the agent's.
 *
 * The shell is a copy of our program at whose end the directory's path stands: agents hand their
 * shells an environment of their own choice, and in a private mount namespace the copy may lie over
 * /bin/bash.
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "fs/run/wrapper.h"

struct run_config {
	cJSON *json;
	enum agent_kind agent;
	const char *control_path;
	const char *mount_point;         /* as the agent sees it */
	const char *root;                /* the same directory at the workspace, absolute */
	const char *real_bash, *real_sh; /* of this machine */
	const char *far_shell;           /* at the workspace: "bash", or "sh" where there is none */
	const char *proof;        /* value of RUN_PROOF_VARIABLE of what runs at the workspace */
	const cJSON *environment; /* more variables for it */
};

#define RUN_PROOF_VARIABLE "ISTHMUS_RUN"

/* Writes DIRECTORY/config.json; json has the members of the struct by their names. */
int run_config_save(const cJSON *json, const char *directory);

/* Copies the program to `path` with the directory at its end. */
int run_config_install(const char *program, const char *path, const char *directory);

/* Of the copy that this process runs.  -ENOENT: it is none; -errno. */
int run_config_load(struct run_config *ret_config);

void run_config_done(struct run_config *config);
