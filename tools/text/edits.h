/*
 * tools/text/edits.h - replacing parts of a text, and showing what changed.
 *
 * Works on bytes in memory; knows nothing of files or calls.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct edit {
	const char *old_text;
	const char *new_text;
	bool replace_all;
};

/* One replaced part of the original. */
struct edit_region {
	size_t start; /* bytes of the original */
	size_t end;
	size_t new_start; /* bytes of the result */
	size_t new_end;
	size_t edit; /* index of the edit */
};

enum edits_problem {
	EDITS_OK,
	EDITS_NO_MATCH,
	EDITS_AMBIGUOUS,
	EDITS_OVERLAP, /* two edits want the same bytes */
	EDITS_NO_CHANGE,
	EDITS_NO_MEMORY,
};

struct edits_plan {
	struct edit_region *regions; /* sorted, apart from each other */
	size_t count;
	struct buffer result;
	bool tolerant; /* at least one edit did not match byte by byte */

	enum edits_problem problem;
	size_t problem_edit;    /* which edit has it */
	size_t problem_matches; /* ambiguous: how many */
	size_t problem_at[8];   /* ambiguous: where the first ones begin */
};

/* All edits match against `text`.  Exactly first, then without regard to line ends, then
 * without regard to what looks the same (tools/text/normalise.h).  Line ends of a new text
 * become those of what it replaces.  `problem` says how it went. */
enum edits_problem edits_plan(const uint8_t *text, size_t size, const struct edit *edits,
	size_t edit_count, struct edits_plan *ret_plan);
void edits_plan_done(struct edits_plan *plan);

/* Lines [*ret_first, *ret_last] (from 1) of `text` that are most like `wanted`; false: none is. */
bool edits_nearest(
	const uint8_t *text, size_t size, const char *wanted, size_t *ret_first, size_t *ret_last);

/* The number, from 1, of the line that byte `at` is in. */
size_t edits_line_of(const uint8_t *text, size_t at);

/* Appends lines [first, last] with their numbers, as `  12  text`. */
int edits_show_lines(
	const uint8_t *text, size_t size, size_t first, size_t last, struct buffer *out);

/* Appends a unified diff (3 lines of context) that patch(1) turns `text` into the result
 * with; real bytes.  0 or -errno. */
int edits_diff(const char *path, const uint8_t *text, size_t size, const struct edits_plan *plan,
	struct buffer *out);

/* Copies a diff for a reader: of a line that is longer than a screen holds (a minified file's) only
 * the part around its first change.  `*ret_cut`: some were.  -ENOMEM. */
int edits_diff_shorten(const struct buffer *diff, struct buffer *out, bool *ret_cut);
