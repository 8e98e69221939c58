#include "tools/web/page_escape.h"

#include <ctype.h>
#include <string.h>

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

/* The length of the text at the start of a line that makes it a heading, a list item or a rule; the
 * backslash is inserted before its last byte.  0: none. */
static size_t line_marker(const char *word, size_t size, char after)
{
	bool ends = after == ' ' || after == '\0';
	size_t run = 1, digits = 0;

	while (run < size && word[run] == word[0])
		run++;
	if (word[0] == '>')
		return 1;
	if (word[0] == '#')
		return run <= 6 && run == size && ends;
	if (word[0] == '-' || word[0] == '+')
		return run == size && ends && (run == 1 || word[0] == '-');
	if (word[0] == '=')
		return run == size && ends;
	while (digits < size && isdigit((unsigned char)word[digits]))
		digits++;
	if (digits && digits < 10 && digits + 1 == size && ends &&
		(word[digits] == '.' || word[digits] == ')'))
		return digits + 1;
	return 0;
}

static bool is_entity(const char *at, size_t size)
{
	size_t length = 1;

	while (length < size && (isalnum((unsigned char)at[length]) || at[length] == '#'))
		length++;
	return length > 1 && length < size && at[length] == ';';
}

static bool needs_escape(
	const char *at, size_t left, char before, char after, const struct page_escape *around)
{
	switch (*at) {
	case '\\':
		return after == '\0' || ispunct((unsigned char)after);
	case '`':
		return true;
	case '*':
		return before != ' ' || after != ' ';
	case '_':
		return !(is_word(before) && is_word(after)) && (before != ' ' || after != ' ');
	case '[':
		return around->in_link;
	case ']':
		return around->in_link || after == '\0' || strchr("([:", after);
	case '<':
		return after == '\0' || isalpha((unsigned char)after) || strchr("/!?", after);
	case '~':
		return after == '~' || before == '~';
	case '|':
		return around->in_cell;
	case '&':
		return is_entity(at, left);
	default:
		return false;
	}
}

int page_escape(struct buffer *out, const char *word, size_t size, const struct page_escape *around)
{
	size_t marker = around->at_line_start ? line_marker(word, size, around->after) : 0;
	char before = around->before;
	int r = 0;

	for (size_t i = 0; i < size && r == 0; i++) {
		size_t plain = 0;

		while (!marker && i + plain < size && !strchr("\\`*_[]<~|&", word[i + plain]))
			plain++;
		if (plain) {
			r = buffer_append(out, word + i, plain);
			i += plain - 1;
			before = word[i];
			continue;
		}
		if (i + 1 == marker || needs_escape(word + i, size - i, before,
					       i + 1 < size ? word[i + 1] : around->after, around))
			r = buffer_append_string(out, "\\");
		if (r == 0)
			r = buffer_append(out, word + i, 1);
		before = word[i];
		if (i + 1 == marker)
			marker = 0;
	}
	return r;
}

int page_escape_last(struct buffer *out)
{
	uint8_t last = out->data[out->size - 1];
	int r = buffer_append(out, &last, 1);

	if (r == 0)
		out->data[out->size - 2] = '\\';
	return r;
}
