/*
 * tools/web/page_escape.h - escapes text that could be read as Markdown.
 *
 * A backslash is added only where the character would otherwise have a meaning.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

struct page_escape {
	bool at_line_start, in_link, in_cell;
	char before; /* the character before the word; ' ': none */
	char after;  /* the character after it; NUL: unknown */
};

/* Appends a word, which has no blanks.  0 or -errno. */
int page_escape(
	struct buffer *out, const char *word, size_t size, const struct page_escape *around);

/* Inserts a backslash before the last byte.  0 or -errno. */
int page_escape_last(struct buffer *out);
