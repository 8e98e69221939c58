#include <cjson/cJSON.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/watchers/event_protocol.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/examine.h"
#include "ops/support/path.h"
#include "ops/support/standard_files.h"
#include "ops/support/thread.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"

enum { ANSWER_WAIT_S = 10 };

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static int help_command(int argc, char **argv);
static int tools_command(int argc, char **argv);

static const struct command commands[] = {
	{"mount", mount_command, "mount a workspace on a local directory"},
	{"umount", umount_command, "unmount it, also after a crash"},
	{"list", list_command, "show the mounts of this user"},
	{"status", status_command, "show the state of a mount"},
	{"exec", exec_command, "run a command at the workspace"},
	{"forward", forward_command, "reach its ports from here, and ours from there"},
	{"run", run_command, "start an agent whose files and commands are at the workspace"},
	{"log", log_command, "show what was done to a workspace, and by whom"},
	{"sync", sync_command, "wait until the workspace has every change"},
	{"lost", lost_command, "show changes that the workspace refused afterwards"},
	{"doctor", doctor_command, "check what isthmus needs on this machine"},
	{"tool", tools_command, "run one tool of the agent's tool layer"},
	{"mcp", tools_command, "serve the tools to an agent (Model Context Protocol)"},
	{"session", tools_command, "say what happens to an agent's session, for custom tools"},
	{"version", version_command, "print the version"},
	{"help", help_command, "show this, or the help of a command"},
};

/* ---- Words for people --------------------------------------------------------- */

__attribute__((format(printf, 2, 0))) static void print_error(
	const char *command, const char *format, va_list arguments)
{
	struct buffer message cleanup_buffer = {0};

	fprintf(stderr, "isthmus %s: ", command);
	if (buffer_vprintf(&message, format, arguments) < 0)
		buffer_append_string(&message, "not enough memory to say what failed");
	visible_print(stderr, message.data, message.size, VISIBLE_INDENT);
	fputc('\n', stderr);
}

int command_error(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_error(command, format, arguments);
	va_end(arguments);
	return 1;
}

void command_note(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_error(command, format, arguments);
	va_end(arguments);
}

int command_usage_error(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_error(command, format, arguments);
	va_end(arguments);
	fprintf(stderr, "Try 'isthmus %s --help'.\n", command);
	return EXIT_USAGE;
}

int command_print_json(const char *command, const cJSON *json)
{
	cleanup_free char *text = utf8_repair(cJSON_Print(json));

	if (!text)
		return command_error(command, "out of memory");
	visible_print(stdout, text, strlen(text), VISIBLE_JSON);
	putchar('\n');
	return 0;
}

/* A FUSE call that waits for a hanging daemon cannot be interrupted, so a watchdog thread exits the
 * process. */
static struct {
	const char *command, *path;
	pthread_t thread;
	bool is_limited;
} waiting;

static void *limit_run(void *user)
{
	(void)user;
	sleep(ANSWER_WAIT_S);
	_exit(command_error(waiting.command,
		"\"%s\": no answer for %d s: its daemon hangs, or its far end is out of reach; see "
		"'isthmus list'",
		waiting.path, ANSWER_WAIT_S));
}

void command_limit_wait(const char *command, const char *path)
{
	waiting.command = command;
	waiting.path = path;
	waiting.is_limited = thread_start(&waiting.thread, "time-limit", 0, limit_run, NULL) == 0;
}

/* sleep(3) is where it is cancelled. */
static void end_limit(void)
{
	if (!waiting.is_limited)
		return;
	waiting.is_limited = false;
	pthread_cancel(waiting.thread);
	pthread_join(waiting.thread, NULL);
}

int command_find_mount(const char *command, const char *path, char **ret_socket,
	char **ret_mount_point, char **ret_workspace_path)
{
	int r = control_find(path, ret_socket, ret_mount_point, ret_workspace_path);

	end_limit();
	if (r == -ENODATA)
		command_error(command,
			"\"%s\" is not on an isthmus mount: see 'isthmus list', or mount one with "
			"'isthmus mount URI DIR'",
			path);
	else if (r == -ENOTCONN || r == -ECONNABORTED)
		command_error(command,
			"\"%s\" is on a mount whose daemon is gone: run 'isthmus umount %s', then "
			"mount again",
			path, path);
	else if (r == -EACCES)
		command_error(command,
			"\"%s\": permission denied; only the user who mounted it may use it, "
			"unless it was made with -o allow_other",
			path);
	else if (r == -EIO)
		command_error(command,
			"\"%s\": %s: its far end may be out of reach, 'isthmus status' on the "
			"mount point says why",
			path, strerror(-r));
	else if (r < 0)
		command_error(command, "\"%s\": %s", path, strerror(-r));
	return r;
}

static void print_overview(FILE *out)
{
	fputs("usage: isthmus COMMAND [ARGUMENT...]\n"
	      "       isthmus URI DIR [-o OPTION,...]   (as mount(8) calls it)\n\n",
		out);
	for (size_t i = 0; i < array_size(commands); i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fputs("\n'isthmus COMMAND --help' has more; isthmus(1) is complete.\n", out);
}

/* ---- Commands ------------------------------------------------------------------ */

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < array_size(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	struct command_guess guess;

	command_guess_init(&guess, name);
	for (size_t i = 0; i < array_size(commands); i++)
		command_guess_offer(&guess, commands[i].name);
	fputs("isthmus: there is no command \"", stderr);
	visible_print_name(stderr, name);
	fputs("\"", stderr);
	if (guess.nearest)
		fprintf(stderr, "; did you mean \"%s\"?\n", guess.nearest);
	else
		fputs(": 'isthmus help' lists them\n", stderr);
	return EXIT_USAGE;
}

static int help_command(int argc, char **argv)
{
	const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
	char help[] = "--help";
	char *arguments[] = {argc > 1 ? argv[1] : NULL, help, NULL};

	if (argc > 1 && !command && argv[1][0] != '-')
		return unknown_command(argv[1]);
	if (command && command->run != help_command)
		return command->run(2, arguments);
	print_overview(stdout);
	return 0;
}

int version_command(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		puts("usage: isthmus version\n\nPrints the version.");
		return 0;
	}
	if (argc > 1)
		return command_usage_error(argv[0], "unexpected argument \"%s\"", argv[1]);
	puts("isthmus " ISTHMUS_VERSION);
	return 0;
}

/* As git does with its sub-programs. */
static int tools_command(int argc, char **argv)
{
	cleanup_free char *program = command_find_program("isthmus-tools");
	cleanup_free char **arguments = calloc((size_t)argc + 2, sizeof(*arguments));
	char name[] = "isthmus-tools";

	if (!program)
		return command_error(argv[0],
			"the program \"isthmus-tools\" is not beside isthmus: install it again");
	if (!arguments)
		return command_error(argv[0], "out of memory");
	arguments[0] = name;
	memcpy(arguments + 1, argv, (size_t)argc * sizeof(*arguments));
	execv(program, arguments);
	return command_error(argv[0], "\"%s\": %s", program, strerror(errno));
}

/* ---- Which one ------------------------------------------------------------------ */

static bool is_mount_helper(const char *program)
{
	return strcmp(path_name(program), "mount.fuse.isthmus") == 0;
}

/* mount(8) runs "mount.fuse.isthmus URI DIR [-f] [-n] [-s] [-v] [-o OPTIONS] [-t TYPE]", or, where
 * that is not installed, mount.fuse(8), which runs "isthmus URI DIR" with what follows. */
static int mount_as_helper(int argc, char **argv)
{
	cleanup_free char **arguments = calloc((size_t)argc + 1, sizeof(*arguments));
	bool is_own = is_mount_helper(argv[0]);
	char name[] = "mount";
	int count = 0;

	if (!arguments)
		return command_error(name, "out of memory");
	arguments[count++] = name;
	for (int i = 1; i < argc; i++) {
		if (is_own && strcmp(argv[i], "-f") == 0)
			return 0; /* all but the mount */
		if (is_own && strcmp(argv[i], "-t") == 0)
			i++;
		else if (strcmp(argv[i], "-n") != 0 && strcmp(argv[i], "-s") != 0 &&
			 strcmp(argv[i], "-v") != 0)
			arguments[count++] = argv[i];
	}
	return mount_command(count, arguments);
}

bool command_is_uri(const char *text)
{
	size_t length = strcspn(text, ":/");

	return length > 0 && text[length] == ':';
}

/* Who started us may have blocked what is to end us, or ignored the ends of children, which then
 * cannot be waited for. */
static void restore_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGCHLD, SIG_DFL);
}

int main(int argc, char **argv)
{
	const struct command *command;
	int result;

	standard_files_hold();
	restore_signals();
	if (argc > 0 && is_mount_helper(argv[0]))
		return mount_as_helper(argc, argv);
	if (argc < 2) {
		print_overview(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], EVENT_PROGRAM_COMMAND) == 0)
		return event_program(argc - 1, argv + 1);
	if (strcmp(argv[1], EXAMINE_OPTION) == 0)
		return examine();
	if (strcmp(argv[1], "--complete") == 0)
		return complete_command(argc - 1, argv + 1);
	if (command_is_uri(argv[1]) || *argv[1] == '/')
		return mount_as_helper(argc, argv);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		command = find_command("help");
	else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		command = find_command("version");
	else
		command = find_command(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	result = command->run(argc - 1, argv + 1);
	if (fflush(stdout) != 0 && result == 0)
		return command_error(argv[1], "standard output: %s", strerror(errno));
	return result;
}
