/* Files that were created, or opened with O_TRUNC, without waiting for the workspace.  Until the
 * reply arrives, the tree does not know what is at the name: other callers that look it up wait for
 * the reply; the creator waits for it when it closes the file. */
#include "ops/cache/cached_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum {
	MISSED_MS = 60000,
	UNNAMED_MAX = 64, /* bound of cached.unnamed, which every call walks */
};

/* Whether the name looks like that of a lock file: other machines may create it at the same time,
 * and the program relies on the result of open(2).  "lock", "lck" or "pid" begins a word of it
 * ("yarn.lock", "LCK..ttyS0", "fileLock", but not "block.c"), or ends it ("dotlock"); or it is a
 * swap file of vim (".x.swp"). */
static bool may_be_lock(const char *name)
{
	static const char *const words[] = {"lock", "lck", "pid"};
	size_t length = strlen(name);

	for (size_t i = 0; i < array_size(words); i++)
		for (const char *at = name; (at = strcasestr(at, words[i])); at++)
			if (at == name || !isalpha((unsigned char)at[-1]) ||
				(isupper((unsigned char)*at) && islower((unsigned char)at[-1])) ||
				!at[strlen(words[i])])
				return true;
	return length > 4 && strncmp(name + length - 4, ".sw", 3) == 0;
}

/* Whether the directory was just created here, and the scan that has it watched is running: that
 * scan reports the names that others have created in it. */
static bool is_being_watched(const struct cached *c, const struct op_context *ctx, const char *path)
{
	const struct directory *d = directory_find((struct cached *)c, &ctx->parent);
	const struct prefetch *p;

	if (!d || !d->is_own)
		return false;
	LIST_FOREACH(p, &c->prefetches, link)
		if (strlen(p->path) == path_parent_length(path) && path_is_within(path, p->path))
			return true;
	return false;
}

enum create_hint cached_create_hint(
	struct cached *c, const struct op_context *ctx, const char *path, int flags)
{
	const char *name = path_name(path);
	enum tree_validity validity;
	struct object_id found;

	if (!c->feed || !ctx->parent.inode)
		return CREATE_WAITS;
	/* Without O_EXCL the name may turn out to lead to another file.  That is safe only for a
	 * handle that cannot have read or mapped the file. */
	if (flags & O_EXCL ? may_be_lock(name) : (flags & O_ACCMODE) != O_WRONLY)
		return CREATE_WAITS;
	validity = tree_get_name(c->tree, &ctx->parent, name, cached_now_ms(), &found);
	if (validity == TREE_ASK || found.inode)
		return CREATE_IS_FIRST;
	return validity == TREE_WATCHED || is_being_watched(c, ctx, path) ? CREATE_ASYNC
									  : CREATE_IS_FIRST;
}

void cached_bound_async(struct cached *c, struct op_context *ctx)
{
	struct cached_file *file, *oldest = NULL;
	unsigned count = 0;

	LIST_FOREACH(file, &c->unnamed, unnamed_link) {
		oldest = file;
		count++;
	}
	if (count >= UNNAMED_MAX)
		cached_wait_for_name(c, ctx, oldest);
}

void cached_begin_async(struct cached *c, const struct op_context *ctx, struct cached_file *file)
{
	file->unnamed = true;
	file->made_in = ctx->parent;
	file->made_by = ctx->pid;
	file->made_ms = cached_now_ms();
	LIST_INSERT_HEAD(&c->unnamed, file, unnamed_link);
}

/* ---- Names that another process made first -------------------------------------------- */

static void note_missed(struct cached *c, const struct cached_file *file)
{
	struct missed_name *missed = &c->missed[c->missed_next++ % MISSED_NAMES];
	const char *name = path_name(file->path);

	if (strlen(name) >= sizeof(missed->name))
		return;
	missed->directory = file->made_in;
	missed->pid = file->made_by;
	missed->ms = cached_now_ms();
	strcpy(missed->name, name);
}

static unsigned find_missed(const struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path)
{
	uint64_t now_ms = cached_now_ms();
	unsigned i;

	for (i = 0; i < MISSED_NAMES; i++)
		if (c->missed[i].directory.inode && c->missed[i].pid == ctx->pid &&
			object_id_equal(&c->missed[i].directory, directory) &&
			now_ms - c->missed[i].ms < MISSED_MS &&
			strcmp(c->missed[i].name, path_name(path)) == 0)
			break;
	return i;
}

bool cached_has_missed(const struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path)
{
	return find_missed(c, ctx, directory, path) < MISSED_NAMES;
}

void cached_forget_missed(struct cached *c, const struct op_context *ctx,
	const struct object_id *directory, const char *path)
{
	unsigned found = find_missed(c, ctx, directory, path);

	if (found < MISSED_NAMES)
		c->missed[found].directory.inode = 0;
}

/* ---- Waiting for the name --------------------------------------------------------------- */

/* Another process made the name first, and the handle refers to that file. */
static int take_other(struct cached *c, const struct asking *asking, struct cached_file *file,
	const struct attributes *other)
{
	int r;

	file->is_other = true;
	file->capturing = false;
	file->opened_state = 0;
	cached_invalidate(c, asking->look.at, &file->made_in, file->path);
	cached_learn_attributes(c, &asking->look, other, FROM_CHANGE, NULL);
	r = cached_move_to_object(c, file, other);
	file->extra->write_count++;
	content_detach(c, file->extra);
	return r;
}

static void take_truncated(struct cached *c, const struct asking *asking,
	const struct cached_file *file, int r, const struct attributes *now)
{
	cached_changed(c, asking, &file->extra->id, now, FROM_CHANGE);
	if (r < 0)
		cached_invalidate(c, asking->look.at, &file->made_in, file->path);
}

/* Learns the reply `r` of the create; returns the result for calls on the handle. */
static int take_name(struct cached *c, const struct asking *asking, struct cached_file *file, int r,
	const struct attributes *made)
{
	file->unnamed = false;
	LIST_REMOVE(file, unnamed_link);
	file->opened_at = asking->look.at;
	if (r == -EEXIST)
		note_missed(c, file);
	if (r == 0 && !object_id_equal(&made->id, &file->attributes.id))
		return take_other(c, asking, file, made);
	if (file->was_there)
		take_truncated(c, asking, file, r, made);
	else
		cached_made(c, asking, &file->made_in, file->path, NULL, r, made);
	return r;
}

int cached_wait_for_name(struct cached *c, struct op_context *ctx, struct cached_file *file)
{
	struct attributes made = {0};
	struct asking asking;
	int r;

	if (!file->unnamed)
		return 0;
	file->awaiting++;
	cached_begin_change(c, ctx, &asking);
	asking.asked_ms = file->made_ms;
	r = workspace_await_name(ctx, atomic_load(&file->inner), &made);
	cached_take_reply(c, ctx, &asking);
	if (r != -EAGAIN && file->unnamed)
		r = take_name(c, &asking, file, r, &made);
	file->awaiting--;
	pthread_cond_broadcast(&c->changed);
	return r;
}

bool cached_ask_async(struct cached *c, struct op_context *ctx, struct cached_file *file,
	struct attributes *ret_attributes)
{
	const struct object_id id = file->attributes.id;
	struct attributes attributes;
	int r;

	file->awaiting++; /* keeps it from being closed */
	cached_leave(c);
	r = cached_file_getattr(ctx, file, &attributes);
	cached_enter(c);
	file->awaiting--;
	pthread_cond_broadcast(&c->changed);
	if (r < 0 || !object_id_equal(&attributes.id, &id))
		return false;
	*ret_attributes = attributes;
	return true;
}

int cached_await_name(
	struct op_context *ctx, struct open_file *open_file, struct attributes *ret_attributes)
{
	struct cached_file *file = cached_file_of(open_file);
	struct cached *c = cached_of(open_file->workspace);
	int r;

	cached_enter(c);
	r = cached_wait_for_name(c, ctx, file);
	cached_leave(c);
	return r < 0 ? r : cached_file_getattr(ctx, file, ret_attributes);
}

int cached_take_name(struct cached *c, struct op_context *ctx, struct cached_file *file)
{
	uint64_t position = ctx->served.position;
	struct facts *facts = ctx->facts;
	int r;

	ctx->facts = NULL;
	cached_enter(c);
	r = cached_wait_for_name(c, ctx, file);
	cached_leave(c);
	ctx->facts = facts;
	ctx->served.position = position;
	return r == -EAGAIN ? 0 : r;
}

void cached_forget_async(struct cached *c, struct cached_file *file)
{
	struct asking asking = {.look = cached_look(c, 0, file->made_ms)};

	asking.outcome = &asking.facts;
	while (file->awaiting || file->applying)
		pthread_cond_wait(&c->changed, &c->lock);
	if (!file->unnamed)
		return;
	take_name(c, &asking, file, -EIO, NULL);
}

/* The create also decides lookups below the file (ENOTDIR), and changes the times of the
 * directories above it. */
static bool concerns(const struct cached_file *file, const char *path)
{
	return path_is_within(file->path, path) || path_is_within(path, file->path);
}

int cached_await_at(struct cached *c, struct op_context *ctx, const char *path)
{
	struct cached_file *file = LIST_FIRST(&c->unnamed);

	while (file) {
		if (!concerns(file, path)) {
			file = LIST_NEXT(file, unnamed_link);
			continue;
		}
		if (cached_wait_for_name(c, ctx, file) == -EAGAIN)
			return op_interrupted(ctx) ? -EINTR : -EIO;
		file = LIST_FIRST(&c->unnamed); /* the lock was released */
	}
	return 0;
}

int cached_await_all(struct cached *c, struct op_context *ctx)
{
	return cached_await_at(c, ctx, "");
}

void cached_await_object(struct cached *c, struct op_context *ctx, const struct object_ref *object)
{
	struct cached_file *file =
		object->file ? cached_file_of(object->file) : cached_find_async(c, &object->id);

	if (file)
		cached_wait_for_name(c, ctx, file);
	if (!object->file)
		cached_await_at(c, ctx, object->path);
}

struct cached_file *cached_find_async(const struct cached *c, const struct object_id *id)
{
	struct cached_file *file;

	LIST_FOREACH(file, &c->unnamed, unnamed_link)
		if (object_id_equal(&file->attributes.id, id))
			break;
	return file;
}
