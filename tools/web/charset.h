/*
 * tools/web/charset.h - converts a page to UTF-8.
 *
 * The charset is that of the HTTP header, of a byte order mark, or of the page's <meta>; else UTF-8
 * if the bytes are valid UTF-8, else windows-1252.  Labels have the meaning of WHATWG Encoding, as
 * in browsers.
 * Threads: any.
 */
#pragma once

#include <iconv.h>
#include <stdbool.h>

#include "ops/support/buffer.h"

struct charset {
	const char *name;  /* static */
	size_t skip_bytes; /* of a byte order mark */
	iconv_t converter; /* (iconv_t)-1: none needed, the page is UTF-8 */
};

/* `content_type` may be NULL.  `has_meta`: the page is HTML and may have a <meta> with the charset.
 * 0 or -errno. */
int charset_open(const char *content_type, bool has_meta, const void *bytes, size_t size,
	struct charset *ret_charset);
void charset_close(struct charset *charset);

/* Appends the bytes as UTF-8, without NUL and with U+FFFD for invalid bytes.  Opens no file, so
 * that it works in a restricted process.  0 or -errno. */
int charset_convert(
	const struct charset *charset, const void *bytes, size_t size, struct buffer *out);
