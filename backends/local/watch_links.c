/* Files that others have given another name in a directory that is not watched.  link(2) raises an
 * event for watches of the file itself only, and what is written by the new name has none at all;
 * but it shows in nlink.  So a thread looks through the watched directories now and then. */
#include "backends/local/watch_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum {
	PAUSE_MS = 10000,
	PAUSE_TIMES = 200,  /* at least so many times as long as the looks before took */
	COARSE_SECONDS = 3, /* by so much a file system's time may be behind the clock */
	LINKED_MAX = 1024,
	GIVE_WAY_NICE = 10,
};

struct round {
	struct watcher *watcher;
	int number;   /* of the watch of the directory */
	time_t since; /* ctime of a link that was not there in the round before */
};

/* ---- With the mutex ------------------------------------------------------------------------ */

/* False: the thread is to end. */
static bool wait_ms(struct watcher *watcher, int64_t ms)
{
	uint64_t end = clock_now_ms() + (uint64_t)ms, now;

	while (!watcher->stop && (now = clock_now_ms()) < end)
		clock_cond_wait_ms(&watcher->links_wake, &watcher->mutex, (int64_t)(end - now));
	return !watcher->stop;
}

/* Waits until there is room for more. */
static bool wait_for_room(struct watcher *watcher)
{
	while (!watcher->stop && watcher->linked_count >= LINKED_MAX)
		pthread_cond_wait(&watcher->links_wake, &watcher->mutex);
	return !watcher->stop;
}

/* ---- Looking ----------------------------------------------------------------------------------
 */

static int take_entry(void *user, const struct dir_entry *entry)
{
	const struct attributes *found = &entry->attributes;
	struct round *round = user;
	size_t size = strlen(entry->path) + 1;
	struct missed *linked;
	bool goes_on;

	if (S_ISDIR(found->mode) || found->nlink < 2 || found->ctime.tv_sec < round->since)
		return 0;
	linked = malloc(sizeof(*linked) + size);
	if (!linked)
		return -ENOMEM;
	linked->number = round->number;
	memcpy(linked->name, entry->path, size);
	pthread_mutex_lock(&round->watcher->mutex);
	goes_on = wait_for_room(round->watcher);
	linked->next = round->watcher->linked;
	round->watcher->linked = linked;
	round->watcher->linked_count++;
	pthread_mutex_unlock(&round->watcher->mutex);
	watcher_wake(round->watcher);
	return goes_on ? 0 : -ECANCELED;
}

static void look_through(struct round *round)
{
	struct watcher *watcher = round->watcher;
	struct object_ref directory = {0};
	cleanup_free char *path = NULL;
	const struct watch *watch;

	pthread_mutex_lock(&watcher->mutex);
	watch = watch_table_find(&watcher->table, round->number);
	if (watch && watch->since && !watch->has_ended) {
		path = watch_node_path(watch->node, "");
		directory = (struct object_ref){.path = path, .id = watch->node->id};
	}
	pthread_mutex_unlock(&watcher->mutex);
	if (path)
		watcher->list(watcher->look_user, &directory, take_entry, round);
}

/* False: the thread is to end. */
static bool look_through_all(struct watcher *watcher, time_t since)
{
	struct round round = {.watcher = watcher, .since = since};
	cleanup_free int *numbers = NULL;
	bool goes_on = true;
	size_t count = 0;

	pthread_mutex_lock(&watcher->mutex);
	numbers = watch_table_numbers(&watcher->table, &count);
	pthread_mutex_unlock(&watcher->mutex);
	for (size_t i = 0; numbers && i < count && goes_on; i++) {
		round.number = numbers[i];
		look_through(&round);
		pthread_mutex_lock(&watcher->mutex);
		goes_on = !watcher->stop;
		pthread_mutex_unlock(&watcher->mutex);
	}
	return goes_on;
}

void *watch_links_thread(void *user)
{
	struct watcher *watcher = user;
	time_t since = time(NULL) - COARSE_SECONDS;
	uint64_t pause_ms = PAUSE_MS;
	bool goes_on = true;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), GIVE_WAY_NICE);
	while (goes_on) {
		uint64_t begun_ms;
		time_t begun;

		pthread_mutex_lock(&watcher->mutex);
		goes_on = wait_ms(watcher, (int64_t)pause_ms);
		pthread_mutex_unlock(&watcher->mutex);
		begun_ms = clock_now_ms();
		begun = time(NULL) - COARSE_SECONDS;
		/* Of a clock that was set back nothing is known. */
		goes_on = goes_on && look_through_all(watcher, begun < since ? 0 : since);
		since = begun;
		pause_ms = (clock_now_ms() - begun_ms) * PAUSE_TIMES;
		if (pause_ms < PAUSE_MS)
			pause_ms = PAUSE_MS;
	}
	return NULL;
}
