/*
 * ops/workspace_look.h - looks through files for texts, several at once.
 * Threads: a looker belongs to one thread, and has others of its own.
 */
#pragma once

#include "ops/support/literals.h"
#include "ops/workspace.h"

struct looker;

struct look {
	const char *path;
	struct object_id id;
	bool lacks; /* result: it was read, and none of the texts is in it */
};

/* `ctx`, `w` and `texts` have to outlive it.  -ENOMEM. */
int looker_new(struct op_context *ctx, struct workspace *w, const struct literals *texts,
	struct looker **ret_looker);
void looker_free(struct looker *looker); /* NULL is fine */

/* Looks through the files, and waits for that.  0 or -EINTR. */
int looker_run(struct looker *looker, struct look *looks, size_t count);
