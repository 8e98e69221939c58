/*
 * fs/log/mount_log.h - the record of every operation on a mount, JSON Lines (fs/LOG.md).
 *
 * Recording never waits for the disk: records go to a bounded queue that a thread
 * of the log's own formats and writes.  Mutations are never dropped (a full queue
 * holds them up); reads are, and then a line says how many.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ops/support/log_record.h"

struct callers; /* fs/log/callers.h */
struct log_anchor;
struct mount_log;

struct mount_log_stats {
	uint64_t records; /* since the start */
	uint64_t dropped; /* reads that are counted in a "dropped" line */
	uint64_t errors;  /* records whose result is not 0, but for misses (log_is_miss()) */
	uint64_t bytes_written;
	bool is_sealed;   /* with keys */
	uint64_t removed; /* times that the file was removed while it was written */
	uint64_t lost; /* records that could not be written (disk full...): a "lost" line says so */
	int last_error;   /* 0 or -errno of the last write to the log */
	int anchor_error; /* ... to its anchor */
};

struct mount_log_options {
	uint64_t limit_bytes;      /* of the segments with all records; 0: 192 MiB */
	uint64_t keep_bytes;       /* ... of the second copy of changes; 0: 64 MiB */
	struct log_anchor *anchor; /* gets each seal, and must outlive the log; NULL: none */
	bool is_required;          /* without it the mount serves nothing: mount_log_refuses() */
	void (*removed)(void);     /* the log's files were removed and recreated; may be NULL */
};

/* Opens (continues) the log in `directory`, made 0700 when missing (its parents too), and seals it
 * where it has a key (ops/support/log_seal.h).  `options` may be NULL.  The directory stays open:
 * a mount that covers it later does not matter.  -EBUSY: another daemon writes there; -errno of the
 * file system; a log that is required also fails where it has a key that cannot be used. */
int mount_log_open(
	const char *directory, const struct mount_log_options *options, struct mount_log **ret_log);

/* True while a log that is required cannot be written, or anchored.  NULL is fine. */
bool mount_log_refuses(const struct mount_log *log);

/* Writes what is queued, ends the thread, frees.  NULL is fine. */
void mount_log_close(struct mount_log *log);

/* Records one operation; returns its sequence number (0: dropped or log is NULL).  Called
 * before the reply is sent, it names even a process that ends right afterwards. */
uint64_t mount_log_record(struct mount_log *log, const struct log_record *record);

/* Finds out who the caller is, so that a record with this start is quick.  NULL is fine. */
void mount_log_look_up(struct mount_log *log, pid_t pid, uint64_t start_ns);

/* Waits until everything recorded so far can be read from the file. */
void mount_log_flush(struct mount_log *log);

uint64_t mount_log_last_seq(struct mount_log *log); /* 0: none, or log is NULL */
void mount_log_stats(struct mount_log *log, struct mount_log_stats *ret_stats);

/* Path of the segment being written (rotation renames the older ones); lives as long as
 * the log. */
const char *mount_log_path(struct mount_log *log);

/* Where tool calls begin and end, which the records of their processes name.  NULL: log is NULL. */
struct callers *mount_log_callers(struct mount_log *log);
