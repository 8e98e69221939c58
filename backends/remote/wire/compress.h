/*
 * backends/remote/wire/compress.h - what leaves over one connection, compressed as one stream.
 *
 * What was compressed before is the history of what follows, so that many small frames become
 * as small as one large one.  Each connection begins anew.
 * Threads: one at a time for each object.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct compressor;
struct decompressor;

/* Whether this program can: there may be no static library for the machine of a helper.  If not,
 * the functions below are -EOPNOTSUPP. */
bool compress_is_built(void);

/* Takes a sample: what is compressed already, or random, would not become smaller. */
bool compress_is_worth(const uint8_t *data, size_t size);

/* -ENOMEM. */
int compressor_new(struct compressor **ret_compressor);
void compressor_free(struct compressor *compressor); /* NULL is fine */

/* Appends `data` to `out`, so that the peer can have all of it from what is there.  -ENOMEM, -EIO:
 * nothing more can be compressed with it. */
int compressor_run(
	struct compressor *compressor, const uint8_t *data, size_t size, struct buffer *out);

/* -ENOMEM. */
int decompressor_new(struct decompressor **ret_decompressor);
void decompressor_free(struct decompressor *decompressor); /* NULL is fine */

/* Fills `out` with the `out_size` bytes that were compressed into `data`; `out` has room for one
 * byte more.  -EPROTO: they are not so many.  -ENOMEM.  After an error it is of no use. */
int decompressor_run(struct decompressor *decompressor, const uint8_t *data, size_t size,
	uint8_t *out, size_t out_size);
