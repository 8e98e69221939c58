/* Checks JSON strictly by RFC 8259; in addition, the names in an object must differ. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/utf8.h"
#include "tools/syntax/syntax.h"

enum { DEPTH_MAX = 1000 };

struct json {
	const uint8_t *start;
	const uint8_t *at;
	const uint8_t *end;
	unsigned flags;
	struct syntax_error *error;

	/* Hashes of the names so far, seeded with the number of their object; open addressing. */
	uint64_t *names;
	size_t capacity;
	size_t used;
	uint64_t objects;
};

static int complain(struct json *j, const uint8_t *at, const char *message)
{
	size_t line = 1, column = 1;

	for (const uint8_t *c = j->start; c < at; c++) {
		if (*c == '\n')
			line++, column = 1;
		else if ((*c & 0xc0) != 0x80)
			column++;
	}
	j->error->line = line;
	j->error->column = column;
	snprintf(j->error->message, sizeof(j->error->message), "%s", message);
	return -EINVAL;
}

static int skip_comment(struct json *j)
{
	const uint8_t *stop;

	if (j->end - j->at < 2)
		return complain(j, j->at, "a value or punctuation is expected, not \"/\"");
	if (j->at[1] == '/') {
		stop = memchr(j->at, '\n', (size_t)(j->end - j->at));
		j->at = stop ? stop : j->end;
		return 0;
	}
	if (j->at[1] != '*')
		return complain(j, j->at, "a value or punctuation is expected, not \"/\"");
	stop = memmem(j->at + 2, (size_t)(j->end - j->at - 2), "*/", 2);
	if (!stop)
		return complain(j, j->at, "the comment that begins here does not end");
	j->at = stop + 2;
	return 0;
}

static int skip_space(struct json *j)
{
	for (; j->at < j->end;) {
		if (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r') {
			j->at++;
			continue;
		}
		if (*j->at != '/' || !(j->flags & SYNTAX_JSON_COMMENTS))
			break;
		if (skip_comment(j) < 0)
			return -EINVAL;
	}
	return 0;
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int append_code(struct buffer *out, uint32_t code)
{
	/* Surrogates are encoded separately, three bytes each: only equality matters. */
	uint8_t bytes[3] = {(uint8_t)(0xe0 | code >> 12), (uint8_t)(0x80 | (code >> 6 & 0x3f)),
		(uint8_t)(0x80 | (code & 0x3f))};

	if (code < 0x80) {
		bytes[0] = (uint8_t)code;
		return buffer_append(out, bytes, 1);
	}
	if (code < 0x800) {
		bytes[0] = (uint8_t)(0xc0 | code >> 6);
		bytes[1] = (uint8_t)(0x80 | (code & 0x3f));
		return buffer_append(out, bytes, 2);
	}
	return buffer_append(out, bytes, 3);
}

static int take_escape(struct json *j, struct buffer *out)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const uint8_t *start = j->at++;
	const char *name;
	uint32_t code = 0;

	if (j->at == j->end)
		return complain(j, start, "the string does not end");
	name = *j->at ? strchr(names, *j->at) : NULL;
	if (name) {
		j->at++;
		return buffer_append(out, &values[name - names], 1);
	}
	if (*j->at++ != 'u')
		return complain(j, start, "there is no such escape in JSON");
	for (int i = 0; i < 4; i++, j->at++) {
		int digit = j->at < j->end ? hex_digit(*j->at) : -1;

		if (digit < 0)
			return complain(j, start, "\\u needs four hexadecimal digits");
		code = code << 4 | (uint32_t)digit;
	}
	return append_code(out, code);
}

static int take_string(struct json *j, struct buffer *out)
{
	const uint8_t *start = j->at++;

	while (j->at < j->end && *j->at != '"') {
		size_t length;
		int r;

		if (*j->at < 0x20)
			return complain(j, j->at,
				*j->at == '\n' ? "a string must not contain a line end; write \\n"
					       : "a string must not contain a control character");
		if (*j->at == '\\') {
			r = take_escape(j, out);
			if (r < 0)
				return r;
			continue;
		}
		length = utf8_sequence(j->at, (size_t)(j->end - j->at));
		if (length == 0)
			return complain(j, j->at, "this byte is not UTF-8");
		r = buffer_append(out, j->at, length);
		if (r < 0)
			return r;
		j->at += length;
	}
	if (j->at == j->end)
		return complain(j, start, "the string that begins here does not end");
	j->at++;
	return 0;
}

static int grow_names(struct json *j)
{
	size_t capacity = j->capacity ? j->capacity * 2 : 256;
	uint64_t *names = calloc(capacity, sizeof(*names));

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < j->capacity; i++) {
		size_t slot = j->names[i] & (capacity - 1);

		if (!j->names[i])
			continue;
		while (names[slot])
			slot = (slot + 1) & (capacity - 1);
		names[slot] = j->names[i];
	}
	free(j->names);
	j->names = names;
	j->capacity = capacity;
	return 0;
}

static int add_name(struct json *j, uint64_t object, const struct buffer *name, const uint8_t *at)
{
	uint64_t hash = XXH3_64bits_withSeed(name->data, name->size, object) | 1;
	size_t slot;

	if (j->used * 2 >= j->capacity && grow_names(j) < 0)
		return -ENOMEM;
	for (slot = hash & (j->capacity - 1); j->names[slot]; slot = (slot + 1) & (j->capacity - 1))
		if (j->names[slot] == hash)
			return complain(j, at, "this name is in the object twice");
	j->names[slot] = hash;
	j->used++;
	return 0;
}

static bool take_digits(struct json *j)
{
	const uint8_t *start = j->at;

	while (j->at < j->end && *j->at >= '0' && *j->at <= '9')
		j->at++;
	return j->at > start;
}

static int take_number(struct json *j)
{
	const uint8_t *start = j->at;

	j->at += *j->at == '-';
	if (j->at < j->end && *j->at == '0') {
		j->at++;
		if (j->at < j->end && *j->at >= '0' && *j->at <= '9')
			return complain(j, start, "a number must not begin with 0");
	} else if (!take_digits(j)) {
		return complain(j, start, "this is not a number");
	}
	if (j->at < j->end && *j->at == '.') {
		j->at++;
		if (!take_digits(j))
			return complain(j, start, "a digit must follow the point of a number");
	}
	if (j->at < j->end && (*j->at | 0x20) == 'e') {
		j->at++;
		if (j->at < j->end && (*j->at == '+' || *j->at == '-'))
			j->at++;
		if (!take_digits(j))
			return complain(j, start, "a digit must follow the exponent of a number");
	}
	return 0;
}

static int take_word(struct json *j)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < array_size(words); i++) {
		size_t length = strlen(words[i]);

		if ((size_t)(j->end - j->at) >= length && memcmp(j->at, words[i], length) == 0) {
			j->at += length;
			return 0;
		}
	}
	return complain(j, j->at, "a value is expected here");
}

static int take_value(struct json *j, unsigned depth);

/* Parses what follows a value in a list.  1: the list continues; 0: it ends. */
static int take_separator(struct json *j, uint8_t close, const char *message)
{
	const uint8_t *comma;

	if (skip_space(j) < 0)
		return -EINVAL;
	if (j->at == j->end || (*j->at != ',' && *j->at != close))
		return complain(j, j->at, message);
	if (*j->at == close) {
		j->at++;
		return 0;
	}
	comma = j->at++;
	if (skip_space(j) < 0)
		return -EINVAL;
	if (j->at < j->end && *j->at == close) {
		if (!(j->flags & SYNTAX_JSON_COMMENTS))
			return complain(j, comma, "a comma must not follow the last value");
		j->at++;
		return 0;
	}
	return 1;
}

static int take_member(struct json *j, uint64_t object, unsigned depth)
{
	struct buffer name cleanup_buffer = {0};
	const uint8_t *at = j->at;
	int r;

	if (j->at == j->end || *j->at != '"')
		return complain(j, j->at, "a name in double quotes is expected here");
	r = take_string(j, &name);
	if (r == 0)
		r = add_name(j, object, &name, at);
	if (r == 0)
		r = skip_space(j);
	if (r < 0)
		return r;
	if (j->at == j->end || *j->at != ':')
		return complain(j, j->at, "a colon is expected here");
	j->at++;
	return take_value(j, depth);
}

static int take_list(struct json *j, unsigned depth)
{
	bool is_object = *j->at == '{';
	uint8_t close = is_object ? '}' : ']';
	uint64_t object = ++j->objects;
	int r;

	if (depth > DEPTH_MAX)
		return complain(j, j->at, "it is nested too deeply");
	j->at++;
	if (skip_space(j) < 0)
		return -EINVAL;
	if (j->at < j->end && *j->at == close) {
		j->at++;
		return 0;
	}
	do {
		r = is_object ? take_member(j, object, depth + 1) : take_value(j, depth + 1);
		if (r == 0)
			r = take_separator(j, close,
				is_object ? "a comma or } is expected here"
					  : "a comma or ] is expected here");
	} while (r > 0);
	return r;
}

static int take_value(struct json *j, unsigned depth)
{
	struct buffer ignored cleanup_buffer = {0};

	if (skip_space(j) < 0)
		return -EINVAL;
	if (j->at == j->end)
		return complain(j, j->at, "a value is expected here");
	if (*j->at == '{' || *j->at == '[')
		return take_list(j, depth);
	if (*j->at == '"')
		return take_string(j, &ignored);
	if (*j->at == '-' || (*j->at >= '0' && *j->at <= '9'))
		return take_number(j);
	return take_word(j);
}

int syntax_json(const void *content, size_t size, unsigned flags, struct syntax_error *error)
{
	struct json j = {.start = content, .at = content, .flags = flags, .error = error};
	int r;

	j.end = j.start + size;
	if (size >= 3 && memcmp(content, "\xef\xbb\xbf", 3) == 0)
		return complain(&j, j.at, "JSON must not begin with a byte order mark");
	r = take_value(&j, 0);
	if (r == 0)
		r = skip_space(&j);
	if (r == 0 && j.at < j.end)
		r = complain(&j, j.at, "nothing may follow the value");
	free(j.names);
	return r;
}
