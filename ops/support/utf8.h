/*
 * ops/support/utf8.h - bytes of a workspace that may be text (RFC 3629).
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

/* Bytes of the UTF-8 sequence at `bytes` (1 to 4); 0 when it is invalid or cut off.  `size` is 1 at
 * least. */
size_t utf8_sequence(const uint8_t *bytes, size_t size);

/* The code point of a sequence of that length; U+FFFD when the length is 0. */
uint32_t utf8_decode(const uint8_t *bytes, size_t length);

/* True for UTF-8 without NUL. */
bool utf8_is_clean(const void *bytes, size_t size);

/* Appends the bytes, each invalid one and each NUL as U+FFFD.  0 or -errno. */
int utf8_append_clean(struct buffer *out, const void *bytes, size_t size);

/* `text` if it is clean; else a copy with U+FFFD for each invalid byte, and `text` is freed.  NULL
 * for NULL and without memory. */
char *utf8_repair(char *text);
