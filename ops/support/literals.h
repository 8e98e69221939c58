/*
 * ops/support/literals.h - a set of strings, and where the next of them is in memory.
 *
 * Without regard to case, the letters of ASCII count as the same in both; other bytes are compared.
 * Threads: a set does not change once made; a scan belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LITERALS_MAX = 8, LITERAL_MAX_BYTES = 16 << 10 };

struct literals;

struct literal_text {
	const uint8_t *bytes;
	size_t size;
};

/* Copies the strings.  -EINVAL: none, too many, an empty one or one that is too long; -ENOMEM. */
int literals_new(const struct literal_text *texts, size_t count, bool ignore_case,
	struct literals **ret_literals);
void literals_free(struct literals *literals); /* NULL is fine */

size_t literals_count(const struct literals *literals);
struct literal_text literals_text(const struct literals *literals, size_t index);
bool literals_ignore_case(const struct literals *literals);

/* True when one of them is a single byte that stands on most lines: a weak filter. */
bool literals_are_common(const struct literals *literals);

struct literal_scan { /* zeroed in front of each piece of memory */
	bool begun;
	const uint8_t *next[LITERALS_MAX];
};

/* Where the next of them begins at or after `at`; NULL: nowhere before `end`.  `at` must not
 * decrease within one scan. */
const uint8_t *literals_find(const struct literals *literals, struct literal_scan *scan,
	const uint8_t *at, const uint8_t *end);
