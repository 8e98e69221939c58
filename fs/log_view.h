/*
 * fs/log_view.h - choosing lines of the mount log, and showing them to people.
 * Threads: one.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct log_filter {
	const char *ops;  /* "read,write"; NULL: all */
	const char *glob; /* of path, path2 or one of changed; '*' matches '/' too; NULL: all */
	const char *call, *conversation; /* NULL: all */
	int64_t pid;                     /* 0: all */
	uint64_t slow_us;                /* at least this long */
	bool errors;                     /* only those that failed */
};

/* True for a record (not a segment's first line or a seal) that passes; the caller deletes
 * `*ret_record`. */
bool log_filter_match(
	const struct log_filter *filter, const char *line, size_t length, cJSON **ret_record);

/* One line for people, and one below it for each path that a command has changed: of those that
 * match `glob`, or all (NULL). */
void log_view_print(FILE *out, const cJSON *record, const char *glob);

/* Totals by operation, process and call. */
struct log_summary;

struct log_summary *log_summary_new(void); /* NULL when there is no memory */
void log_summary_add(struct log_summary *summary, const cJSON *record);
void log_summary_print(FILE *out, const struct log_summary *summary);
void log_summary_free(struct log_summary *summary); /* NULL is fine */
