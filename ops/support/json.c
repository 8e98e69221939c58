#include "ops/support/json.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

cJSON *json_member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

bool json_is_true(const cJSON *object, const char *name)
{
	return cJSON_IsTrue(json_member(object, name));
}

const char *json_text(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(json_member(object, name));
}

long long json_integer(const cJSON *object, const char *name)
{
	const cJSON *item = json_member(object, name);

	if (!cJSON_IsNumber(item))
		return 0;
	if (item->valuedouble >= (double)LLONG_MAX)
		return LLONG_MAX;
	return item->valuedouble > (double)LLONG_MIN ? (long long)item->valuedouble : LLONG_MIN;
}

bool json_has_escaped_nul(const char *text, size_t size)
{
	const char *end = text + size;

	while ((text = memmem(text, (size_t)(end - text), "\\u0000", 6))) {
		size_t backslashes = 1;

		/* JSON has backslashes in strings only, so there is a quote in front. */
		while (text[-(ptrdiff_t)backslashes] == '\\')
			backslashes++;
		if (backslashes % 2)
			return true;
		text += 6;
	}
	return false;
}

/* The value of four hexadecimal digits after \u; -1: there is none. */
static int escaped_unit(const char *at, const char *end)
{
	char digits[5] = "";
	char *stop;
	long value;

	if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
		return -1;
	memcpy(digits, at + 2, 4);
	value = strtol(digits, &stop, 16);
	return stop == digits + 4 ? (int)value : -1;
}

bool json_replace_escapes(char *text, size_t size)
{
	char *end = text + size;
	bool found = false;

	for (char *at = text; at < end; at++) {
		int value, unit;

		if (*at != '\\')
			continue;
		value = escaped_unit(at, end);
		unit = value & ~0x3ff;
		if (unit == 0xd800 && (escaped_unit(at + 6, end) & ~0x3ff) == 0xdc00) {
			at += 11;
		} else if (value == 0 || unit == 0xd800 || unit == 0xdc00) {
			memcpy(at + 2, "fffd", 4);
			found = true;
			at += 5;
		} else {
			at++;
		}
	}
	return found;
}
