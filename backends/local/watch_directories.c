#include "backends/local/watch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/local/file_system.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "ops/support/position.h"

enum {
	FAILED_MAX = 65536,
	WATCH_MASK = IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE |
		     IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
};

/* The node of the path's parent directory, found by looking at each component.  NULL: no memory, or
 * something there is changing. */
static struct watch_node *look_for_parent(struct watcher *watcher, const char *path)
{
	struct watch_node *node = NULL, *parent;
	cleanup_free char *above = strdup("");
	const char *end = path;

	for (;;) {
		struct attributes found;

		parent = node;
		node = NULL;
		if (above && watcher->look(watcher->look_user, &OBJECT_AT(above), &found) == 0)
			node = watch_table_put(
				&watcher->table, parent, path_name(above), &found.id);
		end = strchr(end, '/');
		if (!node || !end)
			break;
		free(above);
		above = strndup(path, (size_t)(end++ - path));
	}
	if (!node)
		watch_table_tidy(&watcher->table, parent);
	return node;
}

/* The node of a directory; with the mutex held.  It is freed by watch_table_tidy() unless it gets a
 * use.  A directory that is mounted below itself stays where it is. */
static struct watch_node *node_at(struct watcher *watcher, const char *path,
	const struct object_id *id, const struct object_id *parent_id)
{
	struct watch_node *node = watch_table_find_node(&watcher->table, id), *parent, *moved;
	cleanup_free char *known = node ? watch_node_path(node, "") : NULL;
	cleanup_free char *below = NULL;

	if (known && strcmp(known, path) == 0)
		return node;
	if (!*path)
		return watch_table_put(&watcher->table, NULL, "", id);
	parent = watch_table_find_node(&watcher->table, parent_id);
	below = parent ? watch_node_path(parent, path_name(path)) : NULL;
	if (!below || strcmp(below, path) != 0)
		parent = look_for_parent(watcher, path);
	moved = parent ? watch_table_put(&watcher->table, parent, path_name(path), id) : NULL;
	if (moved)
		return moved;
	watch_table_tidy(&watcher->table, parent);
	return node;
}

static uint64_t add_watch(struct watcher *watcher, int fd, struct watch_node *node)
{
	struct watch_table *table = &watcher->table;
	struct watch *watch = NULL;
	char proc_path[32];
	int number;

	snprintf(proc_path, sizeof(proc_path), "/proc/self/fd/%d", fd);
	number = inotify_add_watch(watcher->inotify_fd, proc_path, WATCH_MASK);
	watch_table_set_failed(table, node, number < 0 && table->failed_count < FAILED_MAX);
	if (number >= 0 && watch_table_find(table, number))
		return 0; /* the same object with another id, which is not in the table */
	if (number >= 0)
		watch = watch_table_add(
			table, node, number, file_system_traits(fd) & FILE_SYSTEM_SHARED);
	if (watch && !watch->is_shared)
		watch->since = position_draw();
	else if (number >= 0 && !watch)
		inotify_rm_watch(watcher->inotify_fd, number);
	return watch ? watch->since : 0;
}

uint64_t watcher_add(struct watcher *watcher, int fd, const char *path, const struct object_id *id,
	const struct object_id *parent, uint64_t *ret_at)
{
	struct watch_node *node;
	uint64_t since = 0;

	pthread_mutex_lock(&watcher->mutex);
	node = node_at(watcher, path, id, parent);
	if (node && node->watch)
		since = node->watch->since;
	else if (node)
		since = add_watch(watcher, fd, node);
	watch_table_tidy(&watcher->table, node);
	*ret_at = position_draw();
	pthread_mutex_unlock(&watcher->mutex);
	return since;
}

/* A watched directory gets IN_IGNORED now, after its earlier events. */
void watcher_remove(struct watcher *watcher, const struct object_id *id)
{
	struct watch_node *node;

	pthread_mutex_lock(&watcher->mutex);
	node = watch_table_find_node(&watcher->table, id);
	if (node && node->watch) {
		inotify_rm_watch(watcher->inotify_fd, node->watch->number);
		watch_table_end(&watcher->table, node->watch);
	} else if (node) {
		watch_table_set_failed(&watcher->table, node, false);
		watch_table_tidy(&watcher->table, node);
	}
	pthread_mutex_unlock(&watcher->mutex);
}

void watcher_moved(struct watcher *watcher, const char *path, const struct object_id *id,
	const struct object_id *parent)
{
	pthread_mutex_lock(&watcher->mutex);
	if (watch_table_find_node(&watcher->table, id))
		node_at(watcher, path, id, parent);
	pthread_mutex_unlock(&watcher->mutex);
}

void watcher_counts(struct watcher *watcher, uint64_t *ret_watched, uint64_t *ret_unwatched)
{
	pthread_mutex_lock(&watcher->mutex);
	*ret_unwatched = watcher->table.failed_count;
	*ret_watched = watcher->table.watched_count;
	pthread_mutex_unlock(&watcher->mutex);
}
