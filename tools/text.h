/*
 * tools/text.h - bytes of a workspace as text for models and people.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

/* Appends text for the eyes of a person who decides on it: nothing in it moves the cursor or
 * changes the direction, further lines are indented.  0 or -errno. */
int text_append_visible(struct buffer *out, const char *text);

/* `size`, or the most bytes up to it that end between two characters. */
size_t text_cut(const void *bytes, size_t size, size_t limit);

/* "1.5 MB", "312 bytes"; `out` takes at least 32 bytes. */
const char *text_size(uint64_t size_bytes, char *out);
