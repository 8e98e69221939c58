/* Attributes, targets of links and extended attributes. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SPECIAL_BITS = 07000 };

/* ---- Attributes --------------------------- */

static void change(struct attributes *attributes, unsigned mask, const struct attributes *want)
{
	if (mask & SET_MODE)
		attributes->mode = (attributes->mode & ~07777u) | (want->mode & 07777);
	if (mask & SET_ATIME)
		attributes->atime = want->atime;
	if (mask & SET_MTIME)
		attributes->mtime = want->mtime;
}

/* False for changes that the workspace may refuse, or that have side effects there: those are not
 * deferred. */
bool back_may_set(const struct op_context *ctx, const struct attributes *there, unsigned mask,
	const struct attributes *want)
{
	if ((mask & SET_UID && want->uid != there->uid) ||
		(mask & SET_GID && want->gid != there->gid))
		return false;
	if (ctx->uid != 0 && ctx->uid != there->uid)
		return false;
	return !(mask & SET_MODE && want->mode & SPECIAL_BITS) && !(there->mode & SPECIAL_BITS) &&
	       !(mask & SET_SIZE) && !S_ISLNK(there->mode) &&
	       (S_ISDIR(there->mode) || there->nlink == 1);
}

/* Replaces "now" by the present time of the workspace. */
static unsigned fix_times(struct writeback *b, unsigned mask, struct attributes *want)
{
	struct timespec now = back_now(b);

	if (mask & SET_ATIME_NOW) {
		want->atime = now;
		mask = (mask & ~(unsigned)SET_ATIME_NOW) | SET_ATIME;
	}
	if (mask & SET_MTIME_NOW) {
		want->mtime = now;
		mask = (mask & ~(unsigned)SET_MTIME_NOW) | SET_MTIME;
	}
	return mask & ~(unsigned)(SET_UID | SET_GID);
}

static int enter_setattr(struct writeback *b, struct op_context *ctx, const char *path,
	const struct attributes *there, unsigned mask, const struct attributes *want)
{
	struct operation *operation = back_operation_new(ctx, OP_SETATTR, path, NULL);
	int r;

	if (!operation)
		return -ENOMEM;
	operation->facts.mask = mask;
	operation->facts.want = *want;
	operation->facts.shown = *there;
	back_expect(b, there, &operation->facts.known);
	change(&operation->facts.shown, mask, want);
	operation->facts.shown.ctime = back_now(b);
	r = back_enter(b, operation, false);
	if (r < 0)
		back_operation_free(operation);
	return r;
}

/* The change of mode affects who may search the directory, so it must keep its order with
 * operations below it. */
static bool bars_the_way(
	const struct attributes *there, unsigned mask, const struct attributes *want)
{
	return S_ISDIR(there->mode) && (mask & SET_MODE) &&
	       ((there->mode & ~want->mode & 0111) || (~there->mode & want->mode & S_IXUSR));
}

/* The change can be one of the content that is pending, or needs a new operation to be. */
static bool takes_change(struct writeback *b, struct op_context *ctx,
	const struct object_ref *object, struct node *node, unsigned mask)
{
	if (node->content && !node->content->is_started)
		return true;
	return (object->file || (mask & SET_SIZE)) && back_content_take(b, ctx, node, false);
}

/* 1: to be passed on. */
static int defer_setattr(struct writeback *b, struct op_context *ctx,
	const struct object_ref *object, uint64_t moves, const struct attributes *there,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct node *node = back_node(b, &there->id);
	struct attributes fixed = *want;
	int r = 1;

	if (!back_defers(b, ctx, moves) || (node && (node->is_gone || node->error)) ||
		bars_the_way(there, mask, want))
		return 1;
	if (!(mask & ~(unsigned)(SET_UID | SET_GID)) && back_may_set(ctx, there, mask, want)) {
		*ret_attributes = *there;
		back_answered(b, ctx);
		return 0;
	}
	if (node && node->data && back_may_set(ctx, there, mask & ~(unsigned)SET_SIZE, want) &&
		takes_change(b, ctx, object, node, mask)) {
		mask = fix_times(b, mask, &fixed);
		r = back_merge(b, node, mask, &fixed);
	} else if (!object->file && *object->path && back_may_set(ctx, there, mask, want) &&
		   !(node && node->inner_handles)) {
		mask = fix_times(b, mask, &fixed);
		r = enter_setattr(b, ctx, object->path, there, mask, &fixed);
		node = back_node(b, &there->id);
	}
	if (r != 0)
		return 1;
	*ret_attributes = back_node_shown(b, node, object->file ? NULL : object->path);
	back_answered(b, ctx);
	return 0;
}

int back_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file = object->file ? back_file_of(object->file) : NULL;
	struct op_context own = *ctx;
	struct attributes there;
	struct object_ref inner;
	uint64_t moves = writeback_moves(b);
	int r = back_find_room(b, ctx);

	own.facts = NULL;
	if (r == 0)
		r = back_getattr(&own, w, object, &there);
	if (r < 0)
		return r;
	writeback_lock(b);
	r = defer_setattr(b, ctx, object, moves, &there, mask, want, ret_attributes);
	if (r > 0 && S_ISREG(there.mode) && back_await_away(b, ctx, &there.id))
		r = defer_setattr(b, ctx, object, moves, &there, mask, want, ret_attributes);
	writeback_unlock(b);
	if (r <= 0)
		return r;
	r = file ? back_inner_open(ctx, file) : 0;
	if (r < 0)
		return r;
	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, S_ISDIR(there.mode) && !file ? object->path : NULL, NULL, &there.id,
		bars_the_way(&there, mask, want), inner = back_pass_object(b, object),
		forward_setattr(ctx, w, &inner, mask, want, ret_attributes));
	if (r == 0) {
		back_learn_time(b, ctx, ret_attributes);
		if (S_ISDIR(there.mode) && !file) /* a name in it may be pending by now */
			back_keep_directory(b, object->path, ret_attributes, ctx->served.position);
		back_show(b, file ? NULL : object->path, ret_attributes);
	}
	writeback_unlock(b);
	return r;
}

/* ---- Links, extended attributes and the rest --------------------------- */

int back_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	char **ret_target)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;
	struct node *node;
	int r;

	writeback_lock(b);
	r = back_find(b, object, &inner, &node);
	if (r > 0 && node->target) {
		*ret_target = strdup(node->target);
		back_answered(b, ctx);
		writeback_unlock(b);
		return *ret_target ? 0 : -ENOMEM;
	}
	if (r > 0 && !S_ISLNK(node->shown.mode))
		r = -EINVAL;
	else if (r > 0) {
		r = back_settle(b, ctx, &node->id);
		inner = back_pass_object(b, object);
	}
	writeback_unlock(b);
	if (r < 0)
		return r;
	r = forward_readlink(ctx, w, &inner, ret_target);
	writeback_lock(b);
	back_saw(b, ctx->served.position);
	writeback_unlock(b);
	return r;
}

/* Access lists are an aim of their own, as a pending change of the mode changes them. */
enum aim { TO_CHANGE, TO_LOOK, TO_LOOK_AT_ACCESS };

/* Waits for the pending operations on the object.  A look need not wait if the workspace has the
 * object under the same name, as pending operations do not change extended attributes.  1: the
 * object was made here and has none. */
static int settle_object(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, enum aim aim, struct object_ref *ret_inner)
{
	struct writeback *b = writeback_of(w);
	struct object_id id;
	struct node *node;
	bool is_new;
	int r;

	writeback_lock(b);
	r = aim == TO_CHANGE && b->journal.has_failed ? back_barrier(b, ctx) : 0;
	if (r < 0) {
		writeback_unlock(b);
		return r;
	}
	if (object->file) {
		*ret_inner = *object;
		node = back_file_of(object->file)->node;
		is_new = back_is_provisional(&node->id) && !node->is_extended && node->content;
		writeback_unlock(b);
		return aim != TO_CHANGE && is_new
			       ? 1
			       : back_inner_open(ctx, back_file_of(object->file));
	}
	r = back_find(b, object, ret_inner, &node);
	if (r > 0)
		*ret_inner = back_pass_object(b, object);
	if (r > 0 && aim == TO_LOOK && node->real.inode && !node->renames) {
		r = 0;
	} else if (r > 0 &&
		   !(aim != TO_CHANGE && back_is_provisional(&node->id) && !node->is_extended)) {
		id = node->id;
		r = back_settle(b, ctx, &id);
		*ret_inner = back_pass_object(b, object);
	}
	writeback_unlock(b);
	return r;
}

/* The kernel asks for it before each write.  A file whose content is replaced loses it. */
static bool will_have_no_capability(struct writeback *b, const struct object_ref *object)
{
	struct object_ref inner;
	struct node *node;
	bool is_rewritten;

	writeback_lock(b);
	is_rewritten = back_find(b, object, &inner, &node) > 0 && node->content;
	writeback_unlock(b);
	return is_rewritten;
}

ssize_t back_getxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, void *value, size_t size)
{
	struct object_ref inner;
	enum aim aim = strncmp(name, "system.posix_acl", 16) == 0 ? TO_LOOK_AT_ACCESS : TO_LOOK;
	int r;

	if (!object->file && strcmp(name, "security.capability") == 0 &&
		will_have_no_capability(writeback_of(w), object))
		return -ENODATA;
	r = settle_object(ctx, w, object, aim, &inner);
	if (r != 0)
		return r < 0 ? r : -ENODATA;
	return forward_getxattr(ctx, w, &inner, name, value, size);
}

ssize_t back_listxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	char *names, size_t size)
{
	struct object_ref inner;
	int r = settle_object(ctx, w, object, TO_LOOK, &inner);

	return r != 0 ? (r < 0 ? r : 0) : forward_listxattr(ctx, w, &inner, names, size);
}

static int after_setxattr(
	struct op_context *ctx, struct workspace *w, const struct object_ref *inner, int r)
{
	struct writeback *b = writeback_of(w);
	struct passage passage = {.parent = ctx->parent, .new_parent = ctx->new_parent};
	struct node *node;

	writeback_lock(b);
	node = inner->file ? back_file_of(inner->file)->node : back_real_node(b, &inner->id);
	if (node)
		node->is_extended = true;
	for (size_t i = 0; i < INHERITED_MAX; i++) /* it may have been a default access list */
		b->inherited[i].directory.inode = 0;
	back_pass_end(b, ctx, &passage);
	writeback_unlock(b);
	return r;
}

int back_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	struct object_ref inner;
	int r = settle_object(ctx, w, object, TO_CHANGE, &inner);

	if (r < 0)
		return r;
	r = forward_setxattr(ctx, w, &inner, name, value, size, flags);
	return after_setxattr(ctx, w, &inner, r);
}

int back_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	struct object_ref inner;
	int r = settle_object(ctx, w, object, TO_CHANGE, &inner);

	if (r < 0)
		return r;
	r = forward_removexattr(ctx, w, &inner, name);
	return after_setxattr(ctx, w, &inner, r);
}
