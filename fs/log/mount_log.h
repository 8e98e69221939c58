/*
 * fs/log/mount_log.h - records every operation on a mount as JSON Lines (fs/LOG.md).
 *
 * Recording does not wait for the disk: records go into a bounded queue, and a thread formats and
 * writes them.  If the queue is full, mutations wait; reads are dropped, and a line in the log says
 * how many.
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
	uint64_t dropped; /* reads that were dropped; "dropped" lines count them */
	uint64_t errors;  /* records with a result other than 0, without misses (log_is_miss()) */
	uint64_t bytes_written;
	bool is_sealed;   /* the log has keys */
	uint64_t removed; /* how often a file was removed while it was written */
	uint64_t lost;    /* records that could not be written; "lost" lines count them */
	int last_error;   /* of the last write to the log: 0 or -errno */
	int anchor_error; /* of the last write to its anchor: 0 or -errno */
};

struct mount_log_options {
	uint64_t limit_bytes;      /* bound of the segments with all records; 0: 192 MiB */
	uint64_t keep_bytes;       /* bound of the second copy of mutations; 0: 64 MiB */
	struct log_anchor *anchor; /* receives each seal; must outlive the log; NULL: none */
	bool is_required;          /* a failing log stops the mount: mount_log_refuses() */
	void (*removed)(void);     /* called after files were removed and recreated; may be NULL */
};

/* Opens the log in `directory` and continues it; creates missing directories with mode 0700.  Seals
 * the log if it has a key (ops/support/log_seal.h).  `options` may be NULL.  The directory stays
 * open, so a later mount over it has no effect.  0; -EBUSY: another daemon writes there; -errno of
 * the file system; if the log is required, also when its key cannot be used. */
int mount_log_open(
	const char *directory, const struct mount_log_options *options, struct mount_log **ret_log);

/* Whether the log is required and currently cannot be written or anchored.  NULL is fine. */
bool mount_log_refuses(const struct mount_log *log);

/* Writes the queued records, ends the thread and frees the log.  NULL is fine. */
void mount_log_close(struct mount_log *log);

/* Records an operation; returns its sequence number (0: it was dropped, or `log` is NULL).  Called
 * before the reply is sent, so that the record can name a process that ends right after it. */
uint64_t mount_log_record(struct mount_log *log, const struct log_record *record);

/* Finds out who the caller is, so that a record with this start is quick.  NULL is fine. */
void mount_log_look_up(struct mount_log *log, pid_t pid, uint64_t start_ns);

/* Waits until everything recorded so far can be read from the file. */
void mount_log_flush(struct mount_log *log);

uint64_t mount_log_last_seq(struct mount_log *log); /* 0: none, or log is NULL */
void mount_log_stats(struct mount_log *log, struct mount_log_stats *ret_stats);

/* The path of the segment that is being written; rotation renames older ones.  The string lives as
 * long as the log. */
const char *mount_log_path(struct mount_log *log);

/* The registered tool calls, to which records are assigned.  NULL if `log` is NULL. */
struct callers *mount_log_callers(struct mount_log *log);
