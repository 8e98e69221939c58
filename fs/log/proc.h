/*
 * fs/log/proc.h - reads what /proc says of a process or thread.
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* The first size - 1 bytes of /proc/ID/FILE, as a string ("" on failure).  Their count, or -errno.
 */
ssize_t proc_read(pid_t id, const char *file, char *text, size_t size);
