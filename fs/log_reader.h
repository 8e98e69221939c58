/*
 * fs/log_reader.h - the lines of a log directory, oldest first, across rotation.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct log_reader;

/* -ENOENT: there is no log in the directory; -errno. */
int log_reader_open(const char *directory, struct log_reader **ret_reader);
void log_reader_close(struct log_reader *reader); /* NULL is fine */

/* The next line, without its newline, NUL-terminated, valid until the next call.  1, or 0 when
 * there are no more for now, or -errno. */
int log_reader_next(struct log_reader *reader, char **ret_line, size_t *ret_length);

/* Waits until there may be more lines.  0, -EINTR, -errno. */
int log_reader_wait(struct log_reader *reader);
