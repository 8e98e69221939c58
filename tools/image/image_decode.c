/* Decodes pictures in the limited child of tools/image/image.h. */
#include <errno.h>
#include <gif_lib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "ops/support/cleanup.h"
#include "tools/image/image.h"

/* An ARGB number is BGRA in memory on little-endian machines. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { PNG_PIXELS = PNG_FORMAT_BGRA, JPEG_PIXELS = TJPF_BGRA, WEBP_PIXELS = MODE_BGRA };
#else
enum { PNG_PIXELS = PNG_FORMAT_ARGB, JPEG_PIXELS = TJPF_ARGB, WEBP_PIXELS = MODE_ARGB };
#endif

static int allocate(int width, int height, struct image_pixels *pixels)
{
	if (width <= 0 || height <= 0 || (int64_t)width * height > IMAGE_PIXELS_MAX)
		return -EINVAL;
	*pixels = (struct image_pixels){
		malloc((size_t)width * (size_t)height * sizeof(*pixels->argb)), width, height};
	return pixels->argb ? 0 : -ENOMEM;
}

/* ---- PNG ------------------------------------------------------------------------------- */

static int decode_png(const uint8_t *data, size_t size, struct image_pixels *pixels)
{
	png_image image = {.version = PNG_IMAGE_VERSION};
	int r = -EINVAL;

	if (png_image_begin_read_from_memory(&image, data, size)) {
		image.format = PNG_PIXELS;
		r = allocate((int)image.width, (int)image.height, pixels);
	}
	if (r == 0 && !png_image_finish_read(&image, NULL, pixels->argb, 0, NULL))
		r = -EINVAL;
	png_image_free(&image);
	return r;
}

/* ---- JPEG ------------------------------------------------------------------------------ */

/* Converts CMYK to RGB; Adobe's programs store it inverted. */
static void mix_cmyk(struct image_pixels *pixels)
{
	for (size_t i = 0; i < (size_t)pixels->width * (size_t)pixels->height; i++) {
		uint8_t ink[4];

		memcpy(ink, &pixels->argb[i], sizeof(ink));
		pixels->argb[i] = 0xff000000u | (uint32_t)(ink[0] * ink[3] / 255) << 16 |
				  (uint32_t)(ink[1] * ink[3] / 255) << 8 |
				  (uint32_t)(ink[2] * ink[3] / 255);
	}
}

/* libjpeg scales by eighths while it decodes: the smallest factor whose result is large enough. */
static tjscalingfactor choose_scale(int from, int to, int other_from, int other_to)
{
	tjscalingfactor best = {1, 1};
	int count;
	const tjscalingfactor *factors = tjGetScalingFactors(&count);

	for (int i = 0; factors && i < count; i++)
		if (factors[i].num * best.denom < best.num * factors[i].denom &&
			TJSCALED(from, factors[i]) >= to &&
			TJSCALED(other_from, factors[i]) >= other_to)
			best = factors[i];
	return best;
}

static int decode_jpeg(const struct image_head *head, const uint8_t *data, size_t size, int width,
	int height, struct image_pixels *pixels)
{
	tjhandle decoder = tjInitDecompress();
	int w, h, sampling, colors, r;
	tjscalingfactor scale;

	if (!decoder)
		return -ENOMEM;
	r = tjDecompressHeader3(decoder, data, size, &w, &h, &sampling, &colors) == 0 ? 0 : -EINVAL;
	scale = choose_scale(head->width, width, head->height, height);
	if (r == 0)
		r = allocate(TJSCALED(w, scale), TJSCALED(h, scale), pixels);
	/* Ignore warnings: most of the picture was decoded. */
	if (r == 0 &&
		tjDecompress2(decoder, data, size, (uint8_t *)pixels->argb, pixels->width, 0,
			pixels->height,
			colors == TJCS_CMYK || colors == TJCS_YCCK ? TJPF_CMYK : JPEG_PIXELS,
			0) != 0 &&
		tjGetErrorCode(decoder) == TJERR_FATAL)
		r = -EINVAL;
	if (r == 0 && (colors == TJCS_CMYK || colors == TJCS_YCCK))
		mix_cmyk(pixels);
	tjDestroy(decoder);
	return r;
}

/* ---- WebP ------------------------------------------------------------------------------ */

static int decode_webp(
	const uint8_t *data, size_t size, int width, int height, struct image_pixels *pixels)
{
	const WebPData whole = {data, size};
	WebPDemuxer *demuxer = WebPDemux(&whole);
	WebPIterator first = {0};
	WebPDecoderConfig config;
	int r = -EINVAL;

	/* Of an animation, decode the first frame. */
	if (demuxer && WebPDemuxGetFrame(demuxer, 1, &first) && WebPInitDecoderConfig(&config)) {
		config.options.use_scaling = first.width > width || first.height > height;
		config.options.scaled_width = width;
		config.options.scaled_height = height;
		r = config.options.use_scaling ? allocate(width, height, pixels)
					       : allocate(first.width, first.height, pixels);
		config.output.colorspace = (WEBP_CSP_MODE)WEBP_PIXELS;
		config.output.is_external_memory = 1;
		config.output.u.RGBA = (WebPRGBABuffer){(uint8_t *)pixels->argb, pixels->width * 4,
			(size_t)pixels->width * (size_t)pixels->height * 4};
		if (r == 0 && WebPDecode(first.fragment.bytes, first.fragment.size, &config) !=
				      VP8_STATUS_OK)
			r = -EINVAL;
		WebPFreeDecBuffer(&config.output);
	}
	WebPDemuxReleaseIterator(&first);
	WebPDemuxDelete(demuxer);
	return r;
}

/* ---- GIF ------------------------------------------------------------------------------- */

struct gif_input {
	const uint8_t *data;
	size_t left;
};

static int read_gif(GifFileType *gif, GifByteType *into, int size)
{
	struct gif_input *input = gif->UserData;
	size_t part = (size_t)size < input->left ? (size_t)size : input->left;

	memcpy(into, input->data, part);
	input->data += part;
	input->left -= part;
	return (int)part;
}

/* Skips to the first picture.  -1: there is none; `*ret_transparent`: its transparent colour. */
static int find_gif_picture(GifFileType *gif, int *ret_transparent)
{
	GifRecordType type;
	GifByteType *block;
	int code;

	*ret_transparent = -1;
	for (;;) {
		if (DGifGetRecordType(gif, &type) == GIF_ERROR || type == TERMINATE_RECORD_TYPE)
			return -EINVAL;
		if (type == IMAGE_DESC_RECORD_TYPE)
			return DGifGetImageDesc(gif) == GIF_ERROR ? -EINVAL : 0;
		if (type != EXTENSION_RECORD_TYPE)
			continue;
		if (DGifGetExtension(gif, &code, &block) == GIF_ERROR)
			return -EINVAL;
		while (block) {
			if (code == GRAPHICS_EXT_FUNC_CODE && block[0] == 4 && block[1] & 1)
				*ret_transparent = block[4];
			if (DGifGetExtensionNext(gif, &block) == GIF_ERROR)
				return -EINVAL;
		}
	}
}

static int read_gif_line(
	GifFileType *gif, const ColorMapObject *colors, int transparent, uint32_t *argb)
{
	GifPixelType line[65536];

	if (DGifGetLine(gif, line, gif->Image.Width) == GIF_ERROR)
		return -EINVAL;
	for (int x = 0; x < gif->Image.Width; x++) {
		const GifColorType *color =
			line[x] < colors->ColorCount ? &colors->Colors[line[x]] : NULL;

		argb[x] = !color || line[x] == transparent
				  ? 0
				  : 0xff000000u | (uint32_t)color->Red << 16 |
					    (uint32_t)color->Green << 8 | color->Blue;
	}
	return 0;
}

static int decode_gif(const uint8_t *data, size_t size, struct image_pixels *pixels)
{
	static const int starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
	struct gif_input input = {data, size};
	GifFileType *gif = DGifOpen(&input, read_gif, NULL);
	const ColorMapObject *colors;
	int transparent, r;

	if (!gif)
		return -EINVAL;
	r = find_gif_picture(gif, &transparent);
	colors = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
	if (r == 0)
		r = colors ? allocate(gif->Image.Width, gif->Image.Height, pixels) : -EINVAL;
	for (int pass = 0; r == 0 && pass < (gif->Image.Interlace ? 4 : 1); pass++)
		for (int y = gif->Image.Interlace ? starts[pass] : 0; r == 0 && y < pixels->height;
			y += gif->Image.Interlace ? steps[pass] : 1)
			r = read_gif_line(gif, colors, transparent,
				pixels->argb + (size_t)y * (size_t)pixels->width);
	DGifCloseFile(gif, NULL);
	return r;
}

/* ---- Any ------------------------------------------------------------------------------- */

static unsigned big_endian(const uint8_t *at)
{
	return (unsigned)at[0] << 24 | (unsigned)at[1] << 16 | (unsigned)at[2] << 8 | at[3];
}

static int jpeg_head(const uint8_t *data, size_t size, struct image_head *head)
{
	tjhandle decoder = tjInitDecompress();
	int sampling, colors, r;

	if (!decoder)
		return -ENOMEM;
	r = tjDecompressHeader3(
		decoder, data, size, &head->width, &head->height, &sampling, &colors);
	tjDestroy(decoder);
	return r == 0 ? 0 : -EINVAL;
}

int image_read_head(const uint8_t *data, size_t size, struct image_head *ret_head)
{
	WebPBitstreamFeatures features;
	int r = 0;

	*ret_head = (struct image_head){0};
	if (size > 24 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) {
		unsigned width = big_endian(data + 16), height = big_endian(data + 20);

		*ret_head = (struct image_head){IMAGE_PNG, (int)width, (int)height};
	} else if (size > 3 && memcmp(data, "\xff\xd8\xff", 3) == 0) {
		ret_head->kind = IMAGE_JPEG;
		r = jpeg_head(data, size, ret_head);
	} else if (size > 10 && memcmp(data, "GIF8", 4) == 0) {
		*ret_head = (struct image_head){
			IMAGE_GIF, data[6] | data[7] << 8, data[8] | data[9] << 8};
	} else if (WebPGetFeatures(data, size, &features) == VP8_STATUS_OK) {
		*ret_head = (struct image_head){IMAGE_WEBP, features.width, features.height};
	} else {
		return -EINVAL;
	}
	return r < 0 || ret_head->width <= 0 || ret_head->height <= 0 ? -EINVAL : 0;
}

int image_decode(const struct image_head *head, const uint8_t *data, size_t size, int width,
	int height, struct image_pixels *ret_pixels)
{
	struct image_pixels pixels = {0};
	int r = -EINVAL;

	switch (head->kind) {
	case IMAGE_PNG:
		r = decode_png(data, size, &pixels);
		break;
	case IMAGE_JPEG:
		r = decode_jpeg(head, data, size, width, height, &pixels);
		break;
	case IMAGE_WEBP:
		r = decode_webp(data, size, width, height, &pixels);
		break;
	case IMAGE_GIF:
		r = decode_gif(data, size, &pixels);
		break;
	}
	if (r < 0) {
		free(pixels.argb);
		return r;
	}
	*ret_pixels = pixels;
	return 0;
}
