/*
 * backends/remote/wire/lane_message.h - frames that wait in queues, for lane.c and its kin.
 *
 * Threads: none; the lane's lock guards them.
 */
#pragma once

#include <stdbool.h>

#include "backends/remote/wire/pace.h"
#include "backends/remote/wire/protocol.h"

struct message {
	struct message *next;
	uint64_t sequence; /* 0: not counted, or not yet on its way */
	uint8_t *data;     /* header and payload */
	size_t size;
	size_t taken; /* bytes of the payload that have left as pieces */
	bool counted;
	bool is_large;    /* `data` has room for LANE_LARGE_BYTES */
	uint8_t *packed;  /* the same compressed, which leaves instead; or NULL */
	size_t wire_size; /* of what leaves */
	struct pace_mark mark;
};

struct message_queue {
	struct message *first, **last;
	size_t bytes; /* of memory, about */
};

void lane_queue_init(struct message_queue *q);
void lane_queue_push(struct message_queue *q, struct message *m); /* owns it from now on */
struct message *lane_queue_pop(struct message_queue *q);          /* the first one, or NULL */
void lane_queue_clear(struct message_queue *q);

/* Moves the requests that are wanted, and have not begun to leave, to `taken`; returns how many. */
size_t lane_queue_take_requests(struct message_queue *q, bool (*wanted)(void *user, uint32_t id),
	void *user, struct message_queue *taken);

/* A frame with the payload of `writer`, which is empty afterwards (NULL: none).  `large_bytes`:
 * room of that size marks a large message.  -ENOMEM. */
int lane_message_new(enum frame_type type, uint32_t id, struct wire_writer *writer,
	size_t large_bytes, struct message **ret_message);
void lane_message_free(struct message *m); /* NULL is fine */

/* A message with the next `size` bytes of the payload.  NULL: no memory. */
struct message *lane_message_take(struct message *m, size_t size);

/* Frees `packed`: what was compressed means nothing to another connection. */
void lane_message_drop_packed(struct message *m);
