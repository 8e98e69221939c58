/*
 * tools/search/literal.h - strings one of which every match of a pattern has in it.
 *
 * They are found many times faster than the pattern, and where none of them is, nothing can
 * match.  Threads: a set does not change once made; a scan belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LITERALS_MAX = 8 };

struct literals;

struct literal_scan { /* zeroed in front of each piece of memory */
	bool begun;
	const uint8_t *next[LITERALS_MAX];
};

/* The strings of `pattern`: of plain text, or of a PCRE2 pattern without PCRE2_EXTENDED.
 * 0 with `*ret_literals` NULL when it has none that would help; -ENOMEM. */
int literals_new(const char *pattern, bool plain, bool ignore_case, struct literals **ret_literals);
void literals_free(struct literals *literals);

/* True when the next single byte stands on most lines: a weak filter. */
bool literals_are_common(const struct literals *literals);

/* Where the next of them begins at or after `at`; NULL: nowhere before `end`.  `at` never
 * goes back within one scan. */
const uint8_t *literals_find(const struct literals *literals, struct literal_scan *scan,
	const uint8_t *at, const uint8_t *end);
