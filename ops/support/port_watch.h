/*
 * ops/support/port_watch.h - the TCP ports that a process tree listens on.
 *
 * Looked at twice a second, in this process's network namespace.  A port counts once it has been
 * there for two looks, so that those which tests open for a moment do not.
 * Threads: one at a time.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum { PORT_WATCH_MS = 500 };

struct port_watch;

/* Of the descendants of `root`.  NULL: no memory. */
struct port_watch *port_watch_new(pid_t root);

/* A port that was not reported before, of EXEC_PORTS_MAX at most; 0: none, or it is too early for
 * another look.  Cheap to call. */
uint16_t port_watch_look(struct port_watch *watch);

void port_watch_free(struct port_watch *watch); /* NULL is fine */
