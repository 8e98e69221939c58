/*
 * tools/text.h - bytes of a workspace as text for models and people.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

/* Bytes of the UTF-8 sequence at `bytes` (1 to 4); 0 when it is invalid or cut off. */
size_t text_utf8_sequence(const uint8_t *bytes, size_t size);

/* True for UTF-8 without NUL. */
bool text_is_clean(const void *bytes, size_t size);

/* Appends the bytes, each invalid one and each NUL as U+FFFD.  0 or -errno. */
int text_append_clean(struct buffer *out, const void *bytes, size_t size);

/* Appends text for the eyes of a person who decides on it: nothing in it moves the cursor or
 * changes the direction, further lines are indented.  0 or -errno. */
int text_append_visible(struct buffer *out, const char *text);

/* `size`, or the most bytes up to it that end between two characters. */
size_t text_cut(const void *bytes, size_t size, size_t limit);

/* "1.5 MB", "312 bytes"; `out` takes at least 32 bytes. */
const char *text_size(uint64_t size_bytes, char *out);
