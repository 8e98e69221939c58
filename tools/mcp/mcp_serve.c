/*
 * All threads of the server are equal.  One of them reads.  When it has read calls, it lets another
 * thread read and runs a call itself, so that a call on a quiet server needs no thread switch.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "tools/mcp/mcp.h"

enum {
	END_GRACE_MS = 10000,
	END_LOOK_MS = 50, /* interval of the checks whether the client still waits for answers */
	BEAT_MS = 1000,
	READ_BYTES = 65536,
	STACK_BYTES = 8 << 20,
};

static volatile sig_atomic_t end_requested;

static void on_signal(int signal)
{
	(void)signal;
	end_requested = 1;
}

static const int ending_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* Blocks these signals, except while a thread waits for input, so that none is missed.  Threads
 * inherit the mask. */
static void take_signals(struct mcp_server *server)
{
	const struct sigaction end = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
	sigset_t blocked;

	sigemptyset(&blocked);
	for (size_t i = 0; i < array_size(ending_signals); i++) {
		sigaction(ending_signals[i], &end, NULL);
		sigaddset(&blocked, ending_signals[i]);
	}
	sigaction(SIGPIPE, &ignore, NULL);
	pthread_sigmask(SIG_BLOCK, &blocked, &server->while_waiting);
}

/* ---- Reading ----------------------------------------------------------------------------- */

static void refuse_long(struct mcp_server *server, const struct buffer *text)
{
	cleanup_free char *id = mcp_broken_id((const char *)text->data, text->size);

	mcp_fail_raw(server, NULL, id, MCP_INVALID_REQUEST, "a message must be shorter than 10 MiB",
		NULL);
}

static void take_lines(struct mcp_server *server, struct mcp_input *input)
{
	const char *start = (const char *)input->text.data, *end = start + input->text.size,
		   *newline;

	while ((newline = memchr(start, '\n', (size_t)(end - start)))) {
		if (!input->skipping)
			mcp_take_line(server, start, (size_t)(newline - start));
		input->skipping = false;
		start = newline + 1;
	}
	buffer_consume(&input->text, (size_t)(start - (const char *)input->text.data));
	if (input->text.size > MCP_MESSAGE_MAX_BYTES) {
		if (!input->skipping)
			refuse_long(server, &input->text);
		input->skipping = true;
	}
	if (input->skipping)
		input->text.size = 0;
}

/* Handles the result of one read(2).  False: end of the input, or a signal. */
static bool read_some(struct mcp_server *server)
{
	struct mcp_input *input = &server->input;
	struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
	ssize_t got;

	if (ppoll(&wait, 1, NULL, &server->while_waiting) < 0)
		return !end_requested;
	if (buffer_reserve(&input->text, READ_BYTES) < 0)
		return false;
	got = read(STDIN_FILENO, input->text.data + input->text.size, READ_BYTES);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (got > 0) {
		input->text.size += (size_t)got;
		take_lines(server, input);
		return true;
	}
	/* A last message without a line end. */
	if (input->text.size && !input->skipping)
		mcp_take_line(server, (const char *)input->text.data, input->text.size);
	return false;
}

/* ---- The threads ---------------------------------------------------------------------------- */

/* Takes the call that has waited longest. */
static struct mcp_request *take_waiting(struct mcp_server *server)
{
	struct mcp_request **at = &server->waiting, *request;

	while ((*at)->next_waiting)
		at = &(*at)->next_waiting;
	request = *at;
	*at = NULL;
	server->waiting_count--;
	return request;
}

/* Reads input once.  Called with the lock held; releases it meanwhile. */
static void read_input(struct mcp_server *server)
{
	bool more;

	server->reading = true;
	pthread_mutex_unlock(&server->lock);
	more = read_some(server);
	pthread_mutex_lock(&server->lock);
	server->reading = false;
	if (more)
		return;
	server->ended = true;
	pthread_cond_broadcast(&server->idle);
}

static void run_waiting(struct mcp_server *server)
{
	struct mcp_request *request = take_waiting(server);

	bool more = server->waiting;

	pthread_mutex_unlock(&server->lock);
	/* Another thread now reads, and runs the further calls of this input. */
	if (more)
		pthread_cond_broadcast(&server->work);
	else
		pthread_cond_signal(&server->work);
	mcp_run_call(request);
	pthread_mutex_lock(&server->lock);
}

/* With the lock held. */
static bool may_run_one(const struct mcp_server *server)
{
	return server->waiting && server->call_count - server->waiting_count < MCP_CALLS_MAX;
}

/* The code of each thread.  There is at most one thread per running call, plus one that reads. */
static void work(void *user)
{
	struct mcp_server *server = user;

	pthread_mutex_lock(&server->lock);
	while (!server->ended || server->waiting) {
		if (may_run_one(server)) {
			run_waiting(server);
		} else if (!server->reading && !server->ended) {
			read_input(server);
		} else {
			server->idle_threads++;
			pthread_cond_wait(&server->work, &server->lock);
			server->idle_threads--;
		}
	}
	pthread_mutex_unlock(&server->lock);
}

/* With the lock held. */
static int start_worker(struct mcp_server *server)
{
	if (!worker_pool_submit(&server->pool, work, server))
		return -EAGAIN;
	server->threads++;
	return 0;
}

int mcp_queue_call(struct mcp_request *request)
{
	struct mcp_server *server = request->server;
	int r = 0;

	pthread_mutex_lock(&server->lock);
	/* This thread will run one of the calls, so another one must read. */
	if (server->waiting_count >= MCP_WAITING_MAX)
		r = -EAGAIN;
	else if (server->idle_threads <= server->waiting_count && server->threads <= MCP_CALLS_MAX)
		r = start_worker(server);
	if (r == 0) {
		request->next = server->calls;
		server->calls = request;
		server->call_count++;
		request->next_waiting = server->waiting;
		server->waiting = request;
		server->waiting_count++;
	}
	pthread_mutex_unlock(&server->lock);
	return r;
}

/* ---- The end ---------------------------------------------------------------------- */

/* Whether the client still waits for answers.  A client that ends the server sends a signal soon
 * after it has closed the input (SDKs: after 2 to 5 s); a client that is gone has closed the
 * output.  Lets pending signals in, as no thread waits for input any more. */
static bool is_awaited(const struct mcp_server *server)
{
	const struct timespec at_once = {0};
	struct pollfd reader = {.fd = STDOUT_FILENO};

	ppoll(&reader, 1, &at_once, &server->while_waiting);
	return !end_requested && !(reader.revents & (POLLERR | POLLHUP));
}

/* Cancels all calls, or those that wait for a message of the client.  Called with the lock held. */
static void cancel_calls(struct mcp_server *server, bool all)
{
	for (struct mcp_request *at = server->calls; at; at = at->next)
		if (all || (at->elicitation && !at->elicited) || (*at->handle && !at->successor))
			mcp_cancel(at);
}

/* Waits for running calls, at most END_GRACE_MS, as a client may close the input right after its
 * last call; then cancels them, with the processes that they have started.  Called with the lock
 * held. */
static void end_calls(struct mcp_server *server)
{
	int64_t until_ms = clock_now_ms() + END_GRACE_MS;

	while (server->call_count && is_awaited(server) && clock_now_ms() < until_ms) {
		cancel_calls(server, false);
		clock_cond_wait_ms(&server->idle, &server->lock, END_LOOK_MS);
	}
	cancel_calls(server, true);
	while (server->call_count)
		pthread_cond_wait(&server->idle, &server->lock);
}

static const struct worker_limits limits = {
	.name = "mcp", .stack_bytes = STACK_BYTES, .threads_max = MCP_CALLS_MAX + 1};

int mcp_serve(struct mcp_server *server)
{
	struct timespec next = clock_in_ms(BEAT_MS);
	int r;

	take_signals(server);
	worker_pool_init(&server->pool, &limits);
	pthread_mutex_lock(&server->lock);
	r = start_worker(server);
	while (r == 0 && !server->ended) {
		if (pthread_cond_timedwait(&server->idle, &server->lock, &next) != ETIMEDOUT)
			continue;
		mcp_send_heartbeats(server);
		next = clock_in_ms(BEAT_MS);
	}
	end_calls(server);
	pthread_cond_broadcast(&server->work);
	pthread_mutex_unlock(&server->lock);
	worker_pool_done(&server->pool);
	buffer_done(&server->input.text);
	return r;
}
