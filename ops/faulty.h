/*
 * ops/faulty.h - the decorator that fails calls on purpose, for tests.
 *
 * Every call goes to the workspace below, except those that the specification names: they
 * fail with the given errno and do not reach it.  (A failed close still closes.)
 */
#pragma once

#include "ops/workspace_ops.h"

/* Wraps `inner` and owns it on success.  `specification`: "OPERATION:N:ERRNO" joined by
 * commas, OPERATION a name in struct workspace_ops; "write:3:ENOSPC" fails the third write,
 * "write:3+:ENOSPC" the third and all after it.  "" fails nothing and only counts.
 * -EINVAL: no such operation, number or errno; -ENOMEM. */
int faulty_new(
	struct workspace *inner, const char *specification, struct workspace **ret_workspace);

/* Replaces the specification and starts to count anew.  -EINVAL, -ENOMEM (then the old one
 * stays).  Not while calls are under way. */
int faulty_set(struct workspace *w, const char *specification);

/* How often the operation has been called, failed calls included; with NULL all of them. */
uint64_t faulty_calls(struct workspace *w, const char *operation);
