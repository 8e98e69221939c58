#include "fs/commands/log_view.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/commands/command_text.h"
#include "ops/support/cleanup.h"
#include "ops/support/hex.h"
#include "ops/support/json.h"
#include "ops/support/log_format.h"
#include "ops/support/visible.h"
#include "ops/support/words.h"

enum {
	CHANGED_SHOWN_MAX = 100,
	ORDER_US = 10000000, /* far above the delay until a record is in the log */
};

/* Decodes a text in hex; the caller frees the result. */
static char *from_hex(const char *hex)
{
	size_t length = strlen(hex) / 2;
	cleanup_free char *path = calloc(1, length + 1);

	return path && hex_read(hex, path, length) ? steal_ptr(&path) : NULL;
}

/* The bytes of a path, from path_hex if the path is not UTF-8; the caller frees them. */
static char *path_member(const cJSON *record, const char *name)
{
	const char *text = json_text(record, name), *hex;
	char key[32];

	snprintf(key, sizeof(key), "%s_hex", name);
	hex = json_text(record, key);
	if (hex)
		return from_hex(hex);
	return text ? strdup(text) : NULL;
}

/* The bytes of one of the paths in `changed`; the caller frees them. */
static char *changed_path(const cJSON *item)
{
	const char *text = cJSON_GetStringValue(item), *hex = json_text(item, "hex");

	if (text)
		return strdup(text);
	return hex ? from_hex(hex) : NULL;
}

/* ---- The filter ------------------------------------------------------------------------ */

/* Whether the bytes of a path, as `hex` or else as `text`, match.  1, 0, -ENOMEM. */
static int matches(const char *text, const char *hex, const char *glob)
{
	size_t length = hex ? strlen(hex) / 2 : 0;
	cleanup_free char *bytes = hex ? calloc(1, length + 1) : NULL;
	int r = FNM_NOMATCH;

	if (hex && !bytes)
		return -ENOMEM;
	if (hex ? hex_read(hex, bytes, length) : text != NULL)
		r = fnmatch(glob, hex ? bytes : text, 0);
	return r == 0 ? 1 : r == FNM_NOMATCH ? 0 : -ENOMEM;
}

static int path_matches(const cJSON *record, const char *name, const char *glob)
{
	char key[32];

	snprintf(key, sizeof(key), "%s_hex", name);
	return matches(json_text(record, name), json_text(record, key), glob);
}

/* An incomplete list always matches, as the path may be among the missing ones. */
static int changed_matches(const cJSON *record, const char *glob)
{
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(record, "changed");
	int r = 0;

	if (cJSON_HasObjectItem(record, "changed_truncated"))
		return 1;
	cJSON_ArrayForEach(item, list) {
		if (r == 0)
			r = matches(cJSON_GetStringValue(item), json_text(item, "hex"), glob);
	}
	return r;
}

static bool is_text(const cJSON *record, const char *name, const char *wanted)
{
	const char *text = wanted ? json_text(record, name) : NULL;

	return !wanted || (text && strcmp(text, wanted) == 0);
}

static bool is_miss(const cJSON *record)
{
	return log_is_miss(json_text(record, "op"), json_text(record, "result"));
}

/* 1, 0, -ENOMEM. */
static int record_passes(const struct log_filter *filter, const cJSON *record)
{
	const char *op = json_text(record, "op");
	int r;

	if (!op || (filter->ops && !words_contain(filter->ops, ',', op)))
		return false;
	if (!is_text(record, "call", filter->call) ||
		!is_text(record, "conversation", filter->conversation))
		return false;
	if (filter->errors && is_miss(record))
		return false;
	if (filter->pid && json_integer(record, "pid") != filter->pid)
		return false;
	if (filter->slow_us && (uint64_t)json_integer(record, "latency_us") < filter->slow_us)
		return false;
	if (!filter->glob)
		return 1;
	r = path_matches(record, "path", filter->glob);
	if (r == 0)
		r = path_matches(record, "path2", filter->glob);
	return r == 0 ? changed_matches(record, filter->glob) : r;
}

/* The time in a line, which directly follows its number; NULL: there is none. */
static const char *time_of(const char *line)
{
	static const char key[] = ",\"time\":\"";
	const char *at = strncmp(line, "{\"seq\":", 7) == 0 ? strchr(line, ',') : NULL;

	if (!at || strncmp(at, key, strlen(key)) != 0)
		return NULL;
	at += strlen(key);
	return strnlen(at, LOG_TIME_BYTES) == LOG_TIME_BYTES ? at : NULL;
}

void log_format_time(time_t seconds, char ret_time[LOG_TIME_BYTES])
{
	struct tm parts;

	gmtime_r(&seconds, &parts);
	strftime(ret_time, LOG_TIME_BYTES, "%Y-%m-%dT%H:%M:%S.000000Z", &parts);
}

bool log_parse_time(const char *text, char ret_time[LOG_TIME_BYTES])
{
	static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M",
		"%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%H:%M:%S", "%H:%M"};
	time_t now = time(NULL), seconds;

	for (size_t i = 0; i < array_size(formats); i++) {
		struct tm parts;
		const char *end;
		bool is_utc;

		localtime_r(&now, &parts);
		parts.tm_sec = parts.tm_min = parts.tm_hour = 0;
		end = strptime(text, formats[i], &parts);
		is_utc = end && strcmp(end, "Z") == 0;
		if (!end || (*end && !is_utc) || parts.tm_year < 70 || parts.tm_year > 8000)
			continue;
		parts.tm_isdst = -1;
		seconds = is_utc ? timegm(&parts) : mktime(&parts);
		log_format_time(seconds, ret_time);
		return true;
	}
	return false;
}

uint64_t log_time_us(const char *time)
{
	struct tm parts = {0};
	const char *fraction = strptime(time, "%Y-%m-%dT%H:%M:%S.", &parts);

	return fraction ? (uint64_t)timegm(&parts) * 1000000 + strtoul(fraction, NULL, 10) : 0;
}

bool log_filter_is_past(const struct log_filter *filter, const char *line)
{
	static const char latency[] = ",\"latency_us\":";
	const char *time = *filter->since ? time_of(line) : NULL, *took;

	if (!time || strncmp(time, filter->since, LOG_TIME_BYTES - 1) >= 0)
		return false;
	took = strstr(line, latency);
	return took && log_time_us(time) + strtoul(took + strlen(latency), NULL, 10) + ORDER_US <
			       log_time_us(filter->since);
}

static bool is_in_time(const struct log_filter *filter, const char *line)
{
	const char *time;

	if (!*filter->since && !*filter->until)
		return true;
	time = time_of(line);
	return time && (!*filter->since || strncmp(time, filter->since, LOG_TIME_BYTES - 1) >= 0) &&
	       (!*filter->until || strncmp(time, filter->until, LOG_TIME_BYTES - 1) < 0);
}

int log_filter_match(
	const struct log_filter *filter, const char *line, size_t length, cJSON **ret_record)
{
	cJSON *record;
	int r;

	if (strncmp(line, "{\"seq\":", strlen("{\"seq\":")) != 0)
		return 0;
	if (!is_in_time(filter, line))
		return 0;
	/* Quotes inside strings are escaped, so this can only match the member. */
	if (filter->errors && strstr(line, "\"result\":0"))
		return 0;
	if (filter->call && !strstr(line, "\"call\":\""))
		return 0;
	errno = 0;
	record = cJSON_ParseWithLength(line, length);
	if (!record)
		return errno == ENOMEM ? -ENOMEM : 0; /* a damaged line is no record */
	r = record_passes(filter, record);
	if (r > 0)
		*ret_record = record;
	else
		cJSON_Delete(record);
	return r;
}

/* ---- One line ---------------------------------------------------------------------------- */

/* Prints the local time, "23:06:00.123"; and the date, if it differs from that of the last line. */
static void print_time(FILE *out, const cJSON *record)
{
	static char date_before[16];
	const char *text = json_text(record, "time"), *fraction;
	struct tm utc = {0}, local;
	char date[16], clock[16];
	time_t second;

	fraction = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) : NULL;
	if (!fraction)
		return;
	second = timegm(&utc);
	localtime_r(&second, &local);
	strftime(date, sizeof(date), "%Y-%m-%d", &local);
	strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	if (strcmp(date, date_before) != 0)
		fprintf(out, "-- %s --\n", date);
	strcpy(date_before, date);
	fprintf(out, "%s%.4s  ", clock, fraction);
}

static void print_process(FILE *out, const cJSON *record)
{
	const char *process = json_text(record, "process");
	int pid = (int)json_integer(record, "pid"), width;
	char name[32];

	if (!pid && !process) {
		fprintf(out, "%-20s  ", "-");
		return;
	}
	/* Padding by printf would count bytes, not columns. */
	snprintf(name, sizeof(name), "[%d]", pid);
	width = 20 - (int)strlen(name) - (int)(process ? strlen(process) : 0);
	visible_print_name(out, process ? process : "");
	fprintf(out, "%s%*s  ", name, width > 0 ? width : 0, "");
}

static void print_path(FILE *out, const cJSON *record)
{
	cleanup_free char *path = path_member(record, "path");
	cleanup_free char *path2 = path_member(record, "path2");

	if (path) {
		fputs("  ", out);
		visible_print_name(out, *path ? path : ".");
	}
	if (path2) {
		fputs(" -> ", out);
		visible_print_name(out, path2);
	}
}

static void print_outcome(FILE *out, const cJSON *record)
{
	const char *error = json_text(record, "result");
	char size[16];

	if (cJSON_HasObjectItem(record, "bytes")) {
		command_format_size((uint64_t)json_integer(record, "bytes"), size);
		fprintf(out, "  %s", size);
	}
	if (cJSON_HasObjectItem(record, "offset"))
		fprintf(out, " at %lld", json_integer(record, "offset"));
	if (cJSON_HasObjectItem(record, "exit_code"))
		fprintf(out, "  exit %lld", json_integer(record, "exit_code"));
	if (cJSON_HasObjectItem(record, "signal"))
		fprintf(out, "  killed by signal %lld", json_integer(record, "signal"));
	if (json_integer(record, "round_trips") > 0)
		fprintf(out, "  %lld round trip%s", json_integer(record, "round_trips"),
			json_integer(record, "round_trips") > 1 ? "s" : "");
	if (error) {
		fputs("  = ", out);
		visible_print_name(out, error);
	}
}

static void print_named(FILE *out, const char *word, const char *name)
{
	if (!name)
		return;
	fputs(word, out);
	visible_print_name(out, name);
}

static void print_extras(FILE *out, const cJSON *record)
{
	const char *call = json_text(record, "call"), *tool = json_text(record, "tool");
	const char *detail = json_text(record, "detail");
	int changed = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(record, "changed"));
	bool truncated = cJSON_HasObjectItem(record, "changed_truncated");

	if (detail) {
		fputs("  '", out);
		visible_print_name(out, detail);
		fputs("'", out);
	}
	print_named(out, "  before ", json_text(record, "hash_before"));
	print_named(out, "  hash ", json_text(record, "hash"));
	if (changed > 0 || truncated)
		fprintf(out, "  %d%s changed", changed, truncated ? " or more" : "");
	if (!call)
		return;
	fputs("  [", out);
	if (tool) {
		visible_print_name(out, tool);
		fputs(" ", out);
	}
	visible_print_name(out, call);
	print_named(out, " by ", json_text(record, "agent"));
	print_named(out, " for ", json_text(record, "user"));
	print_named(out, " in ", json_text(record, "conversation"));
	fputs("]", out);
}

/* Prints one line per path that matches `glob` (NULL: all). */
static void print_changed(FILE *out, const cJSON *record, const char *glob)
{
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(record, "changed");
	unsigned shown = 0, left = 0;

	cJSON_ArrayForEach(item, list) {
		cleanup_free char *path = changed_path(item);

		if (!path || (glob && fnmatch(glob, path, 0) != 0))
			continue;
		if (shown == CHANGED_SHOWN_MAX) {
			left++;
			continue;
		}
		shown++;
		fputs("    changed  ", out);
		visible_print_name(out, *path ? path : ".");
		fputc('\n', out);
	}
	if (left)
		fprintf(out, "    changed  %u more: --json has them\n", left);
	if (cJSON_HasObjectItem(record, "changed_truncated"))
		fputs("    changed  possibly more than could be recorded\n", out);
}

void log_view_print(FILE *out, const cJSON *record, const char *glob)
{
	const char *op = json_text(record, "op");
	char latency[16];

	print_time(out, record);
	if (strcmp(op, "removed") == 0) {
		fprintf(out, "somebody removed the log's file: %lld operations are missing\n",
			json_integer(record, "count"));
		return;
	}
	if (strcmp(op, "dropped") == 0 || strcmp(op, "lost") == 0) {
		fprintf(out, "%lld %s\n", json_integer(record, "count"),
			strcmp(op, "lost") == 0 ? "operations could not be written to the log"
						: "reads were not recorded");
		return;
	}
	command_format_time((uint64_t)json_integer(record, "latency_us"), latency);
	print_process(out, record);
	visible_print_name(out, op);
	fprintf(out, "%*s  %7s", strlen(op) < 11 ? 11 - (int)strlen(op) : 0, "", latency);
	print_path(out, record);
	print_outcome(out, record);
	print_extras(out, record);
	fputc('\n', out);
	print_changed(out, record, glob);
}

/* ---- The summary --------------------------------------------------------------------------- */

enum {
	TOTALS_MAX = 512, /* per kind; further names count as "(others)" */
	SHOWN_MAX = 20,
};

struct total {
	char *name;
	uint64_t count, errors, latency_us, slowest_us, bytes, round_trips;
};

struct totals {
	struct total items[TOTALS_MAX];
	size_t count;
};

enum { BY_OP, BY_PROCESS, BY_CALL, KINDS };

struct log_summary {
	struct totals kinds[KINDS];
	struct total all;
	uint64_t dropped, lost;
	char first_time[32], last_time[32];
};

struct log_summary *log_summary_new(void)
{
	return calloc(1, sizeof(struct log_summary));
}

void log_summary_free(struct log_summary *summary)
{
	for (int kind = 0; summary && kind < KINDS; kind++)
		for (size_t i = 0; i < summary->kinds[kind].count; i++)
			free(summary->kinds[kind].items[i].name);
	free(summary);
}

static struct total *find_total(struct totals *totals, const char *name)
{
	size_t i;

	if (totals->count == TOTALS_MAX - 1)
		name = "(others)";
	for (i = 0; i < totals->count; i++)
		if (strcmp(totals->items[i].name, name) == 0)
			return &totals->items[i];
	if (totals->count == TOTALS_MAX)
		return NULL;
	totals->items[i].name = strdup(name);
	if (!totals->items[i].name)
		return NULL;
	totals->count++;
	return &totals->items[i];
}

static void add_to(struct total *total, const cJSON *record)
{
	uint64_t latency_us = (uint64_t)json_integer(record, "latency_us");

	if (!total)
		return;
	total->count++;
	total->errors += json_text(record, "result") && !is_miss(record);
	total->latency_us += latency_us;
	if (latency_us > total->slowest_us)
		total->slowest_us = latency_us;
	total->bytes += (uint64_t)json_integer(record, "bytes");
	total->round_trips += (uint64_t)json_integer(record, "round_trips");
}

void log_summary_add(struct log_summary *summary, const cJSON *record)
{
	const char *op = json_text(record, "op"), *process = json_text(record, "process");
	const char *call = json_text(record, "call"), *time = json_text(record, "time");

	if (strcmp(op, "dropped") == 0) {
		summary->dropped += (uint64_t)json_integer(record, "count");
		return;
	}
	if (strcmp(op, "lost") == 0) {
		summary->lost += (uint64_t)json_integer(record, "count");
		return;
	}
	add_to(&summary->all, record);
	add_to(find_total(&summary->kinds[BY_OP], op), record);
	add_to(find_total(&summary->kinds[BY_PROCESS], process ? process : "(kernel)"), record);
	if (call)
		add_to(find_total(&summary->kinds[BY_CALL], call), record);
	if (!time)
		return;
	if (!summary->first_time[0])
		snprintf(summary->first_time, sizeof(summary->first_time), "%s", time);
	snprintf(summary->last_time, sizeof(summary->last_time), "%s", time);
}

static int by_time(const void *a, const void *b)
{
	const struct total *first = a, *second = b;

	return (first->latency_us < second->latency_us) - (first->latency_us > second->latency_us);
}

static void print_totals(FILE *out, const char *title, struct totals *totals)
{
	if (totals->count == 0)
		return;
	qsort(totals->items, totals->count, sizeof(totals->items[0]), by_time);
	fprintf(out, "\n%-16s  %9s  %7s  %8s  %8s  %8s  %8s  %8s\n", title, "COUNT", "ERRORS",
		"TIME", "MEAN", "SLOWEST", "BYTES", "TRIPS");
	for (size_t i = 0; i < totals->count && i < SHOWN_MAX; i++) {
		const struct total *total = &totals->items[i];
		char time[16], mean[16], slowest[16], bytes[16];
		int pad = 16 - (int)strlen(total->name);

		command_format_time(total->latency_us, time);
		command_format_time(total->latency_us / total->count, mean);
		command_format_time(total->slowest_us, slowest);
		command_format_size(total->bytes, bytes);
		visible_print_name(out, total->name);
		fprintf(out, "%*s  %9llu  %7llu  %8s  %8s  %8s  %8s  %8llu\n", pad > 0 ? pad : 0,
			"", (unsigned long long)total->count, (unsigned long long)total->errors,
			time, mean, slowest, bytes, (unsigned long long)total->round_trips);
	}
	if (totals->count > SHOWN_MAX)
		fprintf(out, "... and %zu more\n", totals->count - SHOWN_MAX);
}

void log_summary_print(FILE *out, struct log_summary *summary)
{
	static const char *const titles[KINDS] = {"OPERATION", "PROCESS", "CALL"};
	char time[16], bytes[16];

	command_format_time(summary->all.latency_us, time);
	command_format_size(summary->all.bytes, bytes);
	fprintf(out, "%llu operations, %llu errors, %s in all, %s bytes, %llu round trips\n",
		(unsigned long long)summary->all.count, (unsigned long long)summary->all.errors,
		time, bytes, (unsigned long long)summary->all.round_trips);
	if (summary->all.count)
		fprintf(out, "from %s to %s\n", summary->first_time, summary->last_time);
	if (summary->dropped)
		fprintf(out, "%llu reads were not recorded\n",
			(unsigned long long)summary->dropped);
	if (summary->lost)
		fprintf(out, "%llu operations could not be written to the log\n",
			(unsigned long long)summary->lost);
	for (int kind = 0; kind < KINDS; kind++)
		print_totals(out, titles[kind], &summary->kinds[kind]);
}
