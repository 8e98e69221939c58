#include "backends/local/watch_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/thread.h"

enum { DRAIN_READS_MAX = 256 };

/* What an event is charged, and how much is credited at most: see read_and_gather(). */
static const uint64_t EVENT_NS = 2000000, CREDIT_NS = 512000000;
static const uint64_t ECHO_NS = 4000000; /* with less, most files are looked at half written, too */

/* ---- The thread ------------------------------------------------------------------------ */

static size_t read_events(struct watcher *watcher, size_t at)
{
	ssize_t got = read(watcher->inotify_fd, watcher->batch + at, sizeof(watcher->batch) - at);

	return got > 0 ? (size_t)got : 0;
}

static bool read_batch(struct watcher *watcher)
{
	size_t size = read_events(watcher, 0);

	if (size)
		watch_take_batch(watcher, size);
	return size;
}

/* Since the last poll of this descriptor. */
static bool mounts_changed(int mounts_fd)
{
	struct pollfd mounts = {.fd = mounts_fd, .events = POLLPRI};

	return poll(&mounts, 1, 0) > 0;
}

/* Under the mutex. */
static bool has_news(struct watcher *watcher)
{
	struct pollfd events = {.fd = watcher->inotify_fd, .events = POLLIN};

	return mounts_changed(watcher->drain_mounts_fd) || poll(&events, 1, 0) > 0;
}

/* True when the thread is to end. */
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
	if (!stop && mounts_changed(watcher->mounts_fd))
		watch_take_mounts(watcher);
	if (!stop)
		watch_take_linked(watcher);
	for (int i = 0; !stop && i < DRAIN_READS_MAX && read_batch(watcher); i++) {}
	watch_take_missed(watcher);
	pthread_mutex_lock(&watcher->mutex);
	watcher->turn++;
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

/* Changes by others are handled as soon as they come, unless there are many: each batch wakes
 * several threads and invalidates the kernel's caches, so that a stream of changes (a log that
 * grows) costs several times as much as its events handled together.  So each event takes EVENT_NS
 * from a credit that grows with time; without credit, the events of EVENT_NS are handled together.
 * Echoes are always gathered for ECHO_NS: they are no news, unless others changed the same name at
 * the same moment. */
static void read_and_gather(struct watcher *watcher, struct pollfd *wake_fd)
{
	uint64_t now_ns = clock_now_ns();
	size_t size, changes;

	if (watcher->charged_until_ns > now_ns)
		wait_for(wake_fd, watcher->charged_until_ns - now_ns);
	size = read_events(watcher, 0);
	changes = watch_count_foreign(watcher, size);
	charge(watcher, changes);
	if (size && !changes) {
		wait_for(wake_fd, ECHO_NS);
		size += read_events(watcher, size);
	}
	watch_take_batch(watcher, size);
}

static int wait_for_news(struct watcher *watcher, struct pollfd *fds, nfds_t count)
{
	int ready;

	pthread_mutex_lock(&watcher->mutex);
	watcher->is_idle = true;
	pthread_mutex_unlock(&watcher->mutex);
	ready = poll(fds, count, -1);
	pthread_mutex_lock(&watcher->mutex);
	watcher->is_idle = false;
	pthread_mutex_unlock(&watcher->mutex);
	return ready;
}

static void *watch_thread(void *user)
{
	struct watcher *watcher = user;
	struct pollfd fds[3] = {{.fd = watcher->inotify_fd, .events = POLLIN},
		{.fd = watcher->wake_fd, .events = POLLIN},
		{.fd = watcher->mounts_fd, .events = POLLPRI}};

	for (;;) {
		if (wait_for_news(watcher, fds, array_size(fds)) <= 0)
			continue;
		if (fds[2].revents) /* poll() reports it once for each change */
			watch_take_mounts(watcher);
		if (fds[1].revents && take_wake(watcher))
			return NULL;
		if (fds[0].revents)
			read_and_gather(watcher, &fds[1]);
		for (int i = 0; watcher->missed && i < DRAIN_READS_MAX && read_batch(watcher);
			i++) {}
		watch_take_missed(watcher);
	}
}

void watcher_wake(struct watcher *watcher)
{
	uint64_t one = 1;

	/* It fails only when the counter is full: then the thread is awake anyway. */
	if (write(watcher->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void free_missed(struct missed *missed)
{
	while (missed) {
		struct missed *next = missed->next;

		free(missed);
		missed = next;
	}
}

static void watcher_destroy(struct watcher *watcher)
{
	if (watcher->inotify_fd >= 0)
		close(watcher->inotify_fd);
	if (watcher->wake_fd >= 0)
		close(watcher->wake_fd);
	if (watcher->mounts_fd >= 0)
		close(watcher->mounts_fd);
	if (watcher->drain_mounts_fd >= 0)
		close(watcher->drain_mounts_fd);
	mount_points_done(&watcher->mounts);
	watch_table_done(&watcher->table);
	free_missed(watcher->missed);
	free_missed(watcher->linked);
	pthread_cond_destroy(&watcher->links_wake);
	pthread_cond_destroy(&watcher->drained);
	pthread_mutex_destroy(&watcher->mutex);
	free(watcher);
}

/* Ends the threads. */
static void stop(struct watcher *watcher, bool has_links_thread)
{
	pthread_mutex_lock(&watcher->mutex);
	watcher->stop = true;
	pthread_cond_broadcast(&watcher->links_wake);
	pthread_mutex_unlock(&watcher->mutex);
	watcher_wake(watcher);
	if (has_links_thread)
		pthread_join(watcher->links_thread, NULL);
	pthread_join(watcher->thread, NULL);
}

int watcher_new(int root_fd, watcher_look look, watcher_list list, void *look_user,
	change_sink sink, void *sink_user, struct watcher **ret_watcher)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	int r;

	if (!watcher)
		return -ENOMEM;
	watcher->look = look;
	watcher->list = list;
	watcher->look_user = look_user;
	watcher->sink = sink;
	watcher->sink_user = sink_user;
	pthread_mutex_init(&watcher->mutex, NULL);
	pthread_cond_init(&watcher->drained, NULL);
	clock_cond_init(&watcher->links_wake);
	watcher->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	r = watcher->inotify_fd < 0 ? -errno : 0;
	watcher->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r == 0 && watcher->wake_fd < 0)
		r = -errno;
	if (watch_table_init(&watcher->table) < 0)
		r = -ENOMEM;
	watcher->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	watcher->drain_mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	mount_points_init(&watcher->mounts, root_fd);
	if (r == 0)
		r = thread_start(&watcher->thread, "inotify", 0, watch_thread, watcher);
	if (r == 0) {
		r = thread_start(&watcher->links_thread, "links", 0, watch_links_thread, watcher);
		if (r < 0)
			stop(watcher, false);
	}
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
	stop(watcher, true);
	watcher_destroy(watcher);
}

void watcher_drain(struct watcher *watcher)
{
	uint64_t mine;

	pthread_mutex_lock(&watcher->mutex);
	/* Usually there is nothing to wake the thread for. */
	if (!watcher->is_idle || watcher->drains_done < watcher->drains_wanted ||
		has_news(watcher)) {
		mine = ++watcher->drains_wanted;
		watcher_wake(watcher);
		while (watcher->drains_done < mine)
			pthread_cond_wait(&watcher->drained, &watcher->mutex);
	} else {
		watcher->turn++;
	}
	pthread_mutex_unlock(&watcher->mutex);
}
