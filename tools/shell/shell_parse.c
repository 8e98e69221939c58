#include "tools/shell/shell_parse.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "tools/shell/shell_parse_internal.h"

/* ---- Redirections ----------------------------------------- */

static const struct redirection_type {
	const char *text;
	enum shell_redirection_type type;
	const char *problem;
} redirection_types[] = {
	/* Operators before their own prefixes. */
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

/* Parses "<<WORD"; the text follows the next line end.  WORD must not have expansions. */
static void parse_heredoc(struct parser *p, struct shell_redirection *redirection)
{
	struct heredoc *heredoc = parser_take(p, sizeof(*heredoc));
	const char *start;
	struct shell_token *end;

	if (!heredoc)
		return;
	heredoc->tabs = parser_peek(p, 0) == '-';
	p->at += heredoc->tabs;
	parser_skip_blanks(p);
	start = p->at;
	end = parser_token(p, AS_VALUE);
	if (!end)
		return;
	if (p->substitutions || p->heredoc) {
		parser_fail(p, "it has a here-document in $( ), or two in a line");
		return;
	}
	if (memchr(start, '$', (size_t)(p->at - start)) || !end->parts ||
		end->parts->type != SHELL_LITERAL || end->parts->next ||
		strchr(end->parts->text, '\n')) {
		parser_fail(p, "it has a here-document with an unusual end");
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
	redirection->from = parser_peek(p, 0);
	if ((!parser_is_digit(redirection->from) && redirection->from != '-') ||
		!parser_ends_word(parser_peek(p, 1)))
		parser_fail(p, "it has an unusual redirection");
	else
		p->at++;
}

/* Parses the target, which must be a single word; refuses /dev/tcp/..., for which bash connects. */
static void parse_target(struct parser *p, struct shell_redirection *redirection)
{
	bool is_text = redirection->type == SHELL_READ_TEXT;

	parser_skip_blanks(p);
	redirection->target = parser_token(p, is_text ? AS_VALUE : AS_WORDS);
	if (parser_failed(p))
		return;
	if (!redirection->target->parts)
		parser_fail(p, "it has a redirection without a file");
	for (struct shell_part *part = redirection->target->parts; part; part = part->next)
		if (part->type == SHELL_PATTERN)
			parser_fail(p, "it has a redirection to a pattern");
	if (!is_text && redirection->target->parts &&
		(strncmp(redirection->target->parts->text, "/dev/tcp", 8) == 0 ||
			strncmp(redirection->target->parts->text, "/dev/udp", 8) == 0))
		parser_fail(p, "it opens a network connection");
}

/* Parses a redirection; NULL: the next token is none. */
static struct shell_redirection *parse_redirection(struct parser *p)
{
	bool has_fd = parser_is_digit(parser_peek(p, 0)) &&
		      (parser_peek(p, 1) == '<' || parser_peek(p, 1) == '>');
	const struct redirection_type *type = NULL;
	struct shell_redirection *redirection;

	p->at += has_fd;
	for (size_t i = 0; i < array_size(redirection_types) && !type; i++)
		if (parser_looking_at(p, redirection_types[i].text))
			type = &redirection_types[i];
	if (!type)
		return NULL;
	if (type->problem)
		return parser_fail(p, type->problem);
	redirection = parser_take(p, sizeof(*redirection));
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
	size_t length = parser_name_length(p->at, p->end);
	const char *name = p->at;
	struct shell_token *token;

	p->at += length + 1;
	token = parser_token(p, AS_VALUE);
	if (token)
		token->name = parser_take_text(p, name, length);
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

	while (!parser_ends_word(end < p->end ? *end : '\0'))
		end++;
	if (shell_is_reserved(p->at, (size_t)(end - p->at)))
		return "it has a loop, a condition or another construct that is not analysed";
	if ((name && parser_peek(p, name) == '[') ||
		(parser_peek(p, name) == '+' && parser_peek(p, name + 1) == '='))
		return "it sets an array, or adds to a variable";
	return NULL;
}

static void parse_simple(struct parser *p, struct shell_command *command)
{
	struct shell_token **setting = &command->settings, **word = &command->words;
	struct shell_redirection **redirection = &command->redirections;

	for (;;) {
		size_t name;

		parser_skip_blanks(p);
		if (parser_failed(p))
			return;
		*redirection = parse_redirection(p);
		if (*redirection) {
			redirection = &(*redirection)->next;
			continue;
		}
		if (parser_failed(p) || parser_ends_word(parser_peek(p, 0)))
			return;
		name = command->words ? 0 : parser_name_length(p->at, p->end);
		if (name && parser_peek(p, name) == '=') {
			*setting = parse_setting(p);
			if (*setting)
				setting = &(*setting)->next;
		} else {
			const char *problem = command->words ? NULL : word_problem(p, name);

			if (problem) {
				parser_fail(p, problem);
				return;
			}
			*word = parser_token(p, AS_WORDS);
			if (*word)
				word = &(*word)->next;
		}
	}
}

static void parse_redirections(struct parser *p, struct shell_command *command)
{
	struct shell_redirection **redirection = &command->redirections;

	for (;;) {
		parser_skip_blanks(p);
		if (parser_failed(p))
			return;
		*redirection = parse_redirection(p);
		if (!*redirection)
			return;
		redirection = &(*redirection)->next;
	}
}

static bool is_group_word(const struct parser *p, char c)
{
	return parser_peek(p, 0) == c && parser_ends_word(parser_peek(p, 1));
}

static const char *parse_prefix(struct parser *p)
{
	const char *start = p->at;
	struct buffer text cleanup_buffer = {0};

	while (!parser_failed(p) &&
		((parser_peek(p, 0) == '!' && parser_is_blank(parser_peek(p, 1))) ||
			(parser_looking_at(p, "time") && parser_is_blank(parser_peek(p, 4))))) {
		const char *prefix = *p->at == '!'                      ? "! "
				     : parser_looking_at(p, "time -p ") ? "time -p "
									: "time ";

		if (buffer_append_string(&text, prefix) < 0)
			p->no_memory = true;
		p->at += strlen(prefix);
		parser_skip_blanks(p);
	}
	if (p->at > start && (parser_peek(p, 0) == '-' || (parser_ends_word(parser_peek(p, 0)) &&
								  parser_peek(p, 0) != '(')))
		return parser_fail(p, "it has \"time\" with an option, or without a command");
	return parser_take_text(p, (const char *)text.data, text.size);
}

static struct shell_command *parse_command(struct parser *p, bool in_pipeline)
{
	struct shell_command *command = parser_take(p, sizeof(*command));
	char closer = '\0';

	if (!command)
		return NULL;
	command->prefix = in_pipeline ? "" : parse_prefix(p);
	if (parser_failed(p))
		return NULL;
	if (parser_looking_at(p, "(("))
		return parser_fail(p, "it has arithmetic in it");
	if (parser_peek(p, 0) == '(')
		closer = ')';
	else if (parser_peek(p, 0) == '{' &&
		 (parser_is_blank(parser_peek(p, 1)) || parser_peek(p, 1) == '\n'))
		closer = '}';
	if (closer) {
		p->at++;
		command->type = closer == ')' ? SHELL_SUBSHELL : SHELL_GROUP;
		command->body = parser_list(p, closer);
		if (!command->body)
			return parser_fail(p, "it has an empty ( ) or { }");
		parse_redirections(p, command);
		if (!parser_failed(p) &&
			!(parser_ends_word(parser_peek(p, 0)) && parser_peek(p, 0) != '('))
			parser_fail(p, "it has a word after ( ) or { }");
	} else {
		parse_simple(p, command);
		if (!command->settings && !command->words && !command->redirections)
			parser_fail(p, "it has an operator without a command");
	}
	return parser_failed(p) ? NULL : command;
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

/* Parses the operator after a command.  False: the list ends here. */
static bool parse_join(struct parser *p, struct shell_command *command, bool *ret_needs_more)
{
	*ret_needs_more = false;
	parser_skip_blanks(p);
	for (size_t i = 0; i < array_size(joins); i++) {
		if (!parser_looking_at(p, joins[i].text))
			continue;
		p->at += strlen(joins[i].text);
		if (joins[i].join == SHELL_THEN &&
			(parser_peek(p, 0) == ';' || parser_peek(p, 0) == '&'))
			parser_fail(p, "it is not a complete command line");
		command->join = joins[i].join;
		*ret_needs_more = joins[i].needs_more;
		return true;
	}
	return parser_peek(p, 0) == '\n';
}

struct shell_command *parser_list(struct parser *p, char closer)
{
	struct shell_command *first = NULL, **tail = &first;
	bool needs_more = false, may_follow = true, in_pipeline = false;

	if (++p->depth > SHELL_DEPTH_MAX)
		return parser_fail(p, "it is nested too deeply");
	for (;;) {
		parser_skip_blanks_and_line_ends(p);
		if (parser_failed(p))
			return NULL;
		if (!needs_more && (closer == '}' ? may_follow && is_group_word(p, '}')
						  : parser_peek(p, 0) == closer))
			break;
		if (!may_follow || !parser_peek(p, 0))
			return parser_fail(p, "it is not a complete command line");
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

	p.problem = size > SHELL_LINE_MAX_BYTES ? "it is too long"
						: parser_check_characters(line, size);
	if (!parser_failed(&p))
		tree.commands = parser_list(&p, '\0');
	if (!parser_failed(&p) && p.heredoc)
		parser_fail(&p, "it has a here-document without an end");
	tree.memory = p.memory;
	if (parser_failed(&p)) {
		shell_tree_done(&tree);
		*ret_problem = p.problem;
		return p.no_memory ? -ENOMEM : -EINVAL;
	}
	*ret_tree = tree;
	return 0;
}
