#include "tools/web/page_tree.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "ops/support/buffer.h"
#include "tools/web/libraries.h"

/* ---- Memory that is freed at once ---------------------------------------------------- */

enum { ARENA_BLOCK_BYTES = 256 << 10 };

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	max_align_t bytes[];
};

struct page_arena {
	struct arena_block *blocks;
};

static void *arena_take(struct page_arena *arena, size_t size)
{
	struct arena_block *block = arena->blocks;
	void *taken;

	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (!block || block->size - block->used < size) {
		size_t room = size > ARENA_BLOCK_BYTES ? size : ARENA_BLOCK_BYTES;

		block = malloc(sizeof(*block) + room);
		if (!block)
			return NULL;
		*block = (struct arena_block){.next = arena->blocks, .size = room};
		arena->blocks = block;
	}
	taken = (char *)block->bytes + block->used;
	block->used += size;
	return memset(taken, 0, size);
}

static char *arena_copy(struct page_arena *arena, const char *text, size_t size)
{
	char *copy = arena_take(arena, size + 1);

	return copy ? memcpy(copy, text, size) : NULL;
}

/* ---- Elements ------------------------------------------------------------------------- */

static const char *const dropped[] = {
	"script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "canvas"};

static const char *const kept_attributes[] = {"href", "src", "alt", "title", "class", "role",
	"start", "colspan", "rowspan", "encoding", "aria-label", "value", "type",
	"data-line-number"};

static const char *const paragraphs[] = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl",
	"pre", "blockquote", "table", "hr", "figure", "details", "fieldset", "menu", "div",
	"section", "article", "main", "nav", "header", "footer", "aside", "address", "body", "html",
	"form", "center", "hgroup", "search", "dialog", "head", "frameset", "noframes", "summary"};

static const char *const lines[] = {"li", "dt", "dd", "tr", "caption", "figcaption", "thead",
	"tbody", "tfoot", "td", "th", "option", "legend", "select", "title"};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

const char *page_attribute(const struct page_node *node, const char *name)
{
	for (const struct page_attribute *at = node->attributes; at; at = at->next)
		if (strcmp(at->name, name) == 0)
			return at->value;
	return NULL;
}

bool page_is(const struct page_node *node, const char *name)
{
	return node && node->name && strcmp(node->name, name) == 0;
}

bool page_has_class(const struct page_node *node, const char *word)
{
	const char *at = node->name ? page_attribute(node, "class") : NULL;
	size_t length = strlen(word);

	for (; at && (at = strstr(at, word)); at++)
		if ((at == page_attribute(node, "class") || at[-1] == ' ') &&
			(!at[length] || at[length] == ' '))
			return true;
	return false;
}

/* ---- Building --------------------------------------------------------------------------- */

struct builder {
	struct page_tree *tree;
	struct page_node *at;
	struct page_node *open[PAGE_DEPTH_MAX]; /* the value of `at` before each open element */
	size_t depth;
	size_t beyond;  /* number of open elements below the bound */
	size_t skipped; /* number of open elements in a dropped one, including it */
	struct buffer text;
	bool failed;
};

static void fail(struct builder *builder)
{
	builder->failed = true;
}

static struct page_node *add_node(struct builder *builder, struct page_node *parent)
{
	struct page_node *node = arena_take(builder->tree->arena, sizeof(*node));

	if (!node) {
		fail(builder);
		return NULL;
	}
	node->parent = parent;
	if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
	return node;
}

static void end_text(struct builder *builder)
{
	struct page_node *node;

	if (!builder->text.size)
		return;
	node = add_node(builder, builder->at);
	if (node)
		node->text = arena_copy(
			builder->tree->arena, (const char *)builder->text.data, builder->text.size);
	if (node && !node->text)
		fail(builder);
	builder->text.size = 0;
}

/* Adds a blank, so that words on both sides of a removed element stay separate. */
static void separate(struct builder *builder)
{
	struct buffer *text = &builder->text;

	if (!text->size || text->data[text->size - 1] != '\n')
		buffer_append_string(text, "\n");
}

static const char *sax_attribute(const xmlChar **attributes, const char *name)
{
	for (size_t i = 0; attributes && attributes[i]; i += 2)
		if (strcmp((const char *)attributes[i], name) == 0)
			return attributes[i + 1] ? (const char *)attributes[i + 1] : "";
	return NULL;
}

static bool is_hidden(const xmlChar **attributes)
{
	const char *aria = sax_attribute(attributes, "aria-hidden");
	const char *style = sax_attribute(attributes, "style");
	const char *display = style ? strcasestr(style, "display") : NULL;

	if (sax_attribute(attributes, "hidden") || (aria && strcasecmp(aria, "true") == 0))
		return true;
	if (!display)
		return false;
	display += strlen("display");
	display += strspn(display, " :");
	return strncasecmp(display, "none", 4) == 0;
}

static void add_attributes(
	struct builder *builder, struct page_node *node, const xmlChar **attributes)
{
	struct page_arena *arena = builder->tree->arena;

	for (size_t i = 0; attributes && attributes[i]; i += 2) {
		const char *value = attributes[i + 1] ? (const char *)attributes[i + 1] : "";
		struct page_attribute *kept;

		if (!is_one_of((const char *)attributes[i], kept_attributes,
			    array_size(kept_attributes)))
			continue;
		kept = arena_take(arena, sizeof(*kept));
		if (kept) {
			kept->name = arena_copy(arena, (const char *)attributes[i],
				strlen((const char *)attributes[i]));
			kept->value = arena_copy(arena, value, strlen(value));
		}
		if (!kept || !kept->name || !kept->value) {
			fail(builder);
			return;
		}
		kept->next = node->attributes;
		node->attributes = kept;
	}
}

/* The parent of a new element.  HTML may omit </dt> and </dd>, which the parser does not know. */
static struct page_node *parent_for(const struct builder *builder, const char *name)
{
	struct page_node *at = builder->at;

	if (strcmp(name, "dt") != 0 && strcmp(name, "dd") != 0)
		return at;
	while (at && !page_is(at, "dl")) {
		if (page_is(at, "dt") || page_is(at, "dd"))
			return at->parent;
		at = at->parent;
	}
	return builder->at;
}

static void start_element(void *user, const xmlChar *xml_name, const xmlChar **attributes)
{
	struct builder *builder = user;
	const char *name = (const char *)xml_name;
	struct page_node *node;

	if (builder->skipped || is_one_of(name, dropped, array_size(dropped)) ||
		is_hidden(attributes)) {
		builder->skipped++;
		return;
	}
	if (builder->depth >= PAGE_DEPTH_MAX) {
		builder->beyond++;
		separate(builder);
		return;
	}
	end_text(builder);
	node = builder->failed ? NULL : add_node(builder, parent_for(builder, name));
	if (!node)
		return;
	node->name = arena_copy(builder->tree->arena, name, strlen(name));
	if (!node->name) {
		fail(builder);
		return;
	}
	node->layout = is_one_of(name, paragraphs, array_size(paragraphs)) ? PAGE_PARAGRAPH
		       : is_one_of(name, lines, array_size(lines))         ? PAGE_LINE
									   : PAGE_INLINE;
	add_attributes(builder, node, attributes);
	if (strcmp(name, "base") == 0 && !builder->tree->base)
		builder->tree->base = page_attribute(node, "href");
	builder->open[builder->depth++] = builder->at;
	builder->at = node;
}

static void end_element(void *user, const xmlChar *name)
{
	struct builder *builder = user;
	struct page_node *node = builder->at;

	(void)name;
	if (builder->skipped) {
		builder->skipped--;
		return;
	}
	if (builder->beyond) {
		builder->beyond--;
		separate(builder);
		return;
	}
	end_text(builder);
	if (builder->failed || !builder->depth)
		return;
	if (page_is(node, "title") && !builder->tree->title && node->first)
		builder->tree->title = node->first->text;
	builder->at = builder->open[--builder->depth];
}

static void characters(void *user, const xmlChar *text, int size)
{
	struct builder *builder = user;

	if (!builder->skipped && buffer_append(&builder->text, text, (size_t)size) < 0)
		fail(builder);
}

static int parse(struct builder *builder, const char *html, size_t size)
{
	const int options = HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
			    HTML_PARSE_NONET | HTML_PARSE_IGNORE_ENC;
	htmlParserCtxtPtr context = htmlNewParserCtxt();

	if (!context)
		return -ENOMEM;
	memset(context->sax, 0, sizeof(*context->sax));
	context->sax->startElement = start_element;
	context->sax->endElement = end_element;
	context->sax->characters = characters;
	context->sax->ignorableWhitespace = characters;
	context->userData = builder;
	htmlCtxtReadMemory(context, html, (int)size, NULL, "UTF-8", options);
	htmlFreeParserCtxt(context);
	end_text(builder);
	buffer_done(&builder->text);
	return builder->failed ? -ENOMEM : 0;
}

int page_tree_parse(const char *html, size_t size, struct page_tree *ret_tree)
{
	struct page_tree tree = {.arena = calloc(1, sizeof(*tree.arena))};
	struct builder builder = {.tree = &tree};
	int r = -ENOMEM;

	if (tree.arena)
		tree.root = arena_take(tree.arena, sizeof(*tree.root));
	if (tree.root) {
		tree.root->name = "";
		builder.at = tree.root;
		r = parse(&builder, html, size);
	}
	if (r < 0)
		page_tree_free(&tree);
	else
		*ret_tree = tree;
	return r;
}

void page_tree_free(struct page_tree *tree)
{
	struct arena_block *block = tree->arena ? tree->arena->blocks : NULL;

	while (block) {
		struct arena_block *next = block->next;

		free(block);
		block = next;
	}
	free(tree->arena);
	*tree = (struct page_tree){0};
}
