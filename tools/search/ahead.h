/*
 * tools/search/ahead.h - asks the workspace to search its files before a walk on a mount.
 *
 * The results of the walk are the same with and without it.  With it, the walk skips files that
 * cannot match, and the files that it reads are in the cache.
 * Threads: any, after ahead_ask() has returned.
 */
#pragma once

#include "ops/support/literals.h"
#include "tools/search/walk.h"
#include "tools/base/tool.h"

struct ahead;

/* What the workspace found in a file. */
struct ahead_file {
	const char *path;     /* relative to the searched directory */
	const uint8_t *lines; /* an excerpt (ops/support/excerpt.h) of all lines that have one of
			       * the texts, with the requested context; NULL: no line has */
	size_t lines_size;
};

/* Asks the mount to search the directory `path` below the root, and waits for the answer, at most
 * until `deadline_ns` (CLOCK_MONOTONIC) or until the call is cancelled.  `texts`: every match of
 * the search has one of them; NULL: only names are needed.  `names`: a glob for the names or paths
 * of the files, or NULL.  `context`: lines around each match.
 * NULL, which the functions below accept: no answer, for example without a mount. */
struct ahead *ahead_ask(struct tool_call *call, const char *path, const struct literals *texts,
	const char *names, unsigned context, uint64_t deadline_ns);
void ahead_free(struct ahead *ahead);

/* The answer about a file; NULL: there is none, the file must be read. */
const struct ahead_file *ahead_find(const struct ahead *ahead, const struct walk_entry *entry);
