#include "ops/support/json.h"

#include <limits.h>

const char *json_text(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

long long json_integer(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	if (!cJSON_IsNumber(item))
		return 0;
	if (item->valuedouble >= (double)LLONG_MAX)
		return LLONG_MAX;
	return item->valuedouble > (double)LLONG_MIN ? (long long)item->valuedouble : LLONG_MIN;
}
