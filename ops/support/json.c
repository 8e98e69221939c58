#include "ops/support/json.h"

#include <limits.h>
#include <stddef.h>
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
