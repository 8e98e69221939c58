#define XXH_STATIC_LINKING_ONLY
#include "fs/edge/content_hash.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/read_data.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

enum { READ_AGAIN_MAX_BYTES = 256 << 10 };

struct content_hash {
	pthread_mutex_t lock; /* all below */
	bool was_written;
	bool in_sequence; /* `state` has all that there is */
	uint64_t next;    /* offset of the write that continues it */
	XXH3_state_t state;
};

struct content_hash *content_hash_new(bool is_empty)
{
	struct content_hash *hash =
		aligned_alloc(_Alignof(struct content_hash), sizeof(struct content_hash));

	if (!hash)
		return NULL;
	pthread_mutex_init(&hash->lock, NULL);
	hash->was_written = false;
	hash->in_sequence = is_empty;
	hash->next = 0;
	XXH3_INITSTATE(&hash->state);
	XXH3_128bits_reset(&hash->state);
	return hash;
}

void content_hash_free(struct content_hash *hash)
{
	if (hash)
		pthread_mutex_destroy(&hash->lock);
	free(hash);
}

void content_hash_write(struct content_hash *hash, const void *data, size_t size, off_t offset)
{
	if (!hash)
		return;
	pthread_mutex_lock(&hash->lock);
	hash->was_written = true;
	hash->in_sequence = hash->in_sequence && (uint64_t)offset == hash->next;
	if (hash->in_sequence)
		XXH3_128bits_update(&hash->state, data, size);
	hash->next = (uint64_t)offset + size;
	pthread_mutex_unlock(&hash->lock);
}

void content_hash_disturb(struct content_hash *hash)
{
	if (!hash)
		return;
	pthread_mutex_lock(&hash->lock);
	hash->was_written = true;
	hash->in_sequence = false;
	pthread_mutex_unlock(&hash->lock);
}

static bool read_again(
	struct op_context *ctx, struct open_file *file, uint64_t size, XXH128_hash_t *ret_hash)
{
	cleanup_free char *data = malloc(size + 1);
	struct open_file *reader;
	struct attributes attributes;
	bool is_whole;
	char more;

	if (!data || workspace_open_file(ctx, file->workspace, &OBJECT_OF(file),
			     O_RDONLY | O_NOATIME, &reader, &attributes) < 0)
		return false;
	is_whole = read_data(ctx, reader, data, size) == (ssize_t)size &&
		   workspace_read(ctx, reader, &more, 1, (off_t)size) == 0;
	workspace_close(ctx, reader);
	if (!is_whole)
		return false;
	*ret_hash = XXH3_128bits(data, size);
	return true;
}

bool content_hash_end(struct content_hash *hash, struct op_context *ctx, struct open_file *file,
	bool may_read, uint8_t ret_digest[CONTENT_HASH_BYTES], struct attributes *ret_attributes)
{
	XXH128_canonical_t canonical;
	XXH128_hash_t digest;
	bool known;

	if (!hash || !hash->was_written || (!may_read && !hash->in_sequence))
		return false;
	ret_attributes->size_bytes = hash->next;
	if (may_read &&
		workspace_getattr(ctx, file->workspace, &OBJECT_OF(file), ret_attributes) < 0)
		return false;
	known = hash->in_sequence && ret_attributes->size_bytes == hash->next;
	if (known)
		digest = XXH3_128bits_digest(&hash->state);
	else if (ret_attributes->size_bytes <= READ_AGAIN_MAX_BYTES)
		known = read_again(ctx, file, ret_attributes->size_bytes, &digest);
	if (!known)
		return false;
	XXH128_canonicalFromHash(&canonical, digest);
	memcpy(ret_digest, canonical.digest, CONTENT_HASH_BYTES);
	return true;
}
