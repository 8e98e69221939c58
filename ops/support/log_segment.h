/*
 * ops/support/log_segment.h - the files of the mount log: chained, bounded, verifiable.
 *
 * A log directory holds two rings: all records, and a second copy of those that are changes,
 * which nothing else can push out.  A ring is RING.jsonl, which is being written, and the older
 * RING-NNNNNNNN.jsonl.
 * Lines are written in batches; a "seal" line ends each batch with
 * SHA-256(digest of the seal before || the lines since), and a segment's first line
 * repeats the last digest of the segment before.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/log_anchor.h"
#include "ops/support/log_format.h"
#include "ops/support/log_seal.h"

#define LOG_ALL_RING     "log"
#define LOG_CHANGES_RING "changes"
#define LOG_TOOLS_RING   "tools" /* in a directory of its own: ops/support/log_tools.h */
#define LOG_CURRENT_NAME LOG_ALL_RING ".jsonl"
#define LOG_END_LINE     "{\"op\":\"end\"}\n"

/* ---- The directory ----------------------------------------------------------- */

/* Open and locked: one process writes there. */
struct log_directory {
	char *path;
	const char *lock_name; /* static */
	int fd;
	int lock;
};

/* Makes `path` (0700) when missing, its parents too, and locks the file of that (static) name in
 * it. -EBUSY: locked by another for 2 s; -errno. */
int log_directory_open(struct log_directory *directory, const char *path, const char *lock_name);
void log_directory_close(struct log_directory *directory); /* also one that is not open */

/* ---- Writing ------------------------------------------------------------------ */

struct log_segments;

struct log_segments_options {
	const char *ring;                        /* static */
	uint64_t limit_bytes;                    /* of all segments together */
	const struct log_generation *generation; /* to seal with; NULL: no keys */
	struct log_anchor *anchor;               /* gets each seal; NULL: none */
	bool is_shared; /* processes take turns, for a batch each: no line says that one begins or
			   ends, and none reads what the others wrote */
};

/* Continues the log of a directory, which must outlive it; `*ret_last_seq` is the last
 * sequence number that was ever written there.  -errno. */
int log_segments_open(struct log_directory *directory, const struct log_segments_options *options,
	struct log_segments **ret_segments, uint64_t *ret_last_seq);
void log_segments_close(struct log_segments *segments); /* NULL is fine */

/* Writes a batch of whole lines whose first and last sequence numbers are given, rotating
 * before it and dropping the oldest segments where the bounds ask for it.  On failure
 * nothing of the batch stays in the file.  The seal is appended to `lines`. */
int log_segments_append(
	struct log_segments *segments, struct buffer *lines, uint64_t first_seq, uint64_t last_seq);

/* When the file that is written was removed or replaced, or its directory was removed: begins a
 * new one, as log_segments_append() does.  -errno of that. */
int log_segments_look(struct log_segments *segments);

/* After a failed append: 0 when there is room for a batch of this size, or that is not known. */
int log_segments_check_room(const struct log_segments *segments, size_t bytes);

/* True once after that; `*ret_count` records were in the file. */
bool log_segments_take_removed(struct log_segments *segments, uint64_t *ret_count);

/* 0, or -errno of the last seal that the anchor should have got. */
int log_segments_anchor_error(const struct log_segments *segments);

/* Writes the line that says that the daemon ended by itself. */
void log_segments_end(struct log_segments *segments);

/* ---- Reading (ops/support/log_verify.c) ----------------------------------------- */

struct log_segment_report {
	bool has_header;
	uint32_t number;
	unsigned schema;
	uint32_t oldest;              /* of the header; 0: schema 1 has none */
	uint64_t first_seq, last_seq; /* of the header; of the last line */
	uint8_t previous[32];         /* as the header has it */
	uint8_t digest[32];           /* of everything in it, unsealed lines included */
	uint64_t size_bytes;
	uint64_t lines;
	uint64_t unsealed_lines;
	bool ended;            /* the last line but the seal is that of log_segments_end() */
	uint64_t problem_line; /* 0: none; the first that is not what was written */
	const char *problem;   /* static; NULL: none */
};

struct log_verify_report;

/* What is known across segments while they are read in order, beside what is reported. */
struct log_scan {
	struct log_verify_report *report;
	bool session_is_open; /* lines of a daemon that has not written its last one */
	struct log_seal_check seals;
	struct log_anchor_check *anchor; /* NULL: not compared */
};

/* Reads one segment.  `scan` may be NULL.  0 whatever it holds; -errno when it cannot be read. */
int log_segment_scan(int fd, struct log_scan *scan, struct log_segment_report *ret_report);

/* What the first line and the last one say, without a look at those between: of a segment that ends
 * with a seal.  -ENODATA: it does not; -errno. */
int log_segment_ends(int fd, struct log_segment_report *ret_report);

enum { LOG_NAME_BYTES = 48 };

struct log_segment_name {
	char name[256];
	uint32_t number; /* LOG_CURRENT: its name has none, as it is being written */
};

#define LOG_CURRENT UINT32_MAX

/* The segments of a ring of a directory in order of age, which the caller frees.  Returns how many
 * there are, or -errno. */
int log_segment_names(int directory_fd, const char *ring, struct log_segment_name **ret_names);

/* True while an open segment has this name. */
bool log_segment_is_at(int directory_fd, const char *name, int file);

struct log_verify_report {
	uint32_t segments;
	unsigned schema;               /* of the newest segment */
	uint32_t first_number, number; /* of the oldest and the newest segment */
	uint32_t oldest;               /* ... the oldest that rotation has left, says the newest */
	uint64_t lines, first_seq, last_seq, unsealed_lines;
	uint8_t digest[32];
	bool ended;                 /* the last daemon wrote its last line */
	uint64_t changes_first_seq; /* of the oldest change that is kept; 0: none */
	uint64_t anchored_seq;      /* the last number that the anchor has, if `anchored` */
	bool anchored;
	bool is_keyed;      /* seals have an HMAC */
	bool oldest_gone;   /* rotation has deleted earlier segments */
	uint64_t lost;      /* records that could not be written */
	char problem[512];  /* for people: what was altered; "" when the log is as it was written */
	uint32_t gap_count; /* places where records may be missing though nothing was altered */
	char gap[256];      /* ... the first of them */
};

/* What the log is compared with. */
struct log_verify_means {
	const uint8_t *key; /* [LOG_KEY_BYTES], the verification key; NULL: none */
	const char *anchor; /* path of what an anchor has got; NULL: none */
	uint64_t known_seq; /* the daemon may write more meanwhile; 0: it does not run */
	const char *ring;   /* this one alone; NULL: those of a mount */
};

/* Checks every segment and the links between them. */
int log_verify(const char *directory, const struct log_verify_means *means,
	struct log_verify_report *ret_report);
