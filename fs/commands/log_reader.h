/*
 * fs/commands/log_reader.h - the lines of a log directory, oldest first, across rotation.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct log_reader;

/* `ring`: LOG_ALL_RING or LOG_TOOLS_RING.  -ENOENT: there is no log in the directory; -errno. */
int log_reader_open(const char *directory, const char *ring, struct log_reader **ret_reader);
void log_reader_close(struct log_reader *reader); /* NULL is fine */

/* The next line, without its newline, NUL-terminated, valid until the next call.  1, or 0 when
 * there are no more for now, or -errno. */
int log_reader_next(struct log_reader *reader, char **ret_line, size_t *ret_length);

/* What a visitor wants next. */
enum log_visit { LOG_GO_BACK, LOG_BEGIN_HERE, LOG_BEGIN_AFTER };

/* Shows the lines that are there to a visitor, the last one first, until it wants no more:
 * log_reader_next() goes on with that line, or with the one after it; with the oldest line when the
 * visitor never said so.  Right after log_reader_open() only.  0 or -errno. */
int log_reader_go_back(struct log_reader *reader,
	enum log_visit (*visit)(void *user, const char *line, size_t length), void *user);

/* Waits until there may be more lines.  0, -EINTR, -errno. */
int log_reader_wait(struct log_reader *reader);
