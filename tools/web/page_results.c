#include "tools/web/page_results.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "tools/web/page_tree.h"

static int collect(const struct page_node *node, struct buffer *text)
{
	int r = node->name ? 0 : buffer_append_string(text, node->text);

	for (const struct page_node *child = node->first; child && r == 0; child = child->next)
		r = collect(child, text);
	return r;
}

static const struct page_node *find_class(const struct page_node *node, const char *word)
{
	const struct page_node *found = page_has_class(node, word) ? node : NULL;

	for (const struct page_node *child = node->first; child && !found; child = child->next)
		found = find_class(child, word);
	return found;
}

static void decode(char *text)
{
	char *to = text;

	for (; *text && *text != '&'; text++, to++) {
		char digits[3] = {text[0] == '%' ? text[1] : '\0', text[1] ? text[2] : '\0', '\0'};

		*to = *text;
		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
			continue;
		*to = (char)strtoul(digits, NULL, 16);
		text += 2;
	}
	*to = '\0';
}

/* The target of a result: direct, or in the parameter "uddg" of DuckDuckGo's redirect. */
static char *target_of(const char *href)
{
	const char *inner = strstr(href, "duckduckgo.com/l/?") ? strstr(href, "uddg=") : NULL;
	char *url = strdup(inner ? inner + 5 : href);

	if (url && inner)
		decode(url);
	return utf8_repair(url);
}

static int add_result(const struct page_node *node, cJSON *list)
{
	const struct page_node *link = find_class(node, "result__a");
	const struct page_node *snippet = find_class(node, "result__snippet");
	const char *href = link ? page_attribute(link, "href") : NULL;
	struct buffer title cleanup_buffer = {0}, text cleanup_buffer = {0};
	cleanup_free char *url = href ? target_of(href) : NULL;
	cJSON *result;

	if (!href)
		return 0;
	if (!url || collect(link, &title) < 0 || (snippet && collect(snippet, &text) < 0) ||
		buffer_append(&title, "", 1) < 0 || buffer_append(&text, "", 1) < 0)
		return -ENOMEM;
	result = cJSON_CreateObject();
	cJSON_AddStringToObject(result, "title", (const char *)title.data);
	cJSON_AddStringToObject(result, "url", url);
	cJSON_AddStringToObject(result, "snippet", (const char *)text.data);
	cJSON_AddItemToArray(list, result);
	return 0;
}

static int add_results(const struct page_node *node, cJSON *list)
{
	int r = 0;

	if (page_has_class(node, "result"))
		return page_has_class(node, "result--ad") ? 0 : add_result(node, list);
	for (const struct page_node *child = node->first; child && r == 0; child = child->next)
		r = add_results(child, list);
	return r;
}

int page_results(const char *html, size_t size, struct buffer *out)
{
	struct page_tree tree = {0};
	cleanup_free char *text = NULL;
	cJSON *list = NULL;
	int r = page_tree_parse(html, size, &tree);

	if (r < 0)
		return r;
	/* A page without results also has the list. */
	if (find_class(tree.root, "results") || find_class(tree.root, "result") ||
		find_class(tree.root, "no-results")) {
		list = cJSON_CreateArray();
		r = add_results(tree.root, list);
	}
	text = list ? cJSON_PrintUnformatted(list) : strdup("null");
	cJSON_Delete(list);
	page_tree_free(&tree);
	if (r == 0)
		r = text ? buffer_append_string(out, text) : -ENOMEM;
	return r;
}
