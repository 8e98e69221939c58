#include "ops/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

static void lock(struct cached *c)
{
	pthread_mutex_lock(&c->lock);
}

static void unlock(struct cached *c)
{
	pthread_mutex_unlock(&c->lock);
}

/* An answer from what is known, looked at then or later; without the lock held afterwards. */
static int answer(struct cached *c, struct op_context *ctx, int r, uint64_t at)
{
	c->statistics.hits++;
	ctx->served.from_cache = ctx->served.round_trips == 0;
	ctx->served.position = at;
	unlock(c);
	return r;
}

static struct learnt begin(struct cached *c, struct op_context *ctx)
{
	struct learnt learnt = cached_begin_asking(c, ctx);

	unlock(c);
	return learnt;
}

static void end(struct cached *c, const struct op_context *ctx, struct learnt *learnt)
{
	lock(c);
	cached_end_asking(c, ctx, learnt);
	c->statistics.misses++;
}

/* The same around a call that changes something: begins with the lock held, ends so. */
static void begin_change(struct cached *c, struct op_context *ctx, struct own *own)
{
	cached_begin_change(c, ctx, own);
	unlock(c);
}

static void end_change(struct cached *c, struct op_context *ctx, struct own *own)
{
	lock(c);
	cached_end_change(c, ctx, own);
	c->statistics.misses++;
}

static bool is_other(const struct node *node, const struct object_id *id)
{
	return id->inode && !object_id_equal(id, &node->attributes.id);
}

/* As is known: another directory than the one that is meant is where that was, or none. */
static bool is_in_another(const struct cached *c, const struct object_ref *object, int result)
{
	const struct node *parent;

	if (!object->parent.inode || !*object->path)
		return false;
	parent = tree_find(c, object->path, path_parent_length(object->path));
	if (!parent || parent->state != NODE_PRESENT)
		return result < 0;
	return is_other(parent, &object->parent);
}

/* ---- Looking ----------------------------------------------------------------------- */

static int ask_attributes(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	uint64_t started_ms = cached_now_ms();
	struct attributes attributes;
	struct learnt learnt;
	int r;

	cached_apply_deferred_at(c, ctx, object->path);
	learnt = begin(c, ctx);
	r = workspace_getattr(ctx, c->inner, object, &attributes);
	lock(c);
	cached_end_asking(c, ctx, &learnt);
	cached_count_trip(c, started_ms);
	cached_store_answer(c, object->path, r, &attributes, &learnt);
	if (r == -ESTALE && object->parent.inode)
		cached_doubt_parent(c, object->path);
	unlock(c);
	if (r < 0)
		return r;
	*ret_attributes = attributes;
	return 0;
}

int cached_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct node *node;
	int r;

	if (object->file)
		return cached_file_getattr(ctx, cached_file_of(object->file), ret_attributes);
	lock(c);
	r = cached_resolve(c, ctx, object->path, true, &node);
	if (r == -EAGAIN)
		return ask_attributes(c, ctx, object, ret_attributes);
	if ((r == 0 && is_other(node, &object->id)) || is_in_another(c, object, r))
		r = -ESTALE;
	if (r == 0)
		*ret_attributes = node->attributes;
	return answer(c, ctx, r, r == 0 ? node->at : 0);
}

/* The entries of a directory, copied so that the sink runs without the lock. */
struct listing {
	struct listed {
		struct attributes attributes;
		uint64_t at;
		size_t name; /* offset in names */
	} * entries;
	size_t count;
	char *names;
	bool doubtful; /* attributes of some are not fresh */
};

static void listing_done(struct listing *listing)
{
	free(listing->entries);
	free(listing->names);
	*listing = (struct listing){0};
}

static int list(const struct cached *c, const struct node *node, struct listing *listing)
{
	const struct directory *d = node->directory;
	size_t used = 0, names_size = 0;

	for (size_t i = 0; i < d->bucket_count; i++)
		for (const struct node *child = d->buckets[i]; child; child = child->next)
			names_size += child->name_length + 1u;
	listing->entries = calloc(d->count + 1, sizeof(*listing->entries));
	listing->names = malloc(names_size + 1);
	if (!listing->entries || !listing->names)
		return -ENOMEM;
	for (size_t i = 0; i < d->bucket_count; i++)
		for (const struct node *child = d->buckets[i]; child; child = child->next) {
			if (child->state == NODE_UNKNOWN ||
				(child->state == NODE_PRESENT &&
					!node_attributes_are_fresh(c, child)))
				listing->doubtful = true;
			if (child->state != NODE_PRESENT)
				continue;
			listing->entries[listing->count++] = (struct listed){
				.attributes = child->attributes, .at = child->at, .name = used};
			memcpy(listing->names + used, child->name, child->name_length + 1u);
			used += child->name_length + 1u;
		}
	return 0;
}

/* -EAGAIN: it changes too quickly to be told from what is known. */
static int list_fresh(struct cached *c, struct op_context *ctx, const char *path,
	struct listing *listing, struct node **ret_node)
{
	struct node *node;
	int r = 0;

	for (int attempt = 0; r == 0 && attempt < 2; attempt++) {
		r = cached_load_listing(c, ctx, path);
		node = r == 0 ? tree_find(c, path, strlen(path)) : NULL;
		if (r < 0)
			break;
		if (!node || !node->directory || !node->directory->complete)
			return -EAGAIN;
		listing_done(listing);
		r = list(c, node, listing);
		*ret_node = node;
		if (r < 0 || !listing->doubtful)
			return r;
		node->directory->complete = false;
		cached_apply_all_deferred(c, ctx);
	}
	return r < 0 ? r : -EAGAIN;
}

/* The listener wants to hear of what is in the directory, as whoever tells of it will. */
static void note_heard(struct cached *c, const char *path)
{
	struct node *node = tree_find(c, path, strlen(path));

	if (!node || !node->directory)
		return;
	node->directory->quiet = false;
	node->directory->heard = true;
}

int cached_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since)
{
	cleanup_with(listing_done) struct listing listing = {0};
	struct cached *c = cached_of(w);
	struct node *node = NULL;
	uint64_t since = 0;
	int r;

	lock(c);
	r = list_fresh(c, ctx, directory->path, &listing, &node);
	if (r == 0 && is_other(node, &directory->id))
		r = -ESTALE;
	if (r == 0 && c->feed && node->directory->watched)
		since = node->directory->watched_at;
	if (watch && (r == 0 || r == -EAGAIN))
		note_heard(c, directory->path);
	if (r == -EAGAIN) {
		unlock(c);
		return workspace_readdir(ctx, c->inner, directory, watch, sink, user, ret_since);
	}
	answer(c, ctx, r, r == 0 ? node->directory->listed_at : 0);
	for (size_t i = 0; r >= 0 && i < listing.count; i++) {
		struct dir_entry entry = {.path = listing.names + listing.entries[i].name,
			.attributes = listing.entries[i].attributes,
			.at = listing.entries[i].at};

		r = sink(user, &entry);
	}
	if (r < 0)
		return r;
	*ret_since = since;
	return 0;
}

/* What is known does not say whether the name leads there still. */
static int ask_directory(struct cached *c, struct op_context *ctx,
	const struct object_ref *directory, struct node **ret_node)
{
	struct attributes attributes;
	int r = ask_attributes(c, ctx, directory, &attributes);

	lock(c);
	if (r < 0)
		return r;
	if (!S_ISDIR(attributes.mode))
		return -ENOTDIR;
	return cached_load_names(c, ctx, directory->path, ret_node);
}

int cached_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched)
{
	struct cached *c = cached_of(w);
	struct node *node = NULL;
	struct directory *d;
	bool watched = false;
	int r;

	lock(c);
	r = cached_load_names(c, ctx, directory->path, &node);
	if (r == -EAGAIN)
		r = ask_directory(c, ctx, directory, &node);
	if (r == 0 && is_other(node, &directory->id))
		r = -ESTALE;
	d = r == 0 ? node->directory : NULL;
	if (d && c->feed && d->watched) {
		watched = true;
		note_heard(c, directory->path);
	} else if (d && c->feed && d->complete && !d->scanned) {
		r = -EAGAIN; /* it was made here just now */
	} else if (r == -EAGAIN) {
		r = 0; /* nothing is kept of what it is in, nor of this one then */
	}
	unlock(c);
	if (r < 0)
		return r;
	*ret_watched = watched;
	return 0;
}

static int ask_target(
	struct cached *c, struct op_context *ctx, const struct object_ref *link, char **ret_target)
{
	struct learnt learnt = begin(c, ctx);
	char *target;
	int r = workspace_readlink(ctx, c->inner, link, &target);
	struct node *node;

	end(c, ctx, &learnt);
	if (r < 0)
		cached_store_answer(c, link->path, r, NULL, &learnt);
	node = tree_find(c, link->path, strlen(link->path));
	if (r == 0 && node && node->state == NODE_PRESENT && S_ISLNK(node->attributes.mode) &&
		node->changed_at <= learnt.asked && !node->link_target)
		node->link_target = strdup(target);
	unlock(c);
	if (r < 0)
		return r;
	*ret_target = target;
	return 0;
}

int cached_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	struct cached *c = cached_of(w);
	char *target = NULL;
	struct node *node;
	int r;

	lock(c);
	r = cached_resolve(c, ctx, link->path, false, &node);
	if (r == 0 && is_other(node, &link->id))
		r = -ESTALE;
	else if (r == 0 && node->state == NODE_PRESENT && !S_ISLNK(node->attributes.mode))
		r = -EINVAL;
	if (r == -EAGAIN || (r == 0 && !node->link_target))
		return ask_target(c, ctx, link, ret_target);
	if (r == 0)
		target = strdup(node->link_target);
	if (r == 0 && !target)
		r = -ENOMEM;
	r = answer(c, ctx, r, r == 0 ? node->at : 0);
	if (r == 0)
		*ret_target = target;
	return r;
}

/* ---- Making --------------------------------------------------------------------------- */

/* Ends a call that made a name; leaves with the lock held, for the caller's own touch. */
static struct node *made(struct cached *c, struct op_context *ctx, const char *path, int r,
	const struct attributes *attributes, struct own *own)
{
	struct node *node = NULL;

	end_change(c, ctx, own);
	if (r == 0)
		node = cached_own_present(c, path, attributes, own);
	else if (r == -EEXIST || r == -ENOENT)
		cached_own_unknown(c, path, own);
	else if (r == -ESTALE)
		cached_doubt_parent(c, path);
	if (node)
		node->xattrs = XATTRS_NO_CAPABILITY;
	return node;
}

int cached_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct own own;
	int r;

	lock(c);
	begin_change(c, ctx, &own);
	r = workspace_mkdir(ctx, c->inner, path, mode, ret_attributes);
	cached_own_directory(c, made(c, ctx, path, r, ret_attributes, &own), &own);
	unlock(c);
	return r;
}

int cached_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct own own;
	int r;

	lock(c);
	begin_change(c, ctx, &own);
	r = workspace_mknod(ctx, c->inner, path, mode, rdev, ret_attributes);
	made(c, ctx, path, r, ret_attributes, &own);
	unlock(c);
	return r;
}

int cached_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct node *node;
	struct own own;
	int r;

	lock(c);
	begin_change(c, ctx, &own);
	r = workspace_symlink(ctx, c->inner, target, path, ret_attributes);
	node = made(c, ctx, path, r, ret_attributes, &own);
	if (node && !node->link_target)
		node->link_target = strdup(target);
	unlock(c);
	return r;
}

int cached_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct own own;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	lock(c);
	cached_apply_all_deferred(c, ctx);
	begin_change(c, ctx, &own);
	r = workspace_link(ctx, c->inner, &inner, path, ret_attributes);
	made(c, ctx, path, r, ret_attributes, &own);
	c->links_epoch++;
	if (r == 0 && !object->file) {
		struct node *node = tree_find(c, object->path, strlen(object->path));

		own.facts.object = *ret_attributes;
		if (node)
			cached_own_object(c, node, &own);
	}
	unlock(c);
	return r;
}

/* ---- Removing and moving ------------------------------------------------------------------ */

static int removed(
	struct cached *c, struct op_context *ctx, const char *path, int r, struct own *own)
{
	end_change(c, ctx, own);
	if (r == 0)
		cached_own_absent(c, path, own);
	else if (path_misses_object(r) || r == -EISDIR)
		cached_own_unknown(c, path, own);
	if (r == -ESTALE)
		cached_doubt_parent(c, path);
	unlock(c);
	return r;
}

int cached_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	struct cached *c = cached_of(w);
	struct own own;
	int r;

	lock(c);
	cached_hold_open(c, ctx, path);
	begin_change(c, ctx, &own);
	r = workspace_unlink(ctx, c->inner, path, expected);
	return removed(c, ctx, path, r, &own);
}

int cached_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	struct cached *c = cached_of(w);
	struct own own;
	int r;

	lock(c);
	begin_change(c, ctx, &own);
	r = workspace_rmdir(ctx, c->inner, path, expected);
	return removed(c, ctx, path, r, &own);
}

int cached_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	struct cached *c = cached_of(w);
	struct moved moved;
	struct own own;
	int r;

	lock(c);
	if (!(flags & RENAME_SWAP))
		cached_hold_open(c, ctx, to);
	cached_begin_move(c, from, to, &moved);
	begin_change(c, ctx, &own);
	r = workspace_rename(ctx, c->inner, from, to, flags, expected);
	end_change(c, ctx, &own);
	cached_end_move(c, from);
	if (r == 0 && !(flags & (RENAME_SWAP | RENAME_LEAVE_WHITEOUT)) && strcmp(from, to) != 0) {
		cached_own_moved(c, from, to, &moved, &own);
	} else if (r == 0 || path_misses_object(r) || r == -EEXIST || r == -ENOTEMPTY) {
		cached_own_names(c, from, to, &own);
	} else {
		cached_own_unknown(c, to, &own);
	}
	if (r == -ESTALE) {
		cached_doubt_parent(c, from);
		cached_doubt_parent(c, to);
	}
	unlock(c);
	return r;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

/* The node that the object means, if it is still that object. */
static struct node *node_of(struct cached *c, const struct object_ref *object)
{
	struct node *node = object->file ? cached_file_of(object->file)->node
					 : tree_find(c, object->path, strlen(object->path));

	if (!node || node->state != NODE_PRESENT || is_other(node, &object->id))
		return NULL;
	return node;
}

int cached_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct node *node;
	struct own own;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	lock(c);
	node = node_of(c, object);
	if (node && cached_defer(c, ctx, node, mask, want, ret_attributes)) {
		unlock(c);
		return 0;
	}
	cached_apply_all_deferred(c, ctx);
	node = node_of(c, object);
	if (node && (mask & SET_SIZE))
		node->write_count++;
	begin_change(c, ctx, &own);
	r = workspace_setattr(ctx, c->inner, &inner, mask, want, ret_attributes);
	end_change(c, ctx, &own);
	node = node_of(c, object);
	if (node && r == 0)
		cached_own_attributes(c, node, mask, ret_attributes, &own);
	else if (r == 0 && !object->file)
		cached_own_done(c, object->path, own.learnt.at);
	else if (path_misses_object(r))
		cached_own_unknown(c, object->path, &own);
	unlock(c);
	return r;
}

/* ---- xattrs -------------------------------------------------------------------------------------
 */

/* What is known without asking: the knowledge belongs to a version of the attributes. */
static enum xattr_knowledge known_xattrs(
	struct cached *c, struct op_context *ctx, const struct object_ref *object)
{
	struct node *node = NULL;

	if (!object->file && cached_resolve(c, ctx, object->path, false, &node) < 0)
		return XATTRS_UNKNOWN;
	node = node_of(c, object);
	return node ? node->xattrs : XATTRS_UNKNOWN;
}

/* Asks for the names; most objects have none, and then never need to be asked again. */
static ssize_t ask_names(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	const struct object_ref *inner, char *names, size_t size)
{
	struct learnt learnt = begin(c, ctx);
	ssize_t r = workspace_listxattr(ctx, c->inner, inner, names, size);
	struct node *node;

	end(c, ctx, &learnt);
	node = node_of(c, object);
	if (r == 0 && node && node->changed_at <= learnt.asked)
		node->xattrs = XATTRS_NONE;
	else if (r == -ESTALE && node)
		node_set_doubtful(c, node);
	return r;
}

ssize_t cached_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	struct cached *c = cached_of(w);
	enum xattr_knowledge known;
	struct object_ref inner;
	int r;

	lock(c);
	known = known_xattrs(c, ctx, object);
	if (known == XATTRS_NONE ||
		(known == XATTRS_NO_CAPABILITY && strcmp(name, "security.capability") == 0))
		return answer(c, ctx, -ENODATA, 0);
	unlock(c);
	r = cached_inner_object(ctx, object, &inner);
	if (r < 0)
		return r;
	if (known == XATTRS_UNKNOWN) {
		ssize_t names;

		lock(c);
		names = ask_names(c, ctx, object, &inner, NULL, 0);
		unlock(c);
		if (names == 0)
			return -ENODATA;
	}
	return workspace_getxattr(ctx, c->inner, &inner, name, value, size);
}

ssize_t cached_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	ssize_t r;

	lock(c);
	if (known_xattrs(c, ctx, object) == XATTRS_NONE)
		return answer(c, ctx, 0, 0);
	unlock(c);
	r = cached_inner_object(ctx, object, &inner);
	if (r < 0)
		return r;
	lock(c);
	r = ask_names(c, ctx, object, &inner, names, size);
	unlock(c);
	return r;
}

static void xattrs_changed(
	struct cached *c, struct op_context *ctx, const struct object_ref *object, struct own *own)
{
	struct node *node;

	end_change(c, ctx, own);
	node = node_of(c, object);
	if (node) {
		node->xattrs = XATTRS_UNKNOWN;
		cached_own_object(c, node, own);
	} else if (!object->file) {
		cached_own_done(c, object->path, own->learnt.at);
	}
	unlock(c);
}

int cached_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct own own;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	lock(c);
	cached_apply_all_deferred(c, ctx);
	begin_change(c, ctx, &own);
	r = workspace_setxattr(ctx, c->inner, &inner, name, value, size, flags);
	xattrs_changed(c, ctx, object, &own);
	return r;
}

int cached_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct own own;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	lock(c);
	cached_apply_all_deferred(c, ctx);
	begin_change(c, ctx, &own);
	r = workspace_removexattr(ctx, c->inner, &inner, name);
	xattrs_changed(c, ctx, object, &own);
	return r;
}
