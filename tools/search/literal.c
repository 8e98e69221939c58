#include "tools/search/literal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/buffer.h"

enum { REPEATS_MAX = 32 };

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/* ---- Reading a pattern ------------------------------------------------------------ */

struct reader {
	const char *at;
	bool plain;
	bool ignore_case;
	struct buffer run;   /* consecutive literal characters */
	struct buffer *best; /* the longest run of the present alternative */
};

/* Ends the run, and keeps it if it is the longest of the alternative. */
static int end_run(struct reader *reader)
{
	size_t size = reader->run.size;

	reader->run.size = 0;
	if (size <= reader->best->size)
		return 0;
	reader->best->size = 0;
	return buffer_append(reader->best, reader->run.data, size);
}

/* Without regard to case, K and S have another form outside ASCII. */
static bool is_literal(const struct reader *reader, uint8_t c)
{
	if (c == '\n')
		return false;
	if (!reader->ignore_case)
		return c < 0x80 || reader->plain;
	return c < 0x80 && lower(c) != 'k' && lower(c) != 's';
}

/* How often the character before `at` is repeated at least, up to REPEATS_MAX. */
static unsigned long least_times(const char *at)
{
	const char digits[] = "0123456789";
	const char *end;
	unsigned long times;

	if (*at != '{')
		return *at == '?' || *at == '*' ? 0 : 1;
	end = at + 1 + strspn(at + 1, digits);
	if (*end == ',')
		end += 1 + strspn(end + 1, digits);
	if (*end != '}' || !strchr(digits, at[1]))
		return 1; /* a literal brace */
	times = strtoul(at + 1, NULL, 10);
	return times < REPEATS_MAX ? times : REPEATS_MAX;
}

/* Adds a literal character and reads its quantifier; `at` is after the character. */
static int take_character(struct reader *reader, char c)
{
	uint8_t byte = reader->ignore_case ? lower((uint8_t)c) : (uint8_t)c;
	bool repeated = !reader->plain && *reader->at && strchr("?*+{", *reader->at);
	unsigned long times = repeated ? least_times(reader->at) : 1;
	int r = 0;

	if (!is_literal(reader, byte) || times == 0)
		return end_run(reader);
	for (; times > 0 && r == 0; times--)
		r = buffer_append(&reader->run, &byte, 1);
	return r < 0 || !repeated ? r : end_run(reader);
}

/* The end of the class that begins at `at`; NULL: it has no end. */
static const char *skip_class(const char *at)
{
	at += at[1] == '^' ? 2 : 1;
	if (*at == ']')
		at++;
	for (; *at && *at != ']'; at++) {
		if (*at == '\\' && (!*++at || *at == 'Q'))
			return NULL;
		if (at[0] == '[' && strchr(":.=", at[1]) && at[1]) {
			const char end[] = {at[1], ']', '\0'};
			const char *stop = strstr(at + 2, end);

			at = stop ? stop + 1 : at;
		}
	}
	return *at ? at + 1 : NULL;
}

/* The end of the group that begins at `at`; NULL: it may change the meaning of what follows it. */
static const char *skip_group(const char *at)
{
	unsigned depth = 0;

	for (;;) {
		switch (*at) {
		case '\0':
			return NULL;
		case '(':
			/* (?i), (?x:...), (*VERB), (?#...) */
			if (at[1] == '*' || (at[1] == '?' && !strchr(":=!<>|'P", at[2])))
				return NULL;
			depth++;
			at++;
			break;
		case ')':
			at++;
			if (--depth == 0)
				return at;
			break;
		case '[':
			at = skip_class(at);
			if (!at)
				return NULL;
			break;
		case '\\':
			if (!at[1] || at[1] == 'Q')
				return NULL;
			at += 2;
			break;
		default:
			at++;
		}
	}
}

/* Reads an escape.  1: not understood. */
static int take_escape(struct reader *reader)
{
	char c = reader->at[1];

	/* The arguments of \x41, \p{L} and the like are not literals; \Q...\E is not supported. */
	if (!c || (unsigned char)c >= 0x80 || strchr("xopPNkgcuUEQ0123456789", c))
		return 1;
	reader->at += 2;
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return end_run(reader);
	return take_character(reader, c);
}

/* Reads one element of the pattern.  1: not understood. */
static int take_element(struct reader *reader)
{
	const char *skipped = NULL;
	char c = *reader->at;

	if (reader->plain || !strchr("\\^$.[]{}?*+()", c)) {
		reader->at++;
		return take_character(reader, c);
	}
	switch (c) {
	case '\\':
		return take_escape(reader);
	case '[':
		skipped = skip_class(reader->at);
		break;
	case '(':
		skipped = skip_group(reader->at);
		break;
	case ')':
		return 1;
	case '{':
		skipped = strchr(reader->at, '}');
		skipped = skipped ? skipped + 1 : NULL;
		break;
	default:
		skipped = reader->at + 1;
	}
	if (!skipped)
		return 1;
	reader->at = skipped;
	return end_run(reader);
}

/* Reads one alternative and keeps its longest run.  1: it has none. */
static int read_alternative(struct reader *reader)
{
	int r = 0;

	while (r == 0 && *reader->at && (reader->plain || *reader->at != '|'))
		r = take_element(reader);
	if (r == 0)
		r = end_run(reader);
	return r == 0 && reader->best->size == 0 ? 1 : r;
}

/* Reads one string for each alternative.  1: an alternative has none. */
static int read_pattern(struct reader *reader, struct buffer *best, size_t *count)
{
	for (;;) {
		int r;

		if (*count == LITERALS_MAX)
			return 1;
		reader->best = &best[(*count)++];
		r = read_alternative(reader);
		if (r != 0)
			return r;
		if (reader->best->size > LITERAL_MAX_BYTES)
			reader->best->size = LITERAL_MAX_BYTES;
		if (!*reader->at)
			return 0;
		reader->at++;
	}
}

int literals_of_pattern(
	const char *pattern, bool plain, bool ignore_case, struct literals **ret_literals)
{
	struct reader reader = {.at = pattern, .plain = plain, .ignore_case = ignore_case};
	struct buffer best[LITERALS_MAX] = {0};
	struct literal_text texts[LITERALS_MAX];
	struct literals *literals = NULL;
	size_t count = 0;
	int r = read_pattern(&reader, best, &count);

	for (size_t i = 0; i < count; i++)
		texts[i] = (struct literal_text){best[i].data, best[i].size};
	if (r == 0)
		r = literals_new(texts, count, ignore_case, &literals);
	for (size_t i = 0; i < count; i++)
		buffer_done(&best[i]);
	buffer_done(&reader.run);
	if (r < 0)
		return r;
	*ret_literals = literals;
	return 0;
}
