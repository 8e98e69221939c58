#include "tools/base/options.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/base/schema.h"

enum { FILE_MAX_BYTES = 64 << 20 };

static const cJSON *properties_of(const cJSON *schema)
{
	return json_member(schema, "properties");
}

static bool is_type(const cJSON *schema, const char *type)
{
	return strcmp(schema_type(schema), type) == 0;
}

static bool is_object_list(const cJSON *schema)
{
	return is_type(schema, "array") && is_type(json_member(schema, "items"), "object");
}

/* Finds the property of an option; "max-count" means "max_count". */
static const cJSON *find_property(const cJSON *schema, const char *name, size_t length)
{
	const cJSON *property;

	cJSON_ArrayForEach(property, properties_of(schema)) {
		size_t i = 0;

		while (i < length && (property->string[i] == name[i] ||
					     (property->string[i] == '_' && name[i] == '-')))
			i++;
		if (i == length && !property->string[i])
			return property;
	}
	return NULL;
}

int options_read_file(const char *path, struct buffer *content)
{
	cleanup_fd int fd = strcmp(path, "-") == 0 ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t got;

		if (content->size > FILE_MAX_BYTES)
			return -EFBIG;
		if (buffer_reserve(content, 65536) < 0)
			return -ENOMEM;
		got = read(fd, content->data + content->size, 65536);
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		content->size += got > 0 ? (size_t)got : 0;
	}
}

static cJSON *value_from_file(const char *path, struct buffer *problem)
{
	struct buffer content cleanup_buffer = {0};
	cleanup_free char *text = NULL;
	int r = options_read_file(path, &content);

	if (r < 0) {
		buffer_printf(problem, "cannot read \"%s\": %s", path, strerror(-r));
		return NULL;
	}
	if (!utf8_is_clean(content.data, content.size)) {
		buffer_printf(problem, "\"%s\" is not UTF-8 text", path);
		return NULL;
	}
	text = buffer_steal_string(&content);
	return text ? cJSON_CreateString(text) : NULL;
}

static int add_pair(cJSON *object, const char *text, struct buffer *problem)
{
	const char *equals = strchr(text, '=');
	cleanup_free char *name = NULL;

	if (!equals || equals == text) {
		buffer_printf(problem, "\"%s\" is not NAME=VALUE", text);
		return -EINVAL;
	}
	name = strndup(text, (size_t)(equals - text));
	if (!name)
		return -ENOMEM;
	cJSON_DeleteItemFromObjectCaseSensitive(object, name);
	return cJSON_AddStringToObject(object, name, equals + 1) ? 0 : -ENOMEM;
}

static cJSON *get_or_add(cJSON *arguments, const char *name, bool array)
{
	cJSON *item = json_member(arguments, name);

	if (item)
		return item;
	return array ? cJSON_AddArrayToObject(arguments, name)
		     : cJSON_AddObjectToObject(arguments, name);
}

/* Sets a property from the text of an option; adds to it if it is a list or a map. */
static int set_value(cJSON *arguments, const cJSON *property, const char *text, bool from_file,
	struct buffer *problem)
{
	bool list = is_type(property, "array"), map = is_type(property, "object");
	cJSON *value;

	if (map && *text != '{')
		return add_pair(get_or_add(arguments, property->string, false), text, problem);
	value = from_file
			? value_from_file(text, problem)
			: schema_value_from_text(
				  list && *text != '[' ? json_member(property, "items") : property,
				  text);
	if (!value) {
		if (!problem->size)
			buffer_printf(problem, "\"%s\" is not a valid value of --%s (%s)", text,
				property->string, schema_type(property));
		return -EINVAL;
	}
	if (list && !cJSON_IsArray(value)) {
		cJSON_AddItemToArray(get_or_add(arguments, property->string, true), value);
		return 0;
	}
	cJSON_DeleteItemFromObjectCaseSensitive(arguments, property->string);
	cJSON_AddItemToObject(arguments, property->string, value);
	return 0;
}

/* The item of a list of objects that an option sets a member of: the last one, or a new one if that
 * has the member. */
static cJSON *current_item(cJSON *arguments, const cJSON *list, const char *name)
{
	cJSON *array = get_or_add(arguments, list->string, true);
	int count = cJSON_GetArraySize(array);
	cJSON *item = count ? cJSON_GetArrayItem(array, count - 1) : NULL;

	if (!item || json_member(item, name)) {
		item = cJSON_CreateObject();
		cJSON_AddItemToArray(array, item);
	}
	return item;
}

struct option {
	const cJSON *property;
	const cJSON *list; /* the list of objects whose items have the property; or NULL */
	bool from_file;
};

static bool find_option(const cJSON *schema, const char *name, size_t length, struct option *ret)
{
	const cJSON *list;
	struct option option = {.property = find_property(schema, name, length)};

	if (!option.property) {
		cJSON_ArrayForEach(list, properties_of(schema)) {
			if (option.property || !is_object_list(list))
				continue;
			option.property = find_property(json_member(list, "items"), name, length);
			option.list = list;
		}
	}
	if (option.property) {
		*ret = option;
		return true;
	}
	if (length > 5 && strncmp(name + length - 5, "-from", 5) == 0 &&
		find_option(schema, name, length - 5, &option) && !option.from_file &&
		is_type(option.property, "string")) {
		option.from_file = true;
		*ret = option;
		return true;
	}
	return false;
}

/* Stores a bare argument in the first required string that is not set. */
static int take_word(
	const cJSON *schema, const char *word, cJSON *arguments, struct buffer *problem)
{
	const cJSON *name;

	cJSON_ArrayForEach(name, json_member(schema, "required")) {
		const cJSON *property = json_member(properties_of(schema), name->valuestring);

		if (is_type(property, "string") && !json_member(arguments, name->valuestring))
			return set_value(arguments, property, word, false, problem);
	}
	if (json_member(properties_of(schema), "path") && !json_member(arguments, "path"))
		return set_value(arguments, json_member(properties_of(schema), "path"), word, false,
			problem);
	buffer_printf(problem, "\"%s\" belongs to no option", word);
	return -EINVAL;
}

int options_parse(
	const cJSON *schema, int argc, char **argv, cJSON *arguments, struct buffer *problem)
{
	bool words_only = false;

	for (int i = 0; i < argc; i++) {
		const char *word = argv[i], *value;
		struct option option;
		size_t length;
		int r;

		if (words_only || strncmp(word, "--", 2) != 0) {
			r = take_word(schema, word, arguments, problem);
			if (r < 0)
				return r;
			continue;
		}
		words_only = !word[2];
		if (words_only)
			continue;
		length = strcspn(word + 2, "=");
		if (!find_option(schema, word + 2, length, &option)) {
			buffer_printf(problem, "unknown option %.*s", (int)length + 2, word);
			return -EINVAL;
		}
		if (word[2 + length])
			value = word + 3 + length;
		else if (is_type(option.property, "boolean"))
			value = "true";
		else if (++i < argc)
			value = argv[i];
		else {
			buffer_printf(problem, "%s needs a value", word);
			return -EINVAL;
		}
		r = set_value(
			option.list ? current_item(arguments, option.list, option.property->string)
				    : arguments,
			option.property, value, option.from_file, problem);
		if (r < 0)
			return r;
	}
	return 0;
}

static int help_for(const cJSON *schema, const char *indent, struct buffer *out)
{
	const cJSON *property;
	int r = 0;

	cJSON_ArrayForEach(property, properties_of(schema)) {
		const char *description = json_text(property, "description");
		cleanup_free char *fallback = NULL, *name = strdup(property->string);

		if (!name)
			return -ENOMEM;
		for (char *at = name; *at; at++)
			*at = *at == '_' ? '-' : *at;
		if (json_member(property, "default"))
			fallback = cJSON_PrintUnformatted(json_member(property, "default"));
		if (r == 0)
			r = buffer_printf(out, "%s--%-18s %-8s %s%s%s%s%s\n", indent, name,
				schema_type(property), description ? description : "",
				schema_requires(schema, property->string) ? " (required)" : "",
				fallback ? " (default: " : "", fallback ? fallback : "",
				fallback ? ")" : "");
		if (r == 0 && is_object_list(property))
			r = help_for(json_member(property, "items"), "    ", out);
	}
	return r;
}

int options_help(const cJSON *schema, struct buffer *out)
{
	return help_for(schema, "  ", out);
}
