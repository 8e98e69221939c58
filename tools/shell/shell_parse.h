/*
 * tools/shell/shell_parse.h - parses a strict subset of bash, and prints the tree again.
 *
 * The subset: words with '...', "...", backslashes and $'...' (\n \t \\ \' \" only); ~ and ~/x;
 * the patterns * ? [a-z]; $X, ${X}, $1, $? and the like; $( ); X=1; pipelines, !, time, && || ; &
 * and newline; ( ) and { }; > >> >| < 2>&1 &> <<< and here-documents without expansions.
 * Everything else is refused: other reserved words, functions, backticks, brace expansion, ${X...}
 * with an operator, arithmetic, arrays, <( ), invisible characters, invalid UTF-8, and constructs
 * that shells or versions of bash interpret differently.
 *
 * The printed line means the same to bash and contains nothing that is not in the tree: every
 * literal is quoted unless it is plain letters.  Running the printed line therefore runs exactly
 * what was analysed.
 * Threads: any.  No function here accesses a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

enum { SHELL_LINE_MAX_BYTES = 100000, SHELL_DEPTH_MAX = 30 };

enum shell_part_type {
	SHELL_LITERAL,  /* `text` */
	SHELL_HOME,     /* ~ at the beginning of the word, before its end or a / */
	SHELL_PATTERN,  /* `text` is * or ? or [...] */
	SHELL_VARIABLE, /* `text` is the name of the variable */
	SHELL_OUTPUT,   /* $( ) of `commands` */
};

struct shell_part {
	enum shell_part_type type;
	bool quoted; /* SHELL_VARIABLE, SHELL_OUTPUT: the value is neither split nor a pattern */
	const char *text; /* after quote removal */
	struct shell_command *commands;
	struct shell_part *next;
};

/* A word, or an assignment X=1 before the words.  Adjacent parts are never both literals. */
struct shell_token {
	const char *name; /* the variable of an assignment; NULL: a word */
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
	char fd;                    /* the digit before the operator, or 0 */
	bool clobber;               /* >| */
	char from;                  /* SHELL_COPY_...: a digit, or - to close */
	struct shell_token *target; /* other types */
	struct shell_redirection *next;
};

/* The operator after a command. */
enum shell_join {
	SHELL_THEN,       /* ; or newline, or the end of the line */
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
	struct shell_token *settings; /* SHELL_SIMPLE: the assignments; may be NULL */
	struct shell_token *words;    /* SHELL_SIMPLE: the words; may be NULL */
	struct shell_command *body;   /* other types; never NULL */
	struct shell_redirection *redirections;
	enum shell_join join;
	struct shell_command *next; /* never NULL after && || | |& */
};

struct shell_tree {
	struct shell_command *commands; /* NULL: the line has no command */
	struct shell_block *memory;     /* of the whole tree */
};

/* 0; -ENOMEM; -EINVAL: outside the subset, `*ret_problem` (static; "it ...") says why. */
int shell_parse(const char *line, struct shell_tree *ret_tree, const char **ret_problem);
void shell_tree_done(struct shell_tree *tree);

/* Replaces the word by the literal `text`.  0 or -ENOMEM. */
int shell_tree_replace(struct shell_tree *tree, struct shell_token *token, const char *text);

/* Appends the commands as one line of bash.  0 or -ENOMEM. */
int shell_print(const struct shell_command *commands, struct buffer *out);

/* Appends the word; different words are printed differently.  0 or -ENOMEM. */
int shell_print_token(const struct shell_token *token, struct buffer *out);

/* Appends the text as one word: unchanged if it has only letters, digits and _./,:+@%^=-, else
 * quoted.  0 or -ENOMEM. */
int shell_print_literal(const char *text, struct buffer *out);

/* Whether bash takes the word for a reserved word, not a program, at the start of a command. */
bool shell_is_reserved(const char *text, size_t size);
