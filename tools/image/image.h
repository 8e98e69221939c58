/*
 * tools/image/image.h - converts pictures to a form that models accept: no side longer than
 * IMAGE_SIDE_MAX, and at most IMAGE_MAX_BYTES (4.5 MB of base64).
 *
 * Pictures are untrusted, so libpng, libjpeg-turbo, libwebp and giflib decode them in a limited
 * child: this program, started as "isthmus-tools image".  A build without these libraries passes on
 * pictures that are small enough and refuses others.
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

/* Whether models accept pictures of this type. */
bool image_is_shown(const char *mime_type);

/* Puts the picture into the result, scaled down if necessary, and describes it in `text` and
 * `data`.  Takes over `bytes`.  `name`: the path or URL.  0, or -1 (recorded). */
int image_show(
	struct tool_call *call, const char *name, const char *mime_type, struct buffer *bytes);

/* The same for one beside other output: says nothing.  0; -EINVAL: models would not take it,
 * `bytes` are freed by the caller; -ENOMEM. */
int image_add(struct tool_call *call, const char *mime_type, struct buffer *bytes);

/* The limited child's main(); it does not return once it has looked at a picture. */
int image_command(int argc, char **argv);

/* ---- In the child --------------------------------------------------------------------- */

/* What the header of a picture says. */
struct image_head {
	enum image_kind { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF } kind;
	int width, height;
};

/* Rows of `width` pixels, 0xAARRGGBB each, without padding. */
struct image_pixels {
	uint32_t *argb;
	int width, height;
};

/* 0; -EINVAL: not one of the four formats, or damaged. */
int image_read_head(const uint8_t *data, size_t size, struct image_head *ret_head);

/* Decodes the first picture of the file, possibly scaled down, but not below `width` x `height`.
 * The caller frees `argb`.  0; -EINVAL: damaged; -ENOMEM. */
int image_decode(const struct image_head *head, const uint8_t *data, size_t size, int width,
	int height, struct image_pixels *ret_pixels);
