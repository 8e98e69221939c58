#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/commands/forward_stream.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/endpoint.h"
#include "ops/support/worker_pool.h"

enum {
	FORWARDS_MAX = 32,
	STREAMS_MAX = 128, /* served at a time; further connections wait in the kernel */
	FULL_WAIT_MS = 50,
	UNMOUNT_WAIT_MS = 5000,
	MOUNT_END_WAIT_MS = 1000,
	LINE_MAX_BYTES = 512,
	THREAD_STACK_BYTES = 256 << 10,
};

static const char usage[] =
	"usage: isthmus forward DIR [LOCAL:]PORT... [-R [PORT:]LOCAL]...\n"
	"\n"
	"Makes ports of the workspace's machine reachable here, until the command or the mount "
	"ends.\n"
	"DIR is any directory on the mount.\n"
	"\n"
	"  -R, --reverse [PORT:]LOCAL  the reverse: make a port of this machine reachable there\n"
	"\n"
	"PORT and LOCAL are each a port of the loopback (IPv4 and IPv6), ADDRESS:PORT, "
	"[ADDRESS]:PORT,\n"
	"or the path of a unix socket that begins with '/' or './'.  Port 0 selects a free port.\n"
	"\n"
	"  isthmus forward ~/ws 3000                       localhost:3000 is port 3000 there\n"
	"  isthmus forward ~/ws 8080:3000 5432             two ports\n"
	"  isthmus forward ~/ws 0.0.0.0:8080:3000          also for other machines\n"
	"  isthmus forward ~/ws 2375:/run/docker.sock      a unix socket there\n"
	"  isthmus forward ~/ws -R 9000:3000               port 9000 there is port 3000 here\n"
	"\n"
	"Exit code: 0 after a signal or the unmount, 1 on failure.\n";

/* A forward of the command line. */
struct forward {
	struct endpoint listen, target;
	bool reverse;
	int fds[ENDPOINT_LISTENERS_MAX], count; /* listeners on this machine */
	int daemon;                /* reverse: connection for the listener there; else -1 */
	char listener[32];         /* reverse: name of that listener */
	char line[LINE_MAX_BYTES]; /* reverse: beginning of an incomplete line */
	size_t line_size;
};

struct forward_command {
	const char *directory;
	char *control_path;
	struct forward forwards[FORWARDS_MAX];
	size_t count;
	int hold;    /* connection to the daemon, which ends with the mount */
	int signals; /* signalfd of the signals that end the command */
};

static struct worker_pool streams;
static atomic_uint streams_running;

static const char *text_of(const struct endpoint *endpoint, char text[ENDPOINT_TEXT_BYTES])
{
	endpoint_text(endpoint, text);
	return text;
}

/* ---- Connections ------------------------------------------------------------------------- */

static void stream_run(void *user)
{
	struct forward_stream *stream = user;
	cleanup_free char *message = forward_stream_run(stream);

	if (message)
		command_note("forward", "%s", message);
	free(stream);
	streams_running--;
}

/* Takes over `fd` and `request`. */
static void start_stream(const struct forward_command *command, int fd, cJSON *request)
{
	struct forward_stream *stream = calloc(1, sizeof(*stream));

	if (stream)
		*stream = (struct forward_stream){
			command->control_path, cJSON_PrintUnformatted(request), fd};
	cJSON_Delete(request);
	streams_running++;
	if (stream && stream->request && worker_pool_submit(&streams, stream_run, stream))
		return;
	streams_running--;
	command_note("forward", "a connection is refused: no thread or no memory for it");
	if (fd >= 0)
		endpoint_reset(fd);
	if (stream)
		free(stream->request);
	free(stream);
}

static cJSON *new_request(const char *name, const struct endpoint *endpoint)
{
	cJSON *request = cJSON_CreateObject();
	char text[ENDPOINT_TEXT_BYTES];

	cJSON_AddStringToObject(request, "request", name);
	cJSON_AddStringToObject(request, "endpoint", text_of(endpoint, text));
	return request;
}

static void take_connections(const struct forward_command *command, const struct forward *forward)
{
	for (int i = 0; i < forward->count; i++) {
		int fd;

		while (streams_running < STREAMS_MAX &&
			(fd = accept4(forward->fds[i], NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			endpoint_no_delay(fd);
			start_stream(command, fd, new_request("connect", &forward->target));
		}
	}
}

/* A connection arrived at the port there: connects to the target here. */
static void answer_connection(
	const struct forward_command *command, const struct forward *forward, const char *number)
{
	int fd = endpoint_connect(&forward->target, (struct command_interrupt){0});
	cJSON *request = new_request("accept", &forward->listen);
	char text[ENDPOINT_TEXT_BYTES];

	if (fd < 0)
		command_note("forward", "nothing listens on %s here (%s)",
			text_of(&forward->target, text), strerror(-fd));
	cJSON_AddStringToObject(request, "listener", forward->listener);
	cJSON_AddStringToObject(request, "connection", number);
	start_stream(command, fd < 0 ? -1 : fd, request);
}

/* ---- The listener at the workspace ------------------------------------------------------- */

static int take_line(const struct forward_command *command, struct forward *forward, char *line)
{
	char name[32], endpoint[ENDPOINT_TEXT_BYTES];

	if (sscanf(line, "connection %31s", name) == 1) {
		answer_connection(command, forward, name);
		return 0;
	}
	if (sscanf(line, "listening %31s %127s", name, endpoint) != 2)
		return -EPROTO;
	strcpy(forward->listener, name);
	return endpoint_parse(endpoint, &forward->listen);
}

static int take_lines(
	const struct forward_command *command, struct forward *forward, const struct buffer *data)
{
	const char *bytes = (const char *)data->data;
	int r = 0;

	for (size_t i = 0; i < data->size && r == 0; i++) {
		if (forward->line_size == LINE_MAX_BYTES)
			return -EPROTO;
		forward->line[forward->line_size++] = bytes[i];
		if (bytes[i] != '\n')
			continue;
		forward->line[forward->line_size - 1] = '\0';
		forward->line_size = 0;
		r = take_line(command, forward, forward->line);
	}
	return r;
}

/* Negative: the listener has ended.  `*ret_message`: the reason, or NULL; the caller frees it. */
static int take_frame(
	const struct forward_command *command, struct forward *forward, char **ret_message)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	int r = control_receive(forward->daemon, &type, &payload);

	if (r == 0 && type == CONTROL_STDOUT)
		return take_lines(command, forward, &payload);
	if (r == 0 && type == CONTROL_FAILURE)
		r = control_failure(&payload, ret_message);
	return r < 0 ? r : -ECONNRESET;
}

static int say_gone(const char *message)
{
	return command_error("forward", "%s",
		message ? message : "the port at the workspace is closed: the helper has ended");
}

/* ---- Start ------------------------------------------------------------------------------- */

static int listen_here(struct forward *forward)
{
	char text[ENDPOINT_TEXT_BYTES];
	int r = endpoint_listen(&forward->listen, forward->fds);

	if (r >= 0) {
		forward->count = r;
		return 0;
	}
	text_of(&forward->listen, text);
	if (r == -EADDRINUSE)
		command_error("forward", "%s is in use here: use another, as in 0:%u or 8080:%u",
			text, forward->target.port, forward->target.port);
	else
		command_error("forward", "cannot listen on %s: %s", text, strerror(-r));
	return r;
}

static int send_request(const struct forward_command *command, cJSON *request, int *ret_fd)
{
	cleanup_free char *text = cJSON_PrintUnformatted(request);
	int r = text ? control_connect(command->control_path) : -ENOMEM;

	cJSON_Delete(request);
	if (r >= 0) {
		*ret_fd = r;
		r = control_send(r, CONTROL_JSON, text, strlen(text));
	}
	if (r < 0)
		command_error("forward",
			"the daemon of \"%s\" does not answer (%s): see 'isthmus list'",
			command->directory, strerror(-r));
	return r;
}

static int listen_there(const struct forward_command *command, struct forward *forward)
{
	cleanup_free char *message = NULL;
	int r = send_request(command, new_request("listen", &forward->listen), &forward->daemon);

	while (r == 0 && !*forward->listener) {
		r = take_frame(command, forward, &message);
		if (r < 0)
			say_gone(message);
	}
	return r;
}

/* Opens a connection that the daemon keeps until the mount ends. */
static int hold_mount(struct forward_command *command)
{
	cleanup_buffer struct buffer joined = {0}, payload = {0};
	cleanup_free char *text = NULL, *message = NULL;
	cJSON *request = cJSON_CreateObject();
	enum control_frame_type type;
	char from[ENDPOINT_TEXT_BYTES], to[ENDPOINT_TEXT_BYTES];
	int r;

	for (size_t i = 0; i < command->count; i++)
		buffer_printf(&joined, "%s%s%s:%s", i ? " " : "",
			command->forwards[i].reverse ? "-R " : "",
			text_of(&command->forwards[i].listen, from),
			text_of(&command->forwards[i].target, to));
	text = buffer_steal_string(&joined);
	cJSON_AddStringToObject(request, "request", "forward");
	cJSON_AddStringToObject(request, "text", text ? text : "");
	r = send_request(command, request, &command->hold);
	if (r < 0)
		return r;
	r = control_receive(command->hold, &type, &payload);
	if (r == 0 && type == CONTROL_FAILURE)
		r = control_failure(&payload, &message);
	if (r < 0)
		command_error("forward", "%s", message ? message : strerror(-r));
	return r;
}

static void announce(const struct forward *forward)
{
	char from[ENDPOINT_TEXT_BYTES], to[ENDPOINT_TEXT_BYTES];

	text_of(&forward->listen, from);
	text_of(&forward->target, to);
	if (forward->reverse)
		printf("%s at the workspace leads to %s here\n", from, to);
	else
		printf("%s here leads to %s at the workspace\n", from, to);
	fflush(stdout);
}

static int start(struct forward_command *command)
{
	int r = 0;

	for (size_t i = 0; i < command->count && r == 0; i++)
		if (!command->forwards[i].reverse)
			r = listen_here(&command->forwards[i]);
	if (r == 0)
		r = hold_mount(command);
	for (size_t i = 0; i < command->count && r == 0; i++)
		if (command->forwards[i].reverse)
			r = listen_there(command, &command->forwards[i]);
	for (size_t i = 0; i < command->count && r == 0; i++)
		announce(&command->forwards[i]);
	return r;
}

/* ---- Until the end ------------------------------------------------------------------------ */

/* 0 if the directory was unmounted, an error if the daemon died. */
static int mount_ended(const struct forward_command *command)
{
	int r = 0;

	for (int waited = 0; waited < UNMOUNT_WAIT_MS; waited += FULL_WAIT_MS) {
		r = control_find(command->directory, NULL, NULL, NULL);
		if (r == -ENODATA || r == -ENOENT)
			return 0;
		poll(NULL, 0, FULL_WAIT_MS);
	}
	return command_error("forward", "the daemon of \"%s\" has died", command->directory);
}

/* Fills in the descriptors to poll: signals, the mount, then each forward in order. */
static nfds_t fill(const struct forward_command *command, bool is_full, struct pollfd *fds)
{
	nfds_t count = 0;

	fds[count++] = (struct pollfd){command->signals, POLLIN, 0};
	fds[count++] = (struct pollfd){command->hold, POLLIN | POLLRDHUP, 0};
	for (size_t i = 0; i < command->count && !is_full; i++) {
		const struct forward *forward = &command->forwards[i];

		if (forward->reverse)
			fds[count++] = (struct pollfd){forward->daemon, POLLIN, 0};
		for (int j = 0; j < forward->count; j++)
			fds[count++] = (struct pollfd){forward->fds[j], POLLIN, 0};
	}
	return count;
}

static bool is_ready(int fd, int wait_ms)
{
	struct pollfd one = {fd, POLLIN | POLLRDHUP, 0};

	return poll(&one, 1, wait_ms) > 0;
}

/* A listener has ended.  At unmount this may be noticed before the end of the mount itself. */
static int listener_ended(const struct forward_command *command, const char *message)
{
	if (!message && is_ready(command->hold, MOUNT_END_WAIT_MS))
		return mount_ended(command);
	return say_gone(message);
}

/* Handles all events.  -1: continue; else the exit code. */
static int take_all(struct forward_command *command)
{
	for (size_t i = 0; i < command->count; i++) {
		struct forward *forward = &command->forwards[i];
		cleanup_free char *message = NULL;

		if (!forward->reverse)
			take_connections(command, forward);
		else if (is_ready(forward->daemon, 0) && take_frame(command, forward, &message) < 0)
			return listener_ended(command, message);
	}
	return -1;
}

static int serve(struct forward_command *command)
{
	struct pollfd fds[2 + FORWARDS_MAX * ENDPOINT_LISTENERS_MAX];
	int code = -1;

	while (code < 0) {
		bool is_full = streams_running >= STREAMS_MAX;
		nfds_t count = fill(command, is_full, fds);

		if (poll(fds, count, is_full ? FULL_WAIT_MS : -1) < 0 && errno != EINTR)
			return command_error("forward", "poll: %s", strerror(errno));
		if (fds[0].revents)
			return 0;
		if (fds[1].revents)
			return mount_ended(command);
		if (!is_full)
			code = take_all(command);
	}
	return code;
}

static void stop(const struct forward_command *command)
{
	for (size_t i = 0; i < command->count; i++)
		endpoint_unlisten(&command->forwards[i].listen, command->forwards[i].fds,
			command->forwards[i].count);
}

/* ---- The command line --------------------------------------------------------------------- */

static int add(struct forward_command *command, const char *text, bool reverse)
{
	struct forward *forward = &command->forwards[command->count];
	int r;

	if (command->count == FORWARDS_MAX)
		return command_usage_error("forward", "more than %d ports", FORWARDS_MAX);
	*forward = (struct forward){.reverse = reverse, .daemon = -1};
	r = endpoint_parse_pair(text, &forward->listen, &forward->target);
	if (r == -EDESTADDRREQ)
		return command_usage_error("forward",
			"\"%s\": say at which port it can be reached, as in 8080:%s", text, text);
	if (r < 0)
		return command_usage_error("forward",
			"\"%s\" is not [LISTEN:]TARGET, each a PORT, ADDRESS:PORT or /path", text);
	command->count++;
	return 0;
}

static int add_argument(void *into, const char *text)
{
	struct forward_command *command = into;

	if (command->directory)
		return add(command, text, false);
	command->directory = text;
	return 0;
}

static int add_reverse(void *into, const char *text)
{
	return add(into, text, true);
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

int forward_command(int argc, char **argv)
{
	static struct forward_command command = {.hold = -1};
	const struct command_option options[] = {
		{"reverse", 'R', .set = add_reverse, .into = &command}, {0}};
	const struct command_line line = {.command = "forward",
		.usage = usage,
		.options = options,
		.argument = add_argument,
		.into = &command};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	if (!command.directory || command.count == 0)
		return command_usage_error("forward", "needs a directory on a mount, and ports");
	if (command_find_mount("forward", command.directory, &command.control_path, NULL, NULL) < 0)
		return 1;
	command.signals = open_signals();
	worker_pool_init(&streams, &(struct worker_limits){.name = "forward",
					   .stack_bytes = THREAD_STACK_BYTES,
					   .threads_max = STREAMS_MAX,
					   .queue_max = STREAMS_MAX});
	code = start(&command) < 0 ? 1 : serve(&command);
	stop(&command);
	/* Threads may still serve connections: the daemon ends the other halves. */
	fflush(stdout);
	_exit(code);
}
