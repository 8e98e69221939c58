/*
 * ops/support/redact.h - command lines without the secrets that they hold, for the mount log.
 *
 * What looks like a secret becomes "***": values of options, variables, headers and JSON members
 * whose name says so (--password x, API_TOKEN=x, "Authorization: Bearer x"), passwords in URLs and
 * in the options of well-known programs (mysql -pX, curl -u user:X), and keys that are known by
 * their shape (ghp_..., AKIA...).  It is a guess by the text alone: a secret in an unusual place
 * stays, and a harmless word may go.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

/* Appends a line for a shell.  Sets `*redacted` when something was left out.  -ENOMEM. */
int redact_line(struct buffer *out, const char *line, bool *redacted);

/* The same for the words of a command, with blanks between them. */
int redact_words(struct buffer *out, const char *const *words, bool *redacted);
