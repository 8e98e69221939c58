/*
 * ops/support/redact_names.h - names that say that a value is a secret.  Part of redact.h.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

/* A part of a line. */
struct span {
	const char *at, *end;
};

/* Letters, digits, '_', '-', '.'. */
bool redact_is_name_byte(char c);

/* The name that begins there; empty where none does. */
struct span redact_name_at(const char *at, const char *end);

/* A name such as DB_PASSWORD, api-key or accessToken. */
bool redact_is_secret_name(struct span name);

/* Nothing to hide: a switch, a variable that a shell puts in, or docker's description of where a
 * secret is. */
bool redact_is_harmless_value(struct span value);
