/* Extended attributes: the cache knows of objects that have none, and of files without
 * capabilities. */
#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <string.h>

/* What is known without asking, for the present state of the object. */
static enum xattr_knowledge known_xattrs(
	struct cached *c, struct op_context *ctx, const struct object_ref *object)
{
	struct found found;
	struct object_id id;

	if (!object->file && cached_resolve(c, ctx, object->path, &found, NULL) < 0)
		return XATTRS_UNKNOWN;
	id = object->file ? cached_file_of(object->file)->extra->id : found.id;
	/* Reads the tree, not cached_get_attributes(): own unflushed writes add no xattrs. */
	if ((object->id.inode && !object_id_equal(&id, &object->id)) ||
		tree_get_attributes(c->tree, &id, cached_now_ms(), NULL) == TREE_ASK)
		return XATTRS_UNKNOWN;
	return tree_mark(c->tree, &id) & MARK_XATTRS;
}

static void set_xattrs(struct cached *c, const struct object_id *id, enum xattr_knowledge known)
{
	tree_set_mark(c->tree, id, (tree_mark(c->tree, id) & MARK_READ) | known);
}

/* Asks for the names of all xattrs.  If there are none, the cache answers later requests. */
static ssize_t ask_names(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	const struct object_ref *inner, char *names, size_t size)
{
	const struct object_id id = cached_object_of(c, object);
	uint64_t state = tree_state(c->tree, &id);
	bool is_certain = object->file || object->id.inode;
	struct asking asking;
	ssize_t r;

	cached_ask(c, ctx, &asking);
	r = workspace_listxattr(ctx, c->base.inner, inner, names, size);
	cached_end_asking(c, ctx, &asking);
	if (r == 0 && is_certain && state && tree_state(c->tree, &id) == state)
		set_xattrs(c, &id, XATTRS_NONE);
	else if (path_misses_object((int)r) && !object->file)
		cached_invalidate(c, asking.look.at, &object->parent, object->path);
	return r;
}

ssize_t cached_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	struct cached *c = cached_of(w);
	/* The kernel asks for it before each write. */
	const bool is_capability = strcmp(name, "security.capability") == 0;
	enum xattr_knowledge known;
	struct object_ref inner;
	struct object_id id;
	struct extra *x;
	bool asks_names;
	int r;

	cached_enter(c);
	id = cached_object_of(c, object);
	if (is_capability && cached_find_async(c, &id)) /* just created here */
		return cached_answer(c, ctx, -ENODATA);
	cached_await_object(c, ctx, object);
	known = known_xattrs(c, ctx, object);
	if (known == XATTRS_NONE || (known == XATTRS_NO_CAPABILITY && is_capability))
		return cached_answer(c, ctx, -ENODATA);
	x = extra_find(c, &id);
	/* Of what is open by the handle that created it the inner workspace knows it, and all
	 * names would not be known for longer than until the next write. */
	asks_names = known == XATTRS_UNKNOWN && !(is_capability && x && cached_creator_of(x));
	cached_leave(c);
	r = cached_inner_object(ctx, object, &inner);
	if (r < 0)
		return r;
	if (asks_names) {
		ssize_t names;

		cached_enter(c);
		names = ask_names(c, ctx, object, &inner, NULL, 0);
		cached_leave(c);
		if (names == 0)
			return -ENODATA;
	}
	return workspace_getxattr(ctx, c->base.inner, &inner, name, value, size);
}

ssize_t cached_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	ssize_t r;

	cached_enter(c);
	cached_await_object(c, ctx, object);
	if (known_xattrs(c, ctx, object) == XATTRS_NONE)
		return cached_answer(c, ctx, 0);
	cached_leave(c);
	r = cached_inner_object(ctx, object, &inner);
	if (r < 0)
		return r;
	cached_enter(c);
	r = ask_names(c, ctx, object, &inner, names, size);
	cached_leave(c);
	return r;
}

/* Sets the attribute, or removes it. */
static int change_xattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, const void *value, size_t size,
	unsigned flags, bool is_removal)
{
	struct cached *c = cached_of(w);
	struct object_ref inner;
	struct asking asking;
	struct object_id id;
	int r = cached_inner_object(ctx, object, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	cached_await_object(c, ctx, object);
	cached_apply_all_deferred(c, ctx);
	cached_begin_change(c, ctx, &asking);
	r = is_removal ? workspace_removexattr(ctx, c->base.inner, &inner, name)
		       : workspace_setxattr(ctx, c->base.inner, &inner, name, value, size, flags);
	cached_end_asking(c, ctx, &asking);
	id = asking.outcome->object.mode ? asking.outcome->object.id : cached_object_of(c, object);
	set_xattrs(c, &id, XATTRS_UNKNOWN);
	cached_changed(c, &asking, &id, &asking.outcome->object, FROM_CHANGE);
	cached_leave(c);
	return r;
}

int cached_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	return change_xattr(ctx, w, object, name, value, size, flags, false);
}

int cached_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	return change_xattr(ctx, w, object, name, NULL, 0, 0, true);
}
