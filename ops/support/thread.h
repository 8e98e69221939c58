/*
 * ops/support/thread.h - how every thread is started.
 *
 * Threads that come and go, or take tasks from a queue, are those of worker_pool.h.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>

/*
 * To be joined.  No signal is delivered to it: those are for the main thread.  `name` is what
 * ps(1) and gdb show, at most 15 bytes; it outlives the thread.  `stack_bytes` 0: as usual.
 * 0, -EAGAIN, -ENOMEM.
 */
int thread_start(pthread_t *ret_thread, const char *name, size_t stack_bytes, void *(*run)(void *),
	void *argument);
