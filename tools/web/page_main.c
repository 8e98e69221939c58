/* The main part of a page: tools/web/page_tree.h. */
#include <string.h>

#include "ops/support/cleanup.h"
#include "tools/web/page_tree.h"

enum { MAIN_PERCENT = 40, NAVIGATION_LINK_PERCENT = 50 };

static size_t count_visible(const char *text)
{
	size_t count = 0;

	for (; *text; text++)
		count += (unsigned char)*text > ' ';
	return count;
}

/* Sets text_bytes and link_bytes.  PAGE_DEPTH_MAX bounds the recursion. */
static void measure(struct page_node *node, bool in_link)
{
	in_link = in_link || page_is(node, "a");
	if (!node->name) {
		node->text_bytes = count_visible(node->text);
		node->link_bytes = in_link ? node->text_bytes : 0;
		return;
	}
	if (page_is(node, "title"))
		return;
	for (struct page_node *child = node->first; child; child = child->next) {
		measure(child, in_link);
		node->text_bytes += child->text_bytes;
		node->link_bytes += child->link_bytes;
	}
}

static bool is_main(const struct page_node *node)
{
	const char *role = node->name ? page_attribute(node, "role") : NULL;

	return page_is(node, "main") || page_is(node, "article") ||
	       (role && strcmp(role, "main") == 0);
}

/* Finds and counts the outermost main elements with enough text. */
static void find_main(
	struct page_node *node, size_t least_bytes, struct page_node **found, size_t *count)
{
	if (node->text_bytes < least_bytes)
		return;
	if (is_main(node)) {
		*found = node;
		++*count;
		return;
	}
	for (struct page_node *child = node->first; child; child = child->next)
		find_main(child, least_bytes, found, count);
}

static bool is_navigation(const struct page_node *node)
{
	static const char *const names[] = {"nav", "header", "footer", "aside"};

	for (size_t i = 0; i < array_size(names); i++)
		if (page_is(node, names[i]))
			return node->link_bytes * 100 > node->text_bytes * NAVIGATION_LINK_PERCENT;
	return false;
}

static void leave_out_navigation(struct page_node *node)
{
	node->left_out = is_navigation(node);
	for (struct page_node *child = node->first; child && !node->left_out; child = child->next)
		leave_out_navigation(child);
}

struct page_node *page_main(struct page_tree *tree)
{
	struct page_node *found = NULL;
	size_t count = 0, least_bytes;

	measure(tree->root, false);
	least_bytes = tree->root->text_bytes * MAIN_PERCENT / 100 + 1;
	find_main(tree->root, least_bytes, &found, &count);
	if (count == 1)
		return found;
	leave_out_navigation(tree->root);
	return tree->root;
}
