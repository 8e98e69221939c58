/*
 * ops/support/write_all.h - write(2) until all is written.
 * Threads: any.
 */
#pragma once

#include <stddef.h>

/* Goes on after an interruption and after a part.  0 or -errno. */
int write_all(int fd, const void *data, size_t size);
