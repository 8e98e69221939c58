#include "tools/text.h"

#include <stdio.h>
#include <string.h>

#include "ops/support/utf8.h"

/* Bytes of a character at `at` that a person cannot see for what it is; 0: none. */
static size_t invisible(const char *at)
{
	static const char *const marks[] = {"\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa",
		"\xe2\x80\xab", "\xe2\x80\xac", "\xe2\x80\xad", "\xe2\x80\xae", "\xe2\x81\xa6",
		"\xe2\x81\xa7", "\xe2\x81\xa8", "\xe2\x81\xa9"};
	uint8_t first = (uint8_t)at[0], second = first ? (uint8_t)at[1] : 0;

	if ((first < 0x20 && first != '\t') || first == 0x7f)
		return 1;
	if (first == 0xc2 && second >= 0x80 && second < 0xa0)
		return 2;
	for (size_t i = 0; i < array_size(marks); i++)
		if (strncmp(at, marks[i], 3) == 0)
			return 3;
	return 0;
}

int text_append_visible(struct buffer *out, const char *text)
{
	struct buffer clean cleanup_buffer = {0};
	int r = utf8_append_clean(&clean, text, strlen(text));

	if (r == 0)
		r = buffer_append(&clean, "", 1);
	for (const char *at = (const char *)clean.data; r == 0 && *at;) {
		size_t hidden = invisible(at);

		r = *at == '\n' ? buffer_append_string(out, "\n    ")
		    : hidden    ? buffer_append_string(out, "\xef\xbf\xbd")
				: buffer_append(out, at, 1);
		at += hidden ? hidden : 1;
	}
	return r;
}

static bool is_continuation(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

size_t text_cut(const void *bytes, size_t size, size_t limit)
{
	const uint8_t *text = bytes;
	size_t cut = limit;

	if (size <= limit)
		return size;
	for (int back = 0; back < 3 && cut > 0 && is_continuation(text[cut]); back++)
		cut--;
	return is_continuation(text[cut]) ? limit : cut;
}

const char *text_size(uint64_t size_bytes, char *out)
{
	static const char *const units[] = {"KB", "MB", "GB", "TB", "PB"};
	double value = (double)size_bytes;
	size_t unit = 0;

	if (size_bytes < 1024) {
		snprintf(out, 32, "%u byte%s", (unsigned)size_bytes, size_bytes == 1 ? "" : "s");
		return out;
	}
	for (value /= 1024; value >= 1024 && unit + 1 < array_size(units); unit++)
		value /= 1024;
	snprintf(out, 32, "%.1f %s", value, units[unit]);
	return out;
}
