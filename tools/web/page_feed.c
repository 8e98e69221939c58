#include "tools/web/page_feed.h"

#include <errno.h>
#include <string.h>

#include "tools/web/page_markdown.h"
#include "tools/web/libraries.h"

enum { SUMMARY_MAX_BYTES = 300, ROOT_BYTES = 4096 };

bool page_is_feed(const void *bytes, size_t size)
{
	size_t look = size < ROOT_BYTES ? size : ROOT_BYTES;

	return memmem(bytes, look, "<rss", 4) || memmem(bytes, look, "<feed", 5) ||
	       memmem(bytes, look, "<rdf:RDF", 8);
}

static const xmlNode *child_of(const xmlNode *node, const char *name)
{
	for (const xmlNode *child = node->children; child; child = child->next)
		if (child->type == XML_ELEMENT_NODE && strcmp((const char *)child->name, name) == 0)
			return child;
	return NULL;
}

static void flatten(const char *html, struct page_markdown *m)
{
	struct page_tree tree = {0};

	if (page_tree_parse(html, strlen(html), &tree) < 0)
		return;
	markdown_children(m, tree.root);
	page_tree_free(&tree);
}

/* Converts text that may be HTML to one line of plain text, at most max_bytes; "" for NULL. */
static char *plain(const xmlNode *node, size_t max_bytes)
{
	xmlChar *content = node ? xmlNodeGetContent(node) : NULL;
	struct page_markdown *m = calloc(1, sizeof(*m));
	struct buffer out cleanup_buffer = {0};

	if (content && m) {
		writer_init(&m->writer, &out, true);
		m->base = "";
		m->writer.in_heading = 1; /* one line */
		flatten((const char *)content, m);
		writer_flush_code(&m->writer);
		writer_done(&m->writer);
	}
	xmlFree(content);
	free(m);
	if (out.size > max_bytes) {
		out.size = max_bytes;
		while (out.size && (out.data[out.size] & 0xc0) == 0x80)
			out.size--;
		buffer_append_string(&out, "…");
	}
	return out.size ? buffer_steal_string(&out) : strdup("");
}

/* The text of <link>, or the href of the <link> to the item's page. */
static char *link_of(const xmlNode *item)
{
	char *url = NULL;

	for (const xmlNode *child = item->children; child && !url; child = child->next) {
		xmlChar *text = NULL, *relation;

		if (child->type != XML_ELEMENT_NODE ||
			strcmp((const char *)child->name, "link") != 0)
			continue;
		relation = xmlGetProp(child, (const xmlChar *)"rel");
		if (!relation || strcmp((const char *)relation, "alternate") == 0)
			text = xmlGetProp(child, (const xmlChar *)"href");
		if (!text && !relation)
			text = xmlNodeGetContent(child);
		if (text && *text)
			url = markdown_url("", (const char *)text);
		xmlFree(relation);
		xmlFree(text);
	}
	return url;
}

static int write_item(const xmlNode *item, struct buffer *out)
{
	static const char *const dates[] = {"pubDate", "published", "updated", "date"};
	static const char *const summaries[] = {"description", "summary", "content"};
	cleanup_free char *title = plain(child_of(item, "title"), SUMMARY_MAX_BYTES);
	cleanup_free char *url = link_of(item), *date = NULL, *summary = NULL;
	const xmlNode *found = NULL;
	int r;

	for (size_t i = 0; i < array_size(dates) && !found; i++)
		found = child_of(item, dates[i]);
	date = plain(found, 60);
	found = NULL;
	for (size_t i = 0; i < array_size(summaries) && !found; i++)
		found = child_of(item, summaries[i]);
	summary = plain(found, SUMMARY_MAX_BYTES);
	if (!title || !date || !summary)
		return -ENOMEM;
	r = url ? buffer_printf(out, "- [%s](%s)", *title ? title : url, url)
		: buffer_printf(out, "- %s", title);
	if (r == 0 && *date)
		r = buffer_printf(out, " — %s", date);
	if (r == 0 && *summary)
		r = buffer_printf(out, "\n  %s", summary);
	return r < 0 ? r : buffer_append_string(out, "\n");
}

static int write_items(const xmlNode *parent, struct buffer *out)
{
	int r = 0;

	for (const xmlNode *child = parent->children; child && r == 0; child = child->next)
		if (child->type == XML_ELEMENT_NODE &&
			(strcmp((const char *)child->name, "item") == 0 ||
				strcmp((const char *)child->name, "entry") == 0))
			r = write_item(child, out);
	return r;
}

int page_feed(const char *text, size_t size, struct buffer *out, char **ret_title)
{
	const int options =
		XML_PARSE_RECOVER | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NONET;
	xmlDoc *document = xmlReadMemory(text, (int)size, NULL, "UTF-8", options);
	const xmlNode *root = document ? xmlDocGetRootElement(document) : NULL;
	const xmlNode *channel = root ? child_of(root, "channel") : NULL;
	cleanup_free char *title = NULL;
	int r = 0;

	if (!root) {
		xmlFreeDoc(document);
		return buffer_append(out, text, size);
	}
	title = plain(child_of(channel ? channel : root, "title"), SUMMARY_MAX_BYTES);
	if (title && *title)
		r = buffer_printf(out, "# %s\n\n", title);
	if (r == 0 && channel)
		r = write_items(channel, out);
	/* In Atom and RSS 1.0 the items are children of the root. */
	if (r == 0)
		r = write_items(root, out);
	xmlFreeDoc(document);
	*ret_title = title && *title ? steal_ptr(&title) : NULL;
	return r;
}
