#include "tools/shell/shell_parse_internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "ops/support/visible.h"

/* ---- Memory of a tree ----------------------------------------- */

enum { BLOCK_BYTES = 4000 };

struct shell_block {
	struct shell_block *next;
	size_t used, size;
	_Alignas(max_align_t) char bytes[];
};

void *parser_fail(struct parser *p, const char *problem)
{
	if (!p->problem)
		p->problem = problem;
	return NULL;
}

bool parser_failed(const struct parser *p)
{
	return p->problem || p->no_memory;
}

void *parser_take(struct parser *p, size_t size)
{
	struct shell_block *block = p->memory;
	void *taken;

	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (!block || block->size - block->used < size) {
		size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;

		block = calloc(1, sizeof(*block) + room);
		if (!block) {
			p->no_memory = true;
			return NULL;
		}
		block->size = room;
		block->next = p->memory;
		p->memory = block;
	}
	taken = block->bytes + block->used;
	block->used += size;
	return taken;
}

char *parser_take_text(struct parser *p, const char *text, size_t size)
{
	char *copy = parser_take(p, size + 1);

	if (copy && size)
		memcpy(copy, text, size);
	return copy;
}

void shell_tree_done(struct shell_tree *tree)
{
	while (tree->memory) {
		struct shell_block *next = tree->memory->next;

		free(tree->memory);
		tree->memory = next;
	}
	tree->commands = NULL;
}

int shell_tree_replace(struct shell_tree *tree, struct shell_token *token, const char *text)
{
	struct shell_block *block =
		calloc(1, sizeof(*block) + sizeof(struct shell_part) + strlen(text) + 1);
	struct shell_part *part;

	if (!block)
		return -ENOMEM;
	block->next = tree->memory;
	tree->memory = block;
	part = (struct shell_part *)block->bytes;
	part->text = strcpy((char *)(part + 1), text);
	token->parts = part;
	return 0;
}

/* ---- Characters ----------------------------------------- */

char parser_peek(const struct parser *p, size_t ahead)
{
	return (size_t)(p->end - p->at) > ahead ? p->at[ahead] : '\0';
}

bool parser_looking_at(const struct parser *p, const char *text)
{
	size_t length = strlen(text);

	return (size_t)(p->end - p->at) >= length && memcmp(p->at, text, length) == 0;
}

bool parser_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

bool parser_ends_word(char c)
{
	return !c || strchr(" \t\n;&|()<>", c);
}

static bool is_name_start(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool parser_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

size_t parser_name_length(const char *text, const char *end)
{
	size_t length = 0;

	if (text < end && is_name_start(*text))
		while (text + length < end &&
			(is_name_start(text[length]) || parser_is_digit(text[length])))
			length++;
	return length;
}

/* The code point of a valid UTF-8 sequence. */
static uint32_t code_point(const char *text, size_t length)
{
	uint32_t code = (unsigned char)*text & (length == 1 ? 0x7fU : 0xffU >> (length + 1));

	for (size_t i = 1; i < length; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3fU);
	return code;
}

const char *parser_check_characters(const char *line, size_t size)
{
	if (!utf8_is_clean(line, size))
		return "it is not valid UTF-8";
	for (size_t i = 0, length; i < size; i += length) {
		length = utf8_sequence((const uint8_t *)line + i, size - i);
		if (line[i] != '\n' && line[i] != '\t' &&
			visible_hides(code_point(line + i, length)))
			return "it has control characters or invisible ones in it";
	}
	return NULL;
}

void parser_skip_blanks(struct parser *p)
{
	while (!parser_failed(p)) {
		if (parser_is_blank(parser_peek(p, 0))) {
			p->at++;
		} else if (parser_looking_at(p, "\\\n")) {
			if ((p->at > p->start && !isspace((unsigned char)p->at[-1])) ||
				parser_peek(p, 2) == '#' || p->heredoc)
				parser_fail(p, "it continues a line in an unusual place");
			p->at += 2;
		} else if (parser_peek(p, 0) == '#') {
			const char *line_end = memchr(p->at, '\n', (size_t)(p->end - p->at));

			p->at = line_end ? line_end : p->end;
			if (p->at[-1] == '\\')
				parser_fail(p, "it has a comment that ends in a backslash");
			return;
		} else {
			return;
		}
	}
}

/* ---- Here-documents ----------------------------------------- */

/* Reads the text of a here-document from `at`, the beginning of a line.  It is printed as a
 * here-string, which adds a line end, so the text loses its last one; an empty text becomes
 * /dev/null. */
static void read_heredoc(struct parser *p, struct heredoc *heredoc)
{
	struct shell_part *part = heredoc->redirection->target->parts;
	struct buffer text cleanup_buffer = {0};

	for (;;) {
		const char *line_end = memchr(p->at, '\n', (size_t)(p->end - p->at)), *line;

		if (p->at == p->end) {
			parser_fail(p, "it has a here-document without an end");
			return;
		}
		line_end = line_end ? line_end : p->end;
		while (heredoc->tabs && parser_peek(p, 0) == '\t')
			p->at++;
		line = p->at;
		p->at = line_end < p->end ? line_end + 1 : line_end;
		if ((size_t)(line_end - line) == strlen(heredoc->end) &&
			memcmp(line, heredoc->end, (size_t)(line_end - line)) == 0)
			break;
		if (buffer_append(&text, line, (size_t)(line_end - line)) < 0 ||
			buffer_append(&text, "\n", 1) < 0)
			p->no_memory = true;
		if (p->no_memory)
			return;
	}
	if (!heredoc->literal && text.size &&
		(memchr(text.data, '$', text.size) || memchr(text.data, '`', text.size) ||
			memchr(text.data, '\\', text.size))) {
		parser_fail(p, "it has a here-document with expansions");
		return;
	}
	if (!text.size)
		heredoc->redirection->type = SHELL_READ_FILE;
	part->text = text.size ? parser_take_text(p, (const char *)text.data, text.size - 1)
			       : parser_take_text(p, "/dev/null", 9);
}

static void skip_line_end(struct parser *p)
{
	p->at++;
	if (p->heredoc)
		read_heredoc(p, p->heredoc);
	p->heredoc = NULL;
}

void parser_skip_blanks_and_line_ends(struct parser *p)
{
	parser_skip_blanks(p);
	while (!parser_failed(p) && parser_peek(p, 0) == '\n') {
		skip_line_end(p);
		parser_skip_blanks(p);
	}
}
