/*
 * tools/web/web_limits.h - how much one program asks of the web: 4 requests at once, 10 a minute of
 * each host.
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

/* Waits for one of the places.  0: web_limit_leave() must follow; -EAGAIN: the host was asked too
 * often, for another `*ret_wait_s` seconds; -ECANCELED once `*cancelled`; -ENOMEM. */
int web_limit_enter(const char *host, const atomic_bool *cancelled, unsigned *ret_wait_s);
void web_limit_leave(void);
