/*
 * fs/commands/log_view.h - choosing lines of the mount log, and showing them to people.
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
	uint64_t slow_us;                /* at least this long */
	bool errors; /* only those that failed; a lookup of what is not there does not count */
	char since[LOG_TIME_BYTES]; /* times as the log has them; "": any */
	char until[LOG_TIME_BYTES];
};

/* True for a record (not a segment's first line or a seal) that passes; the caller deletes
 * `*ret_record`. */
bool log_filter_match(
	const struct log_filter *filter, const char *line, size_t length, cJSON **ret_record);

/* True: the record and all that were written before it began before filter->since.  Records are
 * written when their operation ends, so that an old one may be among younger ones. */
bool log_filter_is_past(const struct log_filter *filter, const char *line);

/* "2026-11-23", "10:28", "2026-11-23 10:28:12" (of here), "2026-11-23T10:28:12Z", as the log has
 * it.  False: none of them. */
bool log_parse_time(const char *text, char ret_time[LOG_TIME_BYTES]);
void log_format_time(time_t seconds, char ret_time[LOG_TIME_BYTES]);

/* Since 1970; 0: it is no time as the log has it. */
uint64_t log_time_us(const char *time);

/* One line for people, and one below it for each path that a command has changed: of those that
 * match `glob`, or all (NULL). */
void log_view_print(FILE *out, const cJSON *record, const char *glob);

/* Totals by operation, process and call. */
struct log_summary;

struct log_summary *log_summary_new(void); /* NULL when there is no memory */
void log_summary_add(struct log_summary *summary, const cJSON *record);
void log_summary_print(FILE *out, struct log_summary *summary); /* last: it sorts them */
void log_summary_free(struct log_summary *summary);             /* NULL is fine */
