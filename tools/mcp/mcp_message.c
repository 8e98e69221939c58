/* Operations on raw JSON text, which has details that cJSON does not keep. */
#include <stdlib.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/mcp/mcp.h"
#include "tools/syntax/syntax.h"

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

/* A member of an object, in its text. */
struct member {
	const char *name; /* without the quotes */
	size_t name_length;
	const char *value;
	const char *value_end;
};

/* Finds the member at `*at`, which then is behind it; at first it is at the beginning of the
 * object.  False: no further member. */
static bool next_member(const char **at, const char *end, struct member *ret)
{
	const char *start = skip_space(*at, end);

	if (start >= end || (*start != '{' && *start != ','))
		return false;
	start = skip_space(start + 1, end);
	if (start >= end || *start != '"')
		return false;
	ret->name = start + 1;
	start = skip_string(start, end);
	ret->name_length = (size_t)(start - 1 - ret->name);
	start = skip_space(start, end);
	if (start >= end || *start != ':')
		return false;
	ret->value = skip_space(start + 1, end);
	*at = ret->value_end = skip_value(ret->value, end);
	while (ret->value_end > ret->value && strchr(" \t\r\n", ret->value_end[-1]))
		ret->value_end--;
	return true;
}

static bool has_name(const struct member *member, const char *name)
{
	return member->name_length == strlen(name) &&
	       memcmp(member->name, name, member->name_length) == 0;
}

static char *copy_value(const struct member *member)
{
	return strndup(member->value, (size_t)(member->value_end - member->value));
}

char *mcp_raw_member(const char *text, size_t size, const char *name)
{
	const char *end = text + size, *at = skip_space(text, end);
	struct member member;

	if (at == end || *at != '{')
		return NULL;
	while (next_member(&at, end, &member))
		if (has_name(&member, name))
			return copy_value(&member);
	return NULL;
}

/* ---- Messages that are not valid JSON --------------------------------------------------- */

bool mcp_is_id(const char *id)
{
	struct syntax_error ignored;

	return (*id == '"' || (*id && strchr("-0123456789", *id))) &&
	       syntax_json(id, strlen(id), 0, &ignored) == 0;
}

static size_t escape_length(const char *at, const char *end)
{
	if (end - at >= 2 && at[1] && strchr("\"\\/bfnrt", at[1]))
		return 2;
	return end - at >= 6 && at[1] == 'u' && strspn(at + 2, "0123456789abcdefABCDEF") >= 4 ? 6
											      : 0;
}

/* Replaces what strings must not have and what says nothing of the structure: bytes that are no
 * UTF-8, control characters, unknown escapes and halves of surrogate pairs. */
static void mend_strings(char *text, size_t size)
{
	char *end = text + size;
	size_t length;

	json_replace_escapes(text, size);
	for (char *at = text; at < end; at += length ? length : 1) {
		length = *at == '\\' ? escape_length(at, end)
				     : utf8_sequence((uint8_t *)at, (size_t)(end - at));
		if (length == 0 || (unsigned char)*at < ' ')
			*at = length ? ' ' : '?';
	}
}

char *mcp_broken_id(const char *text, size_t size)
{
	cleanup_free char *copy = calloc(1, size + 1), *id = NULL;
	const char *at, *end;
	struct member member;

	if (!copy)
		return NULL;
	memcpy(copy, text, size);
	mend_strings(copy, size);
	end = copy + size;
	at = skip_space(copy, end);
	if (at == end || *at != '{')
		return NULL;
	while (next_member(&at, end, &member)) {
		/* Cut off, there could be more of it; twice, it could be either. */
		if (has_name(&member, "id") && (id || at == end))
			return NULL;
		/* mend_strings() has changed it: the result may be the id of another request. */
		if (has_name(&member, "id") &&
			memcmp(member.value, text + (member.value - copy),
				(size_t)(member.value_end - member.value)) != 0)
			return NULL;
		if (has_name(&member, "id"))
			id = copy_value(&member);
		/* Nobody waits for an answer to an answer. */
		if (has_name(&member, "result") || has_name(&member, "error"))
			return NULL;
	}
	/* Behind the object, which a quote that was not escaped may have ended too soon. */
	if (memmem(at, (size_t)(end - at), "\"id\"", 4))
		return NULL;
	return id && mcp_is_id(id) ? steal_ptr(&id) : NULL;
}
