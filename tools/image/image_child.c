/* The limited child of tools/image/image.h.
 *
 * Its output is a line with width, height, width and height after scaling (0: not changed) and MIME
 * type, then the changed picture.  Its exit code is 0, EFBIG (after that line: too many pixels), or
 * another errno. */
#include <errno.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <webp/encode.h>

#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "tools/base/powers.h"
#include "tools/image/image.h"

enum { GOOD_QUALITY = 85, POOR_QUALITY = 50 };

static const char *const types[] = {
	[IMAGE_PNG] = "image/png",
	[IMAGE_JPEG] = "image/jpeg",
	[IMAGE_WEBP] = "image/webp",
	[IMAGE_GIF] = "image/gif",
};

/* ---- Scaling ----------------------------------------------------------------------------- */

/* The size with the longer side reduced to IMAGE_SIDE_MAX, if it is longer. */
static void fit(const struct image_head *head, int *ret_width, int *ret_height)
{
	int longer = head->width > head->height ? head->width : head->height;
	int64_t side = longer < IMAGE_SIDE_MAX ? longer : IMAGE_SIDE_MAX;

	*ret_width = (int)((head->width * side + longer / 2) / longer);
	*ret_height = (int)((head->height * side + longer / 2) / longer);
	*ret_width += *ret_width == 0;
	*ret_height += *ret_height == 0;
}

/* The WebPPicture borrows the pixels; scaling gives it pixels of its own. */
static int scale(struct image_pixels *pixels, int width, int height, WebPPicture *picture)
{
	if (!WebPPictureInit(picture))
		return -ENOMEM;
	picture->use_argb = 1;
	picture->width = pixels->width;
	picture->height = pixels->height;
	picture->argb = pixels->argb;
	picture->argb_stride = pixels->width;
	if (pixels->width == width && pixels->height == height)
		return 0;
	return WebPPictureRescale(picture, width, height) ? 0 : -ENOMEM;
}

/* ---- Writing ------------------------------------------------------------------------------- */

struct encoded {
	enum image_kind kind;
	uint8_t *bytes;
	size_t size;
};

static int encode_png(const WebPPicture *picture, struct encoded *out)
{
	png_image image = {
		.version = PNG_IMAGE_VERSION,
		.width = (png_uint_32)picture->width,
		.height = (png_uint_32)picture->height,
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		.format = PNG_FORMAT_BGRA,
#else
		.format = PNG_FORMAT_ARGB,
#endif
	};
	png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);

	out->kind = IMAGE_PNG;
	out->bytes = malloc(size);
	if (!out->bytes)
		return -ENOMEM;
	if (!png_image_write_to_memory(
		    &image, out->bytes, &size, 0, picture->argb, picture->argb_stride * 4, NULL))
		return -ENOMEM;
	out->size = size;
	return 0;
}

static int encode_jpeg(const WebPPicture *picture, int quality, struct encoded *out)
{
	tjhandle encoder = tjInitCompress();
	unsigned long size = 0;
	int r;

	if (!encoder)
		return -ENOMEM;
	out->kind = IMAGE_JPEG;
	r = tjCompress2(encoder, (uint8_t *)picture->argb, picture->width, picture->argb_stride * 4,
		picture->height,
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		TJPF_BGRX,
#else
		TJPF_XRGB,
#endif
		&out->bytes, &size, TJSAMP_420, quality, 0);
	tjDestroy(encoder);
	out->size = size;
	return r == 0 ? 0 : -ENOMEM;
}

static int encode_webp(WebPPicture *picture, int quality, struct encoded *out)
{
	WebPMemoryWriter writer;
	WebPConfig config;

	if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, (float)quality))
		return -EINVAL;
	config.method = 2;
	WebPMemoryWriterInit(&writer);
	picture->writer = WebPMemoryWrite;
	picture->custom_ptr = &writer;
	if (!WebPEncode(&config, picture))
		return -ENOMEM;
	*out = (struct encoded){IMAGE_WEBP, writer.mem, writer.size};
	return 0;
}

/* Encodes in the same format, or in a smaller one.  Frees nothing, as the child ends soon. */
static int encode(enum image_kind kind, WebPPicture *picture, struct encoded *out)
{
	int r;

	if (kind == IMAGE_JPEG)
		r = encode_jpeg(picture, GOOD_QUALITY, out);
	else if (kind == IMAGE_WEBP)
		r = encode_webp(picture, GOOD_QUALITY, out);
	else
		r = encode_png(picture, out);
	if (r == 0 && out->size > IMAGE_MAX_BYTES)
		r = encode_webp(picture, GOOD_QUALITY, out);
	if (r == 0 && out->size > IMAGE_MAX_BYTES)
		r = encode_webp(picture, POOR_QUALITY, out);
	return r == 0 && out->size > IMAGE_MAX_BYTES ? -ENOMEM : r;
}

/* Finds the EXIF segment of a JPEG, which has its orientation and must come first in the new file.
 * Returns its size; 0: there is none. */
static size_t find_exif(const uint8_t *data, size_t size, const uint8_t **ret_segment)
{
	size_t at = 2;

	while (at + 10 < size && data[at] == 0xff && data[at + 1] != 0xda) {
		size_t length = 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);

		if (data[at + 1] == 0xe1 && memcmp(data + at + 4, "Exif\0", 6) == 0 &&
			at + length <= size) {
			*ret_segment = data + at;
			return length;
		}
		at += length;
	}
	return 0;
}

/* ---- The answer ---------------------------------------------------------------------------- */

static int say(const struct image_head *head, int width, int height, enum image_kind kind)
{
	char line[128];
	int length = snprintf(line, sizeof(line), "%d %d %d %d %s\n", head->width, head->height,
		width, height, types[kind]);

	return write_all(STDOUT_FILENO, line, (size_t)length);
}

static int answer(const struct image_head *head, const WebPPicture *picture,
	const struct encoded *out, const uint8_t *data, size_t size)
{
	const uint8_t *exif = NULL;
	size_t exif_size = head->kind == IMAGE_JPEG && out->kind == IMAGE_JPEG
				   ? find_exif(data, size, &exif)
				   : 0;
	int r = say(head, picture->width, picture->height, out->kind);

	if (r == 0 && exif_size)
		r = write_all(STDOUT_FILENO, out->bytes, 2);
	if (r == 0 && exif_size)
		r = write_all(STDOUT_FILENO, exif, exif_size);
	if (r < 0)
		return r;
	return exif_size ? write_all(STDOUT_FILENO, out->bytes + 2, out->size - 2)
			 : write_all(STDOUT_FILENO, out->bytes, out->size);
}

/* It stays as it is.  Who takes it ends the conversation for one that is broken.  Not of JPEG,
 * which is shown as far as it goes, and has colours that are not decoded here. */
static int say_as_is(const struct image_head *head, const uint8_t *data, size_t size)
{
	struct image_pixels pixels = {0};
	int r = 0;

	if (head->kind != IMAGE_JPEG)
		r = image_decode(head, data, size, head->width, head->height, &pixels);
	return r < 0 ? r : say(head, 0, 0, head->kind);
}

static int convert(const uint8_t *data, size_t size)
{
	struct image_pixels pixels = {0};
	struct encoded out = {0};
	struct image_head head;
	WebPPicture picture;
	int width, height;
	int r = image_read_head(data, size, &head);

	if (r < 0)
		return r;
	fit(&head, &width, &height);
	if (width == head.width && height == head.height && size <= IMAGE_MAX_BYTES)
		return say_as_is(&head, data, size);
	if ((int64_t)head.width * head.height > IMAGE_PIXELS_MAX) {
		r = say(&head, 0, 0, head.kind);
		return r < 0 ? r : -EFBIG;
	}
	r = image_decode(&head, data, size, width, height, &pixels);
	if (r == 0)
		r = scale(&pixels, width, height, &picture);
	if (r == 0)
		r = encode(head.kind, &picture, &out);
	return r < 0 ? r : answer(&head, &picture, &out, data, size);
}

int image_command(int argc, char **argv)
{
	struct stat status;
	void *data;

	(void)argv;
	if (argc != 1 || fstat(STDIN_FILENO, &status) < 0 || status.st_size == 0)
		return EINVAL;
	data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0);
	if (data == MAP_FAILED)
		return errno;
	give_up_powers();
	_exit(-convert(data, (size_t)status.st_size));
}
