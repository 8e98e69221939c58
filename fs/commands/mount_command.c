#include "fs/commands/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/commands/mount_options.h"
#include "fs/control/control.h"
#include "fs/edge/edge.h"
#include "fs/mount/mount_loop.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "fs/watchers/watchers.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/file_limit.h"
#include "ops/support/log.h"
#include "ops/support/log_anchor.h"
#include "ops/support/path.h"
#include "ops/support/process.h"
#include "ops/workspace.h"

/* The state of the daemon; static, as signal handlers and the ready callback need it. */
static struct {
	struct mount mount;
	struct mount_options options;
	struct runtime_mount runtime;
	struct control_server *control;
	struct watchers *watchers;
	struct log_anchor *anchor;
	int point_lock; /* see lock_mount_point(); -1: none */
	int report_fd;  /* the waiting parent reads the outcome from it; -1: no parent waits */
	atomic_bool log_is_open; /* mount.log has its final value */
} daemon_state = {.point_lock = -1, .report_fd = -1};

/* ---- Before anything is started --------------------------------------------------------- */

static int check_device(void)
{
	cleanup_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	if (errno == ENOENT || errno == ENODEV)
		return command_error("mount",
			"there is no /dev/fuse: load the module (modprobe fuse), or start the "
			"container with --device /dev/fuse");
	if (errno == EACCES || errno == EPERM)
		return command_error("mount",
			"no permission for /dev/fuse: as root, run chmod 666 /dev/fuse, or mount "
			"as root");
	return command_error("mount", "cannot open /dev/fuse: %s", strerror(errno));
}

static int recover_dead(const char *mount_point)
{
	int r = mount_point_recover(mount_point);

	if (r < 0)
		return command_error("mount",
			"the daemon of \"%s\" has died, and it cannot be unmounted (%s): as root, "
			"run umount -l \"%s\"",
			mount_point, strerror(-r), mount_point);
	command_note("mount", "the daemon of \"%s\" has died: unmounted it", mount_point);
	return 0;
}

/* Two that mount on one directory at once would both find it free, and stack.  So from here until
 * the mount is there, its directory, which the mount then covers, is locked; a second one waits,
 * and finds it mounted.  Without the lock, where the directory cannot be read or locked. */
static void lock_mount_point(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX) == 0)
		daemon_state.point_lock = fd;
	else if (fd >= 0)
		close(fd);
}

static void unlock_mount_point(void)
{
	if (daemon_state.point_lock >= 0)
		close(daemon_state.point_lock);
	daemon_state.point_lock = -1;
}

static int check_mount_point(const struct mount_options *options)
{
	const char *path = options->mount_point;
	cleanup_free char *type = NULL;
	enum mount_point_state state = mount_point_look(path, NULL);

	if (state == MOUNT_POINT_DEAD) {
		int r = recover_dead(path);

		if (r)
			return r;
		state = mount_point_look(path, NULL);
	}
	if (state == MOUNT_POINT_FREE || state == MOUNT_POINT_NOT_EMPTY)
		lock_mount_point(path);
	state = mount_point_look(path, &type);
	switch (state) {
	case MOUNT_POINT_FREE:
		return 0;
	case MOUNT_POINT_NOT_EMPTY:
		if (options->nonempty)
			return 0;
		return command_error("mount",
			"\"%s\" is not empty: choose an empty directory, or hide its content with "
			"-o nonempty",
			path);
	case MOUNT_POINT_MISSING:
		return command_error("mount", "\"%s\" does not exist: mkdir it first", path);
	case MOUNT_POINT_NOT_DIRECTORY:
		return command_error("mount", "\"%s\" is not a directory", path);
	case MOUNT_POINT_MOUNTED:
		return command_error("mount",
			"\"%s\" already has a mount (%s): unmount it first (isthmus umount), or "
			"choose another directory",
			path, type ? type : "?");
	default:
		return command_error("mount", "cannot read \"%s\": %s", path, strerror(errno));
	}
}

/* Refuses a log or socket inside the mount: the daemon would wait for itself. */
static int check_no_loop(const struct mount_options *options, const struct runtime_mount *runtime)
{
	const char *point = options->mount_point;

	if (runtime->log_directory && path_is_within(runtime->log_directory, point))
		return command_error("mount",
			"the mount log, \"%s\", would be inside the mount: set XDG_STATE_HOME to a "
			"directory outside \"%s\"",
			runtime->log_directory, point);
	if (path_is_within(runtime->control_path, point))
		return command_error("mount",
			"the control socket, \"%s\", would be inside the mount: set "
			"XDG_RUNTIME_DIR to a directory outside \"%s\"",
			runtime->control_path, point);
	return 0;
}

static int open_anchor(const struct mount_options *options, const struct runtime_mount *runtime)
{
	const char *where = options->log_anchor;
	cleanup_free char *path = NULL;
	int r;

	if (!where)
		return 0;
	if (!runtime->log_directory)
		return command_error("mount", "there is no log to anchor in \"%s\"", where);
	r = log_anchor_open(where, path_name(runtime->log_directory), &daemon_state.anchor);
	if (r < 0)
		return command_error("mount",
			"cannot anchor the log in \"%s\" (%s): use a file, fd:N or syslog", where,
			strerror(-r));
	path = realpath(where, NULL);
	if (path && path_is_within(path, options->mount_point))
		return command_error("mount",
			"the anchor of the log, \"%s\", would be inside the mount: choose a "
			"file outside",
			path);
	return 0;
}

/* Warns, as fusermount3 drops these flags silently. */
static void warn_of_flags_for_root(const struct mount_options *options)
{
	static const char *const flags[][2] = {{"dev", "nodev"}, {"suid", "nosuid"}};

	for (size_t i = 0; geteuid() != 0 && i < array_size(flags); i++) {
		bool wanted = false;

		for (const char *const *word = options->fuse_pairs; word && *word; word++)
			wanted = strcmp(*word, flags[i][0]) == 0 ||
				 (wanted && strcmp(*word, flags[i][1]) != 0);
		if (wanted)
			command_note("mount", "only root may mount with -o %s: mounting with %s",
				flags[i][0], flags[i][1]);
	}
}

static void leave_mount_point_alone(const char *mount_point)
{
	const char *temporary = getenv("TMPDIR");

	if (temporary && path_is_within(temporary, mount_point))
		unsetenv("TMPDIR");
}

/* ---- The daemon ------------------------------------------------------------------------------ */

static const int ends[] = {SIGTERM, SIGINT, SIGHUP};

static void on_signal(int signal)
{
	(void)signal;
	mount_stop(&daemon_state.mount);
}

static void handle_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct sigaction before;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < array_size(ends); i++) {
		sigaction(ends[i], &action, &before);
		if (ends[i] == SIGHUP && before.sa_handler == SIG_IGN)
			sigaction(SIGHUP, &before, NULL); /* nohup(1) */
	}
}

/* Sends the diagnostics of a background daemon to a file beside the mount log. */
static void open_diagnostics(const char *log_directory)
{
	cleanup_free char *path = log_directory ? path_join(log_directory, "daemon.log") : NULL;
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	static int former = -1;

	if (fd < 0)
		return;
	if (former < 0) {
		former = fd;
		log_set_output(fd, "isthmus: ");
	} else { /* dup3(), as other threads may be writing to the former file */
		dup3(fd, former, O_CLOEXEC);
		close(fd);
	}
}

static void detach_from_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (fd >= 0) {
		dup2(fd, STDIN_FILENO);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		close(fd);
	}
}

static void mount_is_ready(void *user)
{
	(void)user;
	daemon_state.runtime.pid = getpid();
	daemon_state.runtime.connection = daemon_state.mount.connection;
	if (runtime_save(&daemon_state.runtime) < 0)
		log_warning("cannot write the runtime file of \"%s\", ignoring: `isthmus list` "
			    "will not show it",
			daemon_state.options.mount_point);
	daemon_state.watchers = watchers_start(&daemon_state.mount);
	if (chdir("/") < 0)
		log_warning("cannot change to \"/\": %s, ignoring", strerror(errno));
	unlock_mount_point();
	if (daemon_state.options.foreground)
		return;
	open_diagnostics(daemon_state.runtime.log_directory);
	detach_from_terminal(); /* first: the terminal may close when the waiting command ends */
	if (write(daemon_state.report_fd, "", 1) != 1)
		log_warning("the command that started the daemon of \"%s\" is gone, ignoring",
			daemon_state.options.mount_point);
	close(daemon_state.report_fd);
	daemon_state.report_fd = -1;
}

/* Records in the log that the link to the workspace was lost or is back. */
static void record_link(void *user, bool is_back, const char *reason)
{
	const struct mount *m = user;
	cleanup_free char *detail = string_printf("%s%s%s", is_back ? "back" : "lost",
		reason ? "; not before, as: " : "", reason ? reason : "");
	struct log_record record = {
		.op = "connection",
		.flags = LOG_IS_MUTATION | LOG_HAS_NO_CALLER, /* mutations are never dropped */
		.start_ns = clock_wall_ns(),
		.detail = detail,
	};

	if (!daemon_state.log_is_open)
		return;
	mount_log_record(m->log, &record);
}

static void record_replaced(void *user, const char *what)
{
	const struct mount *m = user;
	struct log_record record = {
		.op = "connection",
		.flags = LOG_IS_MUTATION | LOG_HAS_NO_CALLER,
		.start_ns = clock_wall_ns(),
		.detail = what,
	};

	if (daemon_state.log_is_open)
		mount_log_record(m->log, &record);
}

static int open_workspace(struct mount *m)
{
	const char *unknown = NULL;
	struct workspace_options options = {.pairs = m->options->backend_pairs,
		.strict = m->options->cache_strict,
		.session_path = daemon_state.runtime.session_path,
		.link_changed = record_link,
		.replaced = record_replaced,
		.link_user = m,
		.ret_unknown = &unknown};
	cleanup_free char *reason = NULL;
	struct workspace_status status;
	int r = workspace_open(m->options->uri, &options, &m->workspace, &reason);

	if (r < 0) {
		command_error("mount", "%s%s%s", reason ? reason : m->options->uri,
			reason ? "" : ": ", reason ? "" : strerror(-r));
		if (unknown)
			mount_options_guess(unknown);
		return 1;
	}
	workspace_status(m->workspace, &status);
	if (!daemon_state.options.idmap_given && !(status.capabilities & WORKSPACE_IS_REMOTE))
		daemon_state.options.idmap_none = true; /* the ids are this machine's */
	if (status.capabilities & WORKSPACE_IGNORES_CASE)
		daemon_state.options.cache_strict = true; /* nothing is known of other names */
	m->workspace_uid = status.owner_uid;
	m->workspace_gid = status.owner_gid;
	m->mount_uid = getuid();
	m->mount_gid = getgid();
	return 0;
}

static int check_not_inside(struct mount *m)
{
	const char *point = m->options->mount_point;
	cleanup_free char *path = NULL;

	if (!mount_loop_find(m->workspace, point, &path))
		return 0;
	return command_error("mount",
		"\"%s\" lies inside the workspace \"%s\", as its \"%s\", so that it would contain "
		"itself: choose a directory outside",
		point, m->options->uri, path ? path : "");
}

/* Says which process has the log: mostly the daemon of an earlier mount here, which still runs as
 * another mount namespace had a copy of the mount when it was unmounted. */
static void explain_busy_log(const struct runtime_mount *runtime)
{
	cleanup_with(runtime_mount_done) struct runtime_mount former = {0};
	cleanup_free char *lock = path_join(runtime->log_directory, "lock");
	cleanup_free char *path = lock ? realpath(lock, NULL) : NULL;
	cleanup_free char *holders = path ? mount_point_holders(path) : NULL;
	cleanup_free char *copy =
		runtime_load(runtime->id, &former) ? mount_point_copy(former.connection) : NULL;

	log_warning("cannot keep the mount log in \"%s\", mounting without one: it is in use by "
		    "%s%s%s; "
		    "end that process, and mount again",
		runtime->log_directory, holders ? holders : "a process that cannot be seen",
		copy ? " as long as " : "", copy ? copy : "");
}

/* The log was removed and recreated: opens the file for diagnostics beside it again. */
static void log_was_removed(void)
{
	if (!daemon_state.options.foreground)
		open_diagnostics(daemon_state.runtime.log_directory);
}

/* Opens the log.  Returns the exit status: not 0 if it failed and the log is required. */
static int open_log(struct mount *m, const struct runtime_mount *runtime)
{
	const struct mount_log_options options = {.anchor = daemon_state.anchor,
		.limit_bytes = m->options->log_size,
		.keep_bytes = m->options->log_keep,
		.is_required = m->options->log_required,
		.removed = log_was_removed};
	int r = -ENOENT;

	if (runtime->log_directory)
		r = mount_log_open(runtime->log_directory, &options, &m->log);
	if (r == 0)
		return 0;
	if (options.is_required)
		return command_error("mount",
			"cannot keep the mount log in \"%s\" (%s), which -o log=required asks "
			"for: not mounting",
			runtime->log_directory ? runtime->log_directory : "", strerror(-r));
	if (r == -EBUSY)
		explain_busy_log(runtime);
	else if (runtime->log_directory)
		log_warning("cannot keep the mount log in \"%s\" (%s), mounting without one",
			runtime->log_directory, strerror(-r));
	return 0;
}

static const char *mount_remedy(int r)
{
	if (r != -EPERM && r != -EACCES)
		return "";
	if (geteuid() == 0)
		return ": root needs the capability CAP_SYS_ADMIN; start a container with "
		       "--cap-add "
		       "SYS_ADMIN --device /dev/fuse";
	return ": -o allow_other and allow_root need user_allow_other in /etc/fuse.conf, and the "
	       "directory must be yours; see 'isthmus doctor'";
}

static int explain_no_runtime(int r)
{
	cleanup_free char *path = runtime_directory_path();

	return command_error("mount",
		"the directory for runtime files, \"%s\": %s: set XDG_RUNTIME_DIR to a directory "
		"that you own, with mode 0700",
		path ? path : "",
		r == -EPERM ? "it belongs to another user, or others can access it" : strerror(-r));
}

static int run_daemon(void)
{
	struct mount *m = &daemon_state.mount;
	cleanup_free char *reason = NULL;
	int r, code = 0;

	process_keep_umask();
	signal(SIGPIPE,
		SIG_IGN); /* the far end may close the connection before the mount is ready */
	file_limit_raise();
	m->options = &daemon_state.options;
	m->control_path = daemon_state.runtime.control_path;
	clock_gettime(CLOCK_REALTIME, &m->started);
	code = open_workspace(m);
	if (code)
		return code;
	code = check_not_inside(m);
	if (code == 0)
		code = open_log(m, &daemon_state.runtime);
	daemon_state.log_is_open = code == 0;
	if (code) {
		workspace_free(m->workspace);
		return code;
	}
	handle_signals();
	r = control_server_start(m, &daemon_state.control);
	if (r < 0)
		log_warning("cannot listen on \"%s\" (%s), ignoring: exec and status will not work",
			m->control_path, strerror(-r));
	r = mount_run(m, mount_is_ready, NULL, &reason);
	if (r < 0)
		code = command_error("mount", "cannot mount on \"%s\": %s%s",
			m->options->mount_point, reason ? reason : strerror(-r), mount_remedy(r));
	watchers_stop(daemon_state.watchers);
	control_server_stop(daemon_state.control);
	workspace_free(m->workspace);
	mount_done(m);
	/* Before the log is released for the next daemon. */
	runtime_remove_own(daemon_state.runtime.id, getpid());
	mount_log_close(m->log);
	log_anchor_close(daemon_state.anchor);
	return code;
}

/* ---- From the command to the daemon ----------------------------------------------- */

/* A signal that ends the waiting command also ends the daemon that it waits for. */
static volatile sig_atomic_t awaited_pid;

static void end_awaited(int signal)
{
	(void)signal;
	kill(awaited_pid, SIGTERM);
}

/* Installs end_awaited(); signals that the caller ignores (nohup(1)) stay ignored. */
static void pass_on_ends(struct sigaction before[array_size(ends)])
{
	const struct sigaction pass_on = {.sa_handler = end_awaited};

	for (size_t i = 0; i < array_size(ends); i++) {
		sigaction(ends[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			sigaction(ends[i], &pass_on, NULL);
	}
}

/* Closes all descriptors except stdin, stdout, stderr and these two (-1: none). */
static void close_inherited(int first, int second)
{
	const int keep[] = {first < second ? first : second, first < second ? second : first};
	unsigned from = STDERR_FILENO + 1;

	for (size_t i = 0; i < array_size(keep); i++) {
		if (keep[i] < (int)from)
			continue;
		if (keep[i] > (int)from)
			close_range(from, (unsigned)keep[i] - 1, 0);
		from = (unsigned)keep[i] + 1;
	}
	close_range(from, ~0U, 0);
}

/* The daemon writes one byte when the mount is usable; else it prints an error and ends. */
static int wait_for_outcome(pid_t pid, int fd)
{
	char ready;
	ssize_t got;
	int status;

	do
		got = read(fd, &ready, 1);
	while (got < 0 && errno == EINTR);
	if (got == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	if (WIFSIGNALED(status))
		return command_error("mount", "the daemon was ended by signal %d (%s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}

/* The parent's part.  Called with the signals in `ends` blocked; restores `mask`. */
static int wait_for_daemon(pid_t pid, int fd, const sigset_t *mask)
{
	struct sigaction before[array_size(ends)];
	sigset_t open;
	int code;

	awaited_pid = pid;
	pass_on_ends(before);
	sigemptyset(&open);
	sigprocmask(SIG_SETMASK, &open, NULL);
	code = wait_for_outcome(pid, fd);
	sigprocmask(SIG_SETMASK, mask, NULL);
	for (size_t i = 0; i < array_size(ends); i++)
		sigaction(ends[i], &before[i], NULL);
	return code;
}

static int start_daemon(void)
{
	sigset_t blocked, before;
	int pipe[2];
	pid_t pid;

	if (pipe2(pipe, O_CLOEXEC) < 0)
		return command_error("mount", "cannot create a pipe: %s", strerror(errno));
	sigemptyset(&blocked);
	for (size_t i = 0; i < array_size(ends); i++)
		sigaddset(&blocked, ends[i]);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	pid = fork();
	if (pid < 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return command_error("mount", "cannot start the daemon: %s", strerror(errno));
	}
	if (pid > 0) {
		close(pipe[1]);
		return wait_for_daemon(pid, pipe[0], &before);
	}
	sigprocmask(SIG_UNBLOCK, &blocked, NULL); /* `isthmus run` starts with them blocked */
	close(pipe[0]);
	daemon_state.report_fd = pipe[1];
	close_inherited(pipe[1], log_anchor_fd(daemon_state.anchor));
	daemon_state.point_lock = -1; /* the parent has it */
	exit(run_daemon());
}

static int remount(const struct mount_options *options)
{
	int r = mount_point_remount(options->mount_point, options->read_only, options->fuse_pairs);

	if (r == -EINVAL)
		return command_error("mount",
			"\"%s\" has no isthmus mount: mount without -o remount",
			options->mount_point);
	if (r < 0)
		return command_error("mount", "cannot remount \"%s\": %s%s", options->mount_point,
			strerror(-r), r == -EPERM ? "; only root may" : "");
	return 0;
}

static int mount_at(struct mount_options *options)
{
	cleanup_free char *path = NULL;
	int r;

	r = mount_point_resolve(options->mount_point, &path);
	if (r < 0)
		return command_error("mount", "\"%s\": %s", options->mount_point,
			r == -ENOENT ? "no such directory: mkdir -p it first" : strerror(-r));
	options->mount_point = path;
	if (options->remount)
		return remount(options);
	r = check_device();
	if (r == 0)
		r = check_mount_point(options);
	if (r)
		return r;
	r = runtime_mount_init(&daemon_state.runtime, path);
	if (r < 0)
		return explain_no_runtime(r);
	free(daemon_state.runtime.uri);
	daemon_state.runtime.uri = strdup(options->uri);
	r = check_no_loop(options, &daemon_state.runtime);
	if (r)
		return r;
	r = open_anchor(options, &daemon_state.runtime);
	if (r)
		return r;
	leave_mount_point_alone(path);
	warn_of_flags_for_root(options);
	daemon_state.options = *options;
	if (!options->foreground)
		return start_daemon();
	close_inherited(log_anchor_fd(daemon_state.anchor), daemon_state.point_lock);
	return run_daemon();
}

int mount_command(int argc, char **argv)
{
	struct mount_options options;
	int code;

	if (mount_options_parse(argc, argv, &options, &code))
		code = mount_at(&options);
	unlock_mount_point();
	mount_options_done(&options);
	runtime_mount_done(&daemon_state.runtime);
	return code;
}
