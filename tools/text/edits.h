/*
 * tools/text/edits.h - replaces parts of a text, and shows what changed.
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
	EDITS_OVERLAP, /* two edits match the same bytes */
	EDITS_NO_CHANGE,
	EDITS_NO_MEMORY,
};

struct edits_plan {
	struct edit_region *regions; /* sorted, without overlaps */
	size_t count;
	struct buffer result;
	bool tolerant; /* at least one edit did not match byte by byte */

	enum edits_problem problem;
	size_t problem_edit;    /* index of the edit with the problem */
	size_t problem_matches; /* EDITS_AMBIGUOUS: number of matches */
	size_t problem_at[8];   /* EDITS_AMBIGUOUS: offsets of the first matches */
};

/* Matches all edits against the original `text`: exactly; else without regard to line ends; else
 * without regard to characters that look the same (tools/text/normalise.h).  The new text gets the
 * line ends of the text that it replaces.  Returns ret_plan->problem. */
enum edits_problem edits_plan(const uint8_t *text, size_t size, const struct edit *edits,
	size_t edit_count, struct edits_plan *ret_plan);
void edits_plan_done(struct edits_plan *plan);

/* Finds the lines [*ret_first, *ret_last] (from 1) of `text` that resemble `wanted` most; false:
 * none does. */
bool edits_nearest(
	const uint8_t *text, size_t size, const char *wanted, size_t *ret_first, size_t *ret_last);

/* The number, from 1, of the line with the byte at offset `at`. */
size_t edits_line_of(const uint8_t *text, size_t at);

/* Appends lines [first, last] with their numbers, in the form `  12  text`. */
int edits_show_lines(
	const uint8_t *text, size_t size, size_t first, size_t last, struct buffer *out);

/* Appends a unified diff (3 lines of context) from `text` to the result, with bytes unchanged so
 * that patch(1) can apply it.  0 or -errno. */
int edits_diff(const char *path, const uint8_t *text, size_t size, const struct edits_plan *plan,
	struct buffer *out);

/* Copies a diff for display: of lines that are longer than a screen (in minified files) only the
 * part around the first change.  `*ret_cut`: a line was shortened.  0 or -ENOMEM. */
int edits_diff_shorten(const struct buffer *diff, struct buffer *out, bool *ret_cut);
