/*
 * ops/support/excerpt.h - those lines of a file that have one of some texts in them, with lines
 * around each.
 *
 * Its form: blocks of lines that follow one another, in order.  Each begins with the number of its
 * first line (from 1), a space, the number of its bytes, and LF, the numbers in decimal; then come
 * these bytes, line ends included.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"
#include "ops/support/literals.h"

struct excerpt_block {
	uint64_t line; /* number of the first one */
	const uint8_t *bytes;
	size_t size;
};

/* Appends that of a whole file, with `context` lines in front of and behind each line that has one
 * of the texts.  -ENOMEM; -E2BIG when it takes more than `max` bytes. */
int excerpt_make(const struct literals *texts, unsigned context, const uint8_t *content,
	size_t size, size_t max, struct buffer *out);

/* Takes the block at `*at`; false at the end, and where there is none as it should be. */
bool excerpt_next(const uint8_t **at, const uint8_t *end, struct excerpt_block *ret_block);
