/*
 * tools/base/schema.h - the subset of JSON Schema that tool arguments use.
 *
 * type (one of string, integer, number, boolean, array, object, null; a missing type, or a list of
 * types, allows any), properties, required, additionalProperties: false, items, enum, default,
 * minimum, maximum, minLength, maxLength, minItems, maxItems.  Other keywords are ignored.
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>

#include "ops/support/buffer.h"

/* Checks `value`, converts forms that models often send (numbers and lists as text, one object
 * instead of a list of objects), and adds the defaults of absent properties.  0; -EINVAL with a
 * sentence in `problem` that names the argument; -ENOMEM or -EMSGSIZE if it could not be said. */
int schema_check(const cJSON *schema, cJSON *value, struct buffer *problem);

/* Checks the schema itself.  0; -EINVAL: a keyword has an invalid value; `problem` gets the end of
 * a sentence that says which. */
int schema_check_form(const cJSON *schema, struct buffer *problem);

/* Whether `schema` requires the property `name`. */
int schema_requires(const cJSON *schema, const char *name);

/* Turns the text of a command-line option into a value of the schema's type: strings are copied,
 * numbers and booleans parsed, other types parsed as JSON.  NULL: the text is not of that type. */
cJSON *schema_value_from_text(const cJSON *schema, const char *text);

/* The schema's type; "string" if it has none. */
const char *schema_type(const cJSON *schema);
