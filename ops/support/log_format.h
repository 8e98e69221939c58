/*
 * ops/support/log_format.h - lines of the mount log (fs/LOG.md), as JSON text.
 * Threads: any; a buffer and a clock are their caller's.
 */
#pragma once

#include <time.h>

#include "ops/support/buffer.h"
#include "ops/support/log_record.h"

#define LOG_BEGIN_START "{\"op\":\"begin\""

enum { LOG_SCHEMA = 2 };

/* Remembers the text of the second that the last line was written for. */
struct log_clock {
	time_t second;
	char text[24];
};

/* Whether a failure (the name of the error, or NULL) only says that something does not exist, as
 * when programs search several directories.  It does not count as an error. */
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
