#include "ops/support/argv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

void argv_add(struct argv *argv, const char *word)
{
	char **longer = realloc(argv->words, (argv->count + 2) * sizeof(*longer));
	char *copy = word ? strdup(word) : NULL;

	if (longer)
		argv->words = longer;
	if (!longer || !copy) {
		argv->failed = true;
		free(copy);
		return;
	}
	longer[argv->count++] = copy;
	longer[argv->count] = NULL;
}

void argv_add_two(struct argv *argv, const char *first, const char *second)
{
	argv_add(argv, first);
	argv_add(argv, second);
}

void argv_add_list(struct argv *argv, char *const *words)
{
	for (; words && *words; words++)
		argv_add(argv, *words);
}

void argv_free_words(char **words)
{
	for (char **word = words; word && *word; word++)
		free(*word);
	free(words);
}

void argv_done(struct argv *argv)
{
	argv_free_words(argv->words);
	*argv = (struct argv){0};
}

int argv_steal(struct argv *argv, char ***ret_words)
{
	if (argv->failed || !argv->words)
		return -ENOMEM;
	*ret_words = argv->words;
	*argv = (struct argv){0};
	return 0;
}

/* ---- Asking ----------------------------------------------------------------------- */

static int start(char *const *words, int out_fd, int error_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
	posix_spawn_file_actions_adddup2(&actions, error_fd, 2);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	r = -posix_spawnp(ret_pid, words[0], &actions, &attributes, words, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Reads what is there; false at the end. */
static bool take(int fd, struct buffer *into)
{
	char data[4096];
	ssize_t n = read(fd, data, sizeof(data));

	if (n > 0 && into && into->size < ARGV_ANSWER_MAX_BYTES)
		buffer_append(into, data, (size_t)n);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static int listen_until(int64_t end_ms, const int fds[2], struct buffer *const into[2])
{
	struct pollfd ready[2] = {
		{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};

	while (ready[0].fd >= 0 || ready[1].fd >= 0) {
		int64_t left_ms = end_ms - clock_now_ms();

		if (left_ms <= 0)
			return -ETIMEDOUT;
		if (poll(ready, 2, (int)left_ms) <= 0)
			continue;
		for (int i = 0; i < 2; i++)
			if (ready[i].revents && !take(fds[i], into[i]))
				ready[i].fd = -1;
	}
	return 0;
}

/* What it started and left running is not waited for. */
static int reap(pid_t pid, int64_t end_ms, int r)
{
	const struct timespec pause = {.tv_nsec = 2000000};
	int status = 0;

	while (r == 0 && waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_now_ms() >= end_ms)
			r = -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	if (r < 0) {
		kill(-pid, SIGKILL);
		waitpid(pid, &status, 0);
		return r;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void terminate(struct buffer *text)
{
	if (text && buffer_append(text, "", 1) == 0)
		text->size--;
}

int argv_ask(char *const *words, int timeout_ms, struct buffer *out, struct buffer *error)
{
	struct buffer *const into[2] = {out, error};
	int64_t end_ms = clock_now_ms() + timeout_ms;
	int pipes[2][2] = {{-1, -1}, {-1, -1}};
	pid_t pid = -1;
	int r = 0;

	if (pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0)
		r = -errno;
	if (r == 0)
		r = start(words, pipes[0][1], pipes[1][1], &pid);
	for (int i = 0; i < 2; i++)
		if (pipes[i][1] >= 0)
			close(pipes[i][1]);
	if (r == 0) {
		r = listen_until(end_ms, (const int[]){pipes[0][0], pipes[1][0]}, into);
		r = reap(pid, end_ms, r);
	}
	for (int i = 0; i < 2; i++)
		if (pipes[i][0] >= 0)
			close(pipes[i][0]);
	terminate(out);
	terminate(error);
	return r;
}
