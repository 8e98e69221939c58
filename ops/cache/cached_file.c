/* Attributes, reads and locks of an open file. */
#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"

/* ---- Attributes through a handle ------------------------------------------------------ */

bool cached_was_read(const struct cached *c, const struct object_id *id)
{
	return tree_mark(c->tree, id) & MARK_READ;
}

/* A caller gets the content, which is stored unless it is: when it came, too much may have been
 * queued. */
static void note_read(struct cached *c, const struct extra *x)
{
	tree_set_mark(c->tree, &x->id, tree_mark(c->tree, &x->id) | MARK_READ);
	content_keep(c, x);
}

/* Whether the workspace cannot answer for the handle: it was never opened there, and its name is
 * now known to be absent or to lead to another object. */
static bool is_cut_off(struct cached *c, const struct cached_file *file)
{
	struct object_id directory;
	struct found found;
	int r;

	if (atomic_load(&file->inner) || tree_name_of(c->tree, &file->extra->id, &directory))
		return false;
	r = cached_walk(c, file->path, &found);
	return r == 0 || path_misses_object(r);
}

/* The best known attributes, valid or not. */
static void last_attributes(const struct cached_file *file, struct attributes *ret_attributes)
{
	*ret_attributes = file->attributes;
	if (ret_attributes->nlink > 0)
		ret_attributes->nlink--;
}

/* Releases the lock. */
static int answer_from_cache(struct cached *c, struct op_context *ctx)
{
	c->statistics.hits++;
	ctx->served.from_cache = true;
	cached_leave(c);
	return 0;
}

/* Of a handle that alone writes to the file: the size is that of the last look or event, or where
 * a later write ended.  Others may have truncated the file, and the event be an echo of our own
 * write as well: so the workspace is asked again after a while. */
static bool guess_size(
	struct cached *c, const struct cached_file *file, struct attributes *ret_attributes)
{
	const struct sized *sized = &file->sized;
	const struct extra *x = file->extra;
	uint64_t now_ms = cached_now_ms();

	if (!file->dirty || x->writers != 1 || extra_is_locked(x) || !sized->ms ||
		now_ms - sized->ms >= SIZE_GUESS_MS || sized->ms <= c->expired_ms ||
		sized->write_count != x->write_count ||
		tree_get_attributes(c->tree, &x->id, now_ms, ret_attributes) != TREE_WATCHED)
		return false;
	if (ret_attributes->size_bytes < sized->written_end)
		ret_attributes->size_bytes = sized->written_end;
	return true;
}

/* After a look at everything that was written. */
static void take_size(struct cached_file *file)
{
	file->sized =
		(struct sized){.ms = cached_now_ms(), .write_count = file->extra->write_count};
}

/* Asks the workspace.  For an unnamed file the workspace answers the create first, so the reply to
 * this call means that the reply to the create has arrived. */
static int ask_attributes(struct cached *c, struct op_context *ctx, struct cached_file *file,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	struct asking asking;
	uint64_t begun;
	int r, r_name;

	cached_enter(c);
	begun = cached_begin_looking(file->extra);
	cached_ask(c, ctx, &asking);
	r = workspace_getattr(ctx, c->base.inner, object, ret_attributes);
	r_name = cached_take_name(c, ctx, file);
	cached_end_asking(c, ctx, &asking);
	r = r_name < 0 ? r_name : r;
	if (r == 0) {
		cached_learn_attributes(c, &asking.look, ret_attributes, FROM_LOOK, NULL);
		cached_end_looking(file->extra, begun);
		if (file->extra->seen_turn == file->extra->turn)
			take_size(file);
	}
	cached_leave(c);
	return r;
}

int cached_file_getattr(
	struct op_context *ctx, struct cached_file *file, struct attributes *ret_attributes)
{
	struct cached *c = cached_of_file(file);
	struct object_ref object = {.path = ""};
	bool is_known;
	int r;

	cached_enter(c);
	if (file->unnamed && !file->writes.begun) {
		*ret_attributes = file->attributes;
		return answer_from_cache(c, ctx);
	}
	if (ctx->size_only && guess_size(c, file, ret_attributes)) {
		ctx->served.is_async = true;
		return answer_from_cache(c, ctx);
	}
	if (!file->unnamed || !LIST_EMPTY(&c->deferred)) {
		cached_wait_for_name(c, ctx, file);
		cached_apply_all_deferred(c, ctx);
	}
	is_known = cached_get_attributes(c, &file->extra->id, ret_attributes);
	if (is_known || is_cut_off(c, file)) {
		if (!is_known)
			last_attributes(file, ret_attributes);
		return answer_from_cache(c, ctx);
	}
	cached_leave(c);
	r = cached_file_inner(ctx, file, &object.file);
	if (r == 0)
		r = ask_attributes(c, ctx, file, &object, ret_attributes);
	if (path_misses_object(r) && !object.file) {
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

/* The content when the file was opened.  The caller unrefs it.  NULL: it is not here any more.
 * Releases the lock meanwhile. */
static struct content *content_as_opened(struct cached *c, const struct cached_file *file)
{
	if (file->content)
		return content_ref(file->content);
	return file->attributes.size_bytes ? content_load(c, &file->attributes)
					   : content_new("", 0);
}

/* Loads the content for a handle that is not open at the workspace, as an open does for a file that
 * nobody has read. */
static void await_content(struct cached *c, struct op_context *ctx, const struct cached_file *file)
{
	cleanup_free char *path = NULL;
	struct attributes attributes;
	struct found found;

	if (!file->extra->content && !atomic_load(&file->inner) &&
		cached_path_of(c, &file->extra->id, &path) == 0)
		cached_await_content(c, ctx, path, &found, &attributes);
}

/* The content of the file now, or, if the handle cannot ask, when it was opened.  The caller unrefs
 * it.  NULL: the workspace has to be asked.  Releases the lock meanwhile. */
static struct content *known_content(
	struct cached *c, struct op_context *ctx, const struct cached_file *file)
{
	struct attributes attributes;

	await_content(c, ctx, file);
	if (is_cut_off(c, file))
		return content_as_opened(c, file);
	if (!file->extra->content || !cached_get_attributes(c, &file->extra->id, &attributes))
		return NULL;
	content_used(c, file->extra->content);
	note_read(c, file->extra);
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

static bool is_small(const struct attributes *attributes)
{
	return S_ISREG(attributes->mode) && !attributes->is_generated &&
	       attributes->size_bytes <= SMALL_FILE_MAX_BYTES;
}

bool cached_is_worth_keeping(const struct cached_file *file)
{
	return file->extra->writers == 0 && is_small(&file->attributes) &&
	       !extra_is_locked(file->extra) && file->attributes.size_bytes > 0;
}

/* Whether the file is known to be as it was when it was opened; the content that came with the open
 * is then current. */
static bool is_as_opened(struct cached *c, const struct cached_file *file)
{
	const struct object_id *id = &file->extra->id;
	struct attributes known;

	return tree_last_attributes(c->tree, id, &known) &&
	       tree_state(c->tree, id) == file->opened_state &&
	       attributes_same_version(&known, &file->attributes);
}

ssize_t cached_read_whole(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
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
	if (!content || file->extra->content || !cached_is_worth_keeping(file) ||
		!is_as_opened(c, file))
		content_unref(content);
	else if (content_attach(c, file->extra, content))
		note_read(c, file->extra);
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
	content = known_content(c, ctx, file);
	if (!content)
		cached_assemble_begin(c, file);
	worth_keeping = cached_is_worth_keeping(file);
	is_gathered = file->assembly;
	cached_leave(c);
	if (content)
		return read_content(c, ctx, content, data, size, offset);
	r = cached_file_inner(ctx, file, &inner);
	if (path_misses_object(r)) {
		cached_enter(c);
		content = content_as_opened(c, file);
		cached_leave(c);
		return content ? read_content(c, ctx, content, data, size, offset) : -ESTALE;
	}
	if (r < 0)
		return r;
	if (worth_keeping && offset == 0)
		return cached_read_whole(ctx, file, inner, data, size, offset);
	count = workspace_read(ctx, inner, data, size, offset);
	if (!is_gathered || count <= 0)
		return count;
	cached_enter(c);
	cached_assemble_take(c, file, data, (size_t)count, offset);
	cached_leave(c);
	return count;
}

/* The blocks of file systems have at least BLOCK_BYTES, so smaller files have no holes. */
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
	content = known_content(c, ctx, file);
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
	r = cached_file_inner(ctx, file, &inner);
	return r < 0 ? r : workspace_seek(ctx, inner, offset, whence);
}

/* ---- Locks -------------------------------------------------------------------------------------
 */

/* The new holder of a lock must see what the last one wrote: facts from before the grant no longer
 * count, even if an event confirms them later.  What was changed in other files has been told when
 * the workspace grants the lock, if it is watched.  If the reply has no attributes of the file,
 * cached attributes are not used while the handle is open. */
static void granted(struct cached *c, struct cached_file *file, const struct asking *asking)
{
	const struct attributes *outcome = &asking->outcome->object;
	struct extra *x = file->extra;

	file->has_locks = true;
	cached_expire_unwatched(c);
	x->granted_ms = cached_now_ms();
	if (outcome->mode && asking->look.at && object_id_equal(&outcome->id, &x->id)) {
		cached_learn_attributes(c, &asking->look, outcome, FROM_LOOK, NULL);
		if (x->granted_at < asking->look.at)
			x->granted_at = asking->look.at;
	} else {
		tree_invalidate_attributes(c->tree, 0, &x->id);
		x->granted_at = UINT64_MAX;
	}
	content_detach(c, x);
}

int cached_lock(struct op_context *ctx, struct open_file *open_file, const struct file_lock *lock,
	bool wait)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of_file(file);
	struct open_file *inner;
	struct asking asking;
	int r = cached_file_inner(ctx, file, &inner);

	if (r < 0)
		return r;
	cached_enter(c);
	cached_wait_for_name(c, ctx, file);
	if (lock->kind == LOCK_KIND_POSIX)
		file->extra->locked = true;
	cached_begin_change(c, ctx, &asking);
	r = workspace_lock(ctx, inner, lock, wait);
	cached_take_reply(c, ctx, &asking);
	if (r == 0 && lock->type != LOCK_NONE)
		granted(c, file, &asking);
	cached_leave(c);
	return r;
}

int cached_lock_test(struct op_context *ctx, struct open_file *open_file, struct file_lock *lock)
{
	struct open_file *inner;
	int r = cached_file_inner(ctx, cached_file_of(open_file), &inner);

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
	r = cached_file_inner(ctx, file, &inner);
	return r < 0 ? r : workspace_lock_release_owner(ctx, inner, owner);
}
