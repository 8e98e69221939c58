#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "fs/run/run_agent.h"
#include "fs/run/run_child.h"
#include "fs/run/run_far.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/exec_client.h"
#include "ops/support/files.h"
#include "ops/support/path.h"

static const char usage[] =
	"usage: isthmus run [OPTION...] URI|DIR -- AGENT [ARGUMENT...]\n"
	"\n"
	"Starts an agent here, on the workspace at URI: its file tools work on the mount, and what "
	"its\n"
	"own shell tool runs in the workspace runs where the workspace is.  URI is mounted for "
	"the\n"
	"time of the run; DIR is a mount that is there.  The agent sees the workspace at the path "
	"that\n"
	"it has there.\n"
	"\n"
	"  -o OPTION[,OPTION...]  options of the mount, as for 'isthmus mount'\n"
	"      --at PATH          show the workspace at this path instead\n"
	"      --agent NAME       claude, codex, gemini, opencode, pi or other: how AGENT is\n"
	"                         given the shell (default: by the name of its program)\n"
	"\n"
	"Exit code: that of the agent, 128+N when signal N ended it, 125 when isthmus failed.\n";

enum { MOUNT_WORDS_MAX = 64 };

struct run_options {
	const char *what; /* URI or DIR */
	const char *at;
	const struct agent *agent;
	const char *mount_words[MOUNT_WORDS_MAX]; /* "-o", VALUE ... */
	int mount_word_count;
	char **command;
};

struct run_mount {
	char *mount_point, *control_path;
	char *own;       /* the directory to unmount at the end; NULL: it was there */
	char *lock_path; /* of what every run that uses it holds */
	int lock;        /* -1: none */
	bool is_shared;  /* another run has mounted it */
};

/* Until there is an agent: what is mounted and made meanwhile is to be removed.  While
 * mount_command() waits for its daemon they end that. */
static void hold_ends(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
}

/* ---- The mount -------------------------------------------------------------------------- */

/* Held exclusively to mount and to unmount, and shared by every run that uses the mount.  The last
 * run removes the file: then one that waited tries again. */
static int take_lock(struct run_mount *mount)
{
	for (;;) {
		cleanup_fd int lock = open(mount->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		struct stat status;
		bool alone;

		if (lock < 0)
			return -errno;
		alone = flock(lock, LOCK_EX | LOCK_NB) == 0;
		if ((!alone && flock(lock, LOCK_SH) < 0) || fstat(lock, &status) < 0)
			return -errno;
		if (status.st_nlink == 0 || (!alone && mount_point_daemon(mount->own) == 0))
			continue;
		mount->lock = steal_fd(&lock);
		mount->is_shared = !alone;
		return 0;
	}
}

/* Runs of one URI share its mount, which lies in the directory for runtime files. */
static int prepare_mount_point(struct run_mount *mount, const char *uri)
{
	cleanup_free char *runtime = NULL, *id = runtime_id(uri);
	int r = runtime_directory(&runtime), made;

	if (r < 0)
		return r;
	mount->lock_path = id ? string_printf("%s/run-%s.lock", runtime, id) : NULL;
	mount->own = id ? string_printf("%s/run-%s", runtime, id) : NULL;
	if (!mount->lock_path || !mount->own)
		return -ENOMEM;
	r = take_lock(mount);
	if (r < 0)
		return r;
	hold_ends();
	if (mount->is_shared)
		return 0;
	made = make_directories(mount->own);
	if (made >= 0)
		close(made);
	/* A dead mount cannot be opened, and is replaced. */
	return made >= 0 || made == -ENOTCONN || made == -EACCES ? 0 : made;
}

static int mount_uri(const struct run_options *options, const char *mount_point)
{
	const char *words[MOUNT_WORDS_MAX + 4] = {"mount"};
	int count = 1;

	if (mount_point_daemon(mount_point) != 0) {
		if (options->mount_word_count)
			command_note("run", "\"%s\" is mounted by another run: its options count",
				options->what);
		return 0;
	}
	for (int i = 0; i < options->mount_word_count; i++)
		words[count++] = options->mount_words[i];
	words[count++] = options->what;
	words[count++] = mount_point;
	optind = 0; /* getopt(3) begins anew */
	return mount_command(count, (char **)(uintptr_t)words);
}

static int take_mount(const struct run_options *options, struct run_mount *mount)
{
	cleanup_free char *root = NULL;
	int r;

	if (command_is_uri(options->what)) {
		r = prepare_mount_point(mount, options->what);
		if (r < 0)
			return command_error(
				"run", "no place to mount \"%s\": %s", options->what, strerror(-r));
		r = mount_uri(options, mount->own);
		if (r)
			return r;
		flock(mount->lock, LOCK_SH);
	}
	r = command_find_mount("run", mount->own ? mount->own : options->what, &mount->control_path,
		&mount->mount_point, &root);
	return r < 0 ? 1 : 0;
}

static void unmount(const char *mount_point)
{
	const char *words[] = {"umount", mount_point, NULL};
	const char *lazy_words[] = {"umount", "-l", mount_point, NULL};

	optind = 0;
	if (umount_command(2, (char **)(uintptr_t)words) == 0)
		return;
	optind = 0;
	umount_command(3, (char **)(uintptr_t)lazy_words);
}

/* The last run unmounts. */
static void leave_mount(struct run_mount *mount)
{
	if (mount->lock >= 0 && flock(mount->lock, LOCK_EX | LOCK_NB) == 0) {
		enum mount_point_state state = mount_point_look(mount->own, NULL);

		if (state == MOUNT_POINT_MOUNTED || state == MOUNT_POINT_DEAD)
			unmount(mount->own);
		rmdir(mount->own);
		unlink(mount->lock_path);
	}
	if (mount->lock >= 0)
		close(mount->lock);
	free(mount->own);
	free(mount->lock_path);
	free(mount->mount_point);
	free(mount->control_path);
}

/* ---- The path of the workspace ------------------------------------------------------------ */

/* The first component that is missing, which this process makes, and removes at the end. */
static char *first_missing(const char *path)
{
	cleanup_free char *at = strdup(path);

	for (char *end = at ? at + 1 : NULL; end; *end++ = '/') {
		end = strchr(end, '/');
		if (end)
			*end = '\0';
		if (access(at, F_OK) < 0)
			return steal_ptr(&at);
		if (!end)
			break;
	}
	return NULL;
}

static void remove_made(const char *path, const char *first)
{
	cleanup_free char *at = strdup(path);

	while (at && strlen(at) >= strlen(first) && rmdir(at) == 0)
		*strrchr(at, '/') = '\0';
}

/* What must not be hidden from the agent by the workspace: "" is fine. */
static const char *hides(const char *path)
{
	static const char *const system[] = {"/usr", "/etc", "/bin", "/lib", "/proc", "/sys",
		"/dev", "/run", "/tmp", "/var", "/opt", "/nix"};
	const char *home = getenv("HOME");

	if (home && path_is_within(home, path))
		return home;
	for (size_t i = 0; i < array_size(system); i++)
		if (path_is_within(system[i], path))
			return system[i];
	return path_is_within(path, "/proc") || path_is_within(path, "/sys") ||
			       path_is_within(path, "/dev")
		       ? path
		       : NULL;
}

/* ---- The agent ---------------------------------------------------------------------------- */

static volatile sig_atomic_t child_pid;

static void pass_on(int signal)
{
	if (child_pid > 0)
		kill(child_pid, signal);
}

static int wait_for_agent(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return EXEC_EXIT_OWN_FAILURE;
	return WIFSIGNALED(status) ? EXEC_EXIT_SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The number of the signal that is to end this process; 0: none has come. */
static int held_end(void)
{
	static const int ends[] = {SIGTERM, SIGHUP, SIGINT};
	sigset_t pending;

	sigpending(&pending);
	for (size_t i = 0; i < array_size(ends); i++)
		if (sigismember(&pending, ends[i]))
			return ends[i];
	return 0;
}

/* A terminal sends its interrupts to the agent too. */
static int start_agent(const struct run_child *child)
{
	struct sigaction forward = {.sa_handler = pass_on};
	sigset_t none;
	pid_t pid;

	if (held_end())
		return EXEC_EXIT_SIGNALLED + held_end();
	sigemptyset(&none);
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &none, NULL);
		_exit(run_child_exec(child));
	}
	if (pid < 0) {
		command_error("run", "cannot start a process: %s", strerror(errno));
		return EXEC_EXIT_OWN_FAILURE;
	}
	child_pid = pid;
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigaction(SIGTERM, &forward, NULL);
	sigaction(SIGHUP, &forward, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return wait_for_agent(pid);
}

static int run_at(
	const struct run_options *options, const struct run_mount *mount, const struct run_far *far)
{
	struct run_child child = {.agent = options->agent,
		.mount_point = mount->mount_point,
		.control_path = mount->control_path,
		.far = far,
		.command = options->command};
	const char *wanted = options->at ? options->at : far->root;
	const char *hidden = hides(wanted);
	cleanup_free char *made = NULL, *directory = NULL;
	int code = EXEC_EXIT_OWN_FAILURE, r;

	hold_ends();
	if (hidden)
		command_note("run",
			"the workspace cannot be shown at \"%s\", which would hide \"%s\": it is "
			"at \"%s\", and paths in commands are changed; --at chooses another path",
			wanted, hidden, mount->mount_point);
	else
		child.at = wanted;
	made = child.at ? first_missing(child.at) : NULL;
	if (made) {
		int fd = make_directories(child.at);

		if (fd >= 0)
			close(fd);
	}
	r = run_directory_make(&directory);
	child.directory = directory;
	if (r < 0)
		command_error("run", "no directory for the agent's shell: %s", strerror(-r));
	else
		code = start_agent(&child);
	if (directory)
		run_directory_remove(directory);
	if (made)
		remove_made(child.at, made);
	return code;
}

static int run_agent(const struct run_options *options)
{
	struct run_mount mount = {.lock = -1};
	struct run_far far = {0};
	cleanup_free char *reason = NULL;
	int code = EXEC_EXIT_OWN_FAILURE, r;

	if (take_mount(options, &mount) == 0) {
		r = run_far_ask(mount.control_path, &far, &reason);
		if (r < 0)
			command_error("run", "no command can be run at \"%s\": %s", options->what,
				reason ? reason : strerror(-r));
		else
			code = run_at(options, &mount, &far);
	}
	run_far_done(&far);
	leave_mount(&mount);
	return code;
}

/* ---- The command line --------------------------------------------------------------------- */

static int add_mount_options(void *into, const char *text)
{
	struct run_options *options = into;

	if (options->mount_word_count + 2 > MOUNT_WORDS_MAX)
		return command_usage_error("run", "too many options of the mount");
	options->mount_words[options->mount_word_count++] = "-o";
	options->mount_words[options->mount_word_count++] = text;
	return 0;
}

static int set_agent(void *into, const char *text)
{
	const struct agent **agent = into;

	*agent = agent_named(text);
	return *agent ? 0
		      : command_usage_error("run",
				"--agent: \"%s\" is not claude, codex, gemini, opencode, pi or "
				"other",
				text);
}

static int set_what(void *into, const char *text)
{
	const char **what = into;

	if (*what)
		return command_usage_error("run", "the agent comes after \"--\"");
	*what = text;
	return 0;
}

int run_command(int argc, char **argv)
{
	struct run_options options = {0};
	const struct command_option known[] = {
		{NULL, 'o', .set = add_mount_options, .into = &options},
		{"at", .value = &options.at},
		{"agent", .set = set_agent, .into = &options.agent},
		{0},
	};
	const struct command_line line = {.command = "run",
		.usage = usage,
		.options = known,
		.argument = set_what,
		.into = &options.what};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code ? EXEC_EXIT_OWN_FAILURE : 0;
	options.command = argv + optind;
	if (!options.what || !*options.command)
		command_usage_error(
			"run", options.what ? "no agent: it comes after \"--\""
					    : "no workspace: a URI or the directory of a mount");
	else if (options.at && options.at[0] != '/')
		command_usage_error("run", "--at: \"%s\" is not an absolute path", options.at);
	else {
		if (!options.agent)
			options.agent = agent_find(*options.command);
		return run_agent(&options);
	}
	return EXEC_EXIT_OWN_FAILURE;
}
