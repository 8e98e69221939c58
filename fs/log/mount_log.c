#include "fs/log/mount_log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/log/mount_log_segment.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"

enum {
	LIMIT_DEFAULT_BYTES = 192 << 20,
	KEEP_DEFAULT_BYTES = 64 << 20,
	QUEUE_BYTES = 2 << 20,
	QUEUE_HURRY_BYTES = QUEUE_BYTES / 2,     /* the writer comes before its time */
	QUEUE_READS_BYTES = QUEUE_BYTES / 4 * 3, /* from here on, reads are dropped */
	LOOK_MS = 1000,          /* how long a file that was removed may go unnoticed */
	GATHER_MS = 50,          /* how long a line may wait */
	BATCH_BYTES = 256 << 10, /* of text, sealed and written at once */
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

/* ---- The request's side ------------------------------------------------------ */

static uint32_t bounded_length(const char *string, size_t max, bool *cut)
{
	size_t length;

	if (!string)
		return 0;
	length = strnlen(string, max);
	if (length == max)
		*cut = true;
	return (uint32_t)length + (length < max ? 1 : 0);
}

static uint8_t *copy_string(uint8_t *to, const char *string, uint32_t length)
{
	if (length == 0)
		return to;
	memcpy(to, string, length - 1);
	to[length - 1] = '\0';
	return to + length;
}

static uint32_t changed_length(struct log_record *record)
{
	uint32_t total = 0;

	for (const char *const *name = record->changed; name && *name; name++) {
		size_t length = strlen(*name) + 1;

		if (total + length > LOG_CHANGED_MAX_BYTES) {
			record->changed_truncated = true;
			break;
		}
		total += (uint32_t)length;
	}
	return total;
}

static const char *not_empty(const char *text)
{
	return *text ? text : NULL;
}

/* The strings of a record, in the order of enum log_string. */
static void gather(const struct log_record *record, const struct tool_call *call,
	const char *strings[LOG_STRINGS])
{
	strings[LOG_PATH] = record->path;
	strings[LOG_PATH2] = record->path2;
	strings[LOG_CALL] = call ? call->id : record->call_id;
	strings[LOG_TOOL] = call ? call->tool : NULL;
	strings[LOG_AGENT] = call ? not_empty(call->agent) : NULL;
	strings[LOG_USER] = call ? not_empty(call->user) : NULL;
	strings[LOG_CONVERSATION] = call ? not_empty(call->conversation) : NULL;
	strings[LOG_DETAIL] = record->detail;
}

static void measure(struct queued_record *queued, const char *const strings[LOG_STRINGS])
{
	static const size_t max_bytes[LOG_STRINGS] = {
		[LOG_PATH] = LOG_PATH_MAX_BYTES,
		[LOG_PATH2] = LOG_PATH_MAX_BYTES,
		[LOG_CALL] = CALL_ID_MAX_BYTES + 1,
		[LOG_TOOL] = CALL_TOOL_MAX_BYTES + 1,
		[LOG_AGENT] = CALL_NAME_MAX_BYTES + 1,
		[LOG_USER] = CALL_NAME_MAX_BYTES + 1,
		[LOG_CONVERSATION] = CALL_NAME_MAX_BYTES + 1,
		[LOG_DETAIL] = LOG_DETAIL_MAX_BYTES,
	};
	size_t size = sizeof(*queued);

	for (unsigned i = 0; i < LOG_STRINGS; i++) {
		queued->lengths[i] = bounded_length(strings[i], max_bytes[i], &queued->cut);
		size += queued->lengths[i];
	}
	queued->changed_length = changed_length(&queued->record);
	size += queued->changed_length;
	queued->size = (uint32_t)((size + 7) & ~(size_t)7);
}

static void copy_record(
	uint8_t *to, const struct queued_record *queued, const char *const strings[LOG_STRINGS])
{
	uint32_t left = queued->changed_length;

	memcpy(to, queued, sizeof(*queued));
	to += sizeof(*queued);
	for (unsigned i = 0; i < LOG_STRINGS; i++)
		to = copy_string(to, strings[i], queued->lengths[i]);
	for (const char *const *name = queued->record.changed; left > 0; name++) {
		uint32_t length = (uint32_t)strlen(*name) + 1;

		to = copy_string(to, *name, length);
		left -= length;
	}
}

/* Under the lock: room for `size` bytes, or NULL when the record is to be dropped. */
static uint8_t *take_room(struct mount_log *log, size_t size, bool is_mutation)
{
	uint8_t *room;

	if (!is_mutation && log->filling.used + size > QUEUE_READS_BYTES)
		return NULL;
	while (log->filling.used + size > QUEUE_BYTES) {
		log->hurry = true;
		pthread_cond_signal(&log->work);
		pthread_cond_wait(&log->room, &log->lock);
	}
	room = log->filling.data + log->filling.used;
	log->filling.used += size;
	return room;
}

static uint64_t enqueue(
	struct mount_log *log, struct queued_record *queued, const char *const strings[LOG_STRINGS])
{
	const struct log_record *record = &queued->record;
	const char *error = record->result < 0 ? strerrorname_np(-record->result) : NULL;
	bool is_error = record->result < 0 && !log_is_miss(record->op, error);
	bool wake = false;
	uint8_t *room;

	pthread_mutex_lock(&log->lock);
	room = take_room(log, queued->size, record->flags & LOG_IS_MUTATION);
	if (room) {
		queued->seq = ++log->last_seq;
		copy_record(room, queued, strings);
		log->stats.records++;
		log->stats.errors += is_error;
	} else {
		log->stats.dropped++;
		log->unreported++;
	}
	if (log->idle || (log->filling.used > QUEUE_HURRY_BYTES && !log->hurry)) {
		wake = true;
		log->hurry = log->filling.used > QUEUE_HURRY_BYTES;
		log->idle = false;
	}
	pthread_mutex_unlock(&log->lock);
	if (wake)
		pthread_cond_signal(&log->work);
	return room ? queued->seq : 0;
}

static void note_last_seq(struct tool_call *call, uint64_t seq)
{
	uint64_t last = atomic_load_explicit(&call->last_seq, memory_order_relaxed);

	while (last < seq && !atomic_compare_exchange_weak(&call->last_seq, &last, seq))
		;
}

uint64_t mount_log_record(struct mount_log *log, const struct log_record *record)
{
	struct queued_record queued = {.record = *record};
	const char *strings[LOG_STRINGS];
	struct caller caller;
	uint64_t seq;

	if (!log)
		return 0;
	callers_find(log->callers, record->pid, record->start_ns, &caller);
	queued.pid = caller.pid;
	memcpy(queued.process, caller.name, sizeof(queued.process));
	if (record->call_id) {
		caller_done(&caller);
		caller.call = callers_call_by_id(log->callers, record->call_id);
	}
	gather(record, caller.call, strings);
	measure(&queued, strings);
	seq = enqueue(log, &queued, strings);
	if (caller.call && seq)
		note_last_seq(caller.call, seq);
	caller_done(&caller);
	return seq;
}

/* ---- The writer's side -------------------------------------------------------- */

static void note_lost(struct ring *ring, uint64_t first_seq, uint64_t count, int error)
{
	if (ring->lost == 0) {
		ring->lost_first_seq = first_seq;
		ring->lost_since_ns = clock_wall_ns();
	}
	ring->lost += count;
	ring->lost_error = error;
}

/* Says what does not work once, and once more when it works again. */
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
			log->is_required ? "the mount serves nothing" : "records are lost");
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

/* A file of the log was removed by another process, and a new one was started. */
static void note_removed(struct mount_log *log, struct ring *ring)
{
	uint64_t records;

	if (!log_segments_take_removed(ring->segments, &records))
		return;
	if (log->removed)
		log->removed();
	log_warning("somebody removed or replaced \"%s/%s.jsonl\" while it was written: "
		    "going on in a new file, %" PRIu64 " records are missing",
		log->directory.path,
		ring == &log->rings[RING_ALL] ? LOG_ALL_RING : LOG_CHANGES_RING, records);
	pthread_mutex_lock(&log->lock);
	log->stats.removed += !log->was_removed;
	log->hurry = true; /* for the line that says so */
	pthread_mutex_unlock(&log->lock);
	if (!log->was_removed || ring == &log->rings[RING_ALL])
		log->removed_records = records;
	log->was_removed = true;
}

/* A log that is required is not writable again because a few lines fit. */
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

/* Before a line gets into the batch. */
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

/* A line of the log itself, which says how many records it has not. */
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

/* Nothing came: is all as it was? */
static void look(struct mount_log *log)
{
	for (int i = 0; i < RINGS; i++) {
		struct ring *ring = &log->rings[i];

		ring->error = log_segments_look(ring->segments);
		note_removed(log, ring);
		/* A line about what was lost may fit where no batch does. */
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

/* Under the lock: waits until there is enough to do, or it has waited long enough.  False: nothing
 * has come. */
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

static void *writer_run(void *user)
{
	struct mount_log *log = user;
	bool stop = false;

	pthread_setname_np(pthread_self(), "log");
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

void mount_log_flush(struct mount_log *log)
{
	uint64_t up_to;

	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	up_to = log->last_seq;
	while (log->written_seq < up_to) {
		log->hurry = true;
		pthread_cond_signal(&log->work);
		pthread_cond_wait(&log->written, &log->lock);
	}
	pthread_mutex_unlock(&log->lock);
}

/* ---- The rest of the interface ------------------------------------------------ */

uint64_t mount_log_last_seq(struct mount_log *log)
{
	uint64_t seq;

	if (!log)
		return 0;
	pthread_mutex_lock(&log->lock);
	seq = log->last_seq;
	pthread_mutex_unlock(&log->lock);
	return seq;
}

void mount_log_stats(struct mount_log *log, struct mount_log_stats *ret_stats)
{
	memset(ret_stats, 0, sizeof(*ret_stats));
	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	*ret_stats = log->stats;
	pthread_mutex_unlock(&log->lock);
}

bool mount_log_refuses(const struct mount_log *log)
{
	return log && atomic_load_explicit(&log->refuses, memory_order_relaxed);
}

const char *mount_log_path(struct mount_log *log)
{
	return log ? log->path : "";
}

struct callers *mount_log_callers(struct mount_log *log)
{
	return log ? log->callers : NULL;
}

/* ---- Life --------------------------------------------------------------------- */

static void log_free(struct mount_log *log)
{
	pthread_mutex_destroy(&log->lock);
	pthread_cond_destroy(&log->work);
	pthread_cond_destroy(&log->room);
	pthread_cond_destroy(&log->written);
	callers_free(log->callers);
	for (int i = 0; i < RINGS; i++) {
		log_segments_close(log->rings[i].segments);
		buffer_done(&log->rings[i].text);
	}
	log_directory_close(&log->directory);
	free(log->filling.data);
	free(log->draining.data);
	free(log->path);
	free(log);
}

static int open_ring(struct mount_log *log, int ring, const struct log_segments_options *options)
{
	uint64_t last_seq = 0;
	int r = log_segments_open(&log->directory, options, &log->rings[ring].segments, &last_seq);

	if (last_seq > log->last_seq)
		log->last_seq = last_seq;
	return r;
}

static int open_rings(struct mount_log *log, const struct mount_log_options *options)
{
	struct log_generation generation;
	struct log_segments_options all = {.ring = LOG_ALL_RING,
		.limit_bytes = options->limit_bytes ? options->limit_bytes : LIMIT_DEFAULT_BYTES,
		.anchor = options->anchor};
	struct log_segments_options changes = {.ring = LOG_CHANGES_RING,
		.limit_bytes = options->keep_bytes ? options->keep_bytes : KEEP_DEFAULT_BYTES,
		.anchor = options->anchor};
	int r = log_generation_take(log->directory.fd, &generation);

	if (r < 0 && r != -ENOENT && options->is_required)
		return r;
	log->stats.is_sealed = r == 0;
	if (r == 0)
		all.generation = changes.generation = &generation;
	else if (r != -ENOENT)
		log_warning("cannot use the sealing key beside \"%s\" (%s), going on without: "
			    "'isthmus log --verify' will say that the log is not sealed",
			log->path, strerror(-r));
	r = open_ring(log, RING_CHANGES, &changes);
	if (r == 0)
		r = open_ring(log, RING_ALL, &all);
	log_seal_erase(&generation, sizeof(generation));
	return r;
}

static int log_init(
	struct mount_log *log, const char *directory, const struct mount_log_options *options)
{
	int r;

	log->path = string_printf("%s/" LOG_CURRENT_NAME, directory);
	log->filling.data = malloc(QUEUE_BYTES);
	log->draining.data = malloc(QUEUE_BYTES);
	if (!log->path || !log->filling.data || !log->draining.data)
		return -ENOMEM;
	r = callers_new(&log->callers);
	if (r < 0)
		return r;
	log->is_required = options->is_required;
	log->removed = options->removed;
	r = log_directory_open(&log->directory, directory);
	if (r == 0)
		r = open_rings(log, options);
	if (r < 0)
		return r;
	log->written_seq = log->last_seq;
	return -pthread_create(&log->writer, NULL, writer_run, log);
}

int mount_log_open(
	const char *directory, const struct mount_log_options *options, struct mount_log **ret_log)
{
	struct mount_log *log = calloc(1, sizeof(*log));
	int r;

	if (!log)
		return -ENOMEM;
	pthread_mutex_init(&log->lock, NULL);
	clock_cond_init(&log->work);
	pthread_cond_init(&log->room, NULL);
	pthread_cond_init(&log->written, NULL);
	log->directory.fd = log->directory.lock = -1;
	r = log_init(log, directory, options ? options : &(struct mount_log_options){0});
	if (r < 0) {
		log_free(log);
		return r;
	}
	*ret_log = log;
	return 0;
}

void mount_log_close(struct mount_log *log)
{
	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	log->stop = true;
	pthread_cond_signal(&log->work);
	pthread_mutex_unlock(&log->lock);
	pthread_join(log->writer, NULL);
	for (int i = 0; i < RINGS; i++)
		log_segments_end(log->rings[i].segments);
	log_free(log);
}
