/*
 * ops/support/reach.h - whether the workspace of a mount can be reached.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

enum { REACH_WAIT_MS = 3000 };

/* A sentence for people that says why the mount with this control socket cannot reach its
 * workspace; the caller frees it.  NULL: it can.  Waits at most `wait_ms` for an answer of the
 * workspace; 0: does not ask the workspace, and uses what the mount knows. */
char *reach_problem(const char *control_socket, unsigned wait_ms);

/* The same for the mount of `path`, which need not exist.  NULL also if `path` is on no mount. */
char *reach_problem_at(const char *path);
