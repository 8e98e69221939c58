#include "fs/mount_log_format.h"

#include <errno.h>
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

static void put_number(struct buffer *out, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	put(out, digits + at, sizeof(digits) - at);
}

static void put_signed(struct buffer *out, int64_t number)
{
	if (number < 0)
		put(out, "-", 1);
	put_number(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
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

static void put_time(struct buffer *out, uint64_t ns, struct log_clock *clock)
{
	time_t second = (time_t)(ns / 1000000000);
	uint32_t us = (uint32_t)(ns % 1000000000 / 1000);
	char fraction[9] = {'.', 0, 0, 0, 0, 0, 0, 'Z', '"'};

	if (second != clock->second || !clock->text[0]) {
		struct tm parts;

		gmtime_r(&second, &parts);
		strftime(clock->text, sizeof(clock->text), "%Y-%m-%dT%H:%M:%S", &parts);
		clock->second = second;
	}
	for (int i = 6; i > 0; i--, us /= 10)
		fraction[i] = (char)('0' + us % 10);
	put_text(out, ",\"time\":\"");
	put_text(out, clock->text);
	put(out, fraction, sizeof(fraction));
}

static void put_result(struct buffer *out, int result)
{
	const char *name = result < 0 ? strerrorname_np(-result) : NULL;

	put_key(out, "result");
	if (name) {
		put(out, "\"", 1);
		put_text(out, name);
		put(out, "\"", 1);
	} else {
		put_signed(out, result);
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
static const char *put_strings(struct buffer *out, const struct queued_record *record,
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
		if (record->lengths[i])
			put_bytes(out, keys[i], at, record->lengths[i] - 1);
		at += record->lengths[i];
	}
	return at;
}

static void put_caller(struct buffer *out, const struct queued_record *record)
{
	put_key(out, "pid");
	put_signed(out, record->pid);
	if (record->tid != record->pid) {
		put_key(out, "tid");
		put_signed(out, record->tid);
	}
	if (record->process[0])
		put_bytes(out, "process", record->process, strlen(record->process));
	put_key(out, "uid");
	put_number(out, record->uid);
}

static void put_digest(struct buffer *out, const char *key, const uint8_t digest[16])
{
	put_key(out, key);
	put(out, "\"", 1);
	put_hex(out, digest, 16);
	put(out, "\"", 1);
}

static void put_outcome(struct buffer *out, const struct queued_record *record)
{
	if (record->flags & LOG_HAS_RANGE) {
		put_key(out, "offset");
		put_signed(out, record->offset);
		put_key(out, "bytes");
		put_number(out, record->bytes);
	}
	put_key(out, "latency_us");
	put_number(out, record->latency_us);
	put_result(out, record->result);
	if (record->flags & LOG_FROM_CACHE)
		put_text(out, ",\"cached\":true");
	if (record->round_trips) {
		put_key(out, "round_trips");
		put_number(out, record->round_trips);
	}
	if (record->flags & LOG_HAS_HASH)
		put_digest(out, "hash", record->hash);
	if (record->flags & LOG_HAS_HASH_BEFORE)
		put_digest(out, "hash_before", record->hash_before);
	if (record->flags & LOG_HAS_EXIT) {
		put_key(out, record->exit_code < 0 ? "signal" : "exit_code");
		put_signed(out, record->exit_code < 0 ? record->signal : record->exit_code);
	}
	if (record->count) {
		put_key(out, "count");
		put_number(out, record->count);
	}
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

int log_format_record(
	struct buffer *out, const struct queued_record *record, struct log_clock *clock)
{
	const char *at = (const char *)(record + 1);
	int r;

	/* A byte of a path may become 6 (\u00xx) and two more in hex. */
	r = buffer_reserve(out, LINE_FIXED_MAX_BYTES + 8 * (size_t)record->size);
	if (r < 0)
		return r;
	put_text(out, "{\"seq\":");
	put_number(out, record->seq);
	put_time(out, record->start_ns, clock);
	put_key(out, "op");
	put_string(out, record->op, strlen(record->op));

	at = put_strings(out, record, at, LOG_PATH, LOG_PATH2);
	if (!record->count && !(record->flags & LOG_HAS_NO_CALLER))
		put_caller(out, record);
	at = put_strings(out, record, at, LOG_CALL, LOG_CONVERSATION);
	put_outcome(out, record);
	at = put_strings(out, record, at, LOG_DETAIL, LOG_DETAIL);
	if (record->flags & LOG_IS_REDACTED)
		put_text(out, ",\"redacted\":true");
	if (record->changed_length)
		put_changed(out, at, record->changed_length);
	if (record->changed_truncated)
		put_text(out, ",\"changed_truncated\":true");
	if (record->cut)
		put_text(out, ",\"cut\":true");
	put(out, "}\n", 2);
	return 0;
}

int log_format_segment(
	struct buffer *out, const struct log_segment_header *header, struct log_clock *clock)
{
	int r = buffer_reserve(out, LINE_FIXED_MAX_BYTES);

	if (r < 0)
		return r;
	put_text(out, "{\"op\":\"segment\",\"schema\":");
	put_number(out, LOG_SCHEMA);
	put_key(out, "segment");
	put_number(out, header->number);
	put_time(out, header->now_ns, clock);
	put_key(out, "first_seq");
	put_number(out, header->first_seq);
	put_key(out, "oldest");
	put_number(out, header->oldest);
	put_text(out, ",\"program\":\"isthmus " ISTHMUS_VERSION "\",\"previous\":\"");
	put_hex(out, header->previous, 32);
	put(out, "\"}\n", 3);
	return 0;
}

int log_format_begin(struct buffer *out, uint64_t now_ns, struct log_clock *clock)
{
	int r = buffer_reserve(out, LINE_FIXED_MAX_BYTES);

	if (r < 0)
		return r;
	put_text(out, LOG_BEGIN_START);
	put_time(out, now_ns, clock);
	put_text(out, ",\"program\":\"isthmus " ISTHMUS_VERSION "\"}\n");
	return 0;
}

int log_format_seal(struct buffer *out, uint64_t last_seq, const uint8_t digest[32])
{
	int r = buffer_reserve(out, LINE_FIXED_MAX_BYTES);

	if (r < 0)
		return r;
	put_text(out, "{\"op\":\"seal\",\"last_seq\":");
	put_number(out, last_seq);
	put_text(out, ",\"sha256\":\"");
	put_hex(out, digest, 32);
	put(out, "\"", 1);
	return 0;
}
