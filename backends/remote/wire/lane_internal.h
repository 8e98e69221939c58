/*
 * backends/remote/wire/lane_internal.h - what the files of the lane share: lane.c (life),
 * lane_send.c and lane_receive.c, each with the thread that does it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "backends/remote/wire/compress.h"
#include "backends/remote/wire/lane.h"
#include "backends/remote/wire/lane_message.h"
#include "backends/remote/wire/pace.h"
#include "ops/support/clock.h"

enum { FREE_BUFFERS_MAX = 16, PARTIALS_MAX = 2 };

/* A frame of which pieces have come. */
struct partial {
	struct buffer payload;
	uint8_t type; /* 0: none */
	uint32_t id;
};

struct lane {
	struct lane_callbacks callbacks;
	void *user;

	pthread_mutex_t lock;
	pthread_cond_t writable; /* the writer thread waits here, and lane_drain() */
	struct message_queue waiting[LANE_PRIORITIES]; /* never sent */
	struct message_queue resend;                   /* sent on an earlier connection */
	struct message_queue batch; /* being written; the first `batch_offset` bytes are out */
	size_t batch_offset;
	struct message_queue unacked; /* written, in order of sequence */
	uint64_t assigned;            /* last sequence given out */
	uint64_t peer_ack;
	uint64_t received;
	struct partial partials[PARTIALS_MAX];                  /* of the reader thread */
	size_t unacked_received_bytes, unacked_received_frames; /* not acknowledged yet */
	uint64_t acked_us; /* when an acknowledgement was sent last */
	bool ack_queued;
	struct pace pace;
	size_t under_way_bytes; /* in `batch` and `unacked`, as they leave */
	enum compression compression;
	bool refuses_compressed;
	struct compressor *compressor; /* of this connection; used in pump() only */
	bool compress_failed;          /* on this connection */
	unsigned shrink; /* size of the last large message / its size on the link; 0: none yet */
	size_t unhindered_bytes; /* compressed since something last waited for the link, or since
				    ... */
	uint64_t unhindered_since_us;
	unsigned pongs_queued;
	uint8_t *free_buffers[FREE_BUFFERS_MAX]; /* of large messages that have arrived */
	size_t free_count;

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

static inline uint64_t lane_now_us(void)
{
	return clock_now_ns() / 1000;
}

/* Wakes both threads of the connection.  Under the lock. */
void lane_take_down(struct lane *lane);

/* The connection failed: takes it down, and tells the owner of the lane. */
void lane_report_lost(struct lane *lane, int error);

/* Of a session that is gone. */
void lane_forget_partials(struct lane *lane);

/* Something waits to be sent.  Under the lock. */
bool lane_has_work(const struct lane *lane);

/* ssh takes and gives some 16 KiB at a time: to be woken for each would cost more than to move
 * the bytes. */
void lane_let_gather(const struct lane *lane);

/* The peer has so many of our frames.  -EPROTO: more than we sent. */
int lane_take_ack(struct lane *lane, uint32_t ack);

/* The threads; `user` is the lane. */
void *lane_run_writer(void *user);
void *lane_run_reader(void *user);
