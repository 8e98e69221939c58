/*
 * ops/support/json.h - members of untrusted JSON.
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>

/* Of an object, or of anything else (NULL, too), which has none. */
const char *json_text(const cJSON *object, const char *name);  /* NULL: no such string */
long long json_integer(const cJSON *object, const char *name); /* 0: no such number */
