/*
 * tools/search/found.h - the matching lines of one file, as grep shows them.
 *
 * Of a line longer than 500 bytes the part with the first match is kept, with marks where it was
 * cut. Threads: none; the owner guards it.
 */
#pragma once

#include <cjson/cJSON.h>
#include <time.h>

#include "ops/support/buffer.h"
#include "tools/search/search.h"

struct line;

struct found {
	char *path;
	struct timespec mtime;
	uint64_t matches;
	struct line *lines;
	size_t count;
	size_t capacity;
	struct buffer memory;
};

/* `mtime` NULL: unknown.  NULL: no memory. */
struct found *found_new(const char *path, const struct timespec *mtime);
void found_free(struct found *found);

/* Adds a line; matches beyond `limit` are counted only.  0 or -ENOMEM. */
int found_add(struct found *found, const struct search_line *line, uint64_t limit);

/* Whether `a` stands before `b`: the later mtime, then the path. */
bool found_is_newer(const struct found *a, const struct found *b);

/* Appends the first `limit` matches with their context as "path:line: text"; `separates`: with "--"
 * between lines that are apart.  0 or -ENOMEM. */
int found_print(const struct found *found, uint64_t limit, bool separates, struct buffer *out);

/* Adds the same to the array `files`, as an object.  0 or -ENOMEM. */
int found_add_json(const struct found *found, uint64_t limit, cJSON *files);
