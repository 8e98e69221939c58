/* Deferred attribute changes of a file whose handle created or truncated it: tar, cp and install
 * write a file, and set owner, mode and times before they close it. */
#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum {
	DEFERRABLE = SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME,
	SPECIAL_BITS = 07000,
	WAIT_STEP_MS = 50, /* how late an interrupt is noticed */
};

struct cached_file *cached_creator_of(const struct extra *x)
{
	struct cached_file *file;

	LIST_FOREACH(file, &x->files, link)
		if (file->created)
			break;
	return file;
}

/* False if another handle writes the file: the size and the final mtime are then unknown here. */
static bool is_alone(const struct cached_file *creator)
{
	const struct cached_file *file;

	LIST_FOREACH(file, &creator->extra->files, link)
		if (file != creator && (file->flags & O_ACCMODE) != O_RDONLY)
			return false;
	return creator->captured_writes == creator->extra->write_count;
}

/* A change that may fail, or whose result only the workspace knows, is not deferred. */
static bool may_wait(const struct op_context *ctx, const struct cached_file *file,
	const struct attributes *now, unsigned mask, const struct attributes *want)
{
	return (mask & ~(unsigned)DEFERRABLE) == 0 && file->capturing && is_alone(file) &&
	       (ctx->uid == 0 || ctx->uid == now->uid) &&
	       !((mask & SET_UID) && want->uid != now->uid) &&
	       !((mask & SET_GID) && want->gid != now->gid) &&
	       !((mask & SET_MODE) && (want->mode & SPECIAL_BITS)) && !(now->mode & SPECIAL_BITS) &&
	       now->nlink == 1;
}

static void merge(struct attributes *into, unsigned mask, const struct attributes *want)
{
	if (mask & SET_MODE)
		into->mode = (into->mode & ~07777u) | (want->mode & 07777);
	if (mask & SET_UID)
		into->uid = want->uid;
	if (mask & SET_GID)
		into->gid = want->gid;
	if (mask & SET_ATIME)
		into->atime = want->atime;
	if (mask & SET_MTIME)
		into->mtime = want->mtime;
}

/* The present time by the workspace's clock: the ctime of the creation plus the time since. */
static struct timespec workspace_time(const struct cached_file *file)
{
	const struct timespec *created = &file->attributes.ctime;
	uint64_t since_ns = (cached_now_ms() - file->created_ms) * 1000000;
	struct timespec time = clock_at_ns(since_ns + (uint64_t)created->tv_nsec);

	time.tv_sec += created->tv_sec;
	return time;
}

bool cached_defer(struct cached *c, struct op_context *ctx, const struct extra *x, unsigned mask,
	const struct attributes *want, struct attributes *ret_attributes)
{
	struct cached_file *file = cached_creator_of(x);
	struct attributes now;

	if (!file)
		return false;
	if (file->unnamed)
		now = file->attributes;
	else if (!tree_last_attributes(c->tree, &x->id, &now))
		return false;
	if (!may_wait(ctx, file, &now, mask, want))
		return false;
	/* The file has that owner already: only its ctime would change. */
	if (!(mask & ~(unsigned)(SET_UID | SET_GID)) && !file->deferred_mask) {
		*ret_attributes = now;
		ret_attributes->size_bytes = file->capture.size;
		ctx->served.is_async = true;
		return true;
	}
	if (!file->deferred_mask) {
		file->deferred = now;
		LIST_INSERT_HEAD(&c->deferred, file, deferred_link);
	}
	file->deferred_mask |= mask;
	file->deferred.size_bytes = file->capture.size;
	file->deferred.blocks = (file->capture.size + 511) / 512;
	file->deferred.ctime = workspace_time(file);
	file->deferred_uid = ctx->uid;
	file->deferred_gid = ctx->gid;
	merge(&file->deferred, mask, want);
	cached_begin_write(file);
	cached_end_write(file);
	*ret_attributes = file->deferred;
	/* Only the workspace knows the mtime of the writes. */
	if (file->capture.size > 0 && !(file->deferred_mask & SET_MTIME)) {
		ret_attributes->mtime = file->deferred.ctime;
		ctx->served.is_async = true;
	}
	return true;
}

/* Takes the deferred changes out of the handle, which cannot be closed before end_applying().  0:
 * there are none; the caller must not call end_applying(). */
static unsigned take(struct cached *c, struct cached_file *file, struct attributes *ret_want,
	struct applying *ret_applying)
{
	unsigned mask = file->deferred_mask;

	if (!mask)
		return 0;
	LIST_REMOVE(file, deferred_link);
	*ret_want = file->deferred;
	file->deferred_mask = 0;
	file->applying++;
	*ret_applying = (struct applying){.file = file, .begun = ++c->applied};
	LIST_INSERT_HEAD(&c->applying, ret_applying, link);
	return mask;
}

static void end_applying(struct cached *c, struct applying *applying)
{
	LIST_REMOVE(applying, link);
	applying->file->applying--;
	pthread_cond_broadcast(&c->changed);
}

/* Whether a thread is sending changes of the object (NULL: of any object) that it had started when
 * cached.applied was `begun`. */
static bool is_applied(const struct cached *c, const struct extra *x, uint64_t begun)
{
	const struct applying *applying;

	LIST_FOREACH(applying, &c->applying, link)
		if (applying->begun <= begun && (!x || applying->file->extra == x))
			return true;
	return false;
}

/* Waits for the changes that other threads are sending: their owner has seen them succeed. */
static void await_applied(struct cached *c, struct op_context *ctx, const struct extra *x)
{
	const uint64_t begun = c->applied;

	while (is_applied(c, x, begun) && !op_interrupted(ctx))
		clock_cond_wait_ms(&c->changed, &c->lock, WAIT_STEP_MS);
}

/* Reports the new attributes to the upper layer: the kernel has predicted ones with an earlier
 * ctime. */
static void tell(struct cached *c, uint64_t at, const char *path, const struct object_id *directory,
	const struct attributes *attributes)
{
	const struct change change = {.kind = CHANGE_ENTRY,
		.path = path,
		.directory = *directory,
		.at = at,
		.exists = true,
		.attributes = *attributes};

	if (c->sink)
		c->sink(c->sink_user, &change);
}

/* `path`: a known path of the object, or NULL. */
static int apply(struct cached *c, struct op_context *ctx, struct cached_file *file,
	const char *path, const struct object_ref *object, unsigned mask,
	const struct attributes *want)
{
	struct attributes attributes;
	struct asking asking;
	struct found found;
	bool is_unnamed = file->unnamed;
	int r;

	cached_begin_change(c, ctx, &asking);
	r = workspace_setattr(ctx, c->base.inner, object, mask, want, &attributes);
	if (is_unnamed)
		cached_take_name(c, ctx, file);
	cached_end_asking(c, ctx, &asking);
	if (r < 0)
		return r;
	cached_changed(c, &asking, &attributes.id, &attributes, cached_source_of(mask));
	found = path ? cached_find(c, path) : (struct found){0};
	if (object_id_equal(&found.id, &attributes.id))
		tell(c, asking.look.at, path, &found.directory, &attributes);
	return 0;
}

int cached_apply_deferred(
	struct cached *c, struct op_context *ctx, struct cached_file *file, bool last)
{
	struct object_ref object = OBJECT_OF(atomic_load(&file->inner));
	cleanup_free char *path = NULL;
	struct applying applying;
	struct attributes want;
	unsigned mask;
	int r;

	cached_enter(c);
	/* The handle may be closed next: no later change may be deferred. */
	file->created = file->created && !last;
	await_applied(c, ctx, file->extra);
	r = file->deferred_error;
	file->deferred_error = 0;
	mask = take(c, file, &want, &applying);
	if (mask && r == 0) {
		if (file->unnamed)
			path = strdup(file->path);
		else
			cached_path_of(c, &file->extra->id, &path);
		r = apply(c, ctx, file, path, &object, mask, &want);
	}
	if (mask)
		end_applying(c, &applying);
	cached_leave(c);
	return r;
}

/* False: the file has no name any more, there is no memory, or the call was interrupted; the
 * changes stay deferred. */
static bool apply_one(struct cached *c, struct op_context *ctx, struct cached_file *file)
{
	cleanup_free char *path = NULL;
	struct object_ref object = {.id = file->attributes.id};
	struct op_context own = *ctx;
	struct applying applying;
	struct attributes want;
	unsigned mask;
	int r;

	if (file->applying) { /* one thread at a time; the handle may be closed after the wait */
		await_applied(c, ctx, file->extra);
		return !op_interrupted(ctx);
	}
	if (cached_path_of(c, &file->extra->id, &path) < 0)
		return false;
	object.path = path;
	own.uid = file->deferred_uid;
	own.gid = file->deferred_gid;
	own.group_count = 0;
	mask = take(c, file, &want, &applying);
	r = apply(c, &own, file, path, &object, mask, &want);
	ctx->served = own.served;
	/* The creator's close returns the error, unless the file was removed or replaced. */
	if (r < 0 && !path_misses_object(r))
		file->deferred_error = r;
	end_applying(c, &applying);
	return true;
}

void cached_apply_deferred_at(struct cached *c, struct op_context *ctx, const char *path)
{
	const struct object_id id =
		LIST_EMPTY(&c->deferred) ? (struct object_id){0} : cached_find(c, path).id;
	const struct extra *x = extra_find(c, &id);
	struct cached_file *file = x ? cached_creator_of(x) : NULL;

	if (file && file->deferred_mask)
		apply_one(c, ctx, file);
	else if (!id.inode)
		cached_apply_all_deferred(c, ctx);
	x = extra_find(c, &id);
	if (x)
		await_applied(c, ctx, x);
}

void cached_apply_all_deferred(struct cached *c, struct op_context *ctx)
{
	struct cached_file *file = LIST_FIRST(&c->deferred);
	bool goes_on;

	while (file) {
		goes_on = apply_one(c, ctx, file);
		if (op_interrupted(ctx)) /* the handle may be closed */
			break;
		file = goes_on ? LIST_FIRST(&c->deferred) : LIST_NEXT(file, deferred_link);
	}
	await_applied(c, ctx, NULL);
}
