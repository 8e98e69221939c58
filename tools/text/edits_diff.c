/* The unified diff of tools/text/edits.h.  The replaced regions are known, so it needs no search
 * for a shortest diff: a hunk has the lines that the regions touch, without unchanged lines at its
 * beginning and end. */
#include <errno.h>
#include <string.h>

#include "tools/text/edits.h"

enum { CONTEXT = 3 };

/* A range of whole lines that changes, as bytes of the old text and of the result. */
struct change {
	size_t old_start, old_end;
	size_t new_start, new_end;
};

struct text {
	const uint8_t *bytes;
	size_t size;
};

static size_t line_start(const struct text *text, size_t at)
{
	const uint8_t *newline = at ? memrchr(text->bytes, '\n', at) : NULL;

	return newline ? (size_t)(newline - text->bytes) + 1 : 0;
}

static size_t line_stop(const struct text *text, size_t at)
{
	const uint8_t *newline =
		at < text->size ? memchr(text->bytes + at, '\n', text->size - at) : NULL;

	return newline ? (size_t)(newline - text->bytes) + 1 : text->size;
}

static bool is_line_start(const struct text *text, size_t at)
{
	return at == 0 || text->bytes[at - 1] == '\n';
}

static size_t count_lines(const struct text *text, size_t start, size_t end)
{
	size_t lines = 0;

	for (; start < end; lines++)
		start = line_stop(text, start);
	return lines;
}

/* Removes unchanged lines at both ends. */
static void trim(const struct text *old, const struct text *new, struct change *c)
{
	while (c->old_start < c->old_end && c->new_start < c->new_end) {
		size_t old_stop = line_stop(old, c->old_start);
		size_t new_stop = line_stop(new, c->new_start);
		size_t length = old_stop - c->old_start;

		if (length != new_stop - c->new_start ||
			memcmp(old->bytes + c->old_start, new->bytes + c->new_start, length) != 0)
			break;
		c->old_start = old_stop;
		c->new_start = new_stop;
	}
	while (c->old_start < c->old_end && c->new_start < c->new_end) {
		size_t old_last = line_start(old, c->old_end - 1);
		size_t new_last = line_start(new, c->new_end - 1);
		size_t length = c->old_end - old_last;

		if (length != c->new_end - new_last ||
			memcmp(old->bytes + old_last, new->bytes + new_last, length) != 0)
			break;
		c->old_end = old_last;
		c->new_end = new_last;
	}
}

/* The whole lines that region *i and the following regions on the same lines touch. */
static struct change widen(
	const struct text *old, const struct text *new, const struct edits_plan *plan, size_t *i)
{
	const struct edit_region *region = &plan->regions[*i];
	struct change c = {.old_start = line_start(old, region->start)};
	size_t stop = line_stop(old, region->end);

	c.new_start = region->new_start - (region->start - c.old_start);
	for (;; region++) {
		size_t rest = 0;

		/* Thousands of regions may share one long line. */
		if (region->end > stop)
			stop = line_stop(old, region->end);
		if (!is_line_start(old, region->end) || !is_line_start(new, region->new_end))
			rest = stop - region->end;
		c.old_end = region->end + rest;
		c.new_end = region->new_end + rest;
		if (++*i == plan->count || plan->regions[*i].start >= c.old_end)
			return c;
	}
}

static int make_changes(const struct text *old, const struct text *new,
	const struct edits_plan *plan, struct change **ret_changes, size_t *ret_count)
{
	struct change *changes = calloc(plan->count + 1, sizeof(*changes));
	size_t count = 0;

	if (!changes)
		return -ENOMEM;
	for (size_t i = 0; i < plan->count;) {
		struct change c = widen(old, new, plan, &i);

		trim(old, new, &c);
		if (c.old_start < c.old_end || c.new_start < c.new_end)
			changes[count++] = c;
	}
	*ret_changes = changes;
	*ret_count = count;
	return 0;
}

static int put_lines(
	struct buffer *out, char sign, const struct text *text, size_t start, size_t end)
{
	while (start < end) {
		size_t stop = line_stop(text, start);
		bool ends = text->bytes[stop - 1] == '\n';

		if (buffer_append(out, &sign, 1) < 0 ||
			buffer_append(out, text->bytes + start, stop - start) < 0 ||
			(!ends &&
				buffer_append_string(out, "\n\\ No newline at end of file\n") < 0))
			return -ENOMEM;
		start = stop;
	}
	return 0;
}

static size_t back(const struct text *text, size_t at, size_t floor)
{
	for (int i = 0; i < CONTEXT && at > floor; i++)
		at = line_start(text, at - 1);
	return at;
}

static size_t ahead(const struct text *text, size_t at, size_t ceiling)
{
	for (int i = 0; i < CONTEXT && at < ceiling; i++)
		at = line_stop(text, at);
	return at;
}

/* Changes with at most two contexts of lines between them share a hunk. */
static size_t hunk_end(const struct text *old, const struct change *changes, size_t i, size_t count)
{
	while (++i < count)
		if (count_lines(old, changes[i - 1].old_end, changes[i].old_start) > 2 * CONTEXT)
			break;
	return i;
}

static int put_hunk(struct buffer *out, const struct text *old, const struct text *new,
	const struct change *changes, size_t count, size_t *line_at, size_t *line, long *added)
{
	const struct change *last = &changes[count - 1];
	size_t start = back(old, changes[0].old_start, *line_at);
	size_t stop = ahead(old, last->old_end, old->size), at = start;
	size_t old_lines = count_lines(old, start, stop), new_lines = old_lines;

	*line += count_lines(old, *line_at, start);
	for (size_t i = 0; i < count; i++)
		new_lines += count_lines(new, changes[i].new_start, changes[i].new_end) -
			     count_lines(old, changes[i].old_start, changes[i].old_end);
	if (buffer_printf(out, "@@ -%zu,%zu +%zu,%zu @@\n", *line - (old_lines == 0), old_lines,
		    (size_t)((long)*line + *added) - (new_lines == 0), new_lines) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct change *c = &changes[i];

		if (put_lines(out, ' ', old, at, c->old_start) < 0 ||
			put_lines(out, '-', old, c->old_start, c->old_end) < 0 ||
			put_lines(out, '+', new, c->new_start, c->new_end) < 0)
			return -ENOMEM;
		at = c->old_end;
	}
	*line_at = stop;
	*line += old_lines;
	*added += (long)new_lines - (long)old_lines;
	return put_lines(out, ' ', old, at, stop);
}

int edits_diff(const char *path, const uint8_t *text, size_t size, const struct edits_plan *plan,
	struct buffer *out)
{
	const struct text old = {text, size}, new = {plan->result.data, plan->result.size};
	cleanup_free struct change *changes = NULL;
	size_t count, line_at = 0, line = 1;
	long added = 0;
	int r = make_changes(&old, &new, plan, &changes, &count);

	if (r == 0)
		r = buffer_printf(out, "--- a/%s\n+++ b/%s\n", path, path);
	for (size_t i = 0; r == 0 && i < count;) {
		size_t stop = hunk_end(&old, changes, i, count);

		r = put_hunk(out, &old, &new, changes + i, stop - i, &line_at, &line, &added);
		i = stop;
	}
	return r;
}
