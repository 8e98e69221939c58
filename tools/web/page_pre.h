/*
 * tools/web/page_pre.h - code and other preformatted text of a page.
 * Threads: none.
 */
#pragma once

#include "tools/web/page_markdown.h"

/* Whether the element is a column of line numbers. */
bool page_is_gutter(const struct page_node *node);

void markdown_pre(struct page_markdown *m, const struct page_node *node);
