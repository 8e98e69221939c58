/*
 * A client that sends anything: the input is frames (type, id, size, payload) to a server
 * over a small tree in memory, which must answer or hang up, and end.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/remote/server.h"
#include "tests/fuzz/fuzz.h"

enum { FRAMES_MAX = 64 };

static void nothing(void *user)
{
	(void)user;
}

static struct workspace *make_tree(void)
{
	struct workspace *w = NULL;
	struct open_file *file;
	struct attributes attributes;
	struct op_context ctx;
	char *reason = NULL;

	op_context_init(&ctx);
	if (mem_open("mem", "", NULL, &w, &reason) < 0)
		return NULL;
	workspace_mkdir(&ctx, w, "d", 0755, &attributes);
	workspace_symlink(&ctx, w, "target", "l", &attributes);
	if (workspace_create(&ctx, w, "f", O_RDWR, 0644, &file, &attributes) == 0) {
		workspace_write(&ctx, file, "content", 7, 0);
		workspace_close(&ctx, file);
	}
	return w;
}

/* Reads what the server says until it has been silent for a moment. */
static void listen_to(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	char data[65536];

	while (poll(&ready, 1, 2) > 0)
		if (read(fd, data, sizeof(data)) <= 0)
			break;
}

static void send_frame(int fd, struct wire_reader *in)
{
	struct frame_header header = {.type = (uint8_t)wire_get_number(in)};
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct server_callbacks callbacks = {.lost = nothing, .goodbye = nothing};
	struct wire_reader in = wire_reader_over(data, size);
	struct workspace *w = make_tree();
	struct server *server;
	int fds[2];

	if (!w || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return 0;
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	if (server_new(w, &callbacks, NULL, &server) < 0) {
		workspace_free(w);
		return 0;
	}
	if (lane_attach(server_lane(server), fds[0], fds[0], 0) == 0)
		for (int i = 0; i < FRAMES_MAX && wire_reader_left(&in) > 0; i++)
			send_frame(fds[1], &in);
	server_free(server);
	close(fds[1]);
	return 0;
}
