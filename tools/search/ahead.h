/*
 * tools/search/ahead.h - before a walk on a mount: has the workspace look through the files there.
 *
 * The walk is the same with it and without it: it only need not open files in which nothing can
 * match, and finds on this machine what it will read.
 * Threads: any, once asked.
 */
#pragma once

#include "ops/support/literals.h"
#include "tools/search/walk.h"
#include "tools/base/tool.h"

struct ahead;

/* What the workspace found in a file, after the asking. */
struct ahead_file {
	const char *path;     /* from the directory on that was asked about */
	const uint8_t *lines; /* an excerpt (ops/support/excerpt.h): all that have one of the
			       * texts, with the context asked for; NULL: none has */
	size_t lines_size;
};

/* Asks the mount about the directory `path` below the root, and waits for its answer: until
 * `deadline_ns` (CLOCK_MONOTONIC) at most, or until the call is cancelled.  `texts`: one of which
 * is in what will be looked for; NULL: names alone are wanted.  `names`: a glob that the names or
 * paths of the files will match; or NULL.  `context`: lines that are wanted around each.
 * NULL, which is fine below, when there is nothing to tell: no mount, for example. */
struct ahead *ahead_ask(struct tool_call *call, const char *path, const struct literals *texts,
	const char *names, unsigned context, uint64_t deadline_ns);
void ahead_free(struct ahead *ahead);

/* What was found in the file; NULL: nothing is said of it. */
const struct ahead_file *ahead_find(const struct ahead *ahead, const struct walk_entry *entry);
