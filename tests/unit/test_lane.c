/* What comes again over the next connection. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "backends/remote/wire/lane.h"
#include "tests/check.h"

struct end {
	struct lane *lane;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool lacks_memory, lost; /* lock, as all below */
	uint32_t got;            /* the last frame's id */
	size_t count;            /* of frames */
};

static struct end near, far;

static int take_frame(void *user, const struct frame_header *header, uint8_t *payload)
{
	struct end *end = user;
	int r = 0;

	free(payload);
	pthread_mutex_lock(&end->lock);
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

TEST_MAIN("lane", TEST(test_many_requests_are_withdrawn_in_one_walk),
	TEST(test_what_there_was_no_memory_for_comes_again))
