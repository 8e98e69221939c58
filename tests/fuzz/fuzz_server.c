/*
 * A client that sends anything: the input is frames (type, and 256 for the second connection, id,
 * size, payload) to a server
 * over a small tree in memory, which must answer or hang up, and end.  The place has commands
 * that only echo, and tells of what it did itself as if it were a change by others.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/remote/server/server.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/workspace_ops.h"
#include "tests/fuzz/fuzz.h"

enum { FRAMES_MAX = 64, ECHO_BYTES = 1024, LOOK_MS = 1 };

static void nobody_is_told(void *user, unsigned channel)
{
	(void)user;
	(void)channel;
}

static void nothing(void *user)
{
	(void)user;
}

/* ---- Commands -------------------------------------------------------------------- */

struct echo {
	struct process base;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char data[ECHO_BYTES];
	size_t size;
	bool closed;
	int signal;
};

/* Waits a moment for a change.  Returns false when the caller is to give up. */
static bool echo_wait(struct op_context *ctx, struct echo *echo)
{
	clock_cond_wait_ms(&echo->changed, &echo->lock, LOOK_MS);
	return !op_interrupted(ctx);
}

static int echo_exec(struct op_context *ctx, struct workspace *w,
	const struct exec_request *request, struct process **ret_process)
{
	struct echo *echo = calloc(1, sizeof(*echo));

	(void)ctx;
	if (!echo)
		return -ENOMEM;
	echo->base.workspace = w;
	echo->closed = request->flags & EXEC_STDIN_CLOSED;
	pthread_mutex_init(&echo->lock, NULL);
	clock_cond_init(&echo->changed);
	*ret_process = &echo->base;
	return 0;
}

static int echo_next(struct op_context *ctx, struct process *process, void *buffer, size_t size,
	struct exec_event *ret_event)
{
	struct echo *echo = (struct echo *)process;
	int r = 0;

	pthread_mutex_lock(&echo->lock);
	while (r == 0 && !echo->size && !echo->closed && !echo->signal)
		r = echo_wait(ctx, echo) ? 0 : -EINTR;
	if (echo->size && size > echo->size)
		size = echo->size;
	if (r == 0 && echo->size) {
		memcpy(buffer, echo->data, size);
		echo->size -= size;
		memmove(echo->data, echo->data + size, echo->size);
		*ret_event = (struct exec_event){.type = EXEC_STDOUT, .size = size};
	} else if (r == 0) {
		*ret_event = (struct exec_event){.type = EXEC_EXIT, .signal = echo->signal};
	}
	pthread_cond_broadcast(&echo->changed);
	pthread_mutex_unlock(&echo->lock);
	return r;
}

static ssize_t echo_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	struct echo *echo = (struct echo *)process;
	ssize_t r = 0;

	pthread_mutex_lock(&echo->lock);
	while (r == 0 && !echo->closed && echo->size == ECHO_BYTES)
		r = echo_wait(ctx, echo) ? 0 : -EINTR;
	if (r == 0 && echo->closed)
		r = -EPIPE;
	if (r == 0) {
		if (size > ECHO_BYTES - echo->size)
			size = ECHO_BYTES - echo->size;
		memcpy(echo->data + echo->size, data, size);
		echo->size += size;
		r = (ssize_t)size;
	}
	pthread_cond_broadcast(&echo->changed);
	pthread_mutex_unlock(&echo->lock);
	return r;
}

static int echo_end(struct process *process, int signal)
{
	struct echo *echo = (struct echo *)process;

	pthread_mutex_lock(&echo->lock);
	echo->closed = true;
	echo->signal = signal;
	pthread_cond_broadcast(&echo->changed);
	pthread_mutex_unlock(&echo->lock);
	return 0;
}

static int echo_close_stdin(struct op_context *ctx, struct process *process)
{
	(void)ctx;
	return echo_end(process, 0);
}

static int echo_signal(struct op_context *ctx, struct process *process, int signal)
{
	(void)ctx;
	return echo_end(process, signal);
}

static int echo_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	(void)ctx;
	(void)process;
	return rows && columns ? 0 : -EINVAL;
}

static void echo_free(struct process *process)
{
	struct echo *echo = (struct echo *)process;

	pthread_cond_destroy(&echo->changed);
	pthread_mutex_destroy(&echo->lock);
	free(echo);
}

/* ---- Changes --------------------------------------------------------------------- */

static const struct workspace_ops *plain_ops; /* of a tree in memory */
static _Atomic(change_sink) told_to;
static void *told_user;

static int tell_to(struct workspace *w, change_sink sink, void *user)
{
	(void)w;
	if (told_to)
		return -EBUSY;
	told_user = user;
	told_to = sink;
	return 0;
}

static int setattr_and_tell(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct change change = {.kind = CHANGE_ENTRY, .path = object->path, .exists = true};
	int r = plain_ops->setattr(ctx, w, object, mask, want, ret_attributes);

	if (r < 0 || !told_to || !object->path)
		return r;
	change.attributes = *ret_attributes;
	pthread_mutex_lock(&one_at_a_time);
	told_to(told_user, &change);
	pthread_mutex_unlock(&one_at_a_time);
	return r;
}

static void add_commands_and_changes(struct workspace *w)
{
	static struct workspace_ops ops;

	plain_ops = w->ops;
	told_to = NULL;
	ops = *plain_ops;
	ops.exec = echo_exec;
	ops.process_next = echo_next;
	ops.process_write = echo_write;
	ops.process_close_stdin = echo_close_stdin;
	ops.process_signal = echo_signal;
	ops.process_resize = echo_resize;
	ops.process_free = echo_free;
	ops.watch = tell_to;
	ops.setattr = setattr_and_tell;
	w->ops = &ops;
}

/* ---- The session ----------------------------------------------------------------- */

static struct workspace *make_tree(void)
{
	struct workspace *w = NULL;
	struct open_file *file;
	struct attributes attributes;
	struct op_context ctx;
	char *reason = NULL;

	op_context_init(&ctx);
	if (scheme_open("mem", "", NULL, &w, &reason) < 0)
		return NULL;
	workspace_mkdir(&ctx, w, "d", 0755, &attributes);
	workspace_symlink(&ctx, w, "target", "l", &attributes);
	if (workspace_create(&ctx, w, "f", O_RDWR, 0644, &file, &attributes) == 0) {
		workspace_write(&ctx, file, "content", 7, 0);
		workspace_close(&ctx, file);
	}
	add_commands_and_changes(w);
	return w;
}

/* Reads what the server says, and gives it a moment to say something. */
static void listen_to(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	char data[65536];

	for (int ms = 2; poll(&ready, 1, ms) > 0 && read(fd, data, sizeof(data)) > 0;)
		ms = 0;
}

static void send_frame(const int fds[2], struct wire_reader *in)
{
	uint64_t type = wire_get_number(in);
	int fd = fds[type >> 8 & 1];
	struct frame_header header = {.type = (uint8_t)type};
	uint8_t bytes[FRAME_HEADER_BYTES];
	size_t size;
	const uint8_t *payload;

	header.id = (uint32_t)wire_get_number(in);
	payload = wire_get_bytes(in, &size);
	if (!payload)
		payload = wire_get_raw(in, size = wire_reader_left(in));
	header.size = (uint32_t)size;
	frame_header_encode(&header, bytes);
	if (write(fd, bytes, sizeof(bytes)) < 0 || write(fd, payload, size) < 0)
		return;
	listen_to(fd);
}

static bool make_connection(int *ret_ours, int *ret_theirs)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return false;
	*ret_theirs = fds[0];
	*ret_ours = fds[1];
	return fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct server_callbacks callbacks = {
		.lost = nobody_is_told, .goodbye = nothing};
	struct wire_reader in = wire_reader_over(data, size);
	struct workspace *w = make_tree();
	struct server *server;
	int ours[2], theirs[2], r = 0;

	if (!w || !make_connection(&ours[0], &theirs[0]) || !make_connection(&ours[1], &theirs[1]))
		return 0;
	if (server_new(w, &callbacks, NULL, &server) < 0) {
		workspace_free(w);
		return 0;
	}
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = lane_attach(server_lane(server, i), theirs[i], theirs[i], 0);
	for (int i = 0; i < FRAMES_MAX && wire_reader_left(&in) > 0 && r == 0; i++)
		send_frame(ours, &in);
	server_free(server);
	close(ours[0]);
	close(ours[1]);
	return 0;
}
