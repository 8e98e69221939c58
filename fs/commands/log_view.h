/*
 * fs/commands/log_view.h - selects lines of the mount log and prints them for people.
 * Threads: one.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { LOG_TIME_BYTES = 28 }; /* "2026-11-23T10:28:12.000000Z" and NUL */

struct log_filter {
	const char *ops;  /* "read,write"; NULL: all */
	const char *glob; /* of path, path2 or one of changed; '*' matches '/' too; NULL: all */
	const char *call, *conversation; /* NULL: all */
	int64_t pid;                     /* 0: all */
	uint64_t slow_us;                /* only operations that took at least this long */
	bool errors;                     /* only failures; a lookup of a missing name is none */
	char since[LOG_TIME_BYTES];      /* in the log's format; "": any time */
	char until[LOG_TIME_BYTES];
};

/* Whether the line is a record, not a segment's header or a seal, and matches the filter.  The
 * caller deletes `*ret_record`.  1; 0: it does not; -ENOMEM: unknown. */
int log_filter_match(
	const struct log_filter *filter, const char *line, size_t length, cJSON **ret_record);

/* Whether this record and all before it in the log started before filter->since.  A record is
 * written when its operation ends, so a long operation may follow records that started later. */
bool log_filter_is_past(const struct log_filter *filter, const char *line);

/* Converts "2026-11-23", "10:28", "2026-11-23 10:28:12" (local time) or "2026-11-23T10:28:12Z" to
 * the log's format.  False: another form. */
bool log_parse_time(const char *text, char ret_time[LOG_TIME_BYTES]);
void log_format_time(time_t seconds, char ret_time[LOG_TIME_BYTES]);

/* Microseconds since 1970 of a time in the log's format; 0: it is in another format. */
uint64_t log_time_us(const char *time);

/* Prints one line, and below it one line for each path that a command has changed and that matches
 * `glob` (NULL: all). */
void log_view_print(FILE *out, const cJSON *record, const char *glob);

/* Totals by operation, process and call. */
struct log_summary;

struct log_summary *log_summary_new(void); /* NULL: no memory */
void log_summary_add(struct log_summary *summary, const cJSON *record);
void log_summary_print(FILE *out, struct log_summary *summary); /* no record may be added later */
void log_summary_free(struct log_summary *summary);             /* NULL is fine */
