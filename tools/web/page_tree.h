/*
 * tools/web/page_tree.h - a parsed page, without elements that are never shown.
 *
 * Nesting is bounded: deeper elements become children of the element at the bound.
 * Threads: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { PAGE_DEPTH_MAX = 256 };

/* How an element breaks the text around it. */
enum page_layout { PAGE_INLINE, PAGE_LINE, PAGE_PARAGRAPH };

struct page_node {
	const char *name; /* in lower case; NULL: text */
	const char *text; /* NUL-terminated */
	struct page_attribute *attributes;
	struct page_node *parent, *first, *last, *next;
	size_t text_bytes; /* of the text below it, without blanks */
	size_t link_bytes; /* the part of text_bytes that is in links */
	enum page_layout layout;
	bool left_out; /* not in the main part */
};

struct page_attribute {
	const char *name, *value;
	struct page_attribute *next;
};

struct page_tree {
	struct page_node *root;
	const char *title; /* NULL: none */
	const char *base;  /* of <base href>; NULL: none */
	struct page_arena *arena;
};

/* 0 or -ENOMEM. */
int page_tree_parse(const char *html, size_t size, struct page_tree *ret_tree);
void page_tree_free(struct page_tree *tree);

/* The value of the attribute; NULL: the element does not have it. */
const char *page_attribute(const struct page_node *node, const char *name);
bool page_is(const struct page_node *node, const char *name);

/* Whether the word is in the element's class attribute. */
bool page_has_class(const struct page_node *node, const char *word);

/* The subtree with the main part.  If no single element is the main part, returns the root, and
 * sets `left_out` in its navigation. */
struct page_node *page_main(struct page_tree *tree);
