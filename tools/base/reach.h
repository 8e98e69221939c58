/*
 * tools/base/reach.h - whether the workspace of a mount can be reached.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

/* What keeps the mount of this control socket from its workspace, in a sentence for people that the
 * caller frees.  NULL: nothing. */
char *reach_problem(const char *control_socket);

/* The same for the mount that `path` is on, which need not be there.  NULL also: on none. */
char *reach_problem_at(const char *path);
