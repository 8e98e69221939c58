#include "tools/shell/shell_parse_internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/utf8.h"

struct word {
	struct shell_token *token;
	struct shell_part **tail;
	struct buffer literal; /* literal text that is not a part yet */
	bool has_literal;      /* `literal` is used, even if it is "" */
	const char *brace;     /* the first unquoted {, or NULL */
	enum word_use use;
};

static void end_literal(struct parser *p, struct word *word)
{
	struct shell_part *part;

	if (!word->has_literal)
		return;
	part = parser_take(p, sizeof(*part));
	if (part) {
		part->type = SHELL_LITERAL;
		part->text =
			parser_take_text(p, (const char *)word->literal.data, word->literal.size);
		*word->tail = part;
		word->tail = &part->next;
	}
	word->literal.size = 0;
	word->has_literal = false;
}

static void add_literal(struct parser *p, struct word *word, const char *text, size_t size)
{
	word->has_literal = true;
	if (size && buffer_append(&word->literal, text, size) < 0)
		p->no_memory = true;
}

static struct shell_part *add_part(struct parser *p, struct word *word, enum shell_part_type type,
	const char *text, size_t size)
{
	struct shell_part *part;

	end_literal(p, word);
	part = parser_take(p, sizeof(*part));
	if (!part)
		return NULL;
	part->type = type;
	part->text = parser_take_text(p, text, size);
	*word->tail = part;
	word->tail = &part->next;
	return part;
}

static void parse_output(struct parser *p, struct word *word, bool quoted)
{
	struct shell_part *part;
	struct shell_command *commands;

	if (p->heredoc) {
		parser_fail(p, "it has a $( ) after the beginning of a here-document");
		return;
	}
	p->at += 2;
	p->substitutions++;
	commands = parser_list(p, ')');
	p->substitutions--;
	if (!commands) {
		parser_fail(p, "it has an empty $( )");
		return;
	}
	part = add_part(p, word, SHELL_OUTPUT, "", 0);
	if (part) {
		part->quoted = quoted;
		part->commands = commands;
	}
}

static void parse_braced_variable(struct parser *p, struct word *word, bool quoted)
{
	const char *name = p->at + 2;
	size_t length = parser_name_length(name, p->end);
	struct shell_part *part;

	while (!parser_name_length(name, p->end) && parser_is_digit(parser_peek(p, 2 + length)))
		length++;
	if (!length && parser_peek(p, 2) && strchr("?#$!-", parser_peek(p, 2)))
		length = 1;
	if (!length || parser_peek(p, 2 + length) != '}') {
		parser_fail(p, "it has ${ } with more than a name");
		return;
	}
	part = add_part(p, word, SHELL_VARIABLE, name, length);
	if (part)
		part->quoted = quoted;
	p->at = name + length + 1;
}

static const char *dollar_problem(char next)
{
	return next == '[' ? "it has arithmetic in it" : "it has a $ in an unusual place";
}

static void parse_dollar(struct parser *p, struct word *word, bool in_quotes)
{
	bool quoted = in_quotes || word->use == AS_VALUE;
	char next = parser_peek(p, 1);
	size_t length = parser_name_length(p->at + 1, p->end);
	struct shell_part *part;

	if (!length && next && (parser_is_digit(next) || strchr("?#$!-", next)))
		length = 1;
	if (length) {
		part = add_part(p, word, SHELL_VARIABLE, p->at + 1, length);
		if (part)
			part->quoted = quoted;
		p->at += 1 + length;
	} else if (next == '{') {
		parse_braced_variable(p, word, quoted);
	} else if (next == '(' && parser_peek(p, 2) == '(') {
		parser_fail(p, "it has arithmetic in it");
	} else if (next == '(') {
		parse_output(p, word, quoted);
	} else if ((in_quotes && next && strchr("\"|)/,.:%+= ]^;&<>~}", next)) ||
		   (!in_quotes && parser_ends_word(next) && next != '(' && !word->token->parts)) {
		add_literal(p, word, p->at++, 1);
	} else {
		parser_fail(p, dollar_problem(next));
	}
}

static void parse_single_quotes(struct parser *p, struct word *word)
{
	const char *close = memchr(p->at + 1, '\'', (size_t)(p->end - p->at - 1));

	if (!close) {
		parser_fail(p, "it has a quote that does not end");
		return;
	}
	add_literal(p, word, p->at + 1, (size_t)(close - p->at - 1));
	p->at = close + 1;
}

static void parse_double_quotes(struct parser *p, struct word *word)
{
	struct shell_part **tail = word->tail;

	p->at++;
	while (!parser_failed(p) && parser_peek(p, 0) != '"') {
		char next = parser_peek(p, 1);

		switch (parser_peek(p, 0)) {
		case '\0':
			parser_fail(p, "it has a quote that does not end");
			break;
		case '`':
			parser_fail(p, "it has a command in backticks; $( ) says the same");
			break;
		case '$':
			parse_dollar(p, word, true);
			break;
		case '\\':
			if (next == '\n') {
				p->at += 2;
				break;
			}
			p->at += next && strchr("$`\"\\", next);
			add_literal(p, word, p->at++, 1);
			break;
		default:
			add_literal(p, word, p->at++, 1);
		}
	}
	if (word->tail == tail)
		add_literal(p, word, "", 0); /* "" and "\newline" are words as well */
	p->at += !parser_failed(p);
}

/* $'...' */
static void parse_ansi_quotes(struct parser *p, struct word *word)
{
	static const char names[] = "nt\\'\"", values[] = "\n\t\\'\"";

	p->at += 2;
	add_literal(p, word, "", 0);
	while (!parser_failed(p) && parser_peek(p, 0) != '\'') {
		const char *name;

		if (!parser_peek(p, 0)) {
			parser_fail(p, "it has a quote that does not end");
		} else if (parser_peek(p, 0) != '\\') {
			add_literal(p, word, p->at++, 1);
		} else {
			name = parser_peek(p, 1) ? strchr(names, parser_peek(p, 1)) : NULL;
			if (!name) {
				parser_fail(
					p, "it has $'...' with more than \\n \\t \\\\ \\' \\\"");
				return;
			}
			add_literal(p, word, values + (name - names), 1);
			p->at += 2;
		}
	}
	p->at += !parser_failed(p);
}

/* Parses [...] with characters only that mean the same quoted and unquoted, and in all shells. */
static void parse_bracket(struct parser *p, struct word *word, bool at_start)
{
	size_t from = 1 + (parser_peek(p, 1) == '!' || parser_peek(p, 1) == '^'), length = from;

	if (at_start && parser_ends_word(parser_peek(p, 1))) { /* the command [ */
		add_literal(p, word, p->at++, 1);
		return;
	}
	while (parser_peek(p, length) && (isalnum((unsigned char)parser_peek(p, length)) ||
						 strchr("_.,+@%=:-", parser_peek(p, length))))
		length++;
	if (length == from || parser_peek(p, length) != ']') {
		parser_fail(p, "it has an unusual [ in it; quote it if it is no pattern");
		return;
	}
	add_part(p, word, SHELL_PATTERN, p->at, length + 1);
	p->at += length + 1;
}

static void parse_tilde(struct parser *p, struct word *word, const char *start)
{
	if (p->at == start && word->use == AS_WORDS &&
		(parser_ends_word(parser_peek(p, 1)) || parser_peek(p, 1) == '/')) {
		add_part(p, word, SHELL_HOME, "~", 1);
		p->at++;
	} else if (p->at == start || p->at[-1] == '=' || p->at[-1] == ':') {
		parser_fail(p, "it has a ~ in an unusual place");
	} else {
		add_literal(p, word, p->at++, 1);
	}
}

static void parse_unquoted(struct parser *p, struct word *word, const char *start)
{
	char next = parser_peek(p, 1);

	switch (parser_peek(p, 0)) {
	case '\'':
		parse_single_quotes(p, word);
		break;
	case '"':
		parse_double_quotes(p, word);
		break;
	case '`':
		parser_fail(p, "it has a command in backticks; $( ) says the same");
		break;
	case '$':
		if (next == '\'')
			parse_ansi_quotes(p, word);
		else
			parse_dollar(p, word, false);
		break;
	case '\\':
		if (!next || next == '\n') {
			parser_fail(p, "it continues a line in an unusual place");
			break;
		}
		p->at++;
		add_literal(p, word, p->at++, 1);
		break;
	case '~':
		parse_tilde(p, word, start);
		break;
	case '*':
	case '?':
		if (word->use == AS_WORDS)
			add_part(p, word, SHELL_PATTERN, p->at, 1);
		else
			add_literal(p, word, p->at, 1);
		p->at++;
		break;
	case '[':
		if (word->use == AS_WORDS)
			parse_bracket(p, word, p->at == start);
		else
			add_literal(p, word, p->at++, 1);
		break;
	default:
		if (*p->at == '{' && !word->brace)
			word->brace = p->at;
		add_literal(p, word, p->at++, 1);
	}
}

/* Whether the brace expands: {a,b} and {1..9} do, any other { is literal. */
static bool expands(const char *brace, const char *end)
{
	return memchr(brace, ',', (size_t)(end - brace)) ||
	       memmem(brace, (size_t)(end - brace), "..", 2);
}

/* Whether bash would read the word as part of a redirection: "10>", "{x}>". */
static bool joins_redirection(const struct parser *p, const char *start)
{
	const char *digit = start;

	if (parser_peek(p, 0) != '<' && parser_peek(p, 0) != '>')
		return false;
	while (digit < p->at && parser_is_digit(*digit))
		digit++;
	return digit == p->at || *start == '{';
}

struct shell_token *parser_token(struct parser *p, enum word_use use)
{
	const char *start = p->at;
	struct word word = {.token = parser_take(p, sizeof(*word.token)), .use = use};

	if (!word.token)
		return NULL;
	word.tail = &word.token->parts;
	while (!parser_failed(p) && !parser_ends_word(parser_peek(p, 0)))
		parse_unquoted(p, &word, start);
	end_literal(p, &word);
	buffer_done(&word.literal);
	if (!parser_failed(p) && word.brace && expands(word.brace, p->at))
		parser_fail(p, "it has braces that may stand for several words");
	if (!parser_failed(p) && p->at > start && joins_redirection(p, start))
		parser_fail(p, "it has an unusual redirection");
	return parser_failed(p) ? NULL : word.token;
}
