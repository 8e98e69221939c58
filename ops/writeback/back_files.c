/* Open files.  The content of a file that was created or truncated here is in the journal until it
 * is stored at the workspace.  All other handles are those of the inner workspace. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Reading and writing --------------------------- */

int back_file_getattr(
	struct op_context *ctx, struct back_file *file, struct attributes *ret_attributes)
{
	struct workspace *w = file->base.file.workspace;
	struct writeback *b = writeback_of(w);
	const struct object_ref object = OBJECT_OF(&file->base.file);
	int r = 0;

	writeback_lock(b);
	if (!back_file_inner(file) && file->node->data) {
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
	if (!back_file_inner(file))
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
static ssize_t write_here(struct writeback *b, struct op_context *ctx, struct back_file *file,
	const void *data, size_t size, uint64_t offset)
{
	struct node *node = file->node;
	struct data_record head = {
		.id = back_real(b, &node->id), .offset = offset, .mtime = back_now(b)};
	uint64_t at;

	if (!back_content_take(b, ctx, node, false))
		return -EAGAIN;
	if (file->flags & O_APPEND)
		head.offset = node->shown.size_bytes;
	if (head.offset + size > FILE_MAX_BYTES || node->data->bytes + size > FILE_MAX_BYTES ||
		node->data->extent_count > EXTENTS_MAX)
		return -EAGAIN;
	if (back_journal_add(&b->journal, RECORD_DATA, 0, &head, sizeof(head), data, size, &at) <
			0 ||
		back_content_write(b, node->data, at, size, head.offset) < 0)
		return -EAGAIN;
	back_content_written(node, head.offset + size, &head.mtime);
	return (ssize_t)size;
}

/* The handle is that of another opening, without O_APPEND: the end is looked for, in turn. */
static ssize_t append_shared(
	struct op_context *ctx, struct open_file *open_file, const void *data, size_t size)
{
	struct writeback *b = writeback_of(open_file->workspace);
	struct back_file *file = back_file_of(open_file);
	const struct object_ref object = OBJECT_OF(file->base.inner);
	struct attributes there;
	struct operation turn;
	ssize_t r;

	writeback_lock(b);
	r = back_fence_begin(b, ctx, &turn, NULL, NULL, &file->node->id, false);
	writeback_unlock(b);
	if (r < 0)
		return r;
	r = workspace_getattr(ctx, b->base.inner, &object, &there);
	if (r == 0)
		r = forward_write(ctx, open_file, data, size, (off_t)there.size_bytes);
	writeback_lock(b);
	back_fence_end(b, &turn);
	writeback_unlock(b);
	return r;
}

ssize_t back_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct back_file *file = back_file_of(open_file);
	struct writeback *b = writeback_of(open_file->workspace);
	ssize_t r;

	if (!back_is_writing(file->flags))
		return -EBADF;
	if (!back_file_inner(file)) {
		writeback_lock(b);
		r = back_await_room(b, ctx);
		if (r == 0)
			r = write_here(b, ctx, file, data, size, (uint64_t)offset);
		if (r == -EAGAIN && back_await_away(b, ctx, &file->node->id))
			r = write_here(b, ctx, file, data, size, (uint64_t)offset);
		writeback_unlock(b);
		if (r != -EAGAIN)
			return r;
	}
	r = back_inner_open(ctx, file);
	if (r < 0)
		return r;
	return file->shares && (file->flags & O_APPEND)
		       ? append_shared(ctx, open_file, data, size)
		       : forward_write(ctx, open_file, data, size, offset);
}

int back_flush(struct op_context *ctx, struct open_file *open_file)
{
	struct back_file *file = back_file_of(open_file);
	struct writeback *b = writeback_of(open_file->workspace);
	int r;

	if (back_file_inner(file))
		return forward_flush(ctx, open_file);
	writeback_lock(b);
	r = file->node->error;
	back_answered(b, ctx);
	writeback_unlock(b);
	return r;
}

/* The handle that has what the workspace stored of the file.  Later errors are returned once. */
static int find_stored(const struct back_file *file, struct open_file **ret_stored)
{
	struct open_file *inner = file->base.inner;
	struct node *node = file->node;
	int r = inner ? 0 : node->error;

	*ret_stored = inner ? inner : node->inner;
	if (r < 0)
		return r;
	r = node->refused;
	node->refused = 0;
	return r == 0 && !*ret_stored ? -EIO : r;
}

/* Does not open the file at the workspace, which would keep others from writing to the journal
 * while this one waits. */
static int sync_file(
	struct op_context *ctx, struct back_file *file, const char *path, bool data_only)
{
	struct writeback *b = writeback_of(file->base.file.workspace);
	struct open_file *stored;
	int r;

	writeback_lock(b);
	PASS_IN_TURN(b, ctx, r, NULL, NULL, &file->node->id, false, r = find_stored(file, &stored),
		r < 0 ? r : workspace_fsync(ctx, b->base.inner, stored, path, data_only));
	writeback_unlock(b);
	return r;
}

int back_fsync(struct op_context *ctx, struct workspace *w, struct open_file *open_file,
	const char *path, bool data_only)
{
	struct writeback *b = writeback_of(w);
	int r;

	if (open_file)
		return sync_file(ctx, back_file_of(open_file), path, data_only);
	writeback_lock(b);
	r = back_barrier(b, ctx);
	if (r == 0) { /* once */
		r = b->unreported;
		b->unreported = 0;
	}
	writeback_unlock(b);
	return r < 0 ? r : forward_fsync(ctx, w, NULL, path, data_only);
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
	struct open_file *inner = back_file_inner(file), *stored = NULL;
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
	off_t r, size;

	writeback_lock(b);
	if (!back_file_inner(back_file_of(file)) && node->data) {
		size = (off_t)node->shown.size_bytes;
		r = offset < size ? (off_t)back_content_seek(node->data, (uint64_t)size,
					    (uint64_t)offset, whence == SEEK_HOLE)
				  : -ENXIO;
		writeback_unlock(b);
		return whence == SEEK_DATA && r == size ? -ENXIO : r;
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

	if (!back_file_inner(back_file_of(file)))
		return 0; /* it never had a lock */
	writeback_lock(b);
	if (back_file_of(file)->node->is_locked)
		settle_locked(b);
	writeback_unlock(b);
	return forward_lock_release_owner(ctx, file, owner);
}
