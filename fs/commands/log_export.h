/*
 * fs/commands/log_export.h - writes records of the mount log in formats of other programs.
 * Threads: one.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdio.h>

enum log_export_format {
	LOG_EXPORT_NONE,
	LOG_EXPORT_CSV,  /* RFC 4180, with a header line */
	LOG_EXPORT_OTLP, /* OpenTelemetry's JSON: one LogsData per line, as its file exporter */
};

struct log_export;

/* The format with this name; LOG_EXPORT_NONE: there is none. */
enum log_export_format log_export_format(const char *name);

/* NULL: no memory. */
struct log_export *log_export_new(FILE *out, enum log_export_format format);
void log_export_add(struct log_export *export, cJSON *record);

/* Writes the remaining records and frees `export`, which may be NULL. */
void log_export_end(struct log_export *export);
