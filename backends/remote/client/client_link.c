#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/client_internal.h"
#include "backends/remote/client/end.h"
#include "backends/remote/wire/compress.h"
#include "ops/support/log.h"
#include "ops/support/thread.h"

enum {
	TICK_MS = 100,
	TICK_IDLE_MS = 1000,     /* while no call is under way */
	PONG_LOST_MAX_MS = 5000, /* then the link is given up */
	PONG_LOST_MIN_MS = 2000,
	NETWORK_TICK_MS = 200,           /* between two checks of this machine's network */
	PATIENCE_FIRST_MS = 3000,        /* to connect again ... */
	PATIENCE_SOCKET_FIRST_MS = 5000, /* ... by a socket */
	PATIENCE_DOUBLINGS_MAX = 3,
	STDERR_WAIT_MS = 1000,
	GOODBYE_WAIT_MS = 1000,
};

/* ---- One attempt --------------------------------------------------------------- */

int remote_exchange_hello(struct remote *remote, struct stream *stream, unsigned channel,
	int64_t deadline_ms, struct buffer *body, struct buffer *noise, struct welcome *ret_welcome)
{
	cleanup_wire_writer struct wire_writer writer = {0};
	struct hello hello = {.version = PROTOCOL_VERSION,
		.received = channel ? 0 : lane_received_count(remote->lane),
		.linger_seconds = remote->settings.linger_seconds,
		.ends = remote->ends_session,
		.channel = channel,
		.compression =
			compress_is_built() ? remote->settings.compression : COMPRESSION_NONE,
		.root = remote->settings.root};
	uint8_t nonce[NONCE_BYTES];
	int r;

	if (getrandom(hello.nonce, NONCE_BYTES, 0) != NONCE_BYTES)
		return -EIO;
	pthread_mutex_lock(&remote->lock);
	memcpy(hello.session, remote->session, TOKEN_BYTES);
	memcpy(hello.token, remote->token, TOKEN_BYTES);
	pthread_mutex_unlock(&remote->lock);
	hello_encode(&writer, &hello);
	r = writer.error;
	if (r == 0)
		r = stream_write(stream->out_fd, writer.buffer.data, writer.buffer.size,
			transport_left_ms(deadline_ms));
	if (r == 0)
		r = hello_receive(stream->in_fd, true, hello.nonce, transport_left_ms(deadline_ms),
			nonce, body, noise);
	return r < 0 ? r : welcome_decode(nonce, body->data, body->size, ret_welcome);
}

void remote_agree_on_compression(
	struct lane *lane, const struct remote *remote, const struct welcome *welcome)
{
	enum compression wanted = remote->settings.compression;

	lane_set_compression(lane, welcome->takes_compressed ? wanted : COMPRESSION_NONE);
	if (wanted == COMPRESSION_NONE)
		lane_refuse_compressed(lane);
}

/* Forgets what an earlier session knew of us. */
static void begin_session(struct remote *remote)
{
	lane_reset(remote->lane);
	pthread_mutex_lock(&remote->lock);
	remote_channels_drop(remote);
	remote->above->session_ended(remote);
	if (remote->was_set_back)
		remote->set_back_epoch = remote->epoch;
	remote->was_set_back = false;
	pthread_mutex_unlock(&remote->lock);
}

static int take_welcome(
	struct remote *remote, struct stream *stream, const struct welcome *welcome, bool first)
{
	int in_fd = stream->in_fd, out_fd = stream->out_fd;
	bool renewed = !first && !welcome->resumed;
	int r;

	if (!welcome->resumed)
		begin_session(remote);
	pthread_mutex_lock(&remote->lock);
	memcpy(remote->session, welcome->session, TOKEN_BYTES);
	memcpy(remote->token, welcome->token, TOKEN_BYTES);
	if (!welcome->resumed)
		remote_session_note(remote);
	remote->capabilities = welcome->capabilities;
	remote->channels_max = welcome->channels < remote->settings.channels
				       ? (unsigned)welcome->channels
				       : remote->settings.channels;
	remote->channels_work = !remote->settings.transport.may_prompt;
	remote->owner_uid = welcome->owner_uid;
	remote->owner_gid = welcome->owner_gid;
	remote->lost = false;
	remote->heartbeat = (struct heartbeat){0};
	pthread_mutex_unlock(&remote->lock);
	stream->in_fd = stream->out_fd = -1;
	if (renewed) /* before anything of the new session comes */
		remote->above->session_is_other(remote);
	remote_agree_on_compression(remote->lane, remote, welcome);
	r = lane_attach(remote->lane, in_fd, out_fd, welcome->received);
	if (r < 0)
		return r;
	remote->bad_since_ms = 0;
	if (renewed)
		remote->above->session_is_attached(remote);
	return 0;
}

/* A refusal of the helper: its words are the message. */
static int take_refusal(const struct welcome *welcome, char **ret_reason)
{
	if (welcome->version != PROTOCOL_VERSION)
		*ret_reason = strdup("the helper there speaks another version of the protocol");
	else if (welcome->error == -ENOENT)
		*ret_reason = string_printf(
			"%s; create it there first, with mkdir -p, or correct the URI",
			welcome->reason);
	else if (welcome->error == -ENOTDIR)
		*ret_reason =
			string_printf("%s; if it is a file, name its directory", welcome->reason);
	else
		*ret_reason = strdup(welcome->reason);
	return welcome->error ? welcome->error : -EPROTO;
}

/* Without the frame of "@" that ssh puts around what matters most. */
static void write_on_one_line(const char *text, char *out, size_t size)
{
	size_t used = 0;

	for (; *text && used < size - 1; text++) {
		bool space = isspace((unsigned char)*text) || strncmp(text, "@@", 2) == 0 ||
			     (*text == '@' && (used == 0 || out[used - 1] == ' '));

		if (!space)
			out[used++] = *text;
		else if (used > 0 && out[used - 1] != ' ')
			out[used++] = ' ';
	}
	out[used] = '\0';
}

static void note_error(struct remote *remote, const char *reason)
{
	pthread_mutex_lock(&remote->lock);
	write_on_one_line(reason, remote->last_error, sizeof(remote->last_error));
	pthread_mutex_unlock(&remote->lock);
}

/* The session that was made there is not wanted. */
static int stop(struct remote *remote, struct stream *stream, char **ret_reason)
{
	const struct frame_header goodbye = {.type = FRAME_BYE};
	uint8_t frame[FRAME_HEADER_BYTES];

	frame_header_encode(&goodbye, frame);
	stream_write(stream->out_fd, frame, sizeof(frame), GOODBYE_WAIT_MS);
	remote->is_stopped = true;
	*ret_reason =
		strdup("another machine or container answers to the name now, which the option "
		       "restart=stop does not follow: unmount, and mount again");
	return -ESTALE;
}

/* Before anything of a new session is used: what the last one had may be gone with its machine or
 * container. */
static int check_identity(struct remote *remote, struct stream *stream,
	const struct welcome *welcome, bool first, char **ret_reason)
{
	cleanup_free char *what = NULL;

	if (first)
		return remote_identity_take(remote, welcome->identity);
	if (welcome->resumed || !remote_identity_differs(remote, welcome->identity))
		return 0;
	if (remote->settings.stops_when_replaced)
		return stop(remote, stream, ret_reason);
	what = remote_identity_lose(remote);
	log_warning("%s", what ? what : "workspace replaced");
	note_error(remote, what ? what : "workspace replaced");
	if (remote->settings.replaced)
		remote->settings.replaced(
			remote->settings.link_user, what ? what : "workspace replaced");
	return remote_identity_take(remote, welcome->identity);
}

/* For example a virtual machine that was restored from a snapshot: the session there is older than
 * what this client has received from it, so resuming it would run requests twice or never.  It is
 * ended with the next attempt. */
static int note_set_back(struct remote *remote, char **ret_reason)
{
	pthread_mutex_lock(&remote->lock);
	remote->ends_session = remote->was_set_back = true;
	pthread_mutex_unlock(&remote->lock);
	log_warning("\"%s\" was set back to an earlier state (a snapshot?): open files and running "
		    "commands are lost, and so may be what was written since",
		remote->settings.transport.name);
	*ret_reason =
		strdup("it was set back to an earlier state (a snapshot?): what was open there "
		       "is lost, and so may be what was written since");
	return -ESTALE;
}

static int try_to_connect(struct remote *remote, struct stream *stream, bool first,
	int64_t deadline_ms, struct buffer *noise, char **ret_reason)
{
	cleanup_buffer struct buffer body = {0};
	struct welcome welcome;
	int r = 0;

	if (remote->settings.transport.gives_shell)
		r = bootstrap_run(stream, &remote->settings, &deadline_ms, noise, ret_reason);
	if (r == 0)
		r = remote_exchange_hello(remote, stream, 0, deadline_ms, &body, noise, &welcome);
	if (r < 0)
		return r;
	if (welcome.error == -ESTALE || (!welcome.error && welcome.resumed &&
						!lane_can_resume(remote->lane, welcome.received)))
		return note_set_back(remote, ret_reason);
	if (welcome.error || welcome.version != PROTOCOL_VERSION)
		return take_refusal(&welcome, ret_reason);
	r = check_identity(remote, stream, &welcome, first, ret_reason);
	return r < 0 ? r : take_welcome(remote, stream, &welcome, first);
}

static void publish(struct remote *remote, struct stream *connecting)
{
	pthread_mutex_lock(&remote->lock);
	remote->connecting = connecting;
	if (connecting && remote->stopping)
		stream_interrupt(connecting);
	pthread_mutex_unlock(&remote->lock);
}

/* The command reported that there is no shell, or not the helper that was copied. */
static bool lacks_program(const struct remote *remote, const char *stderr_text)
{
	return stderr_text && remote->settings.scheme->end->copy && strstr(stderr_text, "exec") &&
	       (strstr(stderr_text, "not found") || strstr(stderr_text, "no such file") ||
		       strstr(stderr_text, "No such file"));
}

static int connect_once(
	struct remote *remote, bool first, bool *ret_lacks_program, char **ret_reason)
{
	cleanup_buffer struct buffer noise = {0};
	cleanup_free char *stderr_text = NULL, *all = NULL;
	struct transport transport = remote->settings.transport;
	int64_t deadline_ms = clock_now_ms() + transport_patience_ms(&transport) -
			      (first ? remote->settings.prepare_ms : 0);
	struct stream stream = STREAM_NONE;
	int r;

	/* A signal may end this process before there is a mount, and so a handler. */
	transport.ends_with_thread = first;
	r = stream_open(&transport, &stream);
	if (r == 0) {
		publish(remote, &stream);
		r = try_to_connect(remote, &stream, first, deadline_ms, &noise, ret_reason);
		publish(remote, NULL);
	}
	if (r < 0) {
		/* After a timeout, nothing more is expected on stderr. */
		stderr_text = stream.child
				      ? stream_stderr(&stream, r == -ETIMEDOUT ? 0 : STDERR_WAIT_MS)
				      : NULL;
		if (stderr_text && !*stderr_text && !*ret_reason) {
			free(stderr_text);
			stderr_text = stream_end(&stream);
		}
		all = remote_all_stderr(stderr_text, &noise);
		*ret_lacks_program = *ret_reason ? r == -EROFS && remote->settings.scheme->end->copy
						 : lacks_program(remote, all);
		r = remote_explain(remote, stderr_text, all, r, &noise, ret_reason);
		stream_close(&stream);
		return r;
	}
	remote->stream = stream;
	return 0;
}

/* The threads of other channels copy the transport, under the lock. */
static int copy_helper(struct remote *remote, bool has_shell, char **ret_reason)
{
	struct remote_settings settings = remote->settings;
	int r;

	settings.transport.argv = NULL;
	r = remote_copy_helper(&settings, has_shell, ret_reason);
	if (r < 0)
		return r;
	pthread_mutex_lock(&remote->lock);
	argv_free_words(remote->settings.transport.argv);
	remote->settings.transport.argv = settings.transport.argv;
	remote->settings.transport.gives_shell = false;
	pthread_mutex_unlock(&remote->lock);
	return 0;
}

int remote_connect(struct remote *remote, bool first, char **ret_reason)
{
	cleanup_free char *detail = NULL;
	bool lacks_program = false;
	int r = connect_once(remote, first, &lacks_program, ret_reason);

	if (r == 0 || !lacks_program)
		return r;
	free(*ret_reason);
	*ret_reason = NULL;
	r = copy_helper(remote, r == -EROFS, &detail);
	if (r == 0)
		return connect_once(remote, first, &lacks_program, ret_reason);
	remote_write_reason(remote, r, detail, NULL, "", "", ret_reason);
	return r;
}

/* ---- The manager thread ------------------------------------------------------------- */

/* lane_callbacks.lost: by any thread, perhaps under remote->lock (check_silence() sends under it).
 * It takes no lock, so the manager may miss the signal; it then sees the flag at its next tick. */
void remote_lost(void *user, int error)
{
	struct remote *remote = user;

	(void)error;
	remote->lost = true;
	pthread_cond_signal(&remote->manager);
}

/* Waits between two attempts; false when the workspace is being freed.  `network`: as
 * retry_network_has_changed() takes it. */
static bool pause_before(struct remote *remote, int64_t ms, int network)
{
	struct retry retry = {.began_ms = clock_now_ms(), .pause_ms = ms};
	int64_t left_ms;
	bool go_on;

	remote->is_wanted = false;
	pthread_mutex_lock(&remote->lock);
	for (;;) {
		retry.has_waiting = remote->call_count > 0;
		retry.is_wanted =
			retry.is_wanted || remote->is_wanted || retry_network_has_changed(network);
		left_ms = retry_at_ms(&retry) - clock_now_ms();
		if (remote->stopping || left_ms <= 0)
			break;
		clock_cond_wait_ms(&remote->manager, &remote->lock,
			left_ms < NETWORK_TICK_MS ? left_ms : NETWORK_TICK_MS);
	}
	go_on = !remote->stopping;
	pthread_mutex_unlock(&remote->lock);
	return go_on;
}

static int64_t with_jitter(int64_t ms)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		return ms;
	return ms / 2 + (int64_t)(random % (uint32_t)ms);
}

static void close_connection(struct remote *remote)
{
	lane_detach(remote->lane);
	stream_close(&remote->stream);
}

static void tell_link(const struct remote *remote, bool is_back, const char *reason)
{
	if (remote->settings.link_changed)
		remote->settings.link_changed(remote->settings.link_user, is_back, reason);
}

/* The next attempt is soon where one may be silent for no good reason: podman exec hangs when its
 * container ends at that moment, and the first words may be lost in a serial port.  Where it was
 * silent as it takes longer there, later attempts wait longer. */
static int patience_of(const struct remote *remote, unsigned silent_attempts)
{
	unsigned doublings =
		silent_attempts < PATIENCE_DOUBLINGS_MAX ? silent_attempts : PATIENCE_DOUBLINGS_MAX;

	if (remote->settings.transport.address)
		return PATIENCE_SOCKET_FIRST_MS << doublings;
	return remote->settings.scheme->end->stream ? PATIENCE_FIRST_MS << doublings : 0;
}

static void reconnect(struct remote *remote)
{
	cleanup_free char *last_reason = NULL;
	cleanup_fd int network = retry_network_open();
	int64_t backoff_ms = RETRY_FIRST_MS;
	int64_t none = 0;
	unsigned silent_attempts = 0;
	bool share = false;

	atomic_compare_exchange_strong(&remote->bad_since_ms, &none, clock_now_ms());
	log_info("connection to \"%s\" lost, connecting again", remote->settings.transport.name);
	tell_link(remote, false, NULL);
	close_connection(remote);
	for (;;) {
		cleanup_free char *reason = NULL;
		int r;

		if (!pause_before(remote, with_jitter(backoff_ms), network))
			return;
		pthread_mutex_lock(&remote->lock);
		r = transport_share(&remote->settings.transport, share);
		remote->settings.transport.patience_ms = patience_of(remote, silent_attempts);
		pthread_mutex_unlock(&remote->lock);
		if (r == 0)
			r = remote_connect(remote, false, &reason);
		if (r == 0)
			break;
		silent_attempts += r == -ETIMEDOUT;
		share = !share; /* the shared connection may be the only one without a prompt */
		note_error(remote, reason ? reason : strerror(-r));
		log_info("%s", reason ? reason : strerror(-r));
		free(last_reason);
		last_reason = strdup(reason ? reason : strerror(-r));
		if (remote->is_stopped)
			return;
		backoff_ms = backoff_ms * 2 < RETRY_MAX_MS ? backoff_ms * 2 : RETRY_MAX_MS;
	}
	remote->reconnects++;
	log_info("connected to \"%s\" again", remote->settings.transport.name);
	tell_link(remote, true, last_reason);
}

/* Early enough for a new connection within the bound of the calls.  A helper on this machine is
 * waited for instead: it is busy, stopped, or gets no processor time, and a new connection would
 * lead to the same one.  Its end closes the connection. */
static int64_t pong_lost_ms(const struct remote *remote)
{
	int64_t third = remote->settings.timeout_ms / 3;

	if (remote->settings.scheme->end->is_here)
		return INT64_MAX;
	if (third < PONG_LOST_MIN_MS)
		return PONG_LOST_MIN_MS;
	return third < PONG_LOST_MAX_MS ? third : PONG_LOST_MAX_MS;
}

/* Under the lock.  True when the connection is to be given up. */
static bool check_silence(struct remote *remote)
{
	struct lane_counters traffic;
	struct heartbeat_state state = {
		.now_ms = clock_now_ms(),
		.is_busy = remote->call_count > 0,
		.patience_ms = pong_lost_ms(remote),
	};
	enum heartbeat_verdict verdict;

	lane_count(remote->lane, &traffic);
	state.received_bytes = traffic.bytes_received;
	state.silence_ms = lane_silence_ms(remote->lane);
	verdict = heartbeat_check(&remote->heartbeat, &state);
	if (verdict == HEARTBEAT_SEND)
		lane_send(remote->lane, LANE_URGENT, FRAME_PING, 0, NULL);
	if (verdict == HEARTBEAT_GOOD)
		remote->bad_since_ms = 0;
	if (verdict == HEARTBEAT_LATE && !remote->bad_since_ms)
		remote->bad_since_ms = remote->heartbeat.pinged_ms;
	return verdict == HEARTBEAT_LOST;
}

static void *run_manager(void *argument)
{
	struct remote *remote = argument;

	pthread_mutex_lock(&remote->lock);
	while (!remote->stopping) {
		bool lost = !remote->is_stopped && (remote->lost || check_silence(remote));

		if (lost) {
			pthread_mutex_unlock(&remote->lock);
			reconnect(remote);
			pthread_mutex_lock(&remote->lock);
			continue;
		}
		if (remote->prepared) {
			pthread_mutex_unlock(&remote->lock);
			remote_prepared_tidy(remote);
			pthread_mutex_lock(&remote->lock);
		}
		if (remote->chunk_bytes) {
			pthread_mutex_unlock(&remote->lock);
			remote_drop_stale_chunks(remote);
			pthread_mutex_lock(&remote->lock);
		}
		clock_cond_wait_ms(&remote->manager, &remote->lock,
			remote->call_count || remote->heartbeat.pinged_ms ? TICK_MS : TICK_IDLE_MS);
	}
	pthread_mutex_unlock(&remote->lock);
	return NULL;
}

int remote_manager_start(struct remote *remote)
{
	int r = thread_start(&remote->manager_thread, "link-manager", 0, run_manager, remote);

	remote->manager_runs = r == 0;
	return r;
}

/* True when the session ended the connection: then it has received BYE and will not linger. */
static bool say_goodbye(struct remote *remote)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int64_t end = clock_now_ms() + GOODBYE_WAIT_MS;
	bool silent;

	/* The manager may not have run since the link came back. */
	pthread_mutex_lock(&remote->lock);
	silent = check_silence(remote) || remote->bad_since_ms;
	pthread_mutex_unlock(&remote->lock);
	if (silent || remote->lost)
		return false;
	lane_send(remote->lane, LANE_BULK, FRAME_BYE, 0, NULL);
	while (!remote->lost && clock_now_ms() < end)
		nanosleep(&pause, NULL);
	return remote->lost;
}

void remote_manager_stop(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	remote->stopping = true;
	if (remote->connecting)
		stream_interrupt(remote->connecting);
	pthread_cond_broadcast(&remote->manager);
	pthread_mutex_unlock(&remote->lock);
	if (remote->manager_runs)
		pthread_join(remote->manager_thread, NULL);
	remote_channels_stop(remote);
	/* A session that lingers is ended by the next mount. */
	if (say_goodbye(remote))
		remote_session_forget(remote);
	close_connection(remote);
}
