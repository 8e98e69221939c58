/*
 * ops/workspace_search.h - searches files for texts, several at once.
 * Threads: a search is used by one thread at a time; it starts others of its own.
 */
#pragma once

#include "ops/support/literals.h"
#include "ops/workspace_values.h"

struct workspace;

struct text_search;

struct searched_file {
	const char *path;
	struct object_id id;
	bool lacks; /* result: it was read, and none of the texts is in it */
};

/* `ctx`, `w` and `texts` have to outlive it.  -ENOMEM. */
int text_search_new(struct op_context *ctx, struct workspace *w, const struct literals *texts,
	struct text_search **ret_search);
void text_search_free(struct text_search *search); /* NULL is fine */

/* Searches the files and waits until all are done.  0 or -EINTR. */
int text_search_run(struct text_search *search, struct searched_file *files, size_t count);
