/*
 * ops/support/glob.h - shell patterns over paths, with git's meaning.
 *
 * `*` and `?` do not match '/'; a path component `**` matches any number of components;
 * [a-z], [!a-z], [[:alpha:]] and \x work.  Bytes are compared.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True when the pattern matches the whole path. */
bool glob_match(const char *pattern, const char *path);

/* False: a bracket does not close or has an unknown class; such a pattern can match nothing. */
bool glob_is_valid(const char *pattern);

/* False: a brace of {a,b} does not close; it then stands for itself. */
bool glob_braces_close(const char *pattern);

/* True when the pattern has a character that means something else than itself. */
bool glob_is_special(const char *pattern);

/* A pattern of a user: {a,b} is expanded, and one without '/' matches the name in any
 * directory. */
struct glob {
	char **patterns; /* without braces */
	size_t count;
};

/* 0, -ENOMEM, -E2BIG (more than 1000 alternatives), -EINVAL (it is not valid). */
int glob_compile(const char *text, struct glob *ret_glob);
void glob_done(struct glob *glob);

/* `path` is relative to where the pattern begins. */
bool glob_matches(const struct glob *glob, const char *path);
