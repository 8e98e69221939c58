#include "backends/remote/client/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/remote/client/transport_socket.h"
#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/support/file_limit.h"
#include "ops/support/log.h"
#include "ops/support/process.h"
#include "ops/support/thread.h"

enum {
	STDERR_MAX_BYTES = 4096,
	END_POLL_MS = 10,
	CLOSED_WAIT_MS = 100, /* from the end of its stderr to that of the child */
	END_WAIT_MS = 1000,
	PATIENCE_MS = 12000,         /* with what follows it, people wait for 15 s at most */
	PATIENCE_PROMPT_MS = 120000, /* somebody types a passphrase */
	CONNECT_AGAIN_MS = 1000,
};

struct child {
	pid_t pid;
	bool own_session;
	int error_fd, stop_fd;
	pthread_t listener;
	pthread_mutex_t lock;
	struct buffer stderr_text; /* under the lock, as is the next */
	bool at_end;
};

static void keep_errors(struct child *child, const char *data, size_t size)
{
	pthread_mutex_lock(&child->lock);
	if (buffer_append(&child->stderr_text, data, size) == 0 &&
		child->stderr_text.size > STDERR_MAX_BYTES)
		buffer_consume(&child->stderr_text, child->stderr_text.size - STDERR_MAX_BYTES);
	pthread_mutex_unlock(&child->lock);
}

int transport_patience_ms(const struct transport *transport)
{
	if (transport->patience_ms)
		return transport->patience_ms;
	return transport->may_prompt ? PATIENCE_PROMPT_MS : PATIENCE_MS;
}

int transport_left_ms(int64_t deadline_ms)
{
	int64_t left_ms = deadline_ms - clock_now_ms();

	return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* stderr is always read, or a talkative child would block. */
static void *listen_to_child(void *argument)
{
	struct child *child = argument;
	struct pollfd ready[2] = {{.fd = child->error_fd, .events = POLLIN},
		{.fd = child->stop_fd, .events = POLLIN}};
	char data[512];
	ssize_t n = 1;

	while (n > 0) {
		poll(ready, 2, -1);
		if (ready[1].revents)
			break;
		n = read(child->error_fd, data, sizeof(data));
		if (n > 0)
			keep_errors(child, data, (size_t)n);
		if (n < 0 && errno == EINTR)
			n = 1;
	}
	pthread_mutex_lock(&child->lock);
	child->at_end = true;
	pthread_mutex_unlock(&child->lock);
	return NULL;
}

static void run_child(
	const struct transport *transport, pid_t parent, int in_fd, int out_fd, int error_fd)
{
	sigset_t none;

	if (transport->ends_with_thread) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(127);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	process_restore_umask();
	setenv(PROCESS_LOCAL_MARK, "1", 1);
	if (transport->may_prompt) {
		signal(SIGHUP, SIG_IGN); /* the terminal may go, the mount stays */
	} else {
		setsid();
		setenv("SSH_ASKPASS_REQUIRE", "never", 1);
	}
	if (dup2(in_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(error_fd, 2) < 0)
		_exit(127);
	file_limit_restore();
	execvp(transport->argv[0], transport->argv);
	dprintf(2, "cannot run \"%s\": %s\n", transport->argv[0], strerror(errno));
	_exit(127);
}

static void close_pair(int pair[2])
{
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
}

static int start_child(
	const struct transport *transport, struct child *child, int *ret_in, int *ret_out)
{
	int to[2] = {-1, -1}, from[2] = {-1, -1}, error[2] = {-1, -1};
	pid_t parent = getpid();
	int r = 0;

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
		r = -errno;
	if (r == 0) {
		child->pid = fork();
		if (child->pid == 0)
			run_child(transport, parent, to[0], from[1], error[1]);
		if (child->pid < 0)
			r = -errno;
	}
	if (r < 0) {
		close_pair(to);
		close_pair(from);
		close_pair(error);
		return r;
	}
	close(to[0]);
	close(from[1]);
	close(error[1]);
	child->error_fd = error[0];
	*ret_in = from[0];
	*ret_out = to[1];
	return 0;
}

static void end_child(struct child *child)
{
	const struct timespec pause = {.tv_nsec = END_POLL_MS * 1000000L};
	pid_t target = child->own_session ? -child->pid : child->pid;
	int64_t until_ms = clock_now_ms() + END_WAIT_MS;

	kill(child->pid, SIGTERM);
	while (waitpid(child->pid, NULL, WNOHANG) == 0) {
		if (clock_now_ms() >= until_ms) {
			kill(child->pid, SIGKILL);
			waitpid(child->pid, NULL, 0);
			break;
		}
		nanosleep(&pause, NULL);
	}
	if (child->own_session)
		kill(target, SIGTERM);
}

static void child_free(struct child *child)
{
	if (child->error_fd >= 0)
		close(child->error_fd);
	if (child->stop_fd >= 0)
		close(child->stop_fd);
	buffer_done(&child->stderr_text);
	pthread_mutex_destroy(&child->lock);
	free(child);
}

static int replace_argument(struct transport *transport, size_t index, const char *text)
{
	char *argument;

	if (!index)
		return 0;
	argument = strdup(text);
	if (!argument)
		return -ENOMEM;
	free(transport->argv[index]);
	transport->argv[index] = argument;
	return 0;
}

int transport_share(struct transport *transport, bool may_share)
{
	return replace_argument(
		transport, transport->share_index, may_share ? "-T" : "-ToControlPath=none");
}

int transport_ask_nothing(struct transport *transport)
{
	transport->may_prompt = false;
	transport->connect_ms = CONNECT_AGAIN_MS;
	return replace_argument(transport, transport->quiet_index, "-oBatchMode=yes");
}

int transport_copy(const struct transport *transport, struct transport *ret_copy)
{
	struct transport copy = *transport;
	size_t count = 0;
	bool failed;

	while (transport->argv && transport->argv[count])
		count++;
	copy.address = transport->address ? strdup(transport->address) : NULL;
	copy.name = strdup(transport->name);
	copy.argv = calloc(count + 1, sizeof(*copy.argv));
	failed = !copy.name || !copy.argv || (transport->address && !copy.address);
	for (size_t i = 0; i < count && !failed; i++) {
		copy.argv[i] = strdup(transport->argv[i]);
		failed = !copy.argv[i];
	}
	if (failed) {
		transport_done(&copy);
		return -ENOMEM;
	}
	*ret_copy = copy;
	return 0;
}

void transport_done(struct transport *transport)
{
	for (char **argument = transport->argv; argument && *argument; argument++)
		free(*argument);
	free(transport->argv);
	free(transport->address);
	free(transport->name);
	*transport = (struct transport){0};
}

/* Three descriptors of it: two are handed on, one is ours to interrupt it by. */
static int open_socket(const struct transport *transport, struct stream *ret_stream)
{
	struct stream stream = {
		.in_fd = transport_socket_connect(transport->address, transport->connect_ms),
		.out_fd = -1,
		.socket_fd = -1};

	if (stream.in_fd < 0)
		return stream.in_fd;
	stream.out_fd = fcntl(stream.in_fd, F_DUPFD_CLOEXEC, 3);
	stream.socket_fd = fcntl(stream.in_fd, F_DUPFD_CLOEXEC, 3);
	if (stream.out_fd < 0 || stream.socket_fd < 0) {
		int r = -errno;

		stream_close(&stream);
		return r;
	}
	*ret_stream = stream;
	return 0;
}

static int open_child(const struct transport *transport, struct stream *ret_stream)
{
	struct child *child = calloc(1, sizeof(*child));
	int in_fd = -1, out_fd = -1, r;

	if (!child)
		return -ENOMEM;
	pthread_mutex_init(&child->lock, NULL);
	child->error_fd = -1;
	child->own_session = !transport->may_prompt;
	child->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = child->stop_fd < 0 ? -errno : start_child(transport, child, &in_fd, &out_fd);
	if (r < 0) {
		child_free(child);
		return r;
	}
	r = thread_start(&child->listener, "stream-errors", 0, listen_to_child, child);
	if (r < 0) {
		close(in_fd);
		close(out_fd);
		end_child(child);
		child_free(child);
		return r;
	}
	*ret_stream =
		(struct stream){.in_fd = in_fd, .out_fd = out_fd, .socket_fd = -1, .child = child};
	return 0;
}

int stream_open(const struct transport *transport, struct stream *ret_stream)
{
	return transport->address ? open_socket(transport, ret_stream)
				  : open_child(transport, ret_stream);
}

void stream_close(struct stream *stream)
{
	struct child *child = stream->child;
	uint64_t one = 1;

	if (stream->in_fd >= 0)
		close(stream->in_fd);
	if (stream->out_fd >= 0)
		close(stream->out_fd);
	if (stream->socket_fd >= 0)
		close(stream->socket_fd);
	stream->in_fd = stream->out_fd = stream->socket_fd = -1;
	if (!child)
		return;
	end_child(child);
	if (write(child->stop_fd, &one, sizeof(one)) < 0)
		abort();
	pthread_join(child->listener, NULL);
	child_free(child);
	stream->child = NULL;
}

void stream_interrupt(struct stream *stream)
{
	if (stream->child)
		kill(stream->child->pid, SIGKILL);
	else
		shutdown(stream->socket_fd, SHUT_RDWR);
}

static char *copy_stderr(struct child *child)
{
	char *stderr_text = malloc(STDERR_MAX_BYTES + 1);
	size_t used = 0;

	if (!stderr_text)
		return NULL;
	pthread_mutex_lock(&child->lock);
	for (size_t i = 0; i < child->stderr_text.size; i++) {
		char c = (char)child->stderr_text.data[i];

		if (c && c != '\r')
			stderr_text[used++] = c;
	}
	pthread_mutex_unlock(&child->lock);
	while (used && stderr_text[used - 1] == '\n')
		used--;
	stderr_text[used] = '\0';
	return stderr_text;
}

char *stream_stderr(struct stream *stream, int wait_ms)
{
	const struct timespec pause = {.tv_nsec = END_POLL_MS * 1000000L};
	struct child *child = stream->child;
	int64_t until_ms = clock_now_ms() + wait_ms;
	bool at_end = false;

	while (!at_end && clock_now_ms() < until_ms) {
		pthread_mutex_lock(&child->lock);
		at_end = child->at_end;
		pthread_mutex_unlock(&child->lock);
		if (!at_end)
			nanosleep(&pause, NULL);
	}
	return copy_stderr(child);
}

char *stream_end(const struct stream *stream)
{
	const struct timespec pause = {.tv_nsec = END_POLL_MS * 1000000L};
	int64_t until_ms = clock_now_ms() + CLOSED_WAIT_MS;
	siginfo_t end = {0};

	while (stream->child &&
		waitid(P_PID, (id_t)stream->child->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		end.si_pid == 0 && clock_now_ms() < until_ms)
		nanosleep(&pause, NULL);
	if (end.si_pid == 0)
		return NULL;
	return end.si_code == CLD_EXITED
		       ? string_printf("the command ended with exit code %d", end.si_status)
		       : string_printf("the command was killed by signal %d (%s)", end.si_status,
				 strsignal(end.si_status));
}

int stream_write(int fd, const void *data, size_t size, int stall_ms)
{
	const uint8_t *rest = data;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	while (size > 0) {
		struct pollfd ready = {.fd = fd, .events = POLLOUT};
		ssize_t n = write(fd, rest, size);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0 && poll(&ready, 1, stall_ms) == 0)
			return -ETIMEDOUT;
		if (n > 0) {
			rest += n;
			size -= (size_t)n;
		}
	}
	return 0;
}
