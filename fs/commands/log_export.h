/*
 * fs/commands/log_export.h - records of the mount log in formats of other programs.
 * Threads: one.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdio.h>

enum log_export_format {
	LOG_EXPORT_NONE,
	LOG_EXPORT_CSV,  /* RFC 4180, with a line of names first */
	LOG_EXPORT_OTLP, /* OpenTelemetry logs in JSON: a LogsData a line, as its file exporter has
			    it */
};

struct log_export;

/* LOG_EXPORT_NONE: there is no such format. */
enum log_export_format log_export_format(const char *name);

/* NULL when there is no memory. */
struct log_export *log_export_new(FILE *out, enum log_export_format format);
void log_export_add(struct log_export *export, cJSON *record);

/* Writes what is left, and frees; NULL is fine. */
void log_export_end(struct log_export *export);
