/*
 * tools/web/page_feed.h - converts RSS and Atom feeds to lists of their items.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

bool page_is_feed(const void *bytes, size_t size);

/* As page_convert(). */
int page_feed(const char *text, size_t size, struct buffer *out, char **ret_title);
