#include "backends/local/watch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "ops/support/position.h"

enum {
	FAILED_MAX = 65536,
	WATCH_MASK = IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE |
		     IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
};

/* A file system that other machines, or a program, change as well: inotify reports only what goes
 * through this machine's kernel. */
static bool is_shared(int fd)
{
	static const uint32_t types[] = {
		0x6969,     /* nfs */
		0x517b,     /* smbfs */
		0xff534d42, /* cifs */
		0xfe534d42, /* smb2 */
		0x01021997, /* 9p */
		0x00c36400, /* ceph */
		0x65735546, /* fuse; sshfs, GlusterFS, virtiofs */
		0x0bd00bd0, /* Lustre */
		0x47504653, /* GPFS */
		0x19830326, /* BeeGFS */
		0xaad7aaea, /* PanFS */
		0x01161970, /* gfs2 */
		0x7461636f, /* ocfs2 */
		0x5346414f, /* OpenAFS */
		0x6b414653, /* afs */
		0x73757245, /* coda */
		0x786f4256, /* vboxsf */
		0xbacbacbc, /* vmhgfs */
		0x9fa0,     /* proc */
		0x62656572, /* sysfs */
	};
	struct statfs found;

	if (fstatfs(fd, &found) < 0)
		return false;
	for (size_t i = 0; i < array_size(types); i++)
		if ((uint32_t)found.f_type == types[i])
			return true;
	return false;
}

/* The node of the path's parent directory, found by looking at each component.  NULL: no memory, or
 * something there is changing. */
static struct watch_place *look_for_parent(struct watcher *watcher, const char *path)
{
	struct watch_place *place = NULL, *parent;
	cleanup_free char *above = strdup("");
	const char *end = path;

	for (;;) {
		struct attributes found;

		parent = place;
		place = NULL;
		if (above && watcher->look(watcher->look_user, &OBJECT_AT(above), &found) == 0)
			place = watch_table_put(
				&watcher->table, parent, path_name(above), &found.id);
		end = strchr(end, '/');
		if (!place || !end)
			break;
		free(above);
		above = strndup(path, (size_t)(end++ - path));
	}
	if (!place)
		watch_table_tidy(&watcher->table, parent);
	return place;
}

/* The node of a directory; with the mutex held.  It is freed by watch_table_tidy() unless it gets a
 * use.  A directory that is mounted below itself stays where it is. */
static struct watch_place *place_at(struct watcher *watcher, const char *path,
	const struct object_id *id, const struct object_id *parent_id)
{
	struct watch_place *place = watch_table_find_place(&watcher->table, id), *parent, *moved;
	cleanup_free char *known = place ? watch_place_path(place, "") : NULL;
	cleanup_free char *below = NULL;

	if (known && strcmp(known, path) == 0)
		return place;
	if (!*path)
		return watch_table_put(&watcher->table, NULL, "", id);
	parent = watch_table_find_place(&watcher->table, parent_id);
	below = parent ? watch_place_path(parent, path_name(path)) : NULL;
	if (!below || strcmp(below, path) != 0)
		parent = look_for_parent(watcher, path);
	moved = parent ? watch_table_put(&watcher->table, parent, path_name(path), id) : NULL;
	if (moved)
		return moved;
	watch_table_tidy(&watcher->table, parent);
	return place;
}

static uint64_t add_watch(struct watcher *watcher, int fd, struct watch_place *place)
{
	struct watch_table *table = &watcher->table;
	struct watch *watch = NULL;
	char proc_path[32];
	int number;

	snprintf(proc_path, sizeof(proc_path), "/proc/self/fd/%d", fd);
	number = inotify_add_watch(watcher->inotify_fd, proc_path, WATCH_MASK);
	watch_table_set_failed(table, place, number < 0 && table->failed_count < FAILED_MAX);
	if (number >= 0 && watch_table_find(table, number))
		return 0; /* the same object with another id, which is not in the table */
	if (number >= 0)
		watch = watch_table_add(table, place, number, is_shared(fd));
	if (watch && !watch->is_shared)
		watch->since = position_draw();
	else if (number >= 0 && !watch)
		inotify_rm_watch(watcher->inotify_fd, number);
	return watch ? watch->since : 0;
}

uint64_t watcher_add(struct watcher *watcher, int fd, const char *path, const struct object_id *id,
	const struct object_id *parent, uint64_t *ret_at)
{
	struct watch_place *place;
	uint64_t since = 0;

	pthread_mutex_lock(&watcher->mutex);
	place = place_at(watcher, path, id, parent);
	if (place && place->watch)
		since = place->watch->since;
	else if (place)
		since = add_watch(watcher, fd, place);
	watch_table_tidy(&watcher->table, place);
	*ret_at = position_draw();
	pthread_mutex_unlock(&watcher->mutex);
	return since;
}

/* A watched directory gets IN_IGNORED now, after its earlier events. */
void watcher_remove(struct watcher *watcher, const struct object_id *id)
{
	struct watch_place *place;

	pthread_mutex_lock(&watcher->mutex);
	place = watch_table_find_place(&watcher->table, id);
	if (place && place->watch) {
		inotify_rm_watch(watcher->inotify_fd, place->watch->number);
		watch_table_end(&watcher->table, place->watch);
	} else if (place) {
		watch_table_set_failed(&watcher->table, place, false);
		watch_table_tidy(&watcher->table, place);
	}
	pthread_mutex_unlock(&watcher->mutex);
}

void watcher_moved(struct watcher *watcher, const char *path, const struct object_id *id,
	const struct object_id *parent)
{
	pthread_mutex_lock(&watcher->mutex);
	if (watch_table_find_place(&watcher->table, id))
		place_at(watcher, path, id, parent);
	pthread_mutex_unlock(&watcher->mutex);
}

void watcher_counts(struct watcher *watcher, uint64_t *ret_watched, uint64_t *ret_unwatched)
{
	pthread_mutex_lock(&watcher->mutex);
	*ret_unwatched = watcher->table.failed_count;
	*ret_watched = watcher->table.watched_count;
	pthread_mutex_unlock(&watcher->mutex);
}
