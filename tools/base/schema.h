/*
 * tools/base/schema.h - the part of JSON Schema that tool arguments use.
 *
 * type (one of string, integer, number, boolean, array, object, null; none, or a list of them:
 * any), properties, required, additionalProperties: false, items, enum, default, minimum, maximum,
 * minLength, maxLength, minItems, maxItems.  Other keywords are for readers. Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>

#include "ops/support/buffer.h"

/* Checks `value`, converts what models often send in another form (numbers and lists as text, one
 * object in the place of a list of them), and adds the defaults of properties that are absent.  0,
 * or -EINVAL with one sentence in `problem` that names the argument. */
int schema_check(const cJSON *schema, cJSON *value, struct buffer *problem);

/* 0; -EINVAL with half a sentence in `problem`: a keyword has a value that no schema has. */
int schema_check_form(const cJSON *schema, struct buffer *problem);

/* True for one of the property names that `schema` requires. */
int schema_requires(const cJSON *schema, const char *name);

/* Turns the text of one command-line option into a value of the schema's type: strings as
 * they are, numbers and booleans parsed, others as JSON.  NULL when it is none. */
cJSON *schema_value_from_text(const cJSON *schema, const char *text);

/* The schema's type word; "string" when it says none. */
const char *schema_type(const cJSON *schema);
