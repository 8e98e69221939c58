/* Large files that were read: their handles stay open at the workspace after the last close, so
 * that the next open of the same file need not wait.  One is closed when the file loses its name,
 * so that its space is freed, and when the feed would not tell of that. */
#include "ops/cache/cached_internal.h"

#include <string.h>
#include <sys/stat.h>

enum { IDLE_MAX = 16 };

/* Called with the lock; releases it meanwhile. */
static void close_unwanted(struct cached *c)
{
	struct cached_file *file;
	struct op_context ctx;

	op_context_init(&ctx);
	while ((file = LIST_FIRST(&c->unwanted))) {
		LIST_REMOVE(file, link);
		cached_leave(c);
		workspace_close(&ctx, atomic_load(&file->inner));
		cached_enter(c);
		cached_file_free(file);
	}
}

static void run_close_unwanted(void *user)
{
	struct cached *c = user;

	cached_enter(c);
	close_unwanted(c);
	cached_leave(c);
}

/* The thread that takes in a change must not wait for the link: a worker closes the handle, or, if
 * none is free, the one that closes the next. */
void cached_idle_discard(struct cached *c, struct cached_file *file)
{
	LIST_INSERT_HEAD(&c->unwanted, file, link);
	worker_pool_submit(&c->scanners, run_close_unwanted, c);
}

void cached_idle_drop(struct cached *c, const struct object_id *id)
{
	struct cached_file *next, *file = LIST_FIRST(&c->idle);

	for (; file; file = next) {
		next = LIST_NEXT(file, link);
		if (id && !object_id_equal(&file->attributes.id, id))
			continue;
		LIST_REMOVE(file, link);
		cached_idle_discard(c, file);
	}
}

void cached_idle_drop_nameless(struct cached *c, const struct object_id *id)
{
	struct object_id directory;

	if (!LIST_EMPTY(&c->idle) && !tree_name_of(c->tree, id, &directory))
		cached_idle_drop(c, id);
}

void cached_idle_close_at(struct cached *c, const char *path)
{
	struct object_id id;

	if (LIST_EMPTY(&c->idle))
		return;
	id = cached_find(c, path).id;
	cached_idle_drop(c, &id);
	close_unwanted(c);
}

void cached_idle_close_all(struct cached *c)
{
	cached_enter(c);
	cached_idle_drop(c, NULL);
	close_unwanted(c);
	cached_leave(c);
}

static bool is_worth_it(struct cached *c, const struct cached_file *file)
{
	const struct object_id *id = &file->extra->id;
	struct object_id directory;
	struct attributes now;

	return cached_may_be_known(file->flags) && atomic_load(&file->inner) &&
	       !file->extra->content && !file->extra->locked && !file->has_locks &&
	       tree_name_of(c->tree, id, &directory) &&
	       tree_get_attributes(c->tree, id, cached_now_ms(), &now) == TREE_WATCHED &&
	       now.nlink == 1 && now.size_bytes > SMALL_FILE_MAX_BYTES &&
	       tree_state(c->tree, id) == file->opened_state;
}

static void bound(struct cached *c)
{
	struct cached_file *file;
	unsigned count = 0;

	LIST_FOREACH(file, &c->idle, link)
		if (count++ == IDLE_MAX)
			break;
	if (!file)
		return;
	LIST_REMOVE(file, link);
	cached_idle_discard(c, file);
}

bool cached_idle_keep(struct cached *c, struct cached_file *file)
{
	if (!is_worth_it(c, file))
		return false;
	cached_assemble_end(c, file);
	cached_leave_object(c, file);
	LIST_INSERT_HEAD(&c->idle, file, link);
	bound(c);
	return true;
}

struct cached_file *cached_idle_take(
	struct cached *c, const struct object_id *id, const char *path, int flags)
{
	struct cached_file *file;

	LIST_FOREACH(file, &c->idle, link)
		if (object_id_equal(&file->attributes.id, id) && file->flags == flags &&
			strcmp(file->path, path) == 0)
			break;
	if (!file)
		return NULL;
	LIST_REMOVE(file, link);
	file->closing = false;
	if (tree_state(c->tree, id) == file->opened_state)
		return file;
	cached_idle_discard(c, file);
	return NULL;
}
