#include "tools/text/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

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

bool text_is_utf16(const void *bytes, size_t size)
{
	return size >= 2 &&
	       (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
}

char *text_percent_encode(const char *text, const char *plain)
{
	struct buffer encoded cleanup_buffer = {0};
	int r = 0;

	for (; *text && r == 0; text++) {
		unsigned char c = (unsigned char)*text;
		bool is_plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
				strchr("-._~", c) || strchr(plain, c);

		r = is_plain ? buffer_append(&encoded, &c, 1)
			     : buffer_printf(&encoded, "%%%02X", c);
	}
	return r < 0 ? NULL : buffer_steal_string(&encoded);
}

char *text_base64(const uint8_t *bytes, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc((size + 2) / 3 * 4 + 1), *to = text;

	if (!text)
		return NULL;
	for (size_t i = 0; i < size; i += 3) {
		uint32_t group = (uint32_t)bytes[i] << 16;
		size_t left = size - i;

		group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
		group |= left > 2 ? bytes[i + 2] : 0;
		*to++ = digits[group >> 18];
		*to++ = digits[group >> 12 & 63];
		*to++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[group & 63] : '=';
	}
	*to = '\0';
	return text;
}
