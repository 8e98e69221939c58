/*
 * tools/web/page_results.h - extracts the results from DuckDuckGo's page.
 * Threads: any.
 */
#pragma once

#include "ops/support/buffer.h"

/* Appends a JSON list of {title, url, snippet}, or "null" if it is not a result page.  0 or
 * -ENOMEM. */
int page_results(const char *html, size_t size, struct buffer *out);
