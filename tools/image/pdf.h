/*
 * tools/image/pdf.h - what models see of a PDF: its text, and pages as pictures.
 *
 * By the programs of poppler, each as a limited child; where they are not installed the call
 * fails, and says so.
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

/* Appends the text of one page (from 1; 0: of all), under a line that says how many there are and
 * one for each page.  0, or -1: recorded. */
int pdf_text(struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page,
	struct buffer *text);

/* Makes the page the picture of the answer.  0, or -1: recorded. */
int pdf_show_page(
	struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page);
