#include "ops/support/visible.h"

#include <string.h>

#include "ops/support/utf8.h"

enum { RUN_BLANKS = 16, RUN_LINES = 4 };

/* Unicode 15.1: Cc, Zl, Zp, Cf but for the visible number signs of Arabic and Kaithi, the other
 * Default_Ignorable_Code_Points, noncharacters.  Private use stays: fonts draw it. */
static const struct {
	uint32_t first, last;
} hidden[] = {
	{0x0000, 0x001f}, {0x007f, 0x009f}, {0x00ad, 0x00ad}, /* soft hyphen */
	{0x034f, 0x034f}, {0x061c, 0x061c}, {0x115f, 0x1160}, /* Hangul fillers */
	{0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f}, /* zero-width, direction marks */
	{0x2028, 0x202e}, /* separators, embeddings and overrides */
	{0x2060, 0x206f}, /* joiners, isolates */
	{0x3164, 0x3164}, {0xfdd0, 0xfdef}, {0xfe00, 0xfe0f}, /* variation selectors */
	{0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x13430, 0x1343f},
	{0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, /* tags, variation selectors */
};

bool visible_hides(uint32_t code_point)
{
	size_t from = 0, to = array_size(hidden);

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (code_point > hidden[middle].last)
			from = middle + 1;
		else if (code_point < hidden[middle].first)
			to = middle;
		else
			return true;
	}
	/* The last two of each plane are noncharacters. */
	return (code_point & 0xfffe) == 0xfffe;
}

/* What looks like nothing although it has a width. */
static bool is_blank(uint32_t code_point)
{
	return code_point == ' ' || code_point == '\t' || code_point == 0xa0 ||
	       code_point == 0x1680 || (code_point >= 0x2000 && code_point <= 0x200a) ||
	       code_point == 0x202f || code_point == 0x205f || code_point == 0x2800 ||
	       code_point == 0x3000;
}

/* Bytes of the run of blanks and line ends at `at`. */
static size_t measure_run(
	const uint8_t *at, const uint8_t *end, size_t *ret_blanks, size_t *ret_lines)
{
	const uint8_t *start = at;

	*ret_blanks = *ret_lines = 0;
	while (at < end) {
		size_t length = utf8_sequence(at, (size_t)(end - at));

		if (length == 1 && (*at == '\n' || *at == '\r'))
			*ret_lines += *at == '\n';
		else if (length && is_blank(utf8_decode(at, length)))
			++*ret_blanks;
		else
			break;
		at += length;
	}
	return (size_t)(at - start);
}

static int append_line_end(struct buffer *out, unsigned flags)
{
	return buffer_append_string(out, flags & VISIBLE_INDENT ? "\n    " : "\n");
}

/* Bytes of a long run that was shown by its length; 0: there is none; or -errno. */
static ssize_t append_run(struct buffer *out, const uint8_t *at, const uint8_t *end, unsigned flags)
{
	size_t blanks, lines, size = measure_run(at, end, &blanks, &lines);
	int r;

	if (blanks < RUN_BLANKS && lines < RUN_LINES)
		return 0;
	r = buffer_printf(out, "[%zu blanks]", blanks + lines);
	if (r == 0 && lines)
		r = append_line_end(out, flags);
	return r < 0 ? r : (ssize_t)size;
}

static int append_bytes(struct buffer *out, const uint8_t *at, size_t size)
{
	int r = 0;

	for (size_t i = 0; i < size && r == 0; i++)
		r = buffer_printf(out, "\\x%02x", at[i]);
	return r;
}

static int append_json(struct buffer *out, uint32_t code_point)
{
	if (code_point < 0x10000)
		return buffer_printf(out, "\\u%04x", code_point);
	code_point -= 0x10000;
	return buffer_printf(
		out, "\\u%04x\\u%04x", 0xd800 + (code_point >> 10), 0xdc00 + (code_point & 0x3ff));
}

/* Bytes at the start that stay as they are. */
static size_t plain_length(const uint8_t *at, const uint8_t *end, unsigned flags)
{
	const uint8_t *start = at;

	while (at < end) {
		size_t length = utf8_sequence(at, (size_t)(end - at));
		uint32_t code_point = utf8_decode(at, length);

		if (!length || visible_hides(code_point) ||
			((flags & VISIBLE_BLANKS) && is_blank(code_point)))
			break;
		at += length;
	}
	return (size_t)(at - start);
}

int visible_append(struct buffer *out, const void *text, size_t size, unsigned flags)
{
	const uint8_t *at = text, *end = at + size;
	bool lines = flags & (VISIBLE_LINES | VISIBLE_INDENT | VISIBLE_JSON);
	int r = 0;

	while (at < end && r == 0) {
		size_t length = plain_length(at, end, flags);
		ssize_t run = 0;

		r = length ? buffer_append(out, at, length) : 0;
		at += length;
		if (at == end || r < 0)
			break;
		if (flags & VISIBLE_BLANKS)
			run = append_run(out, at, end, flags);
		if (run) {
			r = run < 0 ? (int)run : 0;
			at += run < 0 ? 0 : run;
			continue;
		}
		length = utf8_sequence(at, (size_t)(end - at));
		if (lines && *at == '\n')
			r = append_line_end(out, flags);
		else if (lines && *at == '\t')
			r = buffer_append(out, at, 1);
		else if (lines && *at == '\r' && end - at > 1 && at[1] == '\n')
			; /* the line end says it */
		else if (length && is_blank(utf8_decode(at, length)) && *at != '\t')
			r = buffer_append(out, at, length);
		else if (length && (flags & VISIBLE_JSON))
			r = append_json(out, utf8_decode(at, length));
		else
			r = append_bytes(out, at, length ? length : 1);
		at += length ? length : 1;
	}
	return r;
}

void visible_print(FILE *out, const void *text, size_t size, unsigned flags)
{
	struct buffer shown cleanup_buffer = {0};

	if (visible_append(&shown, text, size, flags) < 0)
		fputs("(not enough memory to show it)", out);
	else if (shown.size)
		fwrite(shown.data, 1, shown.size, out);
}

void visible_print_name(FILE *out, const char *name)
{
	visible_print(out, name, strlen(name), 0);
}

/* Bytes at the end that need what follows to be understood. */
static size_t unfinished(const uint8_t *text, size_t size)
{
	if (size && text[size - 1] == '\r')
		return 1;
	for (size_t back = 1; back <= 3 && back <= size; back++) {
		uint8_t byte = text[size - back];
		size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;

		if ((byte & 0xc0) != 0x80)
			return length > back ? back : 0;
	}
	return 0;
}

void visible_stream_print(
	struct visible_stream *stream, FILE *out, const void *text, size_t size, bool last)
{
	struct buffer whole cleanup_buffer = {0};
	size_t rest;

	if (buffer_append(&whole, stream->rest, stream->rest_size) < 0 ||
		buffer_append(&whole, text, size) < 0) {
		fputs("(not enough memory to show it)", out);
		return;
	}
	rest = last ? 0 : unfinished(whole.data, whole.size);
	visible_print(out, whole.data, whole.size - rest, VISIBLE_LINES);
	stream->rest_size = rest;
	if (rest)
		memcpy(stream->rest, whole.data + whole.size - rest, rest);
}
