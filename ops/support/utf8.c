#include "ops/support/utf8.h"

#include <stdlib.h>
#include <string.h>

static bool is_continuation(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

size_t utf8_sequence(const uint8_t *bytes, size_t size)
{
	uint8_t lead = bytes[0];
	size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

	if (lead > 0xf4 || length == 0 || length > size)
		return 0;
	for (size_t i = 1; i < length; i++)
		if (!is_continuation(bytes[i]))
			return 0;
	/* Overlong forms, surrogates, beyond U+10FFFF. */
	if ((lead == 0xe0 && bytes[1] < 0xa0) || (lead == 0xed && bytes[1] > 0x9f) ||
		(lead == 0xf0 && bytes[1] < 0x90) || (lead == 0xf4 && bytes[1] > 0x8f))
		return 0;
	return length;
}

uint32_t utf8_decode(const uint8_t *bytes, size_t length)
{
	static const uint8_t lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t code_point = length ? bytes[0] & lead[length] : 0xfffd;

	for (size_t i = 1; i < length; i++)
		code_point = code_point << 6 | (bytes[i] & 0x3f);
	return code_point;
}

/* Bytes at the start that are clean. */
static size_t clean_length(const uint8_t *bytes, size_t size)
{
	size_t at = 0;

	while (at < size) {
		size_t length;

		if (size - at >= 8) {
			uint64_t word;

			memcpy(&word, bytes + at, 8);
			/* Eight ASCII bytes and none of them NUL. */
			if (!(word & 0x8080808080808080U) &&
				!((word - 0x0101010101010101U) & ~word & 0x8080808080808080U)) {
				at += 8;
				continue;
			}
		}
		length = bytes[at] ? utf8_sequence(bytes + at, size - at) : 0;
		if (length == 0)
			break;
		at += length;
	}
	return at;
}

bool utf8_is_clean(const void *bytes, size_t size)
{
	return clean_length(bytes, size) == size;
}

int utf8_append_clean(struct buffer *out, const void *bytes, size_t size)
{
	const uint8_t *at = bytes, *end = at + size;

	while (at < end) {
		size_t length = clean_length(at, (size_t)(end - at));
		int r = buffer_append(out, at, length);

		if (r < 0)
			return r;
		at += length;
		if (at == end)
			break;
		r = buffer_append_string(out, "\xef\xbf\xbd");
		if (r < 0)
			return r;
		at++;
	}
	return 0;
}

char *utf8_repair(char *text)
{
	cleanup_buffer struct buffer clean = {0};
	bool failed;

	if (!text || utf8_is_clean(text, strlen(text)))
		return text;
	failed = utf8_append_clean(&clean, text, strlen(text)) < 0;
	free(text);
	return failed ? NULL : buffer_steal_string(&clean);
}
