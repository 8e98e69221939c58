/* Shortens diffs of files with very long lines, for display. */
#include <errno.h>
#include <string.h>

#include "tools/text/edits.h"

enum { LINE_MAX_BYTES = 600, BEFORE_BYTES = 150 };

static const char ellipsis[] = "\xe2\x80\xa6";

struct line {
	const uint8_t *bytes; /* with the sign, without the line end */
	size_t size;
};

static struct line line_at(const struct buffer *diff, size_t at)
{
	const uint8_t *start = diff->data + at;
	const uint8_t *end = memchr(start, '\n', diff->size - at);

	return (struct line){start, end ? (size_t)(end - start) : diff->size - at};
}

static bool is_header(const struct line *line)
{
	return line->size >= 3 &&
	       (memcmp(line->bytes, "---", 3) == 0 || memcmp(line->bytes, "+++", 3) == 0);
}

/* The line that replaces the removed line at `at`: the first added line after it. */
static bool find_added(const struct buffer *diff, size_t at, struct line *ret_line)
{
	while (at < diff->size) {
		struct line line = line_at(diff, at);

		if (line.size && line.bytes[0] == '+') {
			*ret_line = line;
			return true;
		}
		if (!line.size || (line.bytes[0] != '-' && line.bytes[0] != '\\'))
			return false;
		at += line.size + 1;
	}
	return false;
}

/* The offset at which the two lines begin to differ, after the sign. */
static size_t first_difference(const struct line *a, const struct line *b)
{
	size_t i = 1;

	while (i < a->size && i < b->size && a->bytes[i] == b->bytes[i])
		i++;
	return i;
}

static bool is_inside_character(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

static int put_part(struct buffer *out, const struct line *line, size_t change)
{
	size_t start = change > BEFORE_BYTES ? change - BEFORE_BYTES : 1, end;

	if (start >= line->size)
		start = 1;
	end = line->size - start > LINE_MAX_BYTES ? start + LINE_MAX_BYTES : line->size;
	while (start < end && is_inside_character(line->bytes[start]))
		start++;
	while (end < line->size && end > start && is_inside_character(line->bytes[end]))
		end--;
	if (buffer_append(out, line->bytes, 1) < 0 ||
		(start > 1 && buffer_append_string(out, ellipsis) < 0) ||
		buffer_append(out, line->bytes + start, end - start) < 0)
		return -ENOMEM;
	return end < line->size ? buffer_append_string(out, ellipsis) : 0;
}

int edits_diff_shorten(const struct buffer *diff, struct buffer *out, bool *ret_cut)
{
	size_t change = 1;
	int r = 0;

	*ret_cut = false;
	for (size_t at = 0; r == 0 && at < diff->size;) {
		struct line line = line_at(diff, at), added;
		bool is_long = line.size > LINE_MAX_BYTES && !is_header(&line);

		if (line.size && line.bytes[0] == '-')
			change = find_added(diff, at, &added) ? first_difference(&line, &added) : 1;
		else if (!line.size || line.bytes[0] != '+')
			change = 1;
		*ret_cut = *ret_cut || is_long;
		r = is_long ? put_part(out, &line, change)
			    : buffer_append(out, line.bytes, line.size);
		at += line.size + 1;
		if (r == 0 && at <= diff->size)
			r = buffer_append(out, "\n", 1);
	}
	return r;
}
