#include "ops/support/log_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/hex.h"
#include "ops/support/utf8.h"

enum { LINE_FIXED_MAX_BYTES = 1024 }; /* all that is not a string of the record */

/* ---- Pieces: the callers have reserved the room ------------------------------ */

static void put(struct buffer *out, const void *data, size_t size)
{
	memcpy(out->data + out->size, data, size);
	out->size += size;
}

static void put_text(struct buffer *out, const char *text)
{
	put(out, text, strlen(text));
}

static void put_number(struct buffer *out, int64_t number)
{
	uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (number < 0)
		digits[--at] = '-';
	put(out, digits + at, sizeof(digits) - at);
}

static void put_hex(struct buffer *out, const void *data, size_t size)
{
	hex_write(data, size, (char *)out->data + out->size); /* there is room for the NUL */
	out->size += 2 * size;
}

static void put_escape(struct buffer *out, uint8_t byte)
{
	switch (byte) {
	case '"':
		put(out, "\\\"", 2);
		break;
	case '\\':
		put(out, "\\\\", 2);
		break;
	case '\n':
		put(out, "\\n", 2);
		break;
	case '\t':
		put(out, "\\t", 2);
		break;
	default:
		put(out, "\\u00", 4);
		put_hex(out, &byte, 1);
	}
}

/* A JSON string; at most 6 bytes for one.  False when bytes that are not UTF-8 had to be
 * replaced. */
static bool put_string(struct buffer *out, const char *string, size_t size)
{
	const uint8_t *text = (const uint8_t *)string;
	bool faithful = true;
	size_t at = 0;

	put(out, "\"", 1);
	while (at < size) {
		size_t plain = at, length;

		while (at < size && text[at] >= 0x20 && text[at] < 0x7f && text[at] != '"' &&
			text[at] != '\\')
			at++;
		put(out, text + plain, at - plain);
		if (at == size)
			break;
		length = utf8_sequence(text + at, size - at);
		if (length == 0) {
			put(out, "\\ufffd", 6);
			faithful = false;
			at++;
		} else if (length == 1) {
			put_escape(out, text[at++]);
		} else {
			put(out, text + at, length);
			at += length;
		}
	}
	put(out, "\"", 1);
	return faithful;
}

static void put_key(struct buffer *out, const char *key)
{
	put(out, ",\"", 2);
	put_text(out, key);
	put(out, "\":", 2);
}

static void put_member(struct buffer *out, const char *key, int64_t number)
{
	put_key(out, key);
	put_number(out, number);
}

/* `"key":"..."`, and, when that is not the whole truth, `"key_hex":"..."` with every byte. */
static void put_bytes(struct buffer *out, const char *key, const char *string, size_t size)
{
	put_key(out, key);
	if (put_string(out, string, size))
		return;
	put(out, ",\"", 2);
	put_text(out, key);
	put_text(out, "_hex\":\"");
	put_hex(out, string, size);
	put(out, "\"", 1);
}

static void put_result(struct buffer *out, int result, const char *name)
{
	if (!*name)
		name = result < 0 ? strerrorname_np(-result) : NULL;

	put_key(out, "result");
	if (name) {
		put(out, "\"", 1);
		put_text(out, name);
		put(out, "\"", 1);
	} else {
		put_number(out, result);
	}
}

/* The name, or {"hex":"..."} when it is not UTF-8. */
static void put_changed_name(struct buffer *out, const char *name, size_t length)
{
	size_t before = out->size;

	if (put_string(out, name, length))
		return;
	out->size = before;
	put_text(out, "{\"hex\":\"");
	put_hex(out, name, length);
	put(out, "\"}", 2);
}

static void put_changed(struct buffer *out, const char *names, size_t size)
{
	put_key(out, "changed");
	put(out, "[", 1);
	for (size_t at = 0; at < size;) {
		size_t length = strlen(names + at);

		if (at)
			put(out, ",", 1);
		put_changed_name(out, names + at, length);
		at += length + 1;
	}
	put(out, "]", 1);
}

/* ---- Lines ------------------------------------------------------------------ */

/* Puts those from `first` to `last`; returns where the following ones are. */
static const char *put_strings(struct buffer *out, const struct queued_record *queued,
	const char *at, enum log_string first, enum log_string last)
{
	static const char *const keys[LOG_STRINGS] = {
		[LOG_PATH] = "path",
		[LOG_PATH2] = "path2",
		[LOG_CALL] = "call",
		[LOG_TOOL] = "tool",
		[LOG_AGENT] = "agent",
		[LOG_USER] = "user",
		[LOG_CONVERSATION] = "conversation",
		[LOG_DETAIL] = "detail",
	};

	for (unsigned i = first; i <= last; i++) {
		if (queued->lengths[i])
			put_bytes(out, keys[i], at, queued->lengths[i] - 1);
		at += queued->lengths[i];
	}
	return at;
}

static void put_caller(struct buffer *out, const struct queued_record *queued)
{
	put_member(out, "pid", queued->pid);
	if (queued->record.pid != queued->pid)
		put_member(out, "tid", queued->record.pid);
	if (queued->process[0])
		put_bytes(out, "process", queued->process, strlen(queued->process));
	put_member(out, "uid", queued->record.uid);
}

static void put_digest(struct buffer *out, const char *key, const uint8_t digest[16])
{
	put_key(out, key);
	put(out, "\"", 1);
	put_hex(out, digest, 16);
	put(out, "\"", 1);
}

static void put_outcome(
	struct buffer *out, const struct log_record *record, const char *error, uint64_t count)
{
	if (record->flags & LOG_HAS_RANGE)
		put_member(out, "offset", record->offset);
	if (record->flags & (LOG_HAS_RANGE | LOG_HAS_BYTES))
		put_member(out, "bytes", (int64_t)record->bytes);
	put_member(out, "latency_us", record->latency_us);
	put_result(out, record->result, error);
	if (record->flags & LOG_FROM_CACHE)
		put_text(out, ",\"cached\":true");
	if (record->round_trips)
		put_member(out, "round_trips", record->round_trips);
	if (record->flags & LOG_HAS_HASH)
		put_digest(out, "hash", record->hash);
	if (record->flags & LOG_HAS_HASH_BEFORE)
		put_digest(out, "hash_before", record->hash_before);
	if ((record->flags & LOG_HAS_EXIT) && record->exit_code < 0)
		put_member(out, "signal", record->signal);
	else if (record->flags & LOG_HAS_EXIT)
		put_member(out, "exit_code", record->exit_code);
	if (count)
		put_member(out, "count", (int64_t)count);
}

bool log_is_miss(const char *op, const char *error)
{
	static const struct {
		const char *op, *error;
	} misses[] = {{"lookup", "ENOENT"}, {"getxattr", "ENODATA"}};

	for (size_t i = 0; op && error && i < array_size(misses); i++)
		if (strcmp(op, misses[i].op) == 0 && strcmp(error, misses[i].error) == 0)
			return true;
	return false;
}

/* "2026-11-23T10:28:12.000000Z" */
static void format_time(uint64_t ns, struct log_clock *clock, char text[48])
{
	time_t second = (time_t)(ns / 1000000000);

	if (second != clock->second || !clock->text[0]) {
		struct tm parts;

		gmtime_r(&second, &parts);
		strftime(clock->text, sizeof(clock->text), "%Y-%m-%dT%H:%M:%S", &parts);
		clock->second = second;
	}
	snprintf(text, 48, "%s.%06uZ", clock->text, (unsigned)(ns % 1000000000 / 1000));
}

int log_format_record(
	struct buffer *out, const struct queued_record *queued, struct log_clock *clock)
{
	const struct log_record *record = &queued->record;
	const char *at = (const char *)(queued + 1);
	char time[48];
	int r;

	/* A byte of a path may become 6 (\u00xx) and two more in hex. */
	r = buffer_reserve(out, LINE_FIXED_MAX_BYTES + 8 * (size_t)queued->size);
	if (r < 0)
		return r;
	format_time(record->start_ns, clock, time);
	put_text(out, "{\"seq\":");
	put_number(out, (int64_t)queued->seq);
	put_bytes(out, "time", time, strlen(time));
	put_bytes(out, "op", record->op, strlen(record->op));

	at = put_strings(out, queued, at, LOG_PATH, LOG_PATH2);
	if (!queued->count && !(record->flags & LOG_HAS_NO_CALLER))
		put_caller(out, queued);
	at = put_strings(out, queued, at, LOG_CALL, LOG_CONVERSATION);
	put_outcome(out, record, queued->lengths[LOG_RESULT] ? at : "", queued->count);
	at += queued->lengths[LOG_RESULT];
	at = put_strings(out, queued, at, LOG_DETAIL, LOG_DETAIL);
	if (record->flags & LOG_IS_REDACTED)
		put_text(out, ",\"redacted\":true");
	if (queued->changed_length)
		put_changed(out, at, queued->changed_length);
	if (record->changed_truncated)
		put_text(out, ",\"changed_truncated\":true");
	if (queued->cut)
		put_text(out, ",\"cut\":true");
	put(out, "}\n", 2);
	return 0;
}

int log_format_segment(
	struct buffer *out, const struct log_segment_header *header, struct log_clock *clock)
{
	char time[48], previous[65];

	format_time(header->now_ns, clock, time);
	hex_write(header->previous, 32, previous);
	return buffer_printf(out,
		"{\"op\":\"segment\",\"schema\":%d,\"segment\":%u,\"time\":\"%s\","
		"\"first_seq\":%" PRIu64 ",\"oldest\":%u,\"program\":\"isthmus " ISTHMUS_VERSION
		"\",\"previous\":\"%s\"}\n",
		LOG_SCHEMA, header->number, time, header->first_seq, header->oldest, previous);
}

int log_format_begin(struct buffer *out, uint64_t now_ns, struct log_clock *clock)
{
	char time[48];

	format_time(now_ns, clock, time);
	return buffer_printf(out,
		LOG_BEGIN_START ",\"time\":\"%s\",\"program\":\"isthmus " ISTHMUS_VERSION "\"}\n",
		time);
}

int log_format_seal(struct buffer *out, uint64_t last_seq, const uint8_t digest[32])
{
	char hex[65];

	hex_write(digest, 32, hex);
	return buffer_printf(
		out, "{\"op\":\"seal\",\"last_seq\":%" PRIu64 ",\"sha256\":\"%s\"", last_seq, hex);
}
