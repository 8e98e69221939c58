#include "fs/commands/forward_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/endpoint.h"
#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/thread.h"

enum { PIECE_BYTES = 32 << 10, STACK_BYTES = 256 << 10 };

struct halves {
	int here, daemon;
};

/* A thread that passes bytes from here to the workspace. */
static void *upwards_run(void *user)
{
	const struct halves *halves = user;
	uint8_t data[PIECE_BYTES];
	ssize_t got;
	int r = 0;

	do {
		got = recv(halves->here, data, sizeof(data), 0);
		if (got > 0)
			r = control_send(halves->daemon, CONTROL_STDIN, data, (size_t)got);
	} while (r == 0 && (got > 0 || (got < 0 && errno == EINTR)));
	if (got == 0)
		r = control_send(halves->daemon, CONTROL_STDIN_EOF, NULL, 0);
	if (got < 0 || r < 0)
		shutdown(halves->daemon, SHUT_RDWR);
	return NULL;
}

static bool ended_in_order(const struct buffer *payload)
{
	cJSON *end = cJSON_ParseWithLength((const char *)payload->data, payload->size);
	bool good = cJSON_IsObject(end) && json_integer(end, "exit_code") == 0;

	cJSON_Delete(end);
	return good;
}

/* Passes bytes from the workspace to here.  True: all have arrived. */
static bool pass_down(const struct halves *halves, char **ret_message)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;

	while (control_receive(halves->daemon, &type, &payload) == 0) {
		if (type == CONTROL_EXIT)
			return ended_in_order(&payload);
		if (type == CONTROL_FAILURE) {
			control_failure(&payload, ret_message);
			return false;
		}
		if (type == CONTROL_STDOUT_END)
			shutdown(halves->here, SHUT_WR);
		else if (type == CONTROL_STDOUT &&
			 write_all(halves->here, payload.data, payload.size) < 0)
			return false;
	}
	return false;
}

static int ask(const struct forward_stream *stream)
{
	int fd = control_connect(stream->control_path);
	int r = fd < 0 ? fd
		       : control_send(fd, CONTROL_JSON, stream->request, strlen(stream->request));

	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

/* Returns as pass_down(). */
static bool pass_both_ways(struct halves *halves, char **ret_message)
{
	pthread_t upwards;
	bool whole;

	if (thread_start(&upwards, "forward-up", STACK_BYTES, upwards_run, halves) < 0) {
		*ret_message = strdup("no thread can be started");
		return false;
	}
	whole = pass_down(halves, ret_message);
	shutdown(halves->daemon, SHUT_RDWR);
	shutdown(halves->here, SHUT_RD);
	pthread_join(upwards, NULL);
	return whole;
}

char *forward_stream_run(struct forward_stream *stream)
{
	struct halves halves = {stream->fd, -1};
	char *message = NULL;
	bool whole = false;

	if (halves.here >= 0)
		fcntl(halves.here, F_SETFL, 0); /* blocking */
	halves.daemon = ask(stream);
	if (halves.daemon < 0)
		message = strdup(strerror(-halves.daemon));
	else if (halves.here >= 0)
		whole = pass_both_ways(&halves, &message);
	if (halves.daemon >= 0)
		close(halves.daemon);
	if (halves.here >= 0 && whole)
		close(halves.here);
	else if (halves.here >= 0)
		endpoint_reset(halves.here);
	free(stream->request);
	return message;
}
