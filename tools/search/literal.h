/*
 * tools/search/literal.h - strings one of which every match of a pattern has in it.
 *
 * They are found many times faster than the pattern, and where none of them is, nothing can
 * match.
 */
#pragma once

#include "ops/support/literals.h"

/* The strings of `pattern`: of plain text, or of a PCRE2 pattern without PCRE2_EXTENDED.
 * 0 with `*ret_literals` NULL when it has none that would help; -ENOMEM. */
int literals_of_pattern(
	const char *pattern, bool plain, bool ignore_case, struct literals **ret_literals);
