/*
 * ops/policy_lists.h - the files ".agentsignore" of a workspace, as chains of patterns.
 *
 * A directory is watched before its file is read, and what was read is kept until the change feed
 * tells of the directory or the file (policy_lists_forget()); where changes are not reported, for
 * a second.
 */
#pragma once

#include <pthread.h>

#include "ops/support/hash_table.h"
#include "ops/support/ignore.h"
#include "ops/workspace_values.h"

struct workspace;

#define AGENTSIGNORE ".agentsignore"

struct policy_lists {
	struct workspace *inner;
	bool can_watch, ignores_case;

	pthread_mutex_t lock;    /* guards all below; not held during a call of `inner` */
	struct hash_table known; /* by directory */
	uint64_t changes;        /* what was read before one of them is not kept */
};

/* The context for reading lists: the rules do not depend on the caller, nor is the cost logged as
 * the caller's. */
struct op_context policy_context(const struct op_context *ctx);

/* 0 or -ENOMEM. */
int policy_lists_init(struct policy_lists *lists, struct workspace *inner);
void policy_lists_done(struct policy_lists *lists);

/* Puts the list of a directory in front of `*chain`, the one of its parent (a reference).  0 where
 * there is no such file (links are not followed); -errno where it cannot be read. */
int policy_lists_add(struct policy_lists *lists, struct op_context *ctx, const char *directory,
	struct ignore **chain);

/* The name has changed, or (NULL) anything may have. */
void policy_lists_forget(struct policy_lists *lists, const char *path);
