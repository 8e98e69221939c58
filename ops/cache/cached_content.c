#define XXH_INLINE_ALL
#include "ops/cache/cached_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "ops/cache/content_store.h"

enum {
	IDLE_MS = 300,           /* write to the store when no small file was opened for so long */
	SHRUNK_BYTES = 16 << 20, /* of content that stays in memory when the mount is idle */
	GIVE_WAY_NICE = 10,
};

struct content *content_new_blank(size_t size)
{
	struct content *content = malloc(sizeof(*content) + size);

	if (content)
		*content = (struct content){.refs = 1, .size = size};
	return content;
}

struct content *content_new(const void *data, size_t size)
{
	struct content *content = content_new_blank(size);

	if (content && size)
		memcpy(content->data, data, size);
	return content;
}

bool content_may_be_kept(const struct cached *c, uint64_t size)
{
	return size <= SMALL_FILE_MAX_BYTES ||
	       (size <= LARGE_FILE_MAX_BYTES && size <= c->memory_bytes_max / 16);
}

struct content *content_ref(struct content *content)
{
	content->refs++;
	return content;
}

void content_unref(struct content *content)
{
	if (content && --content->refs == 0)
		free(content);
}

void content_guessed(struct cached *c, struct content *content)
{
	TAILQ_REMOVE(&c->contents, content, used);
	TAILQ_INSERT_HEAD(&c->guesses, content, used);
	content->is_guess = true;
	c->guessed_bytes += content->size;
}

void content_opened(struct cached *c, struct content *content)
{
	if (!content->is_guess)
		return;
	TAILQ_REMOVE(&c->guesses, content, used);
	TAILQ_INSERT_HEAD(&c->contents, content, used);
	content->is_guess = false;
	c->guessed_bytes -= content->size;
}

/* ---- The memory bound -------------------------------------------------------------- */

void content_evict(struct cached *c, struct extra *x)
{
	struct content *content = x->content;

	if (!content)
		return;
	content_opened(c, content);
	TAILQ_REMOVE(&c->contents, content, used);
	c->content_bytes -= sizeof(*content) + content->size;
	c->waiting_bytes += content->waits ? content->size : 0;
	x->content = NULL;
	content->extra = NULL;
	content_unref(content);
}

void content_detach(struct cached *c, struct extra *x)
{
	content_evict(c, x);
	tree_set_mark(c->tree, &x->id, tree_mark(c->tree, &x->id) & MARK_XATTRS);
}

/* The least recently used content goes first: the kernel has most of it in its pages.  What was
 * fetched ahead goes when it takes more than its half of the memory; the oldest then led nowhere.
 * `newest` stays. */
static struct content *least_useful(struct cached *c, const struct content *newest)
{
	struct content *used = TAILQ_LAST(&c->contents, content_list);

	if (used != newest && c->guessed_bytes <= c->memory_bytes_max / 2)
		return used;
	return TAILQ_LAST(&c->guesses, content_list);
}

static void make_room(struct cached *c, const struct content *newest)
{
	struct content *content;

	while (c->content_bytes + c->waiting_bytes > c->memory_bytes_max &&
		(content = least_useful(c, newest))) {
		struct extra *x = content->extra;

		content_evict(c, x);
		extra_tidy(c, x);
	}
}

static void shrink(struct cached *c, const struct content_list *list)
{
	struct content *content = TAILQ_LAST(list, content_list), *before;
	struct attributes version;

	for (; content && c->content_bytes > SHRUNK_BYTES; content = before) {
		struct extra *x = content->extra;

		before = TAILQ_PREV(content, content_list, used);
		if (!tree_last_attributes(c->tree, &x->id, &version) ||
			!content_is_kept(c, &version))
			continue;
		content_evict(c, x);
		extra_tidy(c, x);
	}
}

void content_shrink(struct cached *c)
{
	shrink(c, &c->guesses);
	shrink(c, &c->contents);
}

bool content_attach(struct cached *c, struct extra *x, struct content *content)
{
	struct attributes known;

	content->at = tree_last_attributes(c->tree, &x->id, &known);
	if (!content->at || known.size_bytes != content->size) {
		content_unref(content);
		extra_tidy(c, x);
		return false;
	}
	content_evict(c, x);
	content->settled = !known.changed_lately;
	x->content = content;
	content->extra = x;
	TAILQ_INSERT_HEAD(&c->contents, content, used);
	c->content_bytes += sizeof(*content) + content->size;
	cached_note_update(c);
	make_room(c, content);
	return true;
}

void content_used(struct cached *c, struct content *content)
{
	content_opened(c, content);
	TAILQ_REMOVE(&c->contents, content, used);
	TAILQ_INSERT_HEAD(&c->contents, content, used);
}

bool bytes_have_hash(const void *data, size_t size, const uint8_t *hash)
{
	XXH128_canonical_t own;

	XXH128_canonicalFromHash(&own, XXH3_128bits(data, size));
	return memcmp(own.digest, hash, HASH_BYTES) == 0;
}

/* ---- The store on disk ---------------------------------------------------------------- */

struct keeping {
	struct cached *cached;
	struct content *content;
	struct attributes version;
};

/* Creating thousands of files costs as much processor time as the search that fetched them, so the
 * store is written afterwards. */
static void wait_for_idleness(struct cached *c)
{
	const struct timespec pause = {.tv_nsec = IDLE_MS * 1000000L / 2};

	pthread_mutex_lock(&c->lock);
	while (!c->stopping && c->keeping_bytes < c->memory_bytes_max / 4 &&
		cached_now_ms() - c->content_opened_ms < IDLE_MS) {
		pthread_mutex_unlock(&c->lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Lowers the priority of the calling thread below that of threads that serve requests. */
static void give_way(void)
{
	setpriority(PRIO_PROCESS, (id_t)gettid(), GIVE_WAY_NICE);
}

static void keep(void *user)
{
	struct keeping *keeping = user;
	struct cached *c = keeping->cached;

	give_way();
	wait_for_idleness(c);
	content_store_put(c->store, &keeping->version, keeping->content->data);
	pthread_mutex_lock(&c->lock);
	c->keeping_bytes -= keeping->content->size;
	c->waiting_bytes -= keeping->content->extra ? 0 : keeping->content->size;
	keeping->content->waits = false;
	content_unref(keeping->content);
	pthread_mutex_unlock(&c->lock);
	free(keeping);
}

void content_keep(struct cached *c, const struct extra *x)
{
	struct keeping *keeping;
	struct attributes version;

	if (!c->store || !x->content || !tree_last_attributes(c->tree, &x->id, &version) ||
		version.changed_lately || x->content->waits ||
		c->keeping_bytes + x->content->size > c->memory_bytes_max / 2 ||
		content_store_has(c->store, &version))
		return;
	keeping = malloc(sizeof(*keeping));
	if (!keeping)
		return;
	*keeping = (struct keeping){c, content_ref(x->content), version};
	if (worker_pool_submit(&c->keepers, keep, keeping)) {
		c->keeping_bytes += keeping->content->size;
		keeping->content->waits = true;
		return;
	}
	content_unref(keeping->content);
	free(keeping);
}

bool content_is_kept(const struct cached *c, const struct attributes *version)
{
	return c->store && content_store_has(c->store, version);
}

struct content *content_load(struct cached *c, const struct attributes *version)
{
	struct content *content = NULL;
	void *data = NULL;

	if (!content_is_kept(c, version))
		return NULL;
	cached_leave(c);
	if (content_store_get(c->store, version, &data) == 0)
		content = content_new(data, version->size_bytes);
	free(data);
	cached_enter(c);
	c->statistics.disk_hits += content != NULL;
	return content;
}

void content_restore(struct cached *c, const struct attributes *version)
{
	uint64_t state = tree_state(c->tree, &version->id);
	struct content *content = content_load(c, version);
	struct extra *x;

	x = content && tree_state(c->tree, &version->id) == state ? extra_make(c, &version->id)
								  : NULL;
	if (!x || x->content || x->writers)
		content_unref(content);
	else
		content_attach(c, x, content);
}
