#include "fs/commands/commands.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/writeback/writeback.h"

enum {
	QUIET_WAIT_MS = 2000,
	END_WAIT_MS = 58000,
	BUSY_TRIES = 10,
	BUSY_WAIT_MS = 50,
	FORCED_WAIT_MS = 5000
};

static const char usage[] =
	"usage: isthmus umount [-f | -l] DIR\n"
	"\n"
	"Unmounts the workspace at DIR after all written data has reached it.\n"
	"\n"
	"  -f, --force   unmount even if the daemon does not answer: programs that wait get an\n"
	"                error, and data that has not reached the workspace is lost\n"
	"  -l, --lazy    detach now; running programs keep their open files\n";

enum how { USUAL, LAZY, FORCE };

/* Says why the daemon still runs; the caller frees the text.  The daemon accepts connections while
 * it is mounted anywhere, then sends the written data. */
static char *why_it_runs(const char *mount_point, pid_t pid, unsigned connection)
{
	char *copy;

	if (runtime_is_stopped(pid))
		return string_printf("it is stopped, continue it with 'kill -CONT %d'", pid);
	copy = mount_point_copy(connection);
	if (copy)
		return copy;
	if (!mount_point_daemon(mount_point))
		return strdup("it waits for the workspace to answer");
	return strdup(mount_point_is_silent(mount_point)
			      ? "it does not answer"
			      : "an unknown process has a copy of the mount");
}

/* Waits for the end of the daemon; then all data has reached the workspace. */
static int wait_for_end(int pidfd, const char *mount_point, pid_t pid, unsigned connection)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	cleanup_free char *first = NULL, *last = NULL;

	if (pidfd < 0 || poll(&end, 1, QUIET_WAIT_MS) != 0)
		return 0;
	first = why_it_runs(mount_point, pid, connection);
	command_note("umount", "\"%s\" is unmounted, waiting for its daemon: %s", mount_point,
		first ? first : "");
	if (poll(&end, 1, END_WAIT_MS) != 0)
		return 0;
	last = why_it_runs(mount_point, pid, connection);
	return command_error("umount", "\"%s\" is unmounted, but its daemon still runs: %s",
		mount_point, last ? last : "");
}

static int explain_failure(const char *mount_point, int r)
{
	cleanup_free char *holders = r == -EBUSY ? mount_point_holders(mount_point) : NULL;
	cleanup_free char *below = r == -EBUSY ? mount_point_around(mount_point, true) : NULL;

	if (below)
		return command_error("umount",
			"\"%s\" cannot be unmounted: \"%s\" is mounted below it, unmount that "
			"first",
			mount_point, below);
	if (holders)
		return command_error("umount",
			"\"%s\" is in use by %s: end them, or detach it with --lazy", mount_point,
			holders);
	if (r == -EBUSY && mount_point_is_silent(mount_point))
		return command_error("umount",
			"\"%s\" cannot be unmounted: its daemon does not answer, and a program "
			"waits for it; give it up with --force",
			mount_point);
	if (r == -EBUSY)
		return command_error("umount",
			"\"%s\" cannot be unmounted: a program that waits for it, or of another "
			"user, uses it, or another user mounted it; detach it with --lazy, or "
			"try as root",
			mount_point);
	if (r == -ENOENT)
		return command_error("umount",
			"fusermount3 is missing, which a user needs to unmount: apt-get install "
			"fuse3");
	return command_error("umount", "cannot unmount \"%s\": %s", mount_point, strerror(-r));
}

/* Retries for a while, as programs that visit all mounts (df, a desktop) use each for a moment. */
static int unmount_when_idle(const char *mount_point, bool lazy)
{
	int r = mount_point_unmount(mount_point, lazy);

	for (int tries = 0; r == -EBUSY && tries < BUSY_TRIES; tries++) {
		cleanup_free char *holders = mount_point_holders(mount_point);

		if (holders)
			break;
		poll(NULL, 0, BUSY_WAIT_MS);
		r = mount_point_unmount(mount_point, lazy);
	}
	return r;
}

/* Aborts the FUSE connection: all operations that wait for the daemon fail, and its next read from
 * the kernel fails, so that it ends. */
static int give_up(const char *mount_point, pid_t pid, int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	int r = mount_point_recover(mount_point);

	if (r < 0)
		return explain_failure(mount_point, r);
	if (pidfd >= 0 && runtime_is_stopped(pid))
		command_note("umount",
			"\"%s\" is unmounted; its daemon (pid %d) is stopped, and ends when it is "
			"continued",
			mount_point, pid);
	else if (pidfd >= 0 && poll(&end, 1, FORCED_WAIT_MS) == 0)
		command_note("umount",
			"\"%s\" is unmounted; its daemon (pid %d) still runs: 'kill -KILL %d' "
			"ends it",
			mount_point, pid, pid);
	return 0;
}

static int unmount_living(const char *mount_point, const char *type, enum how how)
{
	cleanup_fd int pidfd = -1;
	pid_t pid = mount_point_daemon(mount_point);
	unsigned connection = mount_point_connection(mount_point);
	int r;

	if (type && strcmp(type, "fuse.isthmus") != 0)
		return command_error("umount",
			"\"%s\" is a mount of type %s, not of isthmus: use umount(8)", mount_point,
			type);
	if (pid)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (how == FORCE)
		return give_up(mount_point, pid, pidfd);
	if (how == USUAL && pid && runtime_is_stopped(pid))
		return command_error("umount",
			"\"%s\" cannot be unmounted: its daemon is stopped; continue it with 'kill "
			"-CONT %d', or give it up with --force",
			mount_point, pid);
	r = unmount_when_idle(mount_point, how == LAZY);
	if (r < 0)
		return explain_failure(mount_point, r);
	return how == LAZY ? 0 : wait_for_end(pidfd, mount_point, pid, connection);
}

static int count_lost(const char *uri)
{
	cleanup_free char *identity = uri ? workspace_normal_uri(uri) : NULL;
	cleanup_free char *directory = identity ? writeback_lost_directory(identity) : NULL;

	return directory ? writeback_lost_each(directory, NULL, NULL) : 0;
}

/* The number of operations in the journal; -EBUSY: a mount uses it; negative: there is none. */
static int64_t count_waiting(const char *uri)
{
	cleanup_free char *identity = uri ? workspace_normal_uri(uri) : NULL;
	cleanup_free char *state = identity ? writeback_state_directory(identity) : NULL;
	uint64_t waiting = 0;
	int r = state ? writeback_waiting(state, &waiting, NULL) : -ENOENT;

	return r < 0 ? r : (int64_t)waiting;
}

/* Reports pending and refused changes (-o writes=back).  `before`: count_waiting() before the
 * unmount. */
static int tell_of_writes(const char *mount_point, const char *uri, int64_t before)
{
	int64_t waiting = count_waiting(uri);
	int lost = count_lost(uri), code = 0;

	if (waiting < 0 || before == waiting)
		return 0; /* the changes are not from this mount */
	if (lost > 0)
		code = command_error("umount",
			"\"%s\" is unmounted, but the workspace refused %d changes after they were "
			"made: 'isthmus lost %s' shows them",
			mount_point, lost, uri);
	if (waiting > 0)
		code = command_error("umount",
			"\"%s\" is unmounted, but the workspace does not have the last %llu "
			"changes "
			"yet: they are kept here, and sent when %s is mounted again",
			mount_point, (long long)waiting, uri);
	return code;
}

static int unmount(const char *path, enum how how)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *mount_point = NULL, *type = NULL, *around = NULL, *id = NULL;
	enum mount_point_state state;
	int r = mount_point_resolve(path, &mount_point), shown;
	int64_t waiting;

	if (r < 0)
		return command_error("umount", "\"%s\": %s", path, strerror(-r));
	/* The working directory of this process may be on the mount, and would keep it busy. */
	if (chdir("/") < 0)
		return command_error("umount", "\"/\": %s", strerror(errno));
	id = runtime_id(mount_point);
	if (id)
		runtime_load(id, &mount);
	waiting = count_waiting(mount.uri);
	state = mount_point_look(mount_point, &type);
	if (state == MOUNT_POINT_MOUNTED) {
		r = unmount_living(mount_point, type, how);
		shown = tell_of_writes(mount_point, mount.uri, waiting);
		return r ? r : shown;
	}
	if (state != MOUNT_POINT_DEAD) {
		around = mount_point_around(mount_point, false);
		return command_error("umount", "nothing is mounted at \"%s\"%s%s%s", mount_point,
			around ? "; it lies on the mount \"" : ": see 'isthmus list'",
			around ? around : "", around ? "\"" : "");
	}
	r = mount_point_recover(mount_point);
	if (r < 0)
		return explain_failure(mount_point, r);
	if (id)
		runtime_remove(id);
	return tell_of_writes(mount_point, mount.uri, -EBUSY);
}

int umount_command(int argc, char **argv)
{
	bool lazy = false, force = false;
	const struct command_option options[] = {
		{"force", 'f', .flag = &force}, {"lazy", 'l', .flag = &lazy}, {0}};
	const struct command_line line = {
		.command = "umount", .usage = usage, .options = options, .arguments_max = 1};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	if (argc - optind != 1)
		return command_usage_error("umount", "it takes one directory");
	return unmount(argv[optind], force ? FORCE : lazy ? LAZY : USUAL);
}
