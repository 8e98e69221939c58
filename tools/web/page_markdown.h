/*
 * tools/web/page_markdown.h - converts elements of a page to Markdown.
 * Threads: none.
 */
#pragma once

#include "tools/web/page_tree.h"
#include "tools/web/page_writer.h"

struct page_markdown {
	struct page_writer writer;
	const char *base; /* URL */
	bool in_article;  /* show images without alternative text as well */
	unsigned strong, emphasis, strike, links;
};

void markdown_node(struct page_markdown *m, const struct page_node *node);
void markdown_children(struct page_markdown *m, const struct page_node *node);
void markdown_table(struct page_markdown *m, const struct page_node *table);

/* The absolute URL in the form that Markdown needs; the caller frees it.  NULL: it has no target
 * (javascript:), or there is no memory. */
char *markdown_url(const char *base, const char *reference);
