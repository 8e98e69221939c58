/*
 * tools/web/charset.h - the bytes of a page as UTF-8.
 *
 * The label of the header, a byte order mark, the page's own <meta>, else UTF-8 where the bytes are
 * that, else windows-1252; labels mean what browsers take them for (WHATWG Encoding).
 * Threads: any.
 */
#pragma once

#include <iconv.h>
#include <stdbool.h>

#include "ops/support/buffer.h"

struct charset {
	const char *name;  /* static */
	size_t skip_bytes; /* of a byte order mark */
	iconv_t converter; /* (iconv_t)-1: UTF-8 */
};

/* `content_type` may be NULL; `has_meta`: HTML, which can name its charset itself.  0 or -errno. */
int charset_open(const char *content_type, bool has_meta, const void *bytes, size_t size,
	struct charset *ret_charset);
void charset_close(struct charset *charset);

/* Appends the bytes as UTF-8, without NUL and with U+FFFD for what is invalid.  Opens no file.
 * 0 or -errno. */
int charset_convert(
	const struct charset *charset, const void *bytes, size_t size, struct buffer *out);
