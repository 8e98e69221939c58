/*
 * tools/text/normalise.h - texts that people take for the same, as the same bytes.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum normalise_level {
	NORMALISE_LINE_ENDS, /* CRLF and CR become LF */
	NORMALISE_LOOKS,     /* and blanks before line ends go, quotes, dashes and blanks become
			      * ASCII, other characters their NFKD form */
};

/* A place in the normal text, to be found in the original. */
struct normalise_mark {
	size_t normal;
	size_t original; /* set: where the character at `normal` begins; with `is_end`, where
			  * the character before it ends.  SIZE_MAX: inside a character */
	bool is_end;
};

/* Appends the normal form of `text`.  Marks (sorted by `normal`) are filled in; `out` may be
 * NULL when only they are wanted.  0 or -ENOMEM. */
int normalise(const uint8_t *text, size_t size, enum normalise_level level, struct buffer *out,
	struct normalise_mark *marks, size_t mark_count);
