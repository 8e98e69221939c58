#include "backends/remote/server/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/remote/wire/vsock.h"
#include "ops/support/cleanup.h"
#include "ops/support/endpoint.h"
#include "ops/support/log.h"

enum {
	CONNECTIONS_MAX = 64, /* processes; each session of a client needs one */
	NO_HOST_WAIT_MS = 20, /* a serial port whose other end is closed cannot be waited for */
	BACKLOG = 16,
	BUSY_WAIT_MS = 100,
};

static int listener_fd = -1;

/* ---- Connections ------------------------------------------------------------------------- */

static _Noreturn void become_connection(int fd, int (*serve)(void))
{
	signal(SIGCHLD, SIG_DFL);
	if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
		_exit(1);
	close(fd);
	/* A session outlives the process that listens, and must not keep its address. */
	if (listener_fd >= 0)
		close(listener_fd);
	_exit(serve());
}

/* -errno, or the process. */
static pid_t start(int fd, int (*serve)(void))
{
	pid_t pid = fork();

	if (pid == 0)
		become_connection(fd, serve);
	if (pid < 0)
		log_error("a connection cannot be served: %s", strerror(errno));
	return pid < 0 ? -errno : pid;
}

static bool may_connect(const struct listen_options *options, int fd)
{
	struct sockaddr_vm peer = {0};
	socklen_t size = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0)
		return false;
	if (peer.svm_family != AF_VSOCK || peer.svm_cid == VMADDR_CID_HOST ||
		peer.svm_cid == VMADDR_CID_LOCAL)
		return true;
	for (size_t i = 0; i < options->peer_count; i++)
		if (options->peers[i] == peer.svm_cid)
			return true;
	log_error("refused a connection from CID %u: --allow it", peer.svm_cid);
	return false;
}

static _Noreturn void accept_forever(
	int listener, const struct listen_options *options, int (*serve)(void))
{
	size_t running = 0;

	listener_fd = listener;
	for (;;) {
		cleanup_fd int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		while (running > 0 &&
			waitpid(-1, NULL, running < CONNECTIONS_MAX ? WNOHANG : 0) > 0)
			running--;
		if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
			poll(NULL, 0, BUSY_WAIT_MS);
		if (fd >= 0 && may_connect(options, fd) && start(fd, serve) > 0)
			running++;
	}
}

/* ---- A serial port -------------------------------------------------------------------------- */

/* As long as nobody is at the other end it says that it hung up. */
static void wait_for_bytes(int fd)
{
	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		if (poll(&ready, 1, -1) > 0 && (ready.revents & POLLIN) &&
			!(ready.revents & POLLHUP))
			return;
		poll(NULL, 0, NO_HOST_WAIT_MS);
	}
}

static int serve_port(const char *path, int (*serve)(void))
{
	cleanup_fd int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0) {
		log_error("cannot open \"%s\": %s", path, strerror(errno));
		return 1;
	}
	for (;;) {
		pid_t pid;

		wait_for_bytes(fd);
		pid = start(fd, serve);
		if (pid > 0)
			while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
		else
			poll(NULL, 0, BUSY_WAIT_MS);
	}
}

/* ---- Where ---------------------------------------------------------------------------------- */

static int listen_vsock(const char *text)
{
	struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};
	cleanup_fd int fd = -1;
	char *end;

	address.svm_port = (unsigned)strtoul(text, &end, 10);
	if (*text < '1' || *text > '9' || *end)
		return -EINVAL;
	fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(fd, BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int listen_unix(const char *path)
{
	struct endpoint endpoint = {0};
	int fds[ENDPOINT_LISTENERS_MAX];
	int r;

	if (!*path || strlen(path) >= sizeof(endpoint.path))
		return *path ? -ENAMETOOLONG : -EINVAL;
	strcpy(endpoint.path, path);
	r = endpoint_listen(&endpoint, fds);
	if (r < 0)
		return r;
	return fcntl(fds[0], F_SETFL, 0) < 0 ? -errno : fds[0]; /* accept() is to wait */
}

static bool is_device(const char *path)
{
	struct stat there;

	return stat(path, &there) == 0 && S_ISCHR(there.st_mode);
}

int helper_listen(const struct listen_options *options, int (*serve)(void))
{
	const char *address = options->address;
	int listener = -EINVAL;

	if (strncmp(address, "unix:", 5) == 0 && is_device(address + 5))
		return serve_port(address + 5, serve);
	if (strncmp(address, "unix:", 5) == 0)
		listener = listen_unix(address + 5);
	else if (strncmp(address, "vsock:", 6) == 0)
		listener = listen_vsock(address + 6);
	if (listener >= 0)
		accept_forever(listener, options, serve);
	log_error("cannot listen on \"%s\": %s", address,
		listener == -EINVAL ? "write vsock:PORT or unix:PATH" : strerror(-listener));
	return 2;
}
