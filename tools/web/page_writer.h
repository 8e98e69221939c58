/*
 * tools/web/page_writer.h - Markdown or plain text, written piece by piece.
 *
 * Blanks, line ends and the marks of emphasis and links are written when text follows them, so that
 * none stands at the edge of a block, and nothing is written for what is empty.
 * Threads: none.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"
#include "tools/web/page_tree.h"

struct page_writer {
	struct buffer *out;
	bool plain; /* no Markdown */
	int error;  /* the first: -ENOMEM, -EMSGSIZE */

	/* What the next text begins with. */
	unsigned pending_lines;
	bool pending_space, pending_break;
	bool needs_prefix; /* the line has none so far */
	bool line_is_empty;

	struct page_prefix {
		const char *first, *rest; /* of its first line, of the further ones */
		char marker[24];
		bool used;
	} prefixes[2 * PAGE_DEPTH_MAX];
	size_t prefix_count;

	struct page_mark {
		const char *open;
		char *close;
		bool written; /* open at present */
		bool ever;
	} marks[2 * PAGE_DEPTH_MAX];
	size_t mark_count;
	size_t closed_at; /* where the last mark ended */

	struct buffer code; /* of the code span at hand */
	unsigned in_code, in_heading;
	bool in_cell;
	size_t cell_start;
};

void writer_init(struct page_writer *w, struct buffer *out, bool plain);
void writer_done(struct page_writer *w);

/* Text whose blanks collapse and whose characters mean themselves. */
void writer_text(struct page_writer *w, const char *text);
/* Something that is written as it is, within a line. */
void writer_atom(struct page_writer *w, const char *text);
/* Lines as they are, a block of their own between `fence` lines (NULL: none). */
void writer_verbatim(
	struct page_writer *w, const char *text, const char *opening, const char *closing);

void writer_space(struct page_writer *w);
void writer_line_break(struct page_writer *w);            /* <br> */
void writer_break(struct page_writer *w, unsigned lines); /* 1: a new line, 2: a blank one */

/* Around text.  `close` is copied. */
void writer_mark(struct page_writer *w, const char *open, const char *close);
bool writer_unmark(struct page_writer *w);  /* false: there was no text */
void writer_suspend(struct page_writer *w); /* until text follows */

void writer_code(struct page_writer *w, bool begin);
void writer_flush_code(struct page_writer *w);

/* At the start of the lines.  The strings must live as long, `marker` (NULL: `rest`) is copied. */
void writer_push(struct page_writer *w, const char *marker, const char *rest);
void writer_pop(struct page_writer *w);

/* A row of a table. */
void writer_row_begin(struct page_writer *w);
void writer_cell_begin(struct page_writer *w);
void writer_cell_end(struct page_writer *w);
