/*
 * tools/image/pdf.h - the text of a PDF, and its pages as pictures.
 *
 * Runs the programs of poppler as limited children; the call fails if they are not installed.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "tools/base/tool.h"

enum { PDF_INPUT_MAX_BYTES = 64 << 20 };

static inline bool pdf_is_one(const uint8_t *head, size_t size)
{
	return size > 5 && head[0] == '%' && head[1] == 'P' && head[2] == 'D' && head[3] == 'F' &&
	       head[4] == '-';
}

/* Appends the text of one page (from 1; 0: all pages), after a line with the number of pages and
 * with a line before each page.  0, or -1 (recorded). */
int pdf_text(struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page,
	struct buffer *text);

/* Puts the page into the result as a picture.  0, or -1 (recorded). */
int pdf_show_page(
	struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page);
