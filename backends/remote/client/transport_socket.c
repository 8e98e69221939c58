#include "backends/remote/client/transport_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "backends/remote/wire/vsock.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum { RETRY_MS = 100, ANSWER_WAIT_S = 5, ANSWER_BYTES = 64 };

/* Neither connecting nor the first words may take longer than that. */
static int open_socket(int family)
{
	const struct timeval limit = {.tv_sec = ANSWER_WAIT_S};
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno == EAFNOSUPPORT ? -ENODEV : -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static int connect_unix(const char *path, size_t length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_fd int fd = open_socket(AF_UNIX);

	if (fd < 0)
		return fd;
	if (length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return steal_fd(&fd);
}

static int connect_vsock(const char *text)
{
	cleanup_fd int fd = -1;
	struct sockaddr_vm address = {.svm_family = AF_VSOCK};

	if (sscanf(text, "%u:%u", &address.svm_cid, &address.svm_port) != 2)
		return -EINVAL;
	fd = open_socket(AF_VSOCK);
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return steal_fd(&fd);
	return errno == ECONNRESET || errno == ETIMEDOUT ? -ENOTCONN : -errno;
}

/* One byte at a time: what follows the line belongs to the stream. */
static int read_line(int fd, char *line, size_t size)
{
	size_t used = 0;

	while (used < size - 1) {
		ssize_t got = recv(fd, line + used, 1, 0);

		if (got == 0 || (got < 0 && errno == ECONNRESET))
			return -ENOTCONN;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (line[used] == '\n') {
			line[used] = '\0';
			return 0;
		}
		used++;
	}
	return -EPROTO;
}

static int connect_hybrid(const char *text)
{
	const char *colon = strrchr(text, ':');
	cleanup_fd int fd = colon ? connect_unix(text, (size_t)(colon - text)) : -EINVAL;
	char line[ANSWER_BYTES];
	int length, r;

	if (fd < 0)
		return fd;
	length = snprintf(line, sizeof(line), "CONNECT %s\n", colon + 1);
	if (send(fd, line, (size_t)length, MSG_NOSIGNAL) != length)
		return -ENOTCONN;
	r = read_line(fd, line, sizeof(line));
	if (r < 0)
		return r;
	return strncmp(line, "OK ", 3) == 0 ? steal_fd(&fd) : -EPROTO;
}

static int connect_once(const char *address)
{
	const char *rest = strchr(address, ':') + 1;

	if (strncmp(address, "unix:", 5) == 0)
		return connect_unix(rest, strlen(rest));
	return strncmp(address, "vsock:", 6) == 0 ? connect_vsock(rest) : connect_hybrid(rest);
}

static void wait_forever(int fd)
{
	const struct timeval none = {0};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
}

int transport_socket_connect(const char *address, int patience_ms)
{
	int64_t deadline = clock_now_ms() + patience_ms;
	int fd = connect_once(address);

	while (fd == -ENOTCONN && clock_now_ms() < deadline) {
		poll(NULL, 0, RETRY_MS);
		fd = connect_once(address);
	}
	if (fd >= 0)
		wait_forever(fd);
	return fd;
}
