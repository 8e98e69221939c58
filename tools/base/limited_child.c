#include "tools/base/limited_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/files.h"

static int content_fd(const void *content, size_t size)
{
	cleanup_fd int fd = memfd_create("content", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, content, size);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* Uses env(1), which looks up the program in the PATH of the new environment, not in that of this
 * process. */
static int spawn(const struct limited_child *child, int input, int output, pid_t *ret_pid)
{
	static const char *const environment[] = {
		"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t blocked;
	int r;

	/* Block SIGXFSZ: a write to a file then fails instead of killing the program, which may be
	 * able to work without its cache files. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGXFSZ);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &blocked);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input, 0);
	posix_spawn_file_actions_adddup2(&actions, output, 1);
	if (child->output_only)
		posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	else
		posix_spawn_file_actions_adddup2(&actions, output, 2);
	r = posix_spawnp(ret_pid, child->argv[0], &actions, &attributes, (char *const *)child->argv,
		(char *const *)environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return -r;
}

static void limit(const struct limited_child *child, pid_t pid)
{
	const struct rlimit cpu = {child->cpu_s, child->cpu_s}, files = {0, 0};

/* No limit under sanitizers, which reserve terabytes. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	const struct rlimit memory = {child->memory_bytes, child->memory_bytes};

	prlimit(pid, RLIMIT_AS, &memory, NULL);
#endif
	prlimit(pid, RLIMIT_CPU, &cpu, NULL);
	prlimit(pid, RLIMIT_FSIZE, &files, NULL);
}

/* Appends output; drops it above the limit, so that the program runs on to its exit status. */
static int append(const struct limited_child *child, struct buffer *output, size_t start,
	const void *more, size_t size)
{
	size_t room = child->output_max_bytes - (output->size - start);

	return buffer_append(output, more, size < room ? size : room);
}

/* Reads the output until the program ends or its time is up. */
static int collect(const struct limited_child *child, int fd, struct buffer *output)
{
	int64_t end_ms = clock_now_ms() + child->timeout_ms;
	size_t start = output->size;
	int r = 0;

	while (r == 0) {
		struct pollfd waits[] = {
			{.fd = fd, .events = POLLIN}, {.fd = child->cancel_fd, .events = POLLIN}};
		int64_t left_ms = end_ms - clock_now_ms();
		char more[16384];
		ssize_t got;

		if (left_ms <= 0 || poll(waits, 2, (int)left_ms) == 0)
			return -ETIMEDOUT;
		if (waits[1].revents & POLLIN)
			return -ECANCELED;
		if (!waits[0].revents)
			continue;
		got = read(fd, more, sizeof(more));
		if (got == 0)
			return 0;
		if (got > 0)
			r = append(child, output, start, more, (size_t)got);
		else if (errno != EINTR)
			r = -errno;
	}
	return r;
}

int limited_child_run(const struct limited_child *child, struct buffer *output)
{
	cleanup_fd int input = content_fd(child->content, child->size), from = -1, to = -1;
	int ends[2], status, r;
	pid_t pid;

	if (input < 0)
		return input;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	from = ends[0];
	to = ends[1];
	r = spawn(child, input, to, &pid);
	if (r < 0)
		return r;
	limit(child, pid);
	close(steal_fd(&to));
	r = collect(child, from, output);
	kill(pid, SIGKILL); /* no effect if it has ended: it is not reaped yet */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -ENOENT;
}
