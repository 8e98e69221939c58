/* Creating and opening files: on content in the journal where that may be, else at the inner
 * workspace. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- Handles --------------------------- */

static void uncount_inner(struct writeback *b, struct node *node)
{
	writeback_lock(b);
	node->inner_handles--;
	back_node_release(b, node);
	writeback_unlock(b);
}

/* Opens the file at the inner workspace through the handle that stored the content, or shares that
 * handle if the mode does not allow opening it again.  The caller has counted it in the node. */
static int open_through(struct op_context *ctx, struct back_file *file, struct open_file *inner)
{
	struct writeback *b = writeback_of(file->base.file.workspace);
	const struct object_ref object = OBJECT_OF(inner);
	struct attributes attributes;
	struct op_context own = *ctx;
	struct open_file *opened;
	bool shares = false;
	int r;

	own.facts = NULL;
	r = workspace_open_file(&own, b->base.inner, &object,
		file->flags & ~(O_CREAT | O_EXCL | O_TRUNC), &opened, &attributes);
	if (r == -EACCES) {
		shares = true;
		opened = inner;
	} else if (r < 0) {
		uncount_inner(b, file->node);
		return r;
	}
	writeback_lock(b);
	if (!file->base.inner) {
		file->shares = shares;
		__atomic_store_n(&file->base.inner, opened, __ATOMIC_RELEASE);
		opened = NULL;
	}
	writeback_unlock(b);
	if (opened) /* another thread was quicker */
		uncount_inner(b, file->node);
	workspace_close(&own, shares ? NULL : opened);
	return 0;
}

int back_inner_open(struct op_context *ctx, struct back_file *file)
{
	struct writeback *b = writeback_of(file->base.file.workspace);
	struct node *node = file->node;
	struct open_file *inner;
	int r;

	if (back_file_inner(file))
		return 0;
	writeback_lock(b);
	node->inner_handles++; /* changes of it are no longer deferred: none comes in between */
	r = back_settle(b, ctx, &node->id);
	if (r == 0 && node->error)
		r = node->error;
	inner = node->inner;
	if (r == 0 && !inner)
		r = -EIO;
	node->inner_handles -= r < 0;
	writeback_unlock(b);
	return r < 0 ? r : open_through(ctx, file, inner);
}

/* Wraps a handle of the inner workspace, which it takes ownership of. */
static int hand_out(struct op_context *ctx, struct workspace *w, struct open_file *inner, int flags,
	struct attributes *attributes, struct open_file **ret_file)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file = calloc(1, sizeof(*file));

	if (file) {
		*file = (struct back_file){.base.file.workspace = w, .flags = flags};
		writeback_lock(b);
		back_show_id(b, &attributes->id);
		file->node = back_node_add(b, &attributes->id, NULL);
		if (file->node)
			file->node->inner_handles++;
		back_saw(b, ctx->served.position);
		back_show(b, NULL, attributes);
		writeback_unlock(b);
	}
	if (!file || !file->node) {
		free(file);
		workspace_close(ctx, inner);
		return -ENOMEM;
	}
	file->base.inner = inner;
	*ret_file = &file->base.file;
	return 0;
}

/* Sets up a handle on content in the journal.  The caller updates the counts of the node. */
static void init_here(struct back_file *file, struct workspace *w, struct node *node, int flags)
{
	*file = (struct back_file){.base.file.workspace = w,
		.node = node,
		.flags = flags,
		.is_here = true,
		.is_writer = back_is_writing(flags)};
}

static bool is_synchronous(int flags)
{
	return flags & (O_SYNC | O_DSYNC);
}

static int pass_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct open_file *inner;
	int r;

	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, path, NULL, NULL, false, NOTHING,
		workspace_create(ctx, b->base.inner, path, flags, mode, &inner, ret_attributes));
	writeback_unlock(b);
	if (r < 0)
		return r;
	if (ctx->served.is_async) { /* its times are wanted */
		do
			r = workspace_await_name(ctx, inner, ret_attributes);
		while (r == -EAGAIN && !op_interrupted(ctx));
		ctx->served.is_async = false;
	}
	if (r < 0) {
		workspace_close(ctx, inner);
		return r;
	}
	writeback_lock(b);
	back_learn(b, ctx, 0, ret_attributes);
	writeback_unlock(b);
	return hand_out(ctx, w, inner, flags, ret_attributes, ret_file);
}

int back_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file;
	int r = 1;

	if (is_synchronous(flags))
		return pass_create(ctx, w, path, flags, mode, ret_file, ret_attributes);
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	r = back_make(ctx, w, OP_CREATE, path, NULL, S_IFREG | (mode & 07777 & ~ctx->umask),
		ret_attributes);
	if (r != 0) {
		free(file);
		return r < 0 ? r : pass_create(ctx, w, path, flags, mode, ret_file, ret_attributes);
	}
	writeback_lock(b);
	init_here(file, w, back_node(b, &ret_attributes->id), flags);
	file->is_writer = true;
	writeback_unlock(b);
	*ret_file = &file->base.file;
	return 0;
}

int back_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct open_file *inner;
	int r;

	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, directory, NULL, NULL, false, NOTHING,
		workspace_create_unnamed(
			ctx, b->base.inner, directory, flags, mode, &inner, ret_attributes));
	writeback_unlock(b);
	return r < 0 ? r : hand_out(ctx, w, inner, flags, ret_attributes, ret_file);
}

/* ---- Opening --------------------------- */

int back_merge(struct writeback *b, struct node *node, unsigned mask, const struct attributes *want)
{
	struct operation_facts *facts = &node->content->facts;
	struct merge_record merge = {.id = back_real(b, &node->id),
		.mask = mask & ~(unsigned)SET_SIZE,
		.want = facts->want,
		.shown = node->shown};
	struct timespec now = back_now(b);
	int r;

	if ((mask & SET_SIZE) && want->size_bytes > FILE_MAX_BYTES)
		return -EFBIG;
	if (mask & SET_MODE) {
		merge.want.mode = want->mode;
		merge.shown.mode = (node->shown.mode & ~07777u) | (want->mode & 07777);
	}
	if (mask & SET_ATIME)
		merge.want.atime = merge.shown.atime = want->atime;
	if (mask & SET_SIZE) {
		merge.shown.size_bytes = want->size_bytes;
		merge.shown.mtime = now;
	}
	if (mask & SET_MTIME)
		merge.want.mtime = merge.shown.mtime = want->mtime;
	merge.shown.ctime = now;
	r = back_journal_add(&b->journal, RECORD_MERGE, 0, &merge, sizeof(merge), NULL, 0, NULL);
	if (r < 0)
		return r;
	facts->mask |= merge.mask;
	facts->want = merge.want;
	if (merge.shown.size_bytes < node->shown.size_bytes)
		back_content_cut(node->data, merge.shown.size_bytes);
	node->shown = merge.shown;
	node->shown.blocks = back_content_blocks(node->data, node->shown.size_bytes);
	return 0;
}

/* Enters an operation that stores the file again, after all that is pending on it.  1: it cannot be
 * deferred. */
static int store_again(
	struct writeback *b, struct op_context *ctx, struct node *node, bool is_truncated)
{
	const struct operation *last = node->last;
	const struct attributes *shown = &node->shown;
	bool is_renamed = last && last->facts.kind == OP_RENAME;
	struct operation *operation;

	if (!last || !back_defers(b, ctx, writeback_moves(b)) || !S_ISREG(shown->mode) ||
		!back_may_set(ctx, shown, 0, shown) || (ctx->uid && !(shown->mode & S_IWUSR)) ||
		node->inner_handles || node->is_gone || node->error)
		return 1;
	operation =
		back_operation_new(ctx, OP_CONTENT, is_renamed ? last->path2 : last->path, NULL);
	if (!operation)
		return 1;
	operation->facts.parent = is_renamed ? last->facts.new_parent : last->facts.parent;
	operation->facts.continues = !is_truncated;
	operation->facts.shown = *shown;
	operation->facts.shown.id = node->id;
	back_expect(b, &operation->facts.shown, &operation->facts.known);
	if (is_truncated)
		operation->facts.shown.size_bytes = operation->facts.shown.blocks = 0;
	operation->facts.shown.mtime = operation->facts.shown.ctime = back_now(b);
	operation->is_held = true;
	if (back_enter(b, operation, false) == 0)
		return 0;
	back_operation_free(operation);
	return 1;
}

/* While the link is there, writes that change a part go to the workspace: storing all of the file
 * again for each would be slower, and readers there would see it empty for a moment. */
bool back_content_take(
	struct writeback *b, struct op_context *ctx, struct node *node, bool is_truncated)
{
	if (node->content && !node->content->is_started)
		return true;
	if (!is_truncated && !(node->data && b->is_away))
		return false;
	return store_again(b, ctx, node, is_truncated) == 0;
}

/* Has the pending content begin anew. */
static bool truncate_here(struct writeback *b, struct op_context *ctx, struct node *node)
{
	static const struct attributes nothing;

	if (node->content && !node->content->is_started)
		return back_merge(b, node, SET_SIZE, &nothing) == 0;
	return back_content_take(b, ctx, node, true);
}

/* A handle that writes may be opened on what the journal has. */
static bool may_write_here(const struct writeback *b, const struct node *node)
{
	return node->data && ((node->content && !node->content->is_started) || b->is_away);
}

/* Opens the content in the journal.  1: the journal does not have it. */
static int open_here(struct writeback *b, struct op_context *ctx, struct node *node, int flags,
	struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct back_file *file;

	if (is_synchronous(flags))
		return 1;
	if ((flags & O_TRUNC) && !truncate_here(b, ctx, node))
		return 1;
	if (back_is_writing(flags) ? !may_write_here(b, node) : !node->data)
		return 1;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	init_here(file, &b->base.workspace, node, flags);
	node->handles++;
	if (file->is_writer) {
		node->writers++;
		if (node->content && !node->content->is_started)
			back_hold(b, node->content);
	}
	*ret_attributes = back_node_shown(b, node, NULL);
	*ret_file = &file->base.file;
	return 0;
}

/* Defers the truncation of an existing file and the writes that follow.  1: they are not deferred.
 */
static int open_truncated(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct attributes there;
	struct operation *operation;
	uint64_t moves = writeback_moves(b);
	int r = back_look(ctx, w, object->path, &object->id, &there);

	if (r < 0)
		return r;
	if (!S_ISREG(there.mode) || !back_may_set(ctx, &there, 0, &there))
		return 1;
	operation = back_operation_new(ctx, OP_CONTENT, object->path, NULL);
	if (!operation)
		return -ENOMEM;
	writeback_lock(b);
	r = back_defers(b, ctx, moves) && back_is_simple(b, &there) &&
			    !(back_node(b, &there.id) && back_node(b, &there.id)->pending)
		    ? 0
		    : 1;
	if (r == 0) {
		operation->facts.shown = there;
		back_expect(b, &there, &operation->facts.known);
		operation->facts.shown.size_bytes = operation->facts.shown.blocks = 0;
		operation->facts.shown.mtime = operation->facts.shown.ctime = back_now(b);
		operation->is_held = true;
		r = back_enter(b, operation, false) < 0;
	}
	if (r == 0)
		r = open_here(b, ctx, operation->node, flags & ~O_TRUNC, ret_file, ret_attributes);
	writeback_unlock(b);
	if (r > 0)
		back_operation_free(operation);
	return r;
}

/* Counts a handle that will write, so that changes of the file are no longer deferred, and waits
 * for the pending ones.  `*ret_node`: the node with the count; NULL: it is not known which file it
 * is. */
static int count_opening(struct op_context *ctx, struct writeback *b,
	const struct object_ref *inner, struct node **ret_node)
{
	struct object_id id = inner->file ? back_file_of(inner->file)->node->id : inner->id;
	int r = 0;

	if (!id.inode)
		return 0;
	writeback_lock(b);
	back_show_id(b, &id);
	*ret_node = back_node_add(b, &id, NULL);
	if (!*ret_node)
		r = -ENOMEM;
	else {
		(*ret_node)->inner_handles++;
		if ((*ret_node)->pending)
			r = back_settle(b, ctx, &id);
		if (r == 0 && b->journal.has_failed) /* as in PASS_IN_TURN */
			r = back_barrier(b, ctx);
	}
	writeback_unlock(b);
	return r;
}

static int pass_open(struct op_context *ctx, struct workspace *w, const struct object_ref *inner,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct object_ref object = *inner;
	struct node *node = NULL;
	struct open_file *opened;
	int r = back_is_writing(flags) ? count_opening(ctx, b, inner, &node) : 0;

	object.file = inner->file ? back_file_inner(back_file_of(inner->file)) : NULL;
	if (r == 0)
		r = workspace_open_file(
			ctx, b->base.inner, &object, flags, &opened, ret_attributes);
	if (r == 0)
		r = hand_out(ctx, w, opened, flags, ret_attributes, ret_file);
	if (node)
		uncount_inner(b, node);
	return r;
}

/* Opens a file through another handle of it. */
static int open_again(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file = back_file_of(object->file);
	int r = 1;

	writeback_lock(b);
	if (!back_file_inner(file))
		r = open_here(b, ctx, file->node, flags, ret_file, ret_attributes);
	writeback_unlock(b);
	if (r <= 0)
		return r;
	r = back_inner_open(ctx, file);
	return r < 0 ? r : pass_open(ctx, w, object, flags, ret_file, ret_attributes);
}

static int refuse_kind(const struct node *node)
{
	if (S_ISDIR(node->shown.mode))
		return -EISDIR;
	return S_ISLNK(node->shown.mode) ? -ELOOP : 0;
}

int back_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct writeback *b = writeback_of(w);
	struct object_ref inner;
	struct object_id id;
	struct node *node;
	bool has_waited = false;
	int r;

	if (object->file)
		return open_again(ctx, w, object, flags, ret_file, ret_attributes);
	writeback_lock(b);
	while ((r = back_find(b, object, &inner, &node)) > 0) {
		r = refuse_kind(node);
		if (r == 0)
			r = open_here(b, ctx, node, flags, ret_file, ret_attributes);
		if (r == 0)
			back_answered(b, ctx);
		if (r <= 0) {
			writeback_unlock(b);
			return r;
		}
		id = node->id;
		if (!has_waited) {
			has_waited = true;
			back_await_away(b, ctx, &id);
			continue;
		}
		r = back_settle(b, ctx, &id);
		if (r < 0)
			break;
	}
	writeback_unlock(b);
	if (r == 0 && (flags & O_TRUNC) && back_is_writing(flags) && !is_synchronous(flags))
		r = back_find_room(b, ctx);
	if (r == 0 && (flags & O_TRUNC) && back_is_writing(flags) && !is_synchronous(flags))
		r = open_truncated(ctx, w, object, flags, ret_file, ret_attributes);
	else if (r == 0)
		r = 1;
	return r <= 0 ? r : pass_open(ctx, w, &inner, flags, ret_file, ret_attributes);
}
