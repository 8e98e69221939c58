/*
 * The event helper: makes calls on the mount, for the events that the kernel raises for them.
 *
 * A process of its own: it may have to wait for a lock that the kernel holds until the daemon
 * answers a request, in which it cannot be killed.  A thread of the daemon that waits so would keep
 * /dev/fuse open after a kill -9 of the daemon, and everybody would wait for ever.
 *
 * What it removes and renames must be on the mount and nowhere else: by the time of the call the
 * mount may be gone, and the path lead to a directory of this machine.
 */
#include "fs/watchers/event_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum { PROBE_WAIT_MS = 1000 };

static struct {
	const char *mount_point;
	unsigned device;
	bool has_root_fd;
} mount;

/* ---- Where ---------------------------------------------------------------------------- */

static bool is_on_mount(int fd)
{
	struct statx found;

	/* Without a request. */
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &found) == 0 &&
	       found.stx_dev_major == 0 && found.stx_dev_minor == mount.device;
}

static int open_root(void)
{
	int fd = mount.has_root_fd ? fcntl(EVENT_ROOT_FD, F_DUPFD_CLOEXEC, EVENT_ROOT_FD + 1)
				   : open(mount.mount_point, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && !is_on_mount(fd)) {
		close(fd);
		errno = ENODEV;
		return -1;
	}
	return fd;
}

/* Nowhere but on this mount, and through no link. */
static int open_beneath(const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
	cleanup_fd int root = open_root();

	if (root < 0)
		return -1;
	if (!*path)
		return steal_fd(&root);
	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static int open_parent(const char *path)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));

	if (!parent) {
		errno = ENOMEM;
		return -1;
	}
	return open_beneath(parent, O_PATH | O_DIRECTORY);
}

/* ---- What ----------------------------------------------------------------------------- */

static int modify(const struct event_command *command)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, command->mtime};
	cleanup_fd int fd = open_beneath(command->path, O_WRONLY | O_NONBLOCK);

	if (fd < 0)
		fd = open_beneath(command->path, O_RDONLY | O_NONBLOCK);
	return fd < 0 ? -1 : futimens(fd, times);
}

static int attrib(const struct event_command *command)
{
	const struct timespec times[2] = {command->atime, command->mtime};
	cleanup_fd int fd = open_beneath(command->path, O_PATH);

	return fd < 0 ? -1 : utimensat(fd, "", times, AT_EMPTY_PATH);
}

static int rename_it(const struct event_command *command)
{
	cleanup_fd int from = open_parent(command->path);
	cleanup_fd int to = from < 0 ? -1 : open_parent(command->new_path);

	return to < 0 ? -1
		      : renameat(from, path_name(command->path), to, path_name(command->new_path));
}

static int change_name(const struct event_command *command)
{
	cleanup_fd int parent = open_parent(command->path);
	const char *name = path_name(command->path);

	if (parent < 0)
		return -1;
	switch (command->call) {
	case EVENT_MKNOD:
		return mknodat(parent, name, command->mode, 0);
	case EVENT_MKDIR:
		return mkdirat(parent, name, 0755);
	case EVENT_SYMLINK:
		return symlinkat("x", parent, name);
	case EVENT_UNLINK:
		return unlinkat(parent, name, 0);
	default:
		return unlinkat(parent, name, AT_REMOVEDIR);
	}
}

static int probe(const struct event_command *command)
{
	cleanup_fd int events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	cleanup_fd int root = open_root();
	struct pollfd event = {.fd = events, .events = POLLIN};
	char proc_path[32];

	snprintf(proc_path, sizeof(proc_path), "/proc/self/fd/%d", root);
	if (events < 0 || root < 0 || inotify_add_watch(events, proc_path, IN_ATTRIB) < 0 ||
		attrib(command) < 0)
		return -1;
	if (poll(&event, 1, PROBE_WAIT_MS) == 1)
		return 0;
	errno = ETIME;
	return -1;
}

static int carry_out(const struct event_command *command)
{
	int r;

	switch (command->call) {
	case EVENT_PROBE:
		r = probe(command);
		break;
	case EVENT_MODIFY:
		r = modify(command);
		break;
	case EVENT_ATTRIB:
		r = attrib(command);
		break;
	case EVENT_RENAME:
		r = rename_it(command);
		break;
	default:
		r = change_name(command);
		break;
	}
	return r < 0 ? -errno : 0;
}

int event_program(int argc, char **argv)
{
	static struct event_command command;
	struct event_answer answer;

	if (argc != 3)
		return EXIT_FAILURE;
	mount.mount_point = argv[1];
	mount.device = (unsigned)strtoul(argv[2], NULL, 10);
	mount.has_root_fd = fcntl(EVENT_ROOT_FD, F_GETFD) >= 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	umask(0);
	if (chdir("/") < 0)
		return EXIT_FAILURE;
	while (recv(STDIN_FILENO, &command, sizeof(command), 0) == sizeof(command)) {
		answer.result = carry_out(&command);
		if (send(STDIN_FILENO, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			break;
	}
	return EXIT_SUCCESS;
}
