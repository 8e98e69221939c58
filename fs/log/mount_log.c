#include "fs/log/mount_log_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/callers.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/log_segment.h"
#include "ops/support/thread.h"

enum {
	LIMIT_DEFAULT_BYTES = 192 << 20,
	KEEP_DEFAULT_BYTES = 64 << 20,
	QUEUE_READS_BYTES = LOG_QUEUE_BYTES / 4 * 3, /* above this, reads are dropped */
};

/* ---- The request's side ------------------------------------------------------ */

static const char *not_empty(const char *text)
{
	return *text ? text : NULL;
}

/* Collects the strings of a record in the order of enum log_string. */
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
	strings[LOG_RESULT] = NULL;
	strings[LOG_DETAIL] = record->detail;
}

/* Reserves `size` bytes of the queue; waits for room if it is a mutation.  Called with the lock
 * held.  NULL: drop the record. */
static uint8_t *take_room(struct mount_log *log, size_t size, bool is_mutation)
{
	uint8_t *room;

	if (!is_mutation && log->filling.used + size > QUEUE_READS_BYTES)
		return NULL;
	while (log->filling.used + size > LOG_QUEUE_BYTES) {
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
		log_record_copy(room, queued, strings);
		log->stats.records++;
		log->stats.errors += is_error;
	} else {
		log->stats.dropped++;
		log->unreported++;
	}
	if (log->idle || (log->filling.used > LOG_QUEUE_HURRY_BYTES && !log->hurry)) {
		wake = true;
		log->hurry = log->filling.used > LOG_QUEUE_HURRY_BYTES;
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

void mount_log_look_up(struct mount_log *log, pid_t pid, uint64_t start_ns)
{
	struct caller caller;

	if (!log)
		return;
	callers_find(log->callers, pid, start_ns, &caller);
	caller_done(&caller);
}

uint64_t mount_log_record(struct mount_log *log, const struct log_record *record)
{
	struct queued_record queued = {.record = *record};
	const char *strings[LOG_STRINGS];
	struct caller caller;
	uint64_t seq;

	if (!log)
		return 0;
	if (record->call_id)
		callers_find_by_id(log->callers, record->pid, record->call_id, &caller);
	else
		callers_find(log->callers, record->pid, record->start_ns, &caller);
	queued.pid = caller.pid;
	memcpy(queued.process, caller.name, sizeof(queued.process));
	gather(record, caller.call, strings);
	log_record_measure(&queued, strings);
	seq = enqueue(log, &queued, strings);
	if (caller.call && seq)
		note_last_seq(caller.call, seq);
	caller_done(&caller);
	return seq;
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
		log_warning("cannot use the sealing key beside \"%s\" (%s), continuing without: "
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
	log->filling.data = malloc(LOG_QUEUE_BYTES);
	log->draining.data = malloc(LOG_QUEUE_BYTES);
	if (!log->path || !log->filling.data || !log->draining.data)
		return -ENOMEM;
	r = callers_new(&log->callers);
	if (r < 0)
		return r;
	log->is_required = options->is_required;
	log->removed = options->removed;
	r = log_directory_open(&log->directory, directory, "lock");
	if (r == 0)
		r = open_rings(log, options);
	if (r < 0)
		return r;
	log->written_seq = log->last_seq;
	return thread_start(&log->writer, "log", 0, log_writer_run, log);
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
	/* The ring of all is read first: where it has ended, so have the others. */
	for (int i = RINGS; i-- > 0;)
		log_segments_end(log->rings[i].segments);
	log_free(log);
}
