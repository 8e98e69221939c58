#include "fs/watchers/event_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"

enum { ANSWER_WAIT_MS = 2000, END_WAIT_MS = 1000 };

void event_helpers_init(struct event_helpers *h, struct mount *mount, int root_fd, int wake_fd)
{
	*h = (struct event_helpers){.mount = mount, .root_fd = root_fd, .wake_fd = wake_fd};
	for (unsigned i = 0; i < ANNOUNCE_HELPERS_MAX; i++)
		h->helpers[i].socket = -1;
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Without any of our files: one with /dev/fuse open would keep the connection. */
static int spawn(struct event_helpers *h, int socket, pid_t *ret_pid)
{
	char device[16], *arguments[] = {(char *)"isthmus", (char *)EVENT_PROGRAM_COMMAND,
				 (char *)h->mount->options->mount_point, device, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int error;

	snprintf(device, sizeof(device), "%u", h->mount->connection);
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (h->root_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, h->root_fd, EVENT_ROOT_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, EVENT_ROOT_FD + (h->root_fd >= 0));
	error = posix_spawn(ret_pid, "/proc/self/exe", &actions, &attributes, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return -error;
}

static int start(struct event_helpers *h, unsigned slot)
{
	struct event_helper *helper = &h->helpers[slot];
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	r = spawn(h, ends[1], &helper->pid);
	close(ends[1]);
	if (r < 0) {
		close(ends[0]);
		helper->pid = 0;
		return r;
	}
	helper->socket = ends[0];
	helper->is_stuck = false;
	announce_helper(h->mount, slot, helper->pid);
	return 0;
}

/* Its pid may be another process's as soon as it has been waited for. */
static void end(struct event_helpers *h, unsigned slot)
{
	struct event_helper *helper = &h->helpers[slot];
	uint64_t until_ms = (uint64_t)clock_now_ms() + END_WAIT_MS;
	pid_t ended = 0;

	if (!helper->pid)
		return;
	kill(helper->pid, SIGKILL);
	close(helper->socket);
	announce_helper(h->mount, slot, 0);
	while ((ended = waitpid(helper->pid, NULL, WNOHANG)) == 0 &&
		(uint64_t)clock_now_ms() < until_ms)
		poll(NULL, 0, 2);
	announce_end(h->mount, slot);
	*helper = (struct event_helper){.socket = -1};
}

void event_helpers_done(struct event_helpers *h)
{
	for (unsigned i = 0; i < ANNOUNCE_HELPERS_MAX; i++)
		end(h, i);
	if (h->root_fd >= 0)
		close(h->root_fd);
	h->root_fd = -1;
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* 0; -ECHILD: it has ended. */
static int receive(const struct event_helper *helper, int *ret_result)
{
	struct event_answer answer;

	if (recv(helper->socket, &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer))
		return -ECHILD;
	*ret_result = answer.result;
	return 0;
}

static int await(struct event_helpers *h, unsigned slot)
{
	struct event_helper *helper = &h->helpers[slot];
	struct pollfd fds[2] = {
		{.fd = helper->socket, .events = POLLIN}, {.fd = h->wake_fd, .events = POLLIN}};
	int64_t until_ms = clock_now_ms() + ANSWER_WAIT_MS, left_ms;
	int result, r;

	while ((left_ms = until_ms - clock_now_ms()) > 0) {
		if (poll(fds, 2, (int)left_ms) <= 0)
			continue;
		if (fds[0].revents) {
			r = receive(helper, &result);
			if (r < 0)
				end(h, slot);
			else
				announce_end(h->mount, slot);
			return r < 0 ? r : result;
		}
		return -EINTR;
	}
	helper->is_stuck = true;
	log_warning("an event helper (pid %d) waits in the kernel for something on \"%s\", "
		    "starting another one",
		(int)helper->pid, h->mount->options->mount_point);
	return -ETIMEDOUT;
}

unsigned event_helpers_stuck(struct event_helpers *h)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ANNOUNCE_HELPERS_MAX; i++) {
		struct event_helper *helper = &h->helpers[i];
		struct pollfd answer = {.fd = helper->socket, .events = POLLIN};
		int ignored;

		if (!helper->is_stuck)
			continue;
		if (poll(&answer, 1, 0) != 1)
			count++;
		else if (receive(helper, &ignored) < 0)
			end(h, i);
		else
			helper->is_stuck = false;
	}
	return count;
}

int event_helpers_call(struct event_helpers *h, const struct event_command *command,
	const struct announcement *announcement)
{
	unsigned slot = 0;
	int r = 0;

	if (event_helpers_stuck(h) == ANNOUNCE_HELPERS_MAX)
		return -EBUSY;
	while (h->helpers[slot].is_stuck)
		slot++;
	if (!h->helpers[slot].pid)
		r = start(h, slot);
	if (r < 0)
		return -ECHILD;
	announce_begin(h->mount, slot, announcement);
	announce_call_begin(h->mount);
	if (send(h->helpers[slot].socket, command, sizeof(*command), MSG_NOSIGNAL) < 0) {
		end(h, slot);
		r = -ECHILD;
	} else {
		r = await(h, slot);
	}
	announce_call_end(h->mount);
	return r;
}
