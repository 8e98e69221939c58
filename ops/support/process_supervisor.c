/* After fork in a program with threads: async-signal-safe calls only. */
#include "ops/support/process_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/file_limit.h"
#include "ops/support/process.h"

enum {
	TERM_TO_KILL_MS = 3000,
	KILL_WAIT_MS = 2000, /* for processes that do not even die of KILL */
	STOP_ROUNDS = 8,
	FD_FALLBACK_MAX = 65536,
};

struct supervisor {
	const struct launch *launch;
	int control_fd;
	pid_t command;
	int signal_fd;
	int64_t deadline_ms; /* of the timeout, then of the KILL after it; -1: none */
	bool timed_out;
	bool end_requested; /* by a signal such as INT: what it leaves behind goes with it */
	bool ended;         /* the command itself; `wait_status` is valid */
	bool alone;         /* no child is left */
	int wait_status;
};

static void close_from_to(unsigned first, unsigned last)
{
	struct rlimit limit = {.rlim_cur = FD_FALLBACK_MAX};

	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur > FD_FALLBACK_MAX)
		limit.rlim_cur = FD_FALLBACK_MAX;
	for (unsigned fd = first; fd <= last && fd < limit.rlim_cur; fd++)
		close((int)fd);
}

static void reset_signals(void)
{
	struct sigaction standard = {.sa_handler = SIG_DFL};

	for (int signal = 1; signal < NSIG; signal++)
		sigaction(signal, &standard, NULL);
}

static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- The command ------------------------------------------------------------------------ */

/* Its ends may have low numbers themselves: first out of the way, then into place.  Nothing
 * else stays open. */
static int place_descriptors(const struct launch *launch, int *status_fd)
{
	int moved[3];

	*status_fd = fcntl(*status_fd, F_DUPFD_CLOEXEC, 4);
	for (int i = 0; i < 3; i++) {
		moved[i] = fcntl(launch->stdio[i], F_DUPFD_CLOEXEC, 4);
		if (moved[i] < 0 || *status_fd < 0)
			return -errno;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(moved[i], i) < 0)
			return -errno;
	*status_fd = dup3(*status_fd, 3, O_CLOEXEC);
	close_from_to(4, ~0U);
	return 0;
}

/* As execvp(3), but a script without an interpreter is an error. */
static int try_programs(const struct launch *launch)
{
	int error = -ENOENT;

	for (char **program = launch->programs; *program; program++) {
		execve(*program, launch->argv, launch->environment);
		if (errno == EACCES)
			error = -EACCES;
		else if (errno != ENOENT && errno != ENOTDIR)
			return -errno;
	}
	return error;
}

static _Noreturn void run_command(const struct launch *launch)
{
	int status_fd = launch->status_fd;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* should the supervisor itself be killed */
	setsid();
	unblock_signals(); /* the supervisor handles none */
	process_restore_umask();
	if (launch->umask >= 0)
		umask((mode_t)launch->umask);
	r = fchdir(launch->cwd_fd) < 0 ? -errno : place_descriptors(launch, &status_fd);
	if (r == 0 && launch->terminal && ioctl(STDOUT_FILENO, TIOCSCTTY, 0) < 0)
		r = -errno;
	file_limit_restore();
	if (r == 0)
		r = try_programs(launch);
	if (write(status_fd, &r, sizeof(r)) < 0)
		_exit(126);
	_exit(127);
}

/* ---- The supervisor ------------------------------------------------------------------------ */

static void reap(struct supervisor *s)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid <= 0) {
			s->alone = pid < 0;
			return;
		}
		if (pid == s->command) {
			s->ended = true;
			s->wait_status = status;
		}
	}
}

/* Stopped processes do not fork: a tree that grows while it is being killed is held first. */
static void kill_tree(struct supervisor *s)
{
	int64_t give_up = clock_now_ms() + KILL_WAIT_MS;
	struct timespec pause = {.tv_nsec = 1000000};
	size_t count = 0, before = 0;

	reap(s);
	for (int round = 0; !s->alone && round < STOP_ROUNDS; round++) {
		count = process_signal_descendants(SIGSTOP, s->command);
		if (count == before)
			break;
		before = count;
	}
	while (!s->alone && clock_now_ms() < give_up) {
		process_signal_descendants(SIGKILL, s->command);
		nanosleep(&pause, NULL);
		reap(s);
	}
}

static _Noreturn void finish(struct supervisor *s)
{
	struct end_report report = {.wait_status = s->wait_status, .timed_out = s->timed_out};

	send(s->control_fd, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(0);
}

static _Noreturn void abandon(struct supervisor *s)
{
	kill_tree(s);
	_exit(0);
}

static void pass_deadline(struct supervisor *s)
{
	if (s->timed_out) {
		kill_tree(s);
		s->deadline_ms = -1;
		return;
	}
	s->timed_out = true;
	s->deadline_ms = clock_now_ms() + TERM_TO_KILL_MS;
	process_signal_descendants(SIGTERM, s->command);
	process_signal_descendants(SIGCONT, s->command);
}

static void end_command(struct supervisor *s)
{
	/* Processes that got SIGTERM have their grace period. */
	if (s->timed_out && !s->alone && s->deadline_ms >= 0)
		return;
	if (s->timed_out || s->end_requested || s->launch->kill_leftovers)
		kill_tree(s);
	finish(s);
}

static void take_order(struct supervisor *s)
{
	supervisor_order order;
	ssize_t got = recv(s->control_fd, &order, sizeof(order), MSG_DONTWAIT);

	if (got == (ssize_t)sizeof(order)) {
		process_signal_descendants(order, s->command);
		s->end_requested |=
			order == SIGINT || order == SIGTERM || order == SIGHUP || order == SIGQUIT;
	} else if (got == 0 || (errno != EAGAIN && errno != EINTR))
		abandon(s);
}

static void take_signal(struct supervisor *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
		info.ssi_signo != SIGCHLD)
		abandon(s);
}

static _Noreturn void watch_over(struct supervisor *s)
{
	struct pollfd fds[2] = {
		{.fd = s->control_fd, .events = POLLIN},
		{.fd = s->signal_fd, .events = POLLIN},
	};

	for (;;) {
		int64_t wait = -1;

		reap(s);
		if (s->ended)
			end_command(s);
		if (s->deadline_ms >= 0) {
			wait = s->deadline_ms - clock_now_ms();
			if (wait <= 0) {
				pass_deadline(s);
				continue;
			}
		}
		if (poll(fds, 2, wait < INT32_MAX ? (int)wait : INT32_MAX) <= 0)
			continue;
		if (fds[1].revents)
			take_signal(s);
		if (fds[0].revents)
			take_order(s);
	}
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void keep_only(int a, int b)
{
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);

	if (low > 0)
		close_from_to(0, low - 1);
	close_from_to(low + 1, high - 1);
	close_from_to(high + 1, ~0U);
}

static _Noreturn void fail(const struct launch *launch, int error)
{
	if (write(launch->status_fd, &error, sizeof(error)) < 0)
		_exit(1);
	_exit(0);
}

_Noreturn void process_supervise(const struct launch *launch)
{
	struct supervisor s = {
		.launch = launch, .control_fd = launch->control_fd, .deadline_ms = -1};

	setsid();
	reset_signals();
	unblock_signals();
	prctl(PR_SET_NAME, "isthmus-exec", 0, 0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	/* Before the fork: its SIGCHLD must not be lost. */
	s.signal_fd = open_signals();
	if (s.signal_fd < 0)
		fail(launch, -errno);
	if (launch->timeout_ms)
		s.deadline_ms = clock_now_ms() + launch->timeout_ms;
	/* Not vfork(2): execve(2) may wait for a file system that does not answer, and the time-out
	 * counts meanwhile. */
	s.command = fork();
	if (s.command < 0)
		fail(launch, -errno);
	if (s.command == 0)
		run_command(launch);
	/* Everything of the program, the other end of the control socket above all. */
	keep_only(s.signal_fd, s.control_fd);
	watch_over(&s);
}
