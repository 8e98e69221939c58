#include "tools/base/schema.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/json.h"

const char *schema_type(const cJSON *schema)
{
	const char *type = json_text(schema, "type");

	return type ? type : "string";
}

int schema_requires(const cJSON *schema, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, json_member(schema, "required"))
		if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0)
			return 1;
	return 0;
}

static bool has_type(const cJSON *value, const char *type)
{
	static const struct {
		const char *name;
		int bits;
	} types[] = {
		{"string", cJSON_String},
		{"integer", cJSON_Number},
		{"number", cJSON_Number},
		{"boolean", cJSON_True | cJSON_False},
		{"array", cJSON_Array},
		{"object", cJSON_Object},
		{"null", cJSON_NULL},
	};

	for (size_t i = 0; i < array_size(types); i++)
		if (strcmp(types[i].name, type) == 0)
			return (value->type & types[i].bits) &&
			       (strcmp(type, "integer") != 0 ||
				       (floor(value->valuedouble) == value->valuedouble &&
					       fabs(value->valuedouble) <= 9007199254740992.0));
	return false;
}

static bool is_listed(const cJSON *list, const cJSON *value)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list)
		if (cJSON_Compare(item, value, true))
			return true;
	return false;
}

/* Says what is wrong.  -EINVAL, or -ENOMEM if it cannot be said. */
static int refuse(struct buffer *problem, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(struct buffer *problem, const char *format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = buffer_vprintf(problem, format, arguments);
	va_end(arguments);
	return r < 0 ? r : -EINVAL;
}

static int refuse_other(struct buffer *problem, const char *where, const cJSON *allowed)
{
	int r = buffer_printf(problem, "%s must be one of ", where);
	const char *separator = "";
	const cJSON *item;

	cJSON_ArrayForEach(item, allowed) {
		cleanup_free char *text = cJSON_PrintUnformatted(item);

		if (r == 0)
			r = text ? buffer_printf(problem, "%s%s", separator, text) : -ENOMEM;
		separator = ", ";
	}
	return r < 0 ? r : -EINVAL;
}

static int check(const cJSON *schema, cJSON *value, const char *where, struct buffer *problem);

static void member_name(char name[256], const char *where, const char *member)
{
	snprintf(name, 256, "%s%s%s", where, *where ? "." : "", member);
}

/* In characters, as JSON Schema has it. */
static double text_length(const char *text)
{
	double length = 0;

	for (; *text; text++)
		length += (*text & 0xc0) != 0x80;
	return length;
}

static int check_bound(double got, const cJSON *bound, bool is_minimum, const char *what,
	const char *where, struct buffer *problem)
{
	if (!cJSON_IsNumber(bound) ||
		(is_minimum ? got >= bound->valuedouble : got <= bound->valuedouble))
		return 0;
	return refuse(problem, "%s%s must be at %s %g", what, where, is_minimum ? "least" : "most",
		bound->valuedouble);
}

static int check_bounds(
	const cJSON *schema, const cJSON *value, const char *where, struct buffer *problem)
{
	const char *low = "minimum", *high = "maximum", *what = "";
	double got = value->valuedouble;
	int r;

	if (cJSON_IsString(value)) {
		low = "minLength", high = "maxLength", what = "the length of ";
		got = text_length(value->valuestring);
	} else if (cJSON_IsArray(value)) {
		low = "minItems", high = "maxItems", what = "the number of items of ";
		got = cJSON_GetArraySize(value);
	} else if (!cJSON_IsNumber(value)) {
		return 0;
	}
	r = check_bound(got, json_member(schema, low), true, what, where, problem);
	return r < 0 ? r : check_bound(got, json_member(schema, high), false, what, where, problem);
}

static int refuse_name(
	struct buffer *problem, const char *name, const char *where, const cJSON *properties)
{
	int r = buffer_printf(
		problem, "\"%s\" is not known%s%s; there is: ", name, *where ? " in " : "", where);
	const char *separator = "";
	const cJSON *property;

	cJSON_ArrayForEach(property, properties) {
		if (r == 0)
			r = buffer_printf(problem, "%s%s", separator, property->string);
		separator = ", ";
	}
	return r < 0 ? r : -EINVAL;
}

static int check_names(
	const cJSON *schema, const cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *properties = json_member(schema, "properties"), *item;
	const cJSON *more = json_member(schema, "additionalProperties");

	cJSON_ArrayForEach(item, value) {
		if (json_member(properties, item->string)) {
			if (item != json_member(value, item->string))
				return refuse(problem, "\"%s\" is given twice", item->string);
			continue;
		}
		if (cJSON_IsFalse(more))
			return refuse_name(problem, item->string, where, properties);
		if (cJSON_IsObject(more)) {
			char name[256];
			int r;

			member_name(name, where, item->string);
			r = check(more, (cJSON *)item, name, problem);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int check_object(
	const cJSON *schema, cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *property;
	int r = check_names(schema, value, where, problem);

	if (r < 0)
		return r;
	cJSON_ArrayForEach(property, json_member(schema, "properties")) {
		cJSON *item = json_member(value, property->string);
		const cJSON *fallback = json_member(property, "default");
		char name[256];

		member_name(name, where, property->string);
		if (cJSON_IsNull(item) && !schema_requires(schema, property->string)) {
			/* Several clients send null for an absent property. */
			cJSON_DeleteItemFromObjectCaseSensitive(value, property->string);
			item = NULL;
		}
		if (item)
			r = check(property, item, name, problem);
		else if (schema_requires(schema, property->string))
			r = refuse(problem, "\"%s\" is missing", name);
		else if (fallback && !cJSON_AddItemToObject(value, property->string,
					     cJSON_Duplicate(fallback, true)))
			r = -ENOMEM;
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_array(const cJSON *schema, cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *items = json_member(schema, "items");
	cJSON *item;
	unsigned index = 0;
	int r = 0;

	if (!items)
		return 0;
	cJSON_ArrayForEach(item, value) {
		char name[256];

		snprintf(name, sizeof(name), "%s[%u]", where, index++);
		if (r == 0)
			r = check(items, item, name, problem);
	}
	return r;
}

/* Replaces the value in place by `other`, and takes ownership of `other`. */
static void become(cJSON *value, cJSON *other)
{
	cJSON was = *value;

	value->type = other->type | (was.type & cJSON_StringIsConst);
	value->child = other->child;
	value->valuestring = other->valuestring;
	value->valueint = other->valueint;
	value->valuedouble = other->valuedouble;
	other->type = was.type & ~cJSON_StringIsConst;
	other->child = was.child;
	other->valuestring = was.valuestring;
	cJSON_Delete(other);
}

/* Models may send a number as a string, a list as JSON text, or one item instead of a list. */
static bool convert(const cJSON *schema, cJSON *value, const char *type)
{
	cJSON *item, *other = NULL;

	if (cJSON_IsString(value))
		other = schema_value_from_text(schema, value->valuestring);
	if (other)
		become(value, other);
	if (strcmp(type, "array") != 0 || !cJSON_IsObject(value))
		return has_type(value, type);
	item = cJSON_CreateObject();
	other = cJSON_CreateArray();
	if (!item || !cJSON_AddItemToArray(other, item)) {
		cJSON_Delete(item);
		cJSON_Delete(other);
		return false;
	}
	item->child = value->child;
	value->child = NULL;
	become(value, other);
	return true;
}

static int check(const cJSON *schema, cJSON *value, const char *where, struct buffer *problem)
{
	const char *type = json_text(schema, "type");
	const cJSON *allowed = json_member(schema, "enum");

	int r;

	if (type && !has_type(value, type) && !convert(schema, value, type))
		return refuse(problem, "%s must be %s %s", *where ? where : "the arguments",
			strchr("aio", *type) ? "an" : "a", type);
	if (allowed && !is_listed(allowed, value))
		return refuse_other(problem, where, allowed);
	r = check_bounds(schema, value, where, problem);
	if (r < 0)
		return r;
	if (cJSON_IsObject(value))
		return check_object(schema, value, where, problem);
	if (cJSON_IsArray(value))
		return check_array(schema, value, where, problem);
	return 0;
}

int schema_check(const cJSON *schema, cJSON *value, struct buffer *problem)
{
	return check(schema, value, "", problem);
}

static cJSON *number_from_text(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	return end != text && !*end && isfinite(value) ? cJSON_CreateNumber(value) : NULL;
}

static cJSON *boolean_from_text(const char *text)
{
	static const char *const words[] = {"false", "true", "no", "yes", "0", "1"};

	for (size_t i = 0; i < array_size(words); i++)
		if (strcmp(text, words[i]) == 0)
			return cJSON_CreateBool(i % 2);
	return NULL;
}

cJSON *schema_value_from_text(const cJSON *schema, const char *text)
{
	const char *type = schema_type(schema);

	if (strcmp(type, "string") == 0)
		return cJSON_CreateString(text);
	if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0)
		return number_from_text(text);
	if (strcmp(type, "boolean") == 0)
		return boolean_from_text(text);
	return cJSON_ParseWithOpts(text, NULL, true);
}
