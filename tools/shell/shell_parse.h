/*
 * tools/shell/shell_parse.h - a strict subset of bash: text to tree, and the tree printed again.
 *
 * The subset: words with '...', "...", backslashes and $'...' (\n \t \\ \' \" only); ~ and ~/x;
 * the patterns * ? [a-z]; $X, ${X}, $1, $? and the like; $( ); X=1; pipelines, !, time, && || ; &
 * and newline; ( ) and { }; > >> >| < 2>&1 &> <<< and here-documents without expansions.
 * Everything else is outside: other reserved words, functions, backticks, braces that expand,
 * ${X...} with an operator, arithmetic, arrays, <( ), invisible characters, invalid UTF-8,
 * and whatever shells and versions of bash read differently.
 *
 * The printed line means the same to bash, and has nothing in it that is not in the tree: every
 * literal is quoted unless it is plain letters.  To run a printed line is to run what was analysed.
 * Threads: any; nothing here looks at a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

enum { SHELL_LINE_MAX_BYTES = 100000, SHELL_DEPTH_MAX = 30 };

enum shell_part_type {
	SHELL_LITERAL,  /* `text` */
	SHELL_HOME,     /* ~ at the beginning; ends the word or comes before a / */
	SHELL_PATTERN,  /* `text` is * or ? or [...] */
	SHELL_VARIABLE, /* `text` is its name */
	SHELL_OUTPUT,   /* $( ) of `commands` */
};

struct shell_part {
	enum shell_part_type type;
	bool quoted;      /* SHELL_VARIABLE, SHELL_OUTPUT: neither split nor expanded again */
	const char *text; /* without quotes */
	struct shell_command *commands;
	struct shell_part *next;
};

/* One word, or one X=1 before the words.  Neighbours are never both literals. */
struct shell_token {
	const char *name; /* of the variable that it sets, or NULL */
	struct shell_part *parts;
	struct shell_token *next;
};

enum shell_redirection_type {
	SHELL_READ_FILE,   /* < */
	SHELL_WRITE_FILE,  /* >, >| */
	SHELL_APPEND_FILE, /* >> */
	SHELL_WRITE_BOTH,  /* &> */
	SHELL_APPEND_BOTH, /* &>> */
	SHELL_READ_TEXT,   /* <<<, and here-documents */
	SHELL_COPY_OUTPUT, /* >&1 */
	SHELL_COPY_INPUT,  /* <&0 */
};

struct shell_redirection {
	enum shell_redirection_type type;
	char fd;                    /* the digit in front, or 0 */
	bool clobber;               /* >| */
	char from;                  /* SHELL_COPY_...: a digit, or - to close */
	struct shell_token *target; /* else */
	struct shell_redirection *next;
};

/* What comes after a command. */
enum shell_join {
	SHELL_THEN,       /* ; newline, the end */
	SHELL_BACKGROUND, /* & */
	SHELL_AND,
	SHELL_OR,
	SHELL_PIPE,
	SHELL_PIPE_BOTH, /* |& */
};

enum shell_command_type { SHELL_SIMPLE, SHELL_SUBSHELL /* ( ) */, SHELL_GROUP /* { } */ };

struct shell_command {
	enum shell_command_type type;
	const char *prefix;           /* "! ", "time " or both; "" */
	struct shell_token *settings; /* SHELL_SIMPLE: X=1 in front ... */
	struct shell_token *words;    /* ... and the words; there may be neither */
	struct shell_command *body;   /* else; never NULL */
	struct shell_redirection *redirections;
	enum shell_join join;
	struct shell_command *next; /* never NULL after && || | |& */
};

struct shell_tree {
	struct shell_command *commands; /* NULL: there is no command in the line */
	struct shell_block *memory;     /* of all of it */
};

/* 0, -ENOMEM, or -EINVAL with what is outside the subset in `*ret_problem` (static; "it ..."). */
int shell_parse(const char *line, struct shell_tree *ret_tree, const char **ret_problem);
void shell_tree_done(struct shell_tree *tree);

/* Makes the word stand for `text`.  0 or -ENOMEM. */
int shell_tree_replace(struct shell_tree *tree, struct shell_token *token, const char *text);

/* Appends the list as one line of bash.  0 or -ENOMEM. */
int shell_print(const struct shell_command *commands, struct buffer *out);

/* Appends the word; no two different ones are printed the same.  0 or -ENOMEM. */
int shell_print_token(const struct shell_token *token, struct buffer *out);

/* Appends the text as a word: as it is when it has only letters, digits and _./,:+@%^=-, else
 * quoted.  0 or -ENOMEM. */
int shell_print_literal(const char *text, struct buffer *out);

/* True for the words that bash does not take for programs where a command begins. */
bool shell_is_reserved(const char *text, size_t size);
