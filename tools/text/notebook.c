#include "tools/text/notebook.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "ops/support/json.h"
#include "tools/text/text.h"

bool notebook_is_one(const char *path)
{
	static const char end[] = ".ipynb";
	size_t length = strlen(path), tail = sizeof(end) - 1;

	return length > tail && strcasecmp(path + length - tail, end) == 0;
}

/* Appends text without escape sequences of terminals, which tracebacks have. */
static int append_plain(struct buffer *out, const char *text)
{
	int r = 0;

	while (*text && r == 0) {
		size_t length = strcspn(text, "\x1b");

		r = buffer_append(out, text, length);
		text += length;
		if (text[0] == '\x1b' && text[1] == '[') {
			text += 2 + strspn(text + 2, "0123456789;?");
			text += *text != '\0';
		} else if (*text) {
			text++;
		}
	}
	return r;
}

/* Appends a string, or a list of strings that follow each other, with a line end. */
static int append_text(struct buffer *out, const cJSON *text, const char *between)
{
	size_t before = out->size;
	const cJSON *lines = cJSON_IsArray(text) ? text : NULL, *line;
	int r = cJSON_IsString(text) ? append_plain(out, text->valuestring) : 0;

	cJSON_ArrayForEach(line, lines) {
		if (r == 0 && cJSON_IsString(line))
			r = append_plain(out, line->valuestring);
		if (r == 0 && line->next)
			r = buffer_append_string(out, between);
	}
	if (r == 0 && out->size > before && out->data[out->size - 1] != '\n')
		r = buffer_append_string(out, "\n");
	return r;
}

static size_t text_bytes(const cJSON *text)
{
	size_t bytes = cJSON_IsString(text) ? strlen(text->valuestring) : 0;
	const cJSON *lines = cJSON_IsArray(text) ? text : NULL, *line;

	cJSON_ArrayForEach(line, lines) {
		if (cJSON_IsString(line))
			bytes += strlen(line->valuestring);
	}
	return bytes;
}

/* The text of a result; of its other forms, the type and size, if they say more than the text. */
static int append_data(struct buffer *out, const cJSON *data)
{
	const cJSON *plain = json_member(data, "text/plain"), *form;
	int r = append_text(out, plain, "");

	cJSON_ArrayForEach(form, data) {
		bool is_image = strncmp(form->string, "image/", 6) == 0;
		char size[32];

		if (r == 0 && form != plain && (is_image || !plain))
			r = buffer_printf(out, "[%s, %s%s]\n", form->string,
				text_size(text_bytes(form), size), is_image ? " of base64" : "");
	}
	return r;
}

static int append_output(struct buffer *out, const cJSON *output)
{
	const char *name = json_text(output, "ename"), *value = json_text(output, "evalue");
	const cJSON *traceback = json_member(output, "traceback");
	int r;

	if (!name) {
		r = append_text(out, json_member(output, "text"), "");
		return r < 0 ? r : append_data(out, json_member(output, "data"));
	}
	if (cJSON_IsArray(traceback) && traceback->child)
		return append_text(out, traceback, "\n");
	return buffer_printf(out, "%s: %s\n", name, value ? value : "");
}

static int append_cell(struct buffer *out, const cJSON *cell, const char *language, unsigned number)
{
	const char *type = json_text(cell, "cell_type");
	const cJSON *count = json_member(cell, "execution_count"), *output;
	bool is_code = type && strcmp(type, "code") == 0;
	int r = buffer_printf(out, "%s[Cell %u, %s", out->size ? "\n" : "", number,
		is_code ? language
		: type  ? type
			: "unknown");

	if (r == 0 && cJSON_IsNumber(count))
		r = buffer_printf(out, ", In %d", count->valueint);
	if (r == 0)
		r = buffer_append_string(out, "]\n");
	if (r == 0)
		r = append_text(out, json_member(cell, "source"), "");
	if (r == 0 && cJSON_GetArraySize(json_member(cell, "outputs")))
		r = buffer_printf(out, "[Output of cell %u]\n", number);
	cJSON_ArrayForEach(output, json_member(cell, "outputs")) {
		if (r == 0)
			r = append_output(out, output);
	}
	return r;
}

int notebook_text(const char *json, size_t size, struct buffer *out)
{
	cJSON *notebook = cJSON_ParseWithLength(json, size);
	const cJSON *cells = json_member(notebook, "cells"), *cell;
	const cJSON *metadata = json_member(notebook, "metadata");
	const char *language = json_text(json_member(metadata, "language_info"), "name");
	unsigned number = 0;
	int r = cJSON_IsArray(cells) ? 0 : -EINVAL;

	if (!language)
		language = json_text(json_member(metadata, "kernelspec"), "language");
	cJSON_ArrayForEach(cell, cells) {
		if (r == 0)
			r = append_cell(out, cell, language ? language : "code", ++number);
	}
	cJSON_Delete(notebook);
	return r;
}
