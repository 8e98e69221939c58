/*
 * tools/text/normalise.h - maps texts that look the same to the same bytes.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum normalise_level {
	NORMALISE_LINE_ENDS, /* CRLF and CR become LF */
	NORMALISE_LOOKS,     /* also removes blanks before line ends, maps quotes, dashes and
			      * blanks to ASCII, and other characters to their NFKD form */
};

/* An offset in the normal text, and the corresponding one in the original. */
struct normalise_mark {
	size_t normal;
	size_t original; /* result: start of the character at `normal`; with `is_end`, end of the
			  * character before it.  SIZE_MAX: `normal` is inside a character */
	bool is_end;
};

/* Appends the normal form of `text`, and sets `original` in the marks, which are sorted by
 * `normal`.  `out` may be NULL.  0 or -ENOMEM. */
int normalise(const uint8_t *text, size_t size, enum normalise_level level, struct buffer *out,
	struct normalise_mark *marks, size_t mark_count);
