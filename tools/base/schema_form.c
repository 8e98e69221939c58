/* Checks that a value is a JSON Schema.  Hosts refuse all tools if one has an invalid schema. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include <errno.h>
#include <pcre2.h>
#include <stdbool.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "tools/base/schema.h"

enum { DEPTH_MAX = 32 };

enum form {
	FORM_TYPE,
	FORM_TEXT,
	FORM_PATTERN,
	FORM_NUMBER,
	FORM_COUNT,
	FORM_NAMES,
	FORM_VALUES,
	FORM_SCHEMA,
	FORM_SCHEMAS,
	FORM_PROPERTIES,
	FORM_PATTERNS,
};

static const char *const form_words[] = {[FORM_TYPE] = "a type, or a list of types",
	[FORM_TEXT] = "a string",
	[FORM_PATTERN] = "a string",
	[FORM_NUMBER] = "a number",
	[FORM_COUNT] = "a number from 0 on",
	[FORM_NAMES] = "a list of names",
	[FORM_VALUES] = "a list that is not empty",
	[FORM_SCHEMA] = "a schema",
	[FORM_SCHEMAS] = "a list of schemas",
	[FORM_PROPERTIES] = "an object of schemas",
	[FORM_PATTERNS] = "an object of schemas"};

static const struct {
	const char *word;
	enum form form;
} keywords[] = {{"type", FORM_TYPE}, {"title", FORM_TEXT}, {"description", FORM_TEXT},
	{"pattern", FORM_PATTERN}, {"format", FORM_TEXT}, {"$ref", FORM_TEXT},
	{"minimum", FORM_NUMBER}, {"maximum", FORM_NUMBER}, {"minLength", FORM_COUNT},
	{"maxLength", FORM_COUNT}, {"minItems", FORM_COUNT}, {"maxItems", FORM_COUNT},
	{"required", FORM_NAMES}, {"enum", FORM_VALUES}, {"items", FORM_SCHEMA},
	{"additionalProperties", FORM_SCHEMA}, {"not", FORM_SCHEMA}, {"prefixItems", FORM_SCHEMAS},
	{"anyOf", FORM_SCHEMAS}, {"oneOf", FORM_SCHEMAS}, {"allOf", FORM_SCHEMAS},
	{"properties", FORM_PROPERTIES}, {"patternProperties", FORM_PATTERNS},
	{"$defs", FORM_PROPERTIES}, {"definitions", FORM_PROPERTIES}};

static bool is_type(const cJSON *value)
{
	static const char *const words[] = {
		"string", "integer", "number", "boolean", "array", "object", "null"};

	for (size_t i = 0; cJSON_IsString(value) && i < array_size(words); i++)
		if (strcmp(words[i], value->valuestring) == 0)
			return true;
	return false;
}

static bool is_text(const cJSON *value)
{
	return cJSON_IsString(value);
}

static bool is_schema(const cJSON *value)
{
	return cJSON_IsObject(value) || cJSON_IsBool(value);
}

static bool each(const cJSON *list, bool (*is_good)(const cJSON *value))
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list) {
		if (!is_good(item))
			return false;
	}
	return true;
}

static bool fits(const cJSON *value, enum form form)
{
	bool is_list = cJSON_IsArray(value), has_items = is_list && value->child;

	switch (form) {
	case FORM_TYPE:
		return is_type(value) || (has_items && each(value, is_type));
	case FORM_TEXT:
	case FORM_PATTERN:
		return is_text(value);
	case FORM_NUMBER:
		return cJSON_IsNumber(value);
	case FORM_COUNT:
		return cJSON_IsNumber(value) && value->valuedouble >= 0;
	case FORM_NAMES:
		return is_list && each(value, is_text);
	case FORM_VALUES:
		return has_items;
	case FORM_SCHEMA:
		return is_schema(value);
	case FORM_SCHEMAS:
		return has_items && each(value, is_schema);
	case FORM_PROPERTIES:
	case FORM_PATTERNS:
		return cJSON_IsObject(value) && each(value, is_schema);
	}
	return false;
}

/* In patterns of ECMAScript these are right. */
static bool is_of_pcre_alone(int error)
{
	return error == PCRE2_ERROR_CLASS_INVALID_RANGE ||
	       error == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH ||
	       error == PCRE2_ERROR_LOOKBEHIND_TOO_LONG ||
	       error == PCRE2_ERROR_UNKNOWN_UNICODE_PROPERTY;
}

static int check_pattern(const char *pattern, const char *where, struct buffer *problem)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR message[160];
	PCRE2_SIZE at;
	pcre2_code *code;
	int error;

	if (context)
		pcre2_set_compile_extra_options(
			context, PCRE2_EXTRA_ALT_BSUX | PCRE2_EXTRA_BAD_ESCAPE_IS_LITERAL |
					 PCRE2_EXTRA_ALLOW_SURROGATE_ESCAPES);
	code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
		PCRE2_UTF | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_DUPNAMES, &error, &at, context);
	pcre2_compile_context_free(context);
	if (code || is_of_pcre_alone(error)) {
		pcre2_code_free(code);
		return 0;
	}
	pcre2_get_error_message(error, message, array_size(message));
	buffer_printf(problem,
		"the pattern \"%s\" of %s is no regular expression: %s, at character %zu", pattern,
		where, (const char *)message, at + 1);
	return -EINVAL;
}

/* `where`: the property that has this schema, for messages. */
static int check(const cJSON *schema, const char *where, int depth, struct buffer *problem);

static int check_keyword(
	const cJSON *value, enum form form, const char *where, int depth, struct buffer *problem)
{
	const cJSON *item;
	int r = 0;

	if (!fits(value, form)) {
		buffer_printf(
			problem, "\"%s\" of %s must be %s", value->string, where, form_words[form]);
		return -EINVAL;
	}
	if (form == FORM_SCHEMA)
		return check(value, where, depth + 1, problem);
	if (form == FORM_PATTERN)
		return check_pattern(value->valuestring, where, problem);
	if (form != FORM_SCHEMAS && form != FORM_PROPERTIES && form != FORM_PATTERNS)
		return 0;
	cJSON_ArrayForEach(item, value) {
		if (form == FORM_PATTERNS && r == 0)
			r = check_pattern(item->string, where, problem);
		if (r == 0)
			r = check(item, item->string ? item->string : where, depth + 1, problem);
	}
	return r;
}

static int check(const cJSON *schema, const char *where, int depth, struct buffer *problem)
{
	int r = 0;

	if (depth > DEPTH_MAX) {
		buffer_printf(
			problem, "there are more than %d schemas within each other", DEPTH_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; r == 0 && i < array_size(keywords); i++) {
		const cJSON *value = cJSON_GetObjectItemCaseSensitive(schema, keywords[i].word);

		if (value)
			r = check_keyword(value, keywords[i].form, where, depth, problem);
	}
	return r;
}

int schema_check_form(const cJSON *schema, struct buffer *problem)
{
	return check(schema, "the parameters", 0, problem);
}
