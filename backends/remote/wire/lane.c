#include "backends/remote/wire/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backends/remote/wire/lane_internal.h"
#include "ops/support/thread.h"

enum {
	PIPE_BYTES = 1 << 20,
	THREAD_STACK_BYTES = 256 << 10,
};

int lane_new(const struct lane_callbacks *callbacks, void *user, struct lane **ret_lane)
{
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return -ENOMEM;
	lane->callbacks = *callbacks;
	lane->user = user;
	lane->in_fd = lane->out_fd = lane->wake_fd = -1;
	pthread_mutex_init(&lane->lock, NULL);
	clock_cond_init(&lane->writable);
	for (int i = 0; i < LANE_PRIORITIES; i++)
		lane_queue_init(&lane->waiting[i]);
	lane_queue_init(&lane->resend);
	lane_queue_init(&lane->batch);
	lane_queue_init(&lane->unacked);
	pace_init(&lane->pace);
	*ret_lane = lane;
	return 0;
}

static void clear_sent(struct lane *lane)
{
	lane_queue_clear(&lane->resend);
	lane_queue_clear(&lane->batch);
	lane_queue_clear(&lane->unacked);
}

static void clear_waiting(struct lane *lane)
{
	for (int i = 0; i < LANE_PRIORITIES; i++)
		lane_queue_clear(&lane->waiting[i]);
}

void lane_free(struct lane *lane)
{
	if (!lane)
		return;
	clear_waiting(lane);
	clear_sent(lane);
	lane_forget_partials(lane);
	compressor_free(lane->compressor);
	while (lane->free_count)
		free(lane->free_buffers[--lane->free_count]);
	pthread_cond_destroy(&lane->writable);
	pthread_mutex_destroy(&lane->lock);
	free(lane);
}

void lane_reset(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	clear_sent(lane);
	for (int i = 0; i < LANE_PRIORITIES; i++)
		if (lane->waiting[i].first)
			lane->waiting[i].first->taken = 0;
	lane_forget_partials(lane);
	lane->batch_offset = lane->under_way_bytes = 0;
	lane->assigned = lane->peer_ack = lane->received = 0;
	lane->unacked_received_bytes = lane->unacked_received_frames = 0;
	lane->ack_queued = false;
	pthread_mutex_unlock(&lane->lock);
}

void lane_clear(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	clear_waiting(lane);
	lane->pongs_queued = 0;
	pthread_mutex_unlock(&lane->lock);
	lane_reset(lane);
}

/* Under the lock. */
static bool is_possible(const struct lane *lane, uint64_t peer_received)
{
	return peer_received <= lane->assigned && peer_received >= lane->peer_ack;
}

bool lane_can_resume(struct lane *lane, uint64_t peer_received)
{
	bool possible;

	pthread_mutex_lock(&lane->lock);
	possible = is_possible(lane, peer_received);
	pthread_mutex_unlock(&lane->lock);
	return possible;
}

/* All that was sent and not acknowledged, oldest first. */
static int prepare_resend(struct lane *lane, uint64_t peer_received)
{
	struct message_queue again;
	struct message_queue *const sources[] = {&lane->unacked, &lane->batch, &lane->resend};

	if (!is_possible(lane, peer_received))
		return -EPROTO;
	lane_queue_init(&again);
	lane->peer_ack = peer_received;
	for (size_t i = 0; i < array_size(sources); i++) {
		struct message *m;

		while ((m = lane_queue_pop(sources[i]))) {
			lane_message_drop_packed(m);
			if (m->counted && m->sequence > peer_received)
				lane_queue_push(&again, m);
			else
				lane_message_free(m);
		}
	}
	while (again.first)
		lane_queue_push(&lane->resend, lane_queue_pop(&again));
	lane->batch_offset = lane->under_way_bytes = 0;
	lane->ack_queued = false;
	return 0;
}

static int make_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static int start_threads(struct lane *lane)
{
	int r = thread_start(
		&lane->reader, "lane-reader", THREAD_STACK_BYTES, lane_run_reader, lane);

	if (r < 0)
		return r;
	r = thread_start(&lane->writer, "lane-writer", THREAD_STACK_BYTES, lane_run_writer, lane);
	if (r < 0) {
		lane_report_lost(lane, r);
		pthread_join(lane->reader, NULL);
	}
	return r;
}

static void close_descriptors(struct lane *lane)
{
	if (lane->out_fd != lane->in_fd)
		close(lane->out_fd);
	if (lane->in_fd >= 0)
		close(lane->in_fd);
	if (lane->wake_fd >= 0)
		close(lane->wake_fd);
	lane->in_fd = lane->out_fd = lane->wake_fd = -1;
}

/* Called when the lane has no threads of its own; a sender may still be writing. */
static void end_connection(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->up = false;
	while (lane->writing)
		pthread_cond_wait(&lane->writable, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
	compressor_free(lane->compressor);
	lane->compressor = NULL;
	lane->compress_failed = false;
	close_descriptors(lane);
}

static bool make_room(int fd)
{
	return fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES;
}

void lane_set_compression(struct lane *lane, enum compression compression)
{
	lane->compression = compress_is_built() ? compression : COMPRESSION_NONE;
}

void lane_refuse_compressed(struct lane *lane)
{
	lane->refuses_compressed = true;
}

int lane_attach(struct lane *lane, int in_fd, int out_fd, uint64_t peer_received)
{
	int r;

	lane_detach(lane);
	lane->in_fd = in_fd;
	lane->out_fd = out_fd;
	lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = lane->wake_fd < 0 ? -errno : make_nonblocking(in_fd);
	if (r == 0)
		r = make_nonblocking(out_fd);
	pthread_mutex_lock(&lane->lock);
	if (r == 0)
		r = prepare_resend(lane, peer_received);
	lane->up = r == 0;
	lane->has_room = make_room(in_fd) && make_room(out_fd);
	lane->blocked = lane_has_work(lane);
	pace_init(&lane->pace);
	lane->last_receive_ms = clock_now_ms();
	pthread_mutex_unlock(&lane->lock);
	if (r == 0)
		r = start_threads(lane);
	if (r < 0) {
		end_connection(lane);
		return r;
	}
	lane->attached = true;
	return 0;
}

void lane_detach(struct lane *lane)
{
	if (!lane->attached)
		return;
	pthread_mutex_lock(&lane->lock);
	lane_take_down(lane);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->reader, NULL);
	pthread_join(lane->writer, NULL);
	lane->attached = false;
	end_connection(lane);
}

/* ---- State ------------------------------------------------------------------------ */

uint64_t lane_received_count(struct lane *lane)
{
	uint64_t received;

	pthread_mutex_lock(&lane->lock);
	received = lane->received;
	pthread_mutex_unlock(&lane->lock);
	return received;
}

int64_t lane_silence_ms(struct lane *lane)
{
	return clock_now_ms() - lane->last_receive_ms;
}

/* Under the lock. */
static size_t waiting_bytes(const struct lane *lane)
{
	size_t bytes = 0;

	for (int i = 0; i < LANE_PRIORITIES; i++)
		bytes += lane->waiting[i].bytes;
	return bytes;
}

size_t lane_waiting_bytes(struct lane *lane)
{
	size_t bytes;

	pthread_mutex_lock(&lane->lock);
	bytes = waiting_bytes(lane);
	pthread_mutex_unlock(&lane->lock);
	return bytes;
}

size_t lane_window_bytes(struct lane *lane)
{
	size_t bytes;

	pthread_mutex_lock(&lane->lock);
	bytes = lane->pace.window_bytes;
	pthread_mutex_unlock(&lane->lock);
	return bytes;
}

size_t lane_unacked_bytes(struct lane *lane)
{
	size_t bytes;

	pthread_mutex_lock(&lane->lock);
	bytes = waiting_bytes(lane) + lane->under_way_bytes;
	pthread_mutex_unlock(&lane->lock);
	return bytes;
}

int64_t lane_quickest_ms(struct lane *lane)
{
	uint64_t us;

	pthread_mutex_lock(&lane->lock);
	us = lane->pace.quickest_us;
	pthread_mutex_unlock(&lane->lock);
	return (int64_t)(us / 1000);
}

void lane_count(struct lane *lane, struct lane_counters *ret_counters)
{
	ret_counters->bytes_sent = lane->bytes_sent;
	ret_counters->bytes_received = lane->bytes_received;
}
