#include "backends/remote/wire/compress.h"

#include <errno.h>
#include <stdlib.h>

enum { SAMPLES = 2048 };

/* Of random bytes one pair in 256 is the same, of text one in 20 or so. */
bool compress_is_worth(const uint8_t *data, size_t size)
{
	size_t step = size / SAMPLES + 1, count = 0;
	unsigned seen[256] = {0};
	uint64_t pairs = 0;

	for (size_t i = 0; i < size; i += step, count++)
		pairs += seen[data[i]]++;
	return pairs * 256 > (uint64_t)count * count;
}

#ifdef ISTHMUS_HAS_ZLIB
#include <zlib.h>

enum {
	LEVEL = 3,
	WINDOW_BITS = -15, /* 32 KiB; without header and checksum */
	MEMORY_LEVEL = 8,
	FLUSH_BYTES = 16, /* what a flush adds, at most */
};

struct compressor {
	z_stream stream;
};

struct decompressor {
	z_stream stream;
};

bool compress_is_built(void)
{
	return true;
}

int compressor_new(struct compressor **ret_compressor)
{
	struct compressor *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	if (deflateInit2(&c->stream, LEVEL, Z_DEFLATED, WINDOW_BITS, MEMORY_LEVEL,
		    Z_DEFAULT_STRATEGY) != Z_OK) {
		free(c);
		return -ENOMEM;
	}
	*ret_compressor = c;
	return 0;
}

void compressor_free(struct compressor *c)
{
	if (c)
		deflateEnd(&c->stream);
	free(c);
}

int compressor_run(struct compressor *c, const uint8_t *data, size_t size, struct buffer *out)
{
	size_t room = deflateBound(&c->stream, size) + FLUSH_BYTES;
	int r = buffer_reserve(out, room);

	if (r < 0)
		return r;
	c->stream.next_in = (uint8_t *)(uintptr_t)data;
	c->stream.avail_in = (uInt)size;
	c->stream.next_out = out->data + out->size;
	c->stream.avail_out = (uInt)room;
	/* Room that is left: nothing waits inside. */
	if (deflate(&c->stream, Z_SYNC_FLUSH) != Z_OK || c->stream.avail_in || !c->stream.avail_out)
		return -EIO;
	out->size += room - c->stream.avail_out;
	return 0;
}

int decompressor_new(struct decompressor **ret_decompressor)
{
	struct decompressor *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	if (inflateInit2(&d->stream, WINDOW_BITS) != Z_OK) {
		free(d);
		return -ENOMEM;
	}
	*ret_decompressor = d;
	return 0;
}

void decompressor_free(struct decompressor *d)
{
	if (d)
		inflateEnd(&d->stream);
	free(d);
}

/* One byte more than there may be, which shows where there is more. */
int decompressor_run(
	struct decompressor *d, const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
	int r;

	d->stream.next_in = (uint8_t *)(uintptr_t)data;
	d->stream.avail_in = (uInt)size;
	d->stream.next_out = out;
	d->stream.avail_out = (uInt)out_size + 1;
	r = inflate(&d->stream, Z_SYNC_FLUSH);
	if (r == Z_MEM_ERROR)
		return -ENOMEM;
	return r == Z_OK && !d->stream.avail_in && d->stream.avail_out == 1 ? 0 : -EPROTO;
}

#else

bool compress_is_built(void)
{
	return false;
}

int compressor_new(struct compressor **ret_compressor)
{
	(void)ret_compressor;
	return -EOPNOTSUPP;
}

void compressor_free(struct compressor *c)
{
	(void)c;
}

int compressor_run(struct compressor *c, const uint8_t *data, size_t size, struct buffer *out)
{
	(void)c, (void)data, (void)size, (void)out;
	return -EOPNOTSUPP;
}

int decompressor_new(struct decompressor **ret_decompressor)
{
	(void)ret_decompressor;
	return -EOPNOTSUPP;
}

void decompressor_free(struct decompressor *d)
{
	(void)d;
}

int decompressor_run(
	struct decompressor *d, const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
	(void)d, (void)data, (void)size, (void)out, (void)out_size;
	return -EOPNOTSUPP;
}
#endif
