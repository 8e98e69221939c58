/*
 * fs/watchers/watchers.h - programs here that wait on inotify(7) hear of changes made at the
 * workspace (-o watch_events).
 *
 * The edge hands over what the change feed tells (struct change_observer).  A thread finds out who
 * watches what, and has an event helper make the calls whose events they wait for.  Nothing is done
 * where nobody watches.
 */
#pragma once

#include "fs/mount/mount.h"

struct watchers;

/* When the mount serves; m->watch_events says what came of it.  NULL: it is switched off, or
 * cannot be. */
struct watchers *watchers_start(struct mount *m);

/* After mount_run(), before mount_done().  NULL is fine. */
void watchers_stop(struct watchers *watchers);
