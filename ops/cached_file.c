#include "ops/cached_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

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
	file->file.workspace = &c->workspace;
	file->flags = flags;
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
	pthread_mutex_destroy(&file->open_lock);
	content_unref(file->content);
	free(file->capture);
	free(file->path);
	free(file);
}

static void join_node(struct cached_file *file, struct node *node)
{
	if (!node || node->state != NODE_PRESENT ||
		!object_id_equal(&node->attributes.id, &file->attributes.id))
		return;
	file->node = node;
	file->next = node->files;
	node->files = file;
}

static void leave_node(struct cached_file *file)
{
	struct cached_file **link = file->node ? &file->node->files : NULL;

	if (!link)
		return;
	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	file->node = NULL;
}

/* The path of the object as far as we know: moved along by own renames. */
static char *current_path(struct cached *c, struct cached_file *file)
{
	char *path;

	pthread_mutex_lock(&c->lock);
	path = file->node ? node_path(file->node) : strdup(file->path);
	pthread_mutex_unlock(&c->lock);
	return path;
}

static int open_inner(struct op_context *ctx, struct cached_file *file)
{
	struct cached *c = cached_of_file(file);
	cleanup_free char *path = current_path(c, file);
	struct object_ref object = {.path = path, .id = file->attributes.id};
	struct attributes attributes;
	struct open_file *inner;
	int r;

	if (!path)
		return -ENOMEM;
	r = workspace_open_file(ctx, c->inner, &object, file->flags, &inner, &attributes);
	if (r == 0)
		atomic_store(&file->inner, inner);
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
	const struct node *node = tree_find(c, path, strlen(path));
	struct cached_file *file = node ? node->files : NULL;

	while (file && atomic_load(&file->inner))
		file = file->next;
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

		pthread_mutex_unlock(&c->lock);
		r = workspace_open_file(ctx, c->inner, &object, flags, &inner, &attributes);
		pthread_mutex_lock(&c->lock);
		if (r < 0)
			return;
		/* Else it was closed, or somebody is opening it. */
		if (find_unopened(c, path) == file && file->flags == flags &&
			pthread_mutex_trylock(&file->open_lock) == 0) {
			if (!atomic_load(&file->inner))
				atomic_store(&file->inner, steal_ptr(&inner));
			pthread_mutex_unlock(&file->open_lock);
		}
		if (!inner)
			continue;
		pthread_mutex_unlock(&c->lock);
		workspace_close(ctx, inner);
		pthread_mutex_lock(&c->lock);
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

static int check_type(const struct node *node)
{
	if (S_ISREG(node->attributes.mode))
		return 0;
	if (S_ISLNK(node->attributes.mode))
		return -ELOOP;
	return S_ISDIR(node->attributes.mode) ? -EISDIR : -ENXIO;
}

/* A handle on content that is known.  -EAGAIN: it is not. */
static int open_known(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached_file *file;
	struct node *node;
	int r = cached_await_content(c, ctx, object->path, &node);

	if (r < 0)
		return r;
	if (object->id.inode && !object_id_equal(&object->id, &node->attributes.id))
		return -ESTALE;
	r = check_type(node);
	if (r < 0)
		return r;
	if (!node->content && node->attributes.size_bytes > 0)
		return -EAGAIN;
	file = file_new(c, object->path, flags);
	if (!file)
		return -ENOMEM;
	file->content = node->content ? content_ref(node->content) : content_new("", 0, 0);
	file->attributes = node->attributes;
	join_node(file, node);
	*ret_attributes = node->attributes;
	*ret_file = &file->file;
	c->statistics.hits++;
	ctx->served.from_cache = ctx->served.round_trips == 0;
	return 0;
}

/* What a handle writes from the first byte on is captured, so that it can be read back. */
static void start_capture(struct cached_file *file)
{
	file->capturing = is_writable(file->flags) && file->attributes.size_bytes == 0;
	file->captured_writes = file->node ? file->node->write_count : 0;
}

static int open_asking(struct cached *c, struct op_context *ctx, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached_file *file = file_new(c, object->path, flags);
	uint64_t started_ms = cached_now_ms();
	struct own own;
	struct open_file *inner;
	struct object_ref at;
	struct node *node;
	int r = file ? cached_inner_object(ctx, object, &at) : -ENOMEM;

	if (r < 0) {
		if (file)
			file_free(file);
		return r;
	}
	pthread_mutex_lock(&c->lock);
	cached_apply_deferred_at(c, ctx, object->path);
	cached_begin_change(c, ctx, &own);
	pthread_mutex_unlock(&c->lock);
	r = workspace_open_file(ctx, c->inner, &at, flags, &inner, &file->attributes);
	pthread_mutex_lock(&c->lock);
	cached_end_change(c, ctx, &own);
	cached_count_trip(c, started_ms);
	if (r == 0) {
		atomic_store(&file->inner, inner);
		if (!object->file && !(flags & O_TRUNC))
			cached_store_answer(c, object->path, 0, &file->attributes, &own.learnt);
		node = object->file ? cached_file_of(object->file)->node
				    : tree_find(c, object->path, strlen(object->path));
		join_node(file, node);
		if (file->node && (flags & O_TRUNC)) {
			file->node->write_count++;
			cached_own_attributes(c, file->node, SET_SIZE, &file->attributes, &own);
		} else if (flags & O_TRUNC) {
			cached_own_done(c, file->path, own.learnt.at);
		}
		start_capture(file);
	} else if (!object->file) {
		cached_store_answer(c, object->path, r, NULL, &own.learnt);
	}
	pthread_mutex_unlock(&c->lock);
	if (r < 0) {
		file_free(file);
		return r;
	}
	*ret_attributes = file->attributes;
	*ret_file = &file->file;
	return 0;
}

int cached_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	struct cached_file *file = file_new(c, path, flags);
	struct open_file *inner;
	struct node *node;
	struct own own;
	int r;

	if (!file)
		return -ENOMEM;
	pthread_mutex_lock(&c->lock);
	cached_begin_change(c, ctx, &own);
	pthread_mutex_unlock(&c->lock);
	r = workspace_create(ctx, c->inner, path, flags, mode, &inner, &file->attributes);
	pthread_mutex_lock(&c->lock);
	cached_end_change(c, ctx, &own);
	c->statistics.misses++;
	if (r == 0) {
		atomic_store(&file->inner, inner);
		node = cached_own_present(c, path, &file->attributes, &own);
		if (node)
			node->xattrs = XATTRS_NO_CAPABILITY;
		join_node(file, node);
		start_capture(file);
		file->created = true;
		file->created_ms = cached_now_ms();
	} else if (r == -EEXIST || r == -ENOENT) {
		cached_own_unknown(c, path, &own);
	} else if (r == -ESTALE) {
		cached_doubt_parent(c, path);
	}
	pthread_mutex_unlock(&c->lock);
	if (r < 0) {
		file_free(file);
		return r;
	}
	*ret_attributes = file->attributes;
	*ret_file = &file->file;
	return 0;
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
		ctx, c->inner, directory, flags, mode, &inner, &file->attributes);
	if (r < 0) {
		file_free(file);
		return r;
	}
	atomic_store(&file->inner, inner);
	*ret_attributes = file->attributes;
	*ret_file = &file->file;
	return 0;
}

/* ---- Attributes through a handle ------------------------------------------------------ */

/* The place never saw the handle, and as far as is known the name leads to another by now, or to
 * nothing: to ask would be in vain. */
static bool is_cut_off(const struct cached *c, const struct cached_file *file)
{
	struct node *node, *directory;
	int r;

	if (file->node || !file->content || atomic_load(&file->inner))
		return false;
	r = tree_lookup(c, file->path, &node, &directory);
	if (r == 0)
		return !object_id_equal(&node->attributes.id, &file->attributes.id);
	return path_misses_object(r);
}

/* What we know has to do. */
static void last_attributes(const struct cached_file *file, struct attributes *ret_attributes)
{
	*ret_attributes = file->attributes;
	if (ret_attributes->nlink > 0)
		ret_attributes->nlink--;
}

/* They say nothing of the name. */
static void take_attributes(
	struct cached *c, struct node *node, const struct attributes *attributes, uint64_t at)
{
	bool same = attributes_same_version(&node->attributes, attributes);

	if (at < node->object_at)
		return;
	if (!same)
		node->xattrs = XATTRS_UNKNOWN;
	node_set_object(c, node, attributes, same, at);
}

int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of_file(file);
	struct object_ref object = {.path = ""};
	struct learnt learnt;
	struct node *node;
	bool is_known;
	int r;

	pthread_mutex_lock(&c->lock);
	cached_apply_all_deferred(c, ctx);
	node = file->node;
	is_known = node && node->writers == 0 && node_attributes_are_fresh(c, node);
	if (is_known || is_cut_off(c, file)) {
		if (is_known)
			*ret_attributes = node->attributes;
		else
			last_attributes(file, ret_attributes);
		c->statistics.hits++;
		ctx->served.from_cache = true;
		ctx->served.position = is_known ? node->object_at : 0;
		pthread_mutex_unlock(&c->lock);
		return 0;
	}
	pthread_mutex_unlock(&c->lock);
	r = file_inner(ctx, file, &object.file);
	pthread_mutex_lock(&c->lock);
	learnt = cached_begin_asking(c, ctx);
	pthread_mutex_unlock(&c->lock);
	if (r == 0)
		r = workspace_getattr(ctx, c->inner, &object, ret_attributes);
	pthread_mutex_lock(&c->lock);
	cached_end_asking(c, ctx, &learnt);
	c->statistics.misses++;
	node = file->node;
	if (r == 0 && node && node->writers == 0 && learnt.asked > c->rescan_at)
		take_attributes(c, node, ret_attributes, learnt.at);
	pthread_mutex_unlock(&c->lock);
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
	const struct node *node = file->node;

	if (is_cut_off(c, file))
		return content_ref(file->content);
	if (!node || node->writers > 0 || !node->content || node_is_locked(node))
		return NULL;
	if (!node_attributes_are_fresh(c, node))
		return NULL;
	content_used(c, node->content);
	return content_ref(node->content);
}

static ssize_t read_content(struct cached *c, struct op_context *ctx, struct content *content,
	void *data, size_t size, off_t offset)
{
	ssize_t count = copy_out(content, data, size, offset);

	pthread_mutex_lock(&c->lock);
	content_unref(content);
	c->statistics.hits++;
	pthread_mutex_unlock(&c->lock);
	ctx->served.from_cache = true;
	return count;
}

/* Reads a small file whole and keeps it, if it still is what it was when opened. */
static ssize_t read_whole(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset)
{
	struct cached *c = cached_of_file(file);
	size_t room = file->attributes.size_bytes + 1;
	cleanup_free void *buffer = malloc(room);
	struct content *content = NULL;
	struct learnt learnt;
	struct node *node;
	ssize_t got, count;

	if (!buffer)
		return -ENOMEM;
	pthread_mutex_lock(&c->lock);
	learnt = cached_begin_asking(c, ctx);
	pthread_mutex_unlock(&c->lock);
	got = workspace_read(ctx, inner, buffer, room, 0);
	pthread_mutex_lock(&c->lock);
	cached_end_asking(c, ctx, &learnt);
	if (got == (ssize_t)room - 1)
		content = content_new(buffer, (size_t)got, learnt.at);
	c->statistics.misses++;
	node = file->node;
	if (content && node && node->writers == 0 && !node->content &&
		node->changed_at <= learnt.asked && node->attributes_known &&
		attributes_same_version(&node->attributes, &file->attributes)) {
		content_attach(c, node, content);
		content_keep(c, node, &file->attributes);
	} else {
		content_unref(content);
	}
	pthread_mutex_unlock(&c->lock);
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

static bool is_worth_keeping(const struct cached_file *file)
{
	const struct node *node = file->node;

	return node && node->writers == 0 && is_small(&file->attributes) && !node_is_locked(node) &&
	       file->attributes.size_bytes > 0;
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
	pthread_mutex_lock(&c->lock);
	content = known_content(c, file);
	if (!content)
		cached_assemble_begin(c, file);
	worth_keeping = is_worth_keeping(file);
	is_gathered = file->assembly;
	pthread_mutex_unlock(&c->lock);
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
	pthread_mutex_lock(&c->lock);
	cached_assemble_take(c, file, data, (size_t)count, offset);
	pthread_mutex_unlock(&c->lock);
	return count;
}

/* The content of a small file has come with it. */
static void keep_content(struct op_context *ctx, struct cached_file *file)
{
	struct cached *c = cached_of_file(file);
	bool wanted;
	char none;

	pthread_mutex_lock(&c->lock);
	wanted = is_worth_keeping(file) && !file->node->content;
	pthread_mutex_unlock(&c->lock);
	if (wanted)
		read_whole(ctx, file, atomic_load(&file->inner), &none, 0, 0);
}

int cached_open(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of(w);
	int r = -EAGAIN;

	/* With O_NOATIME it is to be kept rather than read: that takes a handle at the place. */
	if (!object->file && !is_writable(flags) && !(flags & O_NOATIME)) {
		pthread_mutex_lock(&c->lock);
		r = open_known(c, ctx, object, flags, ret_file, ret_attributes);
		pthread_mutex_unlock(&c->lock);
	}
	if (r != -EAGAIN)
		return r;
	r = open_asking(c, ctx, object, flags, ret_file, ret_attributes);
	if (r == 0 && (flags & O_NOATIME) && !object->file)
		keep_content(ctx, cached_file_of(*ret_file));
	return r;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void capture(struct cached_file *file, const void *data, size_t size, off_t offset)
{
	size_t room = file->capture_room ? file->capture_room : 4096;
	uint8_t *grown;

	if (!file->capturing)
		return;
	file->capturing = (size_t)offset == file->capture_size &&
			  file->capture_size + size <= SMALL_FILE_MAX_BYTES;
	while (file->capturing && room < file->capture_size + size)
		room *= 2;
	if (file->capturing && room > file->capture_room) {
		grown = realloc(file->capture, room);
		file->capturing = grown != NULL;
		file->capture = grown ? grown : file->capture;
		file->capture_room = grown ? room : file->capture_room;
	}
	if (!file->capturing)
		return;
	memcpy(file->capture + file->capture_size, data, size);
	file->capture_size += size;
	file->captured_writes++;
}

void cached_mark_dirty(struct cached *c, struct cached_file *file)
{
	struct node *node = file->node;

	if (!node) /* it may be known again by now */
		join_node(file, tree_find(c, file->path, strlen(file->path)));
	node = file->node;
	if (!node)
		return;
	if (!file->dirty) {
		file->dirty = true;
		node->writers++;
	}
	node->attributes_known = false;
	node->changed_at = ++c->clock;
}

/* What is known of the content and attributes is void from here on. */
static void mark_written(struct cached *c, struct cached_file *file)
{
	struct node *node;

	cached_mark_dirty(c, file);
	file->was_written = true;
	node = file->node;
	if (!node)
		return;
	node->write_count++;
	content_detach(c, node);
	if (node->attributes.nlink > 1)
		c->links_epoch++;
}

/* Where each write tells what it left, there may be nothing to flush. */
static void note_left(struct cached_file *file, const struct own *own)
{
	if (own->told && own->learnt.at < file->left_at)
		return;
	file->left = own->told ? own->facts.object : (struct attributes){0};
	file->left_at = own->learnt.at;
}

ssize_t cached_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	struct own own;
	ssize_t written;
	int r = file_inner(ctx, file, &inner);

	if (r == 0 && file->created)
		r = cached_apply_deferred(c, ctx, file, false);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	cached_begin_change(c, ctx, &own);
	mark_written(c, file);
	if (!(file->flags & O_APPEND))
		capture(file, data, size, offset);
	else
		file->capturing = false;
	pthread_mutex_unlock(&c->lock);
	written = workspace_write(ctx, inner, data, size, offset);
	pthread_mutex_lock(&c->lock);
	cached_end_change(c, ctx, &own);
	note_left(file, &own);
	if (written != (ssize_t)size)
		file->capturing = false;
	if (file->node)
		file->node->changed_at = ++c->clock;
	pthread_mutex_unlock(&c->lock);
	return written;
}

/* What was captured is the content of the state in which the file was left. */
static void take_captured(struct cached *c, struct cached_file *file, uint64_t at)
{
	struct node *node = file->node;
	struct content *content;

	if (node_is_locked(node) || !node->attributes_known || node->object_at != at ||
		node->attributes.size_bytes != file->capture_size)
		return;
	content = content_new(file->capture, file->capture_size, at);
	if (content)
		content_attach(c, node, content);
}

/* The writes have arrived, and left the file in this state. */
static void take_left(struct cached *c, struct cached_file *file, const struct own *own, int r)
{
	static const struct attributes unknown;
	struct node *node = file->node;
	bool flush_tells = own->facts.object.mode || !file->left.mode;
	const struct attributes *left = flush_tells ? &own->facts.object : &file->left;
	uint64_t at = flush_tells ? own->learnt.at : file->left_at;

	if (flush_tells && !own->told) /* and what is older says nothing of what was written */
		left = &unknown;
	node_set_object(c, node, left, false, at);
	if (r == 0 && file->capturing && file->captured_writes == node->write_count)
		take_captured(c, file, at);
	else
		node->xattrs = XATTRS_UNKNOWN;
}

static void settle_writes(struct cached *c, struct cached_file *file, const struct own *own, int r)
{
	struct node *node = file->node;

	if (!node && file->was_written)
		cached_own_done(c, file->path, own->learnt.at);
	file->was_written = false;
	if (!file->dirty)
		return;
	file->dirty = false;
	if (!node)
		return;
	if (node->writers > 0)
		node->writers--;
	node->changed_at = ++c->clock;
	if (node->writers == 0)
		take_left(c, file, own, r);
}

/* Begin and end of a call after which writes have arrived; without the lock. */
static void begin_settling(struct cached *c, struct op_context *ctx, struct own *own)
{
	pthread_mutex_lock(&c->lock);
	cached_begin_change(c, ctx, own);
	pthread_mutex_unlock(&c->lock);
}

static int settle(
	struct cached *c, struct op_context *ctx, struct cached_file *file, struct own *own, int r)
{
	pthread_mutex_lock(&c->lock);
	cached_end_change(c, ctx, own);
	settle_writes(c, file, own, r);
	pthread_mutex_unlock(&c->lock);
	return r;
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
	struct own own;
	int r;

	if (!inner)
		return 0;
	r = cached_apply_deferred(c, ctx, file, true);
	begin_settling(c, ctx, &own);
	return settle(c, ctx, file, &own, first_error(r, workspace_flush(ctx, inner)));
}

int cached_fsync(struct op_context *ctx, struct workspace *w, struct open_file *open_file,
	const char *path, bool data_only)
{
	struct cached *c = cached_of(w);
	struct cached_file *file = cached_file_of(open_file);
	struct open_file *inner;
	struct own own;
	int r;

	if (!open_file)
		return workspace_fsync_directory(ctx, c->inner, path, data_only);
	inner = atomic_load(&file->inner);
	if (!inner)
		return 0;
	r = file->created ? cached_apply_deferred(c, ctx, file, false) : 0;
	begin_settling(c, ctx, &own);
	return settle(c, ctx, file, &own, first_error(r, workspace_fsync(ctx, inner, data_only)));
}

int cached_close(struct op_context *ctx, struct open_file *open_file)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct own own;
	int r;

	r = atomic_load(&file->inner) ? cached_apply_deferred(c, ctx, file, true) : 0;
	begin_settling(c, ctx, &own);
	r = first_error(r, workspace_close(ctx, atomic_load(&file->inner)));
	pthread_mutex_lock(&c->lock);
	cached_end_change(c, ctx, &own);
	settle_writes(c, file, &own, r);
	leave_node(file);
	cached_assemble_end(c, file);
	file_free(file);
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* A change of content by other means than write. */
static void content_changed(struct cached *c, struct cached_file *file)
{
	pthread_mutex_lock(&c->lock);
	file->capturing = false;
	mark_written(c, file);
	pthread_mutex_unlock(&c->lock);
}

int cached_fallocate(struct op_context *ctx, struct open_file *open_file, unsigned mode,
	off_t offset, off_t length)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	struct own own;
	int r = file_inner(ctx, file, &inner);

	if (r == 0 && file->created)
		r = cached_apply_deferred(c, ctx, file, false);
	if (r < 0)
		return r;
	content_changed(c, file);
	begin_settling(c, ctx, &own);
	return settle(c, ctx, file, &own, workspace_fallocate(ctx, inner, mode, offset, length));
}

ssize_t cached_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	struct cached_file *target = cached_file_of(to);
	struct cached *c = cached_of_file(target);
	struct open_file *inner_from, *inner_to;
	struct own own;
	ssize_t copied;
	int r = file_inner(ctx, cached_file_of(from), &inner_from);

	if (r == 0)
		r = file_inner(ctx, target, &inner_to);
	if (r == 0 && target->created)
		r = cached_apply_deferred(c, ctx, target, false);
	if (r < 0)
		return r;
	content_changed(c, target);
	begin_settling(c, ctx, &own);
	copied = workspace_copy_range(ctx, inner_from, from_offset, inner_to, to_offset, size);
	settle(c, ctx, target, &own, 0);
	return copied;
}

off_t cached_seek(struct op_context *ctx, struct open_file *open_file, off_t offset, int whence)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct content *content;
	struct open_file *inner;
	off_t size = 0;
	int r;

	pthread_mutex_lock(&c->lock);
	content = known_content(c, file);
	if (content)
		size = (off_t)content->size;
	content_unref(content);
	pthread_mutex_unlock(&c->lock);
	if (content) {
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
	struct node *node;

	pthread_mutex_lock(&c->lock);
	node = file->node;
	file->has_locks = true;
	if (node) {
		node->attributes_known = false;
		node->changed_at = ++c->clock;
		content_detach(c, node);
	}
	pthread_mutex_unlock(&c->lock);
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
	if (lock->kind == LOCK_KIND_POSIX) {
		pthread_mutex_lock(&c->lock);
		c->ranges_locked = true;
		if (file->node)
			file->node->locked = true;
		pthread_mutex_unlock(&c->lock);
	}
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

	pthread_mutex_lock(&c->lock);
	locked = file->node ? file->node->locked : c->ranges_locked;
	pthread_mutex_unlock(&c->lock);
	if (!locked)
		return 0;
	r = file_inner(ctx, file, &inner);
	return r < 0 ? r : workspace_lock_release_owner(ctx, inner, owner);
}
