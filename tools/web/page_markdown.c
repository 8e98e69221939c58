#include "tools/web/page_markdown.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "tools/web/page_pre.h"
#include "tools/web/libraries.h"

/* ---- Links -------------------------------------------------------------------------- */

/* Percent-encodes the characters that a URL must not contain. */
static char *encode(const char *reference)
{
	struct buffer encoded cleanup_buffer = {0};
	bool has_host = strstr(reference, "://[") != NULL;
	int r = 0;

	for (; *reference && r == 0; reference++) {
		unsigned char c = (unsigned char)*reference;

		if (c == '\n' || c == '\r' || c == '\t')
			continue;
		if (c <= ' ' || c >= 0x7f || strchr("\"<>\\^`{|}", c) ||
			(!has_host && (c == '[' || c == ']')))
			r = buffer_printf(&encoded, "%%%02X", c);
		else
			r = buffer_append(&encoded, &c, 1);
	}
	return r < 0 ? NULL : buffer_steal_string(&encoded);
}

static bool leads_nowhere(const char *url)
{
	static const char *const schemes[] = {
		"javascript:", "data:", "vbscript:", "blob:", "about:"};

	for (size_t i = 0; i < array_size(schemes); i++)
		if (strncasecmp(url, schemes[i], strlen(schemes[i])) == 0)
			return true;
	return false;
}

/* Encodes unbalanced parentheses, which would end a Markdown link. */
static char *balance(const char *url)
{
	struct buffer balanced cleanup_buffer = {0};
	int open = 0, r = 0;

	for (const char *at = url; *at && open >= 0; at++)
		open += *at == '(' ? 1 : *at == ')' ? -1 : 0;
	if (open == 0)
		return strdup(url);
	for (; *url && r == 0; url++)
		r = *url == '('   ? buffer_append_string(&balanced, "%28")
		    : *url == ')' ? buffer_append_string(&balanced, "%29")
				  : buffer_append(&balanced, url, 1);
	return r < 0 ? NULL : buffer_steal_string(&balanced);
}

char *markdown_url(const char *base, const char *reference)
{
	cleanup_free char *encoded = NULL;
	xmlChar *absolute;
	char *url;

	while (*reference && isspace((unsigned char)*reference))
		reference++;
	encoded = encode(reference);
	while (encoded && strlen(encoded) > 3 && strcmp(encoded + strlen(encoded) - 3, "%20") == 0)
		encoded[strlen(encoded) - 3] = '\0';
	if (!encoded || leads_nowhere(encoded))
		return NULL;
	absolute = xmlBuildURI((const xmlChar *)encoded, (const xmlChar *)base);
	url = balance(absolute ? (const char *)absolute : encoded);
	xmlFree(absolute);
	return url;
}

static bool is_permalink(const struct page_node *node, const char *href)
{
	static const char *const texts[] = {"#", "¶", "§", "🔗"};
	const struct page_node *child = node->first;

	if (*href != '#')
		return false;
	if (!child)
		return true;
	for (size_t i = 0; i < array_size(texts); i++)
		if (!child->next && child->text && strcmp(child->text, texts[i]) == 0)
			return true;
	return false;
}

static void link_without_text(
	struct page_markdown *m, const struct page_node *node, const char *url)
{
	const char *label = page_attribute(node, "aria-label");

	if (!label)
		label = page_attribute(node, "title");
	writer_mark(&m->writer, "[", url);
	writer_text(&m->writer, label && *label ? label : "link");
	writer_unmark(&m->writer);
}

static void link_element(struct page_markdown *m, const struct page_node *node)
{
	const char *href = page_attribute(node, "href");
	cleanup_free char *url = NULL, *close = NULL;

	if (href && is_permalink(node, href))
		return;
	url = href && *href && !m->links && !m->writer.plain ? markdown_url(m->base, href) : NULL;
	if (!url) {
		markdown_children(m, node);
		return;
	}
	close = string_printf("](%s)", url);
	if (!close) {
		m->writer.error = -ENOMEM;
		return;
	}
	m->links++;
	writer_mark(&m->writer, "[", close);
	markdown_children(m, node);
	if (!writer_unmark(&m->writer))
		link_without_text(m, node, close);
	m->links--;
}

static void image(struct page_markdown *m, const struct page_node *node)
{
	const char *alt = page_attribute(node, "alt"), *source = page_attribute(node, "src");
	cleanup_free char *url = source && *source ? markdown_url(m->base, source) : NULL;
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *whole = NULL;

	if (!url || m->writer.plain) {
		if (alt)
			writer_text(&m->writer, alt);
		return;
	}
	if ((!alt || !*alt) && !m->in_article)
		return;
	buffer_append_string(&text, "![");
	for (const char *at = alt ? alt : ""; *at; at++)
		buffer_printf(&text, strchr("[]\\|", *at) ? "\\%c" : "%c", *at == '\n' ? ' ' : *at);
	buffer_printf(&text, "](%s)", url);
	whole = buffer_steal_string(&text);
	writer_atom(&m->writer, whole ? whole : "");
}

/* ---- Emphasis and code ------------------------------------------------------------------ */

static void emphasise(
	struct page_markdown *m, const struct page_node *node, unsigned *depth, const char *mark)
{
	bool marks = !*depth && !m->writer.plain && !m->writer.in_code && !m->writer.in_heading;

	++*depth;
	if (marks)
		writer_mark(&m->writer, mark, mark);
	markdown_children(m, node);
	if (marks)
		writer_unmark(&m->writer);
	--*depth;
}

static void strong(struct page_markdown *m, const struct page_node *node)
{
	emphasise(m, node, &m->strong, "**");
}

static void emphasis(struct page_markdown *m, const struct page_node *node)
{
	emphasise(m, node, &m->emphasis, "*");
}

static void strike(struct page_markdown *m, const struct page_node *node)
{
	emphasise(m, node, &m->strike, "~~");
}

static void code(struct page_markdown *m, const struct page_node *node)
{
	writer_code(&m->writer, true);
	markdown_children(m, node);
	writer_code(&m->writer, false);
}

static void quotation(struct page_markdown *m, const struct page_node *node)
{
	writer_text(&m->writer, "“");
	markdown_children(m, node);
	writer_text(&m->writer, "”");
}

static const struct page_node *find_tex(const struct page_node *node)
{
	const char *encoding =
		page_is(node, "annotation") ? page_attribute(node, "encoding") : NULL;

	if (encoding && strcmp(encoding, "application/x-tex") == 0)
		return node->first;
	for (const struct page_node *child = node->first; child; child = child->next) {
		const struct page_node *found = find_tex(child);

		if (found)
			return found;
	}
	return NULL;
}

static void math(struct page_markdown *m, const struct page_node *node)
{
	const struct page_node *tex = find_tex(node);
	cleanup_free char *text = NULL;

	if (!tex || !tex->text) {
		markdown_children(m, node);
		return;
	}
	text = string_printf("$%s$", tex->text);
	for (char *at = text; at && *at; at++)
		*at = *at == '\n' ? ' ' : *at;
	writer_atom(&m->writer, text ? text : "");
}

/* ---- Blocks --------------------------------------------------------------------------------- */

static void heading(struct page_markdown *m, const struct page_node *node)
{
	static const char *const marks[] = {"# ", "## ", "### ", "#### ", "##### ", "###### "};
	struct page_writer *w = &m->writer;

	writer_break(w, 2);
	writer_push(w, w->plain ? NULL : marks[node->name[1] - '1'], "");
	w->in_heading++;
	markdown_children(m, node);
	writer_flush_code(w);
	w->in_heading--;
	writer_pop(w);
	writer_break(w, 2);
}

static void item(struct page_markdown *m, const struct page_node *node, const char *marker)
{
	static const char indent[] = "            ";
	size_t length = strlen(marker);
	struct page_writer *w = &m->writer;

	writer_break(w, 1);
	writer_push(w, marker, indent + sizeof(indent) - 1 - length);
	markdown_children(m, node);
	writer_flush_code(w);
	writer_pop(w);
	/* The next item follows without a blank line, whatever block this one ended with. */
	writer_suspend(w);
	w->pending_lines = w->pending_lines ? 1 : 0;
	writer_break(w, 1);
}

static void list(struct page_markdown *m, const struct page_node *node)
{
	const char *start = page_attribute(node, "start");
	long number = start ? strtol(start, NULL, 10) : 1;
	unsigned lines = page_is(node->parent, "li") ? 1 : 2;
	bool ordered = page_is(node, "ol");
	char marker[24];

	number = number < 0 || number > 999999 ? 1 : number;
	writer_break(&m->writer, lines);
	for (const struct page_node *child = node->first; child; child = child->next) {
		if (!page_is(child, "li")) {
			markdown_node(m, child);
			continue;
		}
		snprintf(marker, sizeof(marker), "%ld. ", number++);
		item(m, child, ordered ? marker : "- ");
	}
	writer_break(&m->writer, lines);
}

static void lone_item(struct page_markdown *m, const struct page_node *node)
{
	item(m, node, "- ");
}

static void definition(struct page_markdown *m, const struct page_node *node)
{
	item(m, node, m->writer.plain ? "  " : ": ");
}

static void quote(struct page_markdown *m, const struct page_node *node)
{
	writer_break(&m->writer, 2);
	writer_push(&m->writer, NULL, "> ");
	markdown_children(m, node);
	writer_flush_code(&m->writer);
	writer_pop(&m->writer);
	writer_break(&m->writer, 2);
}

static void rule(struct page_markdown *m, const struct page_node *node)
{
	(void)node;
	if (!m->writer.in_heading && !m->writer.in_cell && !m->writer.plain)
		writer_verbatim(&m->writer, "---", NULL, NULL);
	else
		writer_break(&m->writer, 2);
}

static void line_break(struct page_markdown *m, const struct page_node *node)
{
	writer_line_break(&m->writer);
	markdown_children(m, node);
}

static void article(struct page_markdown *m, const struct page_node *node)
{
	bool before = m->in_article;

	m->in_article = true;
	writer_break(&m->writer, 2);
	markdown_children(m, node);
	writer_break(&m->writer, 2);
	m->in_article = before;
}

static void nothing(struct page_markdown *m, const struct page_node *node)
{
	(void)m;
	(void)node;
}

static const struct {
	const char *name;
	void (*write)(struct page_markdown *m, const struct page_node *node);
} handlers[] = {
	{"a", link_element},
	{"article", article},
	{"b", strong},
	{"blockquote", quote},
	{"br", line_break},
	{"code", code},
	{"dd", definition},
	{"del", strike},
	{"em", emphasis},
	{"h1", heading},
	{"h2", heading},
	{"h3", heading},
	{"h4", heading},
	{"h5", heading},
	{"h6", heading},
	{"hr", rule},
	{"i", emphasis},
	{"img", image},
	{"kbd", code},
	{"li", lone_item},
	{"math", math},
	{"menu", list},
	{"ol", list},
	{"pre", markdown_pre},
	{"q", quotation},
	{"s", strike},
	{"samp", code},
	{"strike", strike},
	{"strong", strong},
	{"table", markdown_table},
	{"title", nothing},
	{"tt", code},
	{"ul", list},
};

void markdown_children(struct page_markdown *m, const struct page_node *node)
{
	for (const struct page_node *child = node->first; child; child = child->next)
		markdown_node(m, child);
}

void markdown_node(struct page_markdown *m, const struct page_node *node)
{
	unsigned lines;

	if (node->left_out || m->writer.error)
		return;
	if (!node->name) {
		writer_text(&m->writer, node->text);
		return;
	}
	if (page_is_gutter(node))
		return;
	for (size_t i = 0; i < array_size(handlers); i++) {
		if (*handlers[i].name == *node->name && strcmp(handlers[i].name, node->name) == 0) {
			handlers[i].write(m, node);
			return;
		}
	}
	lines = node->layout == PAGE_PARAGRAPH ? 2 : node->layout == PAGE_LINE ? 1 : 0;
	if (lines)
		writer_break(&m->writer, lines);
	markdown_children(m, node);
	if (lines)
		writer_break(&m->writer, lines);
}
