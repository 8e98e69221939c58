/* What comes again over the next connection, and what is compressed on it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backends/remote/wire/lane_internal.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/waits.h"

enum {
	CONTENT_BYTES = 1 << 20,
	PIECE_BYTES = 32 << 10,
	TRICKLE_BYTES = 8 << 10,
	TRICKLE_MS = 5,
	LARGE_BYTES = 256 << 10
};

/* Text, and then what does not become smaller.  The payload of a frame is where in it the id says.
 */
static uint8_t content[2 * CONTENT_BYTES];

static const uint8_t *content_of(uint32_t id)
{
	return content + (id * 7919) % CONTENT_BYTES + (id % 4 ? 0 : CONTENT_BYTES - PIECE_BYTES);
}

static void make_content(void)
{
	static const char *const words[] = {"static ", "int ", "return ", "struct ", "\n\t", "= "};
	uint32_t random = 1;
	size_t used = 0;

	while (used < sizeof(content)) {
		const char *word;

		random = random * 1664525 + 1013904223;
		word = used < CONTENT_BYTES ? words[(random >> 24) % array_size(words)] : "";
		if (!*word)
			content[used++] = (uint8_t)(random >> 24);
		for (; *word; word++)
			content[used++] = (uint8_t)*word;
	}
}

struct end {
	struct lane *lane;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool lacks_memory, lost; /* lock, as all below */
	uint32_t got;            /* the last frame's id */
	size_t count;            /* of frames */
	size_t wrong;            /* that had not the content of their id */
};

static struct end near, far;

static int take_frame(void *user, const struct frame_header *header, uint8_t *payload)
{
	struct end *end = user;
	bool good = header->type != FRAME_DATA ||
		    memcmp(payload, content_of(header->id), header->size) == 0;
	int r = 0;

	free(payload);
	pthread_mutex_lock(&end->lock);
	end->wrong += !good;
	if (end->lacks_memory) {
		r = -ENOMEM;
	} else {
		end->got = header->id;
		end->count++;
	}
	end->lacks_memory = false;
	pthread_cond_broadcast(&end->changed);
	pthread_mutex_unlock(&end->lock);
	return r;
}

static void note_loss(void *user, int error)
{
	struct end *end = user;

	(void)error;
	pthread_mutex_lock(&end->lock);
	end->lost = true;
	pthread_cond_broadcast(&end->changed);
	pthread_mutex_unlock(&end->lock);
}

static void end_init(struct end *end)
{
	static const struct lane_callbacks callbacks = {.received = take_frame, .lost = note_loss};

	*end = (struct end){.lacks_memory = false};
	pthread_mutex_init(&end->lock, NULL);
	pthread_cond_init(&end->changed, NULL);
	CHECK_RC(0, lane_new(&callbacks, end, &end->lane));
}

static void connect_ends(void)
{
	int fds[2];

	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	CHECK_RC(0, lane_attach(near.lane, fds[0], fds[0], lane_received_count(far.lane)));
	CHECK_RC(0, lane_attach(far.lane, fds[1], fds[1], lane_received_count(near.lane)));
}

static void await(struct end *end, const bool *lost, uint32_t got)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	pthread_mutex_lock(&end->lock);
	while (lost ? !*lost : end->got != got)
		if (pthread_cond_timedwait(&end->changed, &end->lock, &until) != 0)
			break;
	CHECK(lost ? *lost : end->got == got);
	pthread_mutex_unlock(&end->lock);
}

static bool is_odd(void *user, uint32_t id)
{
	++*(size_t *)user;
	return id % 2;
}

/* 100,000 that wait for a connection. */
static void test_many_requests_are_withdrawn_in_one_walk(void)
{
	enum { COUNT = 100000 };
	size_t asked = 0;

	end_init(&near);
	end_init(&far);
	for (uint32_t id = 1; id <= COUNT; id++)
		CHECK_RC(0, lane_send(near.lane, LANE_BULK, REQUEST_CLOSE, id, NULL));
	CHECK_RC(0, lane_send(near.lane, LANE_BULK, FRAME_KILL, COUNT + 1, NULL));
	CHECK_RC(COUNT / 2, lane_withdraw_all(near.lane, is_odd, &asked));
	CHECK_RC(COUNT, asked);
	CHECK(!lane_withdraw(near.lane, 1));
	CHECK(lane_withdraw(near.lane, COUNT));
	CHECK_RC(0, lane_send(near.lane, LANE_BULK, FRAME_KILL, COUNT + 2, NULL));
	connect_ends();
	await(&far, NULL, COUNT + 2);
	lane_detach(near.lane);
	lane_detach(far.lane);
	CHECK_RC(COUNT / 2 - 1 + 2, far.count);
	lane_free(near.lane);
	lane_free(far.lane);
}

/* The thread that writes later is for what cannot be written at once. */
static void test_what_can_be_written_wakes_no_thread_here(void)
{
	enum { COUNT = 200 };
	unsigned long before;

	end_init(&near);
	end_init(&far);
	connect_ends();
	CHECK_RC(0, lane_send(near.lane, LANE_URGENT, FRAME_CHANGE, 1, NULL));
	await(&far, NULL, 1);
	before = waits_of("lane-writer");
	for (uint32_t id = 2; id <= COUNT; id++) {
		CHECK_RC(0, lane_send(near.lane, LANE_URGENT, FRAME_CHANGE, id, NULL));
		await(&far, NULL, id);
	}
	CHECK(waits_of("lane-writer") < before + COUNT / 4);
	lane_detach(near.lane);
	lane_detach(far.lane);
	lane_free(near.lane);
	lane_free(far.lane);
}

static void test_what_there_was_no_memory_for_comes_again(void)
{
	end_init(&near);
	end_init(&far);
	far.lacks_memory = true;
	connect_ends();
	CHECK_RC(0, lane_send(near.lane, LANE_URGENT, FRAME_CHANGE, 7, NULL));
	await(&far, &far.lost, 0);
	lane_detach(near.lane);
	lane_detach(far.lane);
	connect_ends();
	await(&far, NULL, 7);
	lane_detach(near.lane);
	lane_detach(far.lane);
	lane_free(near.lane);
	lane_free(far.lane);
}

/* ---- Compression ---------------------------------------------------------------------- */

static void send_content(uint32_t id, size_t size)
{
	cleanup_wire_writer struct wire_writer w = {0};

	lane_writer_init(&w);
	wire_put_raw(&w, content_of(id), size);
	CHECK_RC(0, lane_send(near.lane, LANE_BULK, FRAME_DATA, id, &w));
}

static uint64_t sent_bytes(void)
{
	struct lane_counters counters;

	lane_count(near.lane, &counters);
	return counters.bytes_sent;
}

static void begin(enum compression compression)
{
	make_content();
	end_init(&near);
	end_init(&far);
	lane_set_compression(near.lane, compression);
}

static void end(void)
{
	lane_detach(near.lane);
	lane_detach(far.lane);
	lane_free(near.lane);
	lane_free(far.lane);
}

static void test_compressed_frames_arrive_as_they_were(void)
{
	begin(COMPRESSION_ALWAYS);
	connect_ends();
	for (uint32_t id = 1; id <= 400; id++)
		send_content(id, id % 50 ? id * 331 % PIECE_BYTES : 0);
	await(&far, NULL, 400);
	CHECK_RC(400, far.count);
	CHECK_RC(0, far.wrong);
	CHECK(sent_bytes() < 400 * PIECE_BYTES / 3);
	end();
}

/* Also what was compressed for the one that broke. */
static void test_each_connection_has_a_stream_of_its_own(void)
{
	uint32_t id = 0;

	begin(COMPRESSION_ALWAYS);
	for (int round = 0; round < 20; round++) {
		connect_ends();
		for (int i = 0; i < 50; i++)
			send_content(++id, PIECE_BYTES);
		if (round % 2)
			await(&far, NULL, id);
		lane_detach(near.lane);
		lane_detach(far.lane);
	}
	lane_set_compression(near.lane, COMPRESSION_NONE);
	send_content(++id, PIECE_BYTES);
	connect_ends();
	await(&far, NULL, id);
	CHECK_RC(id, far.count);
	CHECK_RC(0, far.wrong);
	end();
}

static void send_all(size_t frames)
{
	for (uint32_t id = 1; id <= frames; id++)
		send_content(4 * id + 1, PIECE_BYTES); /* text */
	await(&far, NULL, 4 * (uint32_t)frames + 1);
	CHECK_RC(0, far.wrong);
}

/* On a very slow machine even this link carries too little to count as fast. */
static void test_a_fast_link_is_given_everything_as_it_is(void)
{
	uint64_t took_us;

	begin(COMPRESSION_AS_NEEDED);
	connect_ends();
	took_us = lane_now_us();
	send_all(1000);
	took_us = lane_now_us() - took_us;
	/* But for what leaves before it is known. */
	CHECK(sent_bytes() >= 400 * PIECE_BYTES ||
		1000ULL * PIECE_BYTES * 1000000 / took_us < 2 * PACE_THIN_BYTES);
	end();
}

struct trickle {
	int in_fd, out_fd;
};

/* A link that carries so much and no more. */
static void *run_trickle(void *user)
{
	const struct trickle *trickle = user;
	const struct timespec pause = {.tv_nsec = TRICKLE_MS * 1000000};
	uint8_t bytes[TRICKLE_BYTES];
	ssize_t n;

	while ((n = read(trickle->in_fd, bytes, sizeof(bytes))) > 0) {
		nanosleep(&pause, NULL);
		if (write(trickle->out_fd, bytes, (size_t)n) != n)
			break;
	}
	close(trickle->in_fd);
	close(trickle->out_fd);
	return NULL;
}

static void test_what_waits_for_a_thin_link_is_compressed(void)
{
	int out[2], in[2], back[2];
	struct trickle trickle;
	pthread_t thread;

	begin(COMPRESSION_AS_NEEDED);
	CHECK_RC(0, pipe(out));
	CHECK_RC(0, pipe(in));
	CHECK_RC(0, pipe(back));
	trickle = (struct trickle){out[0], in[1]};
	CHECK_RC(0, pthread_create(&thread, NULL, run_trickle, &trickle));
	CHECK_RC(0, lane_attach(near.lane, back[0], out[1], 0));
	CHECK_RC(0, lane_attach(far.lane, in[0], back[1], 0));
	send_all(200);
	CHECK(sent_bytes() < 200 * PIECE_BYTES / 2);
	lane_detach(near.lane);
	pthread_join(thread, NULL);
	lane_detach(far.lane);
	lane_free(near.lane);
	lane_free(far.lane);
}

/* `payload` of a frame that is said to be compressed. */
static void test_what_is_not_compressed_as_it_says_ends_the_connection(void)
{
	static const uint8_t payloads[][8] = {{0}, {1, 0xff, 0xff, 0xff, 0xff}, /* no stream */
		{5, 0x00, 0x00, 0x00, 0xff, 0xff},     /* nothing, and not 5 bytes */
		{0x80, 0x80, 0x80, 0x01, 0x03, 0x00},  /* more than a frame has */
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}; /* no number */

	for (size_t i = 0; i < array_size(payloads); i++) {
		const struct frame_header header = {.size = sizeof(payloads[i]),
			.type = FRAME_DATA,
			.flags = FRAME_COMPRESSED,
			.id = 1};
		uint8_t bytes[FRAME_HEADER_BYTES];
		int fds[2];

		end_init(&far);
		CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
		CHECK_RC(0, lane_attach(far.lane, fds[1], fds[1], 0));
		frame_header_encode(&header, bytes);
		CHECK_RC(sizeof(bytes), write(fds[0], bytes, sizeof(bytes)));
		CHECK_RC(sizeof(payloads[i]), write(fds[0], payloads[i], sizeof(payloads[i])));
		await(&far, &far.lost, 0);
		CHECK_RC(0, far.count);
		lane_detach(far.lane);
		lane_free(far.lane);
		close(fds[0]);
	}
}

static void test_what_is_compressed_without_agreement_ends_the_connection(void)
{
	begin(COMPRESSION_ALWAYS);
	lane_refuse_compressed(far.lane);
	connect_ends();
	send_content(1, PIECE_BYTES);
	await(&far, &far.lost, 0);
	CHECK_RC(0, far.count);
	end();
}

/* ---- Pieces ---------------------------------------------------------------------------- */

/* As if the link had shown that it carries little. */
static void make_thin(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->pace.was_full[0] = true;
	lane->pace.window_bytes = PACE_MIN_BYTES;
	pthread_mutex_unlock(&lane->lock);
}

static void send_large(enum lane_priority priority, enum frame_type type, uint32_t id)
{
	cleanup_wire_writer struct wire_writer w = {0};

	lane_writer_init(&w);
	wire_put_raw(&w, content, LARGE_BYTES);
	CHECK_RC(0, lane_send(near.lane, priority, type, id, &w));
}

static bool read_all(int fd, uint8_t *data, size_t size)
{
	ssize_t n = 0;

	for (; size > 0 && (n = read(fd, data, size)) > 0; size -= (size_t)n)
		data += n;
	return n >= 0 && !size;
}

/* The far end is played here. */
static struct frame_header read_frame(int fd, uint8_t *payload)
{
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header header = {0};

	CHECK(read_all(fd, bytes, sizeof(bytes)));
	CHECK_RC(0, frame_header_decode(bytes, &header));
	CHECK(read_all(fd, payload, header.size));
	return header;
}

static void acknowledge(int fd, uint32_t count)
{
	const struct frame_header header = {.type = FRAME_ACK, .ack = count};
	uint8_t bytes[FRAME_HEADER_BYTES];

	frame_header_encode(&header, bytes);
	CHECK_RC(sizeof(bytes), write(fd, bytes, sizeof(bytes)));
}

static int play_far_end(void)
{
	int fds[2];

	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	CHECK_RC(0, lane_attach(near.lane, fds[0], fds[0], 0));
	make_thin(near.lane);
	return fds[1];
}

static void test_an_urgent_frame_waits_for_a_piece_alone(void)
{
	static uint8_t got[LARGE_BYTES], piece[LARGE_BYTES];
	size_t size = 0, size_before = 0;
	struct frame_header header = {0};
	uint32_t received = 0;
	int fd;

	begin(COMPRESSION_NONE);
	fd = play_far_end();
	send_large(LANE_BULK, REQUEST_WRITE, 1);
	CHECK(!lane_withdraw(near.lane, 1)); /* it has begun to leave */
	CHECK_RC(0, lane_send(near.lane, LANE_URGENT, REQUEST_MKDIR, 2, NULL));
	do {
		header = read_frame(fd, piece);
		acknowledge(fd, ++received);
		CHECK(size_before || header.size <= LARGE_BYTES / 4);
		if (header.type == REQUEST_MKDIR) {
			size_before = size;
			continue;
		}
		CHECK(header.type == REQUEST_WRITE && header.id == 1);
		memcpy(got + size, piece, header.size);
		size += header.size;
	} while (header.type == REQUEST_MKDIR || (header.flags & FRAME_HAS_MORE));
	CHECK_RC(LARGE_BYTES, size);
	CHECK(memcmp(got, content, LARGE_BYTES) == 0);
	CHECK(size_before > 0 && size_before <= LARGE_BYTES / 2);
	close(fd);
	end();
}

static void test_a_new_session_gets_what_had_begun_from_its_start(void)
{
	static uint8_t piece[LARGE_BYTES];
	int fd;

	begin(COMPRESSION_NONE);
	fd = play_far_end();
	send_large(LANE_BULK, REQUEST_WRITE, 1);
	CHECK(read_frame(fd, piece).flags & FRAME_HAS_MORE);
	lane_detach(near.lane);
	close(fd);
	lane_reset(near.lane);
	fd = play_far_end();
	CHECK(read_frame(fd, piece).type == REQUEST_WRITE);
	CHECK(memcmp(piece, content, 4096) == 0);
	close(fd);
	end();
}

/* Also across connections that break, and where there is no memory once in a while. */
static void test_pieces_become_the_whole_again(void)
{
	uint32_t id = 0;

	begin(COMPRESSION_ALWAYS);
	for (int round = 0; round < 40; round++) {
		far.lost = false;
		far.lacks_memory = round % 4 == 3;
		connect_ends();
		for (int i = 0; i < 20; i++) {
			cleanup_wire_writer struct wire_writer w = {0};

			make_thin(near.lane);
			lane_writer_init(&w);
			wire_put_raw(&w, content_of(++id), PIECE_BYTES);
			CHECK_RC(0, lane_send(near.lane, i % 3 ? LANE_BULK : LANE_GUESS, FRAME_DATA,
					    id, &w));
		}
		if (round % 4 == 3)
			await(&far, &far.lost, 0);
		lane_detach(near.lane);
		lane_detach(far.lane);
	}
	connect_ends();
	CHECK_RC(0, lane_send(near.lane, LANE_GUESS, FRAME_DATA, ++id, NULL));
	await(&far, NULL, id);
	CHECK_RC(id, far.count);
	CHECK_RC(0, far.wrong);
	end();
}

/* `count` pieces of as many frames as `ids`. */
static void send_pieces(uint8_t type, uint32_t ids, size_t size, size_t count)
{
	static uint8_t payload[FRAME_PAYLOAD_MAX_BYTES];
	int fds[2];

	end_init(&far);
	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	CHECK_RC(0, lane_attach(far.lane, fds[1], fds[1], 0));
	for (size_t i = 0; i < count; i++) {
		const struct frame_header header = {.size = (uint32_t)size,
			.type = type,
			.flags = FRAME_HAS_MORE,
			.id = (uint32_t)i % ids};
		uint8_t bytes[FRAME_HEADER_BYTES];

		frame_header_encode(&header, bytes);
		if (send(fds[0], bytes, sizeof(bytes), MSG_NOSIGNAL) < 0 ||
			send(fds[0], payload, size, MSG_NOSIGNAL) < 0)
			break;
	}
	await(&far, &far.lost, 0);
	CHECK_RC(0, far.count);
	lane_detach(far.lane);
	lane_free(far.lane);
	close(fds[0]);
}

static void test_pieces_have_bounds(void)
{
	send_pieces(FRAME_DATA, 3, 100, 3);                     /* of three frames at a time */
	send_pieces(FRAME_DATA, 1, FRAME_PAYLOAD_MAX_BYTES, 2); /* of more than a frame has */
	send_pieces(FRAME_PING, 1, 0, 1);                       /* of what is not counted */
}

TEST_MAIN("lane", TEST(test_many_requests_are_withdrawn_in_one_walk),
	TEST(test_what_can_be_written_wakes_no_thread_here),
	TEST(test_what_there_was_no_memory_for_comes_again),
	TEST(test_compressed_frames_arrive_as_they_were),
	TEST(test_each_connection_has_a_stream_of_its_own),
	TEST(test_a_fast_link_is_given_everything_as_it_is),
	TEST(test_what_waits_for_a_thin_link_is_compressed),
	TEST(test_what_is_not_compressed_as_it_says_ends_the_connection),
	TEST(test_what_is_compressed_without_agreement_ends_the_connection),
	TEST(test_an_urgent_frame_waits_for_a_piece_alone),
	TEST(test_a_new_session_gets_what_had_begun_from_its_start),
	TEST(test_pieces_become_the_whole_again), TEST(test_pieces_have_bounds))
