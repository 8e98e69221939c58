/* Converts the description of a toolbox, in lines of text or in JSON, to one form. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "tools/custom/internal.h"

/* Adds a parameter from "name: type description"; "string?", "(optional)" or "optional" make it
 * optional. */
static void add_parameter(cJSON *schema, const char *name, const char *description)
{
	static const char *const optional[] = {"(optional)", "optional"};
	static const char *const types[] = {
		"string", "integer", "number", "boolean", "array", "object"};
	cJSON *property = cJSON_CreateObject();
	size_t length = strcspn(description, " \t");
	cleanup_free char *type = strndup(description, length);
	bool required = true;
	const char *known = "string";

	description += length + strspn(description + length, " \t");
	if (type && length && type[length - 1] == '?') {
		type[length - 1] = '\0';
		required = false;
	}
	for (size_t i = 0; i < array_size(optional); i++)
		if (strncmp(description, optional[i], strlen(optional[i])) == 0) {
			description += strlen(optional[i]);
			description += strspn(description, " \t");
			required = false;
		}
	for (size_t i = 0; type && i < array_size(types); i++)
		if (strcmp(types[i], type) == 0)
			known = types[i];
	cJSON_AddStringToObject(property, "type", known);
	if (*description)
		cJSON_AddStringToObject(property, "description", description);
	cJSON_AddItemToObject(
		cJSON_GetObjectItemCaseSensitive(schema, "properties"), name, property);
	if (required)
		cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(schema, "required"),
			cJSON_CreateString(name));
}

static cJSON *empty_schema(void)
{
	cJSON *schema = cJSON_CreateObject();

	cJSON_AddStringToObject(schema, "type", "object");
	cJSON_AddObjectToObject(schema, "properties");
	cJSON_AddArrayToObject(schema, "required");
	return schema;
}

static cJSON *wrap(cJSON *tool, bool text_form)
{
	cJSON *description = cJSON_CreateObject();

	cJSON_AddStringToObject(description, "protocol", "toolbox");
	cJSON_AddBoolToObject(description, "text", text_form);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(description, "tools"), tool);
	return description;
}

static void take_line(cJSON *tool, cJSON *schema, char *line)
{
	char *colon = strchr(line, ':'), *value, *end;

	if (!colon)
		return;
	*colon = '\0';
	value = colon + 1 + strspn(colon + 1, " \t");
	end = value + strlen(value);
	while (end > value && isspace((unsigned char)end[-1]))
		*--end = '\0';
	line += strspn(line, " \t");
	if (strcmp(line, "name") == 0 || strcmp(line, "description") == 0) {
		if (!json_text(tool, line))
			cJSON_AddStringToObject(tool, line, value);
	} else if (*line && !strpbrk(line, " \t")) {
		add_parameter(schema, line, value);
	}
}

static cJSON *from_lines(char *text)
{
	cJSON *tool = cJSON_CreateObject(), *schema = empty_schema();
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		take_line(tool, schema, line);
	cJSON_AddItemToObject(tool, "parameters", schema);
	return wrap(tool, true);
}

/* The schema for "args": {"dir": ["string", "the directory"]}; a value may also be a schema. */
static cJSON *schema_of_args(const cJSON *args)
{
	cJSON *schema = empty_schema();
	const cJSON *item;

	cJSON_ArrayForEach(item, args) {
		const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
		const char *description = cJSON_GetStringValue(cJSON_GetArrayItem(item, 1));
		cleanup_free char *line = NULL;

		if (cJSON_IsObject(item)) {
			cJSON_AddItemToObject(
				cJSON_GetObjectItemCaseSensitive(schema, "properties"),
				item->string, cJSON_Duplicate(item, true));
			continue;
		}
		line = string_printf(
			"%s %s", type ? type : "string", description ? description : "");
		if (line)
			add_parameter(schema, item->string, line);
	}
	return schema;
}

/* Moves the members that are kept out of `json`. */
static cJSON *from_json(cJSON *json)
{
	cJSON *tool = cJSON_CreateObject();
	cJSON *schema = cJSON_DetachItemFromObjectCaseSensitive(json, "inputSchema");

	cJSON_AddItemToObject(tool, "name", cJSON_DetachItemFromObjectCaseSensitive(json, "name"));
	cJSON_AddItemToObject(
		tool, "description", cJSON_DetachItemFromObjectCaseSensitive(json, "description"));
	if (!schema)
		schema = schema_of_args(cJSON_GetObjectItemCaseSensitive(json, "args"));
	cJSON_AddItemToObject(tool, "parameters", schema);
	return wrap(tool, false);
}

static const char *what_is_wrong(const cJSON *description)
{
	const cJSON *tools = cJSON_GetObjectItemCaseSensitive(description, "tools"), *tool;

	if (!cJSON_IsArray(tools))
		return "\"tools\" must be a list";
	cJSON_ArrayForEach(tool, tools) {
		const cJSON *schema = cJSON_GetObjectItemCaseSensitive(tool, "parameters");

		if (!json_text(tool, "name"))
			return "it says no name";
		if (schema && !cJSON_IsObject(schema))
			return "its schema of parameters is no object";
	}
	return NULL;
}

cJSON *custom_toolbox_description(const char *text, size_t size, struct buffer *problem)
{
	cleanup_free char *copy = strndup(text, size);
	cJSON *json = copy ? cJSON_ParseWithOpts(copy, NULL, true) : NULL, *description;
	bool is_broken = !json && copy && copy[strspn(copy, " \t\r\n")] == '{';
	const char *wrong;

	if (!copy)
		return NULL;
	if (memchr(text, '\0', size)) {
		cJSON_Delete(json);
		buffer_append_string(problem, "it printed bytes that are no text");
		return NULL;
	}
	if (cJSON_IsObject(json) && json_text(json, "protocol") &&
		strcmp(json_text(json, "protocol"), "toolbox") != 0) {
		description = json;
		json = NULL;
	} else {
		description = cJSON_IsObject(json) ? from_json(json) : from_lines(copy);
	}
	cJSON_Delete(json);
	wrong = is_broken ? "it is JSON with a mistake, or with too much within each other"
			  : what_is_wrong(description);
	if (!wrong)
		return description;
	buffer_printf(problem, "what it printed for TOOLBOX_ACTION=describe is no description: %s",
		wrong);
	cJSON_Delete(description);
	return NULL;
}
