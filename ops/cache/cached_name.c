#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

int cached_answer(struct cached *c, struct op_context *ctx, int r)
{
	c->statistics.hits++;
	ctx->served.from_cache = ctx->served.round_trips == 0;
	ctx->served.position = 0;
	cached_leave(c);
	return r;
}

static bool is_other(const struct object_id *id, const struct object_id *expected)
{
	return expected->inode && !object_id_equal(id, expected);
}

/* Whether the path leads into another directory than the one that the call refers to. */
static bool is_in_another(const struct object_ref *object, const struct found *found)
{
	return *object->path && is_other(&found->directory, &object->parent);
}

struct object_id cached_object_of(struct cached *c, const struct object_ref *object)
{
	if (object->file)
		return cached_file_of(object->file)->extra->id;
	return object->id.inode ? object->id : cached_find_in(c, &object->parent, object->path).id;
}

/* ---- Looking ----------------------------------------------------------------------- */

/* Learns the answer `r` to a look at a path.  The workspace has verified that the name was looked
 * up in `directory`; inode 0: it has not verified that. */
static void learn_answer(struct cached *c, const struct asking *asking, const char *path,
	const struct object_id *directory, int r, const struct attributes *attributes)
{
	if (r == 0 && !*path)
		c->root = attributes->id;
	if (r == 0 || (r == -ENOENT && directory->inode && *path))
		cached_learn_name(c, &asking->look, directory, path_name(path),
			r == 0 ? attributes : NULL, FROM_LOOK, NULL);
	else if (path_misses_object(r) || path_leads_to_another(r))
		cached_invalidate(c, asking->look.at, directory, path);
	if (r == -ESTALE)
		cached_invalidate_parent(c, asking->look.at, path);
}

static int ask_once(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	const struct object_id *directory, struct attributes *ret_attributes)
{
	struct object_ref asked = {
		.path = object->path, .parent = *directory, .expected = object->id};
	struct asking asking;
	int r;

	if (!directory->inode)
		asked.id = object->id;
	cached_ask(c, ctx, &asking);
	r = workspace_getattr(ctx, c->base.inner, &asked, ret_attributes);
	cached_end_asking(c, ctx, &asking);
	learn_answer(c, &asking, object->path, directory, r, ret_attributes);
	return r;
}

/* Passes the directory's id: the workspace verifies it, and the answer is a fact about it. */
static int ask_attributes(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	static const struct object_id unknown;
	struct object_id directory;
	struct attributes attributes;
	struct found found;
	uint64_t begun;
	int r;

	cached_apply_deferred_at(c, ctx, object->path);
	found = cached_find_in(c, &object->parent, object->path);
	directory = found.directory;
	begun = cached_begin_looking(extra_find(c, &found.id));
	r = ask_once(c, ctx, object, &directory, &attributes);
	/* The id was a guess of the cache, not the caller's: ask without it. */
	if (r == -ESTALE && directory.inode && !object->parent.inode)
		r = ask_once(c, ctx, object, &unknown, &attributes);
	if (r == 0 && object_id_equal(&attributes.id, &found.id))
		cached_end_looking(extra_find(c, &found.id), begun);
	cached_leave(c);
	if (r == 0 && is_other(&attributes.id, &object->id))
		r = -ESTALE;
	if (r == 0)
		*ret_attributes = attributes;
	return r;
}

int cached_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct cached_file *unnamed;
	struct attributes attributes;
	struct found found;
	int r;

	if (object->file)
		return cached_file_getattr(ctx, cached_file_of(object->file), ret_attributes);
	cached_enter(c);
	unnamed = cached_find_async(c, &object->id);
	if (unnamed && !unnamed->writes.begun) {
		*ret_attributes = unnamed->attributes;
		return cached_answer(c, ctx, 0);
	}
	if (unnamed && cached_ask_async(c, ctx, unnamed, ret_attributes)) {
		cached_leave(c);
		return 0;
	}
	cached_await_at(c, ctx, object->path);
	r = ctx->is_uncached ? -EAGAIN : cached_resolve(c, ctx, object->path, &found, &attributes);
	if (r == -EAGAIN)
		return ask_attributes(c, ctx, object, ret_attributes);
	if ((r == 0 && is_other(&found.id, &object->id)) ||
		((r == 0 || path_misses_object(r)) && is_in_another(object, &found)))
		r = -ESTALE;
	if (r == 0)
		*ret_attributes = attributes;
	return cached_answer(c, ctx, r);
}

/* The entries of a directory, copied so that the sink runs without the lock. */
struct listing {
	struct buffer entries; /* for each entry, its attributes and then its name */
	bool has_stale;        /* some of the attributes are not valid */
	int error;
};

static void listing_done(struct listing *listing)
{
	buffer_done(&listing->entries);
}

#define cleanup_listing cleanup_with(listing_done)

static bool list_entry(void *user, const struct tree_entry *entry)
{
	const struct extra *x = entry->kept;
	struct listing *listing = user;

	if (entry->attributes_validity == TREE_ASK || (x && (x->writers > 0 || extra_is_locked(x))))
		listing->has_stale = true;
	listing->error =
		buffer_append(&listing->entries, entry->attributes, sizeof(*entry->attributes));
	if (listing->error == 0)
		listing->error =
			buffer_append(&listing->entries, entry->name, strlen(entry->name) + 1);
	return !listing->has_stale && listing->error == 0;
}

/* -EAGAIN: the directory changes faster than its listing can be loaded; ask the workspace. */
static int list_known(struct cached *c, struct op_context *ctx, const char *path,
	struct listing *listing, struct found *ret_found)
{
	for (int attempt = 0; attempt < 2; attempt++) {
		int r = cached_load_directory(
			c, ctx, path, attempt ? WANT_LISTING_ANEW : WANT_LISTING, ret_found);

		if (r < 0)
			return r;
		listing->entries.size = 0;
		listing->has_stale = false;
		if (tree_list(c->tree, &ret_found->id, cached_now_ms(), list_entry, listing) ==
			TREE_ASK)
			listing->has_stale = true;
		if (listing->error < 0 || !listing->has_stale)
			return listing->error;
		cached_apply_all_deferred(c, ctx);
	}
	return -EAGAIN;
}

static int emit(const struct listing *listing, dir_entry_sink sink, void *user)
{
	const uint8_t *at = listing->entries.data, *end = at + listing->entries.size;

	while (at < end) {
		struct dir_entry entry;
		int r;

		memset(&entry, 0, sizeof(entry));
		memcpy(&entry.attributes, at, sizeof(entry.attributes));
		entry.path = (const char *)at + sizeof(entry.attributes);
		r = sink(user, &entry);
		if (r < 0)
			return r;
		at += sizeof(entry.attributes) + strlen(entry.path) + 1;
	}
	return 0;
}

/* The upper layer wants changes of the directory's entries. */
static void note_subscribed(struct cached *c, const struct object_id *id)
{
	struct directory *d = id->inode ? directory_make(c, id) : NULL;

	if (!d)
		return;
	d->unsubscribed = false;
	d->subscribed = true;
}

int cached_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since)
{
	struct cached *c = cached_of(w);
	cleanup_listing struct listing listing = {0};
	struct found found = {0};
	uint64_t since = 0;
	int r;

	cached_enter(c);
	cached_await_at(c, ctx, directory->path);
	r = list_known(c, ctx, directory->path, &listing, &found);
	if (r == 0 && is_other(&found.id, &directory->id))
		r = -ESTALE;
	if (r == 0)
		since = tree_watched_since(c->tree, &found.id);
	if (watch && (r == 0 || r == -EAGAIN))
		note_subscribed(c, &found.id);
	if (r == -EAGAIN) {
		cached_leave(c);
		return workspace_readdir(
			ctx, c->base.inner, directory, watch, sink, user, ret_since);
	}
	cached_answer(c, ctx, r);
	if (r == 0)
		r = emit(&listing, sink, user);
	if (r < 0)
		return r;
	*ret_since = since;
	return 0;
}

/* Asks whether the path still leads to the directory, as the known facts do not say. */
static int ask_directory(struct cached *c, struct op_context *ctx,
	const struct object_ref *directory, struct found *ret_found)
{
	struct attributes attributes;
	int r = ask_attributes(c, ctx, directory, &attributes);

	cached_enter(c);
	if (r < 0)
		return r;
	if (!S_ISDIR(attributes.mode))
		return -ENOTDIR;
	return cached_load_directory(c, ctx, directory->path, WANT_NAMES, ret_found);
}

int cached_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched)
{
	struct cached *c = cached_of(w);
	const struct directory *d;
	bool is_watched = false;
	struct found found;
	int r;

	cached_enter(c);
	r = cached_load_directory(c, ctx, directory->path, WANT_NAMES, &found);
	if (r == -EAGAIN)
		r = ask_directory(c, ctx, directory, &found);
	if (r == 0 && is_other(&found.id, &directory->id))
		r = -ESTALE;
	if (r == 0) {
		is_watched = tree_watched_since(c->tree, &found.id) != 0;
		d = directory_find(c, &found.id);
		if (is_watched)
			note_subscribed(c, &found.id);
		else if (c->feed && !(d && d->scanned) &&
			 tree_get_listing(c->tree, &found.id, cached_now_ms()) != TREE_ASK)
			r = -EAGAIN; /* created here just now, and not watched yet */
	} else if (r == -EAGAIN) {
		/* The path is not known, perhaps after a loss; the directory itself may be. */
		r = cached_load(c, ctx, directory->path, &directory->id, false);
		is_watched = r == 0 && tree_watched_since(c->tree, &directory->id);
		if (is_watched)
			note_subscribed(c, &directory->id);
	}
	cached_leave(c);
	if (r < 0)
		return r;
	*ret_watched = is_watched;
	return 0;
}

static int ask_target(
	struct cached *c, struct op_context *ctx, const struct object_ref *link, char **ret_target)
{
	struct asking asking;
	char *target;
	int r;

	cached_ask(c, ctx, &asking);
	r = workspace_readlink(ctx, c->base.inner, link, &target);
	cached_end_asking(c, ctx, &asking);
	if (path_misses_object(r) || path_leads_to_another(r))
		cached_invalidate(c, asking.look.at, &link->parent, link->path);
	if (r == 0 && link->id.inode)
		extra_set_target(c, &link->id, target);
	cached_leave(c);
	if (r == 0)
		*ret_target = target;
	return r;
}

int cached_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	struct cached *c = cached_of(w);
	const struct extra *x = NULL;
	char *target = NULL;
	struct found found;
	int r;

	cached_enter(c);
	cached_await_at(c, ctx, link->path);
	r = cached_resolve(c, ctx, link->path, &found, NULL);
	if (r == 0 && is_other(&found.id, &link->id))
		r = -ESTALE;
	else if (r == 0 && found.id.inode && tree_type(c->tree, &found.id) != S_IFLNK)
		r = -EINVAL;
	if (r == 0)
		x = extra_find(c, &found.id);
	if (r == -EAGAIN || (r == 0 && !(x && x->link_target)))
		return ask_target(c, ctx, link, ret_target);
	if (r == 0)
		target = strdup(x->link_target);
	if (r == 0 && !target)
		r = -ENOMEM;
	r = cached_answer(c, ctx, r);
	if (r == 0)
		*ret_target = target;
	return r;
}

/* ---- Making --------------------------------------------------------------------------- */

/* `target`: of a new symbolic link; NULL: create an object of the type in `mode`. */
static int make(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, const char *target, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct asking asking;
	int r;

	cached_enter(c);
	cached_await_at(c, ctx, path);
	cached_begin_change(c, ctx, &asking);
	if (target)
		r = workspace_symlink(ctx, c->base.inner, target, path, ret_attributes);
	else if (S_ISDIR(mode))
		r = workspace_mkdir(ctx, c->base.inner, path, mode, ret_attributes);
	else
		r = workspace_mknod(ctx, c->base.inner, path, mode, rdev, ret_attributes);
	cached_end_making(c, ctx, &asking, path, NULL, r, ret_attributes);
	if (r == 0 && target)
		extra_set_target(c, &ret_attributes->id, target);
	else if (r == 0 && S_ISDIR(mode))
		cached_own_directory(c, &asking.look, path, &ret_attributes->id);
	cached_leave(c);
	return r;
}

int cached_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	return make(ctx, w, path, S_IFDIR | mode, 0, NULL, ret_attributes);
}

int cached_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	return make(ctx, w, path, mode, rdev, NULL, ret_attributes);
}

int cached_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	return make(ctx, w, path, 0, 0, target, ret_attributes);
}

int cached_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct asking asking;
	struct object_id id;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	cached_await_all(c, ctx);
	cached_apply_all_deferred(c, ctx);
	id = cached_object_of(c, object);
	cached_begin_change(c, ctx, &asking);
	r = workspace_link(ctx, c->base.inner, &inner, path, ret_attributes);
	cached_end_making(c, ctx, &asking, path, &id, r, ret_attributes);
	cached_leave(c);
	return r;
}

/* ---- Removing and moving ------------------------------------------------------------------ */

static int remove_name(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected, __typeof__(workspace_unlink) *remove)
{
	struct cached *c = cached_of(w);
	struct asking asking;
	struct object_id id;
	int r;

	cached_enter(c);
	r = cached_await_at(c, ctx, path);
	if (r == 0 && cached_has_missed(c, ctx, &ctx->parent, path))
		r = -ENOENT;
	if (r < 0) {
		cached_leave(c);
		return r;
	}
	cached_hold_open(c, ctx, path);
	cached_idle_close_at(c, path);
	id = cached_find_in(c, &ctx->parent, path).id;
	cached_begin_change(c, ctx, &asking);
	r = remove(ctx, c->base.inner, path, expected);
	cached_end_removing(c, ctx, &asking, path, &id, r);
	cached_leave(c);
	return r;
}

int cached_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, path, expected, workspace_unlink);
}

int cached_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, path, expected, workspace_rmdir);
}

int cached_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	struct cached *c = cached_of(w);
	struct asking asking;
	int r;

	cached_enter(c);
	r = cached_await_at(c, ctx, from);
	if (r == 0)
		r = cached_await_at(c, ctx, to);
	if (r == 0 && cached_has_missed(c, ctx, &ctx->parent, from))
		r = -ENOENT;
	if (r < 0) {
		cached_leave(c);
		return r;
	}
	if (!(flags & RENAME_SWAP)) {
		cached_hold_open(c, ctx, to);
		cached_idle_close_at(c, to);
	}
	cached_begin_change(c, ctx, &asking);
	r = workspace_rename(ctx, c->base.inner, from, to, flags, expected);
	cached_end_moving(c, ctx, &asking, from, to, flags, r);
	cached_leave(c);
	return r;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

/* Whether the attributes are set already.  tar and cp set owner and mode of each directory that
 * they have created to what it has: only the ctime would change. */
static bool is_set_already(struct cached *c, const struct object_id *id, unsigned mask,
	const struct attributes *want, struct attributes *ret_attributes)
{
	const struct directory *d = directory_find(c, id);

	return d && d->is_own && !(mask & ~(unsigned)(SET_UID | SET_GID | SET_MODE)) &&
	       cached_get_attributes(c, id, ret_attributes) &&
	       !((mask & SET_UID) && want->uid != ret_attributes->uid) &&
	       !((mask & SET_GID) && want->gid != ret_attributes->gid) &&
	       !((mask & SET_MODE) && (want->mode ^ ret_attributes->mode) & 07777);
}

int cached_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct asking asking;
	struct object_id id;
	struct extra *x;
	int r = -EAGAIN;

	if (mask == SET_SIZE && object->file)
		r = cached_truncate(ctx, object->file, want->size_bytes, ret_attributes);
	if (r != -EAGAIN)
		return r;
	r = cached_inner_object(ctx, object, &inner);
	if (r < 0)
		return r;
	cached_enter(c);
	id = cached_object_of(c, object);
	x = extra_find(c, &id);
	if (x && cached_defer(c, ctx, x, mask, want, ret_attributes)) {
		cached_leave(c);
		return 0;
	}
	cached_await_object(c, ctx, object);
	cached_apply_all_deferred(c, ctx);
	if (is_set_already(c, &id, mask, want, ret_attributes))
		return cached_answer(c, ctx, 0);
	x = extra_find(c, &id);
	if (x && (mask & SET_SIZE))
		x->write_count++;
	cached_begin_change(c, ctx, &asking);
	r = workspace_setattr(ctx, c->base.inner, &inner, mask, want, ret_attributes);
	cached_end_asking(c, ctx, &asking);
	if (r == 0) {
		cached_changed(
			c, &asking, &ret_attributes->id, ret_attributes, cached_source_of(mask));
	} else {
		tree_invalidate_attributes(c->tree, asking.look.at, &id);
		if (!object->file && path_misses_object(r))
			cached_invalidate(c, asking.look.at, &object->parent, object->path);
	}
	cached_leave(c);
	return r;
}
