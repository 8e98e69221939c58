/*
 * ops/forward.h - the base of workspaces that hold a workspace: every operation is passed on.
 *
 * A decorator has a struct forward as its first member and a table in which the operations that it
 * does not change are the forward_*() functions.  Handles and processes that these hand out hold
 * those of the inner workspace.
 */
#pragma once

#include "ops/workspace_ops.h"

#define FORWARD_ENUMERATE(prefix, name) prefix##_##name,
enum forward_operation { /* OPERATION_getattr and so on */
	WORKSPACE_OPERATIONS(FORWARD_ENUMERATE, OPERATION) OPERATION_COUNT
};

struct forward {
	struct workspace workspace;
	struct workspace_ops ops;
	struct workspace *inner;

	/* Called before an operation that can fail is passed on: an error is returned instead of
	 * passing it on (a close is passed on in any case).  NULL: passes everything on. */
	int (*before)(struct forward *base, enum forward_operation operation);
};

struct forward_file {
	struct open_file file;
	struct open_file *inner;
	bool is_marked; /* for the decorator's own use */
};

struct forward_process {
	struct process process;
	struct process *inner;
};

WORKSPACE_DECLARE_OPERATIONS(forward)

/* All of the above. */
extern const struct workspace_ops forward_ops;

/* Makes the decorator's table from `ops`, without the operations that `inner` lacks: so callers
 * meet the same defaults with and without the decorator.  `scan` stays: it has a default of equal
 * standing. */
void forward_init(struct forward *base, struct workspace *inner, const struct workspace_ops *ops);
