#include "tools/text/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
