#include "backends/remote/wire/lane_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"

enum {
	MESSAGE_COST_BYTES = 96, /* beside its data */
	LARGE_SPARE = 4,         /* room for so many times the message stays if it is reused */
	SLACK_BYTES = 512,       /* more room than a message needs is given back */
};

void lane_queue_init(struct message_queue *q)
{
	q->first = NULL;
	q->last = &q->first;
	q->bytes = 0;
}

void lane_queue_push(struct message_queue *q, struct message *m)
{
	m->next = NULL;
	*q->last = m;
	q->last = &m->next;
	q->bytes += m->size + MESSAGE_COST_BYTES;
}

struct message *lane_queue_pop(struct message_queue *q)
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

void lane_message_free(struct message *m)
{
	if (m) {
		free(m->data);
		free(m->packed);
	}
	free(m);
}

struct message *lane_message_take(struct message *m, size_t size)
{
	struct message *piece = calloc(1, sizeof(*piece));
	struct frame_header header;

	if (!piece)
		return NULL;
	piece->size = FRAME_HEADER_BYTES + size;
	piece->data = malloc(piece->size);
	if (!piece->data) {
		free(piece);
		return NULL;
	}
	piece->counted = m->counted;
	memcpy(piece->data + FRAME_HEADER_BYTES, m->data + FRAME_HEADER_BYTES + m->taken, size);
	m->taken += size;
	frame_header_decode(m->data, &header);
	header.size = (uint32_t)size;
	if (FRAME_HEADER_BYTES + m->taken < m->size)
		header.flags |= FRAME_HAS_MORE;
	frame_header_encode(&header, piece->data);
	return piece;
}

void lane_message_drop_packed(struct message *m)
{
	free(m->packed);
	m->packed = NULL;
}

size_t lane_queue_take_requests(struct message_queue *q, bool (*wanted)(void *user, uint32_t id),
	void *user, struct message_queue *taken)
{
	struct message **link = &q->first;
	size_t count = 0;

	while (*link) {
		struct message *m = *link;
		struct frame_header header;

		frame_header_decode(m->data, &header);
		if (header.type < REQUEST_FIRST || m->taken || !wanted(user, header.id)) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		q->bytes -= m->size + MESSAGE_COST_BYTES;
		lane_queue_push(taken, m);
		count++;
	}
	q->last = link;
	return count;
}

void lane_queue_clear(struct message_queue *q)
{
	struct message *m;

	while ((m = lane_queue_pop(q)))
		lane_message_free(m);
}

/* A message may wait for long, and the bound counts its size: an answer that is much smaller than
 * requested must not keep its memory. */
static void take_data(struct message *m, struct buffer *buffer, size_t large_bytes)
{
	size_t spare = buffer->capacity == large_bytes ? LARGE_SPARE : 2;
	uint8_t *smaller = NULL;

	m->size = buffer->size;
	m->data = steal_ptr(&buffer->data);
	if (buffer->capacity > spare * buffer->size + SLACK_BYTES)
		smaller = realloc(m->data, m->size);
	if (smaller)
		m->data = smaller;
	else
		m->is_large = buffer->capacity == large_bytes;
}

int lane_message_new(enum frame_type type, uint32_t id, struct wire_writer *writer,
	size_t large_bytes, struct message **ret_message)
{
	struct message *m = calloc(1, sizeof(*m));
	struct frame_header header = {.type = (uint8_t)type, .id = id};

	if (!m)
		return -ENOMEM;
	m->counted = type >= FRAME_FIRST_COUNTED;
	if (writer) {
		take_data(m, &writer->buffer, large_bytes);
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
