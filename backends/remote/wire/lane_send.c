#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backends/remote/wire/lane_internal.h"

enum {
	UNACKED_MAX_BYTES = 32 << 20, /* sent, kept for a reconnect; then sending pauses */
	BATCH_FRAMES = 16,
	BATCH_BYTES = 512 << 10,
	PIECES = 8, /* in what may be under way */
	PIECE_MIN_BYTES = 8 << 10,
	SHRINK_MAX = PIECES, /* a piece that cannot be compressed then fills the window at most */
	COMPRESS_MIN_BYTES = 256,
	COMPRESS_MAX_BYTES = FRAME_PAYLOAD_MAX_BYTES - (16 << 10), /* it may become longer */
	UNHINDERED_MAX_BYTES = 4 << 20,                            /* compressed within ...*/
	UNHINDERED_US = 1000000,
	CALLER_BYTES = 1 << 20, /* what a sender writes itself before the writer thread continues */
	DRAIN_US = 500,         /* a pipe of that size is not empty sooner, nor full */
};

/* Frees the message, but may keep its buffer: fresh pages cost as much as filling them. */
static void retire(struct lane *lane, struct message *m)
{
	if (m->is_large && lane->free_count < FREE_BUFFERS_MAX)
		lane->free_buffers[lane->free_count++] = steal_ptr(&m->data);
	lane_message_free(m);
}

static void trim_unacked(struct lane *lane)
{
	struct pace_mark last = {0};
	size_t bytes = 0;

	while (lane->unacked.first && lane->unacked.first->sequence <= lane->peer_ack) {
		struct message *m = lane_queue_pop(&lane->unacked);

		bytes += m->wire_size;
		last = m->mark;
		retire(lane, m);
	}
	lane->under_way_bytes -= bytes;
	if (bytes)
		pace_arrived(&lane->pace, bytes, &last, lane_now_us());
}

static bool may_send(struct lane *lane, enum lane_priority priority)
{
	if (!lane->waiting[priority].first)
		return false;
	if (priority == LANE_URGENT ||
		pace_allows(&lane->pace, lane->under_way_bytes, lane_now_us()))
		return true;
	lane->unhindered_bytes = 0;
	return false;
}

/* Over a thin link one of bulk leaves in pieces, so that an urgent one waits for a piece at most.
 * If the last one was compressed to a fifth, the next piece is five times as long.
 * Without memory for a piece it leaves whole, or the writer thread tries again. */
static struct message *take_waiting(struct lane *lane, enum lane_priority priority)
{
	struct message_queue *q = &lane->waiting[priority];
	size_t most = lane->pace.window_bytes / PIECES, left;
	struct message *piece;

	most = most > PIECE_MIN_BYTES ? most : PIECE_MIN_BYTES;
	most *= lane->shrink > 1 ? lane->shrink : 1;
	left = q->first->size - FRAME_HEADER_BYTES - q->first->taken;
	if (left <= most && !q->first->taken)
		return lane_queue_pop(q);
	if (!q->first->taken && (priority == LANE_URGENT || !pace_is_thin(&lane->pace)))
		return lane_queue_pop(q);
	piece = lane_message_take(q->first, left < most ? left : most);
	if (!piece && !q->first->taken)
		return lane_queue_pop(q);
	lane->blocked = lane->blocked || !piece;
	if (piece && left <= most)
		lane_message_free(lane_queue_pop(q));
	return piece;
}

static struct message *next_to_send(struct lane *lane)
{
	struct message *m = lane_queue_pop(&lane->resend);

	if (m)
		return m;
	if (lane->waiting[LANE_URGENT].first && !lane->waiting[LANE_URGENT].first->counted)
		return lane_queue_pop(&lane->waiting[LANE_URGENT]);
	if (lane->unacked.bytes > UNACKED_MAX_BYTES)
		return NULL;
	for (enum lane_priority i = 0; i < LANE_PRIORITIES; i++)
		if (may_send(lane, i))
			return take_waiting(lane, i);
	return NULL;
}

static void stamp(struct lane *lane, struct message *m)
{
	struct frame_header header;

	if (m->counted && !m->sequence)
		m->sequence = ++lane->assigned;
	lane->acked_us = lane_now_us();
	pace_sent(&lane->pace, lane->under_way_bytes, lane->acked_us, &m->mark);
	if (m->counted)
		lane->under_way_bytes += m->wire_size;
	frame_header_decode(m->data, &header);
	header.size = (uint32_t)(m->wire_size - FRAME_HEADER_BYTES);
	header.flags |= m->packed ? FRAME_COMPRESSED : 0;
	header.ack = (uint32_t)lane->received;
	frame_header_encode(&header, m->packed ? m->packed : m->data);
	if (header.type == FRAME_ACK)
		lane->ack_queued = false;
	lane->pongs_queued -= header.type == FRAME_PONG;
	lane->unacked_received_bytes = 0;
	lane->unacked_received_frames = 0;
}

/* Where compressing takes longer than the link, nothing ever waits for the link: so little is
 * compressed then, until something does. */
static bool is_needed(struct lane *lane)
{
	uint64_t now_us = lane_now_us();

	if (now_us - lane->unhindered_since_us > UNHINDERED_US) {
		lane->unhindered_since_us = now_us;
		lane->unhindered_bytes = 0;
	}
	return pace_is_thin(&lane->pace) && lane->unhindered_bytes < UNHINDERED_MAX_BYTES;
}

static void note_shrink(struct lane *lane, const struct message *m)
{
	size_t shrink = m->size / m->wire_size;

	if (m->size >= PIECE_MIN_BYTES)
		lane->shrink = shrink < SHRINK_MAX ? (unsigned)shrink : SHRINK_MAX;
}

static bool is_to_be_compressed(struct lane *lane, const struct message *m)
{
	size_t size = m->size - FRAME_HEADER_BYTES;

	if (lane->compression == COMPRESSION_NONE || lane->compress_failed ||
		size < COMPRESS_MIN_BYTES || size > COMPRESS_MAX_BYTES)
		return false;
	if (lane->compression == COMPRESSION_AS_NEEDED && !is_needed(lane))
		return false;
	return compress_is_worth(m->data + FRAME_HEADER_BYTES, size);
}

/* Nobody else is in pump(), so the compressor and the message are ours.  After a failure the rest
 * of this connection is not compressed. */
static int pack(struct lane *lane, struct message *m)
{
	size_t size = m->size - FRAME_HEADER_BYTES;
	cleanup_wire_writer struct wire_writer out = {0};
	int r = lane->compressor ? 0 : compressor_new(&lane->compressor);

	lane_writer_init(&out);
	wire_put_number(&out, size);
	if (r == 0)
		r = out.error;
	if (r == 0)
		r = compressor_run(
			lane->compressor, m->data + FRAME_HEADER_BYTES, size, &out.buffer);
	if (r < 0)
		return r;
	m->wire_size = out.buffer.size;
	m->packed = steal_ptr(&out.buffer.data);
	return 0;
}

/* Under the lock, which it releases while it compresses. */
static struct message *next_to_write(struct lane *lane)
{
	struct message *m = next_to_send(lane);
	int r = 0;

	if (!m)
		return NULL;
	m->wire_size = m->size;
	if (is_to_be_compressed(lane, m)) {
		pthread_mutex_unlock(&lane->lock);
		r = pack(lane, m);
		pthread_mutex_lock(&lane->lock);
		lane->compress_failed = r < 0;
		lane->unhindered_bytes += m->size;
	}
	note_shrink(lane, m);
	stamp(lane, m);
	return m;
}

static int gather(struct lane *lane, struct iovec *vector)
{
	size_t count = 0, skip = lane->batch_offset;

	if (!lane->batch.first) {
		struct message *m;

		for (int i = 0; i < BATCH_FRAMES && lane->batch.bytes < BATCH_BYTES; i++) {
			m = next_to_write(lane);
			if (!m)
				break;
			lane_queue_push(&lane->batch, m);
			if (m->packed)
				break; /* send it before the next one is compressed */
		}
	}
	for (struct message *m = lane->batch.first; m; m = m->next) {
		vector[count++] = (struct iovec){
			(m->packed ? m->packed : m->data) + skip, m->wire_size - skip};
		skip = 0;
	}
	return (int)count;
}

static void account(struct lane *lane, size_t written)
{
	lane->bytes_sent += written;
	lane->batch_offset += written;
	while (lane->batch.first && lane->batch_offset >= lane->batch.first->wire_size) {
		struct message *m = lane_queue_pop(&lane->batch);

		lane->batch_offset -= m->wire_size;
		lane_message_drop_packed(m);
		if (m->counted)
			lane_queue_push(&lane->unacked, m);
		else
			lane_message_free(m);
	}
	trim_unacked(lane);
}

void lane_take_down(struct lane *lane)
{
	uint64_t one = 1;

	lane->up = false;
	pthread_cond_broadcast(&lane->writable);
	if (write(lane->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

void lane_report_lost(struct lane *lane, int error)
{
	bool first;

	pthread_mutex_lock(&lane->lock);
	first = lane->up;
	if (first)
		lane_take_down(lane);
	pthread_mutex_unlock(&lane->lock);
	if (first)
		lane->callbacks.lost(lane->user, error);
}

static bool has_packed(const struct lane *lane)
{
	for (const struct message *m = lane->batch.first; m; m = m->next)
		if (m->packed)
			return true;
	return false;
}

/* Writes what is queued until the descriptor is full.  Threads other than the writer stop after
 * CALLER_BYTES or one compressed frame, and wake the writer to go on: the thread that reads
 * acknowledgements would read them late if it compressed much, and the link would seem to be full.
 * Under the lock, which it releases while it writes.  -errno when the connection is broken: the
 * caller reports that by callbacks.lost, after releasing the lock. */
static int pump(struct lane *lane, bool is_writer)
{
	bool packed = false;
	size_t total = 0;
	int r = 0;

	lane->writing = true;
	while (lane->up && r == 0) {
		struct iovec vector[BATCH_FRAMES];
		ssize_t n;
		int count;

		if (!is_writer && (packed || total > CALLER_BYTES) && lane_has_work(lane)) {
			lane->blocked = true;
			break;
		}
		count = gather(lane, vector);
		if (count == 0)
			break;
		packed = has_packed(lane);
		pthread_mutex_unlock(&lane->lock);
		n = writev(lane->out_fd, vector, count);
		if (n < 0)
			r = errno == EINTR ? 0 : -errno;
		pthread_mutex_lock(&lane->lock);
		if (n >= 0) {
			account(lane, (size_t)n);
			total += (size_t)n;
		} else if (r == -EAGAIN) {
			lane->blocked = true;
			r = 0;
			break;
		}
	}
	lane->writing = false;
	/* Usually all of it is written, and no thread is to do anything. */
	if (lane->blocked || !lane->up)
		pthread_cond_broadcast(&lane->writable);
	if (!lane->up)
		return 0;
	if (r < 0)
		lane_take_down(lane);
	return r;
}

bool lane_has_work(const struct lane *lane)
{
	bool waits = false;

	for (int i = 0; i < LANE_PRIORITIES; i++)
		waits = waits || lane->waiting[i].first;
	return waits || lane->batch.first || lane->resend.first;
}

void lane_let_gather(const struct lane *lane)
{
	const struct timespec pause = {.tv_nsec = DRAIN_US * 1000};

	if (lane->has_room)
		nanosleep(&pause, NULL);
}

int lane_take_ack(struct lane *lane, uint32_t ack)
{
	uint64_t full;
	int r = 0, pumped = 0;

	pthread_mutex_lock(&lane->lock);
	full = lane->peer_ack + (uint32_t)(ack - (uint32_t)lane->peer_ack);
	if (full <= lane->assigned) {
		size_t before = lane->unacked.bytes;

		lane->peer_ack = full;
		trim_unacked(lane);
		if (lane->unacked.bytes < before && lane_has_work(lane) && lane->up &&
			!lane->writing && !lane->blocked)
			pumped = pump(lane, false);
	} else if ((int32_t)(ack - (uint32_t)lane->peer_ack) > 0) {
		r = -EPROTO;
	}
	pthread_mutex_unlock(&lane->lock);
	if (pumped < 0)
		lane->callbacks.lost(lane->user, pumped);
	return r;
}

void *lane_run_writer(void *user)
{
	struct lane *lane = user;
	int r = 0;

	pthread_mutex_lock(&lane->lock);
	while (lane->up && r == 0) {
		struct pollfd ready[2] = {{.fd = lane->out_fd, .events = POLLOUT},
			{.fd = lane->wake_fd, .events = POLLIN}};

		if (!lane->blocked || lane->writing) {
			pthread_cond_wait(&lane->writable, &lane->lock);
			continue;
		}
		pthread_mutex_unlock(&lane->lock);
		lane_let_gather(lane);
		poll(ready, 2, -1);
		pthread_mutex_lock(&lane->lock);
		lane->blocked = false;
		if (lane->up && !lane->writing)
			r = pump(lane, true);
	}
	pthread_mutex_unlock(&lane->lock);
	if (r < 0)
		lane->callbacks.lost(lane->user, r);
	return NULL;
}

void lane_writer_init(struct wire_writer *writer)
{
	static const uint8_t room[FRAME_HEADER_BYTES];

	*writer = (struct wire_writer){
		.buffer.limit_bytes = FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX_BYTES};
	wire_put_raw(writer, room, sizeof(room));
}

void lane_writer_enlarge(struct lane *lane, struct wire_writer *writer)
{
	struct buffer *buffer = &writer->buffer;
	uint8_t *data = NULL;

	pthread_mutex_lock(&lane->lock);
	if (lane->free_count)
		data = lane->free_buffers[--lane->free_count];
	pthread_mutex_unlock(&lane->lock);
	if (!data)
		data = malloc(LANE_LARGE_BYTES);
	if (!data)
		return;
	if (buffer->size)
		memcpy(data, buffer->data, buffer->size);
	free(buffer->data);
	buffer->data = data;
	buffer->capacity = LANE_LARGE_BYTES;
}

int lane_queue(struct lane *lane, enum lane_priority priority, enum frame_type type, uint32_t id,
	struct wire_writer *writer)
{
	struct message *m = NULL;
	int r = writer ? writer->error : 0;

	if (r == 0)
		r = lane_message_new(type, id, writer, LANE_LARGE_BYTES, &m);
	if (writer)
		wire_writer_done(writer);
	if (r < 0)
		return r;
	pthread_mutex_lock(&lane->lock);
	if (m->counted || lane->up) {
		lane_queue_push(&lane->waiting[priority], m);
		lane->pongs_queued += type == FRAME_PONG;
		m = NULL;
	}
	pthread_mutex_unlock(&lane->lock);
	lane_message_free(m);
	return 0;
}

void lane_push(struct lane *lane)
{
	int r = 0;

	pthread_mutex_lock(&lane->lock);
	if (lane->up && !lane->writing && !lane->blocked)
		r = pump(lane, false);
	pthread_mutex_unlock(&lane->lock);
	if (r < 0)
		lane->callbacks.lost(lane->user, r);
}

int lane_send(struct lane *lane, enum lane_priority priority, enum frame_type type, uint32_t id,
	struct wire_writer *writer)
{
	int r = lane_queue(lane, priority, type, id, writer);

	if (r == 0)
		lane_push(lane);
	return r;
}

size_t lane_withdraw_all(struct lane *lane, bool (*wanted)(void *user, uint32_t id), void *user)
{
	struct message_queue taken = {.last = &taken.first};
	size_t count = 0;

	pthread_mutex_lock(&lane->lock);
	for (int i = 0; i < LANE_PRIORITIES; i++)
		count += lane_queue_take_requests(&lane->waiting[i], wanted, user, &taken);
	pthread_mutex_unlock(&lane->lock);
	lane_queue_clear(&taken);
	return count;
}

static bool is_it(void *user, uint32_t id)
{
	return *(uint32_t *)user == id;
}

bool lane_withdraw(struct lane *lane, uint32_t id)
{
	return lane_withdraw_all(lane, is_it, &id) > 0;
}
