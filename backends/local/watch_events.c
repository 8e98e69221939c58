#define XXH_INLINE_ALL
#include "backends/local/watch_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"
#include "ops/support/position.h"

enum {
	MISSED_MAX = 1024,
	OWN_MS = 20, /* how long after a change of our own its events count as echoes */
	NAME_EVENTS = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO,
};

/* ---- Telling ------------------------------------------------------------------------------ */

static void tell(struct watcher *watcher, const struct change *change)
{
	watcher->sink(watcher->sink_user, change);
}

static void tell_rescan(struct watcher *watcher)
{
	const struct change change = {.kind = CHANGE_RESCAN, .path = "", .at = position_draw()};

	tell(watcher, &change);
}

/* ---- Ends --------------------------------------------------------------------------------- */

/* Ends a watch that has died (`is_dead`), or is of no use.  A later watch has a higher position
 * than this end, as the end's is drawn under the mutex. */
static void lose_number(struct watcher *watcher, int number, bool is_dead)
{
	struct change end = {.kind = CHANGE_UNWATCHED};
	cleanup_free char *path = NULL;
	bool is_reported = false;
	struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch) {
		is_reported = watch->since;
		path = watch_node_path(watch->node, "");
		end.path = path ? path : "";
		end.directory = watch->node->id;
		if (!is_dead && !watch->has_ended)
			inotify_rm_watch(watcher->inotify_fd, number);
		watch_table_remove(&watcher->table, watch);
		end.at = position_draw();
	}
	pthread_mutex_unlock(&watcher->mutex);
	if (is_reported)
		tell(watcher, &end);
}

static bool is_there(struct watcher *watcher, int number, const char *top)
{
	struct object_ref directory = {.path = NULL};
	cleanup_free char *path = NULL;
	struct attributes ignored;
	const struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch && !watch->has_ended) {
		directory.path = path = watch_node_path(watch->node, "");
		directory.id = watch->node->id;
	}
	pthread_mutex_unlock(&watcher->mutex);
	return path && (!path_is_within(path, top) ||
			       watcher->look(watcher->look_user, &directory, &ignored) == 0);
}

/* Ends the watches at or below the path whose directories are not there any more. */
static void lose_missing(struct watcher *watcher, const char *top)
{
	cleanup_free int *numbers = NULL;
	size_t count;

	pthread_mutex_lock(&watcher->mutex);
	numbers = watch_table_numbers(&watcher->table, &count);
	pthread_mutex_unlock(&watcher->mutex);
	for (size_t i = 0; i < count; i++)
		if (!is_there(watcher, numbers[i], top))
			lose_number(watcher, numbers[i], false);
}

/* ---- Changes of our own -------------------------------------------------------------------- */

uint64_t watcher_path_hash(const char *path)
{
	return XXH3_64bits_withSeed(path, strlen(path), hash_seed());
}

static uint64_t mark(uint64_t path_hash, uint32_t value)
{
	return (path_hash & ~(uint64_t)UINT32_MAX) | value;
}

void watcher_closing(struct watcher *watcher, uint64_t path_hash)
{
	watcher->own_changes[path_hash % WATCH_OWN_SLOTS] =
		mark(path_hash, (uint32_t)clock_now_ms());
}

void watcher_changing(struct watcher *watcher, uint64_t path_hash)
{
	watcher_closing(watcher, path_hash);
	watcher->own_turns[path_hash % WATCH_OWN_SLOTS] = mark(path_hash, watcher->turn);
}

/* One event for each change of our own: another one before the next change is foreign, and so is
 * one after a drain, which had the events of all changes before.  (A change may have two events,
 * but it does no harm to take the second one for foreign.) */
static bool is_foreign(struct watcher *watcher, const char *path)
{
	uint64_t hash = watcher_path_hash(path);

	return atomic_exchange(&watcher->own_turns[hash % WATCH_OWN_SLOTS], 0) !=
	       mark(hash, watcher->turn);
}

/* ---- Looking -------------------------------------------------------------------------------- */

/* A directory was found at the name: if it is in the table, this is where it is now. */
static void follow(
	struct watcher *watcher, int number, const char *name, const struct attributes *found)
{
	const struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch && watch_table_find_node(&watcher->table, &found->id))
		watch_table_put(&watcher->table, watch->node, name, &found->id);
	pthread_mutex_unlock(&watcher->mutex);
}

/* `mask`: of the events that tell of it; a file that is only closed has not changed.
 * Looks at the name in a watched directory ("": at the directory itself), and reports what is
 * there.  An error: that is unknown, as the directory is not where it was, or cannot be read. */
static int look_and_tell(struct watcher *watcher, int number, const char *name, uint32_t mask)
{
	struct change change = {.kind = CHANGE_ENTRY};
	struct object_ref object = {0};
	cleanup_free char *path = NULL;
	const struct watch *watch;
	int r;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch) {
		path = watch_node_path(watch->node, name);
		*(*name ? &object.parent : &object.id) = watch->node->id;
	}
	pthread_mutex_unlock(&watcher->mutex);
	if (!watch)
		return 0; /* its end has been reported */
	if (!path)
		return -ENOMEM;
	object.path = change.path = path;
	change.directory = object.parent;
	change.at = position_draw();
	r = watcher->look(watcher->look_user, &object, &change.attributes);
	change.exists = r == 0;
	change.is_foreign = mask & ~(uint32_t)IN_CLOSE_WRITE && is_foreign(watcher, path);
	if (r < 0 && !(r == -ENOENT && *name))
		return r;
	if (change.exists && *name && S_ISDIR(change.attributes.mode))
		follow(watcher, number, name, &change.attributes);
	tell(watcher, &change);
	return 0;
}

/* False: too many. */
static bool keep_missed(struct watcher *watcher, int number, const char *name)
{
	size_t size = strlen(name) + 1;
	struct missed *missed = NULL;

	if (watcher->missed_count < MISSED_MAX)
		missed = malloc(sizeof(*missed) + size);
	if (!missed)
		return false;
	missed->next = watcher->missed;
	missed->number = number;
	memcpy(missed->name, name, size);
	watcher->missed = missed;
	watcher->missed_count++;
	return true;
}

static void take_name(struct watcher *watcher, int number, const char *name, uint32_t mask)
{
	int r = look_and_tell(watcher, number, name, mask);

	if (r < 0 && !(path_misses_object(r) && keep_missed(watcher, number, name)))
		lose_number(watcher, number, false);
}

/* After all events that say where directories went have been read.  Each one found may lead to
 * others. */
void watch_take_missed(struct watcher *watcher)
{
	for (bool finds = true; finds;) {
		finds = false;
		for (struct missed **at = &watcher->missed; *at;) {
			struct missed *missed = *at;

			if (look_and_tell(watcher, missed->number, missed->name, IN_ALL_EVENTS) <
				0) {
				at = &missed->next;
				continue;
			}
			*at = missed->next;
			free(missed);
			finds = true;
		}
	}
	while (watcher->missed) {
		struct missed *missed = watcher->missed;

		watcher->missed = missed->next;
		lose_number(watcher, missed->number, false);
		free(missed);
	}
	watcher->missed_count = 0;
}

void watch_take_linked(struct watcher *watcher)
{
	struct missed *linked;

	pthread_mutex_lock(&watcher->mutex);
	linked = steal_ptr(&watcher->linked);
	watcher->linked_count = 0;
	pthread_cond_broadcast(&watcher->links_wake);
	pthread_mutex_unlock(&watcher->mutex);
	while (linked) {
		struct missed *next = linked->next;

		take_name(watcher, linked->number, linked->name, IN_ATTRIB);
		free(linked);
		linked = next;
	}
}

/* ---- Events --------------------------------------------------------------------------------- */

/* A directory in which names changed has changed itself: its times, its link count.  So has one
 * that was moved, perhaps out of the workspace. */
static void touch(struct watcher *watcher, int number)
{
	struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch && !watch->touched) {
		watch->touched = true;
		watcher->touched[watcher->touched_count++] = number;
	}
	pthread_mutex_unlock(&watcher->mutex);
}

/* What the events say by themselves, before any name is looked at. */
static void take_event(struct watcher *watcher, const struct inotify_event *event)
{
	if (event->mask & IN_Q_OVERFLOW) {
		lose_missing(watcher, "");
		tell_rescan(watcher);
	} else if (event->mask & IN_IGNORED) {
		lose_number(watcher, event->wd, true);
	} else if (event->mask & (NAME_EVENTS | IN_MOVE_SELF)) {
		touch(watcher, event->wd);
	}
}

/* The parent's watch reports a directory's own events, too, unless the parent is not watched. */
static bool speaks_for_itself(struct watcher *watcher, int number)
{
	const struct watch *watch;
	bool result;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	result = watch && !(watch->node->parent && watch->node->parent->watch);
	pthread_mutex_unlock(&watcher->mutex);
	return result;
}

/* `mask`: of all events of this name in the batch. */
static void look_after(struct watcher *watcher, const struct inotify_event *event, uint32_t mask)
{
	if (event->mask & (IN_Q_OVERFLOW | IN_IGNORED | IN_MOVE_SELF))
		return;
	if (event->len)
		take_name(watcher, event->wd, event->name, mask);
	else if (speaks_for_itself(watcher, event->wd))
		take_name(watcher, event->wd, "", mask);
}

static void take_touched(struct watcher *watcher)
{
	for (size_t i = 0; i < watcher->touched_count; i++) {
		struct watch *watch;

		pthread_mutex_lock(&watcher->mutex);
		watch = watch_table_find(&watcher->table, watcher->touched[i]);
		if (watch)
			watch->touched = false;
		pthread_mutex_unlock(&watcher->mutex);
		if (watch)
			take_name(watcher, watcher->touched[i], "", 0);
	}
	watcher->touched_count = 0;
}

static bool is_echo(struct watcher *watcher, const struct inotify_event *event, uint32_t now_ms)
{
	cleanup_free char *path = NULL;
	const struct watch *watch;
	uint64_t hash, own;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, event->wd);
	if (watch)
		path = watch_node_path(watch->node, event->len ? event->name : "");
	pthread_mutex_unlock(&watcher->mutex);
	if (!path)
		return false;
	hash = watcher_path_hash(path);
	own = watcher->own_changes[hash % WATCH_OWN_SLOTS];
	return hash >> 32 == own >> 32 && now_ms - (uint32_t)own <= OWN_MS;
}

/* ---- Batches: a name that changed many times is told of once --------------------------------- */

static const struct inotify_event *event_at(const struct watcher *watcher, size_t at)
{
	return (const void *)(watcher->batch + at);
}

static bool same_name(const struct inotify_event *a, const struct inotify_event *b)
{
	return a->wd == b->wd && !a->len == !b->len && (!a->len || strcmp(a->name, b->name) == 0);
}

static uint32_t *slot_of(struct watcher *watcher, const struct inotify_event *event)
{
	uint64_t hash = (uint64_t)(unsigned)event->wd * 0x9e3779b97f4a7c15U;
	size_t slot;

	for (const char *c = event->len ? event->name : ""; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3U;
	slot = (hash ^ hash >> 32) & (WATCH_BATCH_SLOTS - 1);
	while (watcher->last_event[slot] &&
		!same_name(event_at(watcher, watcher->last_event[slot] - 1), event))
		slot = (slot + 1) & (WATCH_BATCH_SLOTS - 1);
	return &watcher->last_event[slot];
}

size_t watch_count_foreign(struct watcher *watcher, size_t size)
{
	uint32_t now_ms = (uint32_t)clock_now_ms();
	size_t count = 0;

	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len)
		count += !is_echo(watcher, event_at(watcher, at), now_ms);
	return count;
}

/* Directories first, so that names in them are looked for where they are now. */
static void look_after_all(struct watcher *watcher, size_t size, bool directories)
{
	const struct inotify_event *event;

	for (size_t at = 0; at < size; at += sizeof(*event) + event->len) {
		const uint32_t *slot;

		event = event_at(watcher, at);
		slot = slot_of(watcher, event);
		if (*slot == at + 1 && (event->len && event->mask & IN_ISDIR) == directories)
			look_after(watcher, event, watcher->masks[slot - watcher->last_event]);
	}
}

void watch_take_batch(struct watcher *watcher, size_t size)
{
	memset(watcher->last_event, 0, sizeof(watcher->last_event));
	memset(watcher->masks, 0, sizeof(watcher->masks));
	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len) {
		uint32_t *slot = slot_of(watcher, event_at(watcher, at));

		*slot = (uint32_t)at + 1;
		watcher->masks[slot - watcher->last_event] |= event_at(watcher, at)->mask;
	}
	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len)
		take_event(watcher, event_at(watcher, at));
	look_after_all(watcher, size, true);
	look_after_all(watcher, size, false);
	take_touched(watcher);
}

/* ---- Mounts -------------------------------------------------------------------------------- */

/* The number of the watch of the directory at the path; -1: there is none. */
static int number_at(struct watcher *watcher, const char *path)
{
	const struct watch_node *node;
	struct attributes found;
	int number = -1;

	if (watcher->look(watcher->look_user, &OBJECT_AT(path), &found) < 0)
		return -1;
	pthread_mutex_lock(&watcher->mutex);
	node = watch_table_find_node(&watcher->table, &found.id);
	if (node && node->watch)
		number = node->watch->number;
	pthread_mutex_unlock(&watcher->mutex);
	return number;
}

/* Other directories are at and below the path now. */
static void take_mount(void *user, const char *path)
{
	struct watcher *watcher = user;
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct change change = {.kind = CHANGE_ENTRY, .path = path};
	int number;

	lose_missing(watcher, path);
	number = parent && *path ? number_at(watcher, parent) : -1;
	if (number >= 0) {
		take_name(watcher, number, path_name(path), IN_ALL_EVENTS);
		return;
	}
	change.at = position_draw();
	change.exists =
		watcher->look(watcher->look_user, &OBJECT_AT(path), &change.attributes) == 0;
	tell(watcher, &change);
}

void watch_take_mounts(struct watcher *watcher)
{
	mount_points_update(&watcher->mounts, take_mount, watcher);
}
