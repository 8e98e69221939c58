/*
 * tools/web/page_results.h - the results on DuckDuckGo's page.
 * Threads: any.
 */
#pragma once

#include "ops/support/buffer.h"

/* Appends a JSON list of {title, url, snippet}; "null" when the page is another one.  0 or -ENOMEM.
 */
int page_results(const char *html, size_t size, struct buffer *out);
