#include "tools/web/page_pre.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { LINKS_MAX = 200, LANGUAGE_MAX_BYTES = 30 };

bool page_is_gutter(const struct page_node *node)
{
	static const char *const words[] = {"gutter", "linenos", "lineno", "line-number",
		"line-numbers", "line-numbers-rows", "hljs-ln-numbers", "blob-num",
		"src-line-numbers"};

	for (size_t i = 0; i < array_size(words); i++)
		if (page_has_class(node, words[i]))
			return !page_is(node, "pre") && !page_is(node, "code");
	return false;
}

/* Collects the text of the source; the first line end after <pre> does not count. */
static int collect(const struct page_node *node, struct buffer *text)
{
	int r = 0;

	for (const struct page_node *child = node->first; child && r == 0; child = child->next) {
		bool is_block = child->name && child->layout != PAGE_INLINE;

		if (child->name && page_is_gutter(child))
			continue;
		if (is_block && text->size && text->data[text->size - 1] != '\n')
			r = buffer_append_string(text, "\n");
		if (r < 0)
			return r;
		if (!child->name)
			r = buffer_append_string(text, child->text);
		else if (page_is(child, "br"))
			r = buffer_append_string(text, "\n");
		else
			r = collect(child, text);
	}
	return r;
}

static size_t longest_run(const char *text)
{
	size_t longest = 0;

	for (; *text; text += *text != '\0') {
		size_t run = strspn(text, "`");

		longest = run > longest ? run : longest;
		text += run;
	}
	return longest;
}

/* The language in a class attribute; returns its length, 0: none. */
static size_t language_of(const struct page_node *node, const char **ret_language)
{
	static const char *const starts[] = {"language-", "lang-", "highlight-source-", "brush: "};
	const char *classes = node->name ? page_attribute(node, "class") : NULL;

	for (size_t i = 0; classes && i < array_size(starts); i++) {
		const char *at = strstr(classes, starts[i]);
		size_t length;

		if (!at || (at > classes && at[-1] != ' '))
			continue;
		*ret_language = at += strlen(starts[i]);
		length = strspn(
			at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+#-_.");
		if (length && length <= LANGUAGE_MAX_BYTES)
			return length;
	}
	return 0;
}

static size_t find_language(const struct page_node *node, const char **ret_language)
{
	size_t length = language_of(node, ret_language);
	const struct page_node *at = node->first;

	while (at && !length) {
		length = language_of(at, ret_language);
		at = at->next;
	}
	at = node->parent;
	for (int i = 0; i < 3 && at && !length; i++, at = at->parent)
		length = language_of(at, ret_language);
	return length;
}

struct pre_links {
	char *urls[LINKS_MAX];
	size_t count;
};

static bool take_link(struct pre_links *links, char *url)
{
	for (size_t i = 0; i < links->count; i++)
		if (strcmp(links->urls[i], url) == 0)
			return false;
	if (links->count == LINKS_MAX)
		return false;
	links->urls[links->count++] = url;
	return true;
}

static void write_links(
	struct page_markdown *m, const struct page_node *node, struct pre_links *links)
{
	for (const struct page_node *child = node->first; child; child = child->next) {
		const char *href = page_is(child, "a") ? page_attribute(child, "href") : NULL;
		struct buffer text cleanup_buffer = {0};
		cleanup_free char *url = NULL, *close = NULL, *label = NULL;

		if (!href || *href == '#') {
			write_links(m, child, links);
			continue;
		}
		url = markdown_url(m->base, href);
		label = collect(child, &text) < 0 ? NULL : buffer_steal_string(&text);
		/* The text of the link shows its URL. */
		if (!url || !label || strcmp(label, href) == 0 || strcmp(label, url) == 0)
			continue;
		close = string_printf("](%s)", url);
		if (!close || !take_link(links, url))
			continue;
		url = NULL; /* kept in `links` */
		writer_text(&m->writer, links->count == 1 ? "Links: " : ", ");
		writer_mark(&m->writer, "[", close);
		writer_text(&m->writer, *label ? label : "link");
		writer_unmark(&m->writer);
	}
}

/* Writes the links of a code block after it, as Markdown has none inside. */
static void links_of(struct page_markdown *m, const struct page_node *node)
{
	struct pre_links *links = m->writer.plain ? NULL : calloc(1, sizeof(*links));

	if (!links)
		return;
	write_links(m, node, links);
	writer_break(&m->writer, 2);
	for (size_t i = 0; i < links->count; i++)
		free(links->urls[i]);
	free(links);
}

void markdown_pre(struct page_markdown *m, const struct page_node *node)
{
	struct buffer raw cleanup_buffer = {0};
	cleanup_free char *text = NULL, *opening = NULL, *closing = NULL;
	const char *language = NULL, *start;
	size_t length = find_language(node, &language), fence;

	if (m->writer.in_heading || m->writer.in_cell || m->writer.in_code) {
		markdown_children(m, node);
		return;
	}
	text = collect(node, &raw) < 0 ? NULL : buffer_steal_string(&raw);
	if (!text) {
		m->writer.error = -ENOMEM;
		return;
	}
	for (size_t end = strlen(text); end && isspace((unsigned char)text[end - 1]); end--)
		text[end - 1] = '\0';
	start = text + (*text == '\n');
	if (!*start)
		return;
	fence = longest_run(start) + 1;
	fence = fence < 3 ? 3 : fence;
	closing = malloc(fence + 1);
	if (closing) {
		memset(closing, '`', fence);
		closing[fence] = '\0';
		opening = string_printf("%s%.*s", closing, (int)length, length ? language : "");
	}
	writer_verbatim(&m->writer, start, m->writer.plain ? NULL : opening,
		m->writer.plain ? NULL : closing);
	links_of(m, node);
}
