/*
 * tools/text/text.h - bytes of a workspace as text for models and people.
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `size`, or the most bytes up to it that end between two characters. */
size_t text_cut(const void *bytes, size_t size, size_t limit);

/* "1.5 MB", "312 bytes"; `out` takes at least 32 bytes. */
const char *text_size(uint64_t size_bytes, char *out);

/* A part of a URI: with %XX for all bytes but letters, digits, "-._~" and those in `plain`; the
 * caller frees.  NULL: no memory. */
char *text_percent_encode(const char *text, const char *plain);

/* RFC 4648, with padding; the caller frees.  NULL: no memory. */
char *text_base64(const uint8_t *bytes, size_t size);
