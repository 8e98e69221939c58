#include "tools/base/schema.h"

#include <errno.h>
#include <math.h>
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

	cJSON_ArrayForEach(item,
		json_member(schema, "required")) if (cJSON_IsString(item) &&
						     strcmp(item->valuestring, name) == 0) return 1;
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

	cJSON_ArrayForEach(item, list) if (cJSON_Compare(item, value, true)) return true;
	return false;
}

static void print_list(struct buffer *problem, const cJSON *list)
{
	const cJSON *item;
	const char *separator = "";

	cJSON_ArrayForEach(item, list)
	{
		cleanup_free char *text = cJSON_PrintUnformatted(item);

		buffer_printf(problem, "%s%s", separator, text ? text : "?");
		separator = ", ";
	}
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
	buffer_printf(problem, "%s%s must be at %s %g", what, where, is_minimum ? "least" : "most",
		bound->valuedouble);
	return -EINVAL;
}

static int check_bounds(
	const cJSON *schema, const cJSON *value, const char *where, struct buffer *problem)
{
	const char *low = "minimum", *high = "maximum", *what = "";
	double got = value->valuedouble;

	if (cJSON_IsString(value)) {
		low = "minLength", high = "maxLength", what = "the length of ";
		got = text_length(value->valuestring);
	} else if (cJSON_IsArray(value)) {
		low = "minItems", high = "maxItems", what = "the number of items of ";
		got = cJSON_GetArraySize(value);
	} else if (!cJSON_IsNumber(value)) {
		return 0;
	}
	if (check_bound(got, json_member(schema, low), true, what, where, problem) < 0)
		return -EINVAL;
	return check_bound(got, json_member(schema, high), false, what, where, problem);
}

static void print_known_names(struct buffer *problem, const cJSON *properties)
{
	const cJSON *property;
	const char *separator = "";

	cJSON_ArrayForEach(property, properties)
	{
		buffer_printf(problem, "%s%s", separator, property->string);
		separator = ", ";
	}
}

static int check_names(
	const cJSON *schema, const cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *properties = json_member(schema, "properties"), *item;
	const cJSON *more = json_member(schema, "additionalProperties");

	cJSON_ArrayForEach(item, value)
	{
		if (json_member(properties, item->string)) {
			if (item != json_member(value, item->string)) {
				buffer_printf(problem, "\"%s\" is given twice", item->string);
				return -EINVAL;
			}
			continue;
		}
		if (cJSON_IsFalse(more)) {
			buffer_printf(problem, "\"%s\" is not known%s%s; there is: ", item->string,
				*where ? " in " : "", where);
			print_known_names(problem, properties);
			return -EINVAL;
		}
		if (cJSON_IsObject(more)) {
			char name[256];

			member_name(name, where, item->string);
			if (check(more, (cJSON *)item, name, problem) < 0)
				return -EINVAL;
		}
	}
	return 0;
}

static int check_object(
	const cJSON *schema, cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *property;

	if (check_names(schema, value, where, problem) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(property, json_member(schema, "properties"))
	{
		cJSON *item = json_member(value, property->string);
		const cJSON *fallback = json_member(property, "default");
		char name[256];

		member_name(name, where, property->string);
		if (cJSON_IsNull(item) && !schema_requires(schema, property->string)) {
			/* Several clients send null for an absent property. */
			cJSON_DeleteItemFromObjectCaseSensitive(value, property->string);
			item = NULL;
		}
		if (item) {
			if (check(property, item, name, problem) < 0)
				return -EINVAL;
		} else if (schema_requires(schema, property->string)) {
			buffer_printf(problem, "\"%s\" is missing", name);
			return -EINVAL;
		} else if (fallback && !cJSON_AddItemToObject(value, property->string,
					       cJSON_Duplicate(fallback, true))) {
			buffer_append_string(problem, "out of memory");
			return -EINVAL;
		}
	}
	return 0;
}

static int check_array(const cJSON *schema, cJSON *value, const char *where, struct buffer *problem)
{
	const cJSON *items = json_member(schema, "items");
	cJSON *item;
	unsigned index = 0;

	if (!items)
		return 0;
	cJSON_ArrayForEach(item, value)
	{
		char name[256];

		snprintf(name, sizeof(name), "%s[%u]", where, index++);
		if (check(items, item, name, problem) < 0)
			return -EINVAL;
	}
	return 0;
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

	if (type && !has_type(value, type) && !convert(schema, value, type)) {
		buffer_printf(problem, "%s must be %s %s", *where ? where : "the arguments",
			strchr("aio", *type) ? "an" : "a", type);
		return -EINVAL;
	}
	if (allowed && !is_listed(allowed, value)) {
		buffer_printf(problem, "%s must be one of ", where);
		print_list(problem, allowed);
		return -EINVAL;
	}
	if (check_bounds(schema, value, where, problem) < 0)
		return -EINVAL;
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
