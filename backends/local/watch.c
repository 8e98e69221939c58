#define XXH_INLINE_ALL
#include "backends/local/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "backends/local/watch_mounts.h"
#include "backends/local/watch_table.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"
#include "ops/support/position.h"
#include "ops/support/thread.h"

enum {
	BATCH_BYTES = 64 * 1024,
	BATCH_SLOTS = 4096, /* a power of two, at least as many as events fit into a batch */
	DRAIN_READS_MAX = 256,
	MISSED_MAX = 1024,
	FAILED_MAX = 65536,
	OWN_SLOTS = 4096,
	OWN_MS = 20, /* so long after a change of our own its events are echoes */
	WATCH_MASK = IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE |
		     IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
	NAME_EVENTS = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO,
};

/* What an event is charged, and how much is credited at most: see read_and_gather(). */
static const uint64_t EVENT_NS = 2000000, CREDIT_NS = 512000000;
static const uint64_t ECHO_NS = 4000000; /* less, and most files are looked at half written, too */

_Static_assert(BATCH_SLOTS * sizeof(struct inotify_event) >= BATCH_BYTES, "a slot for each event");

/* A name that changed in a directory which was not where it is known to be when we looked. */
struct missed {
	struct missed *next;
	int number;
	char name[];
};

struct watcher {
	watcher_look look;
	void *look_user;
	change_sink sink;
	void *sink_user;
	int inotify_fd, wake_fd;
	int mounts_fd; /* urgent when something was mounted or unmounted; -1: cannot be told */
	pthread_t thread;

	/* By the hash of the path, of which the upper half is kept, with the time in ms. */
	atomic_uint_fast64_t own_changes[OWN_SLOTS];

	pthread_mutex_t mutex;
	pthread_cond_t drained;
	struct watch_table table; /* guarded by mutex, as what follows */
	uint64_t drains_wanted, drains_done;
	bool stop;

	/* The thread's own. */
	struct mount_points mounts;
	struct missed *missed; /* looked at once more when all events have been read */
	size_t missed_count;
	int touched[BATCH_SLOTS]; /* watch numbers of the directories in which names changed */
	size_t touched_count;
	uint64_t charged_until_ns;        /* see read_and_gather() */
	uint32_t last_event[BATCH_SLOTS]; /* of each name in the batch: its offset + 1 */
	_Alignas(struct inotify_event) char batch[BATCH_BYTES];
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

/* The watch has ended (`is_dead`), or is of no use.  What is watched anew later has a higher
 * position than this end, as that is numbered under the mutex. */
static void lose_number(struct watcher *watcher, int number, bool is_dead)
{
	struct change end = {.kind = CHANGE_UNWATCHED};
	cleanup_free char *path = NULL;
	bool was_told = false;
	struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch) {
		was_told = watch->since;
		path = watch_place_path(watch->place, "");
		end.path = path ? path : "";
		end.directory = watch->place->id;
		if (!is_dead && !watch->has_ended)
			inotify_rm_watch(watcher->inotify_fd, number);
		watch_table_remove(&watcher->table, watch);
		end.at = position_draw();
	}
	pthread_mutex_unlock(&watcher->mutex);
	if (was_told)
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
		directory.path = path = watch_place_path(watch->place, "");
		directory.id = watch->place->id;
	}
	pthread_mutex_unlock(&watcher->mutex);
	return path && (!path_is_within(path, top) ||
			       watcher->look(watcher->look_user, &directory, &ignored) == 0);
}

/* Ends the watches at or below the path whose directories are not there (any more). */
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

/* ---- Looking -------------------------------------------------------------------------------- */

/* Where what was found is watched, or holds what is, it is there now. */
static void follow(
	struct watcher *watcher, int number, const char *name, const struct attributes *found)
{
	const struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch && watch_table_find_place(&watcher->table, &found->id))
		watch_table_put(&watcher->table, watch->place, name, &found->id);
	pthread_mutex_unlock(&watcher->mutex);
}

/* Tells what is now at the name in a watched directory, or, where that is "", of the directory
 * itself.  An error says that this is not known: the directory is not where it was, or nobody can
 * look there. */
static int look_and_tell(struct watcher *watcher, int number, const char *name)
{
	struct change change = {.kind = CHANGE_ENTRY};
	struct object_ref object = {0};
	cleanup_free char *path = NULL;
	const struct watch *watch;
	int r;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	if (watch) {
		path = watch_place_path(watch->place, name);
		*(*name ? &object.parent : &object.id) = watch->place->id;
	}
	pthread_mutex_unlock(&watcher->mutex);
	if (!watch)
		return 0; /* its end has been told */
	if (!path)
		return -ENOMEM;
	object.path = change.path = path;
	change.directory = object.parent;
	change.at = position_draw();
	r = watcher->look(watcher->look_user, &object, &change.attributes);
	change.exists = r == 0;
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

static void take_name(struct watcher *watcher, int number, const char *name)
{
	int r = look_and_tell(watcher, number, name);

	if (r < 0 && !(path_misses_object(r) && keep_missed(watcher, number, name)))
		lose_number(watcher, number, false);
}

/* All events that tell where directories went have been read.  What is found may be one that
 * others are in. */
static void take_missed(struct watcher *watcher)
{
	for (bool finds = true; finds;) {
		finds = false;
		for (struct missed **at = &watcher->missed; *at;) {
			struct missed *missed = *at;

			if (look_and_tell(watcher, missed->number, missed->name) < 0) {
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

/* ---- Events --------------------------------------------------------------------------------- */

/* A directory in which names changed has changed itself: its times, its link count.  So has one
 * that was moved, and it may be out of sight. */
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

/* What can be known of all of a batch before anybody looks. */
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

/* Events of a directory itself come from its parent's watch too, except: */
static bool speaks_for_itself(struct watcher *watcher, int number)
{
	const struct watch *watch;
	bool result;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, number);
	result = watch && !(watch->place->parent && watch->place->parent->watch);
	pthread_mutex_unlock(&watcher->mutex);
	return result;
}

static void look_after(struct watcher *watcher, const struct inotify_event *event)
{
	if (event->mask & (IN_Q_OVERFLOW | IN_IGNORED | IN_MOVE_SELF))
		return;
	if (event->len)
		take_name(watcher, event->wd, event->name);
	else if (speaks_for_itself(watcher, event->wd))
		take_name(watcher, event->wd, "");
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
			take_name(watcher, watcher->touched[i], "");
	}
	watcher->touched_count = 0;
}

/* ---- Changes of our own -------------------------------------------------------------------- */

uint64_t watcher_path_hash(const char *path)
{
	return XXH3_64bits_withSeed(path, strlen(path), hash_seed());
}

void watcher_changing(struct watcher *watcher, uint64_t path_hash)
{
	watcher->own_changes[path_hash % OWN_SLOTS] =
		(path_hash & ~(uint64_t)UINT32_MAX) | (uint32_t)clock_now_ms();
}

static bool is_echo(struct watcher *watcher, const struct inotify_event *event, uint32_t now_ms)
{
	cleanup_free char *path = NULL;
	const struct watch *watch;
	uint64_t hash, own;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, event->wd);
	if (watch)
		path = watch_place_path(watch->place, event->len ? event->name : "");
	pthread_mutex_unlock(&watcher->mutex);
	if (!path)
		return false;
	hash = watcher_path_hash(path);
	own = watcher->own_changes[hash % OWN_SLOTS];
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
	slot = (hash ^ hash >> 32) & (BATCH_SLOTS - 1);
	while (watcher->last_event[slot] &&
		!same_name(event_at(watcher, watcher->last_event[slot] - 1), event))
		slot = (slot + 1) & (BATCH_SLOTS - 1);
	return &watcher->last_event[slot];
}

/* Of others. */
static size_t count_changes(struct watcher *watcher, size_t size)
{
	uint32_t now_ms = (uint32_t)clock_now_ms();
	size_t count = 0;

	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len)
		count += !is_echo(watcher, event_at(watcher, at), now_ms);
	return count;
}

/* Directories first: others are looked for where they are now. */
static void look_after_all(struct watcher *watcher, size_t size, bool directories)
{
	const struct inotify_event *event;

	for (size_t at = 0; at < size; at += sizeof(*event) + event->len) {
		event = event_at(watcher, at);
		if (*slot_of(watcher, event) == at + 1 &&
			(event->len && event->mask & IN_ISDIR) == directories)
			look_after(watcher, event);
	}
}

static void take_batch(struct watcher *watcher, size_t size)
{
	memset(watcher->last_event, 0, sizeof(watcher->last_event));
	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len)
		*slot_of(watcher, event_at(watcher, at)) = (uint32_t)at + 1;
	for (size_t at = 0; at < size;
		at += sizeof(struct inotify_event) + event_at(watcher, at)->len)
		take_event(watcher, event_at(watcher, at));
	look_after_all(watcher, size, true);
	look_after_all(watcher, size, false);
	take_touched(watcher);
}

static size_t read_events(struct watcher *watcher, size_t at)
{
	ssize_t got = read(watcher->inotify_fd, watcher->batch + at, sizeof(watcher->batch) - at);

	return got > 0 ? (size_t)got : 0;
}

static bool read_batch(struct watcher *watcher)
{
	size_t size = read_events(watcher, 0);

	if (size)
		take_batch(watcher, size);
	return size;
}

static void find_missed(struct watcher *watcher)
{
	for (int i = 0; watcher->missed && i < DRAIN_READS_MAX && read_batch(watcher); i++) {}
	take_missed(watcher);
}

/* ---- Mounts -------------------------------------------------------------------------------- */

/* The number of what watches the directory at the path; -1: nothing does. */
static int number_at(struct watcher *watcher, const char *path)
{
	const struct watch_place *place;
	struct attributes found;
	int number = -1;

	if (watcher->look(watcher->look_user, &OBJECT_AT(path), &found) < 0)
		return -1;
	pthread_mutex_lock(&watcher->mutex);
	place = watch_table_find_place(&watcher->table, &found.id);
	if (place && place->watch)
		number = place->watch->number;
	pthread_mutex_unlock(&watcher->mutex);
	return number;
}

/* Another directory is at the path than before, and others below it. */
static void take_mount(void *user, const char *path)
{
	struct watcher *watcher = user;
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct change change = {.kind = CHANGE_ENTRY, .path = path};
	int number;

	lose_missing(watcher, path);
	number = parent && *path ? number_at(watcher, parent) : -1;
	if (number >= 0) {
		take_name(watcher, number, path_name(path));
		return;
	}
	change.at = position_draw();
	change.exists =
		watcher->look(watcher->look_user, &OBJECT_AT(path), &change.attributes) == 0;
	tell(watcher, &change);
}

static void take_mounts(struct watcher *watcher)
{
	mount_points_update(&watcher->mounts, take_mount, watcher);
}

static bool mounts_changed(struct watcher *watcher)
{
	struct pollfd mounts = {.fd = watcher->mounts_fd, .events = POLLPRI};

	return poll(&mounts, 1, 0) > 0;
}

/* ---- The thread ------------------------------------------------------------------- */

/* True when it is to end. */
static bool take_wake(struct watcher *watcher)
{
	uint64_t wanted, count;
	bool stop;

	if (read(watcher->wake_fd, &count, sizeof(count)) < 0)
		return false;
	pthread_mutex_lock(&watcher->mutex);
	wanted = watcher->drains_wanted;
	stop = watcher->stop;
	pthread_mutex_unlock(&watcher->mutex);
	if (!stop && mounts_changed(watcher))
		take_mounts(watcher);
	for (int i = 0; !stop && i < DRAIN_READS_MAX && read_batch(watcher); i++) {}
	take_missed(watcher);
	pthread_mutex_lock(&watcher->mutex);
	watcher->drains_done = wanted;
	pthread_cond_broadcast(&watcher->drained);
	pthread_mutex_unlock(&watcher->mutex);
	return stop;
}

static void charge(struct watcher *watcher, size_t events)
{
	uint64_t now_ns = clock_now_ns(), until_ns = watcher->charged_until_ns;

	if (until_ns + CREDIT_NS < now_ns)
		until_ns = now_ns - CREDIT_NS;
	until_ns += events * EVENT_NS;
	watcher->charged_until_ns = until_ns < now_ns + EVENT_NS ? until_ns : now_ns + EVENT_NS;
}

static void wait_for(struct pollfd *wake_fd, uint64_t ns)
{
	ppoll(wake_fd, 1, &(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Changes of others are handled as soon as they come, unless many do: each batch wakes several
 * threads and invalidates what the kernel caches, which costs a stream of changes (a log that
 * grows) several times as much as handling its events together.  So each event takes EVENT_NS from
 * a credit that grows with time; without credit, the events of EVENT_NS are handled together.
 *
 * So are echoes, always, for ECHO_NS: they are known, unless others changed the same name at the
 * same moment. */
static void read_and_gather(struct watcher *watcher, struct pollfd *wake_fd)
{
	uint64_t now_ns = clock_now_ns();
	size_t size, changes;

	if (watcher->charged_until_ns > now_ns)
		wait_for(wake_fd, watcher->charged_until_ns - now_ns);
	size = read_events(watcher, 0);
	changes = count_changes(watcher, size);
	charge(watcher, changes);
	if (size && !changes) {
		wait_for(wake_fd, ECHO_NS);
		size += read_events(watcher, size);
	}
	take_batch(watcher, size);
}

static void *watch_thread(void *user)
{
	struct watcher *watcher = user;
	struct pollfd fds[3] = {{.fd = watcher->inotify_fd, .events = POLLIN},
		{.fd = watcher->wake_fd, .events = POLLIN},
		{.fd = watcher->mounts_fd, .events = POLLPRI}};

	for (;;) {
		if (poll(fds, array_size(fds), -1) <= 0)
			continue;
		if (fds[2].revents) /* and not again before the next change */
			take_mounts(watcher);
		if (fds[1].revents && take_wake(watcher))
			return NULL;
		if (fds[0].revents)
			read_and_gather(watcher, &fds[1]);
		find_missed(watcher);
	}
}

static void wake(struct watcher *watcher)
{
	uint64_t one = 1;

	/* It fails only when the counter is full: then the thread is awake anyway. */
	if (write(watcher->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void watcher_destroy(struct watcher *watcher)
{
	if (watcher->inotify_fd >= 0)
		close(watcher->inotify_fd);
	if (watcher->wake_fd >= 0)
		close(watcher->wake_fd);
	if (watcher->mounts_fd >= 0)
		close(watcher->mounts_fd);
	mount_points_done(&watcher->mounts);
	watch_table_done(&watcher->table);
	while (watcher->missed) {
		struct missed *missed = watcher->missed;

		watcher->missed = missed->next;
		free(missed);
	}
	pthread_cond_destroy(&watcher->drained);
	pthread_mutex_destroy(&watcher->mutex);
	free(watcher);
}

int watcher_new(int root_fd, watcher_look look, void *look_user, change_sink sink, void *sink_user,
	struct watcher **ret_watcher)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	int r;

	if (!watcher)
		return -ENOMEM;
	watcher->look = look;
	watcher->look_user = look_user;
	watcher->sink = sink;
	watcher->sink_user = sink_user;
	pthread_mutex_init(&watcher->mutex, NULL);
	pthread_cond_init(&watcher->drained, NULL);
	watcher->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	r = watcher->inotify_fd < 0 ? -errno : 0;
	watcher->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r == 0 && watcher->wake_fd < 0)
		r = -errno;
	if (watch_table_init(&watcher->table) < 0)
		r = -ENOMEM;
	watcher->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	mount_points_init(&watcher->mounts, root_fd);
	if (r == 0)
		r = thread_start(&watcher->thread, 0, watch_thread, watcher);
	if (r < 0) {
		watcher_destroy(watcher);
		return r == -ENOSYS ? -EOPNOTSUPP : r;
	}
	*ret_watcher = watcher;
	return 0;
}

void watcher_free(struct watcher *watcher)
{
	if (!watcher)
		return;
	pthread_mutex_lock(&watcher->mutex);
	watcher->stop = true;
	pthread_mutex_unlock(&watcher->mutex);
	wake(watcher);
	pthread_join(watcher->thread, NULL);
	watcher_destroy(watcher);
}

/* ---- Orders ---- */

/* A file system that other machines change as well, or a program: inotify tells only of what is
 * done by way of this machine's kernel. */
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

/* The place of the directory that holds what is at the path, by looking.  NULL: no memory, or what
 * is there changes. */
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

/* Under the mutex, as that.  Of use to nobody yet.  What is mounted in itself stays where it is. */
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
		return 0; /* the same object with another id: none of what we know */
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

/* What is watched gets IN_IGNORED now, behind the events that came before. */
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

void watcher_drain(struct watcher *watcher)
{
	uint64_t mine;

	pthread_mutex_lock(&watcher->mutex);
	mine = ++watcher->drains_wanted;
	wake(watcher);
	while (watcher->drains_done < mine)
		pthread_cond_wait(&watcher->drained, &watcher->mutex);
	pthread_mutex_unlock(&watcher->mutex);
}

void watcher_counts(struct watcher *watcher, uint64_t *ret_watched, uint64_t *ret_unwatched)
{
	pthread_mutex_lock(&watcher->mutex);
	*ret_unwatched = watcher->table.failed_count;
	*ret_watched = watcher->table.watched_count;
	pthread_mutex_unlock(&watcher->mutex);
}
