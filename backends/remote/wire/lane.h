/*
 * backends/remote/wire/lane.h - frames that survive the loss of their connection.
 *
 * Both ends use it.  A lane carries frames in order and exactly once: it counts what it
 * sends and receives, keeps what the peer has not acknowledged, and sends that again on
 * the next connection.  A connection (a pair of descriptors) is attached once both
 * ends have told each other how much they received.
 * Threads: any, except attach and detach, which one thread at a time calls, and never
 * from a callback.
 */
#pragma once

#include "backends/remote/wire/protocol.h"

struct lane;

/* Frames overtake those of the later classes that still wait; within a class they stay in order.
 * Only so much of the two bulk classes leaves that what follows does not wait long (pace.h). */
enum lane_priority {
	LANE_URGENT, /* control, and answers that somebody waits for */
	LANE_BULK,   /* file content and long listings */
	LANE_GUESS,  /* what is sent in case somebody will want it */
	LANE_PRIORITIES,
};

enum { LANE_LARGE_BYTES = TRANSFER_MAX_BYTES + (4 << 10) };

struct lane_callbacks {
	/* From the reader thread, in order.  Owns `payload` (header->size bytes, then a
	 * NUL).  A negative result drops the connection; after -ENOMEM the frame comes again. */
	int (*received)(void *user, const struct frame_header *header, uint8_t *payload);

	/* From the reader thread, before each frame: false makes it wait, so that a peer
	 * cannot grow us.  NULL: always ready. */
	bool (*ready)(void *user);

	/* The connection failed; once for each attach, from any thread.  The lane's lock is not
	 * held, but those of whoever called lane_send() or lane_push() may be: it must take no lock
	 * and not wait, but set atomic flags and wake others. */
	void (*lost)(void *user, int error);
};

struct lane_counters {
	uint64_t bytes_sent, bytes_received;
};

/* Detached.  `callbacks` is copied.  -ENOMEM. */
int lane_new(const struct lane_callbacks *callbacks, void *user, struct lane **ret_lane);
void lane_free(struct lane *lane); /* detached; NULL is fine */

/* The peer takes what is compressed like that, from the next connection on.  Without a compressor
 * in this program it is COMPRESSION_NONE.  Detached. */
void lane_set_compression(struct lane *lane, enum compression compression);

/* What comes compressed ends the connection: it was not agreed upon.  Detached. */
void lane_refuse_compressed(struct lane *lane);

/* Takes ownership of both descriptors, which may be the same.  `peer_received` counts the
 * frames that the peer has; the rest is sent again.  -EPROTO: it has more than we sent. */
int lane_attach(struct lane *lane, int in_fd, int out_fd, uint64_t peer_received);

/* Whether a peer that has received so many of our frames can go on with them: it has neither more
 * than were sent nor fewer than it has acknowledged.  If not, one of the two was set back to an
 * earlier state. */
bool lane_can_resume(struct lane *lane, uint64_t peer_received);

/* Ends the connection, if any; its threads are gone afterwards. */
void lane_detach(struct lane *lane);

/* Forgets the frames that were sent and starts counting from 0: for a new session, which
 * gets those that still wait.  Detached. */
void lane_reset(struct lane *lane);

/* The same, and forgets those that wait, too.  Detached. */
void lane_clear(struct lane *lane);

/* Sends a frame with the payload of `writer`, which is empty afterwards; never waits.
 * -ENOMEM, -EMSGSIZE.  (`writer` NULL: no payload.) */
int lane_send(struct lane *lane, enum lane_priority priority, enum frame_type type, uint32_t id,
	struct wire_writer *writer);

/* The two halves of lane_send(): a caller who holds a lock queues the frame under it, and pushes
 * what is queued onto the connection afterwards. */
int lane_queue(struct lane *lane, enum lane_priority priority, enum frame_type type, uint32_t id,
	struct wire_writer *writer);
void lane_push(struct lane *lane);

/* Takes back a frame of this id that has never been sent; true when there was one. */
bool lane_withdraw(struct lane *lane, uint32_t id);

/* The same for all requests that are `wanted` (asked once for each, under the lane's lock), in one
 * walk.  Returns how many there were. */
size_t lane_withdraw_all(struct lane *lane, bool (*wanted)(void *user, uint32_t id), void *user);

/* Starts a writer whose payload goes out by lane_send(): leaves room for the header. */
void lane_writer_init(struct wire_writer *writer);

/* Gives such a writer, which has less, room for a frame of LANE_LARGE_BYTES, header included, in
 * memory that an earlier such frame has left, if there is one.  Without memory it stays as it is.
 */
void lane_writer_enlarge(struct lane *lane, struct wire_writer *writer);

uint64_t lane_received_count(struct lane *lane); /* counted frames, for the peer's lane_attach() */
int64_t lane_silence_ms(struct lane *lane);      /* since the last byte came in */
size_t lane_waiting_bytes(struct lane *lane);    /* queued, not yet handed to the connection */
size_t lane_window_bytes(struct lane *lane);     /* of bulk data that may be under way at a time */
size_t lane_unacked_bytes(struct lane *lane);    /* queued or sent, and not acknowledged */
int64_t lane_quickest_ms(struct lane *lane);     /* acknowledgement on this connection; 0: none */
void lane_count(struct lane *lane, struct lane_counters *ret_counters);
