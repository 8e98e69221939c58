/*
 * tools/search/pattern.h - glob patterns as models write them.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/glob.h"
#include "tools/base/tool.h"

/* What of an absolute pattern is below the root, with a leading '/', which binds it to the root;
 * points into `pattern`.  NULL: it is relative, or of another tree. */
const char *pattern_below_root(const char *pattern, const char *root);

/* glob_compile() of a pattern, which `what` names.  0, or -1 (recorded). */
int pattern_compile(
	struct tool_call *call, const char *what, const char *pattern, struct glob *ret_glob);

/* True for a glob that no path below the root matches: of another tree, or with "..". */
bool pattern_leads_out(const char *pattern);

/* True when a regular expression names a line end, or plain text has one. */
bool pattern_has_line_end(const char *pattern, bool is_literal);
