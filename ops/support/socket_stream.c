#include "ops/support/socket_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "ops/support/cleanup.h"
#include "ops/support/endpoint.h"

enum { POLL_MS = 50, WAITING_MAX = 128, LINE_BYTES = ENDPOINT_TEXT_BYTES + 64 };

struct waiting {
	uint64_t number; /* 0: free */
	int fd;
};

/* All connections of one endpoint, until they are accepted. */
struct listener {
	struct listener *next; /* guarded by listeners_lock, as is `waiting` */
	uint64_t name;         /* not to be guessed */
	struct endpoint endpoint;
	int fds[ENDPOINT_LISTENERS_MAX], count;
	uint64_t connections; /* so far */
	struct waiting waiting[WAITING_MAX];
};

struct socket_stream {
	int fd; /* of a connection; -1: it listens */
	atomic_bool input_closed;
	bool output_ended; /* EXEC_STDOUT_END was reported */
	bool ended;        /* EXEC_EXIT was reported, in order */
	struct listener *listener;
	char line[LINE_BYTES]; /* of a listener: what is to be reported */
	size_t line_size;
};

static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct listener *listeners;

static bool is_interrupted(struct command_interrupt interrupt)
{
	return interrupt.is_true && interrupt.is_true(interrupt.user);
}

/* ---- Listening --------------------------------------------------------------------------- */

static void say(struct socket_stream *stream, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct socket_stream *stream, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	stream->line_size = (size_t)vsnprintf(stream->line, LINE_BYTES, format, arguments);
	va_end(arguments);
}

static void listener_free(struct listener *listener)
{
	struct listener **at = &listeners;

	pthread_mutex_lock(&listeners_lock);
	while (*at && *at != listener)
		at = &(*at)->next;
	if (*at)
		*at = listener->next;
	pthread_mutex_unlock(&listeners_lock);
	endpoint_unlisten(&listener->endpoint, listener->fds, listener->count);
	for (size_t i = 0; i < WAITING_MAX; i++)
		if (listener->waiting[i].number)
			endpoint_reset(listener->waiting[i].fd);
	free(listener);
}

static int open_listener(const char *text, struct socket_stream *stream)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	char bound[ENDPOINT_TEXT_BYTES];
	int r;

	if (!listener)
		return -ENOMEM;
	r = endpoint_parse(text, &listener->endpoint);
	if (r == 0)
		r = listener->count = endpoint_listen(&listener->endpoint, listener->fds);
	if (r >= 0 && getrandom(&listener->name, sizeof(listener->name), 0) < 0)
		r = -errno;
	if (r < 0) {
		listener->count = listener->count < 0 ? 0 : listener->count;
		listener_free(listener);
		return r;
	}
	pthread_mutex_lock(&listeners_lock);
	listener->next = listeners;
	listeners = listener;
	pthread_mutex_unlock(&listeners_lock);
	stream->listener = listener;
	endpoint_text(&listener->endpoint, bound);
	say(stream, "listening %016" PRIx64 " %s\n", listener->name, bound);
	return 0;
}

/* Returns the number of the connection; 0: there is none, or no room for it. */
static uint64_t take_connection(struct listener *listener)
{
	struct waiting *slot = NULL;
	int fd = -1;

	pthread_mutex_lock(&listeners_lock);
	for (size_t i = 0; i < WAITING_MAX && !slot; i++)
		if (!listener->waiting[i].number)
			slot = &listener->waiting[i];
	for (int i = 0; i < listener->count && fd < 0 && slot; i++)
		fd = accept4(listener->fds[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		*slot = (struct waiting){.number = ++listener->connections, .fd = fd};
	pthread_mutex_unlock(&listeners_lock);
	if (fd < 0)
		return 0;
	endpoint_no_delay(fd);
	return listener->connections;
}

static int next_line(struct socket_stream *stream, struct command_interrupt interrupt, void *buffer,
	size_t size, struct exec_event *ret_event)
{
	struct pollfd fds[ENDPOINT_LISTENERS_MAX];
	uint64_t number;

	while (stream->line_size == 0) {
		for (int i = 0; i < stream->listener->count; i++)
			fds[i] = (struct pollfd){stream->listener->fds[i], POLLIN, 0};
		if (is_interrupted(interrupt))
			return -EINTR;
		if (poll(fds, (nfds_t)stream->listener->count, POLL_MS) <= 0)
			continue;
		number = take_connection(stream->listener);
		if (number)
			say(stream, "connection %" PRIu64 "\n", number);
		else
			poll(NULL, 0, POLL_MS); /* until another thread has made room */
	}
	if (size > stream->line_size)
		size = stream->line_size;
	memcpy(buffer, stream->line, size);
	stream->line_size -= size;
	memmove(stream->line, stream->line + size, stream->line_size);
	*ret_event = (struct exec_event){.type = EXEC_STDOUT, .size = size};
	return 0;
}

/* ---- Connections ------------------------------------------------------------------------- */

static int accept_waiting(const char *name, const char *number)
{
	uint64_t wanted_name = strtoull(name, NULL, 16), wanted = strtoull(number, NULL, 10);
	int fd = -ESRCH;

	pthread_mutex_lock(&listeners_lock);
	for (struct listener *at = listeners; at && wanted; at = at->next)
		for (size_t i = 0; i < WAITING_MAX && at->name == wanted_name; i++)
			if (at->waiting[i].number == wanted) {
				fd = at->waiting[i].fd;
				at->waiting[i].number = 0;
			}
	pthread_mutex_unlock(&listeners_lock);
	return fd;
}

static int open_connection(const char *text, struct command_interrupt interrupt)
{
	struct endpoint endpoint;
	int r = endpoint_parse(text, &endpoint);

	return r < 0 ? r : endpoint_connect(&endpoint, interrupt);
}

int socket_stream_open(const char *const *argv, struct command_interrupt interrupt,
	struct socket_stream **ret_stream)
{
	cleanup_free struct socket_stream *stream = calloc(1, sizeof(*stream));
	size_t count = 0;
	int r = -EINVAL;

	if (!stream)
		return -ENOMEM;
	while (argv && argv[count])
		count++;
	stream->fd = -1;
	if (count == 2 && strcmp(argv[0], "listen") == 0)
		r = open_listener(argv[1], stream);
	else if (count == 2 && strcmp(argv[0], "connect") == 0)
		r = stream->fd = open_connection(argv[1], interrupt);
	else if (count == 3 && strcmp(argv[0], "accept") == 0)
		r = stream->fd = accept_waiting(argv[1], argv[2]);
	if (r < 0)
		return r;
	*ret_stream = steal_ptr(&stream);
	return 0;
}

/* What came before its end has come whole, whatever breaks after it. */
static int give_end(struct socket_stream *stream, bool in_order, struct exec_event *ret_event)
{
	stream->ended = in_order;
	*ret_event = (struct exec_event){.type = EXEC_EXIT, .exit_code = !in_order};
	return 0;
}

/* 1 when there was an event. */
static int receive(
	struct socket_stream *stream, void *buffer, size_t size, struct exec_event *ret_event)
{
	ssize_t got = recv(stream->fd, buffer, size, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got < 0) {
		give_end(stream, false, ret_event);
		return 1;
	}
	stream->output_ended = got == 0;
	*ret_event = (struct exec_event){
		.type = got ? EXEC_STDOUT : EXEC_STDOUT_END, .size = (size_t)got};
	return 1;
}

int socket_stream_next(struct socket_stream *stream, struct command_interrupt interrupt,
	void *buffer, size_t size, struct exec_event *ret_event)
{
	struct pollfd ready = {.fd = stream->fd};

	if (stream->listener)
		return next_line(stream, interrupt, buffer, size, ret_event);
	for (;;) {
		if (stream->output_ended && stream->input_closed)
			return give_end(stream, true, ret_event);
		if (is_interrupted(interrupt))
			return -EINTR;
		ready.events = stream->output_ended ? 0 : POLLIN;
		if (poll(&ready, 1, POLL_MS) <= 0)
			continue;
		if (!stream->output_ended && receive(stream, buffer, size, ret_event))
			return 0;
		if (stream->output_ended && !stream->input_closed &&
			(ready.revents & (POLLERR | POLLHUP)))
			return give_end(stream, true, ret_event);
	}
}

ssize_t socket_stream_write(struct socket_stream *stream, struct command_interrupt interrupt,
	const void *data, size_t size)
{
	struct pollfd room = {.fd = stream->fd, .events = POLLOUT};
	ssize_t put;

	if (stream->listener || stream->input_closed)
		return -EPIPE;
	while ((put = send(stream->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -EPIPE;
		if (is_interrupted(interrupt))
			return -EINTR;
		poll(&room, 1, POLL_MS);
	}
	return put;
}

int socket_stream_close_input(struct socket_stream *stream)
{
	if (stream->fd >= 0 && !atomic_exchange(&stream->input_closed, true))
		shutdown(stream->fd, SHUT_WR);
	return 0;
}

void socket_stream_free(struct socket_stream *stream)
{
	if (!stream)
		return;
	if (stream->listener)
		listener_free(stream->listener);
	else if (stream->ended)
		close(stream->fd);
	else
		endpoint_reset(stream->fd);
	free(stream);
}
