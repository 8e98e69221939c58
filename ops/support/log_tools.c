#include "ops/support/log_tools.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "ops/support/log_segment.h"

enum { LIMIT_BYTES = 16 << 20 };

static int format(struct buffer *line, const struct log_record *record,
	const char *const strings[LOG_STRINGS], uint64_t seq)
{
	struct queued_record queued = {.record = *record, .seq = seq, .pid = getpid()};
	struct log_clock clock = {0};
	cleanup_free void *packed = NULL;

	queued.record.pid = queued.pid;
	queued.record.uid = geteuid();
	snprintf(queued.process, sizeof(queued.process), "%s", program_invocation_short_name);
	log_record_measure(&queued, strings);
	packed = malloc(queued.size);
	if (!packed)
		return -ENOMEM;
	log_record_copy(packed, &queued, strings);
	return log_format_record(line, packed, &clock);
}

/* The lock is polled for a bounded time: many threads at once would keep one from it. */
static pthread_mutex_t append_lock = PTHREAD_MUTEX_INITIALIZER;

int log_tools_append(
	const struct log_record *record, const char *const strings[LOG_STRINGS], uint64_t *ret_seq)
{
	const struct log_segments_options options = {
		.ring = LOG_TOOLS_RING, .limit_bytes = LIMIT_BYTES, .is_shared = true};
	cleanup_free char *path = state_path(NULL);
	cleanup_buffer struct buffer line = {0};
	struct log_directory directory = {.fd = -1, .lock = -1};
	struct log_segments *segments = NULL;
	uint64_t last_seq = 0;
	int r;

	pthread_mutex_lock(&append_lock);
	r = path ? log_directory_open(&directory, path, LOG_TOOLS_RING ".lock") : -ENOMEM;
	if (r == 0)
		r = log_segments_open(&directory, &options, &segments, &last_seq);
	if (r == 0)
		r = format(&line, record, strings, last_seq + 1);
	if (r == 0)
		r = log_segments_append(segments, &line, last_seq + 1, last_seq + 1);
	log_segments_close(segments);
	log_directory_close(&directory);
	pthread_mutex_unlock(&append_lock);
	if (r == 0)
		*ret_seq = last_seq + 1;
	return r;
}
