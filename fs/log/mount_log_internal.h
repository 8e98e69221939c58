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
	LOG_QUEUE_HURRY_BYTES = LOG_QUEUE_BYTES / 2, /* more than that is written at once */
};

struct queue {
	uint8_t *data; /* struct queued_record, one after the other */
	size_t used;
};

enum { RING_ALL, RING_CHANGES, RINGS };

/* What one ring of segments gets; the writer's own. */
struct ring {
	struct log_segments *segments;
	struct buffer text; /* the batch */
	uint64_t first_seq, last_seq, records;
	int error;     /* of the last batch, or of a look */
	uint64_t lost; /* since the last "lost" line */
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
	pthread_cond_t room;    /* mutations wait here for a queue that is full */
	pthread_cond_t written; /* flush waits here */
	struct queue filling;
	bool idle; /* the writer waits without a deadline */
	bool hurry;
	bool stop;
	atomic_bool refuses; /* set by the writer */
	uint64_t last_seq;
	uint64_t written_seq; /* all up to here is in the file, or lost */
	uint64_t unreported;  /* dropped since the last "dropped" line */
	struct mount_log_stats stats;

	/* The writer's own. */
	struct queue draining;
	struct log_directory directory;
	bool is_required;
	void (*removed)(void);
	bool is_failing;
	bool was_removed; /* that is not in a line yet */
	uint64_t removed_records;
	struct log_clock clock;
	struct ring rings[RINGS];
};

/* The writer's thread: writes what is queued until the log is closed. */
void *log_writer_run(void *mount_log);
