#include "tools/text/looks.h"

#include <string.h>
#include <utf8proc.h>

#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "tools/text/normalise.h"

int looks_append(const char *name, struct buffer *out)
{
	struct buffer normal cleanup_buffer = {0};
	int r = normalise((const uint8_t *)name, strlen(name), NORMALISE_LOOKS, &normal, NULL, 0);
	size_t length;

	for (size_t at = 0; r == 0 && at < normal.size; at += length) {
		length = utf8_sequence(normal.data + at, normal.size - at);
		if (length && visible_hides(utf8_decode(normal.data + at, length)))
			continue;
		length += !length;
		r = buffer_append(out, normal.data + at, length);
	}
	return r;
}

/* Whether the character changes what normalise() makes of it, is a mark, or cannot be seen. */
static bool is_special(const uint8_t *at, size_t length)
{
	struct buffer normal cleanup_buffer = {0};
	utf8proc_category_t category;

	if (length < 2)
		return false;
	category = utf8proc_category((utf8proc_int32_t)utf8_decode(at, length));
	if (visible_hides(utf8_decode(at, length)) || category == UTF8PROC_CATEGORY_MN)
		return true;
	return normalise(at, length, NORMALISE_LOOKS, &normal, NULL, 0) < 0 ||
	       normal.size != length || memcmp(normal.data, at, length) != 0;
}

static int escape(uint32_t code, struct buffer *out)
{
	if (code < 0x10000)
		return buffer_printf(out, "\\u%04x", code);
	code -= 0x10000;
	return buffer_printf(out, "\\u%04x\\u%04x", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
}

int looks_escape(const char *name, struct buffer *out)
{
	const uint8_t *at = (const uint8_t *)name, *end = at + strlen(name);
	int r = 0;

	while (r == 0 && at < end) {
		size_t length = utf8_sequence(at, (size_t)(end - at));

		length += !length;
		r = is_special(at, length) ? escape(utf8_decode(at, length), out)
					   : buffer_append(out, at, length);
		at += length;
	}
	return r;
}

bool looks_special(const char *name)
{
	const uint8_t *at = (const uint8_t *)name, *end = at + strlen(name);

	while (at < end) {
		size_t length = utf8_sequence(at, (size_t)(end - at));

		length += !length;
		if (is_special(at, length))
			return true;
		at += length;
	}
	return false;
}

static bool is_equal(const struct buffer *a, const struct buffer *b)
{
	return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static bool is_ascii(const char *text)
{
	while (*text > 0)
		text++;
	return !*text;
}

bool looks_same(const char *wanted, const char *name)
{
	struct buffer one cleanup_buffer = {0}, other cleanup_buffer = {0};
	struct buffer escaped cleanup_buffer = {0};

	if (is_ascii(wanted) && is_ascii(name))
		return false;
	if (looks_append(wanted, &one) < 0 || looks_append(name, &other) < 0)
		return false;
	if (one.size && is_equal(&one, &other))
		return true;
	return looks_escape(name, &escaped) == 0 && escaped.size == strlen(wanted) &&
	       escaped.size && memcmp(escaped.data, wanted, escaped.size) == 0;
}
