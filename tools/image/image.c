#include "tools/image/image.h"

#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "tools/base/limited_child.h"
#include "tools/text/text.h"

enum {
	CHILD_MEMORY_BYTES = 1 << 30,
	CHILD_CPU_S = 20,
	CHILD_MS = 60000,              /* much more than CHILD_CPU_S, for a busy machine */
	ANSWER_MORE_BYTES = 128 << 10, /* room for the line and an EXIF segment */
};

static const char smaller_copy[] = "Make a smaller copy of the image with bash and read that.";

bool image_is_shown(const char *mime_type)
{
	static const char *const types[] = {"image/jpeg", "image/png", "image/gif", "image/webp"};

	for (size_t i = 0; mime_type && i < array_size(types); i++)
		if (strcmp(mime_type, types[i]) == 0)
			return true;
	return false;
}

static int put(struct tool_call *call, const char *type, struct buffer *bytes)
{
	call->image.mime_type = strdup(type);
	if (!call->image.mime_type)
		return -ENOMEM;
	call->image.bytes = *bytes;
	*bytes = (struct buffer){0};
	return 0;
}

static int show(struct tool_call *call, const char *name, const char *type, struct buffer *bytes,
	const char *facts)
{
	int r = put(call, type, bytes);

	if (r < 0)
		return tool_fail_errno(call, r, "read", name);
	return tool_text(call, "[Image %s, %s]", name, facts);
}

#ifdef HAVE_IMAGES

struct answer {
	int width, height;             /* of the whole picture */
	int shown_width, shown_height; /* after scaling; 0: not changed */
	char type[32];
};

/* Runs the child.  Its answer is a line of text, then the picture if it was changed. */
static int ask_child(struct tool_call *call, const struct buffer *bytes, struct answer *answer,
	struct buffer *output)
{
	/* /proc/self/exe is this program even if its file was replaced. */
	static const char *const argv[] = {"/proc/self/exe", "image", NULL};
	const struct limited_child child = {
		.argv = argv,
		.content = bytes->data,
		.size = bytes->size,
		.memory_bytes = CHILD_MEMORY_BYTES,
		.cpu_s = CHILD_CPU_S,
		.timeout_ms = CHILD_MS,
		.output_max_bytes = IMAGE_MAX_BYTES + ANSWER_MORE_BYTES,
		.output_only = true,
		.cancel_fd = call->cancel_fd,
	};
	int r = limited_child_run(&child, output);
	uint8_t *end = output->size ? memchr(output->data, '\n', output->size) : NULL;

	if (r < 0 || !end)
		return r ? r : -ENOENT;
	*end = '\0';
	if (sscanf((const char *)output->data, "%d %d %d %d %31s", &answer->width, &answer->height,
		    &answer->shown_width, &answer->shown_height, answer->type) != 5)
		return -ENOENT;
	buffer_consume(output, (size_t)(end - output->data) + 1);
	return r;
}

static int fail(struct tool_call *call, const char *name, const struct answer *answer, int r)
{
	if (r == -ECANCELED || r == -ENOMEM)
		return tool_fail_errno(call, r, "read", name);
	if (r == EFBIG && answer->width)
		return tool_fail(call, TOOL_TOO_LARGE, smaller_copy,
			"The image \"%s\" has %d x %d pixels, more than can be scaled here "
			"(%d million).",
			name, answer->width, answer->height, IMAGE_PIXELS_MAX / 1000000);
	if (r == -ETIMEDOUT || r == -ENOENT || r == ENOMEM)
		return tool_fail(call, TOOL_TOO_LARGE, smaller_copy,
			"Decoding the image \"%s\" takes too much time or memory.", name);
	return tool_fail(call, TOOL_BINARY_FILE,
		"Look at the bytes with encoding \"base64\", or repair it with bash.",
		"The image \"%s\" is damaged: it cannot be decoded.", name);
}

int image_show(
	struct tool_call *call, const char *name, const char *mime_type, struct buffer *bytes)
{
	struct buffer output cleanup_buffer = {0};
	struct answer answer = {0};
	char facts[200], sizes[2][32];
	int r;

	text_size(bytes->size, sizes[0]);
	if (bytes->size > IMAGE_INPUT_MAX_BYTES)
		return tool_fail(call, TOOL_TOO_LARGE, smaller_copy,
			"The image \"%s\" has %s, more than the limit of %d MB.", name, sizes[0],
			IMAGE_INPUT_MAX_BYTES >> 20);
	r = ask_child(call, bytes, &answer, &output);
	if (r != 0)
		return fail(call, name, &answer, r);
	cJSON_AddNumberToObject(call->data, "width", answer.width);
	cJSON_AddNumberToObject(call->data, "height", answer.height);
	if (!answer.shown_width) {
		snprintf(facts, sizeof(facts), "%s, %s, %d x %d", mime_type, sizes[0], answer.width,
			answer.height);
		return show(call, name, mime_type, bytes, facts);
	}
	cJSON_AddNumberToObject(call->data, "shown_width", answer.shown_width);
	cJSON_AddNumberToObject(call->data, "shown_height", answer.shown_height);
	snprintf(facts, sizeof(facts), "%s, %s, %d x %d; shown as %d x %d, %s, %s", mime_type,
		sizes[0], answer.width, answer.height, answer.shown_width, answer.shown_height,
		answer.type, text_size(output.size, sizes[1]));
	return show(call, name, answer.type, &output, facts);
}

int image_add(struct tool_call *call, const char *mime_type, struct buffer *bytes)
{
	struct buffer output cleanup_buffer = {0};
	struct answer answer = {0};

	if (!image_is_shown(mime_type) || bytes->size > IMAGE_INPUT_MAX_BYTES ||
		ask_child(call, bytes, &answer, &output) != 0)
		return -EINVAL;
	/* By its content: tools get the type wrong. */
	return put(call, answer.type, answer.shown_width ? &output : bytes);
}

#else

int image_show(
	struct tool_call *call, const char *name, const char *mime_type, struct buffer *bytes)
{
	char facts[200], size[32];

	if (bytes->size > IMAGE_MAX_BYTES)
		return tool_fail(call, TOOL_TOO_LARGE, smaller_copy,
			"The image \"%s\" has %s, and this build of isthmus cannot scale images.",
			name, text_size(bytes->size, size));
	snprintf(facts, sizeof(facts), "%s, %s", mime_type, text_size(bytes->size, size));
	return show(call, name, mime_type, bytes, facts);
}

int image_add(struct tool_call *call, const char *mime_type, struct buffer *bytes)
{
	return image_is_shown(mime_type) && bytes->size <= IMAGE_MAX_BYTES
		       ? put(call, mime_type, bytes)
		       : -EINVAL;
}

#endif
