/*
 * tools/shell_words.h - what is known about the words of simple commands.
 *
 * Knows programs that run other programs, but nothing of a parser.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

struct shell_words {
	char **list;
	size_t count;
	bool open_ended; /* more words follow that are not known */
};

/* Adds a copy of the word.  0 or -ENOMEM. */
int shell_words_add(struct shell_words *words, const struct buffer *word);
void shell_words_done(struct shell_words *words);

/* The first `count` words with blanks between; the caller frees it.  NULL: no memory. */
char *shell_words_join(const struct shell_words *words, size_t count);

/* As shell_words_join(), without assignments in front, the path of the program, and the options
 * before its sub-command.  NULL: no memory. */
char *shell_words_plain(const struct shell_words *words);

/* "cd" alone; what changes the directory for words after it, or for itself (-C). */
bool shell_words_go_home(const struct shell_words *words);
bool shell_words_move(const struct shell_words *words);

/* A built-in that looks at a word as at an expression (read 'a[i]'); or that sets variables
 * to what it reads. */
bool shell_words_evaluate(const struct shell_words *words);
bool shell_words_take_input(const struct shell_words *words);

/* How many of them say what the command is: 1 for "ls -l", 2 for "npm run test". */
size_t shell_words_prefix(const struct shell_words *words);

/* True for echo and the like, which do nothing with their words. */
bool shell_words_only_print(const struct shell_words *words);

/* What a command runs besides itself. */
struct shell_inner {
	bool transparent; /* it does nothing but that: env X=1, nohup, bash -c */
	bool unknown;     /* it runs what is not in the line: a shell that reads its input */
	bool has_command; /* words [from, to) are a command of their own ... */
	size_t from, to;
	bool open_ended;    /* ... to which words are added */
	char *line;         /* a command line of its own; the caller frees it */
	const char *reason; /* why unknown; static */
};

/* `*ret_inner` is all zero for a command that runs no other. */
void shell_words_look_inside(const struct shell_words *words, struct shell_inner *ret_inner);

/* The part of a word that is a path ("--file=/etc/x", "-I/usr", "~/x", "../y"), or NULL. */
const char *shell_path_in_word(const char *word);

/* True when the path, seen from `directory` below `root`, is outside the root.  (/dev/null and
 * the like are not.) */
bool shell_path_is_outside(const char *path, const char *root, const char *directory);

/* PATH, LD_PRELOAD, IFS and others that change what a command name means or does. */
bool shell_variable_is_special(const char *name, size_t length);
