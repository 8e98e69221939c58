/*
 * ops/support/visible.h - text of unknown origin for a person's eyes.
 *
 * Names, contents and messages may have characters that move a terminal's cursor, change the
 * direction of what follows or cannot be seen.  Each is shown as its bytes: \x1b, \xe2\x80\xae.
 * So are bytes that are not UTF-8.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ops/support/buffer.h"

enum visible_flags {
	VISIBLE_LINES = 1 << 0,  /* tabs and line ends stay; a CR in front of a line end goes */
	VISIBLE_INDENT = 1 << 1, /* the same, and further lines are indented by four blanks */
	VISIBLE_BLANKS = 1 << 2, /* runs of 16 blanks and more, or of 4 line ends, by their
				    length: "[40 blanks]" */
	VISIBLE_JSON = 1 << 3,   /* as the escapes of JSON, "\u202e": the text is JSON already, and
				    says the same afterwards */
};

/* True for a code point that is shown as its bytes: control and format characters, what changes the
 * direction, and what has no width (zero-width, tags, variation selectors, fillers). */
bool visible_hides(uint32_t code_point);

/* Appends the text.  0, -ENOMEM, -EMSGSIZE. */
int visible_append(struct buffer *out, const void *text, size_t size, unsigned flags);

/* Prints the text; without memory, a note that it cannot. */
void visible_print(FILE *out, const void *text, size_t size, unsigned flags);

/* One name. */
void visible_print_name(FILE *out, const char *name);

/* Output that comes in pieces, which may end within a character. */
struct visible_stream {
	uint8_t rest[4];
	size_t rest_size;
};

/* Prints one piece with VISIBLE_LINES; at the end of the output, an empty one with `last`. */
void visible_stream_print(
	struct visible_stream *stream, FILE *out, const void *text, size_t size, bool last);
