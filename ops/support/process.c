#include "ops/support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "ops/support/port_watch.h"
#include "ops/support/process_internal.h"
#include "ops/support/cleanup.h"

enum {
	INTERRUPT_POLL_MS = 50,
	TERMINAL_QUIET_MS = 30,            /* a terminal passes output on with a delay */
	TERMINAL_DRAIN_BYTES = 128 * 1024, /* more than one can hold */
	DEFAULT_ROWS = 24,
	DEFAULT_COLUMNS = 80,
};

struct command {
	pid_t supervisor;
	int control_fd;
	int outputs[2]; /* stdout, stderr; -1: at its end */
	bool terminal;
	bool has_ended;       /* `report` is valid (or the supervisor died) */
	size_t left_bytes[2]; /* once it has ended: output to pass on first */
	unsigned turn;        /* which output is looked at first */
	struct end_report report;
	atomic_bool gone;         /* signals come too late */
	struct port_watch *ports; /* NULL: not wanted */

	pthread_mutex_t input_mutex;
	int input_fd; /* guarded by input_mutex; -1: closed */
};

/* ---- Starting ------------------------------------------------------------------------------ */

struct pipes {
	int ours[3], theirs[3];
};

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void pipes_done(struct pipes *pipes)
{
	close_all(pipes->ours, 3);
	close_all(pipes->theirs, 3);
}

static int open_null(int *ret_fd)
{
	*ret_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

static int open_pipe(int *ret_read_fd, int *ret_write_fd)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*ret_read_fd = fds[0];
	*ret_write_fd = fds[1];
	return 0;
}

static int duplicate(int fd, int *ret_fd)
{
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return *ret_fd < 0 ? -errno : 0;
}

static int open_pipes(unsigned flags, struct pipes *pipes)
{
	bool input_closed = flags & EXEC_STDIN_CLOSED;
	int r = input_closed ? open_null(&pipes->theirs[0])
			     : open_pipe(&pipes->theirs[0], &pipes->ours[0]);

	if (r == 0)
		r = open_pipe(&pipes->ours[1], &pipes->theirs[1]);
	if (r == 0 && (flags & EXEC_MERGED))
		r = duplicate(pipes->theirs[1], &pipes->theirs[2]);
	else if (r == 0)
		r = open_pipe(&pipes->ours[2], &pipes->theirs[2]);
	return r;
}

static int set_window(int fd, uint16_t rows, uint16_t columns)
{
	struct winsize size = {.ws_row = rows, .ws_col = columns};

	return ioctl(fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

static int open_terminal(const struct exec_request *request, struct pipes *pipes)
{
	bool input_closed = request->flags & EXEC_STDIN_CLOSED;
	char name[64];
	int r;

	pipes->ours[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (pipes->ours[1] < 0 || grantpt(pipes->ours[1]) < 0 || unlockpt(pipes->ours[1]) < 0)
		return -errno;
	r = ptsname_r(pipes->ours[1], name, sizeof(name));
	if (r != 0)
		return -r;
	pipes->theirs[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (pipes->theirs[1] < 0)
		return -errno;
	r = set_window(pipes->ours[1], request->rows ? request->rows : DEFAULT_ROWS,
		request->columns ? request->columns : DEFAULT_COLUMNS);
	if (r == 0)
		r = duplicate(pipes->theirs[1], &pipes->theirs[2]);
	if (r == 0)
		r = input_closed ? open_null(&pipes->theirs[0])
				 : duplicate(pipes->theirs[1], &pipes->theirs[0]);
	if (r == 0 && !input_closed)
		r = duplicate(pipes->ours[1], &pipes->ours[0]);
	return r;
}

/* The files that "name" may mean, one after the other, as one block. */
static int find_programs(const char *name, const char *path, char ***ret_programs)
{
	size_t directories = 1, name_size = strlen(name) + 1;
	char **programs;
	char *at;

	for (const char *colon = path; *colon; colon++)
		directories += *colon == ':';
	programs = malloc((directories + 1) * sizeof(*programs) + strlen(path) +
			  directories * (name_size + 2));
	if (!programs)
		return -ENOMEM;
	at = (char *)(programs + directories + 1);
	if (strchr(name, '/') || !*name)
		directories = 0;
	for (size_t i = 0; i < directories; i++) {
		size_t length = strcspn(path, ":");

		programs[i] = at;
		memcpy(at, length ? path : ".", length ? length : 1);
		at += length ? length : 1;
		*at++ = '/';
		memcpy(at, name, name_size);
		at += name_size;
		path += length + (path[length] == ':');
	}
	if (!directories) {
		memcpy(at, name, name_size);
		programs[directories++] = at;
	}
	programs[directories] = NULL;
	*ret_programs = programs;
	return 0;
}

/* 0 once the command runs (its status pipe closes), else why it does not. */
static int await_start(int status_fd)
{
	ssize_t got;
	int error;

	do
		got = read(status_fd, &error, sizeof(error));
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof(error) ? error : 0;
}

static int fork_supervisor(struct launch *launch, struct command *command)
{
	int control[2] = {-1, -1}, status[2] = {-1, -1}, r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
		return -errno;
	r = open_pipe(&status[0], &status[1]);
	if (r < 0) {
		close_all(control, 2);
		return r;
	}
	launch->control_fd = control[1];
	launch->status_fd = status[1];
	command->supervisor = fork();
	if (command->supervisor == 0)
		process_supervise(launch);
	r = command->supervisor < 0 ? -errno : 0;
	close(control[1]);
	close(status[1]);
	command->control_fd = control[0];
	close_all(launch->stdio, 3);
	for (int i = 0; i < 3; i++)
		launch->stdio[i] = -1;
	if (r == 0)
		r = await_start(status[0]);
	close(status[0]);
	return r;
}

static int set_nonblocking(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0 && fcntl(fds[i], F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	return 0;
}

static int command_new(struct pipes *pipes, bool terminal, struct command **ret_command)
{
	struct command *command = malloc(sizeof(*command));

	if (!command)
		return -ENOMEM;
	*command = (struct command){
		.supervisor = -1,
		.control_fd = -1,
		.outputs = {steal_fd(&pipes->ours[1]), steal_fd(&pipes->ours[2])},
		.input_fd = steal_fd(&pipes->ours[0]),
		.terminal = terminal,
	};
	pthread_mutex_init(&command->input_mutex, NULL);
	*ret_command = command;
	return 0;
}

int command_start(const struct exec_request *request, int cwd_fd, struct command **ret_command)
{
	const char *const shell_argv[] = {"/bin/sh", "-c", request->command, NULL};
	const char *const *argv = request->argv ? request->argv : shell_argv;
	cleanup_with(pipes_done) struct pipes pipes = {{-1, -1, -1}, {-1, -1, -1}};
	cleanup_free char **environment = NULL, **programs = NULL;
	char *const *login = NULL;
	bool terminal = request->flags & EXEC_PTY;
	struct command *command = NULL;
	struct launch launch;
	const char *path;
	int r;

	if (request->flags & EXEC_LOGIN) {
		r = process_login_environment(cwd_fd, &login);
		if (r < 0)
			return r;
	}
	r = process_environment(request->environment, login, &environment);
	if (r < 0)
		return r;
	path = process_environment_get(environment, "PATH");
	r = find_programs(argv[0], path ? path : "", &programs);
	if (r == 0)
		r = terminal ? open_terminal(request, &pipes) : open_pipes(request->flags, &pipes);
	if (r == 0)
		r = set_nonblocking(pipes.ours, 3);
	if (r == 0)
		r = command_new(&pipes, terminal, &command);
	if (r < 0)
		return r;
	launch = (struct launch){
		.argv = (char **)argv,
		.programs = programs,
		.environment = environment,
		.cwd_fd = cwd_fd,
		.stdio = {steal_fd(&pipes.theirs[0]), steal_fd(&pipes.theirs[1]),
			steal_fd(&pipes.theirs[2])},
		.terminal = terminal,
		.kill_leftovers = request->flags & EXEC_KILL_LEFTOVERS,
		.timeout_ms = request->timeout_ms,
		.umask = request->has_umask ? request->umask : -1,
	};
	r = fork_supervisor(&launch, command);
	close_all(launch.stdio, 3);
	if (r == 0 && (request->flags & EXEC_TELL_PORTS))
		command->ports = port_watch_new(command->supervisor);
	if (r < 0) {
		command_free(command);
		return r;
	}
	*ret_command = command;
	return 0;
}

void command_free(struct command *command)
{
	if (!command)
		return;
	if (command->control_fd >= 0)
		close(command->control_fd);
	close_all(command->outputs, 2);
	if (command->input_fd >= 0)
		close(command->input_fd);
	if (command->supervisor > 0)
		while (waitpid(command->supervisor, NULL, 0) < 0 && errno == EINTR) {}
	pthread_mutex_destroy(&command->input_mutex);
	port_watch_free(command->ports);
	free(command);
}

/* ---- Events ------------------------------------------------------------------------------ */

/* Returns the count, 0 when there is nothing now (or no more ever). */
static ssize_t read_output(struct command *command, unsigned which, void *buffer, size_t size)
{
	ssize_t got;

	if (command->outputs[which] < 0)
		return 0;
	got = read(command->outputs[which], buffer, size);
	if (got > 0)
		return got;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* A terminal whose last user is gone says EIO. */
	if (got < 0 && errno != EIO)
		return -errno;
	close(command->outputs[which]);
	command->outputs[which] = -1;
	return 0;
}

static int give_output(
	struct command *command, unsigned which, size_t size, struct exec_event *ret_event)
{
	command->turn = !which;
	*ret_event = (struct exec_event){.type = which ? EXEC_STDERR : EXEC_STDOUT, .size = size};
	return 1;
}

/* 1 when there was something. */
static int next_output(
	struct command *command, void *buffer, size_t size, struct exec_event *ret_event)
{
	for (unsigned i = 0; i < 2; i++) {
		unsigned which = i ? !command->turn : command->turn;
		ssize_t got = read_output(command, which, buffer, size);

		if (got < 0)
			return (int)got;
		if (got > 0)
			return give_output(command, which, (size_t)got, ret_event);
	}
	return 0;
}

/* What stands in the pipes now was written before the command ended, or hardly later. */
static void note_end(struct command *command)
{
	ssize_t got =
		recv(command->control_fd, &command->report, sizeof(command->report), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got != (ssize_t)sizeof(command->report))
		command->report = (struct end_report){.wait_status = SIGKILL};
	command->has_ended = true;
	command->gone = true;
	for (unsigned i = 0; i < 2; i++) {
		int waiting = 0;

		if (command->terminal)
			command->left_bytes[i] = TERMINAL_DRAIN_BYTES;
		else if (command->outputs[i] >= 0 &&
			 ioctl(command->outputs[i], FIONREAD, &waiting) == 0)
			command->left_bytes[i] = (size_t)waiting;
	}
}

static void give_end(const struct command *command, struct exec_event *ret_event)
{
	int status = command->report.wait_status;

	*ret_event = (struct exec_event){
		.type = EXEC_EXIT,
		.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
		.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
		.timed_out = command->report.timed_out,
	};
}

static int next_leftover(
	struct command *command, void *buffer, size_t size, struct exec_event *ret_event)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pollfd quiet = {.fd = command->outputs[i], .events = POLLIN};
		size_t want = size < command->left_bytes[i] ? size : command->left_bytes[i];
		ssize_t got;

		if (!want)
			continue;
		if (command->terminal && command->outputs[i] >= 0)
			poll(&quiet, 1, TERMINAL_QUIET_MS);
		got = read_output(command, i, buffer, want);
		if (got < 0)
			return (int)got;
		command->left_bytes[i] = got ? command->left_bytes[i] - (size_t)got : 0;
		if (got > 0)
			return give_output(command, i, (size_t)got, ret_event);
	}
	give_end(command, ret_event);
	return 0;
}

static bool is_interrupted(struct command_interrupt interrupt)
{
	return interrupt.is_true && interrupt.is_true(interrupt.user);
}

/* How long to wait for something to happen; forever: -1. */
static int wait_ms(const struct command *command, struct command_interrupt interrupt)
{
	if (interrupt.is_true)
		return INTERRUPT_POLL_MS;
	return command->ports ? PORT_WATCH_MS : -1;
}

static bool next_port(struct command *command, struct exec_event *ret_event)
{
	uint16_t port = command->ports ? port_watch_look(command->ports) : 0;

	if (port)
		*ret_event = (struct exec_event){.type = EXEC_LISTENING, .port = port};
	return port;
}

int command_next(struct command *command, struct command_interrupt interrupt, void *buffer,
	size_t size, struct exec_event *ret_event)
{
	int r;

	while (!command->has_ended) {
		struct pollfd fds[3] = {
			{.fd = command->control_fd, .events = POLLIN},
			{.fd = command->outputs[0], .events = POLLIN},
			{.fd = command->outputs[1], .events = POLLIN},
		};
		if (is_interrupted(interrupt))
			return -EINTR;
		if (next_port(command, ret_event))
			return 0;
		r = poll(fds, 3, wait_ms(command, interrupt));
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r <= 0)
			continue;
		r = next_output(command, buffer, size, ret_event);
		if (r != 0)
			return r < 0 ? r : 0;
		if (fds[0].revents)
			note_end(command);
	}
	r = next_leftover(command, buffer, size, ret_event);
	return r < 0 ? r : 0;
}

/* ---- Orders -------------------------------------------------------------------------------- */

static ssize_t try_write(struct command *command, const void *data, size_t size, int *ret_fd)
{
	ssize_t put;

	pthread_mutex_lock(&command->input_mutex);
	*ret_fd = command->input_fd;
	put = command->input_fd < 0 ? -EPIPE : write(command->input_fd, data, size);
	if (put < 0 && command->input_fd >= 0)
		put = errno == EIO ? -EPIPE : -errno;
	pthread_mutex_unlock(&command->input_mutex);
	return put;
}

ssize_t command_write(
	struct command *command, struct command_interrupt interrupt, const void *data, size_t size)
{
	struct pollfd room = {.events = POLLOUT};
	ssize_t put;

	while ((put = try_write(command, data, size, &room.fd)) == -EAGAIN || put == -EINTR) {
		if (is_interrupted(interrupt))
			return -EINTR;
		/* Another thread may close it meanwhile: then the next try says so. */
		poll(&room, 1, INTERRUPT_POLL_MS);
	}
	return put;
}

int command_close_stdin(struct command *command)
{
	static const char end_of_file = 4;
	int r = 0;

	pthread_mutex_lock(&command->input_mutex);
	if (command->input_fd >= 0) {
		if (command->terminal && write(command->input_fd, &end_of_file, 1) < 0)
			r = errno == EIO ? 0 : -errno;
		close(command->input_fd);
		command->input_fd = -1;
	}
	pthread_mutex_unlock(&command->input_mutex);
	return r;
}

int command_signal(struct command *command, int signal)
{
	supervisor_order order = (supervisor_order)signal;

	if (signal <= 0 || signal > SIGRTMAX)
		return -EINVAL;
	if (command->gone ||
		send(command->control_fd, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -ESRCH;
	return 0;
}

int command_resize(struct command *command, uint16_t rows, uint16_t columns)
{
	if (!command->terminal)
		return -EINVAL;
	return command->outputs[0] < 0 ? -ESRCH : set_window(command->outputs[0], rows, columns);
}
