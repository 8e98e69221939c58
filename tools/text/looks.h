/*
 * tools/text/looks.h - names that look the same and differ in bytes.
 *
 * macOS writes U+202F before "AM", some file systems decompose letters, and models write what they
 * see.  Two names look the same if they are equal after compatibility decomposition (NFKD), with
 * blanks, dashes and quotes in ASCII, and without characters that nobody can see.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

/* Appends what `name` looks like.  0 or -ENOMEM. */
int looks_append(const char *name, struct buffer *out);

/* Whether `wanted` looks like `name`, or is its escaped form.  False without memory. */
bool looks_same(const char *wanted, const char *name);

/* Whether the name has characters that looks_escape() escapes. */
bool looks_special(const char *name);

/* Appends the name with the characters that look like others escaped as in JSON: "a\u202fb".  0 or
 * -ENOMEM. */
int looks_escape(const char *name, struct buffer *out);
