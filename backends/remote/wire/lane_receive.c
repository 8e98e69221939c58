#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/wire/lane_internal.h"

enum {
	ACK_AFTER_FRAMES = 64, /* acknowledged at once, as is ... */
	ACK_AFTER_BYTES = 1 << 20,
	ACK_MANY_BYTES = 128 << 10, /* this much after ACK_MANY_US ... */
	ACK_MANY_US = 2000,
	ACK_SOME_BYTES = 8 << 10, /* and this much after ACK_SOME_US */
	ACK_SOME_US = 10000,
	RECEIVE_BYTES = 64 << 10,
	NOT_READY_MS = 5,
	PONGS_MAX = 256, /* that wait for a peer that pings but reads nothing */
};

/* Of one connection. */
struct receiver {
	struct decompressor *decompressor;
	uint8_t data[RECEIVE_BYTES];
	size_t start, end;
	struct buffer piece; /* its memory is for the next piece: new pages are dear */
};

/* How long what was received may go without an acknowledgement; -1: for ever.  Under the lock. */
static int64_t ack_due_us(const struct lane *lane)
{
	uint64_t since_us = lane_now_us() - lane->acked_us, patience_us;

	if (lane->ack_queued || lane->unacked_received_bytes < ACK_SOME_BYTES)
		return lane->unacked_received_frames > ACK_AFTER_FRAMES && !lane->ack_queued ? 0
											     : -1;
	if (lane->unacked_received_bytes > ACK_AFTER_BYTES ||
		lane->unacked_received_frames > ACK_AFTER_FRAMES)
		return 0;
	patience_us = lane->unacked_received_bytes < ACK_MANY_BYTES ? ACK_SOME_US : ACK_MANY_US;
	return since_us < patience_us ? (int64_t)(patience_us - since_us) : 0;
}

/* Sends an acknowledgement, if it is due.  Returns in how many ms it will be; -1: never. */
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
			lane_let_gather(lane);
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

static void count_received(struct lane *lane, size_t wire_bytes)
{
	pthread_mutex_lock(&lane->lock);
	lane->received++;
	lane->unacked_received_bytes += wire_bytes;
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

/* Meanwhile nothing is read, and perhaps nothing can be written, so that only polling shows the
 * end. */
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

/* Memory for a payload and a NUL behind it; NULL: there is none. */
static uint8_t *take_memory(struct receiver *in, size_t size)
{
	size_t capacity = in->piece.capacity;

	/* What is much smaller would keep more than it needs. */
	if (capacity <= size || capacity / 2 > size)
		return malloc(size + 1);
	in->piece.capacity = 0;
	return steal_ptr(&in->piece.data);
}

static void give_memory(struct receiver *in, uint8_t *payload, size_t size)
{
	buffer_done(&in->piece);
	in->piece = (struct buffer){.data = payload, .capacity = size + 1};
}

/* Turns the payload into what was compressed; the header then has the size of that. */
static int unpack(
	struct lane *lane, struct receiver *in, struct frame_header *header, uint8_t **payload)
{
	struct wire_reader r = wire_reader_over(*payload, header->size);
	size_t size = wire_get_number_max(&r, FRAME_PAYLOAD_MAX_BYTES);
	cleanup_free uint8_t *whole = NULL;
	int result = r.failed || lane->refuses_compressed ? -EPROTO : 0;

	if (result == 0 && !in->decompressor)
		result = decompressor_new(&in->decompressor);
	if (result < 0)
		return result;
	whole = take_memory(in, size);
	if (!whole)
		return -ENOMEM;
	result = decompressor_run(
		in->decompressor, r.data + r.offset, wire_reader_left(&r), whole, size);
	if (result < 0)
		return result;
	whole[size] = '\0';
	free(*payload);
	*payload = steal_ptr(&whole);
	header->size = (uint32_t)size;
	return 0;
}

void lane_forget_partials(struct lane *lane)
{
	for (size_t i = 0; i < PARTIALS_MAX; i++) {
		buffer_done(&lane->partials[i].payload);
		lane->partials[i] = (struct partial){0};
	}
}

/* That to which the frame belongs; NULL: it is whole, or one piece too many. */
static struct partial *partial_of(struct lane *lane, const struct frame_header *header)
{
	for (size_t i = 0; i < PARTIALS_MAX; i++) {
		struct partial *p = &lane->partials[i];

		if (p->type == header->type && p->id == header->id)
			return p;
	}
	for (size_t i = 0; i < PARTIALS_MAX && (header->flags & FRAME_HAS_MORE); i++)
		if (!lane->partials[i].type)
			return &lane->partials[i];
	return NULL;
}

/* Without memory this piece comes again. */
static int deliver_whole(struct lane *lane, struct partial *p, size_t before)
{
	struct frame_header whole = {
		.type = p->type, .id = p->id, .size = (uint32_t)p->payload.size};
	uint8_t *copy = malloc((size_t)whole.size + 1);
	int r = -ENOMEM;

	if (copy) {
		memcpy(copy, p->payload.data, (size_t)whole.size + 1);
		r = lane->callbacks.received(lane->user, &whole, copy);
	}
	if (r == -ENOMEM) {
		p->payload.size = before;
		return r;
	}
	p->payload.size = 0; /* its memory is for the next one */
	p->type = 0;
	p->id = 0;
	return r;
}

/* Owns the payload. */
static int deliver(
	struct lane *lane, struct receiver *in, const struct frame_header *header, uint8_t *payload)
{
	bool has_more = header->flags & FRAME_HAS_MORE;
	struct partial *p = partial_of(lane, header);
	size_t before = p ? p->payload.size : 0;
	int r = 0;

	if (!p && !has_more)
		return lane->callbacks.received(lane->user, header, payload);
	if (!p || before + header->size > FRAME_PAYLOAD_MAX_BYTES)
		r = -EPROTO;
	if (r == 0)
		r = buffer_append(&p->payload, payload, (size_t)header->size + 1);
	give_memory(in, payload, header->size);
	if (r < 0)
		return r;
	p->payload.size--; /* the NUL behind it */
	p->type = header->type;
	p->id = header->id;
	return has_more ? 0 : deliver_whole(lane, p, before);
}

static int receive_frame(struct lane *lane, struct receiver *in)
{
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header header;
	cleanup_free uint8_t *payload = NULL;
	size_t wire_bytes;
	int r;

	r = wait_until_ready(lane);
	if (r == 0)
		r = receive_exactly(lane, in, bytes, sizeof(bytes));
	if (r == 0)
		r = frame_header_decode(bytes, &header);
	if (r == 0)
		r = lane_take_ack(lane, header.ack);
	if (r < 0)
		return r;
	payload = take_memory(in, header.size);
	if (!payload)
		return -ENOMEM;
	payload[header.size] = '\0';
	r = receive_exactly(lane, in, payload, header.size);
	wire_bytes = header.size;
	if (r == 0 && (header.flags & FRAME_COMPRESSED))
		r = unpack(lane, in, &header, &payload);
	if (r < 0)
		return r;
	if (header.type == FRAME_PING)
		return answer_ping(lane, header.id);
	if (header.type == FRAME_ACK || header.type == FRAME_PONG)
		return 0;
	r = deliver(lane, in, &header, steal_ptr(&payload));
	/* Without memory it counts as not received, and is sent again. */
	if (header.type >= FRAME_FIRST_COUNTED && r != -ENOMEM)
		count_received(lane, wire_bytes);
	return r;
}

void *lane_run_reader(void *user)
{
	struct lane *lane = user;
	struct receiver *in = calloc(1, sizeof(*in));
	int r = in ? 0 : -ENOMEM;

	while (r >= 0)
		r = receive_frame(lane, in);
	if (in) {
		decompressor_free(in->decompressor);
		buffer_done(&in->piece);
	}
	free(in);
	lane_report_lost(lane, r);
	return NULL;
}
