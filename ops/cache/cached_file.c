#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

static bool is_writable(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

static bool is_small(const struct attributes *attributes)
{
	return S_ISREG(attributes->mode) && attributes->size_bytes <= SMALL_FILE_MAX_BYTES;
}

static struct cached *cached_of_file(const struct cached_file *file)
{
	return cached_of(file->file.workspace);
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

static void file_free(struct cached_file *file)
{
	if (!file)
		return;
	pthread_mutex_destroy(&file->open_lock);
	content_unref(file->content);
	buffer_done(&file->capture);
	free(file->path);
	free(file);
}

/* To the object whose attributes the handle has.  -ENOMEM. */
static int join_object(struct cached *c, struct cached_file *file)
{
	struct extra *x = extra_make(c, &file->attributes.id);

	if (!x)
		return -ENOMEM;
	file->extra = x;
	LIST_INSERT_HEAD(&x->files, file, link);
	return 0;
}

static void leave_object(struct cached *c, struct cached_file *file)
{
	LIST_REMOVE(file, link);
	if (!LIST_EMPTY(&file->extra->files))
		return;
	file->extra->locked = false;
	extra_tidy(c, file->extra);
	cached_drop_dead(c, &file->attributes.id);
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

/* The handle at the place, opened if that has not been done.  Without the lock. */
static int file_inner(
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
		if (stays) /* somebody is opening it */
			return;
	}
}

int cached_inner_object(
	struct op_context *ctx, const struct object_ref *object, struct object_ref *ret_object)
{
	*ret_object = *object;
	if (!object->file)
		return 0;
	return file_inner(ctx, cached_file_of(object->file), &ret_object->file);
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
		file_free(file);
		return r;
	}
	*ret_attributes = file->attributes;
	*ret_file = &file->file;
	return 0;
}

/* A handle on content that is known.  -EAGAIN: it is not. */
static int open_known(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct attributes attributes;
	struct cached_file *file;
	const struct extra *x;
	struct found found;
	int r = cached_await_content(c, ctx, object->path, &found, &attributes);

	if (r < 0)
		return r;
	if (object->id.inode && !object_id_equal(&object->id, &found.id))
		return -ESTALE;
	r = check_type(&attributes);
	if (r < 0)
		return r;
	x = extra_find(c, &found.id);
	if (!(x && x->content) && attributes.size_bytes > 0)
		return -EAGAIN;
	file = file_new(c, object->path, flags);
	if (!file)
		return -ENOMEM;
	if (x && x->content)
		content_opened(c, x->content);
	file->content = x && x->content ? content_ref(x->content) : content_new("", 0);
	file->attributes = attributes;
	r = file->content ? join_object(c, file) : -ENOMEM;
	if (r == 0) {
		c->statistics.hits++;
		ctx->served.from_cache = ctx->served.round_trips == 0;
	}
	return hand_out(file, r, ret_file, ret_attributes);
}

/* What a handle writes from the first byte on is captured, so that it can be read back. */
static void start_capture(struct cached_file *file, uint64_t at)
{
	file->opened_at = at;
	file->capturing = is_writable(file->flags) && file->attributes.size_bytes == 0;
	file->captured_writes = file->extra->write_count;
}

/* The place has opened it.  -ENOMEM: closed again. */
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

static int open_asking(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached_file *file = file_new(c, object->path, flags);
	struct open_file *inner;
	struct asking asking;
	struct object_ref at;
	int r = file ? cached_inner_object(ctx, object, &at) : -ENOMEM;

	if (r < 0) {
		file_free(file);
		return r;
	}
	cached_enter(c);
	cached_await_object(c, ctx, object);
	cached_apply_deferred_at(c, ctx, object->path);
	cached_ask(c, ctx, &asking);
	r = workspace_open_file(ctx, c->base.inner, &at, flags, &inner, &file->attributes);
	cached_end_asking(c, ctx, &asking);
	if (r == 0) {
		if (flags & O_TRUNC)
			cached_changed(
				c, &asking, &file->attributes.id, &file->attributes, FROM_CHANGE);
		else
			cached_learn_attributes(
				c, &asking.look, &file->attributes, FROM_LOOK, NULL);
		r = opened(c, ctx, file, asking.look.at, inner);
		if (r == 0 && (flags & O_TRUNC))
			file->captured_writes = ++file->extra->write_count;
	} else if (!object->file && (path_misses_object(r) || path_leads_to_another(r))) {
		cached_doubt(c, asking.look.at, &object->parent, object->path);
	}
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
	cached_bound_early(c, ctx);
	ctx->create_hint = r == 0 ? cached_create_hint(c, ctx, path, flags) : CREATE_WAITS;
	cached_begin_change(c, ctx, &asking);
	r = workspace_create(ctx, c->base.inner, path, flags, mode, &inner, &file->attributes);
	ctx->create_hint = CREATE_WAITS;
	if (ctx->served.is_early)
		cached_end_asking(c, ctx, &asking);
	else
		cached_end_making(c, ctx, &asking, path, NULL, r, &file->attributes);
	if (r == 0) {
		cached_has_met(c, ctx, &ctx->parent, path);
		r = opened(c, ctx, file, asking.look.at, inner);
		file->created = true;
		file->created_ms = cached_now_ms();
		if (r == 0 && ctx->served.is_early)
			cached_early(c, ctx, file);
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

/* ---- Attributes through a handle ------------------------------------------------------ */

/* The place never saw the handle, and as far as is known the name leads to another by now, or to
 * nothing: to ask would be in vain. */
static bool is_cut_off(struct cached *c, const struct cached_file *file)
{
	struct object_id directory;
	struct found found;
	int r;

	if (!file->content || atomic_load(&file->inner) ||
		tree_name_of(c->tree, &file->extra->id, &directory))
		return false;
	r = cached_walk(c, file->path, &found);
	return r == 0 || path_misses_object(r);
}

/* What we know has to do. */
static void last_attributes(const struct cached_file *file, struct attributes *ret_attributes)
{
	*ret_attributes = file->attributes;
	if (ret_attributes->nlink > 0)
		ret_attributes->nlink--;
}

/* Nothing has been changed since it was created.  Leaves the lock. */
static int answer_early(struct cached *c, struct op_context *ctx)
{
	c->statistics.hits++;
	ctx->served.from_cache = true;
	cached_leave(c);
	return 0;
}

int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of_file(file);
	struct object_ref object = {.path = ""};
	struct asking asking;
	bool is_known;
	int r;

	cached_enter(c);
	if (file->unnamed && !file->writes.begun) {
		*ret_attributes = file->attributes;
		return answer_early(c, ctx);
	}
	cached_wait_for_name(c, ctx, file);
	cached_apply_all_deferred(c, ctx);
	is_known = cached_get_attributes(c, &file->extra->id, ret_attributes);
	if (is_known || is_cut_off(c, file)) {
		if (!is_known)
			last_attributes(file, ret_attributes);
		c->statistics.hits++;
		ctx->served.from_cache = true;
		cached_leave(c);
		return 0;
	}
	cached_leave(c);
	r = file_inner(ctx, file, &object.file);
	if (r == 0) {
		cached_enter(c);
		cached_ask(c, ctx, &asking);
		r = workspace_getattr(ctx, c->base.inner, &object, ret_attributes);
		cached_end_asking(c, ctx, &asking);
		if (r == 0)
			cached_learn_attributes(c, &asking.look, ret_attributes, FROM_LOOK, NULL);
		cached_leave(c);
	}
	if (path_misses_object(r) && file->content && !object.file) {
		last_attributes(file, ret_attributes);
		return 0;
	}
	return r;
}

/* ---- Reading ----------------------------------------------------------------------------- */

static ssize_t copy_out(const struct content *content, void *data, size_t size, off_t offset)
{
	size_t at = (uint64_t)offset < content->size ? (size_t)offset : content->size;
	size_t count = content->size - at < size ? content->size - at : size;

	memcpy(data, content->data + at, count);
	return (ssize_t)count;
}

/* What the file holds now, if that is known, or held when it was last known; referenced. */
static struct content *known_content(struct cached *c, const struct cached_file *file)
{
	struct attributes attributes;

	if (is_cut_off(c, file))
		return content_ref(file->content);
	if (!file->extra->content || !cached_get_attributes(c, &file->extra->id, &attributes))
		return NULL;
	content_used(c, file->extra->content);
	return content_ref(file->extra->content);
}

static ssize_t read_content(struct cached *c, struct op_context *ctx, struct content *content,
	void *data, size_t size, off_t offset)
{
	ssize_t count = copy_out(content, data, size, offset);

	cached_enter(c);
	content_unref(content);
	c->statistics.hits++;
	cached_leave(c);
	ctx->served.from_cache = true;
	return count;
}

static bool is_worth_keeping(const struct cached_file *file)
{
	return file->extra->writers == 0 && is_small(&file->attributes) &&
	       !extra_is_locked(file->extra) && file->attributes.size_bytes > 0;
}

/* The file is as it was when it was opened: the place sends content along with that. */
static bool is_as_opened(struct cached *c, const struct cached_file *file)
{
	const struct object_id *id = &file->extra->id;
	struct attributes known;

	return tree_last_attributes(c->tree, id, &known) &&
	       tree_state(c->tree, id) == file->opened_state &&
	       attributes_same_version(&known, &file->attributes);
}

/* Reads a small file whole and keeps it, if it still is what it was when opened. */
static ssize_t read_whole(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset)
{
	struct cached *c = cached_of_file(file);
	size_t room = file->attributes.size_bytes + 1;
	cleanup_free void *buffer = malloc(room);
	struct content *content = NULL;
	ssize_t got, count;

	if (!buffer)
		return -ENOMEM;
	got = workspace_read(ctx, inner, buffer, room, 0);
	cached_enter(c);
	if (got == (ssize_t)room - 1)
		content = content_new(buffer, (size_t)got);
	c->statistics.misses++;
	if (!content || file->extra->content || !is_worth_keeping(file) || !is_as_opened(c, file))
		content_unref(content);
	else if (content_attach(c, file->extra, content))
		content_keep(c, file->extra);
	cached_leave(c);
	if (got < 0)
		return got;
	if (got == (ssize_t)room)
		return workspace_read(ctx, inner, data, size, offset);
	if (offset >= got)
		return 0;
	count = got - offset < (ssize_t)size ? got - offset : (ssize_t)size;
	memcpy(data, (char *)buffer + offset, (size_t)count);
	return count;
}

ssize_t cached_read(
	struct op_context *ctx, struct open_file *open_file, void *data, size_t size, off_t offset)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct content *content;
	struct open_file *inner;
	bool worth_keeping, is_gathered;
	ssize_t count;
	int r;

	if ((file->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	cached_enter(c);
	cached_wait_for_name(c, ctx, file);
	content = known_content(c, file);
	if (!content)
		cached_assemble_begin(c, file);
	worth_keeping = is_worth_keeping(file);
	is_gathered = file->assembly;
	cached_leave(c);
	if (content)
		return read_content(c, ctx, content, data, size, offset);
	r = file_inner(ctx, file, &inner);
	if (path_misses_object(r) && file->content)
		return copy_out(file->content, data, size, offset);
	if (r < 0)
		return r;
	if (worth_keeping && offset == 0)
		return read_whole(ctx, file, inner, data, size, offset);
	count = workspace_read(ctx, inner, data, size, offset);
	if (!is_gathered || count <= 0)
		return count;
	cached_enter(c);
	cached_assemble_take(c, file, data, (size_t)count, offset);
	cached_leave(c);
	return count;
}

/* The content of a small file has come with it. */
static void keep_content(struct op_context *ctx, struct cached_file *file)
{
	struct cached *c = cached_of_file(file);
	bool wanted;
	char none;

	cached_enter(c);
	wanted = is_worth_keeping(file) && !file->extra->content;
	cached_leave(c);
	if (wanted)
		read_whole(ctx, file, atomic_load(&file->inner), &none, 0, 0);
}

/* Whoever opens what is there, to write to it. */
static void now_means(struct cached *c, struct op_context *ctx, const char *path)
{
	struct found found;

	cached_enter(c);
	found = cached_find(c, path);
	cached_has_met(c, ctx, &found.directory, path);
	cached_leave(c);
}

int cached_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	int r = -EAGAIN;

	/* With O_NOATIME it is to be kept rather than read: that takes a handle at the place. */
	if (!object->file && !is_writable(flags) && !(flags & O_NOATIME)) {
		cached_enter(c);
		cached_await_at(c, ctx, object->path);
		r = open_known(c, ctx, object, flags, ret_file, ret_attributes);
		cached_leave(c);
	}
	if (r != -EAGAIN)
		return r;
	r = open_asking(c, ctx, object, flags, ret_file, ret_attributes);
	if (r == 0 && !object->file && is_writable(flags))
		now_means(c, ctx, object->path);
	if (r == 0 && (flags & O_NOATIME) && !object->file)
		keep_content(ctx, cached_file_of(*ret_file));
	return r;
}

/* ---- Writing -------------------------------------------------------------------------------- */

/* The handle at the place, for a change that comes after those that wait for it. */
static int writable_inner(
	struct op_context *ctx, struct cached_file *file, struct open_file **ret_inner)
{
	int r = file_inner(ctx, file, ret_inner);

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

void cached_begin_write(struct cached_file *file)
{
	file->extra->writers += !file->dirty;
	file->dirty = true;
	file->writes.begun++;
}

void cached_end_write(struct cached_file *file)
{
	file->writes.ended++;
}

/* What is known of the content and attributes is void from here on. */
static void begin_content(struct cached *c, struct cached_file *file)
{
	cached_begin_write(file);
	file->written = true;
	file->extra->write_count++;
	content_detach(c, file->extra);
}

/* Nothing was under way then, and nothing has begun since. */
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
	if (!(file->flags & O_APPEND))
		capture(file, data, size, offset);
	else
		file->capturing = false;
	cached_leave(c);
	written = workspace_write(ctx, inner, data, size, offset);
	cached_enter(c);
	if (written != (ssize_t)size)
		file->capturing = false;
	cached_end_write(file);
	cached_leave(c);
	return written;
}

/* What was captured is the content of the state that is known, unless somebody else here wrote,
 * too; somebody there: then an event has told, or will. */
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

/* A call of the place has returned that all writes of the handle are in that had ended `then`,
 * when it began, or that changed the file itself. */
static int settle(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct writes then, struct asking *asking, int r)
{
	const struct attributes *told = &asking->told->object;

	cached_take_reply(c, ctx, asking);
	if (file->written || (file->dirty && told->mode))
		cached_changed(c, asking, &file->extra->id, told, FROM_CHANGE);
	if (!has_written_since(file, then)) {
		mark_clean(file);
		if (file->written && r == 0 && told->mode)
			take_captured(c, file);
		file->written = false;
	}
	cached_leave(c);
	return r;
}

/* Before a call that is to settle what was written. */
static struct writes writes_now(struct cached *c, const struct cached_file *file)
{
	struct writes now;

	cached_enter(c);
	now = file->writes;
	cached_leave(c);
	return now;
}

/* The error of what waited comes first: it was asked for first. */
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
	cached_forget_early(c, file);
	file->closing = true; /* `inner` stays what it is */
	cached_begin_change(c, ctx, &asking);
	r = first_error(r, workspace_close(ctx, atomic_load(&file->inner)));
	settle(c, ctx, file, file->writes, &asking, r); /* nobody else has the handle any more */
	cached_enter(c);
	mark_clean(file);
	cached_assemble_end(c, file);
	leave_object(c, file);
	file_free(file);
	cached_leave(c);
	return r;
}

/* By other means than write; the reply says what that left.  With the lock, which is left. */
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

ssize_t cached_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	struct cached_file *target = cached_file_of(to);
	struct cached *c = cached_of_file(target);
	struct open_file *inner_from, *inner_to;
	struct asking asking;
	struct writes then;
	ssize_t copied;
	int r = file_inner(ctx, cached_file_of(from), &inner_from);

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

/* Blocks of file systems are as large at least. */
static bool may_have_holes(const struct content *content)
{
	enum { BLOCK_BYTES = 4096 };
	static const uint8_t zeros[BLOCK_BYTES];

	for (size_t at = 0; at < content->size; at += BLOCK_BYTES) {
		size_t left = content->size - at;

		if (memcmp(content->data + at, zeros, left < BLOCK_BYTES ? left : BLOCK_BYTES) == 0)
			return true;
	}
	return false;
}

off_t cached_seek(struct op_context *ctx, struct open_file *open_file, off_t offset, int whence)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct content *content;
	struct open_file *inner;
	off_t size = 0;
	bool is_known;
	int r;

	cached_enter(c);
	content = known_content(c, file);
	if (content)
		size = (off_t)content->size;
	is_known = content && !may_have_holes(content);
	content_unref(content);
	cached_leave(c);
	if (is_known) {
		ctx->served.from_cache = true;
		if (offset >= size)
			return -ENXIO;
		return whence == SEEK_DATA ? offset : size;
	}
	r = file_inner(ctx, file, &inner);
	return r < 0 ? r : workspace_seek(ctx, inner, offset, whence);
}

/* ---- Locks -------------------------------------------------------------------------------------
 */

/* Whoever takes a lock wants what the last holder wrote, now: nothing counts that was learnt
 * or asked for before, and as what the feed says may be from before, too, nothing is believed
 * as long as the handle is open. */
static void distrust(struct cached *c, struct cached_file *file)
{
	cached_enter(c);
	file->has_locks = true;
	tree_doubt_attributes(c->tree, 0, &file->extra->id);
	content_detach(c, file->extra);
	cached_leave(c);
}

int cached_lock(struct op_context *ctx, struct open_file *open_file, const struct file_lock *lock,
	bool wait)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	int r = file_inner(ctx, file, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	cached_wait_for_name(c, ctx, file);
	if (lock->kind == LOCK_KIND_POSIX)
		file->extra->locked = true;
	cached_leave(c);
	if (is_writable(file->flags))
		r = workspace_flush(ctx, inner); /* before the next holder reads */
	if (lock->type == LOCK_NONE) {           /* whatever else fails: the next holder waits */
		int r_lock = workspace_lock(ctx, inner, lock, wait);

		return r < 0 ? r : r_lock;
	}
	if (r == 0)
		r = workspace_lock(ctx, inner, lock, wait);
	if (r == 0)
		distrust(c, file);
	return r;
}

int cached_lock_test(struct op_context *ctx, struct open_file *open_file, struct file_lock *lock)
{
	struct open_file *inner;
	int r = file_inner(ctx, cached_file_of(open_file), &inner);

	return r < 0 ? r : workspace_lock_test(ctx, inner, lock);
}

int cached_lock_release_owner(struct op_context *ctx, struct open_file *open_file, uint64_t owner)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	bool locked;
	int r;

	cached_enter(c);
	locked = file->extra->locked;
	cached_leave(c);
	if (!locked)
		return 0;
	r = file_inner(ctx, file, &inner);
	return r < 0 ? r : workspace_lock_release_owner(ctx, inner, owner);
}
