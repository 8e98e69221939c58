/* What the client is told of the changes that its queue has no room for. */
#include "backends/remote/client/client_internal.h"
#include "tests/check.h"
#include "tests/no_memory.h"

static struct remote remote;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool takes_time, is_at_it, knows_of_loss; /* lock */

static void take_change(void *user, const struct change *change)
{
	(void)user;
	pthread_mutex_lock(&lock);
	knows_of_loss = knows_of_loss || change->kind == CHANGE_RESCAN;
	is_at_it = true;
	pthread_cond_broadcast(&changed);
	while (takes_time)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void await_delivery(void)
{
	pthread_mutex_lock(&remote.lock);
	while (remote.feed_delivered != remote.feed_received)
		pthread_cond_wait(&remote.feed_moved, &remote.lock);
	pthread_mutex_unlock(&remote.lock);
}

/* Of which the client owns what it gets. */
static void receive_change(bool has_memory)
{
	static const struct change change = {.kind = CHANGE_ENTRY, .path = "a"};
	struct wire_writer writer = {0};
	uint8_t *payload;

	wire_put_change(&writer, &change);
	payload = malloc(writer.buffer.size);
	if (!CHECK(payload != NULL))
		return;
	memcpy(payload, writer.buffer.data, writer.buffer.size);
	if (!has_memory)
		memory_ends_after(0);
	CHECK_RC(0, remote_feed_take(&remote, payload, writer.buffer.size));
	memory_is_back();
	wire_writer_done(&writer);
}

static void test_too_many_changes_are_a_loss_though_there_is_no_memory(void)
{
	pthread_mutex_init(&remote.lock, NULL);
	pthread_cond_init(&remote.feed_moved, NULL);
	remote.feed_last = &remote.feed_first;
	CHECK_RC(0, remote_feed_start(&remote, take_change, NULL));
	takes_time = true;
	receive_change(true);
	pthread_mutex_lock(&lock);
	while (!is_at_it)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < FEED_MAX_CHANGES; i++)
		receive_change(true);
	receive_change(false);
	pthread_mutex_lock(&lock);
	takes_time = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	await_delivery();
	CHECK(knows_of_loss);
	remote_feed_stop(&remote);
}

TEST_MAIN("feed", TEST(test_too_many_changes_are_a_loss_though_there_is_no_memory))
