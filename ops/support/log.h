/*
 * ops/support/log.h - diagnostics of our own programs, one line a failure.
 *
 * A line names the thing in quotes, says why, and what was done about it
 * ("..., ignoring").  Not the mount log: that is fs/log/mount_log.h.
 * Threads: any.
 */
#pragma once

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines go to `fd` (default 2), each with `prefix` ("isthmus: ") in front.
 * `prefix` is kept, not copied. */
void log_set_output(int fd, const char *prefix);

/* Lines above the level in the environment variable ISTHMUS_LOG_LEVEL (a number; default:
 * LOG_LEVEL_WARNING) are dropped. */
void log_print(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_print(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_print(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_print(LOG_LEVEL_INFO, __VA_ARGS__)
