/*
 * tools/base/reach.h - whether the workspace of a mount can be reached.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

enum { REACH_WAIT_MS = 3000 };

/* What keeps the mount of this control socket from its workspace, in a sentence for people that the
 * caller frees.  NULL: nothing.  For a sign of life it waits `wait_ms` at most; 0: it asks for
 * none, and says what the mount knows. */
char *reach_problem(const char *control_socket, unsigned wait_ms);

/* The same for the mount that `path` is on, which need not be there.  NULL also: on none. */
char *reach_problem_at(const char *path);
