#include "backends/remote/wire/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "backends/remote/wire/pace.h"
#include "ops/support/clock.h"

enum {
	UNACKED_MAX_BYTES = 32 << 20, /* sent, kept for a reconnect; then sending pauses */
	ACK_AFTER_FRAMES = 64,        /* acknowledged at once, as is ... */
	ACK_AFTER_BYTES = 1 << 20,
	ACK_MANY_BYTES = 128 << 10, /* so much is after ACK_MANY_US ... */
	ACK_MANY_US = 2000,
	ACK_SOME_BYTES = 8 << 10, /* and so much after ACK_SOME_US */
	ACK_SOME_US = 10000,
	BATCH_FRAMES = 16,
	BATCH_BYTES = 512 << 10,
	CALLER_BYTES = 1 << 20, /* what a sender writes itself before the writer thread goes on */
	RECEIVE_BYTES = 64 << 10,
	PIPE_BYTES = 1 << 20,
	DRAIN_US = 500, /* a pipe of that size is not empty sooner, nor full */
	NOT_READY_MS = 5,
	PONGS_MAX = 256, /* that wait for a peer who asks and asks but reads nothing */
	THREAD_STACK_BYTES = 256 << 10,
	MESSAGE_COST_BYTES = 96, /* beside its data */
	SLACK_BYTES = 512,       /* more room than a message needs is given back */
	SPARES_MAX = 16,
};

struct message {
	struct message *next;
	uint64_t sequence; /* 0: not counted, or not yet on its way */
	uint8_t *data;     /* header and payload */
	size_t size;
	bool counted;
	bool is_large; /* `data` has room for LANE_LARGE_BYTES */
	struct pace_mark mark;
};

struct queue {
	struct message *first, **last;
	size_t bytes; /* of memory, about */
};

struct lane {
	struct lane_callbacks callbacks;
	void *user;

	pthread_mutex_t lock;
	pthread_cond_t writable;               /* the writer thread waits here, and lane_drain() */
	struct queue waiting[LANE_PRIORITIES]; /* never sent */
	struct queue resend;                   /* sent on an earlier connection */
	struct queue batch; /* being written; the first `batch_offset` bytes are out */
	size_t batch_offset;
	struct queue unacked; /* written, in order of sequence */
	uint64_t assigned;    /* last sequence given out */
	uint64_t peer_ack;
	uint64_t received;
	size_t unacked_received_bytes, unacked_received_frames; /* not yet told to the peer ... */
	uint64_t told_us;                                       /* ... who heard of others then */
	bool ack_queued;
	struct pace pace;
	unsigned pongs_queued;
	uint8_t *spares[SPARES_MAX]; /* of large messages that have arrived */
	size_t spare_count;

	bool attached;  /* threads exist */
	atomic_bool up; /* the connection works as far as we know; changed under the lock */
	bool writing;   /* somebody is in pump() */
	bool blocked;   /* the writer thread is to wait for the descriptor */
	bool has_room;  /* the descriptors are large pipes */
	int in_fd, out_fd, wake_fd;
	pthread_t reader, writer;

	atomic_int_fast64_t last_receive_ms;
	atomic_uint_fast64_t bytes_sent, bytes_received;
};

/* ---- Queues ----------------------------------------------------------------- */

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
	q->bytes = 0;
}

static void queue_push(struct queue *q, struct message *m)
{
	m->next = NULL;
	*q->last = m;
	q->last = &m->next;
	q->bytes += m->size + MESSAGE_COST_BYTES;
}

static struct message *queue_pop(struct queue *q)
{
	struct message *m = q->first;

	if (!m)
		return NULL;
	q->first = m->next;
	if (!q->first)
		q->last = &q->first;
	q->bytes -= m->size + MESSAGE_COST_BYTES;
	return m;
}

static void message_free(struct message *m)
{
	if (m)
		free(m->data);
	free(m);
}

/* Moves the requests that are wanted to `taken`; returns how many. */
static size_t queue_take_requests(
	struct queue *q, bool (*wanted)(void *user, uint32_t id), void *user, struct queue *taken)
{
	struct message **link = &q->first;
	size_t count = 0;

	while (*link) {
		struct message *m = *link;
		struct frame_header header;

		frame_header_decode(m->data, &header);
		if (header.type < REQUEST_FIRST || !wanted(user, header.id)) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		q->bytes -= m->size + MESSAGE_COST_BYTES;
		queue_push(taken, m);
		count++;
	}
	q->last = link;
	return count;
}

static void queue_clear(struct queue *q)
{
	struct message *m;

	while ((m = queue_pop(q)))
		message_free(m);
}

/* ---- Sending ------------------------------------------------------------------ */

static uint64_t now_us(void)
{
	return clock_now_ns() / 1000;
}

/* Frees the message, but not all of its memory: fresh pages cost as much as what fills them. */
static void retire(struct lane *lane, struct message *m)
{
	if (m->is_large && lane->spare_count < SPARES_MAX)
		lane->spares[lane->spare_count++] = steal_ptr(&m->data);
	message_free(m);
}

static void trim_unacked(struct lane *lane)
{
	struct pace_mark last = {0};
	size_t bytes = 0;

	while (lane->unacked.first && lane->unacked.first->sequence <= lane->peer_ack) {
		struct message *m = queue_pop(&lane->unacked);

		bytes += m->size;
		last = m->mark;
		retire(lane, m);
	}
	if (bytes)
		pace_arrived(&lane->pace, bytes, &last, now_us());
}

static size_t under_way_bytes(const struct lane *lane)
{
	return lane->unacked.bytes + lane->batch.bytes;
}

static bool may_send(struct lane *lane, enum lane_priority priority)
{
	return lane->waiting[priority].first &&
	       (priority == LANE_URGENT || pace_allows(&lane->pace, under_way_bytes(lane),
						   priority == LANE_GUESS, now_us()));
}

static struct message *next_to_send(struct lane *lane)
{
	struct message *m = queue_pop(&lane->resend);

	if (m)
		return m;
	if (lane->waiting[LANE_URGENT].first && !lane->waiting[LANE_URGENT].first->counted)
		return queue_pop(&lane->waiting[LANE_URGENT]);
	if (lane->unacked.bytes > UNACKED_MAX_BYTES)
		return NULL;
	for (enum lane_priority i = 0; i < LANE_PRIORITIES; i++)
		if (may_send(lane, i))
			return queue_pop(&lane->waiting[i]);
	return NULL;
}

static void stamp(struct lane *lane, struct message *m)
{
	struct frame_header header;

	if (m->counted && !m->sequence)
		m->sequence = ++lane->assigned;
	lane->told_us = now_us();
	pace_sent(&lane->pace, under_way_bytes(lane), lane->told_us, &m->mark);
	frame_header_decode(m->data, &header);
	header.ack = (uint32_t)lane->received;
	frame_header_encode(&header, m->data);
	if (header.type == FRAME_ACK)
		lane->ack_queued = false;
	lane->pongs_queued -= header.type == FRAME_PONG;
	lane->unacked_received_bytes = 0;
	lane->unacked_received_frames = 0;
}

static int gather(struct lane *lane, struct iovec *vector)
{
	size_t count = 0, skip = lane->batch_offset;

	if (!lane->batch.first) {
		struct message *m;

		for (int i = 0; i < BATCH_FRAMES && lane->batch.bytes < BATCH_BYTES; i++) {
			m = next_to_send(lane);
			if (!m)
				break;
			stamp(lane, m);
			queue_push(&lane->batch, m);
		}
	}
	for (struct message *m = lane->batch.first; m; m = m->next) {
		vector[count++] = (struct iovec){m->data + skip, m->size - skip};
		skip = 0;
	}
	return (int)count;
}

static void account(struct lane *lane, size_t written)
{
	lane->bytes_sent += written;
	lane->batch_offset += written;
	while (lane->batch.first && lane->batch_offset >= lane->batch.first->size) {
		struct message *m = queue_pop(&lane->batch);

		lane->batch_offset -= m->size;
		if (m->counted)
			queue_push(&lane->unacked, m);
		else
			message_free(m);
	}
	trim_unacked(lane);
}

/* Wakes both threads of the connection.  Under the lock. */
static void take_down(struct lane *lane)
{
	uint64_t one = 1;

	lane->up = false;
	pthread_cond_broadcast(&lane->writable);
	if (write(lane->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

static void report_lost(struct lane *lane, int error)
{
	bool first;

	pthread_mutex_lock(&lane->lock);
	first = lane->up;
	if (first)
		take_down(lane);
	pthread_mutex_unlock(&lane->lock);
	if (first)
		lane->callbacks.lost(lane->user, error);
}

/* Writes what there is until the descriptor is full.  Under the lock, which it drops while
 * it writes.  -errno when it found the connection broken: the caller reports that with
 * callbacks.lost, once it has dropped the lock. */
static int pump(struct lane *lane, size_t bytes_max)
{
	size_t total = 0;
	int r = 0;

	lane->writing = true;
	while (lane->up && r == 0) {
		struct iovec vector[BATCH_FRAMES];
		int count = gather(lane, vector);
		ssize_t n;

		if (count == 0)
			break;
		if (total > bytes_max) {
			lane->blocked = true;
			break;
		}
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
	pthread_cond_broadcast(&lane->writable);
	if (!lane->up)
		return 0;
	if (r < 0)
		take_down(lane);
	return r;
}

static bool has_work(const struct lane *lane)
{
	bool waits = false;

	for (int i = 0; i < LANE_PRIORITIES; i++)
		waits = waits || lane->waiting[i].first;
	return waits || lane->batch.first || lane->resend.first;
}

/* ssh takes and gives some 16 KiB at a time: to be woken for each would cost more than to move
 * the bytes. */
static void let_gather(const struct lane *lane)
{
	const struct timespec pause = {.tv_nsec = DRAIN_US * 1000};

	if (lane->has_room)
		nanosleep(&pause, NULL);
}

static void *run_writer(void *user)
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
		let_gather(lane);
		poll(ready, 2, -1);
		pthread_mutex_lock(&lane->lock);
		lane->blocked = false;
		if (lane->up && !lane->writing)
			r = pump(lane, SIZE_MAX);
	}
	pthread_mutex_unlock(&lane->lock);
	if (r < 0)
		lane->callbacks.lost(lane->user, r);
	return NULL;
}

/* A message may wait for long, and what waits is bounded by its size: an answer that turned out
 * much smaller than what was asked for must not keep the room for that. */
static void take_data(struct message *m, struct buffer *buffer)
{
	uint8_t *smaller = NULL;

	m->size = buffer->size;
	m->data = steal_ptr(&buffer->data);
	if (buffer->capacity > 2 * buffer->size + SLACK_BYTES)
		smaller = realloc(m->data, m->size);
	if (smaller)
		m->data = smaller;
	else
		m->is_large = buffer->capacity == LANE_LARGE_BYTES;
}

static int message_new(
	enum frame_type type, uint32_t id, struct wire_writer *writer, struct message **ret_message)
{
	struct message *m = calloc(1, sizeof(*m));
	struct frame_header header = {.type = (uint8_t)type, .id = id};

	if (!m)
		return -ENOMEM;
	m->counted = type >= FRAME_FIRST_COUNTED;
	if (writer) {
		take_data(m, &writer->buffer);
		header.size = (uint32_t)(m->size - FRAME_HEADER_BYTES);
		*writer = (struct wire_writer){0};
	} else {
		m->data = malloc(FRAME_HEADER_BYTES);
		m->size = FRAME_HEADER_BYTES;
	}
	if (!m->data) {
		free(m);
		return -ENOMEM;
	}
	frame_header_encode(&header, m->data);
	*ret_message = m;
	return 0;
}

static void start_writer(struct wire_writer *writer, uint8_t *spare)
{
	static const uint8_t room[FRAME_HEADER_BYTES];

	*writer = (struct wire_writer){
		.buffer = {.data = spare,
			.capacity = spare ? LANE_LARGE_BYTES : 0,
			.limit_bytes = FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX_BYTES}};
	wire_put_raw(writer, room, sizeof(room));
}

void lane_writer_init(struct wire_writer *writer)
{
	start_writer(writer, NULL);
}

void lane_writer_init_large(struct lane *lane, struct wire_writer *writer)
{
	uint8_t *spare = NULL;

	pthread_mutex_lock(&lane->lock);
	if (lane->spare_count)
		spare = lane->spares[--lane->spare_count];
	pthread_mutex_unlock(&lane->lock);
	start_writer(writer, spare);
	if (writer->error == 0)
		writer->error =
			buffer_reserve(&writer->buffer, LANE_LARGE_BYTES - FRAME_HEADER_BYTES);
}

int lane_queue(struct lane *lane, enum lane_priority priority, enum frame_type type, uint32_t id,
	struct wire_writer *writer)
{
	struct message *m = NULL;
	int r = writer ? writer->error : 0;

	if (r == 0)
		r = message_new(type, id, writer, &m);
	if (writer)
		wire_writer_done(writer);
	if (r < 0)
		return r;
	pthread_mutex_lock(&lane->lock);
	if (m->counted || lane->up) {
		queue_push(&lane->waiting[priority], m);
		lane->pongs_queued += type == FRAME_PONG;
		m = NULL;
	}
	pthread_mutex_unlock(&lane->lock);
	message_free(m);
	return 0;
}

void lane_push(struct lane *lane)
{
	int r = 0;

	pthread_mutex_lock(&lane->lock);
	if (lane->up && !lane->writing && !lane->blocked)
		r = pump(lane, CALLER_BYTES);
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
	struct queue taken = {.last = &taken.first};
	size_t count = 0;

	pthread_mutex_lock(&lane->lock);
	for (int i = 0; i < LANE_PRIORITIES; i++)
		count += queue_take_requests(&lane->waiting[i], wanted, user, &taken);
	pthread_mutex_unlock(&lane->lock);
	queue_clear(&taken);
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

/* ---- Receiving ------------------------------------------------------------------ */

struct receiver {
	uint8_t data[RECEIVE_BYTES];
	size_t start, end;
};

/* How long what was received may go without an acknowledgement; -1: for ever.  Under the lock. */
static int64_t ack_due_us(const struct lane *lane)
{
	uint64_t since_us = now_us() - lane->told_us, patience_us;

	if (lane->ack_queued || lane->unacked_received_bytes < ACK_SOME_BYTES)
		return lane->unacked_received_frames > ACK_AFTER_FRAMES && !lane->ack_queued ? 0
											     : -1;
	if (lane->unacked_received_bytes > ACK_AFTER_BYTES ||
		lane->unacked_received_frames > ACK_AFTER_FRAMES)
		return 0;
	patience_us = lane->unacked_received_bytes < ACK_MANY_BYTES ? ACK_SOME_US : ACK_MANY_US;
	return since_us < patience_us ? (int64_t)(patience_us - since_us) : 0;
}

/* Tells the peer what has arrived, if that is due.  Returns in how many ms it will be; -1: in
 * none. */
static int acknowledge(struct lane *lane)
{
	int64_t due_us;

	pthread_mutex_lock(&lane->lock);
	due_us = ack_due_us(lane);
	if (due_us == 0)
		lane->ack_queued = true;
	pthread_mutex_unlock(&lane->lock);
	if (due_us != 0)
		return due_us < 0 ? -1 : (int)(due_us / 1000) + 1;
	lane_send(lane, LANE_URGENT, FRAME_ACK, 0, NULL);
	return -1;
}

/* Waits for input or for the end of the lane.  Returns the count, 0 at end of file. */
static ssize_t receive_some(struct lane *lane, void *data, size_t size, bool is_bulk)
{
	struct pollfd ready[2] = {
		{.fd = lane->in_fd, .events = POLLIN}, {.fd = lane->wake_fd, .events = POLLIN}};

	while (lane->up) {
		ssize_t n = read(lane->in_fd, data, size);

		if (n > 0) {
			lane->bytes_received += (uint64_t)n;
			lane->last_receive_ms = clock_now_ms();
		}
		if (n >= 0)
			return n;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (is_bulk)
			let_gather(lane);
		poll(ready, 2, acknowledge(lane));
	}
	return -ECANCELED;
}

static int receive_exactly(struct lane *lane, struct receiver *in, uint8_t *out, size_t size)
{
	while (size > 0) {
		size_t have = in->end - in->start;
		ssize_t n;

		if (have > 0) {
			have = have < size ? have : size;
			memcpy(out, in->data + in->start, have);
			in->start += have;
			out += have;
			size -= have;
			continue;
		}
		in->start = in->end = 0;
		n = size >= sizeof(in->data)
			    ? receive_some(lane, out, size, true)
			    : receive_some(lane, in->data, sizeof(in->data), false);
		if (n == 0)
			return -EPIPE;
		if (n < 0)
			return (int)n;
		if (size >= sizeof(in->data)) {
			out += n;
			size -= (size_t)n;
		} else {
			in->end = (size_t)n;
		}
	}
	return 0;
}

/* The header says how many of our frames the peer has. */
static int take_ack(struct lane *lane, uint32_t ack)
{
	uint64_t full;
	int r = 0, pumped = 0;

	pthread_mutex_lock(&lane->lock);
	full = lane->peer_ack + (uint32_t)(ack - (uint32_t)lane->peer_ack);
	if (full <= lane->assigned) {
		size_t before = lane->unacked.bytes;

		lane->peer_ack = full;
		trim_unacked(lane);
		if (lane->unacked.bytes < before && has_work(lane) && lane->up && !lane->writing &&
			!lane->blocked)
			pumped = pump(lane, CALLER_BYTES);
	} else if ((int32_t)(ack - (uint32_t)lane->peer_ack) > 0) {
		r = -EPROTO;
	}
	pthread_mutex_unlock(&lane->lock);
	if (pumped < 0)
		lane->callbacks.lost(lane->user, pumped);
	return r;
}

static void count_received(struct lane *lane, const struct frame_header *header)
{
	pthread_mutex_lock(&lane->lock);
	lane->received++;
	lane->unacked_received_bytes += header->size;
	lane->unacked_received_frames++;
	pthread_mutex_unlock(&lane->lock);
	acknowledge(lane);
}

static int answer_ping(struct lane *lane, uint32_t id)
{
	bool too_many;

	pthread_mutex_lock(&lane->lock);
	too_many = lane->pongs_queued >= PONGS_MAX;
	pthread_mutex_unlock(&lane->lock);
	return too_many ? -EPROTO : lane_send(lane, LANE_URGENT, FRAME_PONG, id, NULL);
}

/* Meanwhile nothing is read, and perhaps nothing may be written: only so is an end seen. */
static int wait_until_ready(struct lane *lane)
{
	struct pollfd stop[2] = {
		{.fd = lane->wake_fd, .events = POLLIN}, {.fd = lane->out_fd, .events = 0}};

	while (lane->callbacks.ready && lane->up && !lane->callbacks.ready(lane->user)) {
		poll(stop, 2, NOT_READY_MS);
		if (stop[1].revents)
			return -EPIPE;
	}
	return 0;
}

static int receive_frame(struct lane *lane, struct receiver *in)
{
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header header;
	cleanup_free uint8_t *payload = NULL;
	int r;

	r = wait_until_ready(lane);
	if (r == 0)
		r = receive_exactly(lane, in, bytes, sizeof(bytes));
	if (r == 0)
		r = frame_header_decode(bytes, &header);
	if (r == 0)
		r = take_ack(lane, header.ack);
	if (r < 0)
		return r;
	payload = malloc((size_t)header.size + 1);
	if (!payload)
		return -ENOMEM;
	payload[header.size] = '\0';
	r = receive_exactly(lane, in, payload, header.size);
	if (r < 0)
		return r;
	if (header.type == FRAME_PING)
		return answer_ping(lane, header.id);
	if (header.type == FRAME_ACK || header.type == FRAME_PONG)
		return 0;
	r = lane->callbacks.received(lane->user, &header, steal_ptr(&payload));
	/* Without memory it has not arrived, and is sent again. */
	if (header.type >= FRAME_FIRST_COUNTED && r != -ENOMEM)
		count_received(lane, &header);
	return r;
}

static void *run_reader(void *user)
{
	struct lane *lane = user;
	struct receiver *in = malloc(sizeof(*in));
	int r = in ? 0 : -ENOMEM;

	if (in)
		in->start = in->end = 0;
	while (r >= 0)
		r = receive_frame(lane, in);
	free(in);
	report_lost(lane, r);
	return NULL;
}

/* ---- Life ------------------------------------------------------------------------ */

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
		queue_init(&lane->waiting[i]);
	queue_init(&lane->resend);
	queue_init(&lane->batch);
	queue_init(&lane->unacked);
	pace_init(&lane->pace);
	*ret_lane = lane;
	return 0;
}

static void clear_sent(struct lane *lane)
{
	queue_clear(&lane->resend);
	queue_clear(&lane->batch);
	queue_clear(&lane->unacked);
}

static void clear_waiting(struct lane *lane)
{
	for (int i = 0; i < LANE_PRIORITIES; i++)
		queue_clear(&lane->waiting[i]);
}

void lane_free(struct lane *lane)
{
	if (!lane)
		return;
	clear_waiting(lane);
	clear_sent(lane);
	while (lane->spare_count)
		free(lane->spares[--lane->spare_count]);
	pthread_cond_destroy(&lane->writable);
	pthread_mutex_destroy(&lane->lock);
	free(lane);
}

void lane_reset(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	clear_sent(lane);
	lane->batch_offset = 0;
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

/* All that was ever sent and is not known to have arrived, oldest first. */
static int prepare_resend(struct lane *lane, uint64_t peer_received)
{
	struct queue again;
	struct queue *const sources[] = {&lane->unacked, &lane->batch, &lane->resend};

	if (peer_received > lane->assigned || peer_received < lane->peer_ack)
		return -EPROTO;
	queue_init(&again);
	lane->peer_ack = peer_received;
	for (size_t i = 0; i < array_size(sources); i++) {
		struct message *m;

		while ((m = queue_pop(sources[i]))) {
			if (m->counted && m->sequence > peer_received)
				queue_push(&again, m);
			else
				message_free(m);
		}
	}
	while (again.first)
		queue_push(&lane->resend, queue_pop(&again));
	lane->batch_offset = 0;
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
	pthread_attr_t attributes;
	sigset_t all, before;
	int r;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	r = -pthread_create(&lane->reader, &attributes, run_reader, lane);
	if (r == 0) {
		r = -pthread_create(&lane->writer, &attributes, run_writer, lane);
		if (r < 0) {
			report_lost(lane, r);
			pthread_join(lane->reader, NULL);
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
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

static bool make_room(int fd)
{
	return fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES;
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
	lane->blocked = has_work(lane);
	pace_init(&lane->pace);
	lane->last_receive_ms = clock_now_ms();
	pthread_mutex_unlock(&lane->lock);
	if (r == 0)
		r = start_threads(lane);
	if (r < 0) {
		close_descriptors(lane);
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
	take_down(lane);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->reader, NULL);
	pthread_join(lane->writer, NULL);
	pthread_mutex_lock(&lane->lock);
	while (lane->writing)
		pthread_cond_wait(&lane->writable, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
	lane->attached = false;
	close_descriptors(lane);
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

size_t lane_waiting_bytes(struct lane *lane)
{
	size_t bytes = 0;

	pthread_mutex_lock(&lane->lock);
	for (int i = 0; i < LANE_PRIORITIES; i++)
		bytes += lane->waiting[i].bytes;
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

void lane_count(struct lane *lane, struct lane_counters *ret_counters)
{
	ret_counters->bytes_sent = lane->bytes_sent;
	ret_counters->bytes_received = lane->bytes_received;
}
