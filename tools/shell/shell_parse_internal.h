/*
 * tools/shell/shell_parse_internal.h - the parser of command lines, in three files:
 * shell_parse_text.c (memory, characters, here-documents), shell_parse_words.c and shell_parse.c
 * (commands).
 *
 * What fails notes the first problem, and everything that follows does nothing.
 */
#pragma once

#include "ops/support/buffer.h"
#include "tools/shell/shell_parse.h"

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

/* How a word is taken: as it stands, or as a value, which is neither split nor a pattern. */
enum word_use { AS_WORDS, AS_VALUE };

/* ---- shell_parse_text.c ------------------------------------------------------ */

/* Notes the problem (static words); NULL. */
void *parser_fail(struct parser *p, const char *problem);
bool parser_failed(const struct parser *p);

/* Memory of the tree, zeroed; NULL when there is none, which is noted. */
void *parser_take(struct parser *p, size_t size);
char *parser_take_text(struct parser *p, const char *text, size_t size);

/* The character `ahead` of here, 0 past the end: a line has no NUL. */
char parser_peek(const struct parser *p, size_t ahead);
bool parser_looking_at(const struct parser *p, const char *text);

bool parser_is_blank(char c);
bool parser_ends_word(char c);
bool parser_is_digit(char c);
size_t parser_name_length(const char *text, const char *end);

/* What bash in another locale may take for a blank or a line end, and what nobody sees: why the
 * line is not parsed, or NULL. */
const char *parser_check_characters(const char *line, size_t size);

/* Blanks, \newline after a blank, and a comment.  Stays before the line end. */
void parser_skip_blanks(struct parser *p);
void parser_skip_blanks_and_line_ends(struct parser *p);

/* ---- shell_parse_words.c, shell_parse.c ---------------------------------------- */

/* One word; NULL when that failed. */
struct shell_token *parser_token(struct parser *p, enum word_use use);

/* Up to the end, or past the closer. */
struct shell_command *parser_list(struct parser *p, char closer);
