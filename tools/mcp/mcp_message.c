/* Operations on raw JSON text, which has details that cJSON does not keep. */
#include <stdlib.h>
#include <string.h>

#include "tools/mcp/mcp.h"

static const char *skip_space(const char *at, const char *end)
{
	while (at < end && strchr(" \t\r\n", *at) && *at)
		at++;
	return at;
}

static const char *skip_string(const char *at, const char *end)
{
	for (at++; at < end && *at != '"'; at++)
		at += *at == '\\';
	return at + 1;
}

static const char *skip_value(const char *at, const char *end)
{
	int depth = 0;

	for (; at < end; at++) {
		if (*at == '"') {
			at = skip_string(at, end) - 1;
		} else if (*at == '{' || *at == '[') {
			depth++;
		} else if (*at == '}' || *at == ']') {
			if (depth-- == 0)
				return at;
		} else if (*at == ',' && depth == 0) {
			return at;
		}
	}
	return end;
}

char *mcp_raw_member(const char *text, size_t size, const char *name)
{
	const char *end = text + size, *at = skip_space(text, end);
	size_t length = strlen(name);

	if (at == end || *at != '{')
		return NULL;
	for (at = skip_space(at + 1, end); at < end && *at == '"';) {
		const char *key = at + 1, *key_end = skip_string(at, end) - 1, *value;
		const char *value_end;

		at = skip_space(key_end + 1, end);
		value = skip_space(at + 1, end);
		value_end = skip_value(value, end);
		if ((size_t)(key_end - key) == length && strncmp(key, name, length) == 0) {
			while (value_end > value && strchr(" \t\r\n", value_end[-1]))
				value_end--;
			return strndup(value, (size_t)(value_end - value));
		}
		at = skip_space(value_end + (value_end < end && *value_end == ','), end);
	}
	return NULL;
}
