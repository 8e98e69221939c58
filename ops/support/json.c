#include "ops/support/json.h"

#include <limits.h>

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
