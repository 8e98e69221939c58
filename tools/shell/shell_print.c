#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "tools/shell/shell_parse.h"

struct printer {
	struct buffer *out;
	bool all_quoted; /* quote all literals */
	int error;       /* the first one: an incomplete line must not run */
};

static void put(struct printer *p, const char *text, size_t size)
{
	if (p->error == 0)
		p->error = buffer_append(p->out, text, size);
}

static void put_string(struct printer *p, const char *text)
{
	put(p, text, strlen(text));
}

static bool is_plain(const char *text)
{
	for (size_t i = 0; text[i]; i++)
		if (!isascii((unsigned char)text[i]) ||
			(!isalnum((unsigned char)text[i]) && !strchr("_./,:+@%^=-", text[i])))
			return false;
	return *text != '\0';
}

static void put_quoted(struct printer *p, const char *text)
{
	put_string(p, "'");
	for (;;) {
		size_t length = strcspn(text, "'");

		put(p, text, length);
		if (!text[length])
			break;
		put_string(p, "'\\''");
		text += length + 1;
	}
	put_string(p, "'");
}

static void put_literal(struct printer *p, const char *text)
{
	if (is_plain(text))
		put_string(p, text);
	else
		put_quoted(p, text);
}

/* The / after ~ must not be quoted. */
static void put_after_home(struct printer *p, const char *text)
{
	put_string(p, "/");
	if (text[1])
		put_literal(p, text + 1);
}

static void put_list(struct printer *p, const struct shell_command *command);

static void put_part(struct printer *p, const struct shell_part *part)
{
	if (part->quoted)
		put_string(p, "\"");
	switch (part->type) {
	case SHELL_LITERAL:
		put_literal(p, part->text);
		break;
	case SHELL_HOME:
	case SHELL_PATTERN:
		put_string(p, part->text);
		break;
	case SHELL_VARIABLE:
		put_string(p, "${");
		put_string(p, part->text);
		put_string(p, "}");
		break;
	case SHELL_OUTPUT:
		put_string(p, "$( ");
		put_list(p, part->commands);
		put_string(p, " )");
		break;
	}
	if (part->quoted)
		put_string(p, "\"");
}

static void put_parts(struct printer *p, const struct shell_part *part)
{
	bool after_home = false;

	for (; part; part = part->next) {
		if (after_home)
			put_after_home(p, part->text);
		else if (part->type == SHELL_LITERAL && p->all_quoted)
			put_quoted(p, part->text);
		else
			put_part(p, part);
		after_home = part->type == SHELL_HOME;
	}
}

/* Prints the name of a program; quotes names such as "X=1", "a"[1]=2, "if" and "-p", which bash
 * would otherwise not take for a program. */
static void put_program(struct printer *p, const struct shell_part *part)
{
	p->all_quoted = part->type != SHELL_LITERAL || part->next || strchr(part->text, '=') ||
			*part->text == '-' || shell_is_reserved(part->text, strlen(part->text));
	put_parts(p, part);
	p->all_quoted = false;
}

static const char *redirection_text(const struct shell_redirection *redirection)
{
	switch (redirection->type) {
	case SHELL_READ_FILE:
		return "<";
	case SHELL_WRITE_FILE:
		return redirection->clobber ? ">|" : ">";
	case SHELL_APPEND_FILE:
		return ">>";
	case SHELL_WRITE_BOTH:
		return "&>";
	case SHELL_APPEND_BOTH:
		return "&>>";
	case SHELL_READ_TEXT:
		return "<<<";
	case SHELL_COPY_OUTPUT:
		return ">&";
	case SHELL_COPY_INPUT:
		return "<&";
	}
	return NULL;
}

static void put_redirections(struct printer *p, const struct shell_redirection *redirection)
{
	for (; redirection; redirection = redirection->next) {
		put_string(p, " ");
		put(p, &redirection->fd, redirection->fd != '\0');
		put_string(p, redirection_text(redirection));
		if (redirection->target)
			put_parts(p, redirection->target->parts);
		else
			put(p, &redirection->from, 1);
	}
}

static void put_token(struct printer *p, const struct shell_token *token)
{
	if (token->name) {
		put_string(p, token->name);
		put_string(p, "=");
	}
	put_parts(p, token->parts);
}

static void put_simple(struct printer *p, const struct shell_command *command)
{
	const char *between = "";

	for (const struct shell_token *token = command->settings; token; token = token->next) {
		put_string(p, between);
		put_token(p, token);
		between = " ";
	}
	for (const struct shell_token *token = command->words; token; token = token->next) {
		put_string(p, between);
		if (token == command->words)
			put_program(p, token->parts);
		else
			put_token(p, token);
		between = " ";
	}
}

static const char *join_text(const struct shell_command *command)
{
	switch (command->join) {
	case SHELL_THEN:
		return command->next ? "; " : "";
	case SHELL_BACKGROUND:
		return command->next ? " & " : " &";
	case SHELL_AND:
		return " && ";
	case SHELL_OR:
		return " || ";
	case SHELL_PIPE:
		return " | ";
	case SHELL_PIPE_BOTH:
		return " |& ";
	}
	return NULL;
}

static void put_list(struct printer *p, const struct shell_command *command)
{
	for (; command; command = command->next) {
		put_string(p, command->prefix);
		if (command->type == SHELL_SIMPLE) {
			put_simple(p, command);
		} else {
			put_string(p, command->type == SHELL_SUBSHELL ? "( " : "{ ");
			put_list(p, command->body);
			put_string(p, command->type == SHELL_SUBSHELL ? " )" : "\n}");
		}
		put_redirections(p, command->redirections);
		put_string(p, join_text(command));
	}
}

int shell_print(const struct shell_command *commands, struct buffer *out)
{
	struct printer p = {.out = out};

	put_list(&p, commands);
	return p.error;
}

int shell_print_token(const struct shell_token *token, struct buffer *out)
{
	struct printer p = {.out = out};

	put_token(&p, token);
	return p.error;
}

int shell_print_literal(const char *text, struct buffer *out)
{
	struct printer p = {.out = out};

	put_literal(&p, text);
	return p.error;
}
