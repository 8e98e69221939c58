/*
 * tools/web/page_markdown.h - elements of a page as Markdown.
 * Threads: none.
 */
#pragma once

#include "tools/web/page_tree.h"
#include "tools/web/page_writer.h"

struct page_markdown {
	struct page_writer writer;
	const char *base; /* URL */
	bool in_article;  /* images without words are shown, too */
	unsigned strong, emphasis, strike, links;
};

void markdown_node(struct page_markdown *m, const struct page_node *node);
void markdown_children(struct page_markdown *m, const struct page_node *node);
void markdown_table(struct page_markdown *m, const struct page_node *table);

/* Absolute, as Markdown takes it; NULL: it leads nowhere (javascript:), or there is no memory.  The
 * caller frees it. */
char *markdown_url(const char *base, const char *reference);
