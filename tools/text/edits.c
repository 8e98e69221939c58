#include "tools/text/edits.h"

#include <errno.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "tools/text/normalise.h"
#include "tools/text/text.h"

/* ---- Finding ------------------------------------------------------------------ */

struct matches {
	size_t *at;
	size_t count;
	size_t capacity;
};

static int matches_add(struct matches *m, size_t at)
{
	if (m->count == m->capacity) {
		size_t capacity = m->capacity ? m->capacity * 2 : 16;
		size_t *grown = reallocarray(m->at, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		m->at = grown;
		m->capacity = capacity;
	}
	m->at[m->count++] = at;
	return 0;
}

static int find_all(
	const uint8_t *text, size_t size, const void *wanted, size_t wanted_size, struct matches *m)
{
	const uint8_t *at = text, *end = text + size;

	m->count = 0;
	while (wanted_size && (at = memmem(at, (size_t)(end - at), wanted, wanted_size))) {
		if (matches_add(m, (size_t)(at - text)) < 0)
			return -ENOMEM;
		at += wanted_size;
	}
	return 0;
}

static int add_region(struct edits_plan *plan, size_t start, size_t end, size_t edit)
{
	/* The capacity doubles when the count is a power of two. */
	if ((plan->count & (plan->count - 1)) == 0) {
		size_t capacity = plan->count ? plan->count * 2 : 1;
		struct edit_region *grown = reallocarray(plan->regions, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		plan->regions = grown;
	}
	plan->regions[plan->count++] =
		(struct edit_region){.start = start, .end = end, .edit = edit};
	return 0;
}

static enum edits_problem ambiguous(struct edits_plan *plan, size_t edit, const struct matches *m)
{
	plan->problem_edit = edit;
	plan->problem_matches = m->count;
	for (size_t i = 0; i < m->count && i < array_size(plan->problem_at); i++)
		plan->problem_at[i] = m->at[i];
	return EDITS_AMBIGUOUS;
}

/* Finds overlapping matches as well: "aa" occurs twice in "aaa" and is not unique. */
static int find_overlapping(
	const uint8_t *text, size_t size, const void *wanted, size_t wanted_size, struct matches *m)
{
	const uint8_t *again;

	if (m->count != 1)
		return 0;
	again = text + m->at[0] + 1;
	again = memmem(again, size - m->at[0] - 1, wanted, wanted_size);
	return again ? matches_add(m, (size_t)(again - text)) : 0;
}

static enum edits_problem match_exactly(const uint8_t *text, size_t size, const struct edit *edit,
	size_t index, struct matches *m, struct edits_plan *plan)
{
	size_t wanted_size = strlen(edit->old_text);

	if (find_all(text, size, edit->old_text, wanted_size, m) < 0 ||
		(!edit->replace_all &&
			find_overlapping(text, size, edit->old_text, wanted_size, m) < 0))
		return EDITS_NO_MEMORY;
	if (m->count == 0)
		return EDITS_NO_MATCH;
	if (m->count > 1 && !edit->replace_all)
		return ambiguous(plan, index, m);
	for (size_t i = 0; i < m->count; i++)
		if (add_region(plan, m->at[i], m->at[i] + wanted_size, index) < 0)
			return EDITS_NO_MEMORY;
	return EDITS_OK;
}

/* Matches in the normal form, and maps each match to bytes of the original.  A match that begins or
 * ends inside an original character does not count. */
static enum edits_problem match_normally(const uint8_t *text, size_t size, const struct edit *edit,
	size_t index, enum normalise_level level, struct matches *m, struct edits_plan *plan)
{
	struct buffer normal cleanup_buffer = {0}, wanted cleanup_buffer = {0};
	cleanup_free struct normalise_mark *marks = NULL;
	size_t kept = 0;

	if (normalise((const uint8_t *)edit->old_text, strlen(edit->old_text), level, &wanted, NULL,
		    0) < 0 ||
		normalise(text, size, level, &normal, NULL, 0) < 0)
		return EDITS_NO_MEMORY;
	if (wanted.size == 0 || normal.size == 0)
		return EDITS_NO_MATCH;
	if (find_all(normal.data, normal.size, wanted.data, wanted.size, m) < 0)
		return EDITS_NO_MEMORY;
	if (m->count == 0)
		return EDITS_NO_MATCH;
	marks = calloc(2 * m->count, sizeof(*marks));
	if (!marks)
		return EDITS_NO_MEMORY;
	for (size_t i = 0; i < m->count; i++) {
		marks[2 * i] = (struct normalise_mark){.normal = m->at[i]};
		marks[2 * i + 1] =
			(struct normalise_mark){.normal = m->at[i] + wanted.size, .is_end = true};
	}
	if (normalise(text, size, level, NULL, marks, 2 * m->count) < 0)
		return EDITS_NO_MEMORY;
	for (size_t i = 0; i < m->count; i++) {
		if (marks[2 * i].original == SIZE_MAX || marks[2 * i + 1].original == SIZE_MAX)
			continue;
		m->at[kept] = marks[2 * i].original;
		marks[kept++] = marks[2 * i + 1];
	}
	m->count = kept;
	if (kept == 0)
		return EDITS_NO_MATCH;
	if (kept > 1 && !edit->replace_all)
		return ambiguous(plan, index, m);
	for (size_t i = 0; i < kept; i++)
		if (add_region(plan, m->at[i], marks[i].original, index) < 0)
			return EDITS_NO_MEMORY;
	plan->tolerant = true;
	return EDITS_OK;
}

static enum edits_problem match(const uint8_t *text, size_t size, const struct edit *edit,
	size_t index, struct edits_plan *plan)
{
	struct matches m = {0};
	enum edits_problem problem = match_exactly(text, size, edit, index, &m, plan);

	for (int level = NORMALISE_LINE_ENDS; problem == EDITS_NO_MATCH && level <= NORMALISE_LOOKS;
		level++)
		problem = match_normally(
			text, size, edit, index, (enum normalise_level)level, &m, plan);
	free(m.at);
	if (problem != EDITS_OK)
		plan->problem_edit = index;
	return problem;
}

/* ---- Replacing ------------------------------------------------------------------- */

/* The first line end in the bytes: "\n", "\r\n" or "\r"; NULL: none. */
static const char *line_end_in(const uint8_t *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\n')
			return "\n";
		if (text[i] == '\r')
			return i + 1 < size && text[i + 1] == '\n' ? "\r\n" : "\r";
	}
	return NULL;
}

/* `file_end`: the line end of the file, used for regions without one. */
static int append_new_text(const uint8_t *text, const struct edit_region *region,
	const char *file_end, const char *new_text, struct buffer *out)
{
	const char *line_end = line_end_in(text + region->start, region->end - region->start);

	if (!line_end)
		line_end = file_end;
	if (!line_end || strcmp(line_end, "\n") == 0 || strchr(new_text, '\r'))
		return buffer_append_string(out, new_text);
	while (*new_text) {
		size_t length = strcspn(new_text, "\n");
		int r = buffer_append(out, new_text, length);

		if (r == 0 && new_text[length])
			r = buffer_append_string(out, line_end);
		if (r < 0)
			return r;
		new_text += length + (new_text[length] != '\0');
	}
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct edit_region *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static enum edits_problem replace(
	const uint8_t *text, size_t size, const struct edit *edits, struct edits_plan *plan)
{
	const char *file_end = line_end_in(text, size);
	size_t at = 0;

	if (plan->count > 1)
		qsort(plan->regions, plan->count, sizeof(*plan->regions), by_start);
	for (size_t i = 0; i < plan->count; i++) {
		struct edit_region *region = &plan->regions[i];

		if (region->start < at) {
			plan->problem_edit = region->edit;
			return EDITS_OVERLAP;
		}
		if (buffer_append(&plan->result, text + at, region->start - at) < 0)
			return EDITS_NO_MEMORY;
		region->new_start = plan->result.size;
		if (append_new_text(text, region, file_end, edits[region->edit].new_text,
			    &plan->result) < 0)
			return EDITS_NO_MEMORY;
		region->new_end = plan->result.size;
		at = region->end;
	}
	if (buffer_append(&plan->result, text + at, size - at) < 0)
		return EDITS_NO_MEMORY;
	if (plan->result.size == size && (size == 0 || memcmp(plan->result.data, text, size) == 0))
		return EDITS_NO_CHANGE;
	return EDITS_OK;
}

enum edits_problem edits_plan(const uint8_t *text, size_t size, const struct edit *edits,
	size_t edit_count, struct edits_plan *ret_plan)
{
	struct edits_plan plan = {0};

	for (size_t i = 0; i < edit_count && plan.problem == EDITS_OK; i++)
		plan.problem = match(text, size, &edits[i], i, &plan);
	if (plan.problem == EDITS_OK)
		plan.problem = replace(text, size, edits, &plan);
	*ret_plan = plan;
	return plan.problem;
}

void edits_plan_done(struct edits_plan *plan)
{
	free(plan->regions);
	buffer_done(&plan->result);
	*plan = (struct edits_plan){0};
}

/* ---- The nearest region -------------------------------------------------------------- */

enum { NEAREST_LINES_MAX = 200000, NEAREST_WANTED_MAX = 200, NEAREST_LINE_BYTES = 400 };

struct line {
	const uint8_t *text; /* without leading and trailing blanks */
	size_t size;
};

static struct line next_line(const uint8_t **at, const uint8_t *end)
{
	const uint8_t *newline = memchr(*at, '\n', (size_t)(end - *at));
	const uint8_t *stop = newline ? newline : end;
	struct line line = {*at, (size_t)(stop - *at)};

	while (line.size && (line.text[0] == ' ' || line.text[0] == '\t'))
		line.text++, line.size--;
	while (line.size && strchr(" \t\r", line.text[line.size - 1]) && line.text[line.size - 1])
		line.size--;
	*at = newline ? newline + 1 : end;
	return line;
}

static size_t split_lines(const uint8_t *text, size_t size, struct line *lines, size_t max)
{
	const uint8_t *at = text, *end = text + size;
	size_t count = 0;

	while (at < end && count < max)
		lines[count++] = next_line(&at, end);
	return count;
}

/* The similarity of two lines, 0 to 100: the share of byte pairs that they have in common. */
static unsigned likeness(const struct line *a, const struct line *b)
{
	uint8_t seen[4096] = {0};
	size_t common = 0, a_size, b_size;

	if (a->size == b->size && memcmp(a->text, b->text, a->size) == 0)
		return 100;
	a_size = a->size < NEAREST_LINE_BYTES ? a->size : NEAREST_LINE_BYTES;
	b_size = b->size < NEAREST_LINE_BYTES ? b->size : NEAREST_LINE_BYTES;
	if (a_size < 2 || b_size < 2)
		return 0;
	for (size_t i = 0; i + 1 < a_size; i++)
		if (seen[(a->text[i] * 31U + a->text[i + 1]) % sizeof(seen)] < 255)
			seen[(a->text[i] * 31U + a->text[i + 1]) % sizeof(seen)]++;
	for (size_t i = 0; i + 1 < b_size; i++) {
		uint8_t *pair = &seen[(b->text[i] * 31U + b->text[i + 1]) % sizeof(seen)];

		if (*pair) {
			(*pair)--;
			common++;
		}
	}
	return (unsigned)(200 * common / (a_size + b_size - 2)) * 99 / 100;
}

bool edits_nearest(
	const uint8_t *text, size_t size, const char *wanted, size_t *ret_first, size_t *ret_last)
{
	cleanup_free struct line *lines = calloc(NEAREST_LINES_MAX, sizeof(*lines));
	struct line want[NEAREST_WANTED_MAX];
	size_t want_count =
		split_lines((const uint8_t *)wanted, strlen(wanted), want, NEAREST_WANTED_MAX);
	size_t count, best_at = 0, anchor = 0;
	unsigned best = 0;

	if (!lines || want_count == 0)
		return false;
	count = split_lines(text, size, lines, NEAREST_LINES_MAX);
	/* The longest wanted line identifies the place best. */
	for (size_t i = 1; i < want_count; i++)
		if (want[i].size > want[anchor].size)
			anchor = i;
	for (size_t at = 0; at < count; at++) {
		unsigned score = likeness(&lines[at], &want[anchor]) * 4;

		if (score < 120)
			continue;
		if (anchor > 0 && at > 0)
			score += likeness(&lines[at - 1], &want[anchor - 1]);
		if (anchor + 1 < want_count && at + 1 < count)
			score += likeness(&lines[at + 1], &want[anchor + 1]);
		if (score > best) {
			best = score;
			best_at = at;
		}
	}
	if (best == 0)
		return false;
	*ret_first = best_at > anchor ? best_at - anchor + 1 : 1;
	*ret_last = *ret_first + want_count - 1;
	if (*ret_last > count)
		*ret_last = count;
	return true;
}

size_t edits_line_of(const uint8_t *text, size_t at)
{
	const uint8_t *end = text + at;
	size_t line = 1;

	while ((text = memchr(text, '\n', (size_t)(end - text)))) {
		line++;
		text++;
	}
	return line;
}

int edits_show_lines(
	const uint8_t *text, size_t size, size_t first, size_t last, struct buffer *out)
{
	const uint8_t *at = text, *end = text + size;

	for (size_t number = 1; at < end && number <= last; number++) {
		const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((newline ? newline : end) - at);

		if (number >= first &&
			(buffer_printf(out, "%6zu  ", number) < 0 ||
				utf8_append_clean(out, at, text_cut(at, length, 500)) < 0 ||
				buffer_append_string(out, "\n") < 0))
			return -ENOMEM;
		at = newline ? newline + 1 : end;
	}
	return 0;
}
