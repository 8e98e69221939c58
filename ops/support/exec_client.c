#include "ops/support/exec_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/control.h"
#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/reach.h"
#include "ops/support/thread.h"

enum {
	INPUT_BYTES = 64 << 10,
	GRACE_S = 3, /* from the first interrupt to the end */
	SILENT_MS = 2000,
};

/* The connection, and the lock for sending on it. */
static struct {
	int fd;
	pthread_mutex_t send_lock;
	atomic_int interrupted_by; /* signal; 0: none */
	atomic_bool cut;           /* by ourselves: what was interrupted would not end */
} link_to_daemon = {.fd = -1, .send_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- The terminal --------------------------------------------------------------------- */

static struct termios terminal_before;
static atomic_bool terminal_is_raw;

static void restore_terminal(void)
{
	if (atomic_exchange(&terminal_is_raw, false))
		tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal_before) < 0)
		return;
	raw = terminal_before;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0) {
		terminal_is_raw = true;
		atexit(restore_terminal);
	}
}

void exec_client_leave(int code)
{
	restore_terminal();
	fflush(stdout);
	_exit(code);
}

/* ---- To the daemon: stdin, signals ------------------------------------------------------ */

static bool send_frame(enum control_frame_type type, const void *data, size_t size)
{
	int r;

	pthread_mutex_lock(&link_to_daemon.send_lock);
	r = control_send(link_to_daemon.fd, type, data, size);
	pthread_mutex_unlock(&link_to_daemon.send_lock);
	return r == 0;
}

bool exec_client_has_no_input(void)
{
	struct stat status, null;

	return fstat(STDIN_FILENO, &status) == 0 && S_ISCHR(status.st_mode) &&
	       stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev;
}

bool exec_client_has_one_output(void)
{
	struct stat out, error;

	return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
	       out.st_dev == error.st_dev && out.st_ino == error.st_ino;
}

/* Not by umask(2), which would change it for a moment under other threads. */
void exec_client_add_umask(struct cJSON *request)
{
	cleanup_file FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	unsigned mask;

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			cJSON_AddNumberToObject(request, "umask", mask);
}

static void *input_run(void *user)
{
	static uint8_t data[INPUT_BYTES];

	(void)user;
	for (;;) {
		ssize_t got = read(STDIN_FILENO, data, sizeof(data));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if (!send_frame(CONTROL_STDIN, data, (size_t)got))
			return NULL;
	}
	send_frame(CONTROL_STDIN_EOF, NULL, 0);
	return NULL;
}

static void send_window(void)
{
	struct winsize window;
	uint8_t payload[4];

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &window) < 0)
		return;
	payload[0] = (uint8_t)window.ws_row;
	payload[1] = (uint8_t)(window.ws_row >> 8);
	payload[2] = (uint8_t)window.ws_col;
	payload[3] = (uint8_t)(window.ws_col >> 8);
	send_frame(CONTROL_RESIZE, payload, sizeof(payload));
}

/* Input that the command does not read may hold the connection: then the interrupt ends it. */
static bool forward_signal(int signal)
{
	const uint8_t payload[4] = {(uint8_t)signal};
	struct timespec deadline;
	int r;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec++;
	if (pthread_mutex_timedlock(&link_to_daemon.send_lock, &deadline) != 0)
		return false;
	r = control_send(link_to_daemon.fd, CONTROL_SIGNAL, payload, sizeof(payload));
	pthread_mutex_unlock(&link_to_daemon.send_lock);
	return r == 0;
}

/* The daemon kills the tree when the connection closes. */
static void *signals_run(void *user)
{
	const struct timespec grace = {.tv_sec = GRACE_S};
	const sigset_t *set = user;

	for (;;) {
		int first = link_to_daemon.interrupted_by;
		int signal = first ? sigtimedwait(set, NULL, &grace) : sigwaitinfo(set, NULL);

		if (signal == SIGWINCH) {
			send_window();
			continue;
		}
		if (signal < 0 && errno == EINTR)
			continue;
		if (!first) {
			link_to_daemon.interrupted_by = signal;
			if (forward_signal(signal))
				continue;
			first = signal;
		}
		link_to_daemon.cut = true;
		shutdown(link_to_daemon.fd, SHUT_RDWR);
		exec_client_leave(EXEC_EXIT_SIGNALLED + first);
	}
}

/* No thread takes these signals but the one that waits for them. */
static bool start_threads(const struct exec_client *client)
{
	static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	static sigset_t set;
	pthread_t thread;

	sigemptyset(&set);
	for (size_t i = 0; i < array_size(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	if (client->tty)
		sigaddset(&set, SIGWINCH);
	signal(SIGPIPE, SIG_IGN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (client->tty)
		make_terminal_raw();
	/* They end with the process. */
	if (thread_start(&thread, "exec-signals", 0, signals_run, &set) < 0)
		return false;
	pthread_detach(thread);
	if (client->no_input)
		return true;
	if (thread_start(&thread, "exec-input", 0, input_run, NULL) < 0)
		return false;
	pthread_detach(thread);
	return true;
}

/* ---- From the daemon: output, the end ---------------------------------------------------- */

static void end_with(struct exec_client_end *end, int code, int error, const char *message)
{
	end->code = code;
	end->error = error;
	end->message = message ? strdup(message) : NULL;
}

static void end_by_exit(struct exec_client_end *end, const struct buffer *payload)
{
	cJSON *exit = cJSON_ParseWithLength((const char *)payload->data, payload->size);
	int signal = (int)json_integer(exit, "signal");

	end->code = (int)json_integer(exit, "exit_code");
	end->timed_out = json_is_true(exit, "timed_out");
	if (json_text(exit, "path"))
		end->path = strdup(json_text(exit, "path"));
	if (!cJSON_IsObject(exit))
		end->code = EXEC_EXIT_OWN_FAILURE;
	else if (end->timed_out)
		end->code = EXEC_EXIT_TIMED_OUT;
	else if (signal)
		end->code = EXEC_EXIT_SIGNALLED + signal;
	cJSON_Delete(exit);
}

static void end_by_failure(struct exec_client_end *end, const struct buffer *payload)
{
	end->error = control_failure(payload, &end->message);
	end->code = end->error == -ENOENT                             ? EXEC_EXIT_NOT_FOUND
		    : end->error == -EACCES || end->error == -ENOEXEC ? EXEC_EXIT_NOT_EXECUTABLE
								      : EXEC_EXIT_OWN_FAILURE;
}

static void end_without_daemon(struct exec_client_end *end, int error)
{
	cleanup_free char *message = NULL;

	if (link_to_daemon.cut) {
		end_with(end, EXEC_EXIT_SIGNALLED + link_to_daemon.interrupted_by, 0, NULL);
		return;
	}
	message = string_printf("the mount went away while the command ran (%s)", strerror(-error));
	end_with(end, EXEC_EXIT_OWN_FAILURE, error, message);
}

/* A reader that is gone ends a command by SIGPIPE, without a message. */
static void end_without_output(struct exec_client_end *end, bool is_stderr, int error)
{
	cleanup_free char *message =
		string_printf("cannot write to standard %s: %s", is_stderr ? "error" : "output",
			error == -EBADF ? "it is closed" : strerror(-error));

	end_with(end, error == -EPIPE ? EXEC_EXIT_SIGNALLED + SIGPIPE : EXEC_EXIT_OWN_FAILURE,
		error, message);
}

static int take_output(const struct exec_client *client, bool is_stderr, const struct buffer *data)
{
	if (client->output)
		return client->output(client->user, is_stderr, data->data, data->size);
	return write_all(is_stderr ? STDERR_FILENO : STDOUT_FILENO, data->data, data->size);
}

/* False: the command has ended, or its output has no reader. */
static bool take_frame(const struct exec_client *client, enum control_frame_type type,
	const struct buffer *payload, struct exec_client_end *end)
{
	const uint8_t *data = payload->data;
	int r;

	switch (type) {
	case CONTROL_STDOUT:
	case CONTROL_STDERR:
		r = take_output(client, type == CONTROL_STDERR, payload);
		if (r < 0)
			end_without_output(end, type == CONTROL_STDERR, r);
		return r == 0;
	case CONTROL_LISTENING:
		if (client->listening && payload->size == 2)
			client->listening(client->user, data[0] | (unsigned)data[1] << 8);
		return true;
	case CONTROL_EXIT:
		end_by_exit(end, payload);
		return false;
	case CONTROL_FAILURE:
		end_by_failure(end, payload);
		return false;
	default:
		end_with(end, EXEC_EXIT_OWN_FAILURE, -EPROTO,
			"the daemon sent what this version does not know");
		return false;
	}
}

/* ---- All of it ------------------------------------------------------------------------- */

static void await_frame(const struct exec_client *client, bool *has_waited)
{
	struct pollfd ready = {.fd = link_to_daemon.fd, .events = POLLIN};

	while (client->waiting && !*has_waited && poll(&ready, 1, SILENT_MS) == 0) {
		cleanup_free char *problem = reach_problem(client->control_path, 0);

		if (problem)
			client->waiting(client->user, problem);
		*has_waited = problem;
	}
}

int exec_client_start(const struct exec_client *client)
{
	int r;

	if (strlen(client->request) > CONTROL_FRAME_MAX_BYTES)
		return -E2BIG;
	r = link_to_daemon.fd = control_connect(client->control_path);
	return r < 0 ? r : control_send(r, CONTROL_JSON, client->request, strlen(client->request));
}

void exec_client_run(const struct exec_client *client, struct exec_client_end *ret_end)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	bool has_waited = false;
	int r;

	*ret_end = (struct exec_client_end){0};
	if (!start_threads(client)) {
		end_with(ret_end, EXEC_EXIT_OWN_FAILURE, -EAGAIN, "no thread can be started");
		return;
	}
	do {
		await_frame(client, &has_waited);
		r = control_receive(link_to_daemon.fd, &type, &payload);
		if (r < 0) {
			end_without_daemon(ret_end, r);
			return;
		}
	} while (take_frame(client, type, &payload, ret_end));
}
