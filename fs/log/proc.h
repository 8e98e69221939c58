/*
 * fs/log/proc.h - reads a file in /proc about a process or thread.
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Reads up to size - 1 bytes of /proc/ID/FILE into `text`, NUL-terminated ("" on failure).  Returns
 * their count, or -errno. */
ssize_t proc_read(pid_t id, const char *file, char *text, size_t size);
