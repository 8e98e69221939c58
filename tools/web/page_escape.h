/*
 * tools/web/page_escape.h - text whose characters could be taken for Markdown.
 *
 * A backslash is put only where the meaning would change.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

struct page_escape {
	bool at_line_start, in_link, in_cell;
	char before; /* what stands in front; ' ': nothing */
	char after;  /* what follows; NUL: not known */
};

/* Appends a word without blanks.  0 or -errno. */
int page_escape(
	struct buffer *out, const char *word, size_t size, const struct page_escape *around);

/* Puts a backslash in front of the last byte.  0 or -errno. */
int page_escape_last(struct buffer *out);
