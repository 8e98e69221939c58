#include "tools/web/page.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "tools/syntax/syntax.h"
#include "tools/web/page_feed.h"
#include "tools/web/page_markdown.h"
#include "tools/web/page_results.h"
#include "tools/web/libraries.h"

enum { OUTPUT_MAX_BYTES = 32 << 20, TITLE_MAX_BYTES = 300, JSON_PRETTY_MAX_BYTES = 1 << 20 };

/* ---- The kind of a page ----------------------------------------------------------------- */

static bool type_is(const char *type, const char *word)
{
	size_t length = strlen(word);

	return strncasecmp(type, word, length) == 0 &&
	       (!type[length] || strchr("; \t", type[length]));
}

static bool type_ends(const char *type, const char *end)
{
	size_t length = strcspn(type, "; \t"), wanted = strlen(end);

	return length > wanted && strncasecmp(type + length - wanted, end, wanted) == 0;
}

static int kind_of_bytes(const char *bytes, size_t size)
{
	size_t look = size < 1024 ? size : 1024, at = 0;
	struct buffer head cleanup_buffer = {0};

	if (memchr(bytes, 0, look))
		return -1;
	while (at < look && isspace((unsigned char)bytes[at]))
		at++;
	buffer_append(&head, bytes + at, look - at);
	if (buffer_append(&head, "", 1) < 0)
		return PAGE_TEXT;
	return strcasestr((const char *)head.data, "<html") ||
			       strcasestr((const char *)head.data, "<!doctype html")
		       ? PAGE_HTML
		       : PAGE_TEXT;
}

int page_kind_of(const char *content_type, const void *bytes, size_t size)
{
	static const char *const texts[] = {"application/javascript", "application/x-javascript",
		"application/ecmascript", "application/xml", "application/yaml",
		"application/x-yaml", "application/toml", "application/x-sh", "application/sql",
		"application/graphql", "image/svg+xml", "application/x-ndjson",
		"application/jsonl"};
	const char *type = content_type ? content_type : "";

	type += strspn(type, " \t");
	if (!*type || type_is(type, "application/octet-stream") || type_is(type, "unknown/unknown"))
		return kind_of_bytes(bytes, size);
	if (type_is(type, "text/html") || type_is(type, "application/xhtml+xml"))
		return PAGE_HTML;
	if (type_is(type, "application/json") || type_ends(type, "+json"))
		return PAGE_JSON;
	if (type_is(type, "application/rss+xml") || type_is(type, "application/atom+xml"))
		return PAGE_FEED;
	if (type_is(type, "text/xml") || type_is(type, "application/xml"))
		return page_is_feed(bytes, size) ? PAGE_FEED : PAGE_TEXT;
	if (strncasecmp(type, "text/", 5) == 0 || type_ends(type, "+xml"))
		return PAGE_TEXT;
	for (size_t i = 0; i < array_size(texts); i++)
		if (type_is(type, texts[i]))
			return PAGE_TEXT;
	return -1;
}

/* ---- HTML --------------------------------------------------------------------------------- */

static char *tidy_title(const char *title)
{
	struct buffer tidy cleanup_buffer = {0};
	bool blank = false;

	for (; title && *title; title++) {
		if (isspace((unsigned char)*title)) {
			blank = true;
			continue;
		}
		if (tidy.size >= TITLE_MAX_BYTES && (*title & 0xc0) != 0x80)
			break;
		if (blank && tidy.size)
			buffer_append_string(&tidy, " ");
		buffer_append(&tidy, title, 1);
		blank = false;
	}
	return tidy.size ? buffer_steal_string(&tidy) : NULL;
}

static int write_tree(
	const struct page_request *request, struct page_tree *tree, struct buffer *out)
{
	struct page_markdown *m = calloc(1, sizeof(*m));
	bool whole = request->whole || request->format == PAGE_PLAIN;
	const struct page_node *node = whole ? tree->root : page_main(tree);
	cleanup_free char *base = tree->base ? markdown_url(request->base, tree->base) : NULL;
	int r;

	if (!m)
		return -ENOMEM;
	writer_init(&m->writer, out, request->format == PAGE_PLAIN);
	m->base = base ? base : request->base;
	m->in_article = node != tree->root;
	markdown_children(m, node);
	writer_flush_code(&m->writer);
	writer_suspend(&m->writer);
	r = m->writer.error;
	writer_done(&m->writer);
	free(m);
	return r < 0 ? r : buffer_append_string(out, out->size ? "\n" : "");
}

static int convert_html(const struct page_request *request, struct buffer *out, char **ret_title)
{
	struct page_tree tree = {0};
	int r = page_tree_parse(request->text, request->size, &tree);

	if (r < 0)
		return r;
	*ret_title = tidy_title(tree.title);
	r = write_tree(request, &tree, out);
	page_tree_free(&tree);
	return r;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int new_line(struct buffer *out, size_t depth)
{
	int r = buffer_append_string(out, "\n");

	while (depth-- && r == 0)
		r = buffer_append_string(out, "  ");
	return r;
}

static size_t string_length(const char *text)
{
	size_t length = 1;

	while (text[length] && text[length] != '"')
		length += text[length] == '\\' && text[length + 1] ? 2 : 1;
	return length + (text[length] == '"');
}

/* Indents valid JSON; keeps the text of every number and string. */
static int indent(const char *text, struct buffer *out)
{
	size_t depth = 0;
	int r = 0;

	while (*text && r == 0) {
		size_t length = *text == '"' ? string_length(text) : 1;
		bool opens = *text == '{' || *text == '[', closes = *text == '}' || *text == ']';

		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		if (closes)
			r = new_line(out, --depth);
		if (r == 0)
			r = buffer_append(out, text, length);
		if (*text == ':' && r == 0)
			r = buffer_append_string(out, " ");
		text += length;
		if (opens) {
			size_t blanks = strspn(text, " \t\r\n");

			if (text[blanks] == '}' || text[blanks] == ']') {
				r = r < 0 ? r : buffer_append(out, text + blanks, 1);
				text += blanks + 1;
				continue;
			}
			depth++;
		}
		if ((opens || text[-1] == ',') && length == 1 && r == 0)
			r = new_line(out, depth);
	}
	return r < 0 ? r : buffer_append_string(out, "\n");
}

static int convert_json(const struct page_request *request, struct buffer *out)
{
	struct syntax_error error = {0};

	if (request->size > JSON_PRETTY_MAX_BYTES ||
		syntax_json(request->text, request->size, 0, &error) < 0)
		return buffer_append(out, request->text, request->size);
	return indent(request->text, out);
}

int page_convert(const struct page_request *request, struct buffer *out, char **ret_title)
{
	*ret_title = NULL;
	out->limit_bytes = OUTPUT_MAX_BYTES;
	if (request->format == PAGE_SOURCE)
		return buffer_append(out, request->text, request->size);
	if (web_load_xml(NULL) < 0)
		return -ELIBACC;
	switch (request->kind) {
	case PAGE_HTML:
		return convert_html(request, out, ret_title);
	case PAGE_FEED:
		return page_feed(request->text, request->size, out, ret_title);
	case PAGE_JSON:
		return convert_json(request, out);
	case PAGE_RESULTS:
		return page_results(request->text, request->size, out);
	case PAGE_TEXT:
		break;
	}
	return buffer_append(out, request->text, request->size);
}
