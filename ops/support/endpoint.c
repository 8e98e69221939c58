#include "ops/support/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum { CONNECT_TIMEOUT_MS = 10000, INTERRUPT_POLL_MS = 50 };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un unix_;
};

/* ---- Text -------------------------------------------------------------------------------- */

static bool is_path(const char *text)
{
	return *text == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0;
}

/* One part of a text, without the brackets of an address; `*text` moves behind the ':'. */
static int take_part(const char **text, char *ret_part, size_t size)
{
	bool bracket = **text == '[';
	const char *begin = *text + bracket, *end = begin + strcspn(begin, bracket ? "]" : ":");
	size_t length = (size_t)(end - begin);

	if (length >= size)
		return -ENAMETOOLONG;
	if (length == 0 || (bracket && *end++ != ']') || (*end && *end != ':') || (*end && !end[1]))
		return -EINVAL;
	memcpy(ret_part, begin, length);
	ret_part[length] = '\0';
	*text = end + (*end == ':');
	return 0;
}

static int parse_port(const char *text, uint16_t *ret_port)
{
	unsigned port = 0;

	for (; *text >= '0' && *text <= '9' && port <= UINT16_MAX; text++)
		port = port * 10 + (unsigned)(*text - '0');
	if (*text || port > UINT16_MAX)
		return -EINVAL;
	*ret_port = (uint16_t)port;
	return 0;
}

static int set_address(const char *text, struct endpoint *endpoint)
{
	struct in6_addr binary;

	if (strcmp(text, "localhost") == 0)
		return 0;
	if (inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, &binary) != 1)
		return -EINVAL;
	strcpy(endpoint->address, text); /* its parts have no longer ones */
	return 0;
}

static int take_endpoint(const char **text, struct endpoint *ret_endpoint)
{
	struct endpoint endpoint = {0};
	char part[INET6_ADDRSTRLEN];
	int r;

	if (is_path(*text)) {
		r = take_part(text, endpoint.path, sizeof(endpoint.path));
	} else {
		r = take_part(text, part, sizeof(part));
		if (r == 0 && parse_port(part, &endpoint.port) < 0) {
			r = **text ? set_address(part, &endpoint) : -EINVAL;
			if (r == 0)
				r = take_part(text, part, sizeof(part));
			if (r == 0)
				r = parse_port(part, &endpoint.port);
		}
	}
	if (r == 0)
		*ret_endpoint = endpoint;
	return r;
}

int endpoint_parse(const char *text, struct endpoint *ret_endpoint)
{
	struct endpoint endpoint;
	int r = take_endpoint(&text, &endpoint);

	if (r < 0 || *text)
		return r < 0 ? r : -EINVAL;
	*ret_endpoint = endpoint;
	return 0;
}

int endpoint_parse_pair(const char *text, struct endpoint *ret_listen, struct endpoint *ret_target)
{
	struct endpoint first;
	int r = take_endpoint(&text, &first);

	if (r < 0)
		return r;
	if (*text) {
		r = endpoint_parse(text, ret_target);
		if (r == 0)
			*ret_listen = first;
	} else if (*first.path) {
		return -EDESTADDRREQ;
	} else {
		*ret_target = first;
		*ret_listen = (struct endpoint){.port = first.port};
	}
	return r == 0 && !*ret_target->path && !ret_target->port ? -EINVAL : r;
}

void endpoint_text(const struct endpoint *endpoint, char ret_text[ENDPOINT_TEXT_BYTES])
{
	if (*endpoint->path)
		snprintf(ret_text, ENDPOINT_TEXT_BYTES, "%s", endpoint->path);
	else if (!*endpoint->address)
		snprintf(ret_text, ENDPOINT_TEXT_BYTES, "%u", endpoint->port);
	else
		snprintf(ret_text, ENDPOINT_TEXT_BYTES,
			strchr(endpoint->address, ':') ? "[%s]:%u" : "%s:%u", endpoint->address,
			endpoint->port);
}

/* ---- Sockets ----------------------------------------------------------------------------- */

/* The address number `index` that it stands for.  Returns its size, 0: there are no more. */
static socklen_t address_of(const struct endpoint *endpoint, int index, union address *ret)
{
	const char *text = *endpoint->address ? endpoint->address
			   : index == 0       ? "127.0.0.1"
					      : "::1";

	memset(ret, 0, sizeof(*ret));
	if (index > 0 && (*endpoint->path || *endpoint->address || index > 1))
		return 0;
	if (*endpoint->path) {
		ret->unix_.sun_family = AF_UNIX;
		memcpy(ret->unix_.sun_path, endpoint->path, sizeof(endpoint->path));
		return sizeof(ret->unix_);
	}
	if (strchr(text, ':')) {
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons(endpoint->port);
		inet_pton(AF_INET6, text, &ret->v6.sin6_addr);
		return sizeof(ret->v6);
	}
	ret->v4.sin_family = AF_INET;
	ret->v4.sin_port = htons(endpoint->port);
	inet_pton(AF_INET, text, &ret->v4.sin_addr);
	return sizeof(ret->v4);
}

static int await_connection(int fd, struct command_interrupt interrupt)
{
	int64_t deadline = clock_now_ms() + CONNECT_TIMEOUT_MS;
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;

	while (poll(&ready, 1, INTERRUPT_POLL_MS) <= 0) {
		if (interrupt.is_true && interrupt.is_true(interrupt.user))
			return -EINTR;
		if (clock_now_ms() > deadline)
			return -ETIMEDOUT;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return -error;
}

static int connect_one(
	const union address *address, socklen_t size, struct command_interrupt interrupt)
{
	cleanup_fd int fd =
		socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, &address->any, size) < 0)
		r = errno == EINPROGRESS ? await_connection(fd, interrupt) : -errno;
	if (r < 0)
		return r;
	endpoint_no_delay(fd);
	return steal_fd(&fd);
}

int endpoint_connect(const struct endpoint *endpoint, struct command_interrupt interrupt)
{
	union address address;
	socklen_t size;
	int first = 0, r;

	for (int i = 0; (size = address_of(endpoint, i, &address)) > 0; i++) {
		r = connect_one(&address, size, interrupt);
		if (r >= 0 || r == -EINTR)
			return r;
		first = first ? first : r;
	}
	return first;
}

/* A socket file without a listener was left by a program that was killed. */
static int bind_path(int fd, const union address *address, socklen_t size)
{
	static const struct command_interrupt never = {0};
	struct stat there;
	int other;

	fchmod(fd, 0600); /* what bind() makes has this mode */
	if (bind(fd, &address->any, size) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	if (lstat(address->unix_.sun_path, &there) < 0 || !S_ISSOCK(there.st_mode))
		return -EADDRINUSE;
	other = connect_one(address, size, never);
	if (other >= 0)
		close(other);
	if (other != -ECONNREFUSED || unlink(address->unix_.sun_path) < 0)
		return -EADDRINUSE;
	return bind(fd, &address->any, size) < 0 ? -errno : 0;
}

static int listen_one(const union address *address, socklen_t size)
{
	cleanup_fd int fd =
		socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const int yes = 1;
	int r;

	if (fd < 0)
		return -errno;
	if (address->any.sa_family == AF_UNIX) {
		r = bind_path(fd, address, size);
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (address->any.sa_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
		r = bind(fd, &address->any, size) < 0 ? -errno : 0;
	}
	if (r == 0 && listen(fd, SOMAXCONN) < 0)
		r = -errno;
	return r < 0 ? r : steal_fd(&fd);
}

static int note_port(int fd, struct endpoint *endpoint)
{
	union address bound;
	socklen_t size = sizeof(bound);

	if (*endpoint->path || endpoint->port)
		return 0;
	if (getsockname(fd, &bound.any, &size) < 0)
		return -errno;
	endpoint->port =
		ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
	return 0;
}

int endpoint_listen(struct endpoint *endpoint, int ret_fds[ENDPOINT_LISTENERS_MAX])
{
	bool any_port = !*endpoint->path && endpoint->port == 0;
	union address address;
	socklen_t size;
	int count = 0, r;

	for (int i = 0; (size = address_of(endpoint, i, &address)) > 0; i++) {
		r = listen_one(&address, size);
		if (r >= 0) {
			ret_fds[count++] = r;
			r = note_port(r, endpoint);
		}
		/* Without IPv6, or where its number is not free, IPv4 alone has one that is. */
		if (r < 0 && (count == 0 || (r == -EADDRINUSE && !any_port))) {
			endpoint_unlisten(endpoint, ret_fds, count);
			return r;
		}
	}
	return count;
}

void endpoint_unlisten(const struct endpoint *endpoint, const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
	if (count > 0 && *endpoint->path)
		unlink(endpoint->path);
}

void endpoint_no_delay(int fd)
{
	const int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void endpoint_reset(int fd)
{
	const struct linger at_once = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}
