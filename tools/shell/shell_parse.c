#include "tools/shell/shell_parse.h"

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

struct parser {
	const char *start, *at, *end;
	struct shell_block *memory;
	struct heredoc *heredoc; /* whose text comes after the next line end, or NULL */
	const char *problem;     /* the first */
	bool no_memory;
	int depth;
	int substitutions; /* $( ) around `at` */
};

struct heredoc {
	struct shell_redirection *redirection;
	const char *end; /* the line that ends it */
	bool literal;    /* its end is quoted */
	bool tabs;       /* <<-: leading tabs do not count */
};

static void *fail(struct parser *p, const char *problem)
{
	if (!p->problem)
		p->problem = problem;
	return NULL;
}

static bool failed(const struct parser *p)
{
	return p->problem || p->no_memory;
}

static void *take(struct parser *p, size_t size)
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

static char *take_text(struct parser *p, const char *text, size_t size)
{
	char *copy = take(p, size + 1);

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

/* The character `ahead` of here, 0 past the end: a line has no NUL. */
static char peek(const struct parser *p, size_t ahead)
{
	return (size_t)(p->end - p->at) > ahead ? p->at[ahead] : '\0';
}

static bool looking_at(const struct parser *p, const char *text)
{
	size_t length = strlen(text);

	return (size_t)(p->end - p->at) >= length && memcmp(p->at, text, length) == 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool ends_word(char c)
{
	return !c || strchr(" \t\n;&|()<>", c);
}

static bool is_name_start(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t name_length(const char *text, const char *end)
{
	size_t length = 0;

	if (text < end && is_name_start(*text))
		while (text + length < end &&
			(is_name_start(text[length]) || is_digit(text[length])))
			length++;
	return length;
}

/* Of valid UTF-8. */
static uint32_t code_point(const char *text, size_t length)
{
	uint32_t code = (unsigned char)*text & (length == 1 ? 0x7fU : 0xffU >> (length + 1));

	for (size_t i = 1; i < length; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3fU);
	return code;
}

/* What bash in another locale may take for a blank or a line end, and what nobody sees. */
static const char *check_characters(const char *line, size_t size)
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

/* Blanks, \newline after a blank, and a comment.  Stays before the line end. */
static void skip_blanks(struct parser *p)
{
	while (!failed(p)) {
		if (is_blank(peek(p, 0))) {
			p->at++;
		} else if (looking_at(p, "\\\n")) {
			if ((p->at > p->start && !isspace((unsigned char)p->at[-1])) ||
				peek(p, 2) == '#' || p->heredoc)
				fail(p, "it continues a line in an unusual place");
			p->at += 2;
		} else if (peek(p, 0) == '#') {
			const char *line_end = memchr(p->at, '\n', (size_t)(p->end - p->at));

			p->at = line_end ? line_end : p->end;
			if (p->at[-1] == '\\')
				fail(p, "it has a comment that ends in a backslash");
			return;
		} else {
			return;
		}
	}
}

/* ---- Here-documents ----------------------------------------- */

/* Reads the text after `at`, which is at the beginning of a line.  A here-string adds one line
 * end, so the text goes without its last; nothing at all is /dev/null. */
static void read_heredoc(struct parser *p, struct heredoc *heredoc)
{
	struct shell_part *part = heredoc->redirection->target->parts;
	struct buffer text cleanup_buffer = {0};

	for (;;) {
		const char *line_end = memchr(p->at, '\n', (size_t)(p->end - p->at)), *line;

		if (p->at == p->end) {
			fail(p, "it has a here-document without an end");
			return;
		}
		line_end = line_end ? line_end : p->end;
		while (heredoc->tabs && peek(p, 0) == '\t')
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
		fail(p, "it has a here-document with expansions");
		return;
	}
	if (!text.size)
		heredoc->redirection->type = SHELL_READ_FILE;
	part->text = text.size ? take_text(p, (const char *)text.data, text.size - 1)
			       : take_text(p, "/dev/null", 9);
}

static void skip_line_end(struct parser *p)
{
	p->at++;
	if (p->heredoc)
		read_heredoc(p, p->heredoc);
	p->heredoc = NULL;
}

static void skip_blanks_and_line_ends(struct parser *p)
{
	skip_blanks(p);
	while (!failed(p) && peek(p, 0) == '\n') {
		skip_line_end(p);
		skip_blanks(p);
	}
}

/* ---- Words ----------------------------------------- */

/* How a word is taken: as it stands, or as a value, which is neither split nor a pattern. */
enum word_use { AS_WORDS, AS_VALUE };

struct word {
	struct shell_token *token;
	struct shell_part **tail;
	struct buffer literal; /* not yet a part */
	bool has_literal;      /* also when it is "" */
	const char *brace;     /* the first { without quotes, or NULL */
	enum word_use use;
};

static void end_literal(struct parser *p, struct word *word)
{
	struct shell_part *part;

	if (!word->has_literal)
		return;
	part = take(p, sizeof(*part));
	if (part) {
		part->type = SHELL_LITERAL;
		part->text = take_text(p, (const char *)word->literal.data, word->literal.size);
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
	part = take(p, sizeof(*part));
	if (!part)
		return NULL;
	part->type = type;
	part->text = take_text(p, text, size);
	*word->tail = part;
	word->tail = &part->next;
	return part;
}

static struct shell_command *parse_list(struct parser *p, char closer);

static void parse_output(struct parser *p, struct word *word, bool quoted)
{
	struct shell_part *part;
	struct shell_command *commands;

	if (p->heredoc) {
		fail(p, "it has a $( ) after the beginning of a here-document");
		return;
	}
	p->at += 2;
	p->substitutions++;
	commands = parse_list(p, ')');
	p->substitutions--;
	if (!commands) {
		fail(p, "it has an empty $( )");
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
	size_t length = name_length(name, p->end);
	struct shell_part *part;

	while (!name_length(name, p->end) && is_digit(peek(p, 2 + length)))
		length++;
	if (!length && peek(p, 2) && strchr("?#$!-", peek(p, 2)))
		length = 1;
	if (!length || peek(p, 2 + length) != '}') {
		fail(p, "it has ${ } with more than a name");
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
	char next = peek(p, 1);
	size_t length = name_length(p->at + 1, p->end);
	struct shell_part *part;

	if (!length && next && (is_digit(next) || strchr("?#$!-", next)))
		length = 1;
	if (length) {
		part = add_part(p, word, SHELL_VARIABLE, p->at + 1, length);
		if (part)
			part->quoted = quoted;
		p->at += 1 + length;
	} else if (next == '{') {
		parse_braced_variable(p, word, quoted);
	} else if (next == '(' && peek(p, 2) == '(') {
		fail(p, "it has arithmetic in it");
	} else if (next == '(') {
		parse_output(p, word, quoted);
	} else if ((in_quotes && next && strchr("\"|)/,.:%+= ]^;&<>~}", next)) ||
		   (!in_quotes && ends_word(next) && next != '(' && !word->token->parts)) {
		add_literal(p, word, p->at++, 1);
	} else {
		fail(p, dollar_problem(next));
	}
}

static void parse_single_quotes(struct parser *p, struct word *word)
{
	const char *close = memchr(p->at + 1, '\'', (size_t)(p->end - p->at - 1));

	if (!close) {
		fail(p, "it has a quote that does not end");
		return;
	}
	add_literal(p, word, p->at + 1, (size_t)(close - p->at - 1));
	p->at = close + 1;
}

static void parse_double_quotes(struct parser *p, struct word *word)
{
	struct shell_part **tail = word->tail;

	p->at++;
	while (!failed(p) && peek(p, 0) != '"') {
		char next = peek(p, 1);

		switch (peek(p, 0)) {
		case '\0':
			fail(p, "it has a quote that does not end");
			break;
		case '`':
			fail(p, "it has a command in backticks; $( ) says the same");
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
		add_literal(p, word, "", 0); /* also "", and "\newline", make a word */
	p->at += !failed(p);
}

/* $'...' */
static void parse_ansi_quotes(struct parser *p, struct word *word)
{
	static const char names[] = "nt\\'\"", values[] = "\n\t\\'\"";

	p->at += 2;
	add_literal(p, word, "", 0);
	while (!failed(p) && peek(p, 0) != '\'') {
		const char *name;

		if (!peek(p, 0)) {
			fail(p, "it has a quote that does not end");
		} else if (peek(p, 0) != '\\') {
			add_literal(p, word, p->at++, 1);
		} else {
			name = peek(p, 1) ? strchr(names, peek(p, 1)) : NULL;
			if (!name) {
				fail(p, "it has $'...' with more than \\n \\t \\\\ \\' \\\"");
				return;
			}
			add_literal(p, word, values + (name - names), 1);
			p->at += 2;
		}
	}
	p->at += !failed(p);
}

/* [...]: only of what is the same quoted and not, and in all shells. */
static void parse_bracket(struct parser *p, struct word *word, bool at_start)
{
	size_t from = 1 + (peek(p, 1) == '!' || peek(p, 1) == '^'), length = from;

	if (at_start && ends_word(peek(p, 1))) { /* the command [ */
		add_literal(p, word, p->at++, 1);
		return;
	}
	while (peek(p, length) &&
		(isalnum((unsigned char)peek(p, length)) || strchr("_.,+@%=:-", peek(p, length))))
		length++;
	if (length == from || peek(p, length) != ']') {
		fail(p, "it has an unusual [ in it; quote it if it is no pattern");
		return;
	}
	add_part(p, word, SHELL_PATTERN, p->at, length + 1);
	p->at += length + 1;
}

static void parse_tilde(struct parser *p, struct word *word, const char *start)
{
	if (p->at == start && word->use == AS_WORDS &&
		(ends_word(peek(p, 1)) || peek(p, 1) == '/')) {
		add_part(p, word, SHELL_HOME, "~", 1);
		p->at++;
	} else if (p->at == start || p->at[-1] == '=' || p->at[-1] == ':') {
		fail(p, "it has a ~ in an unusual place");
	} else {
		add_literal(p, word, p->at++, 1);
	}
}

static void parse_unquoted(struct parser *p, struct word *word, const char *start)
{
	char next = peek(p, 1);

	switch (peek(p, 0)) {
	case '\'':
		parse_single_quotes(p, word);
		break;
	case '"':
		parse_double_quotes(p, word);
		break;
	case '`':
		fail(p, "it has a command in backticks; $( ) says the same");
		break;
	case '$':
		if (next == '\'')
			parse_ansi_quotes(p, word);
		else
			parse_dollar(p, word, false);
		break;
	case '\\':
		if (!next || next == '\n') {
			fail(p, "it continues a line in an unusual place");
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

/* {a,b} and {1..9} are several words; any other { is itself. */
static bool expands(const char *brace, const char *end)
{
	return memchr(brace, ',', (size_t)(end - brace)) ||
	       memmem(brace, (size_t)(end - brace), "..", 2);
}

/* Bash takes "10>" and "{x}>" as one, also after another redirection. */
static bool joins_redirection(const struct parser *p, const char *start)
{
	const char *digit = start;

	if (peek(p, 0) != '<' && peek(p, 0) != '>')
		return false;
	while (digit < p->at && is_digit(*digit))
		digit++;
	return digit == p->at || *start == '{';
}

static struct shell_token *parse_token(struct parser *p, enum word_use use)
{
	const char *start = p->at;
	struct word word = {.token = take(p, sizeof(*word.token)), .use = use};

	if (!word.token)
		return NULL;
	word.tail = &word.token->parts;
	while (!failed(p) && !ends_word(peek(p, 0)))
		parse_unquoted(p, &word, start);
	end_literal(p, &word);
	buffer_done(&word.literal);
	if (!failed(p) && word.brace && expands(word.brace, p->at))
		fail(p, "it has braces that may stand for several words");
	if (!failed(p) && p->at > start && joins_redirection(p, start))
		fail(p, "it has an unusual redirection");
	return failed(p) ? NULL : word.token;
}

/* ---- Redirections ----------------------------------------- */

static const struct redirection_type {
	const char *text;
	enum shell_redirection_type type;
	const char *problem;
} redirection_types[] = {
	/* Longer ones before their beginnings. */
	{"&>>", SHELL_APPEND_BOTH, NULL},
	{"&>", SHELL_WRITE_BOTH, NULL},
	{"<<<", SHELL_READ_TEXT, NULL},
	{"<<", SHELL_READ_TEXT, NULL},
	{"<>", SHELL_READ_FILE, "it opens a file with <>"},
	{"<&", SHELL_COPY_INPUT, NULL},
	{"<(", SHELL_READ_FILE, "it has a command in <( )"},
	{"<", SHELL_READ_FILE, NULL},
	{">>", SHELL_APPEND_FILE, NULL},
	{">|", SHELL_WRITE_FILE, NULL},
	{">&", SHELL_COPY_OUTPUT, NULL},
	{">(", SHELL_WRITE_FILE, "it has a command in >( )"},
	{">", SHELL_WRITE_FILE, NULL},
};

/* The text comes with the next line end; its end must not need any expansion. */
static void parse_heredoc(struct parser *p, struct shell_redirection *redirection)
{
	struct heredoc *heredoc = take(p, sizeof(*heredoc));
	const char *start;
	struct shell_token *end;

	if (!heredoc)
		return;
	heredoc->tabs = peek(p, 0) == '-';
	p->at += heredoc->tabs;
	skip_blanks(p);
	start = p->at;
	end = parse_token(p, AS_VALUE);
	if (!end)
		return;
	if (p->substitutions || p->heredoc) {
		fail(p, "it has a here-document in $( ), or two in a line");
		return;
	}
	if (memchr(start, '$', (size_t)(p->at - start)) || !end->parts ||
		end->parts->type != SHELL_LITERAL || end->parts->next ||
		strchr(end->parts->text, '\n')) {
		fail(p, "it has a here-document with an unusual end");
		return;
	}
	heredoc->literal = strcspn(start, "'\"\\") < (size_t)(p->at - start);
	heredoc->end = end->parts->text;
	heredoc->redirection = redirection;
	redirection->target = end;
	p->heredoc = heredoc;
}

static void parse_copy(struct parser *p, struct shell_redirection *redirection)
{
	redirection->from = peek(p, 0);
	if ((!is_digit(redirection->from) && redirection->from != '-') || !ends_word(peek(p, 1)))
		fail(p, "it has an unusual redirection");
	else
		p->at++;
}

/* A file may be one name only; /dev/tcp/... is a connection to bash. */
static void parse_target(struct parser *p, struct shell_redirection *redirection)
{
	bool is_text = redirection->type == SHELL_READ_TEXT;

	skip_blanks(p);
	redirection->target = parse_token(p, is_text ? AS_VALUE : AS_WORDS);
	if (failed(p))
		return;
	if (!redirection->target->parts)
		fail(p, "it has a redirection without a file");
	for (struct shell_part *part = redirection->target->parts; part; part = part->next)
		if (part->type == SHELL_PATTERN)
			fail(p, "it has a redirection to a pattern");
	if (!is_text && redirection->target->parts &&
		(strncmp(redirection->target->parts->text, "/dev/tcp", 8) == 0 ||
			strncmp(redirection->target->parts->text, "/dev/udp", 8) == 0))
		fail(p, "it opens a network connection");
}

/* NULL: there is none here. */
static struct shell_redirection *parse_redirection(struct parser *p)
{
	bool has_fd = is_digit(peek(p, 0)) && (peek(p, 1) == '<' || peek(p, 1) == '>');
	const struct redirection_type *type = NULL;
	struct shell_redirection *redirection;

	p->at += has_fd;
	for (size_t i = 0; i < array_size(redirection_types) && !type; i++)
		if (looking_at(p, redirection_types[i].text))
			type = &redirection_types[i];
	if (!type)
		return NULL;
	if (type->problem)
		return fail(p, type->problem);
	redirection = take(p, sizeof(*redirection));
	if (!redirection)
		return NULL;
	redirection->type = type->type;
	redirection->fd = has_fd ? p->at[-1] : '\0';
	redirection->clobber = type->text[1] == '|';
	p->at += strlen(type->text);
	if (type->type == SHELL_COPY_INPUT || type->type == SHELL_COPY_OUTPUT)
		parse_copy(p, redirection);
	else if (strcmp(type->text, "<<") == 0)
		parse_heredoc(p, redirection);
	else
		parse_target(p, redirection);
	return redirection;
}

/* ---- Commands ----------------------------------------- */

static struct shell_token *parse_setting(struct parser *p)
{
	size_t length = name_length(p->at, p->end);
	const char *name = p->at;
	struct shell_token *token;

	p->at += length + 1;
	token = parse_token(p, AS_VALUE);
	if (token)
		token->name = take_text(p, name, length);
	return token;
}

bool shell_is_reserved(const char *text, size_t size)
{
	static const char *const words[] = {"!", "[[", "]]", "{", "}", "case", "coproc", "do",
		"done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select",
		"then", "time", "until", "while"};

	for (size_t i = 0; i < array_size(words); i++)
		if (strlen(words[i]) == size && memcmp(words[i], text, size) == 0)
			return true;
	return false;
}

static const char *word_problem(struct parser *p, size_t name)
{
	const char *end = p->at;

	while (!ends_word(end < p->end ? *end : '\0'))
		end++;
	if (shell_is_reserved(p->at, (size_t)(end - p->at)))
		return "it has a loop, a condition or another construct that is not analysed";
	if ((name && peek(p, name) == '[') || (peek(p, name) == '+' && peek(p, name + 1) == '='))
		return "it sets an array, or adds to a variable";
	return NULL;
}

static void parse_simple(struct parser *p, struct shell_command *command)
{
	struct shell_token **setting = &command->settings, **word = &command->words;
	struct shell_redirection **redirection = &command->redirections;

	for (;;) {
		size_t name;

		skip_blanks(p);
		if (failed(p))
			return;
		*redirection = parse_redirection(p);
		if (*redirection) {
			redirection = &(*redirection)->next;
			continue;
		}
		if (failed(p) || ends_word(peek(p, 0)))
			return;
		name = command->words ? 0 : name_length(p->at, p->end);
		if (name && peek(p, name) == '=') {
			*setting = parse_setting(p);
			if (*setting)
				setting = &(*setting)->next;
		} else {
			const char *problem = command->words ? NULL : word_problem(p, name);

			if (problem) {
				fail(p, problem);
				return;
			}
			*word = parse_token(p, AS_WORDS);
			if (*word)
				word = &(*word)->next;
		}
	}
}

static void parse_redirections(struct parser *p, struct shell_command *command)
{
	struct shell_redirection **redirection = &command->redirections;

	for (;;) {
		skip_blanks(p);
		if (failed(p))
			return;
		*redirection = parse_redirection(p);
		if (!*redirection)
			return;
		redirection = &(*redirection)->next;
	}
}

static bool is_group_word(const struct parser *p, char c)
{
	return peek(p, 0) == c && ends_word(peek(p, 1));
}

static const char *parse_prefix(struct parser *p)
{
	const char *start = p->at;
	struct buffer text cleanup_buffer = {0};

	while (!failed(p) && ((peek(p, 0) == '!' && is_blank(peek(p, 1))) ||
				     (looking_at(p, "time") && is_blank(peek(p, 4))))) {
		const char *prefix = *p->at == '!'               ? "! "
				     : looking_at(p, "time -p ") ? "time -p "
								 : "time ";

		if (buffer_append_string(&text, prefix) < 0)
			p->no_memory = true;
		p->at += strlen(prefix);
		skip_blanks(p);
	}
	if (p->at > start && (peek(p, 0) == '-' || (ends_word(peek(p, 0)) && peek(p, 0) != '(')))
		return fail(p, "it has \"time\" with an option, or without a command");
	return take_text(p, (const char *)text.data, text.size);
}

static struct shell_command *parse_command(struct parser *p, bool in_pipeline)
{
	struct shell_command *command = take(p, sizeof(*command));
	char closer = '\0';

	if (!command)
		return NULL;
	command->prefix = in_pipeline ? "" : parse_prefix(p);
	if (failed(p))
		return NULL;
	if (looking_at(p, "(("))
		return fail(p, "it has arithmetic in it");
	if (peek(p, 0) == '(')
		closer = ')';
	else if (peek(p, 0) == '{' && (is_blank(peek(p, 1)) || peek(p, 1) == '\n'))
		closer = '}';
	if (closer) {
		p->at++;
		command->type = closer == ')' ? SHELL_SUBSHELL : SHELL_GROUP;
		command->body = parse_list(p, closer);
		if (!command->body)
			return fail(p, "it has an empty ( ) or { }");
		parse_redirections(p, command);
		if (!failed(p) && !(ends_word(peek(p, 0)) && peek(p, 0) != '('))
			fail(p, "it has a word after ( ) or { }");
	} else {
		parse_simple(p, command);
		if (!command->settings && !command->words && !command->redirections)
			fail(p, "it has an operator without a command");
	}
	return failed(p) ? NULL : command;
}

static const struct {
	const char *text;
	enum shell_join join;
	bool needs_more;
} joins[] = {
	{"&&", SHELL_AND, true},
	{"||", SHELL_OR, true},
	{"|&", SHELL_PIPE_BOTH, true},
	{"|", SHELL_PIPE, true},
	{"&", SHELL_BACKGROUND, false},
	{";", SHELL_THEN, false},
};

/* False: nothing may follow but the end of the list. */
static bool parse_join(struct parser *p, struct shell_command *command, bool *ret_needs_more)
{
	*ret_needs_more = false;
	skip_blanks(p);
	for (size_t i = 0; i < array_size(joins); i++) {
		if (!looking_at(p, joins[i].text))
			continue;
		p->at += strlen(joins[i].text);
		if (joins[i].join == SHELL_THEN && (peek(p, 0) == ';' || peek(p, 0) == '&'))
			fail(p, "it is not a complete command line");
		command->join = joins[i].join;
		*ret_needs_more = joins[i].needs_more;
		return true;
	}
	return peek(p, 0) == '\n';
}

/* Up to the end, or past the closer. */
static struct shell_command *parse_list(struct parser *p, char closer)
{
	struct shell_command *first = NULL, **tail = &first;
	bool needs_more = false, may_follow = true, in_pipeline = false;

	if (++p->depth > SHELL_DEPTH_MAX)
		return fail(p, "it is nested too deeply");
	for (;;) {
		skip_blanks_and_line_ends(p);
		if (failed(p))
			return NULL;
		if (!needs_more && (closer == '}' ? may_follow && is_group_word(p, '}')
						  : peek(p, 0) == closer))
			break;
		if (!may_follow || !peek(p, 0))
			return fail(p, "it is not a complete command line");
		*tail = parse_command(p, in_pipeline);
		if (!*tail)
			return NULL;
		may_follow = parse_join(p, *tail, &needs_more);
		in_pipeline = (*tail)->join == SHELL_PIPE || (*tail)->join == SHELL_PIPE_BOTH;
		tail = &(*tail)->next;
	}
	p->at += closer != '\0';
	p->depth--;
	return first;
}

int shell_parse(const char *line, struct shell_tree *ret_tree, const char **ret_problem)
{
	size_t size = strlen(line);
	struct parser p = {.start = line, .at = line, .end = line + size};
	struct shell_tree tree = {0};

	p.problem = size > SHELL_LINE_MAX_BYTES ? "it is too long" : check_characters(line, size);
	if (!failed(&p))
		tree.commands = parse_list(&p, '\0');
	if (!failed(&p) && p.heredoc)
		fail(&p, "it has a here-document without an end");
	tree.memory = p.memory;
	if (failed(&p)) {
		shell_tree_done(&tree);
		*ret_problem = p.problem;
		return p.no_memory ? -ENOMEM : -EINVAL;
	}
	*ret_tree = tree;
	return 0;
}
