/*
 * fs/edge/content_hash.h - the hash of what a handle has written, for the mount log.
 *
 * A file that is written from its start to its end is hashed on the way.  Any other is
 * read once more when it is closed, if it is small and near.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ops/workspace_values.h"

struct content_hash;

/* `is_empty`: the file has no content yet.  NULL when there is no memory: no hash then. */
struct content_hash *content_hash_new(bool is_empty);
void content_hash_free(struct content_hash *hash); /* NULL is fine */

/* The handle has written this.  `hash` NULL is fine. */
void content_hash_write(struct content_hash *hash, const void *data, size_t size, off_t offset);

/* The content has been changed in another way than by content_hash_write(). */
void content_hash_disturb(struct content_hash *hash);

/* xxh3-128 (canonical) of the file's content after the last write.  False: nothing was
 * written, or it would take too long.  `may_read`: reading and looking cost no round trip;
 * without, the hash is of what was written through this handle, and
 * `ret_attributes`, those from before the content was read, are not set. */
bool content_hash_end(struct content_hash *hash, struct op_context *ctx, struct open_file *file,
	bool may_read, uint8_t ret_digest[CONTENT_HASH_BYTES], struct attributes *ret_attributes);
