/* Finds the processes that keep a mount busy, and so the daemon running. */
#include "fs/mount/mount_point.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/mountinfo.h"

enum { HOLDERS_MAX = 8, LOOK_WAIT_MS = 2000 };

static bool points_into(int directory, const char *link, const char *mount_point)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(directory, link, target, sizeof(target) - 1);
	size_t prefix = strlen(mount_point);

	if (length < 0)
		return false;
	target[length] = '\0';
	return strncmp(target, mount_point, prefix) == 0 &&
	       (target[prefix] == '/' || !target[prefix] || target[prefix] == ' ');
}

static bool has_open(int process, const char *mount_point)
{
	cleanup_fd int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory)
		return false;
	steal_fd(&fd);
	while ((entry = readdir(directory)))
		if (points_into(dirfd(directory), entry->d_name, mount_point))
			return true;
	return false;
}

static bool has_mapped(int process, const char *mount_point)
{
	cleanup_fd int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
	cleanup_file FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	cleanup_free char *line = NULL;
	size_t size = 0, prefix = strlen(mount_point);

	if (file)
		steal_fd(&fd);
	while (file && getline(&line, &size, file) > 0) {
		const char *path = strchr(line, '/');

		if (path && strncmp(path, mount_point, prefix) == 0 && path[prefix] == '/')
			return true;
	}
	return false;
}

static bool holds(int process, const char *mount_point)
{
	return points_into(process, "cwd", mount_point) ||
	       points_into(process, "root", mount_point) ||
	       points_into(process, "exe", mount_point) || has_open(process, mount_point) ||
	       has_mapped(process, mount_point);
}

static void read_name(int process, char *name, size_t size)
{
	cleanup_fd int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, name, size - 1);

	name[got > 0 ? got : 0] = '\0';
	name[strcspn(name, "\n")] = '\0';
}

/* Runs `work` in a child without any of our files, and appends its stdout to `said`.  It may block
 * for as long as a far end does not answer.  -ETIMEDOUT: after `wait_ms` it is left alone; -EAGAIN,
 * -EMFILE, -ENOMEM ...: no child could be started. */
static int ask_child(
	void (*work)(const char *path), const char *path, int wait_ms, struct buffer *said)
{
	int64_t until = clock_now_ms() + wait_ms, left_ms;
	int ends[2], r = -ETIMEDOUT;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close_range(3, ~0U, 0);
		work(path);
		_exit(0);
	}
	if (child < 0)
		r = -errno;
	close(ends[1]);
	while (r == -ETIMEDOUT && (left_ms = until - clock_now_ms()) > 0) {
		struct pollfd end = {.fd = ends[0], .events = POLLIN};
		char piece[256];
		ssize_t got;

		if (poll(&end, 1, (int)left_ms) <= 0)
			continue;
		got = read(ends[0], piece, sizeof(piece));
		if (got == 0)
			r = 0;
		if (got > 0)
			buffer_append(said, piece, (size_t)got);
	}
	close(ends[0]);
	if (r == -ETIMEDOUT)
		kill(child, SIGKILL);
	if (child > 0)
		waitpid(child, NULL, r == 0 ? 0 : WNOHANG);
	return r;
}

static void tell_holders(const char *mount_point)
{
	cleanup_dir DIR *processes = opendir("/proc");
	const struct dirent *entry;
	int count = 0;
	char name[64];

	while (processes && count < HOLDERS_MAX && (entry = readdir(processes))) {
		cleanup_fd int process = -1;

		if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid() ||
			atoi(entry->d_name) == getppid())
			continue;
		process =
			openat(dirfd(processes), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (process < 0 || !holds(process, mount_point))
			continue;
		read_name(process, name, sizeof(name));
		dprintf(STDOUT_FILENO, "%s%s (pid %s)", count++ ? ", " : "", name, entry->d_name);
	}
}

/* /proc/PID of a process that is blocked within execve(2) cannot be read. */
char *mount_point_holders(const char *mount_point)
{
	cleanup_buffer struct buffer found = {0};
	int r = ask_child(tell_holders, mount_point, LOOK_WAIT_MS, &found);

	if (r < 0 && found.size)
		buffer_append_string(&found, ", ");
	if (r == -ETIMEDOUT)
		buffer_append_string(&found, "a process that does not answer");
	else if (r < 0)
		buffer_printf(&found, "processes that cannot be looked for (%s)", strerror(-r));
	return found.size ? buffer_steal_string(&found) : NULL;
}

struct copy {
	unsigned connection;
	char *mount_point;
};

static bool note_copy(void *user, const struct mountinfo_line *line)
{
	struct copy *copy = user;

	if (line->minor == copy->connection && strncmp(line->type, "fuse", 4) == 0)
		copy->mount_point = strdup(line->mount_point);
	return !copy->mount_point;
}

/* In the mount namespace of a process; the caller frees. */
static char *find_copy(pid_t pid, unsigned connection)
{
	struct copy copy = {.connection = connection};

	mountinfo_walk_of(pid, note_copy, &copy);
	return copy.mount_point;
}

static char *tell_copy(int processes, const char *pid, unsigned connection)
{
	cleanup_free char *found = find_copy((pid_t)atoi(pid), connection);
	cleanup_fd int process = -1;
	char name[64];

	if (!found)
		return NULL;
	process = openat(processes, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	read_name(process, name, sizeof(name));
	return string_printf(
		"%s (pid %s) has a copy of the mount in its mount namespace", name, pid);
}

char *mount_point_copy(unsigned connection)
{
	cleanup_free char *here = find_copy(getpid(), connection);
	cleanup_dir DIR *processes = opendir("/proc");
	const struct dirent *entry;
	char *holder = NULL;

	if (here)
		return string_printf("it is also mounted at \"%s\"", here);
	while (!holder && processes && (entry = readdir(processes)))
		if (isdigit((unsigned char)entry->d_name[0]))
			holder = tell_copy(dirfd(processes), entry->d_name, connection);
	return holder;
}

static void sync_mount(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		syncfs(fd);
}

/* In a child, as the daemon has to serve the writes that this causes. */
int mount_point_write_pages(const char *path, int wait_ms)
{
	cleanup_buffer struct buffer nothing = {0};

	return ask_child(sync_mount, path, wait_ms, &nothing);
}
