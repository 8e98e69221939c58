/*
 * backends/local/watch.h - the change feed of a directory tree of this machine, by inotify.
 *
 * One watch per directory, added when somebody reads it.  A thread of the watcher's own
 * reads the events, looks at what is at each name now, in that very directory, and tells the
 * sink.  A look that finds a directory tells where it is now, so that a watch goes with its
 * directory; where that cannot be seen, or nobody can look there, it is dropped.  The end of a
 * watch is reported as CHANGE_UNWATCHED.
 * What is mounted or unmounted in the tree is told of too.
 * Not seen, as inotify does not say it: changes of a file through a hard link in a directory
 * that is not watched, and writes through mmap before the file is closed.
 * Threads: any, but the sink must not call watcher_drain() or watcher_free().
 */
#pragma once

#include "ops/workspace_values.h"

struct watcher;

/* As workspace_getattr(). */
typedef int (*watcher_look)(
	void *user, const struct object_ref *object, struct attributes *ret_attributes);

/* Of the tree whose root is open as `root_fd`, needed during the call only.
 * -EMFILE, -ENOMEM, -EOPNOTSUPP (no inotify here), -EAGAIN (no thread). */
int watcher_new(int root_fd, watcher_look look, void *look_user, change_sink sink, void *sink_user,
	struct watcher **ret_watcher);

/* Ends the thread; the sink is not called any more.  NULL is fine. */
void watcher_free(struct watcher *watcher);

/* Watches the directory `id` that is open as `fd` and is at `path`, in `parent`; costs little when
 * it is watched already.  Returns the position from which on every change of what is looked at is
 * told: the same each time, as long as it is watched.  0 when it cannot be watched: then it is
 * counted, and tried again with the next call.  0 also for a directory of a network file system:
 * the sink is told of what is changed by this machine, but not of what others change.  `*ret_at` is
 * a position drawn while it is watched: the watch ends at a higher one. */
uint64_t watcher_add(struct watcher *watcher, int fd, const char *path, const struct object_id *id,
	const struct object_id *parent, uint64_t *ret_at);

/* This process is about to change what is at the path.  Events that come within 20 ms are echoes:
 * what comes within 4 ms of one is handled together.  A hint only: what is not known to be an echo
 * is handled at once. */
uint64_t watcher_path_hash(const char *path);
void watcher_changing(struct watcher *watcher, uint64_t path_hash);

/* Ends the watch of the directory, wherever it is.  The sink is told of that by the thread. */
void watcher_remove(struct watcher *watcher, const struct object_id *id);

/* We have moved a directory to `path`, in `parent`: perhaps one that is watched, or holds such. */
void watcher_moved(struct watcher *watcher, const char *path, const struct object_id *id,
	const struct object_id *parent);

/* Waits until the sink has been told of every change made before this call. */
void watcher_drain(struct watcher *watcher);

/* Directories that are watched, and those that could not be. */
void watcher_counts(struct watcher *watcher, uint64_t *ret_watched, uint64_t *ret_unwatched);
