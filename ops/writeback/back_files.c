/* Open files.  The content of a file that was created or truncated here is in the journal until it
 * is stored at the workspace.  All other handles are those of the inner workspace. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* ---- Handles --------------------------- */

static bool is_writing(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

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

static struct open_file *inner_of(struct back_file *file)
{
	return __atomic_load_n(&file->base.inner, __ATOMIC_ACQUIRE);
}

int back_inner_open(struct op_context *ctx, struct back_file *file)
{
	struct writeback *b = writeback_of(file->base.file.workspace);
	struct node *node = file->node;
	struct open_file *inner;
	int r;

	if (inner_of(file))
		return 0;
	writeback_lock(b);
	r = back_settle(b, ctx, &node->id);
	if (r == 0 && node->error)
		r = node->error;
	inner = node->inner;
	if (r == 0 && !inner)
		r = -EIO;
	if (r == 0)
		node->inner_handles++; /* changes of it are no longer deferred */
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
		.is_writer = is_writing(flags)};
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
	if (ctx->served.is_early) { /* its times are wanted */
		do
			r = workspace_await_name(ctx, inner, ret_attributes);
		while (r == -EAGAIN && !op_interrupted(ctx));
		ctx->served.is_early = false;
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
		merge.shown.blocks = (want->size_bytes + 511) / 512;
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
		back_content_cut(node, merge.shown.size_bytes);
	node->shown = merge.shown;
	return 0;
}

/* Opens the content in the journal.  1: the journal does not have it. */
static int open_here(struct writeback *b, struct node *node, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	static const struct attributes nothing;
	struct back_file *file;

	if (!node->is_whole || is_synchronous(flags))
		return 1;
	if (is_writing(flags) || (flags & O_TRUNC)) {
		if (!node->content || node->content->is_started)
			return 1;
		if ((flags & O_TRUNC) && back_merge(b, node, SET_SIZE, &nothing) < 0)
			return 1;
	}
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	init_here(file, &b->base.workspace, node, flags);
	node->handles++;
	if (file->is_writer) {
		node->writers++;
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
		r = open_here(b, operation->node, flags & ~O_TRUNC, ret_file, ret_attributes);
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
	int r = is_writing(flags) ? count_opening(ctx, b, inner, &node) : 0;

	object.file = inner->file ? inner_of(back_file_of(inner->file)) : NULL;
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
	if (!inner_of(file))
		r = open_here(b, file->node, flags, ret_file, ret_attributes);
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
	int r;

	if (object->file)
		return open_again(ctx, w, object, flags, ret_file, ret_attributes);
	writeback_lock(b);
	while ((r = back_find(b, object, &inner, &node)) > 0) {
		r = refuse_kind(node);
		if (r == 0)
			r = open_here(b, node, flags, ret_file, ret_attributes);
		if (r == 0)
			back_answered(b, ctx);
		if (r <= 0) {
			writeback_unlock(b);
			return r;
		}
		id = node->id;
		r = back_settle(b, ctx, &id);
		if (r < 0)
			break;
	}
	writeback_unlock(b);
	if (r == 0 && (flags & O_TRUNC) && is_writing(flags) && !is_synchronous(flags))
		r = back_find_room(b, ctx);
	if (r == 0 && (flags & O_TRUNC) && is_writing(flags) && !is_synchronous(flags))
		r = open_truncated(ctx, w, object, flags, ret_file, ret_attributes);
	else if (r == 0)
		r = 1;
	return r <= 0 ? r : pass_open(ctx, w, &inner, flags, ret_file, ret_attributes);
}

/* ---- Reading and writing --------------------------- */

int back_file_getattr(
	struct op_context *ctx, struct back_file *file, struct attributes *ret_attributes)
{
	struct workspace *w = file->base.file.workspace;
	struct writeback *b = writeback_of(w);
	const struct object_ref object = OBJECT_OF(&file->base.file);
	int r = 0;

	writeback_lock(b);
	if (!inner_of(file) && file->node->is_whole) {
		*ret_attributes = back_node_shown(b, file->node, NULL);
		back_answered(b, ctx);
		writeback_unlock(b);
		return 0;
	}
	writeback_unlock(b);
	r = back_inner_open(ctx, file);
	if (r < 0)
		return r;
	r = forward_getattr(ctx, w, &object, ret_attributes);
	writeback_lock(b);
	back_saw(b, ctx->served.position);
	if (r == 0)
		back_show(b, NULL, ret_attributes);
	writeback_unlock(b);
	return r;
}

ssize_t back_read(
	struct op_context *ctx, struct open_file *open_file, void *data, size_t size, off_t offset)
{
	struct back_file *file = back_file_of(open_file);
	ssize_t r = -EAGAIN;

	if ((file->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	if (!inner_of(file))
		r = back_content_read(writeback_of(open_file->workspace), file->node, data, size,
			(uint64_t)offset);
	if (r != -EAGAIN) {
		ctx->served.from_cache = true;
		return r;
	}
	r = back_inner_open(ctx, file);
	return r < 0 ? r : forward_read(ctx, open_file, data, size, offset);
}

/* Writes to the journal.  -EAGAIN: this write has to go to the workspace. */
static ssize_t write_here(
	struct writeback *b, struct back_file *file, const void *data, size_t size, uint64_t offset)
{
	struct node *node = file->node;
	struct data_record head = {
		.id = back_real(b, &node->id), .offset = offset, .mtime = back_now(b)};
	uint64_t at;

	if (!node->content || node->content->is_started)
		return -EAGAIN;
	if (file->flags & O_APPEND)
		head.offset = node->shown.size_bytes;
	if (head.offset + size > FILE_MAX_BYTES || node->bytes + size > FILE_MAX_BYTES ||
		node->extent_count > EXTENTS_MAX)
		return -EAGAIN;
	if (back_journal_add(&b->journal, RECORD_DATA, 0, &head, sizeof(head), data, size, &at) <
			0 ||
		back_content_write(b, node, at, size, head.offset) < 0)
		return -EAGAIN;
	back_content_written(node, head.offset + size, &head.mtime);
	return (ssize_t)size;
}

ssize_t back_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct back_file *file = back_file_of(open_file);
	struct writeback *b = writeback_of(open_file->workspace);
	ssize_t r;

	if (!is_writing(file->flags))
		return -EBADF;
	if (!inner_of(file)) {
		writeback_lock(b);
		r = back_await_room(b, ctx);
		if (r == 0)
			r = write_here(b, file, data, size, (uint64_t)offset);
		writeback_unlock(b);
		if (r != -EAGAIN)
			return r;
	}
	r = back_inner_open(ctx, file);
	return r < 0 ? r : forward_write(ctx, open_file, data, size, offset);
}

int back_flush(struct op_context *ctx, struct open_file *open_file)
{
	struct back_file *file = back_file_of(open_file);
	struct writeback *b = writeback_of(open_file->workspace);
	int r;

	if (inner_of(file))
		return forward_flush(ctx, open_file);
	writeback_lock(b);
	r = file->node->error;
	back_answered(b, ctx);
	writeback_unlock(b);
	return r;
}

int back_fsync(struct op_context *ctx, struct workspace *w, struct open_file *open_file,
	const char *path, bool data_only)
{
	struct writeback *b = writeback_of(w);
	struct back_file *file = open_file ? back_file_of(open_file) : NULL;
	int r = file ? back_inner_open(ctx, file) : 0, *told;

	if (r < 0)
		return r;
	writeback_lock(b);
	r = file ? back_settle(b, ctx, &file->node->id) : back_barrier(b, ctx);
	told = file ? &file->node->refused : &b->unreported;
	if (r == 0) { /* once */
		r = *told;
		*told = 0;
	}
	writeback_unlock(b);
	return r < 0 ? r : forward_fsync(ctx, w, open_file, path, data_only);
}

/* Waits for all pending operations before a lock is released.  Cannot be interrupted.  -EIO: the
 * workspace is out of reach. */
static int settle_locked(struct writeback *b)
{
	struct op_context own;

	op_context_init(&own);
	return back_barrier(b, &own);
}

int back_close(struct op_context *ctx, struct open_file *open_file)
{
	struct back_file *file = back_file_of(open_file);
	struct writeback *b = writeback_of(open_file->workspace);
	struct open_file *inner = inner_of(file), *stored = NULL;
	struct node *node = file->node;
	int r;

	writeback_lock(b);
	if (node->is_locked)
		settle_locked(b);
	node->handles -= file->is_here;
	node->writers -= file->is_writer;
	node->inner_handles -= inner != NULL;
	if (file->is_writer && !node->writers && node->content)
		back_release_hold(b, node->content);
	if (!node->handles && !node->pending) {
		stored = node->inner;
		node->inner = NULL;
	}
	r = inner ? 0 : node->error;
	back_node_release(b, node);
	writeback_unlock(b);
	workspace_close(ctx, stored);
	if (inner && !file->shares)
		r = workspace_close(ctx, inner);
	free(file);
	return r;
}

/* ---- What the workspace does to an open file --------------------------- */

#define WHEN_STORED(call)                                          \
	do {                                                       \
		int r_ = back_inner_open(ctx, back_file_of(file)); \
		if (r_ < 0)                                        \
			return r_;                                 \
		return call;                                       \
	} while (0)

int back_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	WHEN_STORED(forward_fallocate(ctx, file, mode, offset, length));
}

off_t back_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	struct writeback *b = writeback_of(file->workspace);
	const struct node *node = back_file_of(file)->node;
	off_t r;

	writeback_lock(b);
	if (!inner_of(back_file_of(file)) && node->is_whole) {
		r = (uint64_t)offset >= node->shown.size_bytes ? -ENXIO
		    : whence == SEEK_HOLE                      ? (off_t)node->shown.size_bytes
							       : offset;
		writeback_unlock(b);
		return r;
	}
	writeback_unlock(b);
	WHEN_STORED(forward_seek(ctx, file, offset, whence));
}

ssize_t back_copy_range(struct op_context *ctx, struct open_file *file, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	int r = back_inner_open(ctx, back_file_of(to));

	if (r < 0)
		return r;
	WHEN_STORED(forward_copy_range(ctx, file, from_offset, to, to_offset, size));
}

/* A barrier before and after: a holder of the lock sees what the holder before it has written. */
int back_lock(
	struct op_context *ctx, struct open_file *file, const struct file_lock *lock, bool wait)
{
	struct writeback *b = writeback_of(file->workspace);
	int r;

	writeback_lock(b);
	r = lock->type == LOCK_NONE ? settle_locked(b) : back_barrier(b, ctx);
	if (r == 0)
		back_file_of(file)->node->is_locked = true;
	writeback_unlock(b);
	if (r < 0)
		return r;
	WHEN_STORED(forward_lock(ctx, file, lock, wait));
}

int back_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock)
{
	WHEN_STORED(forward_lock_test(ctx, file, lock));
}

int back_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner)
{
	struct writeback *b = writeback_of(file->workspace);

	if (!inner_of(back_file_of(file)))
		return 0; /* it never had a lock */
	writeback_lock(b);
	if (back_file_of(file)->node->is_locked)
		settle_locked(b);
	writeback_unlock(b);
	return forward_lock_release_owner(ctx, file, owner);
}
