/* Loads the directories that a caller needs, or waits for a scan that will bring them. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

enum {
	NAMES_WAIT_MAX_MS = 500,  /* most that a caller waits for a scan to bring names */
	NAMES_PAUSE_MAX_MS = 250, /* without names for so long, the scan counts as stalled */
	LOAD_ENTRIES_MAX = 1000,  /* in the directories below, besides the directory's own */
	LOAD_DEPTH = 3,
	LOAD_FILE_MAX_BYTES = 4 << 10, /* a load also brings the content of a few small files */
	LOAD_CONTENT_MAX_BYTES = 64 << 10,
	REFUSED_MS = 5000,
};

uint64_t cached_round_trips_ms(const struct cached *c, unsigned count)
{
	return c->round_trip_us * count / 1000;
}

int cached_wait_to_learn(struct cached *c, struct op_context *ctx, const char *path)
{
	struct waiter waiter = {.name = path_name(path)};

	if (op_interrupted(ctx))
		return -EINTR;
	LIST_INSERT_HEAD(&c->waiters, &waiter, link);
	clock_cond_wait_ms(&c->changed, &c->lock, WAIT_STEP_MS);
	LIST_REMOVE(&waiter, link);
	return 0;
}

void cached_wake(struct cached *c, const char *name)
{
	const struct waiter *waiter;

	LIST_FOREACH(waiter, &c->waiters, link)
		if (strcmp(waiter->name, name) == 0) {
			pthread_cond_broadcast(&c->changed);
			return;
		}
}

static void note_loaded(struct cached *c, const struct object_id *id, bool listing, int r)
{
	struct directory *d = id->inode ? directory_make(c, id) : NULL;

	if (!d)
		return;
	d->listed = d->listed || listing;
	d->refused_ms = r < 0 && r != -EINTR ? cached_now_ms() : 0;
}

int cached_load(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, bool listing)
{
	struct scan_request request = {.flags = SCAN_WATCH | SCAN_CONTENT | SCAN_READ_FIRST,
		.depth_max = LOAD_DEPTH,
		.entries_max = LOAD_ENTRIES_MAX,
		.content_max_bytes = LOAD_FILE_MAX_BYTES,
		.content_total_bytes = LOAD_CONTENT_MAX_BYTES};
	struct load load = {.path = path};
	uint64_t started_ms = cached_now_ms();
	struct object_id told = {0}, unknown = {0};
	int r;

	if (id->inode) {
		if (!cached_is_complete(c, id))
			cached_consider_names(c, id, listing);
		note_loaded(c, id, listing, 0);
	}
	/* find(1) and others call statfs next. */
	if (!*path && !c->stats_ms)
		cached_renew_stats(c);
	LIST_INSERT_HEAD(&c->loads, &load, link);
	r = cached_run_scan(c, ctx, path, &request, NULL, NULL, &told);
	LIST_REMOVE(&load, link);
	cached_count_trip(c, started_ms);
	note_loaded(c, told.inode ? &told : id, listing, r);
	if (told.inode && id->inode && !object_id_equal(&told, id))
		cached_invalidate(c, 0, &unknown, path);
	pthread_cond_broadcast(&c->changed);
	return r;
}

void cached_own_directory(struct cached *c, const struct tree_look *look, const char *path,
	const struct object_id *id)
{
	struct scan_request request = {.flags = SCAN_WATCH, .depth_max = 1};
	struct directory *d = directory_make(c, id);

	if (d)
		d->is_own = true;
	tree_learn_listing(c->tree, look, id);
	if (c->feed)
		cached_start_prefetch(c, path, &request, 0);
}

/* Whether a scan is delivering names steadily, so that it will bring those of this directory sooner
 * than a new request. */
static bool is_flowing(const struct cached *c, const char *path)
{
	uint64_t now_ms = cached_now_ms(),
		 pause_ms = cached_round_trips_ms(c, 2) + NAMES_PAUSE_MAX_MS;
	const struct prefetch *p;

	LIST_FOREACH(p, &c->prefetches, link) {
		uint64_t last_ms = p->flowed_ms ? p->flowed_ms : p->started_ms;

		if (!p->content && p->request.depth_max != 1 && path_is_within(path, p->path) &&
			now_ms - last_ms <= pause_ms)
			return true;
	}
	return false;
}

/* Whether another load or scan will bring the directory, and is worth waiting for. */
static bool is_coming(const struct cached *c, const char *path, uint64_t since_ms)
{
	uint64_t waited_ms = cached_now_ms() - since_ms;
	const struct load *load;

	LIST_FOREACH(load, &c->loads, link)
		if (strcmp(load->path, path) == 0)
			return true;
	if (LIST_EMPTY(&c->prefetches) || waited_ms > NAMES_WAIT_MAX_MS)
		return false;
	if (waited_ms > cached_round_trips_ms(c, 2) + WAIT_STEP_MS)
		return is_flowing(c, path);
	return cached_find_prefetch(c, path, false);
}

/* Whether a load is useless: it was refused, or its listing would be stale at once. */
static bool is_hopeless(struct cached *c, const struct object_id *id)
{
	const struct directory *d = directory_find(c, id);

	if (!d)
		return false;
	if (d->refused_ms && cached_now_ms() - d->refused_ms < REFUSED_MS)
		return true;
	return d->scanned && !cached_is_watched(c, id) && c->ttl_ms == 0;
}

/* Loads the directory of the path's last name, or waits for another load of it.  -EAGAIN: a load is
 * useless. */
static int load_around(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *directory, uint64_t since_ms, bool *loaded)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	int r;

	if (!parent)
		return -ENOMEM;
	if (is_hopeless(c, directory))
		return -EAGAIN;
	if (is_coming(c, parent, since_ms))
		return cached_wait_to_learn(c, ctx, path);
	if (*loaded || cached_is_complete(c, directory))
		return -EAGAIN;
	*loaded = true;
	r = cached_load(c, ctx, parent, directory, false);
	/* If the workspace refuses to list the directory, it may still answer for a name. */
	return r == -EINTR || r == -ENOTCONN || r == -EIO ? r : 0;
}

/* Loads a directory whose attributes are requested, if no load has brought its entries: they are
 * likely to be needed next, and arrive in the same round trip.  -EAGAIN: it cannot be loaded. */
static int load_itself(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, uint64_t since_ms, bool *loaded)
{
	const struct directory *d = directory_find(c, id);
	int r;

	if (tree_type(c->tree, id) != S_IFDIR || !c->feed || *loaded || is_hopeless(c, id) ||
		(d && d->scanned) || cached_is_complete(c, id))
		return -EAGAIN;
	if (is_coming(c, path, since_ms))
		return cached_wait_to_learn(c, ctx, path);
	*loaded = true;
	r = cached_load(c, ctx, path, id, false);
	return r == -EINTR || r == -ENOTCONN || r == -EIO ? r : 0;
}

int cached_resolve(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes)
{
	uint64_t since_ms = cached_now_ms();
	bool loaded = false;
	int r;

	for (;;) {
		r = cached_walk(c, path, ret_found);
		if (r == 0 && ret_attributes &&
			!cached_get_attributes(c, &ret_found->id, ret_attributes)) {
			r = load_itself(c, ctx, path, &ret_found->id, since_ms, &loaded);
			if (r < 0)
				return r;
			continue;
		}
		if (r != -EAGAIN)
			return r;
		if (!ret_found->directory.inode && path_parent_length(path))
			return -EAGAIN;
		r = load_around(c, ctx, path, &ret_found->directory, since_ms, &loaded);
		if (r < 0)
			return r;
	}
}

struct walker {
	struct cached *c;
	struct object_id unknown; /* a subdirectory whose listing is not known; inode 0: none */
};

static bool find_unknown(void *user, const struct tree_entry *entry)
{
	const struct object_id *id = &entry->attributes->id;
	struct walker *walker = user;

	if (S_ISDIR(entry->attributes->mode) && !cached_is_complete(walker->c, id))
		walker->unknown = *id;
	return !walker->unknown.inode;
}

/* The listing is known, but not those of subdirectories: starts to prefetch them, as a walk will
 * need them. */
static void consider_walk(struct cached *c, const struct object_id *id)
{
	struct walker walker = {.c = c};
	struct object_id parent = *id;
	const struct directory *d;

	if (!cached_climb(c, &parent))
		return;
	d = directory_find(c, &parent);
	if (!d || !d->listed || !cached_is_due(c, &parent, d->names_wanted_ms))
		return;
	tree_list(c->tree, id, cached_now_ms(), find_unknown, &walker);
	if (walker.unknown.inode)
		cached_consider_names(c, &walker.unknown, true);
}

/* Resolves the path to a directory, or to an object that may be one. */
static int resolve_directory(
	struct cached *c, struct op_context *ctx, const char *path, struct found *ret_found)
{
	int r = cached_resolve(c, ctx, path, ret_found, NULL);
	uint32_t type = r == 0 ? tree_type(c->tree, &ret_found->id) : 0;

	return r == 0 && type && type != S_IFDIR ? -ENOTDIR : r;
}

/* Whether what is wanted is known, and the directory watched if possible.  For names, a running
 * scan that has it watched is enough. */
static bool has_wanted(struct cached *c, const char *path, const struct object_id *id,
	enum wanted_of_directory wanted)
{
	const struct directory *d = directory_find(c, id);

	if (wanted == WANT_LISTING_ANEW || !cached_is_complete(c, id))
		return false;
	if (wanted == WANT_LISTING)
		return d && (d->scanned || !c->feed);
	return !c->feed || cached_is_watched(c, id) || (d && d->scanned) ||
	       cached_find_prefetch(c, path, false);
}

/* Whether the scan that will bring the directory runs ahead of a walk: others go first, so that it
 * renews the entries later than a load. */
static bool is_ahead(const struct cached *c, const char *path)
{
	const struct prefetch *p = cached_find_prefetch(c, path, false);

	return p && (p->request.flags & SCAN_GUESS);
}

int cached_load_directory(struct cached *c, struct op_context *ctx, const char *path,
	enum wanted_of_directory wanted, struct found *ret_found)
{
	const struct object_id *id = &ret_found->id;
	uint64_t since_ms = cached_now_ms();
	bool loaded = false;
	int r;

	for (;;) {
		r = resolve_directory(c, ctx, path, ret_found);
		if (r < 0 || loaded)
			return r;
		if (has_wanted(c, path, id, wanted))
			break;
		if (is_hopeless(c, id))
			return wanted == WANT_NAMES ? 0 : -EAGAIN;
		if (is_coming(c, path, since_ms) &&
			!(wanted == WANT_LISTING_ANEW && is_ahead(c, path))) {
			r = cached_wait_to_learn(c, ctx, path);
		} else {
			r = cached_load(c, ctx, path, id, wanted != WANT_NAMES);
			loaded = true;
		}
		if (r < 0)
			return r;
	}
	if (wanted == WANT_LISTING) {
		directory_find(c, id)->listed = true;
		consider_walk(c, id);
		cached_follow_walk(c, id);
	}
	return 0;
}
