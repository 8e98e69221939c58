/* Applies the patches of tools/text/patch.h. */
#include <errno.h>
#include <string.h>

#include "tools/text/normalise.h"
#include "tools/text/patch.h"

struct line { /* bytes [start, end) of the text; its line end is [end, stop) */
	size_t start, end, stop;
	size_t normal, normal_end; /* in `normal` of struct work; set once `is_normal` */
};

struct work {
	const uint8_t *text;
	size_t size;
	size_t skip; /* bytes of a byte order mark */
	struct line *lines;
	size_t count;
	struct buffer normal;
	bool is_normal;
	size_t at;       /* first line that the next hunk may match */
	size_t copied;   /* bytes of the text that were copied to the result or replaced */
	bool ends_added; /* the last line of the result so far is an added one */
	struct patch_result *result;
};

/* One hunk: lines of the patch. */
struct hunk {
	const struct patch_line *seeks, *body;
	size_t seek_count, count;
	bool at_end;
};

static void work_done(struct work *work)
{
	free(work->lines);
	buffer_done(&work->normal);
}

static int split(struct work *work)
{
	size_t at, i = 0;

	if (work->size >= 3 && memcmp(work->text, "\xef\xbb\xbf", 3) == 0)
		work->skip = 3;
	for (at = work->skip; at < work->size; work->count++) {
		const uint8_t *newline = memchr(work->text + at, '\n', work->size - at);

		at = newline ? (size_t)(newline - work->text) + 1 : work->size;
	}
	work->lines = calloc(work->count + 1, sizeof(*work->lines));
	if (!work->lines)
		return -ENOMEM;
	for (at = work->skip; i < work->count; i++) {
		const uint8_t *newline = memchr(work->text + at, '\n', work->size - at);
		size_t stop = newline ? (size_t)(newline - work->text) + 1 : work->size;
		size_t end = stop - (newline != NULL);

		if (newline && end > at && work->text[end - 1] == '\r')
			end--;
		work->lines[i] = (struct line){.start = at, .end = end, .stop = stop};
		at = stop;
	}
	return 0;
}

static int make_normal(struct work *work)
{
	for (size_t i = 0; i < work->count && !work->is_normal; i++) {
		struct line *line = &work->lines[i];

		line->normal = work->normal.size;
		if (normalise(work->text + line->start, line->end - line->start, NORMALISE_LOOKS,
			    &work->normal, NULL, 0) < 0)
			return -ENOMEM;
		line->normal_end = work->normal.size;
	}
	work->is_normal = true;
	return 0;
}

/* ---- Finding ---------------------------------------------------------------------------- */

/* Consecutive lines to search for. */
struct wanted {
	const char **texts;
	size_t *sizes;
	size_t count;
	struct buffer normal; /* owns the texts if is_normal */
	bool is_normal;
	bool any_indent; /* ignore leading blanks as well */
};

static void wanted_done(struct wanted *wanted)
{
	free(wanted->texts);
	free(wanted->sizes);
	buffer_done(&wanted->normal);
}

static int want(struct wanted *wanted, const struct patch_line *lines, size_t count)
{
	wanted->texts = calloc(count + 1, sizeof(*wanted->texts));
	wanted->sizes = calloc(count + 1, sizeof(*wanted->sizes));
	if (!wanted->texts || !wanted->sizes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (lines[i].sign == '+')
			continue;
		wanted->texts[wanted->count] = lines[i].text;
		wanted->sizes[wanted->count++] = lines[i].size;
	}
	return 0;
}

static int want_normal(struct wanted *wanted)
{
	for (size_t i = 0; i < wanted->count; i++) {
		size_t before = wanted->normal.size;

		if (normalise((const uint8_t *)wanted->texts[i], wanted->sizes[i], NORMALISE_LOOKS,
			    &wanted->normal, NULL, 0) < 0)
			return -ENOMEM;
		wanted->sizes[i] = wanted->normal.size - before;
	}
	for (size_t i = 0, at = 0; i < wanted->count; at += wanted->sizes[i++])
		wanted->texts[i] = (const char *)wanted->normal.data + at;
	wanted->is_normal = true;
	return 0;
}

static void skip_blanks(const char **text, size_t *size)
{
	while (*size && (**text == ' ' || **text == '\t')) {
		++*text;
		--*size;
	}
}

static bool line_is(const struct work *work, size_t i, const struct wanted *wanted, size_t which)
{
	const struct line *line = &work->lines[i];
	const char *text = (const char *)work->text + line->start, *other = wanted->texts[which];
	size_t size = line->end - line->start, other_size = wanted->sizes[which];

	if (wanted->is_normal) {
		text = (const char *)work->normal.data + line->normal;
		size = line->normal_end - line->normal;
	}
	if (wanted->any_indent) {
		skip_blanks(&text, &size);
		skip_blanks(&other, &other_size);
	}
	return size == other_size && (!size || memcmp(text, other, size) == 0);
}

static bool matches_at(const struct work *work, size_t at, const struct wanted *wanted)
{
	for (size_t i = 0; i < wanted->count; i++)
		if (!line_is(work, at + i, wanted, i))
			return false;
	return true;
}

/* Counts the matches that begin in lines [first, last], up to `stop_after`; the first one begins at
 * `*ret_at`. */
static size_t find_all(struct work *work, const struct wanted *wanted, size_t first, size_t last,
	size_t stop_after, size_t *ret_at)
{
	size_t found = 0;

	for (size_t at = first; at <= last && found < stop_after; at++) {
		if (!matches_at(work, at, wanted))
			continue;
		if (!found)
			*ret_at = at;
		if (found < array_size(work->result->match_lines))
			work->result->match_lines[found] = at + 1;
		found++;
	}
	return found;
}

/* Searches exactly, else tolerantly.  Returns the number of matches, or -ENOMEM. */
static ssize_t find(struct work *work, struct wanted *wanted, size_t first, bool at_end,
	size_t stop_after, size_t *ret_at)
{
	size_t last, found;

	if (wanted->count > work->count || first > work->count - wanted->count)
		return 0;
	last = work->count - wanted->count;
	if (at_end)
		first = last;
	found = find_all(work, wanted, first, last, stop_after, ret_at);
	if (found || !wanted->count)
		return (ssize_t)found;
	if (make_normal(work) < 0 || want_normal(wanted) < 0)
		return -ENOMEM;
	found = find_all(work, wanted, first, last, stop_after, ret_at);
	work->result->tolerant = work->result->tolerant || found;
	return (ssize_t)found;
}

/* ---- Problems ---------------------------------------------------------------------------- */

static enum patch_problem no_match(
	struct work *work, const struct patch_line *lines, size_t count, size_t from)
{
	struct buffer text cleanup_buffer = {0};

	for (size_t i = 0; i < count; i++)
		if (lines[i].sign != '+' &&
			(buffer_append(&text, lines[i].text, lines[i].size) < 0 ||
				buffer_append(&text, "\n", 1) < 0))
			return PATCH_NO_MEMORY;
	work->result->wanted = buffer_steal_string(&text);
	work->result->searched_from = from + 1;
	return work->result->wanted ? PATCH_NO_MATCH : PATCH_NO_MEMORY;
}

/* ---- One hunk ---------------------------------------------------------------------------- */

static enum patch_problem seek(struct work *work, const struct hunk *hunk, bool *ret_sought)
{
	for (size_t i = 0; i < hunk->seek_count; i++) {
		struct wanted wanted cleanup_with(wanted_done) = {.any_indent = true};
		size_t at = 0;
		ssize_t found;

		if (hunk->seeks[i].size == 0)
			continue;
		if (want(&wanted, &hunk->seeks[i], 1) < 0)
			return PATCH_NO_MEMORY;
		found = find(work, &wanted, work->at, false, 1, &at);
		if (found < 0)
			return PATCH_NO_MEMORY;
		if (!found)
			return no_match(work, &hunk->seeks[i], 1, work->at);
		work->at = at + 1;
		*ret_sought = true;
	}
	return PATCH_OK;
}

/* Whether the last line is empty context, which may only separate the hunk from the next one. */
static bool has_loose_end(const struct hunk *hunk)
{
	const struct patch_line *last = hunk->count ? &hunk->body[hunk->count - 1] : NULL;

	return last && last->sign == ' ' && last->size == 0;
}

static enum patch_problem locate(struct work *work, struct hunk *hunk, bool sought, size_t *ret_at)
{
	struct wanted wanted cleanup_with(wanted_done) = {0};
	bool unique = !sought && !hunk->at_end;
	/* Some models repeat the line after @@ as the first line of the hunk. */
	size_t first = work->at - sought;
	ssize_t found;

	if (want(&wanted, hunk->body, hunk->count) < 0)
		return PATCH_NO_MEMORY;
	if (wanted.count == 0) {
		*ret_at = sought && !hunk->at_end ? work->at : work->count;
		return PATCH_OK;
	}
	found = find(work, &wanted, first, hunk->at_end, unique ? SIZE_MAX : 1, ret_at);
	if (found == 0 && has_loose_end(hunk)) {
		hunk->count--;
		return locate(work, hunk, sought, ret_at);
	}
	if (found == 0)
		return no_match(work, hunk->body, hunk->count, first);
	if (found < 0)
		return PATCH_NO_MEMORY;
	work->result->matches = (size_t)found;
	return unique && found > 1 ? PATCH_AMBIGUOUS : PATCH_OK;
}

/* The line end of the lines around line `at`. */
static const char *line_end_at(const struct work *work, size_t at)
{
	for (size_t i = at + 1; i-- > 0 && i + 2 > at;) {
		const struct line *line = &work->lines[i];

		if (i < work->count && line->stop > line->end)
			return line->stop - line->end == 2 ? "\r\n" : "\n";
	}
	return work->count && work->lines[0].stop - work->lines[0].end == 2 ? "\r\n" : "\n";
}

static int copy_up_to(struct work *work, size_t at)
{
	size_t from = work->copied;

	if (at <= from)
		return 0;
	work->copied = at;
	work->ends_added = false;
	return buffer_append(&work->result->text, work->text + from, at - from);
}

/* Notes the line of the first change; the result has all lines before it. */
static void note_change(struct work *work)
{
	const struct buffer *text = &work->result->text;
	size_t line = 1;

	if (work->result->first_changed_line)
		return;
	for (size_t i = 0; i < text->size; i++)
		line += text->data[i] == '\n';
	work->result->first_changed_line = line;
}

static int add(struct work *work, size_t at, const struct patch_line *line)
{
	const char *line_end = line_end_at(work, at);
	struct buffer *out = &work->result->text;
	size_t size = line->size;

	if (line_end[0] == '\r' && size && line->text[size - 1] == '\r')
		size--;
	/* The text so far ends without a line end. */
	if (out->size > work->skip && out->data[out->size - 1] != '\n' &&
		buffer_append_string(out, line_end) < 0)
		return -ENOMEM;
	note_change(work);
	work->ends_added = true;
	return buffer_append(out, line->text, size) < 0 || buffer_append_string(out, line_end) < 0
		       ? -ENOMEM
		       : 0;
}

static int replace(struct work *work, const struct hunk *hunk, size_t at)
{
	int r = 0;

	for (size_t i = 0; i < hunk->count && r == 0; i++) {
		const struct line *line = &work->lines[at];

		if (hunk->body[i].sign == ' ') {
			at++;
			continue;
		}
		r = copy_up_to(work, at < work->count ? line->start : work->size);
		if (r == 0 && hunk->body[i].sign == '+') {
			r = add(work, at, &hunk->body[i]);
		} else if (r == 0) {
			note_change(work);
			work->copied = line->stop;
			at++;
		}
	}
	work->at = at;
	return r;
}

static enum patch_problem apply_hunk(struct work *work, struct hunk *hunk)
{
	bool sought = false;
	size_t at = 0;
	enum patch_problem problem = seek(work, hunk, &sought);

	if (problem == PATCH_OK)
		problem = locate(work, hunk, sought, &at);
	if (problem == PATCH_OK && replace(work, hunk, at) < 0)
		problem = PATCH_NO_MEMORY;
	return problem;
}

/* The hunk that begins at line `*i` of the patch; `*i` becomes the line after the hunk. */
static struct hunk next_hunk(const struct patch_file *file, size_t *i)
{
	struct hunk hunk = {.seeks = file->lines + *i};

	for (; *i < file->count && file->lines[*i].sign == '@'; ++*i)
		hunk.seek_count++;
	hunk.body = file->lines + *i;
	for (; *i < file->count && !strchr("@$", file->lines[*i].sign); ++*i)
		hunk.count++;
	for (; *i < file->count && file->lines[*i].sign == '$'; ++*i)
		hunk.at_end = true;
	return hunk;
}

static enum patch_problem finish(struct work *work)
{
	struct buffer *out = &work->result->text;
	bool was_open = work->count &&
			work->lines[work->count - 1].stop == work->lines[work->count - 1].end;

	if (copy_up_to(work, work->size) < 0)
		return PATCH_NO_MEMORY;
	if (was_open && work->ends_added) {
		out->size--;
		out->size -= out->size && out->data[out->size - 1] == '\r';
	}
	return PATCH_OK;
}

enum patch_problem patch_apply(const uint8_t *text, size_t size, const struct patch_file *file,
	struct patch_result *ret_result)
{
	struct work work cleanup_with(work_done) = {
		.text = text, .size = size, .result = ret_result};
	enum patch_problem problem = PATCH_OK;

	*ret_result = (struct patch_result){0};
	if (split(&work) < 0 || copy_up_to(&work, work.skip) < 0)
		problem = PATCH_NO_MEMORY;
	for (size_t i = 0; i < file->count && problem == PATCH_OK;) {
		struct hunk hunk = next_hunk(file, &i);

		ret_result->problem_hunk++;
		problem = apply_hunk(&work, &hunk);
	}
	if (problem == PATCH_OK)
		problem = finish(&work);
	ret_result->problem = problem;
	return problem;
}

void patch_result_done(struct patch_result *result)
{
	buffer_done(&result->text);
	free(result->wanted);
	*result = (struct patch_result){0};
}
