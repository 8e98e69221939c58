/* Listings, and changes that others make. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* ---- Listings --------------------------- */

struct listed {
	struct listed *next;
	bool is_dropped;
	struct attributes attributes;
	char name[];
};

struct listing {
	struct listed *first;
};

static void listing_done(struct listing *listing)
{
	while (listing->first) {
		struct listed *next = listing->first->next;

		free(listing->first);
		listing->first = next;
	}
}

static int list(struct listing *listing, const char *name, const struct attributes *attributes)
{
	size_t size = strlen(name) + 1;
	struct listed *listed = malloc(sizeof(*listed) + size);

	if (!listed)
		return -ENOMEM;
	*listed = (struct listed){.next = listing->first, .attributes = *attributes};
	memcpy(listed->name, name, size);
	listing->first = listed;
	return 0;
}

static int take_entry(void *user, const struct dir_entry *entry)
{
	return list(user, entry->path, &entry->attributes);
}

enum shown_from { THE_LISTING, PENDING, LEFT, NEITHER };

/* Where to take the name from, for a reader of the directory whose listing is from `position` or
 * later (0: not known).  Pending operations count, and what was left by one that ended since the
 * reader began: the listing shows that only if it began after the reply to it.  After a refusal
 * only a listing that begins later tells. */
static enum shown_from where_from(
	const struct name *name, const struct reader *reader, uint64_t position)
{
	if (!name->retired_at)
		return PENDING;
	if (name->refused_at > reader->since)
		return NEITHER;
	if (name->done_at <= reader->since)
		return THE_LISTING;
	return name->done_position && name->done_position < position ? THE_LISTING : LEFT;
}

/* Turns the workspace's listing into what callers see.  Names that it does not decide about are
 * dropped: add_pending() adds them. */
static int show_listed(struct writeback *b, const char *directory, const struct reader *reader,
	uint64_t position, struct listing *listing)
{
	for (struct listed *listed = listing->first; listed; listed = listed->next) {
		cleanup_free char *path = path_join(directory, listed->name);
		const struct name *name;

		if (!path)
			return -ENOMEM;
		back_show(b, path, &listed->attributes);
		name = back_any_name(b, path);
		listed->is_dropped = name && where_from(name, reader, position) != THE_LISTING;
	}
	return 0;
}

/* 1: the directory has to be listed again. */
static int add_pending(struct writeback *b, const char *path, const struct reader *reader,
	uint64_t position, struct listing *listing)
{
	const struct directory *directory = back_directory(b, path, strlen(path));
	const struct name *name;
	struct attributes shown;
	int r = 0;

	if (!directory)
		return 0;
	LIST_FOREACH(name, &directory->names, in_directory) {
		enum shown_from from = where_from(name, reader, position);

		if (from == NEITHER)
			r = 1;
		if (r != 0)
			break;
		if (from == THE_LISTING)
			continue;
		shown = from == LEFT ? name->left : back_name_shown(b, name);
		if (shown.mode)
			r = list(listing, path_name(name->path), &shown);
	}
	return r;
}

static int tell_listed(const struct listing *listing, dir_entry_sink sink, void *user)
{
	int r = 0;

	for (const struct listed *listed = listing->first; listed && r >= 0; listed = listed->next)
		if (!listed->is_dropped)
			r = sink(user, &(struct dir_entry){.path = listed->name,
					       .attributes = listed->attributes});
	return r < 0 ? r : 0;
}

/* Lists the directory at the workspace. */
static int list_inner(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, struct listing *listing,
	uint64_t *ret_since)
{
	struct writeback *b = writeback_of(w);
	int r = forward_readdir(ctx, w, directory, watch, take_entry, listing, ret_since);

	writeback_lock(b);
	back_saw(b, ctx->served.position);
	writeback_unlock(b);
	return r;
}

/* 1: another directory may have the path now. */
static int list_all(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	bool watch, struct listing *listing, uint64_t *ret_since)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;
	struct reader reader;
	struct node *node;
	uint64_t moves, position;
	bool is_new;
	int r;

	writeback_lock(b);
	r = back_find(b, object, &inner, &node);
	is_new = r > 0 && !node->real.inode;
	if (r > 0 && !S_ISDIR(node->shown.mode))
		r = S_ISLNK(node->shown.mode) ? -ELOOP : -ENOTDIR;
	if (r < 0) {
		writeback_unlock(b);
		return r;
	}
	inner = back_pass_object(b, object);
	if (is_new)
		back_answered(b, ctx);
	back_reader_begin(b, &reader);
	moves = writeback_moves(b);
	writeback_unlock(b);
	r = is_new ? 0 : list_inner(ctx, w, &inner, watch, listing, ret_since);
	position = is_new ? 0 : ctx->served.position;
	writeback_lock(b);
	if (r == 0 && moves != writeback_moves(b))
		r = 1;
	if (r == 0)
		r = show_listed(b, object->path, &reader, position, listing);
	if (r == 0)
		r = add_pending(b, object->path, &reader, position, listing);
	back_reader_end(b, &reader);
	writeback_unlock(b);
	return r;
}

/* A directory must exist at the workspace before it can be watched. */
static int await_made(struct op_context *ctx, struct writeback *b, const struct object_ref *object)
{
	struct object_ref inner;
	struct object_id id;
	struct node *node;
	int r;

	writeback_lock(b);
	r = back_find(b, object, &inner, &node);
	if (r > 0 && !node->real.inode) {
		id = node->id;
		r = back_settle(b, ctx, &id);
	}
	writeback_unlock(b);
	return r < 0 ? r : 0;
}

int back_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since)
{
	struct writeback *b = writeback_of(w);
	cleanup_with(listing_done) struct listing listing = {0};
	uint64_t since = 0;
	int r = watch ? await_made(ctx, b, object) : 0;

	do {
		listing_done(&listing);
		if (r == 0 || r == 1)
			r = op_interrupted(ctx) ? -EINTR
						: list_all(ctx, w, object, watch, &listing, &since);
	} while (r > 0);
	if (r == 0)
		r = tell_listed(&listing, sink, user);
	if (r == 0 && ret_since)
		*ret_since = since;
	return r;
}

/* Scans wait for all pending operations and then go to the workspace. */
struct scan {
	struct writeback *b;
	const char *directory;
	dir_entry_sink sink;
	void *user;
};

static int pass_scanned(void *user, const struct dir_entry *entry)
{
	struct scan *scan = user;
	struct dir_entry shown = *entry;
	cleanup_free char *path = path_join(scan->directory, entry->path);

	writeback_lock(scan->b);
	back_show(scan->b, path, &shown.attributes);
	writeback_unlock(scan->b);
	return scan->sink(scan->user, &shown);
}

int back_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *request, dir_entry_sink sink, void *user)
{
	struct writeback *b = writeback_of(w);
	struct scan scan = {.b = b, .directory = directory->path, .sink = sink, .user = user};
	struct object_ref inner;
	int r;

	writeback_lock(b);
	r = back_barrier(b, ctx);
	inner = back_pass_object(b, directory);
	writeback_unlock(b);
	return r < 0 ? r : forward_scan(ctx, w, &inner, request, pass_scanned, &scan);
}

/* ---- Changes --------------------------- */

/* True if the event is not passed on now: it is older than our last operation on the name, or
 * operations are pending.  The newest event is kept and passed on when they have ended. */
static bool keeps_change(struct name *name, const struct change *change)
{
	if (!name)
		return false;
	if (name->retired_at)
		return change->at <= name->position;
	if (change->at > name->told.at) {
		name->told = *change;
		name->told.hash = NULL;
	}
	return true;
}

/* What others make there is not reported. */
static void forget_removals(struct writeback *b, const char *path)
{
	struct directory *directory = back_directory(b, path, strlen(path));
	struct name *name;

	if (!directory)
		return;
	LIST_FOREACH(name, &directory->names, in_directory)
		name->is_removed = false;
}

static void take_change(void *user, const struct change *change)
{
	struct writeback *b = user;
	struct change shown = *change;
	const struct node *node;
	struct name *name;
	bool is_kept = false;

	writeback_lock(b);
	back_saw(b, change->at);
	back_show_id(b, &shown.directory);
	if (change->kind == CHANGE_UNWATCHED)
		forget_removals(b, change->path);
	if (change->kind == CHANGE_RESCAN)
		TAILQ_FOREACH(name, &b->retired, retired)
			name->is_removed = false;
	if (change->kind == CHANGE_ENTRY) {
		node = back_real_node(b, &change->attributes.id);
		name = back_any_name(b, change->path);
		shown.is_own = name && name->retired_at && back_is_left(name, change);
		if (name && change->exists && change->at > name->position)
			name->is_removed = false;
		is_kept = keeps_change(name, change) || (change->exists && node && !node->is_gone &&
								change->at < node->settled_at);
		if (change->exists && S_ISDIR(change->attributes.mode))
			back_keep_directory(b, change->path, &change->attributes, change->at);
		if (change->exists)
			back_show(b, change->path, &shown.attributes);
	}
	writeback_unlock(b);
	if (!is_kept && b->sink)
		b->sink(b->sink_user, &shown);
}

int back_watch(struct workspace *w, change_sink sink, void *user)
{
	struct writeback *b = writeback_of(w);

	if (b->sink)
		return -EBUSY;
	b->sink_user = user;
	b->sink = sink;
	return forward_watch(w, take_change, b);
}

int back_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;
	struct node *node;
	int r;

	writeback_lock(b);
	r = back_find(b, directory, &inner, &node);
	if (r > 0 && !node->real.inode)
		r = -EAGAIN;
	inner = back_pass_object(b, directory);
	writeback_unlock(b);
	if (r < 0)
		return r;
	r = forward_watch_directory(ctx, w, &inner, ret_watched);
	writeback_lock(b);
	back_saw(b, ctx->served.position);
	writeback_unlock(b);
	return r;
}

void back_unwatch(struct workspace *w, const struct object_ref *directory)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;

	writeback_lock(b);
	inner = back_pass_object(b, directory);
	writeback_unlock(b);
	forward_unwatch(w, &inner);
}
