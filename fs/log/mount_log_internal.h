/*
 * fs/log/mount_log_internal.h - the two sides of the mount log: requests queue records
 * (mount_log.c), and a thread writes them (mount_log_writer.c).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "fs/log/mount_log.h"
#include "ops/support/log_segment.h"

enum {
	LOG_QUEUE_BYTES = 2 << 20,
	LOG_QUEUE_HURRY_BYTES = LOG_QUEUE_BYTES / 2, /* above this the writer starts at once */
};

struct queue {
	uint8_t *data; /* consecutive struct queued_record */
	size_t used;
};

enum { RING_ALL, RING_CHANGES, RINGS };

/* The output to one ring of segments; used by the writer only. */
struct ring {
	struct log_segments *segments;
	struct buffer text;                    /* lines of the present batch */
	uint64_t first_seq, last_seq, records; /* of the present batch */
	int error;                             /* of the last batch or check: 0 or -errno */
	uint64_t lost;                         /* records since the last "lost" line */
	uint64_t lost_first_seq;
	uint64_t lost_since_ns;
	int lost_error;
};

struct mount_log {
	char *path;
	struct callers *callers;
	pthread_t writer;

	pthread_mutex_t lock;
	pthread_cond_t work;    /* the writer waits here */
	pthread_cond_t room;    /* mutations wait here while the queue is full */
	pthread_cond_t written; /* mount_log_flush() waits here */
	struct queue filling;   /* new records */
	bool idle;              /* the writer waits for the first record */
	bool hurry;             /* the writer must not wait for more records */
	bool stop;
	atomic_bool refuses;  /* mount_log_refuses(); written by the writer */
	uint64_t last_seq;    /* given to the last record */
	uint64_t written_seq; /* all records up to this one are in the file, or lost */
	uint64_t unreported;  /* dropped since the last "dropped" line */
	struct mount_log_stats stats;

	/* Used by the writer only. */
	struct queue draining; /* records that it is writing */
	struct log_directory directory;
	bool is_required;
	void (*removed)(void);
	bool is_failing;
	bool was_removed; /* files were removed, and no line in the log says so yet */
	uint64_t removed_records;
	struct log_clock clock;
	struct ring rings[RINGS];
};

/* The writer's thread: writes queued records until the log is closed. */
void *log_writer_run(void *mount_log);
