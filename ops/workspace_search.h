/*
 * ops/workspace_search.h - searches files for texts, several at once.
 * Threads: a search is used by one thread at a time; it starts others of its own.
 */
#pragma once

#include "ops/support/buffer.h"
#include "ops/support/literals.h"
#include "ops/workspace_values.h"

struct workspace;

struct text_search;

struct searched_file {
	const char *directory, *name;
	struct object_id id;
	bool lacks;          /* result: it was read, and none of the texts is in it */
	struct buffer lines; /* result, which the caller frees: see dir_entry.lines */
};

struct text_search_options {
	const struct literals *texts;
	bool wants_lines;
	uint32_t context;
};

/* `ctx`, `w` and the texts have to outlive it.  -ENOMEM. */
int text_search_new(struct op_context *ctx, struct workspace *w,
	const struct text_search_options *options, struct text_search **ret_search);
void text_search_free(struct text_search *search); /* NULL is fine */

/* Has the files searched meanwhile, `files` and what is in it being the search's until the end of
 * text_search_finish(), which takes part and waits: 0 or -EINTR.  One such round at a time. */
void text_search_start(struct text_search *search, struct searched_file **files, size_t count);
int text_search_finish(struct text_search *search);
