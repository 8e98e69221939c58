/* Operations on names: which are deferred, and which go to the inner workspace directly. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum { SPECIAL_BITS = 07000 };

/* ---- Looks --------------------------- */

/* The caller means another directory than the one with the pending name. */
static bool is_elsewhere(struct writeback *b, const struct object_ref *object)
{
	const struct directory *directory =
		back_directory(b, object->path, path_parent_length(object->path));

	return object->parent.inode && directory && directory->id.inode &&
	       !object_id_equal(&directory->id, &object->parent);
}

/* 1: pending operations have the object, as `*ret_node`; 0: they do not concern it; -errno. */
static int find_pending(
	struct writeback *b, const struct object_ref *object, struct node **ret_node)
{
	struct node *node = object->id.inode ? back_node(b, &object->id) : NULL;
	int r = back_resolve(b, object->path, ret_node);

	if (r != 0 && is_elsewhere(b, object))
		return -ESTALE;
	if (r > 0 && object->id.inode && !object_id_equal(&(*ret_node)->id, &object->id))
		return -ESTALE;
	if (r != 0)
		return r;
	if (node && (node->is_gone || !node->real.inode))
		return -ESTALE;
	*ret_node = node;
	return node && node->pending ? 1 : 0;
}

/* 0: `object` as the inner workspace knows it; 1: `*ret_node` is the pending object. */
int back_find(struct writeback *b, const struct object_ref *object, struct object_ref *ret_inner,
	struct node **ret_node)
{
	int r = find_pending(b, object, ret_node);

	*ret_inner = *object;
	if (r == 0) {
		ret_inner->id = back_real(b, &object->id);
		ret_inner->parent = back_real(b, &object->parent);
		ret_inner->expected = back_real(b, &object->expected);
	}
	return r;
}

void back_answered(struct writeback *b, struct op_context *ctx)
{
	ctx->served.position = b->position;
	ctx->served.from_cache = true;
	if (ctx->facts)
		*ctx->facts = (struct facts){0};
}

/* No operation on the path is pending, or has ended since the reader began.  Otherwise the answer
 * of the workspace may be from before or after that operation. */
static bool is_settled(
	struct writeback *b, const struct object_ref *object, const struct reader *reader)
{
	struct object_ref inner;
	struct node *node;

	return back_find(b, object, &inner, &node) == 0 &&
	       !back_was_pending(b, object->path, reader);
}

/* Asks the workspace for an object without pending operations.  1: ask again. */
static int look_inside(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const struct object_ref *inner, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct reader reader;
	int r;

	back_reader_begin(b, &reader);
	writeback_unlock(b);
	r = forward_getattr(ctx, w, inner, ret_attributes);
	writeback_lock(b);
	back_saw(b, ctx->served.position);
	if (!is_settled(b, object, &reader))
		r = 1;
	back_reader_end(b, &reader);
	if (r == 0 && S_ISDIR(ret_attributes->mode)) {
		back_keep_directory(b, object->path, ret_attributes, ctx->served.position);
		back_meet(b, ctx, object->path, ret_attributes);
	}
	if (r == 0) {
		back_forget_removal(b, object->path);
		back_show(b, object->path, ret_attributes);
	}
	return r;
}

/* Answers from pending operations.  1: ask the workspace, for `*ret_inner`. */
static int answer_here(struct writeback *b, const struct object_ref *object,
	struct object_ref *ret_inner, struct attributes *ret_attributes)
{
	struct node *node;
	int r = back_find(b, object, ret_inner, &node);

	if (r == 0)
		return !back_directory_known(b, object, ret_attributes);
	if (r > 0)
		*ret_attributes = back_node_shown(b, node, object->path);
	return r > 0 ? 0 : r;
}

int back_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;
	bool is_here;
	int r;

	if (object->file)
		return back_file_getattr(ctx, back_file_of(object->file), ret_attributes);
	writeback_lock(b);
	do {
		r = answer_here(b, object, &inner, ret_attributes);
		is_here = r <= 0;
		if (!is_here && op_interrupted(ctx))
			r = -EINTR;
		else if (!is_here)
			r = look_inside(ctx, w, object, &inner, ret_attributes);
	} while (r > 0);
	if (is_here)
		back_answered(b, ctx);
	writeback_unlock(b);
	return r;
}

int back_look(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *id, struct attributes *ret_attributes)
{
	struct op_context own = *ctx;
	int r;

	own.facts = NULL;
	own.served.round_trips = 0;
	own.parent = own.new_parent = (struct object_id){0};
	r = back_getattr(&own, w, &OBJECT_AT(path), ret_attributes);
	ctx->served.round_trips += own.served.round_trips;
	if (r == 0 && id->inode && !object_id_equal(id, &ret_attributes->id))
		r = -ESTALE;
	return r;
}

static int look_at_parent(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *id, struct attributes *ret_attributes)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	int r = parent ? back_look(ctx, w, parent, id, ret_attributes) : -ENOMEM;

	if (r == 0 && S_ISLNK(ret_attributes->mode))
		r = -ELOOP;
	if (r == 0 && !S_ISDIR(ret_attributes->mode))
		r = -ENOTDIR;
	return id->inode && path_misses_object(r) ? -ESTALE : r;
}

/* ---- Passing on --------------------------- */

void back_pass_begin(struct writeback *b, struct op_context *ctx, struct passage *passage)
{
	*passage = (struct passage){.parent = ctx->parent, .new_parent = ctx->new_parent};
	ctx->parent = back_real(b, &ctx->parent);
	ctx->new_parent = back_real(b, &ctx->new_parent);
}

void back_pass_end(struct writeback *b, struct op_context *ctx, const struct passage *passage)
{
	ctx->parent = passage->parent;
	ctx->new_parent = passage->new_parent;
	back_saw(b, ctx->served.position);
	if (!ctx->facts)
		return;
	if (ctx->facts->parent.mode)
		back_show(b, NULL, &ctx->facts->parent);
	if (ctx->facts->new_parent.mode)
		back_show(b, NULL, &ctx->facts->new_parent);
	if (ctx->facts->object.mode)
		back_show(b, NULL, &ctx->facts->object);
}

struct object_ref back_pass_object(struct writeback *b, const struct object_ref *object)
{
	struct object_ref inner = *object;

	inner.id = back_real(b, &object->id);
	inner.parent = back_real(b, &object->parent);
	inner.expected = back_real(b, &object->expected);
	return inner;
}

/* ---- What may be answered before it is done --------------------------- */

/* Predicts the attributes of a new object.  Under the lock. */
static void will_be_made(struct writeback *b, const struct op_context *ctx,
	const struct attributes *parent, uint32_t mode, struct attributes *ret_made)
{
	const struct identity *identity = back_identity(b, ctx);
	struct timespec now = back_now(b);

	*ret_made = (struct attributes){.id = back_new_id(b),
		.mode = mode,
		.nlink = S_ISDIR(mode) ? 2 : 1,
		.uid = identity->makes_uid,
		.gid = parent->mode & S_ISGID ? parent->gid : identity->makes_gid,
		.block_size_bytes = parent->block_size_bytes,
		.atime = now,
		.mtime = now,
		.ctime = now};
	if (S_ISDIR(mode)) {
		ret_made->size_bytes = 4096;
		ret_made->blocks = 8;
		ret_made->mode |= parent->mode & S_ISGID;
	}
}

/* 1: the creation may be deferred; 0: it may not; -EEXIST and the like. */
static int may_make(struct op_context *ctx, struct workspace *w, uint64_t moves, const char *path,
	uint32_t mode, struct attributes *ret_parent)
{
	struct writeback *b = writeback_of(w);
	struct attributes there;
	int r;

	writeback_lock(b);
	r = back_defers(b, ctx, moves) ? back_await_room(b, ctx) : 1;
	writeback_unlock(b);
	if (r != 0)
		return r < 0 ? r : 0;
	if (mode & SPECIAL_BITS)
		return 0;
	r = look_at_parent(ctx, w, path, &ctx->parent, ret_parent);
	if (r < 0)
		return r;
	r = back_look(ctx, w, path, &(struct object_id){0}, &there);
	if (r != -ENOENT)
		return r == 0 ? -EEXIST : r;
	return !back_inherits(ctx, w, path, ret_parent);
}

/* Enters an operation that creates an object.  -EEXIST: the name exists by now; other errors: do
 * not defer it. */
static int enter_made(struct writeback *b, struct op_context *ctx, struct operation *operation,
	uint64_t moves, const struct attributes *parent, uint32_t mode,
	struct attributes *ret_attributes)
{
	struct node *there;
	int r = back_resolve(b, operation->path, &there);

	if (r > 0)
		return -EEXIST;
	if (!back_defers(b, ctx, moves))
		return -EAGAIN;
	operation->facts.parent = parent->id;
	operation->facts.mode = mode & 07777;
	will_be_made(b, ctx, parent, mode, &operation->facts.shown);
	if (S_ISLNK(mode))
		operation->facts.shown.size_bytes = strlen(operation->path2);
	operation->is_held = operation->facts.kind == OP_CREATE;
	r = back_enter(b, operation, false);
	if (r < 0)
		return r;
	back_remember_parent(b, operation->path, parent, 1);
	if (operation->is_held) {
		operation->node->handles++;
		operation->node->writers++;
	}
	*ret_attributes = back_node_shown(b, operation->node, operation->path);
	back_answered(b, ctx);
	return 0;
}

int back_make(struct op_context *ctx, struct workspace *w, enum operation_kind kind,
	const char *path, const char *target, uint32_t mode, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct operation *operation;
	struct attributes parent;
	uint64_t moves = writeback_moves(b);
	int r = strlen(path_name(path)) > PATH_NAME_MAX_BYTES
			? -ENAMETOOLONG
			: may_make(ctx, w, moves, path, mode, &parent);

	if (r <= 0)
		return r < 0 ? r : 1;
	operation = back_operation_new(ctx, kind, path, target);
	if (!operation)
		return -ENOMEM;
	writeback_lock(b);
	r = enter_made(b, ctx, operation, moves, &parent, mode, ret_attributes);
	writeback_unlock(b);
	if (r < 0)
		back_operation_free(operation);
	return r < 0 && r != -EEXIST ? 1 : r;
}

void back_learn_time(
	struct writeback *b, const struct op_context *ctx, const struct attributes *changed)
{
	if (!ctx->served.is_async)
		back_learn_clock(b, &changed->ctime);
}

/* Learns from a new object which owner and group the workspace gives to new objects. */
void back_learn(struct writeback *b, const struct op_context *ctx, int r, struct attributes *made)
{
	if (r < 0)
		return;
	back_learn_time(b, ctx, made);
	if (!(made->mode & S_ISGID))
		back_learn_identity(b, ctx, made);
	back_show(b, NULL, made);
}

int back_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	int r = back_make(ctx, w, OP_MKDIR, path, NULL, S_IFDIR | (mode & 07777 & ~ctx->umask),
		ret_attributes);

	if (r <= 0)
		return r;
	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, path, NULL, NULL, false, NOTHING,
		forward_mkdir(ctx, w, path, mode, ret_attributes));
	back_learn(b, ctx, r, ret_attributes);
	writeback_unlock(b);
	return r;
}

int back_symlink(struct op_context *ctx, struct workspace *w, const char *target, const char *path,
	struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	int r = back_make(ctx, w, OP_SYMLINK, path, target, S_IFLNK | 0777, ret_attributes);

	if (r <= 0)
		return r;
	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, path, NULL, NULL, false, NOTHING,
		forward_symlink(ctx, w, target, path, ret_attributes));
	back_learn(b, ctx, r, ret_attributes);
	writeback_unlock(b);
	return r;
}

int back_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	int r;

	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, path, NULL, NULL, false, NOTHING,
		forward_mknod(ctx, w, path, mode, rdev, ret_attributes));
	if (r == 0)
		back_show(b, path, ret_attributes);
	writeback_unlock(b);
	return r;
}

int back_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file = object->file ? back_file_of(object->file) : NULL;
	struct object_id id = file && file->node ? file->node->id : object->id;
	struct object_ref inner;
	int r = file ? back_inner_open(ctx, file) : 0;

	if (r < 0)
		return r;
	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, file ? NULL : object->path, path, &id, false,
		inner = back_pass_object(b, object),
		forward_link(ctx, w, &inner, path, ret_attributes));
	if (r == 0)
		back_show(b, path, ret_attributes);
	writeback_unlock(b);
	return r;
}

/* ---- Removing --------------------------- */

/* The object has one name, is not open, and its state at the workspace is known. */
bool back_is_simple(struct writeback *b, const struct attributes *there)
{
	const struct node *node = back_node(b, &there->id);

	if (!S_ISDIR(there->mode) && there->nlink != 1)
		return false;
	return !node || (!node->handles && !node->inner_handles && !node->is_gone && !node->error);
}

/* What the workspace must have when the operation is applied: the state after the pending
 * operations, or the one that was just found. */
void back_expect(struct writeback *b, const struct attributes *there, struct attributes *ret_known)
{
	const struct node *node = back_node(b, &there->id);

	if (node && (node->pending || back_is_as_shown(node, there)))
		*ret_known = node->settled;
	else
		*ret_known = *there;
	ret_known->id = back_real(b, &there->id);
}

/* Cancels the creation of an object that is removed before it was sent. */
static bool cancel_made(struct writeback *b, const char *path, const struct attributes *there)
{
	struct operation *operation;
	struct node *node = back_node(b, &there->id);

	if (!node || node->pending != 1 || node->real.inode)
		return false;
	operation = node->last;
	if (!operation || operation->is_started || strcmp(operation->path, path) != 0)
		return false;
	if (operation->facts.kind == OP_MKDIR && !back_is_alone(b, path, operation))
		return false;
	if (operation->facts.kind != OP_MKDIR && operation->facts.kind != OP_CREATE &&
		operation->facts.kind != OP_SYMLINK)
		return false;
	back_cancel(b, operation);
	return true;
}

/* 1: the removal is not deferred. */
static int enter_removal(struct writeback *b, struct op_context *ctx, enum operation_kind kind,
	uint64_t moves, const char *path, const struct attributes *parent,
	const struct attributes *there)
{
	struct operation *operation;
	int r;

	if (!back_defers(b, ctx, moves) || !back_is_simple(b, there))
		return 1;
	if (cancel_made(b, path, there)) {
		back_answered(b, ctx);
		return 0;
	}
	operation = back_operation_new(ctx, kind, path, NULL);
	if (!operation)
		return -ENOMEM;
	operation->facts.parent = parent->id;
	operation->facts.shown = *there;
	back_expect(b, there, &operation->facts.known);
	r = back_enter(b, operation, false);
	if (r < 0) {
		back_operation_free(operation);
		return 1;
	}
	back_remember_parent(b, path, parent, 1);
	back_answered(b, ctx);
	return 0;
}

/* Waits for room, and finds the object and its parent. */
static int look_before_removal(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected, struct attributes *ret_there,
	struct attributes *ret_parent)
{
	int r = back_find_room(writeback_of(w), ctx);

	if (r == 0)
		r = look_at_parent(ctx, w, path, &ctx->parent, ret_parent);
	return r < 0 ? r : back_look(ctx, w, path, expected, ret_there);
}

int back_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	struct writeback *b = writeback_of(w);
	struct attributes there, parent;
	struct object_id id;
	uint64_t moves = writeback_moves(b);
	int r = look_before_removal(ctx, w, path, expected, &there, &parent);

	if (r == 0 && S_ISDIR(there.mode))
		r = -EISDIR;
	if (r < 0)
		return r;
	writeback_lock(b);
	r = enter_removal(b, ctx, OP_UNLINK, moves, path, &parent, &there);
	if (r > 0)
		PASS_IN_TURN(b, ctx, r, path, NULL, &there.id, false, id = back_real(b, expected),
			forward_unlink(ctx, w, path, &id));
	writeback_unlock(b);
	return r;
}

static int not_empty(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return -ENOTEMPTY;
}

int back_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	struct writeback *b = writeback_of(w);
	struct op_context own = *ctx;
	struct attributes there, parent;
	struct object_id id;
	uint64_t since, moves = writeback_moves(b);
	int r = look_before_removal(ctx, w, path, expected, &there, &parent);

	own.facts = NULL;
	if (r == 0 && !S_ISDIR(there.mode))
		r = -ENOTDIR;
	if (r == 0)
		r = back_readdir(&own, w, &(struct object_ref){.path = path, .id = there.id}, false,
			not_empty, NULL, &since);
	if (r < 0)
		return r;
	writeback_lock(b);
	r = enter_removal(b, ctx, OP_RMDIR, moves, path, &parent, &there);
	if (r > 0)
		PASS_IN_TURN(b, ctx, r, path, NULL, &there.id, false, id = back_real(b, expected),
			forward_rmdir(ctx, w, path, &id));
	writeback_unlock(b);
	return r;
}

/* ---- Renaming --------------------------- */

struct renaming {
	const char *from, *to;
	struct attributes moved, target; /* mode 0: nothing is there */
	struct attributes from_parent, to_parent;
	uint64_t moves;
};

/* 1: the rename must not be deferred; 0: it may be. */
static int judge_rename(struct op_context *ctx, struct workspace *w, unsigned flags,
	const struct object_id *expected, struct renaming *renaming)
{
	int r = look_at_parent(ctx, w, renaming->from, &ctx->parent, &renaming->from_parent);

	if (r == 0)
		r = back_look(ctx, w, renaming->from, expected, &renaming->moved);
	if (r == 0)
		r = look_at_parent(ctx, w, renaming->to, &ctx->new_parent, &renaming->to_parent);
	if (r < 0)
		return r;
	r = back_look(ctx, w, renaming->to, &(struct object_id){0}, &renaming->target);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && (flags & RENAME_KEEP_TARGET))
		return -EEXIST;
	return S_ISDIR(renaming->moved.mode) || S_ISDIR(renaming->target.mode) ||
	       object_id_equal(&renaming->moved.id, &renaming->target.id);
}

static int enter_rename(
	struct writeback *b, struct op_context *ctx, const struct renaming *renaming)
{
	bool replaces = renaming->target.mode;
	struct operation *operation;
	struct operation_facts *facts;
	unsigned names;
	int r;

	if (!back_defers(b, ctx, renaming->moves) || !back_is_simple(b, &renaming->moved) ||
		(replaces && !back_is_simple(b, &renaming->target)))
		return 1;
	operation = back_operation_new(ctx, OP_RENAME, renaming->from, renaming->to);
	if (!operation)
		return -ENOMEM;
	facts = &operation->facts;
	facts->parent = renaming->from_parent.id;
	facts->new_parent = renaming->to_parent.id;
	facts->shown = renaming->moved;
	facts->shown.ctime = back_now(b);
	back_expect(b, &renaming->moved, &facts->known);
	if (replaces) {
		facts->replaced_id = renaming->target.id;
		back_expect(b, &renaming->target, &facts->replaced);
	}
	r = back_enter(b, operation, false);
	if (r < 0) {
		back_operation_free(operation);
		return 1;
	}
	names = object_id_equal(&facts->parent, &facts->new_parent) ? 2 : 1;
	back_remember_parent(b, renaming->from, &renaming->from_parent, names);
	back_remember_parent(b, renaming->to, &renaming->to_parent, names);
	back_answered(b, ctx);
	return 0;
}

int back_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	struct writeback *b = writeback_of(w);
	struct renaming renaming = {.from = from, .to = to, .moves = writeback_moves(b)};
	const struct object_id *moved = NULL;
	struct object_id id;
	bool all;
	int r = back_find_room(b, ctx);

	if (r == 0)
		r = flags & (RENAME_SWAP | RENAME_LEAVE_WHITEOUT)
			    ? 1
			    : judge_rename(ctx, w, flags, expected, &renaming);
	if (r < 0)
		return r;
	all = r > 0; /* a directory moves what is below it, too */
	if (renaming.moved.mode)
		moved = &renaming.moved.id;
	writeback_lock(b);
	if (r == 0)
		r = enter_rename(b, ctx, &renaming);
	if (r > 0)
		PASS_IN_TURN(b, ctx, r, from, to, moved, all, id = back_real(b, expected),
			forward_rename(ctx, w, from, to, flags, &id));
	writeback_unlock(b);
	return r;
}
