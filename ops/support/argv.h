/*
 * ops/support/argv.h - building the command line of a child, and asking a child.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

/* A NULL-terminated list of words that grows; zeroed is empty. */
struct argv {
	char **words;
	size_t count;
	bool failed; /* no memory: the list is not to be used */
};

void argv_add(struct argv *argv, const char *word); /* a copy; NULL sets `failed` */
void argv_add_two(struct argv *argv, const char *first, const char *second); /* "-u", "me" */
void argv_add_list(struct argv *argv, char *const *words);                   /* or NULL */
void argv_done(struct argv *argv);

#define cleanup_argv cleanup_with(argv_done)

/* The words, which the caller frees with argv_free_words(); the list is empty then.  -ENOMEM. */
int argv_steal(struct argv *argv, char ***ret_words);
void argv_free_words(char **words);

enum { ARGV_ANSWER_MAX_BYTES = 64 << 10 };

/* Runs the words with nothing on stdin, for at most `timeout_ms`: then it is killed.  Appends at
 * most the first ARGV_ANSWER_MAX_BYTES of its stdout and stderr (NULL: not wanted) and a NUL that
 * is not counted.  Returns its exit code; -ETIMEDOUT, -errno. */
int argv_ask(char *const *words, int timeout_ms, struct buffer *out, struct buffer *error);
