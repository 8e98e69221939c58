/*
 * ops/support/thread.h - threads that no signal is delivered to.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>

/* To be joined.  `stack_bytes` 0: as usual.  0, -EAGAIN. */
int thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *argument);
