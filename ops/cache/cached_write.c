/* Writes to an open file, and the flushes that settle them. */
#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* The handle at the workspace, for a change; sends the deferred attribute changes first. */
static int writable_inner(
	struct op_context *ctx, struct cached_file *file, struct open_file **ret_inner)
{
	int r = cached_file_inner(ctx, file, ret_inner);

	if (r == 0 && file->created)
		r = cached_apply_deferred(cached_of_file(file), ctx, file, false);
	return r;
}

static void capture(struct cached_file *file, const void *data, size_t size, off_t offset)
{
	if (!file->capturing)
		return;
	file->capturing = (size_t)offset == file->capture.size &&
			  buffer_append(&file->capture, data, size) == 0;
	file->captured_writes += file->capturing;
}

static void capture_size(struct cached_file *file, uint64_t size_bytes)
{
	static const uint8_t zeros[4096];
	struct buffer *capture = &file->capture;

	if (!file->capturing)
		return;
	if (size_bytes < capture->size)
		capture->size = size_bytes;
	while (capture->size < size_bytes && file->capturing) {
		size_t left = size_bytes - capture->size;

		file->capturing = buffer_append(capture, zeros,
					  left < sizeof(zeros) ? left : sizeof(zeros)) == 0;
	}
	file->captured_writes += file->capturing;
}

void cached_begin_write(struct cached_file *file)
{
	file->extra->writers += !file->dirty;
	file->dirty = true;
	file->writes.begun++;
	file->extra->turn = ++cached_of_file(file)->turns;
}

void cached_end_write(struct cached_file *file)
{
	file->writes.ended++;
}

uint64_t cached_begin_looking(const struct extra *extra)
{
	const struct cached_file *file;

	if (!extra || extra->writers > 1) /* the look is ordered behind the writes of one handle */
		return 0;
	LIST_FOREACH(file, &extra->files, link)
		if (file->writes.begun != file->writes.ended)
			return 0;
	return extra->turn;
}

void cached_end_looking(struct extra *extra, uint64_t begun)
{
	if (extra && begun && extra->turn == begun)
		extra->seen_turn = begun;
}

/* A change of the content begins: the cached content and attributes are no longer valid. */
static void begin_content(struct cached *c, struct cached_file *file)
{
	cached_begin_write(file);
	c->changes++;
	file->written = true;
	file->extra->write_count++;
	content_detach(c, file->extra);
}

/* Whether a write was in progress at `then`, or has begun since. */
static bool has_written_since(const struct cached_file *file, struct writes then)
{
	return then.begun != then.ended || file->writes.begun != then.begun;
}

ssize_t cached_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	ssize_t written;
	int r = writable_inner(ctx, file, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	begin_content(c, file);
	if (!(file->flags & O_APPEND)) {
		file->sized.write_count++;
		capture(file, data, size, offset);
	} else {
		file->capturing = false;
	}
	cached_leave(c);
	written = workspace_write(ctx, inner, data, size, offset);
	cached_enter(c);
	if (written != (ssize_t)size)
		file->capturing = false;
	if (written > 0 && (uint64_t)(offset + written) > file->sized.written_end)
		file->sized.written_end = (uint64_t)(offset + written);
	cached_end_write(file);
	cached_leave(c);
	return written;
}

/* Makes the captured writes the content of the known state, unless another handle here wrote to the
 * file, too.  An event reports the writes of processes at the workspace. */
static void take_captured(struct cached *c, struct cached_file *file)
{
	struct extra *x = file->extra;
	struct content *content;

	if (!file->capturing || file->captured_writes != x->write_count || x->writers > 0 ||
		extra_is_locked(x) || !file->capture.size)
		return;
	content = content_new(file->capture.data, file->capture.size);
	if (content && content_attach(c, x, content)) {
		content->settled = false;
		content->is_own = true;
	}
}

static void mark_clean(struct cached_file *file)
{
	file->extra->writers -= file->dirty;
	file->dirty = false;
}

/* A flush or content change has returned `r`: the workspace has all writes of the handle that had
 * ended when the call began (`then`).  Takes the reply and, if no write came after those, settles
 * content and attributes. */
static int settle(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct writes then, struct asking *asking, int r)
{
	const struct attributes *outcome = &asking->outcome->object;

	cached_take_reply(c, ctx, asking);
	if (file->written || (file->dirty && outcome->mode))
		cached_changed(c, asking, &file->extra->id, outcome, FROM_CHANGE);
	if (!has_written_since(file, then)) {
		mark_clean(file);
		if (file->written && r == 0 && outcome->mode)
			take_captured(c, file);
		file->written = false;
	}
	cached_leave(c);
	return r;
}

/* The writes so far, taken before a call that settles them. */
static struct writes writes_now(struct cached *c, const struct cached_file *file)
{
	struct writes now;

	cached_enter(c);
	now = file->writes;
	cached_leave(c);
	return now;
}

/* The error of the earlier call counts. */
static int first_error(int first, int second)
{
	return first < 0 ? first : second;
}

int cached_flush(struct op_context *ctx, struct open_file *open_file)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner = atomic_load(&file->inner);
	struct asking asking;
	struct writes then;
	int r;

	if (!inner)
		return 0;
	then = writes_now(c, file);
	r = cached_apply_deferred(c, ctx, file, true);
	cached_enter(c);
	cached_begin_change(c, ctx, &asking);
	r = first_error(r, workspace_flush(ctx, inner));
	r = first_error(cached_take_name(c, ctx, file), r);
	ctx->served.is_other = file->is_other;
	return settle(c, ctx, file, then, &asking, r);
}

int cached_fsync(struct op_context *ctx, struct workspace *w, struct open_file *open_file,
	const char *path, bool data_only)
{
	struct cached *c = cached_of(w);
	struct cached_file *file = cached_file_of(open_file);
	struct open_file *inner;
	struct asking asking;
	struct writes then;
	int r;

	if (!open_file) {
		cached_enter(c);
		cached_await_at(c, ctx, path);
		cached_leave(c);
		return workspace_fsync(ctx, c->base.inner, NULL, path, data_only);
	}
	inner = atomic_load(&file->inner);
	if (!inner)
		return 0;
	then = writes_now(c, file);
	r = file->created ? cached_apply_deferred(c, ctx, file, false) : 0;
	cached_enter(c);
	cached_begin_change(c, ctx, &asking);
	r = first_error(r, workspace_fsync(ctx, c->base.inner, inner, "", data_only));
	r = first_error(cached_take_name(c, ctx, file), r);
	return settle(c, ctx, file, then, &asking, r);
}

int cached_close(struct op_context *ctx, struct open_file *open_file)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct asking asking;
	int r;

	r = atomic_load(&file->inner) ? cached_apply_deferred(c, ctx, file, true) : 0;
	r = first_error(cached_take_name(c, ctx, file), r);
	cached_enter(c);
	cached_forget_async(c, file);
	file->closing = true; /* from here on `inner` does not change */
	if (r == 0 && cached_idle_keep(c, file)) {
		cached_leave(c);
		return 0;
	}
	cached_begin_change(c, ctx, &asking);
	r = first_error(r, workspace_close(ctx, atomic_load(&file->inner)));
	settle(c, ctx, file, file->writes, &asking, r); /* no other call uses the handle */
	cached_enter(c);
	mark_clean(file);
	cached_assemble_end(c, file);
	cached_leave_object(c, file);
	cached_file_free(file);
	cached_leave(c);
	return r;
}

/* Before a call other than write that changes the content; its reply has the new attributes.
 * Called with the lock, releases it. */
static struct writes begin_content_change(
	struct cached *c, struct op_context *ctx, struct cached_file *file, struct asking *asking)
{
	struct writes then;

	file->capturing = false;
	begin_content(c, file);
	then = file->writes;
	then.ended++; /* the change itself */
	cached_begin_change(c, ctx, asking);
	return then;
}

static void end_content_change(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct writes then, struct asking *asking)
{
	cached_enter(c);
	cached_end_write(file);
	cached_leave(c);
	settle(c, ctx, file, then, asking, 0);
}

int cached_fallocate(struct op_context *ctx, struct open_file *open_file, unsigned mode,
	off_t offset, off_t length)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	struct asking asking;
	struct writes then;
	int r = writable_inner(ctx, file, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	then = begin_content_change(c, ctx, file, &asking);
	r = workspace_fallocate(ctx, inner, mode, offset, length);
	end_content_change(c, ctx, file, then, &asking);
	return r;
}

/* Predicts the attributes after a truncation, except size and times.  False: they are not known, or
 * the truncation clears a mode bit or may be refused. */
static bool guess_attributes(struct cached *c, const struct cached_file *file, uint64_t size_bytes,
	struct attributes *ret_attributes)
{
	enum { SPECIAL_BITS = 07000, SURE_BYTES = 1 << 30 };

	if (file->unnamed)
		*ret_attributes = file->attributes;
	else if (!tree_last_attributes(c->tree, &file->extra->id, ret_attributes))
		return false;
	return cached_may_write(file->flags) && !(ret_attributes->mode & SPECIAL_BITS) &&
	       size_bytes <= SURE_BYTES;
}

static void set_size(struct attributes *attributes, uint64_t size_bytes)
{
	uint64_t blocks = (size_bytes + 511) / 512;

	attributes->size_bytes = size_bytes;
	if (attributes->blocks > blocks)
		attributes->blocks = blocks;
}

int cached_truncate(struct op_context *ctx, struct open_file *open_file, uint64_t size_bytes,
	struct attributes *ret_attributes)
{
	const struct attributes want = {.size_bytes = size_bytes};
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct attributes attributes;
	struct open_file *inner;
	struct asking asking;
	struct writes then;
	int r = writable_inner(ctx, file, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	if (!guess_attributes(c, file, size_bytes, &attributes)) {
		cached_leave(c);
		return -EAGAIN;
	}
	set_size(&attributes, size_bytes);
	begin_content(c, file);
	capture_size(file, size_bytes);
	then = (struct writes){file->writes.begun, file->writes.ended + 1};
	cached_begin_change(c, ctx, &asking);
	ctx->create_hint = CREATE_ASYNC;
	r = workspace_setattr(ctx, c->base.inner, &OBJECT_OF(inner), SET_SIZE, &want, &attributes);
	ctx->create_hint = CREATE_WAITS;
	if (r == 0)
		*ret_attributes = attributes;
	if (r == 0 && ctx->served.is_async)
		then = (struct writes){0}; /* the next flush returns the new attributes */
	else if (r == 0)
		asking.outcome->object = attributes;
	if (r < 0) {
		cached_enter(c);
		file->capturing = false; /* `capture` has the new size, the file does not */
		cached_leave(c);
	}
	end_content_change(c, ctx, file, then, &asking);
	return r;
}

ssize_t cached_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	struct cached_file *target = cached_file_of(to);
	struct cached *c = cached_of_file(target);
	struct open_file *inner_from, *inner_to;
	struct asking asking;
	struct writes then;
	ssize_t copied;
	int r = cached_file_inner(ctx, cached_file_of(from), &inner_from);

	if (r == 0)
		r = writable_inner(ctx, target, &inner_to);
	if (r < 0)
		return r;
	cached_enter(c);
	then = begin_content_change(c, ctx, target, &asking);
	copied = workspace_copy_range(ctx, inner_from, from_offset, inner_to, to_offset, size);
	end_content_change(c, ctx, target, then, &asking);
	return copied;
}
