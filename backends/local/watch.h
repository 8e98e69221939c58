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
 * that is not watched, and writes through mmap before the file is closed.  That a file has got
 * another link, in whatever directory, is told of some 10 s later, as a change of it.
 * Threads: any, but the sink must not call watcher_drain() or watcher_free().
 */
#pragma once

#include "ops/workspace_values.h"

struct watcher;

/* As workspace_getattr(). */
typedef int (*watcher_look)(
	void *user, const struct object_ref *object, struct attributes *ret_attributes);

/* As workspace_readdir(), without a watch. */
typedef int (*watcher_list)(
	void *user, const struct object_ref *directory, dir_entry_sink sink, void *sink_user);

/* For the tree whose root is open as `root_fd`, which is used during the call only.  -EMFILE,
 * -ENOMEM, -EOPNOTSUPP (no inotify here), -EAGAIN (no thread). */
int watcher_new(int root_fd, watcher_look look, watcher_list list, void *look_user,
	change_sink sink, void *sink_user, struct watcher **ret_watcher);

/* Ends the thread; the sink is not called any more.  NULL is fine. */
void watcher_free(struct watcher *watcher);

/* Watches the directory `id` that is open as `fd` and is at `path`, in `parent`; cheap when it is
 * watched already.  Returns the position from which on looks at it are kept up to date: every later
 * change is reported.  It stays the same as long as the directory is watched.  0 when it cannot be
 * watched: then it is counted, and tried again with the next call.  0 also on a network file
 * system: changes by this machine are reported, those by others are not.  `*ret_at` is a position
 * drawn while it is watched: the watch ends at a higher one. */
uint64_t watcher_add(struct watcher *watcher, int fd, const char *path, const struct object_id *id,
	const struct object_id *parent, uint64_t *ret_at);

/* This process is about to change the object at the path.  Its events within the next 20 ms count
 * as echoes, which are gathered for 4 ms.  A hint only: any other event is handled at once. */
uint64_t watcher_path_hash(const char *path);
void watcher_changing(struct watcher *watcher, uint64_t path_hash);

/* The same of a file that is only closed: it does not change with that. */
void watcher_closing(struct watcher *watcher, uint64_t path_hash);

/* Ends the watch of the directory, wherever it is.  The thread reports that to the sink. */
void watcher_remove(struct watcher *watcher, const struct object_id *id);

/* This process has moved a directory to `path`, in `parent`; it may be watched, or hold watched
 * ones. */
void watcher_moved(struct watcher *watcher, const char *path, const struct object_id *id,
	const struct object_id *parent);

/* Waits until every change made before this call has been reported to the sink.  What is reported
 * after it is foreign, unless watcher_changing() has announced it since. */
void watcher_drain(struct watcher *watcher);

/* The number of directories that are watched, and of those that could not be. */
void watcher_counts(struct watcher *watcher, uint64_t *ret_watched, uint64_t *ret_unwatched);
