#include "fs/log/mount_log_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "ops/support/clock.h"
#include "ops/support/log.h"

enum {
	LOOK_MS = 1000,          /* interval of the checks for removed files */
	GATHER_MS = 50,          /* most that a record waits for others of its batch */
	BATCH_BYTES = 256 << 10, /* of text that is sealed and written together */
};

static void note_lost(struct ring *ring, uint64_t first_seq, uint64_t count, int error)
{
	if (ring->lost == 0) {
		ring->lost_first_seq = first_seq;
		ring->lost_since_ns = clock_wall_ns();
	}
	ring->lost += count;
	ring->lost_error = error;
}

/* Warns once when the log starts to fail, and once when it works again. */
static void note_state(struct mount_log *log)
{
	const struct ring *all = &log->rings[RING_ALL], *changes = &log->rings[RING_CHANGES];
	int error = all->error ? all->error : changes->error;
	int anchor_error = log_segments_anchor_error(all->segments);
	bool is_failing = error < 0;

	if (!anchor_error)
		anchor_error = log_segments_anchor_error(changes->segments);
	if (is_failing && !log->is_failing)
		log_warning("\"%s\": %s: %s until it can be written again", log->path,
			strerror(-error),
			log->is_required ? "all operations fail" : "records are lost");
	else if (!is_failing && log->is_failing)
		log_warning("\"%s\" can be written again", log->path);
	if (anchor_error && !log->stats.anchor_error)
		log_warning("the anchor of \"%s\" cannot be written (%s): the log goes on "
			    "without it%s",
			log->path, strerror(-anchor_error),
			log->is_required ? ", and the mount serves nothing" : "");
	else if (!anchor_error && log->stats.anchor_error)
		log_warning("the anchor of \"%s\" can be written again", log->path);
	log->is_failing = is_failing;
	pthread_mutex_lock(&log->lock);
	log->stats.last_error = error;
	log->stats.anchor_error = anchor_error;
	pthread_mutex_unlock(&log->lock);
	atomic_store(&log->refuses, log->is_required && (error < 0 || anchor_error < 0));
}

/* Another process removed a file of the log, and the writer started a new one. */
static void note_removed(struct mount_log *log, struct ring *ring)
{
	uint64_t records;

	if (!log_segments_take_removed(ring->segments, &records))
		return;
	if (log->removed)
		log->removed();
	log_warning("another process removed or replaced \"%s/%s.jsonl\": continuing in a new "
		    "file, %" PRIu64 " records are missing",
		log->directory.path,
		ring == &log->rings[RING_ALL] ? LOG_ALL_RING : LOG_CHANGES_RING, records);
	pthread_mutex_lock(&log->lock);
	log->stats.removed += !log->was_removed;
	log->hurry = true; /* to write the line that says so */
	pthread_mutex_unlock(&log->lock);
	if (!log->was_removed || ring == &log->rings[RING_ALL])
		log->removed_records = records;
	log->was_removed = true;
}

/* A required log that failed is writable again only if a whole batch fits, not just a few lines. */
static int append(struct mount_log *log, struct ring *ring)
{
	int r = 0;

	if (log->is_required && ring->lost)
		r = log_segments_check_room(ring->segments, BATCH_BYTES);
	if (r == 0)
		r = log_segments_append(
			ring->segments, &ring->text, ring->first_seq, ring->last_seq);
	return r;
}

static void write_batch(struct mount_log *log, struct ring *ring)
{
	uint64_t size_bytes = ring->text.size;

	if (size_bytes == 0)
		return;
	ring->error = append(log, ring);
	if (ring->error < 0)
		note_lost(ring, ring->first_seq, ring->records, ring->error);
	else
		ring->lost = 0;
	note_state(log);
	note_removed(log, ring);
	pthread_mutex_lock(&log->lock);
	if (ring->error == 0)
		log->stats.bytes_written += size_bytes;
	else if (ring == &log->rings[RING_ALL])
		log->stats.lost += ring->records;
	pthread_mutex_unlock(&log->lock);
	ring->text.size = 0;
	ring->records = 0;
}

static void add_lost_line(struct mount_log *log, struct ring *ring)
{
	const struct queued_record line = {
		.size = sizeof(line),
		.seq = ring->lost_first_seq,
		.record = {.op = "lost",
			.start_ns = ring->lost_since_ns,
			.result = ring->lost_error},
		.count = ring->lost,
	};

	if (log_format_record(&ring->text, &line, &log->clock) == 0)
		ring->first_seq = line.seq;
}

/* Called before each line is added to the batch. */
static void begin_line(struct mount_log *log, struct ring *ring, uint64_t seq)
{
	if (ring->text.size > 0)
		return;
	ring->first_seq = seq;
	if (ring->lost)
		add_lost_line(log, ring);
}

static void end_line(struct mount_log *log, struct ring *ring, uint64_t seq, int error)
{
	if (error < 0) {
		note_lost(ring, seq, 1, error);
		return;
	}
	ring->last_seq = seq;
	ring->records++;
	if (ring->text.size >= BATCH_BYTES)
		write_batch(log, ring);
}

static void add_line(struct mount_log *log, const struct queued_record *queued)
{
	struct ring *all = &log->rings[RING_ALL], *changes = &log->rings[RING_CHANGES];
	size_t start;
	int r;

	begin_line(log, all, queued->seq);
	start = all->text.size;
	r = log_format_record(&all->text, queued, &log->clock);
	if (queued->record.flags & LOG_IS_MUTATION) {
		begin_line(log, changes, queued->seq);
		end_line(log, changes, queued->seq,
			r < 0 ? r
			      : buffer_append(&changes->text, all->text.data + start,
					all->text.size - start));
	}
	end_line(log, all, queued->seq, r);
}

/* Adds a line that counts missing records ("dropped", "lost"). */
static void add_count(
	struct mount_log *log, const char *op, unsigned flags, uint64_t count, uint64_t seq)
{
	const struct queued_record line = {
		.size = sizeof(line),
		.seq = seq,
		.record = {.op = op, .flags = flags, .start_ns = clock_wall_ns()},
		.count = count,
	};

	add_line(log, &line);
}

static void drain(
	struct mount_log *log, uint64_t dropped_seq, uint64_t dropped, uint64_t removed_seq)
{
	for (size_t at = 0; at < log->draining.used;) {
		const struct queued_record *queued = (const void *)(log->draining.data + at);

		add_line(log, queued);
		at += queued->size;
	}
	log->draining.used = 0;
	if (dropped_seq)
		add_count(log, "dropped", 0, dropped, dropped_seq);
	if (removed_seq)
		add_count(log, "removed", LOG_IS_MUTATION, log->removed_records, removed_seq);
	for (int i = 0; i < RINGS; i++)
		write_batch(log, &log->rings[i]);
}

/* Called while no records come: checks that the files exist and are writable. */
static void look(struct mount_log *log)
{
	for (int i = 0; i < RINGS; i++) {
		struct ring *ring = &log->rings[i];

		ring->error = log_segments_look(ring->segments);
		note_removed(log, ring);
		/* The "lost" line might fit on a disk that has no room for a batch. */
		if (ring->error == 0 && ring->lost)
			ring->error = log_segments_check_room(ring->segments, BATCH_BYTES);
		if (ring->error < 0 || !ring->lost)
			continue;
		ring->last_seq = ring->lost_first_seq;
		add_lost_line(log, ring);
		write_batch(log, ring);
	}
	note_state(log);
}

static bool has_work(const struct mount_log *log)
{
	return log->filling.used || log->unreported || log->hurry || log->stop;
}

/* Waits until the batch is large enough, or old enough.  Called with the lock held.  False: no
 * record has come. */
static bool wait_for_work(struct mount_log *log)
{
	struct timespec deadline = clock_in_ms(LOOK_MS);
	int r = 0;

	while (!has_work(log) && r != ETIMEDOUT) {
		log->idle = true;
		r = pthread_cond_timedwait(&log->work, &log->lock, &deadline);
	}
	log->idle = false;
	if (!has_work(log))
		return false;
	deadline = clock_in_ms(GATHER_MS);
	while (!log->hurry && !log->stop)
		if (pthread_cond_timedwait(&log->work, &log->lock, &deadline) == ETIMEDOUT)
			break;
	log->hurry = false;
	return true;
}

void *log_writer_run(void *user)
{
	struct mount_log *log = user;
	bool stop = false;

	while (!stop || log->was_removed) {
		uint64_t dropped, dropped_seq, removed_seq, up_to;
		struct queue full;

		pthread_mutex_lock(&log->lock);
		if (!wait_for_work(log)) {
			pthread_mutex_unlock(&log->lock);
			look(log);
			continue;
		}
		full = log->filling;
		log->filling = log->draining;
		log->draining = full;
		dropped = log->unreported;
		log->unreported = 0;
		dropped_seq = dropped ? ++log->last_seq : 0;
		removed_seq = log->was_removed ? ++log->last_seq : 0;
		log->was_removed = false;
		up_to = log->last_seq;
		stop = log->stop;
		pthread_cond_broadcast(&log->room);
		pthread_mutex_unlock(&log->lock);

		drain(log, dropped_seq, dropped, removed_seq);

		pthread_mutex_lock(&log->lock);
		log->written_seq = up_to;
		pthread_cond_broadcast(&log->written);
		pthread_mutex_unlock(&log->lock);
	}
	return NULL;
}
