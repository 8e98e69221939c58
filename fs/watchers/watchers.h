/*
 * fs/watchers/watchers.h - inotify(7) events for programs of this machine when others change the
 * workspace (-o watch_events).
 *
 * The edge hands over what the change feed reports (struct change_observer).  A thread finds out
 * what is watched, and makes an event helper perform the calls that raise the events.  Directories
 * that are not watched cost nothing.
 */
#pragma once

#include "fs/mount/mount.h"

struct watchers;

/* When the mount serves; m->watch_events says what came of it.  NULL: it is switched off, or
 * cannot be. */
struct watchers *watchers_start(struct mount *m);

/* After mount_run(), before mount_done().  NULL is fine. */
void watchers_stop(struct watchers *watchers);
