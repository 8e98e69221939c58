/*
 * tools/shell/shell_parse_internal.h - the parser of command lines, in three files:
 * shell_parse_text.c (memory, characters, here-documents), shell_parse_words.c and shell_parse.c
 * (commands).
 *
 * A function that fails records the problem; after the first problem all functions do nothing.
 */
#pragma once

#include "ops/support/buffer.h"
#include "tools/shell/shell_parse.h"

struct parser {
	const char *start, *at, *end;
	struct shell_block *memory;
	struct heredoc *heredoc; /* its text follows the next line end; NULL: none */
	const char *problem;     /* the first one */
	bool no_memory;
	int depth;
	int substitutions; /* number of $( ) around `at` */
};

struct heredoc {
	struct shell_redirection *redirection;
	const char *end; /* the delimiter line */
	bool literal;    /* the delimiter is quoted */
	bool tabs;       /* <<-: leading tabs are removed */
};

/* How bash expands a word: as words, or as the value of an assignment, which is neither split nor a
 * pattern. */
enum word_use { AS_WORDS, AS_VALUE };

/* ---- shell_parse_text.c ------------------------------------------------------ */

/* Records the problem (a static string).  Always returns NULL. */
void *parser_fail(struct parser *p, const char *problem);
bool parser_failed(const struct parser *p);

/* Zeroed memory that belongs to the tree; NULL: no memory (recorded). */
void *parser_take(struct parser *p, size_t size);
char *parser_take_text(struct parser *p, const char *text, size_t size);

/* The character at `at` + `ahead`; NUL past the end, as a line has no NUL. */
char parser_peek(const struct parser *p, size_t ahead);
bool parser_looking_at(const struct parser *p, const char *text);

bool parser_is_blank(char c);
bool parser_ends_word(char c);
bool parser_is_digit(char c);
size_t parser_name_length(const char *text, const char *end);

/* Refuses characters that bash in another locale may take for a blank or a line end, and invisible
 * ones.  Returns the problem, or NULL. */
const char *parser_check_characters(const char *line, size_t size);

/* Skips blanks, \newline after a blank, and a comment; stops before the line end. */
void parser_skip_blanks(struct parser *p);
void parser_skip_blanks_and_line_ends(struct parser *p);

/* ---- shell_parse_words.c, shell_parse.c ---------------------------------------- */

/* Parses one word; NULL: it failed. */
struct shell_token *parser_token(struct parser *p, enum word_use use);

/* Parses commands up to the end of the line, or up to and including `closer`. */
struct shell_command *parser_list(struct parser *p, char closer);
