/* Applies pending operations to the inner workspace.  Changes that others made meanwhile are not
 * overwritten: every operation carries the ids that it expects, and a file that it removes,
 * replaces or rewrites must have the size and mtime that were known when the caller was answered,
 * which the workspace is asked for right before. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum { PIECE_BYTES = 256 << 10, ATTEMPTS_MAX = 3 };

/* Somebody else has changed the object first. */
enum { CONFLICT = -ESTALE };

static void context_of(
	struct writeback *b, const struct operation *operation, struct op_context *ret_ctx)
{
	const struct operation_facts *facts = &operation->facts;

	*ret_ctx = (struct op_context){.pid = facts->pid,
		.uid = facts->uid,
		.gid = facts->gid,
		.groups = (const gid_t *)facts->groups,
		.group_count = facts->group_count};
	writeback_lock(b);
	ret_ctx->parent = back_real(b, &facts->parent);
	ret_ctx->new_parent = back_real(b, &facts->new_parent);
	writeback_unlock(b);
}

/* -EAGAIN for errors after which the operation is tried again: the workspace is out of reach, or
 * the result is unknown.  If the link stays up, the error is final after ATTEMPTS_MAX attempts. */
static bool is_out_of_reach(int r)
{
	return r == -EIO || r == -ENOTCONN || r == -EINTR || r == -ETIMEDOUT || r == -ECONNRESET;
}

static int classify(struct writeback *b, struct operation *operation, int r)
{
	struct workspace_status status;

	if (!is_out_of_reach(r))
		return r;
	workspace_status(b->base.inner, &status);
	if (status.link != LINK_ONLINE || status.reconnects != operation->reconnects)
		operation->attempts = 0;
	else if (++operation->attempts >= ATTEMPTS_MAX)
		return r;
	operation->reconnects = status.reconnects;
	return -EAGAIN;
}

/* Compares the content, not the mode. */
static bool is_unchanged(const struct attributes *a, const struct attributes *b)
{
	if (!object_id_equal(&a->id, &b->id))
		return false;
	return S_ISDIR(a->mode) ||
	       (a->size_bytes == b->size_bytes && clock_same(&a->mtime, &b->mtime));
}

/* Records what the workspace has now. */
static void settle(struct writeback *b, struct op_context *ctx, struct node *node,
	const struct attributes *there)
{
	struct made_record made;

	writeback_lock(b);
	if (back_is_provisional(&node->id) && !object_id_equal(&node->real, &there->id)) {
		made = (struct made_record){.id = node->id, .real = there->id};
		back_journal_add(&b->journal, RECORD_MADE, 0, &made, sizeof(made), NULL, 0, NULL);
		back_node_made(b, node, &there->id);
	}
	node->settled = *there;
	if (ctx->served.position)
		node->settled_at = ctx->served.position;
	back_saw(b, ctx->served.position);
	writeback_unlock(b);
}

static struct attributes settled(struct writeback *b, const struct node *node)
{
	struct attributes attributes;

	writeback_lock(b);
	attributes = node->settled;
	writeback_unlock(b);
	return attributes;
}

/* An answer of the cache has no position: that of the change stays. */
static int look_at(struct writeback *b, struct op_context *ctx, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct op_context own = *ctx;
	int r = workspace_getattr(&own, b->base.inner, object, ret_attributes);

	if (own.served.position > ctx->served.position)
		ctx->served.position = own.served.position;
	return r;
}

/* Asks the workspace: the cache does not know of what others have changed while the link was away,
 * or a moment ago. */
static int look(struct writeback *b, struct op_context *ctx, const char *path,
	struct attributes *ret_attributes)
{
	int r;

	ctx->is_uncached = true;
	r = look_at(b, ctx, &OBJECT_AT(path), ret_attributes);
	ctx->is_uncached = false;
	return r;
}

/* 0: the object is there as the operation expects it. */
static int check(struct writeback *b, struct op_context *ctx, const char *path,
	const struct attributes *expected)
{
	struct attributes there;
	int r = look(b, ctx, path, &there);

	return r < 0 ? r : is_unchanged(&there, expected) ? 0 : CONFLICT;
}

/* ---- Names --------------------------- */

/* 0; -EEXIST: something else is there; -errno. */
static int look_for_target(
	struct writeback *b, struct op_context *ctx, const char *path, const char *target)
{
	struct op_context own = *ctx;
	cleanup_free char *found = NULL;
	int r = workspace_readlink(&own, b->base.inner, &OBJECT_AT(path), &found);

	if (r < 0)
		return is_out_of_reach(r) ? r : -EEXIST;
	return strcmp(found, target) == 0 ? 0 : -EEXIST;
}

/* The same of a directory. */
static int look_for_directory(struct writeback *b, struct op_context *ctx, const char *path,
	struct attributes *ret_attributes)
{
	int r = look(b, ctx, path, ret_attributes);

	if (r < 0)
		return is_out_of_reach(r) ? r : -EEXIST;
	return S_ISDIR(ret_attributes->mode) ? 0 : -EEXIST;
}

/* Gives a new object the time that callers were shown; if that fails, it keeps its own. */
static void settle_made(struct writeback *b, struct op_context *ctx, struct operation *operation,
	struct attributes *there)
{
	const struct object_ref object = {.path = operation->path, .id = there->id};

	workspace_setattr(ctx, b->base.inner, &object, SET_MTIME, &operation->facts.shown, there);
	settle(b, ctx, operation->node, there);
}

static int apply_mkdir(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	struct attributes there;
	int r = workspace_mkdir(
		ctx, b->base.inner, operation->path, operation->facts.mode & 07777, &there);

	if (r == -EEXIST && operation->may_be_done)
		r = look_for_directory(b, ctx, operation->path, &there);
	if (r == 0)
		settle_made(b, ctx, operation, &there);
	return r;
}

static int apply_symlink(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	struct attributes there;
	int r = workspace_symlink(ctx, b->base.inner, operation->path2, operation->path, &there);

	if (r == -EEXIST && operation->may_be_done) {
		r = look_for_target(b, ctx, operation->path, operation->path2);
		if (r == 0)
			r = look(b, ctx, operation->path, &there);
	}
	if (r == 0)
		settle_made(b, ctx, operation, &there);
	return r;
}

/* True if an earlier attempt removed the object; another one may have its name by now. */
static bool was_removed(struct writeback *b, struct op_context *ctx,
	const struct operation *operation, const struct attributes *known)
{
	struct attributes there;
	int r = operation->may_be_done ? look(b, ctx, operation->path, &there) : 0;

	return operation->may_be_done &&
	       (r == -ENOENT || (r == 0 && !object_id_equal(&there.id, &known->id)));
}

static int apply_unlink(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	const struct attributes known = settled(b, operation->node);
	int r = was_removed(b, ctx, operation, &known) ? -ENOENT
						       : check(b, ctx, operation->path, &known);

	if (r == 0)
		r = workspace_unlink(ctx, b->base.inner, operation->path, &known.id);
	/* If somebody else has removed it, the result is the same. */
	return r == -ENOENT ? 0 : r;
}

static int apply_rmdir(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	const struct attributes known = settled(b, operation->node);
	int r = was_removed(b, ctx, operation, &known)
			? -ENOENT
			: workspace_rmdir(ctx, b->base.inner, operation->path, &known.id);

	return r == -ENOENT ? 0 : r;
}

/* 1: an earlier attempt has done it; 0: none has; -errno. */
static int look_whether_moved(struct writeback *b, struct op_context *ctx,
	const struct operation *operation, const struct attributes *known)
{
	struct attributes there, former;
	int r = operation->may_be_done ? look(b, ctx, operation->path2, &there) : -ENOENT;

	if (r < 0 || !object_id_equal(&there.id, &known->id))
		return is_out_of_reach(r) ? r : 0;
	r = look(b, ctx, operation->path, &former);
	if (r < 0)
		return r == -ENOENT ? 1 : is_out_of_reach(r) ? r : 0;
	return !object_id_equal(&former.id, &known->id);
}

static int apply_rename(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	const struct attributes known = settled(b, operation->node);
	struct attributes there;
	int r;

	r = look_whether_moved(b, ctx, operation, &known);
	if (r != 0)
		return r < 0 ? r : 0;
	r = check(b, ctx, operation->path, &known);
	if (r == 0 && operation->replaced) {
		there = settled(b, operation->replaced);
		r = check(b, ctx, operation->path2, &there);
		r = r == -ENOENT ? 0 : r;
	}
	if (r == 0)
		r = workspace_rename(ctx, b->base.inner, operation->path, operation->path2,
			operation->replaced ? 0 : RENAME_KEEP_TARGET, &known.id);
	if (r == 0 && look_at(b, ctx, &OBJECT_AT(operation->path2), &there) == 0 &&
		object_id_equal(&there.id, &known.id))
		settle(b, ctx, operation->node, &there);
	return r;
}

/* ---- Attributes --------------------------- */

/* 0: nobody else has written to it; CONFLICT, -errno. */
static int check_before_time(struct writeback *b, struct op_context *ctx,
	const struct operation *operation, const struct attributes *known)
{
	struct attributes expected = *known;
	int r = check(b, ctx, operation->path, known);

	if (r != CONFLICT || !operation->may_be_done)
		return r;
	expected.mtime = operation->facts.want.mtime; /* an earlier attempt has set it */
	return check(b, ctx, operation->path, &expected);
}

static int apply_setattr(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	const struct attributes known = settled(b, operation->node);
	const struct object_ref object = {.path = operation->path, .id = known.id};
	/* If others have written to the file, later operations on it must still find the conflict.
	 */
	bool sets_time = operation->facts.mask & SET_MTIME;
	int checked = sets_time ? check_before_time(b, ctx, operation, &known) : 0;
	struct attributes there;
	int r;

	if (is_out_of_reach(checked))
		return checked;
	r = known.id.inode ? workspace_setattr(ctx, b->base.inner, &object, operation->facts.mask,
				     &operation->facts.want, &there)
			   : -ENOENT;
	if (r < 0 || checked < 0 || !(sets_time || is_unchanged(&there, &known)))
		return r;
	if (!S_ISDIR(there.mode))
		there.size_bytes = known.size_bytes;
	settle(b, ctx, operation->node, &there);
	if (S_ISDIR(there.mode)) { /* shown while names in it are pending */
		writeback_lock(b);
		back_keep_directory(b, operation->path, &there, ctx->served.position);
		writeback_unlock(b);
	}
	return 0;
}

/* ---- Content --------------------------- */

/* The next part of the content that has data, at or after `at`; `*ret_size` 0: there is none. */
static uint64_t next_part(
	struct writeback *b, const struct operation *operation, uint64_t at, size_t *ret_size)
{
	uint64_t size = operation->stored.size_bytes, end;

	writeback_lock(b);
	at = back_content_seek(operation->data, size, at, false);
	end = back_content_seek(operation->data, size, at, true);
	writeback_unlock(b);
	*ret_size = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
	return at;
}

/* The file is empty.  What nothing was written to stays a hole. */
static int write_content(struct writeback *b, struct op_context *ctx,
	const struct operation *operation, struct open_file *file)
{
	const struct attributes want = {.size_bytes = operation->stored.size_bytes};
	const struct object_ref object = OBJECT_OF(file);
	cleanup_free char *piece = malloc(PIECE_BYTES);
	uint64_t end_of_data = 0, at;
	struct attributes ignored;
	int r = piece ? 0 : -ENOMEM;
	size_t size;

	while (r == 0 && (at = next_part(b, operation, end_of_data, &size), size)) {
		ssize_t got = back_stored_read(b, operation, piece, size, at);
		ssize_t put =
			got < 0 ? got : workspace_write(ctx, file, piece, (size_t)got, (off_t)at);

		if (put < 0)
			r = (int)put;
		else if (put < got || got <= 0)
			r = -ENOSPC;
		end_of_data = at + (uint64_t)(put > 0 ? put : 0);
	}
	if (r == 0 && end_of_data < want.size_bytes)
		r = workspace_setattr(ctx, b->base.inner, &object, SET_SIZE, &want, &ignored);
	return r;
}

/* The workspace does not let the time be set, and the caller has not asked for it. */
static bool is_refused_time(const struct operation *operation, int r)
{
	return !operation->facts.mask && (r == -EPERM || r == -EOPNOTSUPP);
}

/* Writes content and attributes.  The inner workspace queues them; the flush waits for all. */
static int store(struct writeback *b, struct op_context *ctx, struct operation *operation,
	struct open_file *file, struct attributes *there)
{
	const struct attributes *shown = &operation->stored;
	struct attributes want = operation->facts.want;
	unsigned mask = operation->facts.mask | SET_MTIME;
	struct object_ref object = OBJECT_OF(file);
	int r = write_content(b, ctx, operation, file);

	want.mtime = shown->mtime;
	if (r == 0)
		r = workspace_setattr(ctx, b->base.inner, &object, mask, &want, there);
	if (is_refused_time(operation, r))
		r = 0;
	if (r == 0)
		r = workspace_flush(ctx, file);
	if (is_refused_time(operation, r))
		r = workspace_flush(ctx, file);
	if (r == 0)
		r = look_at(b, ctx, &object, there);
	/* If others have written to it since, later operations must find another size: a conflict.
	 */
	if (r == 0)
		there->size_bytes = shown->size_bytes;
	return r;
}

/* The file, whose id we do not know, has the owner, mode and time with which we would have created
 * it; where the file system gives modes of its own, the mode says nothing. */
static bool looks_made(
	struct writeback *b, const struct operation *operation, const struct attributes *there)
{
	const struct attributes *shown = &operation->facts.shown;

	return there->uid == shown->uid && there->ctime.tv_sec + 1 >= shown->ctime.tv_sec &&
	       ((there->mode & 07777) == operation->facts.mode || atomic_load(&b->changes_modes));
}

/* 1: everything that is there can only have come from us: the beginning of our content, with gaps
 * where pieces are missing; 0: not; -errno: the workspace is out of reach. */
static int look_whether_ours(struct writeback *b, struct op_context *ctx,
	struct operation *operation, const struct object_id *expected,
	const struct attributes *there)
{
	cleanup_free char *ours = malloc(PIECE_BYTES), *theirs = malloc(PIECE_BYTES);
	const struct object_ref object = {.path = operation->path, .id = there->id};
	uint64_t size = operation->stored.size_bytes;
	struct attributes opened;
	struct open_file *file;
	bool is_same = ours && theirs && S_ISREG(there->mode) && there->size_bytes <= size;
	ssize_t found = 0;
	int r;

	if (!is_same || (expected->inode ? !object_id_equal(expected, &there->id)
					 : !looks_made(b, operation, there)))
		return 0;
	r = workspace_open_file(ctx, b->base.inner, &object, O_RDONLY, &file, &opened);
	if (is_out_of_reach(r))
		return r;
	if (r < 0) /* a mode without read permission is ours, too */
		return r == -EACCES && expected->inode && operation->facts.kind == OP_CREATE;
	for (uint64_t at = 0; at < there->size_bytes && is_same;) {
		ssize_t got = back_stored_read(b, operation, ours, PIECE_BYTES, at);

		found = workspace_read(ctx, file, theirs, PIECE_BYTES, (off_t)at);

		is_same = found > 0 && found <= got;
		for (ssize_t i = 0; is_same && i < found; i++)
			is_same = theirs[i] == ours[i] || !theirs[i];
		at += found > 0 ? (uint64_t)found : 0;
	}
	workspace_close(ctx, file);
	return found < 0 && is_out_of_reach((int)found) ? (int)found : is_same;
}

/* 0: the file at the path comes from an earlier attempt of ours.  `expected`: its id; inode 0: not
 * known. */
static int find_again(struct writeback *b, struct op_context *ctx, struct operation *operation,
	const struct object_id *expected, struct attributes *there)
{
	int r = look(b, ctx, operation->path, there);

	if (r == 0)
		r = look_whether_ours(b, ctx, operation, expected, there);
	return r < 0 ? r : r == 0 ? CONFLICT : 0;
}

/* The first attempt need not wait for the name: with O_EXCL, the flush tells whether somebody else
 * made it first.  A later one is to know, before it writes, whether the former has made it. */
static int create(struct writeback *b, struct op_context *ctx, struct operation *operation,
	struct open_file **ret_file, struct attributes *there)
{
	uint32_t mode = operation->facts.mode & 07777;
	int r = workspace_create(ctx, b->base.inner, operation->path,
		O_RDWR | (operation->may_be_done ? 0 : O_EXCL), mode, ret_file, there);

	if (r == 0 && (there->mode & 07777) != mode)
		atomic_store(&b->changes_modes, true);
	return r;
}

/* Records the id of a new file, so that a later attempt, or the next mount, recognizes it. */
static void note_made(
	struct writeback *b, struct operation *operation, const struct object_id *made)
{
	const struct made_record record = {.id = operation->node->id, .real = *made};

	operation->made = *made;
	writeback_lock(b);
	back_journal_add(&b->journal, RECORD_CREATED, operation->sequence, &record, sizeof(record),
		NULL, 0, NULL);
	writeback_unlock(b);
}

/* A file from an earlier attempt is removed and created again, as its mode may forbid opening it.
 */
static int open_created(struct writeback *b, struct op_context *ctx, struct operation *operation,
	struct open_file **ret_file, struct attributes *there)
{
	int r = create(b, ctx, operation, ret_file, there);

	if (r == -EEXIST && operation->may_be_done) {
		r = find_again(b, ctx, operation, &operation->made, there);
		if (r == 0)
			r = workspace_unlink(ctx, b->base.inner, operation->path, &there->id);
		if (r == 0 || r == -ENOENT)
			r = create(b, ctx, operation, ret_file, there);
	}
	if (r == 0)
		note_made(b, operation, &there->id);
	return r;
}

static int open_truncated(struct writeback *b, struct op_context *ctx, struct operation *operation,
	struct open_file **ret_file, struct attributes *there)
{
	const struct attributes known = settled(b, operation->node);
	const struct object_ref object = {.path = operation->path, .id = known.id};
	int r = check(b, ctx, operation->path, &known);

	if (r == CONFLICT && operation->may_be_done)
		r = find_again(b, ctx, operation, &known.id, there);
	if (r < 0)
		return r;
	r = workspace_open_file(ctx, b->base.inner, &object, O_RDWR | O_TRUNC, ret_file, there);
	if (r == -EACCES)
		r = workspace_open_file(
			ctx, b->base.inner, &object, O_WRONLY | O_TRUNC, ret_file, there);
	return r;
}

/* Removes a file that could not be completed, unless somebody else has appended to it. */
static void remove_made(
	struct writeback *b, struct op_context *ctx, const struct operation *operation)
{
	const struct object_ref object = {.path = operation->path, .id = operation->made};
	struct op_context own = *ctx;
	struct attributes there;

	own.is_uncached = true;
	if (operation->made.inode && workspace_getattr(&own, b->base.inner, &object, &there) == 0 &&
		there.size_bytes <= operation->stored.size_bytes)
		workspace_unlink(&own, b->base.inner, operation->path, &operation->made);
}

/* True if an earlier attempt has stored all of it, as its mtime shows, which is set last.  False if
 * the former content had the same size and mtime, or if the file is open here: then it is stored
 * again, to have a handle for the open ones. */
static bool is_stored(struct writeback *b, struct op_context *ctx,
	const struct operation *operation, struct attributes *ret_there)
{
	const struct attributes known = settled(b, operation->node);
	struct attributes stored = known;
	struct node *node = operation->node;
	bool has_handles;

	stored.size_bytes = operation->stored.size_bytes;
	stored.mtime = operation->stored.mtime;
	if (!operation->may_be_done || operation->facts.kind != OP_CONTENT ||
		is_unchanged(&stored, &known) || look(b, ctx, operation->path, ret_there) < 0 ||
		!is_unchanged(ret_there, &stored))
		return false;
	writeback_lock(b);
	has_handles = node->handles;
	if (!has_handles && node->content == operation) /* no handle is opened on it any more */
		back_content_drop(b, node);
	writeback_unlock(b);
	return !has_handles;
}

static int apply_content(struct writeback *b, struct op_context *ctx, struct operation *operation)
{
	bool is_new = operation->facts.kind == OP_CREATE;
	struct node *node = operation->node;
	struct attributes there;
	struct open_file *file, *former;
	int r;

	if (is_stored(b, ctx, operation, &there)) {
		settle(b, ctx, node, &there);
		return 0;
	}
	r = is_new ? open_created(b, ctx, operation, &file, &there)
		   : open_truncated(b, ctx, operation, &file, &there);
	if (r < 0)
		return classify(b, operation, r);
	r = store(b, ctx, operation, file, &there);
	if (r == -ESTALE) /* a new session has lost the file: create or open it again */
		r = -ECONNRESET;
	if (r == 0) {
		settle(b, ctx, node, &there);
		writeback_lock(b);
		back_learn_clock(b, &there.ctime);
		if (node->content == operation)
			node->content = NULL; /* from now on handles write to the workspace ... */
		former = node->inner;
		node->inner = file; /* ... through this handle */
		file = former;
		writeback_unlock(b);
	}
	r = classify(b, operation, r);
	if (r < 0 && r != -EAGAIN)
		remove_made(b, ctx, operation);
	workspace_close(ctx, file);
	return r;
}

/* ---- All of them --------------------------- */

/* The error if the object, or the directory it is in, was lost. */
static int check_depends(struct writeback *b, const struct operation *operation)
{
	const struct operation_facts *facts = &operation->facts;
	bool is_made =
		facts->kind == OP_MKDIR || facts->kind == OP_CREATE || facts->kind == OP_SYMLINK;
	const struct node *parent;
	int r = 0;

	writeback_lock(b);
	parent = back_node(b, &facts->parent);
	if (operation->node->error)
		r = operation->node->error;
	else if (!is_made && !operation->node->real.inode && !operation->may_be_done)
		r = -ENOENT;
	else if (back_is_provisional(&facts->parent) && (!parent || !parent->real.inode))
		r = -ENOENT;
	writeback_unlock(b);
	return r;
}

int back_apply(struct writeback *b, struct operation *operation)
{
	static int (*const functions[])(
		struct writeback *, struct op_context *, struct operation *) = {
		[OP_MKDIR] = apply_mkdir,
		[OP_CREATE] = apply_content,
		[OP_SYMLINK] = apply_symlink,
		[OP_CONTENT] = apply_content,
		[OP_SETATTR] = apply_setattr,
		[OP_UNLINK] = apply_unlink,
		[OP_RMDIR] = apply_rmdir,
		[OP_RENAME] = apply_rename,
	};
	struct op_context ctx;
	int r = check_depends(b, operation);

	if (r < 0)
		return r;
	context_of(b, operation, &ctx);
	r = functions[operation->facts.kind](b, &ctx, operation);
	operation->position = ctx.served.position;
	return operation->facts.kind == OP_CREATE || operation->facts.kind == OP_CONTENT
		       ? r
		       : classify(b, operation, r);
}
