/*
 * fs/run/run_agent.h - the agents that `isthmus run` knows, and how each is given a shell.
 * Threads: one; the environment is this process's.
 */
#pragma once

#include <stdbool.h>

#include "fs/run/wrapper.h"

enum agent_route {
	ROUTE_VARIABLES = 1 << 0, /* SHELL, and variables of the agent's own */
	ROUTE_PATH = 1 << 1,      /* "bash" is looked up */
	ROUTE_BASH = 1 << 2,      /* /bin/bash, whatever the settings say: bound over it */
	ROUTE_LOGIN = 1 << 3,     /* the user's login shell, likewise */
	ROUTE_SH = 1 << 4,        /* /bin/sh, likewise */
	ROUTE_BINDS = ROUTE_BASH | ROUTE_LOGIN | ROUTE_SH,
};

struct agent {
	const char *name;
	enum agent_kind kind;
	unsigned routes;
	const char *variable; /* that names its shell, beside SHELL; may be NULL */
};

/* By the name of its program; one that is not known is turned by every route. */
const struct agent *agent_find(const char *program);

/* By a name that a person wrote.  NULL: not known. */
const struct agent *agent_named(const char *name);

/* Sets what the agent's routes need in the environment: `directory` has our "bash" and "sh".
 * -ENOMEM. */
int agent_set_environment(const struct agent *agent, const char *directory);

/* The program that an agent starts by its routes: what to try whether they work.  Static or in
 * `directory`; the caller frees.  NULL: no memory. */
char *agent_shell_of(const struct agent *agent, const char *directory);
