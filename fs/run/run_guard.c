#include "fs/run/run_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

enum { AGENT_WAIT_MS = 3000 };

static const int32_t no_agent; /* the word by which a living process ends its guard */

static void ignore_ends(void)
{
	static const int ends[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE};

	for (size_t i = 0; i < array_size(ends); i++)
		signal(ends[i], SIG_IGN);
}

static void forget_standard_files(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(null);
}

/* By its descriptor: its number may soon be that of another process. */
static void end_agent(int agent)
{
	struct pollfd end = {.fd = agent, .events = POLLIN};

	syscall(SYS_pidfd_send_signal, agent, SIGHUP, NULL, 0);
	syscall(SYS_pidfd_send_signal, agent, SIGCONT, NULL, 0);
	if (poll(&end, 1, AGENT_WAIT_MS) > 0)
		return;
	syscall(SYS_pidfd_send_signal, agent, SIGKILL, NULL, 0);
	poll(&end, 1, AGENT_WAIT_MS);
}

static _Noreturn void guard(int fd, void (*clean_up)(void *user), void *user)
{
	int agent = -1;
	int32_t word;
	ssize_t got;

	setsid();
	ignore_ends();
	forget_standard_files();
	while ((got = read(fd, &word, sizeof(word))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got != (ssize_t)sizeof(word) || word == no_agent)
			_exit(0);
		agent = (int)syscall(SYS_pidfd_open, (pid_t)word, 0);
	}
	if (agent >= 0)
		end_agent(agent);
	clean_up(user);
	_exit(0);
}

int run_guard_start(void (*clean_up)(void *user), void *user, struct run_guard *ret_guard)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		guard(ends[0], clean_up, user);
	}
	close(ends[0]);
	if (pid < 0) {
		int r = -errno;

		close(ends[1]);
		return r;
	}
	*ret_guard = (struct run_guard){pid, ends[1]};
	return 0;
}

static void tell(const struct run_guard *guard, int32_t word)
{
	while (send(guard->fd, &word, sizeof(word), MSG_NOSIGNAL) < 0 && errno == EINTR)
		continue;
}

void run_guard_set_agent(const struct run_guard *guard, pid_t agent)
{
	if (guard->pid)
		tell(guard, agent);
}

void run_guard_end(struct run_guard *guard)
{
	if (!guard->pid)
		return;
	tell(guard, no_agent);
	close(guard->fd);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	*guard = (struct run_guard){0};
}
