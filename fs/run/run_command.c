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

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "fs/run/run_agent.h"
#include "fs/run/run_child.h"
#include "fs/run/run_far.h"
#include "fs/run/run_guard.h"
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
	"  -e, --env NAME=VALUE   set a variable for the agent's commands at the workspace (NAME "
	"alone:\n"
	"                         pass on its local value)\n"
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
	cJSON *environment;
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

/* Notes the options of the mount in the file of its lock, for other runs of it. */
static void save_options(const struct run_mount *mount, const char *text)
{
	if (ftruncate(mount->lock, 0) < 0 ||
		pwrite(mount->lock, text, strlen(text), 0) != (ssize_t)strlen(text))
		command_note("run", "\"%s\": %s", mount->lock_path, strerror(errno));
}

static bool has_options(const struct run_mount *mount, const char *text)
{
	size_t length = strlen(text);
	cleanup_free char *other = malloc(length + 1);

	return other && pread(mount->lock, other, length + 1, 0) == (ssize_t)length &&
	       memcmp(other, text, length) == 0;
}

static char *options_text(const struct run_options *options)
{
	cleanup_buffer struct buffer text = {0};

	for (int i = 0; i < options->mount_word_count; i++)
		if (buffer_printf(&text, "%s\n", options->mount_words[i]) < 0)
			return NULL;
	return text.size ? buffer_steal_string(&text) : strdup("");
}

static int mount_uri(const struct run_options *options, const struct run_mount *mount)
{
	cleanup_free char *text = options_text(options);
	const char *words[MOUNT_WORDS_MAX + 4] = {"mount"};
	int count = 1;

	if (!text)
		return command_error("run", "%s", strerror(ENOMEM));
	if (mount_point_daemon(mount->own) != 0) {
		if (!has_options(mount, text))
			command_note("run",
				"\"%s\" is mounted by another run, with other options, which count",
				options->what);
		return 0;
	}
	save_options(mount, text);
	for (int i = 0; i < options->mount_word_count; i++)
		words[count++] = options->mount_words[i];
	words[count++] = options->what;
	words[count++] = mount->own;
	optind = 0; /* getopt(3) begins anew */
	return mount_command(count, (char **)(uintptr_t)words);
}

static int take_mount(const struct run_options *options, struct run_mount *mount)
{
	cleanup_free char *root = NULL;
	int r;

	if (command_is_uri(options->what)) {
		cleanup_free char *uri = workspace_uri(options->what);

		r = uri ? prepare_mount_point(mount, uri) : -ENOMEM;
		if (r < 0)
			return command_error(
				"run", "no place to mount \"%s\": %s", options->what, strerror(-r));
		r = mount_uri(options, mount);
		if (r)
			return r;
		flock(mount->lock, LOCK_SH);
	}
	r = command_find_mount("run", mount->own ? mount->own : options->what, &mount->control_path,
		&mount->mount_point, &root);
	if (r < 0 && !mount->own && *options->what == '/')
		command_note("run", "for the directory itself write local:%s", options->what);
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

/* The last run unmounts.  A lock whose file is removed is that of a mount that is gone. */
static void leave_mount(struct run_mount *mount)
{
	struct stat status;

	if (mount->lock >= 0 && flock(mount->lock, LOCK_EX | LOCK_NB) == 0 &&
		fstat(mount->lock, &status) == 0 && status.st_nlink > 0) {
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

/* A terminal sends its interrupts to the agent, too: only those of a process are passed on. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
	bool is_of_terminal = (signal == SIGINT || signal == SIGQUIT) && info->si_code > 0;

	(void)context;
	if (child_pid > 0 && !is_of_terminal)
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

static int start_agent(const struct run_child *child, const struct run_guard *guard)
{
	static const int passed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
	struct sigaction forward = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
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
	run_guard_set_agent(guard, pid);
	for (size_t i = 0; i < array_size(passed_on); i++)
		sigaction(passed_on[i], &forward, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return wait_for_agent(pid);
}

/* A shell as the agent looks like a shell at the workspace, which only its commands are. */
static void tell_of_shell(const struct run_options *options, const char *mount_point)
{
	static const char *const shells[] = {"bash", "sh", "dash", "zsh", "ksh", "fish"};
	const char *name = path_name(options->command[0]);

	for (size_t i = 0; i < array_size(shells); i++)
		if (strcmp(name, shells[i]) == 0 && !options->command[1])
			command_note("run",
				"what is typed at the prompt runs here, on the mount; 'bash -c "
				"COMMAND' "
				"runs at the workspace, and 'isthmus exec -t %s -- bash' is a "
				"shell "
				"there",
				mount_point);
}

/* What is to be ended and removed, by this process or by its guard. */
struct run {
	const struct run_options *options;
	struct run_mount mount;
	char *directory; /* of the agent's shell; NULL: none */
	char *at;        /* where the workspace is shown ... */
	char *made;      /* ... and its first directory that this process has made; NULL: none */
	char mark[RUN_MARK_SIZE]; /* in the environment of what runs at the workspace */
	struct run_guard guard;
};

/* What the agent's commands have left running. */
static void end_commands(const struct run *run)
{
	cleanup_free char *survivors = NULL;
	char *position = NULL;
	int r = run_far_end(run->mount.control_path, run->mark, &survivors);

	if (r < 0)
		command_note("run",
			"\"%s\" does not say whether commands of the agent go on there (%s)",
			run->options->what, strerror(-r));
	for (char *line = survivors ? strtok_r(survivors, "\n", &position) : NULL; line;
		line = strtok_r(NULL, "\n", &position))
		command_note("run",
			"still running at \"%s\", as it ignores the end of its session: process "
			"%s; "
			"'kill %.*s' ends it there",
			run->options->what, line, (int)strcspn(line, " "), line);
}

static void clean_up(void *user)
{
	struct run *run = user;

	if (*run->mark)
		end_commands(run);
	if (run->directory)
		run_directory_remove(run->directory);
	if (run->made)
		remove_made(run->at, run->made);
	leave_mount(&run->mount);
}

static int make_directories_at(const char *path, char **ret_made)
{
	int fd;

	*ret_made = first_missing(path);
	if (!*ret_made)
		return 0;
	fd = make_directories(path);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int run_at(struct run *run, const struct run_far *far)
{
	const struct run_options *options = run->options;
	const char *wanted = options->at ? options->at : far->root;
	const char *hidden = hides(wanted);
	struct run_child child = {.agent = options->agent,
		.mount_point = run->mount.mount_point,
		.control_path = run->mount.control_path,
		.far = far,
		.environment = options->environment,
		.mark = run->mark,
		.command = options->command};
	int code, r;

	hold_ends();
	if (hidden) {
		command_note("run",
			"the workspace cannot be shown at \"%s\", which would hide \"%s\": it is "
			"at \"%s\", and paths in commands are changed; --at chooses another path",
			wanted, hidden, child.mount_point);
	} else {
		run->at = strdup(wanted);
		if (run->at)
			make_directories_at(run->at, &run->made);
	}
	r = run_mark_make(run->mark);
	if (r == 0)
		r = run_directory_make(&run->directory);
	if (r == 0)
		r = run_guard_start(clean_up, run, &run->guard);
	if (r < 0) {
		command_error("run", "the agent's shell cannot be made: %s", strerror(-r));
		return EXEC_EXIT_OWN_FAILURE;
	}
	child.at = run->at;
	child.directory = run->directory;
	tell_of_shell(options, child.mount_point);
	code = start_agent(&child, &run->guard);
	child_pid = 0;
	return code;
}

static int run_agent(const struct run_options *options)
{
	struct run run = {.options = options, .mount = {.lock = -1}};
	struct run_far far = {0};
	cleanup_free char *reason = NULL;
	int code = EXEC_EXIT_OWN_FAILURE, r;

	if (take_mount(options, &run.mount) == 0) {
		r = run_far_ask(run.mount.control_path, &far, &reason);
		if (r < 0)
			command_error("run", "no command can be run at \"%s\": %s", options->what,
				reason ? reason : strerror(-r));
		else
			code = run_at(&run, &far);
	}
	run_far_done(&far);
	clean_up(&run);
	run_guard_end(&run.guard);
	free(run.directory);
	free(run.at);
	free(run.made);
	return code;
}

/* ---- The command line --------------------------------------------------------------------- */

static int add_variable(void *into, const char *text)
{
	return command_add_variable("run", into, text);
}

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

/* Whether execvp(3) would find it here; one with a "/" may be a file of the workspace. */
static bool is_in_path(const char *name)
{
	cleanup_free char *path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	char *position = NULL;

	if (strchr(name, '/') || !path)
		return true;
	for (char *part = strtok_r(path, ":", &position); part;
		part = strtok_r(NULL, ":", &position)) {
		cleanup_free char *file = path_join(part, name);

		if (!file || access(file, X_OK) == 0)
			return true;
	}
	return false;
}

static int parse_and_run(int argc, char **argv, cJSON *environment)
{
	struct run_options options = {.environment = environment};
	const struct command_option known[] = {
		{"env", 'e', .set = add_variable, .into = options.environment},
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
	else if (!is_in_path(*options.command)) {
		command_error("run", "\"%s\" is not in PATH", *options.command);
		return EXEC_EXIT_NOT_FOUND;
	} else {
		if (!options.agent)
			options.agent = agent_find(*options.command);
		return run_agent(&options);
	}
	return EXEC_EXIT_OWN_FAILURE;
}

int run_command(int argc, char **argv)
{
	cJSON *environment = cJSON_CreateObject();
	int code = environment ? parse_and_run(argc, argv, environment) : EXEC_EXIT_OWN_FAILURE;

	cJSON_Delete(environment);
	return code;
}
