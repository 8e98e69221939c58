/*
 * tools/text/text.h - turns bytes of a workspace into text for models and people.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number of bytes, at most `limit`, to keep of `size` bytes without splitting a character. */
size_t text_cut(const void *bytes, size_t size, size_t limit);

/* Writes "1.5 MB" or "312 bytes" to `out`, which has room for 32 bytes, and returns it. */
const char *text_size(uint64_t size_bytes, char *out);

/* Whether text begins with a byte order mark of UTF-16. */
bool text_is_utf16(const void *bytes, size_t size);

/* Percent-encodes a part of a URI: all bytes but letters, digits, "-._~" and those in `plain`.  The
 * caller frees it; NULL: no memory. */
char *text_percent_encode(const char *text, const char *plain);

/* Base64 by RFC 4648, with padding.  The caller frees it; NULL: no memory. */
char *text_base64(const uint8_t *bytes, size_t size);
