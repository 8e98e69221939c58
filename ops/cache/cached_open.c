/* Handles: open, create, and the objects that they belong to. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"

bool cached_may_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

/* O_NOATIME is passed on by the open at the workspace, so it needs a handle of its own there. */
bool cached_may_be_known(int flags)
{
	return !cached_may_write(flags) && !(flags & O_NOATIME);
}

/* ---- Handles -------------------------------------------------------------------- */

static struct cached_file *file_new(struct cached *c, const char *path, int flags)
{
	struct cached_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->file.workspace = &c->base.workspace;
	file->flags = flags;
	file->capture.limit_bytes = SMALL_FILE_MAX_BYTES;
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return NULL;
	}
	pthread_mutex_init(&file->open_lock, NULL);
	return file;
}

void cached_file_free(struct cached_file *file)
{
	if (!file)
		return;
	pthread_mutex_destroy(&file->open_lock);
	content_unref(file->content);
	buffer_done(&file->capture);
	free(file->path);
	free(file);
}

/* Adds the handle to the object in file->attributes.  -ENOMEM. */
static int join_object(struct cached *c, struct cached_file *file)
{
	struct extra *x = extra_make(c, &file->attributes.id);

	if (!x)
		return -ENOMEM;
	file->extra = x;
	LIST_INSERT_HEAD(&x->files, file, link);
	return 0;
}

void cached_leave_object(struct cached *c, struct cached_file *file)
{
	LIST_REMOVE(file, link);
	if (!LIST_EMPTY(&file->extra->files))
		return;
	file->extra->locked = false;
	file->extra->granted_at = 0;
	extra_tidy(c, file->extra);
	cached_drop_dead(c, &file->attributes.id);
}

int cached_move_to_object(
	struct cached *c, struct cached_file *file, const struct attributes *attributes)
{
	struct extra *x = extra_make(c, &attributes->id);

	if (!x)
		return -ENOMEM;
	file->extra->writers -= file->dirty;
	cached_leave_object(c, file);
	file->attributes = *attributes;
	file->extra = x;
	x->writers += file->dirty;
	if (file->dirty)
		x->turn = ++c->turns;
	LIST_INSERT_HEAD(&x->files, file, link);
	return 0;
}

static int open_inner(struct op_context *ctx, struct cached_file *file)
{
	struct cached *c = cached_of_file(file);
	struct object_ref object = {.id = file->attributes.id};
	cleanup_free char *path = NULL;
	struct attributes attributes;
	struct open_file *inner;
	uint64_t state;
	int r;

	cached_enter(c);
	state = tree_state(c->tree, &file->extra->id);
	r = cached_path_of(c, &file->extra->id, &path);
	cached_leave(c);
	if (r < 0 && r != -ENOENT)
		return r;
	object.path = path ? path : file->path;
	r = workspace_open_file(ctx, c->base.inner, &object, file->flags, &inner, &attributes);
	if (r == 0) {
		cached_enter(c);
		file->opened_state = state;
		atomic_store(&file->inner, inner);
		cached_leave(c);
	}
	return r;
}

int cached_file_inner(
	struct op_context *ctx, struct cached_file *file, struct open_file **ret_inner)
{
	int r = 0;

	if (!atomic_load(&file->inner)) {
		pthread_mutex_lock(&file->open_lock);
		if (!atomic_load(&file->inner))
			r = open_inner(ctx, file);
		pthread_mutex_unlock(&file->open_lock);
	}
	if (r < 0)
		return r;
	*ret_inner = atomic_load(&file->inner);
	return 0;
}

static struct cached_file *find_unopened(struct cached *c, const char *path)
{
	const struct object_id id = cached_find(c, path).id;
	const struct extra *x = extra_find(c, &id);
	struct cached_file *file = x ? LIST_FIRST(&x->files) : NULL;

	while (file && (file->closing || atomic_load(&file->inner)))
		file = LIST_NEXT(file, link);
	return file;
}

void cached_hold_open(struct cached *c, struct op_context *ctx, const char *path)
{
	struct cached_file *file;

	while ((file = find_unopened(c, path))) {
		struct object_ref object = {.path = path, .id = file->attributes.id};
		struct open_file *inner;
		struct attributes attributes;
		int flags = file->flags, r;
		bool stays;

		cached_leave(c);
		r = workspace_open_file(ctx, c->base.inner, &object, flags, &inner, &attributes);
		cached_enter(c);
		if (r < 0)
			return;
		stays = find_unopened(c, path) == file;
		if (stays && file->flags == flags && pthread_mutex_trylock(&file->open_lock) == 0) {
			if (!atomic_load(&file->inner))
				atomic_store(&file->inner, steal_ptr(&inner));
			pthread_mutex_unlock(&file->open_lock);
		}
		if (!inner)
			continue;
		cached_leave(c);
		workspace_close(ctx, inner);
		cached_enter(c);
		if (stays) /* another thread is opening it */
			return;
	}
}

int cached_inner_object(
	struct op_context *ctx, const struct object_ref *object, struct object_ref *ret_object)
{
	*ret_object = *object;
	if (!object->file)
		return 0;
	return cached_file_inner(ctx, cached_file_of(object->file), &ret_object->file);
}

/* ---- Opening ---------------------------------------------------------------------- */

static int check_type(const struct attributes *attributes)
{
	if (S_ISREG(attributes->mode))
		return 0;
	if (S_ISLNK(attributes->mode))
		return -ELOOP;
	return S_ISDIR(attributes->mode) ? -EISDIR : -ENXIO;
}

static int hand_out(struct cached_file *file, int r, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	if (r < 0) {
		cached_file_free(file);
		return r;
	}
	*ret_attributes = file->attributes;
	*ret_file = &file->file;
	return 0;
}

/* A handle that need not be opened at the workspace: a caller has read the content before, which is
 * then loaded only if the handle is read; or it is in memory.  NULL: neither, or no memory. */
static struct cached_file *file_unopened(
	struct cached *c, const struct attributes *attributes, const char *path, int flags)
{
	const struct extra *x = extra_find(c, &attributes->id);
	struct content *content = x ? x->content : NULL;
	struct cached_file *file;

	if (!content && (attributes->is_generated || (attributes->size_bytes > 0 &&
							     !cached_was_read(c, &attributes->id))))
		return NULL;
	file = file_new(c, path, flags);
	if (file && content) {
		content_opened(c, content);
		file->content = content_ref(content);
	}
	return file;
}

/* Opens a file that a caller has read before, whose content is in memory, or that is open still,
 * without the workspace.  -EAGAIN: it is none of these. */
static int open_known(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct attributes attributes;
	struct cached_file *file;
	struct found found;
	int r = cached_resolve(c, ctx, object->path, &found, &attributes);

	if (r == 0 && !cached_was_read(c, &found.id))
		r = cached_await_content(c, ctx, object->path, &found, &attributes);
	if (r < 0)
		return r;
	if (object->id.inode && !object_id_equal(&object->id, &found.id))
		return -ESTALE;
	r = check_type(&attributes);
	if (r < 0)
		return r;
	file = cached_idle_take(c, &found.id, object->path, flags);
	if (!file)
		file = file_unopened(c, &attributes, object->path, flags);
	if (!file)
		return -EAGAIN;
	file->attributes = attributes;
	r = join_object(c, file);
	if (r < 0 && atomic_load(&file->inner)) {
		cached_idle_discard(c, file);
		return r;
	}
	if (r == 0) {
		c->statistics.hits++;
		ctx->served.from_cache = ctx->served.round_trips == 0;
	}
	return hand_out(file, r, ret_file, ret_attributes);
}

/* Starts to capture what the handle writes, so that the cache has the content after the flush. */
static void start_capture(struct cached_file *file, uint64_t at)
{
	file->opened_at = at;
	file->capturing = cached_may_write(file->flags) && file->attributes.size_bytes == 0;
	file->captured_writes = file->extra->write_count;
}

/* The workspace has opened the file.  -ENOMEM: the inner handle was closed again. */
static int opened(struct cached *c, struct op_context *ctx, struct cached_file *file, uint64_t at,
	struct open_file *inner)
{
	int r = join_object(c, file);

	if (r == 0) {
		atomic_store(&file->inner, inner);
		if (cached_is_newest(c, &file->extra->id, at))
			file->opened_state = tree_state(c->tree, &file->extra->id);
		start_capture(file, at);
		return 0;
	}
	cached_leave(c);
	workspace_close(ctx, inner);
	cached_enter(c);
	return r;
}

/* The handle created or truncated the file: attribute changes may be deferred until its flush. */
static void begin_making(struct cached_file *file)
{
	file->created = true;
	file->created_ms = cached_now_ms();
}

/* Whether the workspace will certainly allow the open: the file is the caller's own, and not
 * executable, so that ETXTBSY is impossible. */
static bool is_plain_own(const struct op_context *ctx, const struct attributes *attributes)
{
	return S_ISREG(attributes->mode) && attributes->nlink == 1 && attributes->uid == ctx->uid &&
	       (attributes->mode & S_IWUSR) && !(attributes->mode & 07111);
}

/* Sets CREATE_ASYNC for an open with O_WRONLY and O_TRUNC in a watched directory: the caller
 * need not wait until the file is truncated. */
static void consider_async_open(struct cached *c, struct op_context *ctx,
	const struct object_ref *object, int flags, struct attributes *ret_attributes)
{
	struct found found;

	if (!c->feed || object->file || (flags & O_ACCMODE) != O_WRONLY || !(flags & O_TRUNC) ||
		cached_walk(c, object->path, &found) < 0 ||
		!object_id_equal(&found.id, &object->id) || !found.directory.inode ||
		!cached_get_attributes(c, &found.id, ret_attributes) ||
		!is_plain_own(ctx, ret_attributes))
		return;
	ctx->parent = found.directory;
	ctx->create_hint = cached_is_watched(c, &found.directory) ? CREATE_ASYNC : CREATE_IS_FIRST;
	ret_attributes->size_bytes = 0;
	ret_attributes->blocks = 0;
}

/* The open was answered early: the known attributes are not valid for others until its reply. */
static int opened_async(struct cached *c, struct op_context *ctx, struct cached_file *file,
	const struct attributes *known, struct open_file *inner)
{
	const struct timespec now = file->attributes.ctime;
	int r;

	file->attributes = *known;
	file->attributes.mtime = file->attributes.ctime = now;
	file->attributes.changed_lately = true;
	r = opened(c, ctx, file, 0, inner);
	if (r < 0)
		return r;
	content_detach(c, file->extra);
	file->captured_writes = ++file->extra->write_count;
	begin_making(file);
	file->was_there = true;
	cached_begin_async(c, ctx, file);
	return 0;
}

static int open_asking(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached_file *file = file_new(c, object->path, flags);
	struct open_file *inner;
	const struct object_id parent = ctx->parent;
	struct attributes known;
	struct asking asking;
	struct object_ref at;
	int r = file ? cached_inner_object(ctx, object, &at) : -ENOMEM;

	if (r < 0) {
		cached_file_free(file);
		return r;
	}
	cached_enter(c);
	cached_await_object(c, ctx, object);
	cached_apply_deferred_at(c, ctx, object->path);
	cached_bound_async(c, ctx);
	consider_async_open(c, ctx, object, flags, &known);
	cached_ask(c, ctx, &asking);
	r = workspace_open_file(ctx, c->base.inner, &at, flags, &inner, &file->attributes);
	ctx->create_hint = CREATE_WAITS;
	cached_end_asking(c, ctx, &asking);
	if (r == 0 && ctx->served.is_async) {
		r = opened_async(c, ctx, file, &known, inner);
	} else if (r == 0) {
		if (flags & O_TRUNC)
			cached_changed(
				c, &asking, &file->attributes.id, &file->attributes, FROM_CHANGE);
		else
			cached_learn_attributes(
				c, &asking.look, &file->attributes, FROM_LOOK, NULL);
		r = opened(c, ctx, file, asking.look.at, inner);
		if (r == 0 && (flags & O_TRUNC)) {
			file->captured_writes = ++file->extra->write_count;
			begin_making(file);
		}
	} else if (!object->file && (path_misses_object(r) || path_leads_to_another(r))) {
		cached_invalidate(c, asking.look.at, &object->parent, object->path);
	}
	ctx->parent = parent;
	cached_leave(c);
	return hand_out(file, r, ret_file, ret_attributes);
}

int cached_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct cached_file *file = file_new(c, path, flags);
	struct open_file *inner;
	struct asking asking;
	int r;

	if (!file)
		return -ENOMEM;
	cached_enter(c);
	r = cached_await_at(c, ctx, path);
	cached_bound_async(c, ctx);
	ctx->create_hint = r == 0 ? cached_create_hint(c, ctx, path, flags) : CREATE_WAITS;
	cached_begin_change(c, ctx, &asking);
	r = workspace_create(ctx, c->base.inner, path, flags, mode, &inner, &file->attributes);
	ctx->create_hint = CREATE_WAITS;
	if (ctx->served.is_async)
		cached_end_asking(c, ctx, &asking);
	else
		cached_end_making(c, ctx, &asking, path, NULL, r, &file->attributes);
	if (r == 0) {
		cached_forget_missed(c, ctx, &ctx->parent, path);
		r = opened(c, ctx, file, asking.look.at, inner);
		begin_making(file);
		if (r == 0 && ctx->served.is_async)
			cached_begin_async(c, ctx, file);
	}
	cached_leave(c);
	return hand_out(file, r, ret_file, ret_attributes);
}

int cached_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct cached_file *file = file_new(c, directory, flags);
	struct open_file *inner;
	int r;

	if (!file)
		return -ENOMEM;
	r = workspace_create_unnamed(
		ctx, c->base.inner, directory, flags, mode, &inner, &file->attributes);
	if (r == 0) {
		cached_enter(c);
		r = opened(c, ctx, file, ctx->served.position, inner);
		cached_leave(c);
	}
	return hand_out(file, r, ret_file, ret_attributes);
}

/* The reply to the open had the content of a small file: caches it. */
static void keep_content(struct op_context *ctx, struct cached_file *file)
{
	struct cached *c = cached_of_file(file);
	bool wanted;
	char none;

	cached_enter(c);
	wanted = cached_is_worth_keeping(file) && !file->extra->content;
	cached_leave(c);
	if (wanted)
		cached_read_whole(ctx, file, atomic_load(&file->inner), &none, 0, 0);
}

/* The caller has opened what is at the path: its later unlink or rename means that object. */
static void has_opened(struct cached *c, struct op_context *ctx, const char *path)
{
	struct found found;

	cached_enter(c);
	found = cached_find(c, path);
	cached_forget_missed(c, ctx, &found.directory, path);
	cached_leave(c);
}

int cached_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	int r = -EAGAIN;

	if (!object->file && cached_may_be_known(flags)) {
		cached_enter(c);
		cached_await_at(c, ctx, object->path);
		r = open_known(c, ctx, object, flags, ret_file, ret_attributes);
		cached_leave(c);
	}
	if (r != -EAGAIN)
		return r;
	r = open_asking(c, ctx, object, flags, ret_file, ret_attributes);
	if (r == 0 && !object->file && cached_may_write(flags))
		has_opened(c, ctx, object->path);
	if (r == 0 && (flags & O_NOATIME) && !object->file)
		keep_content(ctx, cached_file_of(*ret_file));
	return r;
}
