/* Prefetch of the content of small files, driven by the files that callers open. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/listing_order.h"
#include "ops/read_first.h"
#include "ops/support/path.h"

enum {
	PREFETCH_CONTENT_MAX_BYTES = 64 << 20,
	DIRECTORY_CONTENT_MAX_BYTES = 1 << 20,
	CONTENT_WAIT_MAX_MS = 1000,
	CONTENT_START_MAX_MS = 250,   /* without a byte for so long, the far end is busy */
	CONTENT_STEP_BYTES = 2 << 20, /* bound of a prefetch: this times the square of the misses */
	GROWING_ROUND_TRIPS = 4,      /* a flow grows for so long: before, its rate says little */
	GUESS_FORGOTTEN_MS = 10000,
	WALK_OPENS = 2, /* a search counts as this many misses */
	NEXT_TRIES = 3,
};

static bool has_content(const struct tree_entry *entry)
{
	const struct extra *x = entry->kept;

	return x && x->content;
}

static bool is_guess(const struct tree_entry *entry)
{
	const struct extra *x = entry->kept;

	return x && x->content && x->content->is_guess;
}

static bool lacks_content(const struct tree_entry *entry)
{
	return S_ISREG(entry->attributes->mode) && !has_content(entry) &&
	       entry->attributes->size_bytes > 0 && entry->name_validity != TREE_ASK;
}

static bool is_small(const struct attributes *attributes)
{
	return attributes->size_bytes <= SMALL_FILE_MAX_BYTES;
}

static bool may_restore(const struct cached *c, const struct tree_entry *entry)
{
	return lacks_content(entry) && content_may_be_kept(c, entry->attributes->size_bytes) &&
	       content_is_kept(c, entry->attributes);
}

struct missing {
	struct cached *c;
	unsigned depth;
	uint64_t bytes, max; /* of small files without cached content; counted up to `max` */
	uint64_t kept;       /* of small files with content here, which a scan would send again */
};

static void count_missing(struct missing *missing, const struct object_id *directory);

static bool count_entry(void *user, const struct tree_entry *entry)
{
	const struct attributes *a = entry->attributes;
	struct missing *missing = user;

	if (is_small(a) && (has_content(entry) || may_restore(missing->c, entry))) {
		missing->kept += a->size_bytes;
	} else if (is_small(a) && lacks_content(entry)) {
		missing->bytes += a->size_bytes;
	} else if (missing->depth > 1 && S_ISDIR(a->mode) && entry->name[0] != '.') {
		missing->depth--;
		count_missing(missing, &a->id);
		missing->depth++;
	}
	return missing->bytes <= missing->max;
}

static void count_missing(struct missing *missing, const struct object_id *directory)
{
	tree_list(missing->c->tree, directory, cached_now_ms(), count_entry, missing);
}

static struct missing missing_in(
	struct cached *c, const struct object_id *top, unsigned depth, uint64_t max)
{
	struct missing missing = {.c = c, .depth = depth, .max = max};

	count_missing(&missing, top);
	return missing;
}

static bool fetch_content(struct cached *c, const struct object_id *top, uint32_t depth,
	uint64_t expected, uint64_t total_max)
{
	struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_CONTENT | SCAN_NOT_HIDDEN | SCAN_GUESS,
		.depth_max = depth,
		.entries_max = depth == 1 ? 0 : PREFETCH_ENTRIES_MAX,
		.content_max_bytes = SMALL_FILE_MAX_BYTES,
		.content_total_bytes = total_max};
	struct directory *d = directory_make(c, top);

	if (!d || !cached_start_prefetch_of(c, top, &request, expected))
		return false;
	c->guessed_ms = d->content_wanted_ms = cached_now_ms();
	return true;
}

/* Whether callers search: the directory was listed, and just now a directory above it was walked
 * through or files in several of its subdirectories were opened. */
static bool is_searched(struct cached *c, const struct object_id *directory)
{
	uint64_t now_ms = cached_now_ms();
	struct object_id at = *directory;

	if (!cached_is_listed(c, directory))
		return false;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		const struct directory *d = directory_find(c, &at);

		if (d && (d->opens > WALK_OPENS ||
				 (d->names_wanted_ms && now_ms - d->names_wanted_ms < WALK_MS)))
			return true;
		if (!cached_climb(c, &at))
			break;
	}
	return false;
}

/* How many more bytes may be prefetched.  Prefetched content that no caller has opened, arrived or
 * not, may take half of the memory bound; older guesses no longer count once nothing was prefetched
 * for GUESS_FORGOTTEN_MS. */
static uint64_t content_budget(struct cached *c)
{
	uint64_t most = c->memory_bytes_max / 2, guessed;
	const struct prefetch *p;

	if (most > PREFETCH_CONTENT_MAX_BYTES)
		most = PREFETCH_CONTENT_MAX_BYTES;
	if (c->guessed_before_bytes > c->guessed_bytes ||
		cached_now_ms() - c->guessed_ms > GUESS_FORGOTTEN_MS)
		c->guessed_before_bytes = c->guessed_bytes;
	guessed = c->guessed_bytes - c->guessed_before_bytes;
	LIST_FOREACH(p, &c->prefetches, link)
		if (p->expected_bytes > p->received_bytes)
			guessed += p->expected_bytes - p->received_bytes;
	return guessed < most ? most - guessed : 0;
}

/* How much missing content a prefetch may bring: the more, the more subdirectories callers missed
 * content in. */
static uint64_t content_bound(struct cached *c, const struct directory *d, bool is_search)
{
	uint64_t evidence = d->opens + (is_search ? WALK_OPENS : 0);
	uint64_t max = evidence * evidence * CONTENT_STEP_BYTES, budget = content_budget(c);

	return max < budget ? max : budget;
}

/* An open below this entry of the directory is evidence of what callers do there. */
static void note_opened(struct cached *c, struct directory *d, const struct object_id *id)
{
	struct object_id ignored;
	const char *name = tree_name_of(c->tree, id, &ignored);
	uint64_t at = name ? listing_order_of(name, strlen(name)) : 0;

	if (d->last_opened == id->inode)
		return;
	d->is_opened_backwards = at < d->opened_at;
	d->opened_at = at;
	d->last_opened = id->inode;
	d->opens++;
}

struct next {
	struct cached *c;
	uint64_t from, at; /* listing_order_of() where to begin, and the nearest one so far */
	bool backwards;
	struct object_id id; /* inode 0: there is none */
};

static bool find_next(void *user, const struct tree_entry *entry)
{
	const struct extra *x = entry->kept;
	struct next *next = user;
	uint64_t at = listing_order_of(entry->name, strlen(entry->name));
	bool is_nearer = next->backwards ? at < next->from : at > next->from;

	if (next->id.inode)
		is_nearer = is_nearer && (next->backwards ? at > next->at : at < next->at);
	if (is_nearer && x && x->directory && entry->name[0] != '.' &&
		cached_is_due(next->c, &x->id, x->directory->content_wanted_ms)) {
		next->at = at;
		next->id = x->id;
	}
	return true;
}

static bool fetch_all_of(struct cached *c, const struct object_id *id, uint64_t allowed)
{
	struct missing missing = missing_in(c, id, DEPTH_MAX, allowed);
	struct directory *d = directory_find(c, id);

	if (missing.bytes == 0 || missing.bytes > allowed || missing.bytes < missing.kept)
		return false;
	d->is_ahead = fetch_content(c, id, 0, missing.bytes, allowed);
	return d->is_ahead;
}

/* A search has come to the directory: prefetches the one that it comes to next, to keep the link
 * busy.  It goes through their parent in the order of the listing, or backwards. */
static void fetch_next(struct cached *c, const struct object_id *searched)
{
	struct object_id parent = *searched;
	struct next next = {.c = c};
	struct directory *d;
	uint64_t allowed;

	if (!cached_climb(c, &parent))
		return;
	d = directory_make(c, &parent);
	if (!d)
		return;
	note_opened(c, d, searched);
	next.from = d->opened_at;
	next.backwards = d->is_opened_backwards;
	allowed = content_bound(c, d, true);
	for (int tries = 0; tries < NEXT_TRIES; tries++) {
		next.id.inode = 0;
		tree_list(c->tree, &parent, cached_now_ms(), find_next, &next);
		if (next.id.inode && fetch_all_of(c, &next.id, allowed))
			break;
		if (next.id.inode)
			next.from = next.at;
		else
			next.backwards = !next.backwards;
	}
}

/* Goes on with a search that has come to what was fetched ahead of it. */
static void follow_search(struct cached *c, const struct object_id *directory)
{
	struct object_id at = *directory;

	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		struct directory *d = directory_find(c, &at);

		if (d && d->is_ahead) {
			d->is_ahead = false;
			if (!cached_is_due(c, &at, d->content_wanted_ms)) /* not long ago */
				fetch_next(c, &at);
			break;
		}
		if (!cached_climb(c, &at))
			break;
	}
}

/* Whether the last name in the first `length` bytes of the path begins with a dot. */
static bool is_hidden(const char *path, size_t length)
{
	while (length > 0 && path[length - 1] != '/')
		length--;
	return path[length] == '.';
}

static bool is_first(const char *path, const struct attributes *attributes)
{
	cleanup_free char *directory = strndup(path, path_parent_length(path));

	return directory &&
	       is_read_first(git_part_of(directory), path_name(path), attributes->size_bytes);
}

/* Starts a prefetch of the highest directory above the file in which callers missed content in
 * several subdirectories and whose missing content is within the bound.  The first file that is
 * read, and files in hidden directories, are no evidence for the directories above.  True: wait for
 * the file's content. */
static bool consider_content(struct cached *c, const char *path, const struct found *file,
	const struct attributes *attributes)
{
	uint64_t expected = 0, allowed = 0;
	size_t length = path_parent_length(path);
	bool is_search = is_searched(c, &file->directory);
	struct object_id at = file->directory, top = {0};
	struct object_id below = file->id;
	struct directory *d;
	struct missing missing;

	if (is_first(path, attributes))
		return false;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		uint64_t max;

		d = directory_make(c, &at);
		if (!d)
			return false;
		note_opened(c, d, &below);
		max = content_bound(c, d, is_search);
		if (d->opens + (is_search ? WALK_OPENS : 0) >= 2 &&
			cached_is_due(c, &at, d->content_wanted_ms)) {
			missing = missing_in(c, &at, DEPTH_MAX, max);
			if (missing.bytes <= max && missing.bytes >= missing.kept) {
				top = at;
				expected = missing.bytes;
				allowed = max;
			}
		}
		below = at;
		if (is_hidden(path, length) || !cached_climb(c, &at))
			break;
		while (length > 0 && path[--length] != '/')
			;
	}
	if (top.inode) {
		bool awaited = fetch_content(c, &top, 0, expected, allowed) && is_search;

		if (awaited)
			fetch_next(c, &top);
		return awaited;
	}
	d = directory_make(c, &file->directory);
	missing = missing_in(c, &file->directory, 1, DIRECTORY_CONTENT_MAX_BYTES);
	if (d && d->opens == 1 && missing.bytes > attributes->size_bytes &&
		missing.bytes <= DIRECTORY_CONTENT_MAX_BYTES)
		fetch_content(c, &file->directory, 1, missing.bytes, DIRECTORY_CONTENT_MAX_BYTES);
	return false;
}

/* Whether, at the rate so far, the prefetch will end soon.  A request for this one file would be
 * answered sooner, but a search needs the other files next. */
static bool is_worth_waiting(const struct cached *c, const struct prefetch *p, bool is_search)
{
	uint64_t now_ms = cached_now_ms(), flowing_ms = now_ms - p->first_content_ms;
	uint64_t rest_bytes =
		p->expected_bytes > p->received_bytes ? p->expected_bytes - p->received_bytes : 0;

	if (now_ms - p->started_ms <= cached_round_trips_ms(c, 2) + WAIT_STEP_MS)
		return true;
	if (!p->first_content_ms || !is_search)
		return is_search && now_ms - p->started_ms <= CONTENT_START_MAX_MS;
	return flowing_ms <= cached_round_trips_ms(c, GROWING_ROUND_TRIPS) + WAIT_STEP_MS ||
	       rest_bytes * flowing_ms <= p->received_bytes * CONTENT_WAIT_MAX_MS;
}

int cached_await_content(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes)
{
	uint64_t since_ms = cached_now_ms();
	bool restored = false, considered = false;
	int r;

	for (;;) {
		const struct prefetch *p;
		struct tree_entry entry = {.attributes = ret_attributes};

		c->content_opened_ms = cached_now_ms();
		r = cached_resolve(c, ctx, path, ret_found, ret_attributes);
		if (r < 0)
			return r;
		entry.kept = extra_find(c, &ret_found->id);
		entry.name_validity = TREE_WATCHED;
		if (!restored && may_restore(c, &entry)) {
			restored = true;
			if (op_interrupted(ctx))
				return -EINTR;
			content_restore(c, ret_attributes);
			continue;
		}
		if (!considered)
			cached_consider_index(c, path, &ret_found->directory);
		if (is_guess(&entry) || lacks_content(&entry))
			follow_search(c, &ret_found->directory);
		if (!lacks_content(&entry) || !is_small(ret_attributes))
			return 0;
		p = cached_find_prefetch(c, path, true);
		if (!p && !considered && consider_content(c, path, ret_found, ret_attributes)) {
			considered = true;
			continue;
		}
		if (!p)
			return 0;
		if (cached_now_ms() - since_ms > CONTENT_WAIT_MAX_MS ||
			!is_worth_waiting(c, p, cached_is_listed(c, &ret_found->directory)))
			return 0;
		r = cached_wait_to_learn(c, ctx, path);
		if (r < 0)
			return r;
	}
}
