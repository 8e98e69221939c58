#include "backends/local/local_internal.h"

#include <errno.h>
#include <sys/stat.h>

#include "backends/local/watch.h"

static int look(void *user, const struct object_ref *object, struct attributes *ret_attributes)
{
	struct op_context ctx = {.pid = 0};

	return local_getattr(&ctx, user, object, ret_attributes);
}

static int list(
	void *user, const struct object_ref *directory, dir_entry_sink sink, void *sink_user)
{
	struct op_context ctx = {.pid = 0};

	return local_readdir(&ctx, user, directory, false, sink, sink_user, &(uint64_t){0});
}

int local_watch(struct workspace *workspace, change_sink sink, void *user)
{
	struct local_workspace *w = local_from(workspace);
	struct watcher *watcher, *none = NULL;
	int r;

	if (w->watcher)
		return -EBUSY;
	r = watcher_new(w->root_fd, look, list, workspace, sink, user, &watcher);
	if (r < 0)
		return r;
	if (atomic_compare_exchange_strong(&w->watcher, &none, watcher))
		return 0;
	watcher_free(watcher);
	return -EBUSY;
}

uint64_t local_watch_fd(struct op_context *ctx, const struct local_workspace *w, int fd,
	const char *path, const struct object_id *id)
{
	struct watcher *watcher = w->watcher;
	struct attributes parent = {0};

	local_draw(ctx);
	if (!watcher)
		return 0;
	if (*path)
		local_stat_name(fd, "..", &parent);
	return watcher_add(watcher, fd, path, id, &parent.id, &ctx->served.position);
}

int local_watch_directory(struct op_context *ctx, struct workspace *workspace,
	const struct object_ref *directory, bool *ret_watched)
{
	const struct local_workspace *w = local_from(workspace);
	cleanup_object struct local_object found = {.owned_fd = -1};
	int r;

	local_draw(ctx);
	r = local_object_open(w, directory, &found);
	if (r < 0)
		return r;
	if (!S_ISDIR(found.attributes.mode))
		return -ENOTDIR;
	*ret_watched = local_watch_fd(ctx, w, found.fd, directory->path, &found.attributes.id) > 0;
	return 0;
}

void local_changing(const struct local_workspace *w, const char *path)
{
	if (w->watcher)
		watcher_changing(w->watcher, watcher_path_hash(path));
}

void local_changing_file(const struct local_file *file)
{
	struct watcher *watcher = local_from(file->base.workspace)->watcher;

	if (watcher)
		watcher_changing(watcher, file->path_hash);
}

void local_closing_file(const struct local_file *file)
{
	struct watcher *watcher = local_from(file->base.workspace)->watcher;

	if (watcher)
		watcher_closing(watcher, file->path_hash);
}

void local_drain(const struct local_workspace *w)
{
	if (w->watcher)
		watcher_drain(w->watcher);
}

void local_changing_object(const struct local_workspace *w, const struct object_ref *object)
{
	if (object->file)
		local_changing_file(local_file_from(object->file));
	else
		local_changing(w, object->path);
}

void local_unwatch(struct workspace *workspace, const struct object_ref *directory)
{
	struct watcher *watcher = local_from(workspace)->watcher;

	if (watcher)
		watcher_remove(watcher, &directory->id);
}
