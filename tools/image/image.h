/*
 * tools/image/image.h - pictures as models take them: no side longer than IMAGE_SIDE_MAX, and no
 * more bytes than IMAGE_MAX_BYTES, which are 4.5 MB of base64.
 *
 * They come from anywhere, so that libpng, libjpeg-turbo, libwebp and giflib look at them in a
 * limited child, which this program is when started as "isthmus-tools image".  Where it was built
 * without them, pictures that are small enough in bytes stay as they are.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "tools/base/tool.h"

enum {
	IMAGE_SIDE_MAX = 1568,
	IMAGE_MAX_BYTES = 4608 * 1024 / 4 * 3,
	IMAGE_INPUT_MAX_BYTES = 64 << 20,
	IMAGE_PIXELS_MAX = 100 * 1000 * 1000,
};

/* Whether models take pictures of this type. */
bool image_is_shown(const char *mime_type);

/* Makes `bytes` (taken over) of the type the picture of the answer, scaled where it must be, and
 * says so in its text and data.  `name` is the path or URL.  0, or -1: recorded. */
int image_show(
	struct tool_call *call, const char *name, const char *mime_type, struct buffer *bytes);

/* The same for one beside other output: says nothing.  0; -EINVAL: models would not take it,
 * `bytes` are freed by the caller; -ENOMEM. */
int image_add(struct tool_call *call, const char *mime_type, struct buffer *bytes);

/* The limited child's main(); it does not return once it has looked at a picture. */
int image_command(int argc, char **argv);

/* ---- Within the child ----------------------------------------------------------------- */

/* What is known before anything is decoded. */
struct image_head {
	enum image_kind { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF } kind;
	int width, height;
};

/* A picture of rows of `width` pixels, 0xAARRGGBB each, that no padding separates. */
struct image_pixels {
	uint32_t *argb;
	int width, height;
};

/* 0; -EINVAL: it is none of the four, or broken. */
int image_read_head(const uint8_t *data, size_t size, struct image_head *ret_head);

/* The (first) picture, no smaller than `width` x `height` unless it is so itself; -EINVAL: it
 * is broken; -ENOMEM.  The caller frees `argb`. */
int image_decode(const struct image_head *head, const uint8_t *data, size_t size, int width,
	int height, struct image_pixels *ret_pixels);
