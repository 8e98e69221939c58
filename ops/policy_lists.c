#include "ops/policy.h"
#include "ops/policy_lists.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

enum { FILE_MAX_BYTES = 1 << 20, READ_BYTES = 4096, KNOWN_MAX = 4096, UNWATCHED_MS = 1000 };

struct known_list {
	void *next;
	struct ignore *above, *chain; /* references: of the parent, and with this directory's */
	int64_t until_ms;             /* 0: until something happens */
	char directory[];
};

static size_t hash(const char *directory)
{
	return XXH3_64bits_withSeed(directory, strlen(directory), hash_seed());
}

static size_t hash_of(const void *entry)
{
	return hash(((const struct known_list *)entry)->directory);
}

static void **link_of(void *entry)
{
	return &((struct known_list *)entry)->next;
}

static struct known_list *find(struct policy_lists *lists, const char *directory)
{
	struct known_list *known = hash_table_bucket(&lists->known, hash(directory));

	while (known && strcmp(known->directory, directory) != 0)
		known = known->next;
	return known;
}

static void drop(struct policy_lists *lists, struct known_list *known)
{
	hash_table_remove(&lists->known, known, hash_of, link_of);
	ignore_unref(known->above);
	ignore_unref(known->chain);
	free(known);
}

static void drop_all(struct policy_lists *lists)
{
	for (size_t i = 0; lists->known.count > 0 && i <= lists->known.mask; i++)
		while (lists->known.buckets[i])
			drop(lists, lists->known.buckets[i]);
}

int policy_lists_init(struct policy_lists *lists, struct workspace *inner)
{
	struct workspace_status status;
	int r = hash_table_init(&lists->known);

	if (r < 0)
		return r;
	workspace_status(inner, &status);
	lists->inner = inner;
	lists->can_watch = status.capabilities & WORKSPACE_CAN_WATCH;
	lists->ignores_case = status.capabilities & WORKSPACE_IGNORES_CASE;
	pthread_mutex_init(&lists->lock, NULL);
	return 0;
}

void policy_lists_done(struct policy_lists *lists)
{
	if (!lists->inner)
		return;
	drop_all(lists);
	hash_table_done(&lists->known);
	pthread_mutex_destroy(&lists->lock);
}

void policy_lists_forget(struct policy_lists *lists, const char *path)
{
	bool is_list = path && strcmp(path_name(path), AGENTSIGNORE) == 0;

	pthread_mutex_lock(&lists->lock);
	lists->changes++;
	/* Those of directories below are built on it. */
	if (!path || is_list || find(lists, path))
		drop_all(lists);
	pthread_mutex_unlock(&lists->lock);
}

struct op_context policy_context(const struct op_context *ctx)
{
	struct op_context own;

	op_context_init(&own);
	own.interrupted = ctx->interrupted;
	own.interrupted_data = ctx->interrupted_data;
	return own;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static int read_whole(
	struct op_context *ctx, struct open_file *file, struct buffer *content, uint64_t size)
{
	if (size > FILE_MAX_BYTES)
		return -EFBIG;
	for (;;) {
		ssize_t got;
		int r = buffer_reserve(content, READ_BYTES);

		if (r < 0)
			return r;
		got = workspace_read(
			ctx, file, content->data + content->size, READ_BYTES, (off_t)content->size);
		if (got <= 0)
			return (int)got;
		content->size += (size_t)got;
		if (content->size > FILE_MAX_BYTES)
			return -EFBIG;
	}
}

/* The file's text; nothing where there is no such regular file. */
static int read_list(struct workspace *inner, struct op_context *ctx, const char *directory,
	struct buffer *content)
{
	cleanup_free char *path = path_join(directory, AGENTSIGNORE);
	struct attributes attributes;
	struct open_file *file;
	int r;

	if (!path)
		return -ENOMEM;
	r = workspace_open_file(ctx, inner, &OBJECT_AT(path), O_RDONLY, &file, &attributes);
	if (r == -EISDIR || r == -ENXIO || r == -ELOOP || path_misses_object(r))
		return 0;
	if (r < 0)
		return r;
	r = read_whole(ctx, file, content, attributes.size_bytes);
	workspace_close(ctx, file);
	return r;
}

/* True when `*chain` was replaced. */
static bool take_known(struct policy_lists *lists, const char *directory, struct ignore **chain,
	uint64_t *ret_changes)
{
	struct known_list *known;
	bool found;

	pthread_mutex_lock(&lists->lock);
	known = find(lists, directory);
	found = known && known->above == *chain &&
		(!known->until_ms || clock_now_ms() < known->until_ms);
	if (found) {
		ignore_unref(*chain);
		*chain = ignore_ref(known->chain);
	} else if (known) {
		drop(lists, known);
	}
	*ret_changes = lists->changes;
	pthread_mutex_unlock(&lists->lock);
	return found;
}

/* Without memory it is read again the next time. */
static void keep(struct policy_lists *lists, const char *directory, struct ignore *above,
	struct ignore *chain, uint64_t changes)
{
	size_t size = strlen(directory) + 1;
	struct known_list *known = malloc(sizeof(*known) + size);

	if (!known)
		return;
	*known = (struct known_list){
		.until_ms = lists->can_watch ? 0 : clock_now_ms() + UNWATCHED_MS,
		.above = ignore_ref(above),
		.chain = ignore_ref(chain)};
	memcpy(known->directory, directory, size);
	pthread_mutex_lock(&lists->lock);
	if (lists->known.count >= KNOWN_MAX)
		drop_all(lists);
	hash_table_insert(&lists->known, known, hash_of, link_of);
	if (changes != lists->changes || find(lists, directory) != known)
		drop(lists, known);
	pthread_mutex_unlock(&lists->lock);
}

int policy_lists_add(struct policy_lists *lists, struct op_context *ctx, const char *directory,
	struct ignore **chain)
{
	cleanup_buffer struct buffer content = {0};
	struct op_context own = policy_context(ctx);
	struct ignore *above;
	bool watched = false;
	uint64_t changes;
	int r;

	if (take_known(lists, directory, chain, &changes))
		return 0;
	if (workspace_watch_directory(&own, lists->inner, &OBJECT_AT(directory), &watched) < 0)
		watched = false;
	r = read_list(lists->inner, &own, directory, &content);
	if (r < 0)
		return r;
	above = ignore_ref(*chain);
	if (lists->ignores_case)
		policy_fold((char *)content.data, content.size);
	if (content.size)
		r = ignore_add(chain, directory, (const char *)content.data, content.size);
	/* A change could be told of by another name. */
	if (r >= 0 && !lists->ignores_case && (watched || !lists->can_watch))
		keep(lists, directory, above, *chain, changes);
	ignore_unref(above);
	return r < 0 ? r : 0;
}
