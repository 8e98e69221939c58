/*
 * tools/web/page_writer.h - writes Markdown or plain text piece by piece.
 *
 * Blanks, line ends and the marks of emphasis and links are written only when text follows, so that
 * none is at the edge of a block and empty elements leave nothing.
 * Threads: none.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"
#include "tools/web/page_tree.h"

struct page_writer {
	struct buffer *out;
	bool plain; /* no Markdown */
	int error;  /* the first one: -ENOMEM, -EMSGSIZE */

	/* To be written before the next text. */
	unsigned pending_lines;
	bool pending_space, pending_break;
	bool needs_prefix; /* the line has no prefix yet */
	bool line_is_empty;

	struct page_prefix {
		const char *first, *rest; /* of the first line, of later lines */
		char marker[24];
		bool used;
	} prefixes[2 * PAGE_DEPTH_MAX];
	size_t prefix_count;

	struct page_mark {
		const char *open;
		char *close;
		bool written; /* `open` is written, `close` is not */
		bool ever;    /* `open` was written at least once */
	} marks[2 * PAGE_DEPTH_MAX];
	size_t mark_count;
	size_t closed_at; /* where the last mark ended */

	struct buffer code; /* text of the present code span */
	unsigned in_code, in_heading;
	bool in_cell;
	size_t cell_start;
};

void writer_init(struct page_writer *w, struct buffer *out, bool plain);
void writer_done(struct page_writer *w);

/* Writes text: collapses blanks and escapes Markdown. */
void writer_text(struct page_writer *w, const char *text);
/* Writes text within a line, unchanged. */
void writer_atom(struct page_writer *w, const char *text);
/* Writes lines unchanged as a block, between the lines `opening` and `closing` (NULL: none). */
void writer_verbatim(
	struct page_writer *w, const char *text, const char *opening, const char *closing);

void writer_space(struct page_writer *w);
void writer_line_break(struct page_writer *w);            /* <br> */
void writer_break(struct page_writer *w, unsigned lines); /* 1: a new line, 2: a blank one */

/* Begin and end a mark around text.  `close` is copied. */
void writer_mark(struct page_writer *w, const char *open, const char *close);
bool writer_unmark(struct page_writer *w);  /* false: there was no text */
void writer_suspend(struct page_writer *w); /* closes all marks until text follows */

void writer_code(struct page_writer *w, bool begin);
void writer_flush_code(struct page_writer *w);

/* Add and remove a prefix of lines: `marker` for the first line (NULL: `rest`), `rest` for the
 * others.  `marker` is copied; `rest` must live until writer_pop(). */
void writer_push(struct page_writer *w, const char *marker, const char *rest);
void writer_pop(struct page_writer *w);

/* Write a row of a table. */
void writer_row_begin(struct page_writer *w);
void writer_cell_begin(struct page_writer *w);
void writer_cell_end(struct page_writer *w);
