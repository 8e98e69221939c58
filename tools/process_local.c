#include "tools/process_local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "ops/support/cleanup.h"

enum { GRACE_MS = 3000, LEFTOVER_GRACE_MS = 300, GIVE_UP_MS = 5000, DESCENT_MAX = 64 };

/* ---- In the supervisor: async-signal-safe calls only ----------------------------- */

struct supervisor {
	int control; /* to the starter; -1 once that closed it */
	int signals; /* signalfd of SIGCHLD */
	pid_t command;
	bool command_ended;
	struct local_outcome outcome;
};

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static char *put_number(char *at, long number)
{
	char digits[24];
	int count = 0;

	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count)
		*at++ = digits[--count];
	return at;
}

static void signal_descendants(pid_t pid, int signal, int depth)
{
	char path[96], text[4096], *at = path;
	ssize_t got;
	long child = 0;
	cleanup_fd int fd = -1;

	at = stpcpy(at, "/proc/");
	at = put_number(at, pid);
	at = stpcpy(at, "/task/");
	at = put_number(at, pid);
	stpcpy(at, "/children");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || depth > DESCENT_MAX)
		return;
	while ((got = read(fd, text, sizeof(text))) > 0) {
		for (ssize_t i = 0; i < got; i++) {
			if (text[i] != ' ') {
				child = child * 10 + (text[i] - '0');
				continue;
			}
			signal_descendants((pid_t)child, signal, depth + 1);
			kill((pid_t)child, signal);
			child = 0;
		}
	}
}

static void signal_all(const struct supervisor *s, int signal)
{
	/* The group at once: a fork bomb cannot outrun that. */
	if (s->command > 0)
		kill(-s->command, signal);
	signal_descendants(getpid(), signal, 0);
}

/* Collects the dead; false when no child is left. */
static bool reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != s->command)
			continue;
		s->command_ended = true;
		s->outcome.status = status;
	}
	return pid == 0 || errno == EINTR;
}

static void wait_for_news(struct supervisor *s, long long until)
{
	struct pollfd fds[2] = {
		{.fd = s->signals, .events = POLLIN}, {.fd = s->control, .events = POLLIN}};
	long long left = until < 0 ? -1 : until - now_ms();
	struct signalfd_siginfo info;

	poll(fds, 2, left < 0 ? (until < 0 ? -1 : 0) : (int)left);
	while (read(s->signals, &info, sizeof(info)) > 0)
		;
}

/* What the starter says: 0 nothing, 1 end it, -1 it is gone. */
static int starter_order(struct supervisor *s)
{
	char byte;
	ssize_t got = recv(s->control, &byte, 1, MSG_DONTWAIT);

	if (got > 0)
		return 1;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return -1;
}

/* Ends every descendant: TERM first unless the grace is 0. */
static void end_all(struct supervisor *s, int grace_ms)
{
	long long start = now_ms();

	if (grace_ms)
		signal_all(s, SIGTERM);
	while (reap(s)) {
		long long now = now_ms();

		if (now - start > grace_ms + GIVE_UP_MS)
			return; /* not ours to kill: another user's, or stuck in the kernel */
		if (now - start >= grace_ms || starter_order(s) < 0) {
			signal_all(s, SIGKILL);
			wait_for_news(s, now + 10);
		} else {
			wait_for_news(s, start + grace_ms);
		}
	}
}

static void run_command(
	char *const *argv, char *const *environment, int cwd_fd, const int fds[3], int failure_fd)
{
	sigset_t none;
	int error;

	setpgid(0, 0);
	for (int signal = 1; signal < NSIG; signal++)
		(void)!sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			goto fail;
	if (fchdir(cwd_fd) < 0)
		goto fail;
	environ = (char **)environment;
	execvpe(argv[0], argv, environment);
fail:
	error = -errno;
	(void)!write(failure_fd, &error, sizeof(error));
	_exit(127);
}

static void supervise(struct supervisor *s, char *const *argv, char *const *environment, int cwd_fd,
	const int fds[3])
{
	int failure[2];
	sigset_t mask;

	setsid();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigfillset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	s->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0 || pipe2(failure, O_CLOEXEC) < 0) {
		s->outcome.error = -errno;
	} else {
		s->command = fork();
		if (s->command == 0)
			run_command(argv, environment, cwd_fd, fds, failure[1]);
		if (s->command < 0)
			s->outcome.error = -errno;
		else
			setpgid(s->command, s->command);
		close(failure[1]);
		/* Ends with the exec, which closes the other end. */
		if (s->command > 0 && read(failure[0], &s->outcome.error, sizeof(int)) <= 0)
			s->outcome.error = 0;
	}
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	while (s->command > 0 && !s->command_ended) {
		int order = starter_order(s);

		if (order) {
			end_all(s, order > 0 ? GRACE_MS : 0);
			break;
		}
		if (reap(s) && !s->command_ended)
			wait_for_news(s, -1);
	}
	end_all(s, LEFTOVER_GRACE_MS);
	(void)!send(s->control, &s->outcome, sizeof(s->outcome), MSG_NOSIGNAL);
	_exit(0);
}

/* ---- In the starter ------------------------------------------------------------------ */

static void close_both(int fds[2])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int local_process_start(
	char *const *argv, char *const *environment, int cwd_fd, struct local_process *ret_process)
{
	int output[2] = {-1, -1}, error[2] = {-1, -1}, control[2] = {-1, -1}, r = 0;
	cleanup_fd int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pid_t pid = -1;

	if (nothing < 0 || pipe2(output, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
		(pid = fork()) < 0)
		r = -errno;
	if (pid == 0) {
		struct supervisor s = {.control = control[1]};
		const int fds[3] = {nothing, output[1], error[1]};

		close(control[0]);
		close(output[0]);
		close(error[0]);
		supervise(&s, argv, environment, cwd_fd, fds);
	}
	if (r < 0) {
		close_both(output);
		close_both(error);
		close_both(control);
		return r;
	}
	close(output[1]);
	close(error[1]);
	close(control[1]);
	*ret_process = (struct local_process){output[0], error[0], control[0], pid};
	return 0;
}

void local_process_end(struct local_process *process)
{
	(void)!send(process->control_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int local_process_wait(struct local_process *process, struct local_outcome *ret_outcome)
{
	ssize_t got;

	do
		got = recv(process->control_fd, ret_outcome, sizeof(*ret_outcome), 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return got == sizeof(*ret_outcome) ? 0 : -ECONNRESET;
}

void local_process_done(struct local_process *process)
{
	if (process->output_fd >= 0)
		close(process->output_fd);
	if (process->error_fd >= 0)
		close(process->error_fd);
	close(process->control_fd);
	while (waitpid(process->supervisor, NULL, 0) < 0 && errno == EINTR)
		;
}
