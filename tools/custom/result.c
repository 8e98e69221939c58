/* The result of a tool, as text for a model and as data. */
#include <errno.h>
#include <nettle/base64.h>
#include <string.h>

#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/base/output_file.h"
#include "tools/custom/internal.h"
#include "tools/image/image.h"

static int decode_base64(const char *data, struct buffer *bytes)
{
	size_t size = data ? strlen(data) : 0;
	struct base64_decode_ctx decoder;

	if (!size || size % 4 || size > CUSTOM_LINE_MAX_BYTES)
		return -EINVAL;
	if (buffer_reserve(bytes, size + 1) < 0)
		return -ENOMEM;
	base64_decode_init(&decoder);
	return base64_decode_update(&decoder, &bytes->size, bytes->data, size, data) &&
			       base64_decode_final(&decoder) && bytes->size
		       ? 0
		       : -EINVAL;
}

/* Takes the first image; a result has room for one. */
static int take_image(struct tool_call *call, const cJSON *block, struct buffer *text)
{
	const char *type = json_text(block, "mimeType");
	struct buffer bytes cleanup_buffer = {0};
	int r = decode_base64(json_text(block, "data"), &bytes);

	if (r == 0 && call->image.mime_type)
		return buffer_printf(
			text, "[One more image (%s) was left out.]\n", type ? type : "no type");
	if (r == 0)
		r = image_add(call, type, &bytes);
	return r == -EINVAL
		       ? buffer_append_string(text, "[An image that is not valid was left out.]\n")
		       : r;
}

static int join_text(struct tool_call *call, const cJSON *content, struct buffer *text)
{
	const cJSON *block;
	int r = 0;

	if (cJSON_IsString(content))
		return utf8_append_clean(text, content->valuestring, strlen(content->valuestring));
	if (content && !cJSON_IsNull(content) && !cJSON_IsArray(content))
		return buffer_append_string(text,
			"[The content of the result was left out: it is neither a string nor a "
			"list of blocks.]\n");
	cJSON_ArrayForEach(block, content) {
		const char *type = json_text(block, "type"), *part = json_text(block, "text");

		if (r == 0 && text->size && text->data[text->size - 1] != '\n')
			r = buffer_append(text, "\n", 1);
		if (r == 0 && part)
			r = utf8_append_clean(text, part, strlen(part));
		else if (r == 0 && type && strcmp(type, "image") == 0)
			r = take_image(call, block, text);
		else if (r == 0 && !part)
			r = buffer_printf(
				text, "[A block of type %s was left out.]\n", type ? type : "none");
	}
	return r;
}

/* The length of the first whole lines that fit an answer. */
static size_t head_size(const struct buffer *text)
{
	size_t lines = 0, whole = 0;

	for (size_t i = 0; i < text->size; i++) {
		if (i >= TOOL_OUTPUT_MAX_BYTES || lines >= TOOL_OUTPUT_MAX_LINES)
			return whole ? whole : i;
		if (text->data[i] == '\n') {
			lines++;
			whole = i + 1;
		}
	}
	return text->size;
}

static size_t tail_size(const struct buffer *text)
{
	size_t lines = 0, whole = 0, size;

	for (size = 0; size < text->size; size++) {
		if (size >= TOOL_OUTPUT_MAX_BYTES || lines > TOOL_OUTPUT_MAX_LINES)
			return whole ? whole : size;
		if (text->data[text->size - size - 1] == '\n') {
			lines++;
			whole = size;
		}
	}
	return size;
}

/* Cuts the text to the limits, and writes all of it to a file. */
static int cut(struct tool_call *call, struct buffer *text, bool keep_tail)
{
	size_t size = keep_tail ? tail_size(text) : head_size(text);
	struct buffer part cleanup_buffer = {0};
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;
	int r;

	if (size == text->size)
		return 0;
	fd = output_file_make(call->call_id, &path);
	if (fd >= 0 && write_all(fd, text->data, text->size) < 0) {
		free(path);
		path = NULL;
	}
	r = utf8_append_clean(&part, text->data + (keep_tail ? text->size - size : 0), size);
	if (r == 0)
		r = buffer_printf(&part, "%s[This is its %s; %s%s%s]",
			part.size && part.data[part.size - 1] == '\n' ? "" : "\n",
			keep_tail ? "end" : "beginning", path ? "all of it is in " : "",
			path ? path : "the rest could not be kept.",
			path ? ", which read can show." : "");
	if (path)
		cJSON_AddStringToObject(call->data, "output_file", path);
	if (r == 0) {
		buffer_done(text);
		*text = part;
		part = (struct buffer){0};
	}
	return r;
}

int custom_take_result(struct tool_call *call, const cJSON *result)
{
	const cJSON *details = cJSON_GetObjectItemCaseSensitive(result, "details");
	struct buffer text cleanup_buffer = {0};
	int r = join_text(call, cJSON_GetObjectItemCaseSensitive(result, "content"), &text);

	if (r == 0)
		r = cut(call, &text, custom_tool_of(call)->keep_tail);
	if (r == 0)
		r = buffer_append(&text, "", 1);
	if (r < 0)
		return tool_fail_errno(call, r, "keep the result", NULL);
	cJSON_AddStringToObject(call->data, "text", (const char *)text.data);
	if (details)
		cJSON_AddItemToObject(call->data, "details", cJSON_Duplicate(details, true));
	return tool_text(call, "%s", (const char *)text.data);
}
