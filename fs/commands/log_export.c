#include "fs/commands/log_export.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/commands/log_view.h"
#include "ops/support/cleanup.h"
#include "ops/support/json.h"

enum {
	BATCH_RECORDS = 512, /* per line of OTLP */
	SEVERITY_INFO = 9,   /* severity numbers of OpenTelemetry */
	SEVERITY_ERROR = 17,
};

struct log_export {
	FILE *out;
	enum log_export_format format;
	unsigned count; /* OTLP: records in the present batch; CSV: records so far */
};

static const char *const columns[] = {"seq", "time", "op", "path", "path_hex", "path2", "path2_hex",
	"pid", "tid", "process", "uid", "call", "tool", "agent", "user", "conversation", "offset",
	"bytes", "latency_us", "result", "cached", "round_trips", "hash", "hash_before",
	"exit_code", "signal", "count", "detail", "redacted", "changed", "changed_truncated"};

enum log_export_format log_export_format(const char *name)
{
	if (strcmp(name, "csv") == 0)
		return LOG_EXPORT_CSV;
	return strcmp(name, "otlp") == 0 ? LOG_EXPORT_OTLP : LOG_EXPORT_NONE;
}

/* ---- CSV ----------------------------------------------------------------------------------- */

static void put_quoted(FILE *out, const char *text)
{
	bool plain = !text[strcspn(text, ",\"\r\n")];

	if (plain) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void put_cell(FILE *out, const cJSON *item)
{
	cleanup_free char *text = NULL;

	if (cJSON_IsString(item)) {
		put_quoted(out, item->valuestring);
		return;
	}
	text = item ? cJSON_PrintUnformatted(item) : NULL;
	if (text)
		put_quoted(out, text);
}

static void put_row(FILE *out, const cJSON *record)
{
	for (size_t i = 0; i < array_size(columns); i++) {
		if (i)
			fputc(',', out);
		put_cell(out, cJSON_GetObjectItemCaseSensitive(record, columns[i]));
	}
	fputs("\r\n", out);
}

static void put_names(FILE *out)
{
	for (size_t i = 0; i < array_size(columns); i++)
		fprintf(out, "%s%s", i ? "," : "", columns[i]);
	fputs("\r\n", out);
}

/* ---- OTLP ---------------------------------------------------------------------------------- */

/* Converts a value to an AnyValue of OpenTelemetry. */
static cJSON *any_value(const cJSON *item)
{
	cJSON *value = cJSON_CreateObject(), *list;
	const cJSON *element;
	char digits[32];

	if (cJSON_IsString(item)) {
		cJSON_AddStringToObject(value, "stringValue", item->valuestring);
	} else if (cJSON_IsBool(item)) {
		cJSON_AddBoolToObject(value, "boolValue", cJSON_IsTrue(item));
	} else if (cJSON_IsNumber(item)) {
		snprintf(digits, sizeof(digits), "%.0f", item->valuedouble);
		cJSON_AddStringToObject(value, "intValue", digits);
	} else if (cJSON_IsArray(item)) {
		list = cJSON_AddArrayToObject(
			cJSON_AddObjectToObject(value, "arrayValue"), "values");
		cJSON_ArrayForEach(element, item)
			cJSON_AddItemToArray(list, any_value(element));
	} else {
		/* A path that is not UTF-8, in hex. */
		cJSON_AddStringToObject(value, "stringValue", json_text(item, "hex"));
	}
	return value;
}

static void add_time(cJSON *log_record, const char *text)
{
	uint64_t us = text ? log_time_us(text) : 0;
	char digits[32];

	if (!us)
		return;
	snprintf(digits, sizeof(digits), "%" PRIu64, us * 1000);
	cJSON_AddStringToObject(log_record, "timeUnixNano", digits);
}

static cJSON *log_record_of(const cJSON *record)
{
	const cJSON *result = cJSON_GetObjectItemCaseSensitive(record, "result"), *item;
	const cJSON *op = cJSON_GetObjectItemCaseSensitive(record, "op");
	cJSON *log_record = cJSON_CreateObject(), *attributes;
	bool failed = cJSON_IsString(result);

	add_time(log_record, json_text(record, "time"));
	cJSON_AddNumberToObject(
		log_record, "severityNumber", failed ? SEVERITY_ERROR : SEVERITY_INFO);
	cJSON_AddStringToObject(log_record, "severityText", failed ? "ERROR" : "INFO");
	cJSON_AddItemToObject(log_record, "body", any_value(op));
	attributes = cJSON_AddArrayToObject(log_record, "attributes");
	cJSON_ArrayForEach(item, record) {
		cJSON *attribute;
		char key[64];

		if (strcmp(item->string, "time") == 0)
			continue;
		snprintf(key, sizeof(key), "isthmus.%s", item->string);
		attribute = cJSON_CreateObject();
		cJSON_AddStringToObject(attribute, "key", key);
		cJSON_AddItemToObject(attribute, "value", any_value(item));
		cJSON_AddItemToArray(attributes, attribute);
	}
	return log_record;
}

static void put_log_record(struct log_export *export, const cJSON *record)
{
	cJSON *log_record = log_record_of(record);
	cleanup_free char *text = cJSON_PrintUnformatted(log_record);

	cJSON_Delete(log_record);
	fputs(export->count ? ","
			    : "{\"resourceLogs\":[{\"resource\":{\"attributes\":[{\"key\":"
			      "\"service.name\",\"value\":{\"stringValue\":\"isthmus\"}}]},"
			      "\"scopeLogs\":[{\"scope\":{\"name\":\"isthmus.mount_log\"},"
			      "\"logRecords\":[",
		export->out);
	fputs(text ? text : "{}", export->out);
	export->count++;
}

static void end_batch(struct log_export *export)
{
	if (export->count)
		fputs("]}]}]}\n", export->out);
	export->count = 0;
}

/* ---- Both ---------------------------------------------------------------------------------- */

struct log_export *log_export_new(FILE *out, enum log_export_format format)
{
	struct log_export *export = calloc(1, sizeof(*export));

	if (!export)
		return NULL;
	export->out = out;
	export->format = format;
	if (format == LOG_EXPORT_CSV)
		put_names(out);
	return export;
}

void log_export_add(struct log_export *export, cJSON *record)
{
	if (export->format == LOG_EXPORT_CSV) {
		put_row(export->out, record);
		return;
	}
	put_log_record(export, record);
	if (export->count == BATCH_RECORDS)
		end_batch(export);
}

void log_export_end(struct log_export *export)
{
	if (!export)
		return;
	end_batch(export);
	free(export);
}
