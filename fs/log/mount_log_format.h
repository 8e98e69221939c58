/*
 * fs/log/mount_log_format.h - lines of the mount log (fs/LOG.md), as JSON text.
 * Threads: any; a buffer and a clock are their caller's.
 */
#pragma once

#include <time.h>

#include "fs/log/callers.h"
#include "fs/log/mount_log.h"
#include "ops/support/buffer.h"

#define LOG_BEGIN_START "{\"op\":\"begin\""

enum {
	LOG_SCHEMA = 2,
	LOG_PATH_MAX_BYTES = 1 << 16, /* longer paths, and command lines, are cut */
	LOG_DETAIL_MAX_BYTES = 1 << 14,
	LOG_CHANGED_MAX_BYTES = 1 << 19, /* all names together */
};

/* The strings of a record. */
enum log_string {
	LOG_PATH,
	LOG_PATH2,
	LOG_CALL,
	LOG_TOOL,
	LOG_AGENT,
	LOG_USER,
	LOG_CONVERSATION,
	LOG_DETAIL,
	LOG_STRINGS,
};

/* A record as it waits to be written: this, then its strings, each with its NUL.  A length
 * counts the NUL, so 0 means that there is no such string. */
struct queued_record {
	uint32_t size; /* of it all, a multiple of 8 */
	uint64_t seq;
	struct log_record record; /* whose pointers to strings are not to be followed */
	pid_t pid;                /* of the process that has the thread record.pid */
	char process[16];
	uint32_t lengths[LOG_STRINGS], changed_length;
	bool cut;       /* a string was longer than its bound */
	uint64_t count; /* dropped, lost */
};

/* Remembers the text of the second that the last line was written for. */
struct log_clock {
	time_t second;
	char text[24];
};

/* Whether a failure (by the name of the error, or NULL) only says that there is no such thing: what
 * programs look for in several places.  No error, then. */
bool log_is_miss(const char *op, const char *error);

/* Appends the line of a record.  -ENOMEM. */
int log_format_record(
	struct buffer *out, const struct queued_record *queued, struct log_clock *clock);

/* What the first line of a segment says. */
struct log_segment_header {
	uint32_t number;
	uint32_t oldest; /* the oldest segment that rotation has left */
	uint64_t first_seq;
	const uint8_t *previous; /* digest[32] of the segment before */
	uint64_t now_ns;
};

int log_format_segment(
	struct buffer *out, const struct log_segment_header *header, struct log_clock *clock);

/* Appends the first line of a daemon. */
int log_format_begin(struct buffer *out, uint64_t now_ns, struct log_clock *clock);

/* Appends the line that seals those before it, up to its digest: log_seal_finish(). */
int log_format_seal(struct buffer *out, uint64_t last_seq, const uint8_t digest[32]);
