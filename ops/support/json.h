/*
 * ops/support/json.h - members of untrusted JSON.
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Of an object, or of anything else (NULL, too), which has none.  Names are compared exactly. */
cJSON *json_member(const cJSON *object, const char *name);     /* NULL: no such member */
bool json_is_true(const cJSON *object, const char *name);      /* false: anything but true */
const char *json_text(const cJSON *object, const char *name);  /* NULL: no such string */
long long json_integer(const cJSON *object, const char *name); /* 0: no such number */

/* True when a string in `text` (valid JSON) has an escaped NUL: cJSON would end the string there.
 */
bool json_has_escaped_nul(const char *text, size_t size);

/* Replaces in JSON text what cJSON cuts off or refuses, escaped NULs and halves of surrogate pairs
 * that stand alone, by \ufffd, in place.  True: there was one. */
bool json_replace_escapes(char *text, size_t size);
