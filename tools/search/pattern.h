/*
 * tools/search/pattern.h - glob patterns as models write them.
 * Threads: any.
 */
#pragma once

/* What of an absolute pattern is below the root, with a leading '/', which binds it to the root;
 * points into `pattern`.  NULL: it is relative, or of another tree. */
const char *pattern_below_root(const char *pattern, const char *root);
