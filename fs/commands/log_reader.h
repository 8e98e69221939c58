/*
 * fs/commands/log_reader.h - reads the lines of a log directory, oldest first, across rotations.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct log_reader;

/* `ring`: LOG_ALL_RING or LOG_TOOLS_RING.  0; -ENOENT: the directory has no log; -errno. */
int log_reader_open(const char *directory, const char *ring, struct log_reader **ret_reader);
void log_reader_close(struct log_reader *reader); /* NULL is fine */

/* The next line, NUL-terminated and without its newline; it is valid until the next call.  1; 0:
 * there are no more lines at present; -errno. */
int log_reader_next(struct log_reader *reader, char **ret_line, size_t *ret_length);

/* Where log_reader_next() begins: before the visited line, at it, or after it. */
enum log_visit { LOG_GO_BACK, LOG_BEGIN_HERE, LOG_BEGIN_AFTER };

/* Passes the existing lines to `visit`, the last one first, until it returns LOG_BEGIN_HERE or
 * LOG_BEGIN_AFTER; log_reader_next() then begins there.  If it always returns LOG_GO_BACK,
 * log_reader_next() begins with the oldest line.  May be called only right after log_reader_open().
 * 0 or -errno. */
int log_reader_go_back(struct log_reader *reader,
	enum log_visit (*visit)(void *user, const char *line, size_t length), void *user);

/* Waits until the log has changed.  0, -EINTR, -errno. */
int log_reader_wait(struct log_reader *reader);
