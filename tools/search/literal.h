/*
 * tools/search/literal.h - derives literal strings from a pattern, so that every match contains at
 * least one of them.
 *
 * Searching for the strings is many times faster than matching the pattern; text without any of
 * them cannot match.
 */
#pragma once

#include "ops/support/literals.h"

/* The strings of `pattern`, which is plain text or a PCRE2 pattern without PCRE2_EXTENDED.
 * 0; `*ret_literals` NULL: no string would help; -ENOMEM. */
int literals_of_pattern(
	const char *pattern, bool plain, bool ignore_case, struct literals **ret_literals);
