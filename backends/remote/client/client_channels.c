/*
 * A channel of ssh has at most 2 MiB under way (CHAN_SES_WINDOW_DEFAULT of OpenSSH), so on a long
 * link one connection carries less than the link does.  While that shows, more connections
 * of the same session carry what is read ahead, which may be asked for again, and the content of
 * writes, which is kept until the write has its reply.  The writes themselves go by the first,
 * which keeps their order.  So nothing is lost with such a connection, and it never needs to come
 * back.
 *
 * Each has a thread, which connects, waits until the connection is lost, stalled or needed no
 * longer, and ends it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/client_internal.h"
#include "ops/support/log.h"
#include "ops/support/thread.h"

enum {
	MEASURED_MS = 250,             /* the rate is that of so long a time at least */
	QUICKEST_MIN_MS = 5,           /* a shorter link is never the bound */
	UNDER_WAY_MIN_BYTES = 1 << 20, /* half of what ssh lets through */
	WANTED_MS = 10000,             /* kept so long after they were of use */
	REST_MIN_MS = 60000,           /* after a failure; doubled with each */
	REST_MAX_MS = 3600000,
	REST_AFTER_LOSS_MS = 2000,
	STALLED_MS = 2000,
	SILENT_MS = 500,              /* then it is asked for a sign of life */
	SPREAD_MIN_BYTES = 512 << 10, /* that the first connection has to send */
	LOOK_MS = 200,
};

/* ---- Whether they are wanted ------------------------------------------------------------ */

static void *run_channel(void *argument);

/* Under the lock. */
static void want(struct remote *remote, int64_t now_ms)
{
	remote->channels_until_ms = now_ms + WANTED_MS;
	for (unsigned i = 1; i < remote->channels_max && !remote->stopping; i++) {
		struct remote_channel *channel = &remote->channels[i];

		channel->runs = channel->runs || thread_start(&channel->thread, "channel", 0,
							 run_channel, channel) == 0;
	}
	pthread_cond_broadcast(&remote->channels_moved);
}

static void note_streamed(
	struct remote *remote, struct streamed *streamed, size_t bytes, int64_t quickest_ms)
{
	int64_t now = clock_now_ms(), took_ms;
	size_t under_way;

	if (remote->settings.channels < 2 || quickest_ms < QUICKEST_MIN_MS)
		return;
	pthread_mutex_lock(&remote->lock);
	took_ms = now - streamed->since_ms;
	streamed->bytes += bytes;
	if (took_ms >= MEASURED_MS) {
		under_way = streamed->bytes / (size_t)took_ms * (size_t)quickest_ms;
		if (under_way >= UNDER_WAY_MIN_BYTES)
			want(remote, now);
		*streamed = (struct streamed){.since_ms = now};
	}
	pthread_mutex_unlock(&remote->lock);
}

void remote_note_streamed(struct remote *remote, size_t bytes, int64_t quickest_ms)
{
	note_streamed(remote, &remote->streamed_in, bytes, quickest_ms);
}

void remote_note_written(struct remote *remote, size_t bytes)
{
	note_streamed(remote, &remote->streamed_out, bytes, lane_quickest_ms(remote->lane));
}

/* Under the lock. */
static bool is_wanted(const struct remote_channel *channel)
{
	const struct remote *remote = channel->remote;
	int64_t now = clock_now_ms();

	return now < remote->channels_until_ms && now >= remote->channels_rested_ms &&
	       channel->index < remote->channels_max && !remote->lost && !remote->bad_since_ms &&
	       (channel->index == 1 || remote->channels_work);
}

/* ---- One connection --------------------------------------------------------------------- */

static void publish(struct remote_channel *channel, struct stream *connecting)
{
	pthread_mutex_lock(&channel->remote->lock);
	channel->connecting = connecting;
	if (connecting && channel->remote->stopping)
		stream_interrupt(connecting);
	pthread_mutex_unlock(&channel->remote->lock);
}

static int greet(struct remote_channel *channel, struct stream *stream, char **ret_reason)
{
	const struct remote_settings *settings = &channel->remote->settings;
	cleanup_buffer struct buffer noise = {0}, body = {0};
	int64_t deadline_ms = clock_now_ms() + transport_patience_ms(&settings->transport);
	struct welcome welcome;
	int r = 0;

	if (settings->transport.gives_shell)
		r = bootstrap_run(stream, settings, &deadline_ms, &noise, ret_reason);
	if (r == 0)
		r = remote_exchange_hello(channel->remote, stream, channel->index, deadline_ms,
			&body, &noise, &welcome);
	if (r == 0)
		remote_agree_on_compression(channel->lane, channel->remote, &welcome);
	return r < 0 ? r : welcome.error;
}

static int attach(struct remote_channel *channel, struct stream *stream, uint64_t epoch)
{
	struct remote *remote = channel->remote;
	int in_fd = stream->in_fd, out_fd = stream->out_fd;
	int r;

	stream->in_fd = stream->out_fd = -1;
	channel->lost = false;
	r = lane_attach(channel->lane, in_fd, out_fd, 0);
	if (r < 0)
		return r;
	pthread_mutex_lock(&remote->lock);
	channel->up = remote->epoch == epoch;
	remote->channels_work = true;
	remote->channels_rest_ms = 0;
	pthread_cond_broadcast(&remote->channels_moved);
	pthread_mutex_unlock(&remote->lock);
	return 0;
}

/* `ret_stream` must be closed in any case. */
static int connect_channel(struct remote_channel *channel, struct stream *ret_stream)
{
	struct remote *remote = channel->remote;
	cleanup_with(transport_done) struct transport transport = {0};
	cleanup_free char *reason = NULL;
	uint64_t epoch;
	int r;

	pthread_mutex_lock(&remote->lock);
	epoch = remote->epoch;
	r = transport_copy(&remote->settings.transport, &transport);
	pthread_mutex_unlock(&remote->lock);
	if (r == 0)
		r = stream_open(&transport, ret_stream);
	if (r < 0)
		return r;
	publish(channel, ret_stream);
	r = greet(channel, ret_stream, &reason);
	publish(channel, NULL);
	if (r == 0)
		r = attach(channel, ret_stream, epoch);
	if (r < 0)
		log_info("no further connection to \"%s\": %s", transport.name,
			reason ? reason : strerror(-r));
	return r;
}

/* Under the lock. */
static bool is_stalled(const struct remote_channel *channel)
{
	return channel->calls > 0 && clock_now_ms() - channel->asked_ms > STALLED_MS &&
	       lane_silence_ms(channel->lane) > STALLED_MS;
}

/* Under the lock. */
static bool is_of_use(const struct remote_channel *channel)
{
	const struct remote *remote = channel->remote;

	return channel->up && !channel->lost && !remote->stopping && !is_stalled(channel) &&
	       (channel->calls > 0 || clock_now_ms() < remote->channels_until_ms);
}

/* Its calls may take long at the far end, which is no reason to give it up.  Under the lock. */
static void look_for_life(struct remote_channel *channel)
{
	if (channel->calls > 0 && lane_silence_ms(channel->lane) > SILENT_MS)
		lane_send(channel->lane, LANE_URGENT, FRAME_PING, 0, NULL);
}

/* A far end that prompts for a password must not be tried again and again, nor by several at the
 * same time.  Under the lock. */
static void note_failure(struct remote *remote)
{
	int64_t rest_ms = 2 * remote->channels_rest_ms;

	remote->channels_work = false;
	if (clock_now_ms() < remote->channels_rested_ms)
		return; /* another one of the same attempt */
	rest_ms = rest_ms < REST_MIN_MS ? REST_MIN_MS : rest_ms;
	remote->channels_rest_ms = rest_ms < REST_MAX_MS ? rest_ms : REST_MAX_MS;
	remote->channels_rested_ms = clock_now_ms() + remote->channels_rest_ms;
}

/* Under the lock, which it releases meanwhile. */
static void run_once(struct remote_channel *channel)
{
	struct remote *remote = channel->remote;
	struct stream stream = STREAM_NONE;
	int r;

	pthread_mutex_unlock(&remote->lock);
	r = connect_channel(channel, &stream);
	pthread_mutex_lock(&remote->lock);
	while (is_of_use(channel)) {
		look_for_life(channel);
		clock_cond_wait_ms(&remote->channels_moved, &remote->lock, LOOK_MS);
	}
	if (r < 0)
		note_failure(remote);
	else if (channel->lost || is_stalled(channel))
		remote->channels_rested_ms = clock_now_ms() + REST_AFTER_LOSS_MS;
	channel->up = false;
	while (!remote->above->channel_ended(remote, channel) && !remote->stopping)
		clock_cond_wait_ms(&remote->channels_moved, &remote->lock, LOOK_MS);
	pthread_mutex_unlock(&remote->lock);
	lane_push(remote->lane);
	lane_detach(channel->lane);
	lane_clear(channel->lane);
	stream_close(&stream);
	pthread_mutex_lock(&remote->lock);
}

static void *run_channel(void *argument)
{
	struct remote_channel *channel = argument;
	struct remote *remote = channel->remote;

	pthread_mutex_lock(&remote->lock);
	while (!remote->stopping) {
		if (is_wanted(channel))
			run_once(channel);
		else
			pthread_cond_wait(&remote->channels_moved, &remote->lock);
	}
	pthread_mutex_unlock(&remote->lock);
	return NULL;
}

/* From any thread, perhaps under the lock: the channel's thread will notice soon. */
static void channel_lost(void *user, int error)
{
	struct remote_channel *channel = user;

	(void)error;
	channel->lost = true;
	pthread_cond_broadcast(&channel->remote->channels_moved);
}

static int channel_received(void *user, const struct frame_header *header, uint8_t *payload)
{
	struct remote_channel *channel = user;

	if (header->type == FRAME_REPLY)
		return channel->remote->above->received(channel->remote, header, payload);
	free(payload);
	return -EPROTO;
}

/* ---- Turns ------------------------------------------------------------------------------ */

struct remote_channel *remote_channel_take(struct remote *remote)
{
	struct remote_channel *channel;

	do {
		remote->next_channel = (remote->next_channel + 1) % CHANNELS_MAX;
		channel = &remote->channels[remote->next_channel];
	} while (remote->next_channel > 0 && (!channel->up || channel->lost));
	if (remote->next_channel == 0)
		return NULL;
	remote_channel_enter(channel);
	return channel;
}

struct remote_channel *remote_channel_to_write(struct remote *remote)
{
	size_t least = lane_unacked_bytes(remote->lane), bytes;
	struct remote_channel *best = NULL;

	if (least < SPREAD_MIN_BYTES)
		return NULL;
	for (unsigned i = 1; i < CHANNELS_MAX; i++) {
		struct remote_channel *channel = &remote->channels[i];

		if (!channel->up || channel->lost)
			continue;
		bytes = lane_unacked_bytes(channel->lane);
		if (bytes < least) {
			least = bytes;
			best = channel;
		}
	}
	return best;
}

void remote_channel_enter(struct remote_channel *channel)
{
	if (channel->calls++ == 0)
		channel->asked_ms = clock_now_ms();
}

void remote_channel_put(struct remote_channel *channel)
{
	channel->calls--;
}

unsigned remote_channel_count(struct remote *remote)
{
	unsigned count = !remote->bad_since_ms;

	pthread_mutex_lock(&remote->lock);
	for (unsigned i = 1; i < CHANNELS_MAX; i++)
		count += remote->channels[i].up;
	pthread_mutex_unlock(&remote->lock);
	return count;
}

void remote_channels_add_traffic(struct remote *remote, struct lane_counters *counters)
{
	struct lane_counters more;

	for (unsigned i = 1; i < CHANNELS_MAX; i++) {
		lane_count(remote->channels[i].lane, &more);
		counters->bytes_sent += more.bytes_sent;
		counters->bytes_received += more.bytes_received;
	}
}

/* ---- Life ------------------------------------------------------------------------------- */

int remote_channels_new(struct remote *remote)
{
	static const struct lane_callbacks callbacks = {
		.received = channel_received, .lost = channel_lost};
	int r = 0;

	clock_cond_init(&remote->channels_moved);
	for (unsigned i = 1; i < CHANNELS_MAX && r == 0; i++) {
		struct remote_channel *channel = &remote->channels[i];

		channel->remote = remote;
		channel->index = i;
		r = lane_new(&callbacks, channel, &channel->lane);
	}
	return r;
}

void remote_channels_free(struct remote *remote)
{
	for (unsigned i = 1; i < CHANNELS_MAX; i++)
		lane_free(remote->channels[i].lane);
	pthread_cond_destroy(&remote->channels_moved);
}

void remote_channels_drop(struct remote *remote)
{
	for (unsigned i = 1; i < CHANNELS_MAX; i++)
		remote->channels[i].up = false;
	pthread_cond_broadcast(&remote->channels_moved);
}

void remote_channels_stop(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	for (unsigned i = 1; i < CHANNELS_MAX; i++)
		if (remote->channels[i].connecting)
			stream_interrupt(remote->channels[i].connecting);
	pthread_cond_broadcast(&remote->channels_moved);
	pthread_mutex_unlock(&remote->lock);
	for (unsigned i = 1; i < CHANNELS_MAX; i++)
		if (remote->channels[i].runs)
			pthread_join(remote->channels[i].thread, NULL);
}
