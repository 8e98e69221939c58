#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/command_text.h"
#include "fs/commands/commands.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/exec_client.h"
#include "ops/support/path.h"

static const char usage[] =
	"usage: isthmus exec [DIR] [OPTION...] -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a command where the workspace is.  DIR, a directory on the mount, becomes its\n"
	"working directory (default: the current directory).\n"
	"\n"
	"  -e, --env NAME=VALUE  set a variable (NAME alone: pass on its local value)\n"
	"  -C, --cwd PATH        run in this directory: relative to DIR, or an absolute path on\n"
	"                        the mount, in the workspace or of the machine there\n"
	"      --timeout TIME    end the command and all its children after TIME (30, 1.5, 2m)\n"
	"      --merge           standard error goes to standard output (as 2>&1 does)\n"
	"  -n, --no-input        do not read standard input: the command has none\n"
	"  -t, --tty             give the command a terminal\n"
	"      --call ID         record under this tool-call id\n"
	"\n"
	"Exit code: that of the command; 128+N if signal N ended it; 124 after --timeout; 127 if\n"
	"it was not found, 126 if it cannot be executed; 125 if isthmus failed.\n";

struct exec_options {
	const char *directory;
	const char *cwd;
	const char *call_id;
	uint64_t timeout_us;
	bool tty, no_input, merge;
	cJSON *environment;
	char **command;
};

/* ---- The request ------------------------------------------------------------------------ */

static int request_cwd(const struct exec_options *options, const char *mount_point,
	const char *workspace_path, char **ret_cwd)
{
	cleanup_free char *joined = NULL;
	size_t length = strlen(mount_point);
	const char *cwd = options->cwd;

	if (!cwd)
		return path_normalise(workspace_path, ret_cwd);
	if (*cwd != '/') {
		joined = path_join(workspace_path, cwd);
		return joined ? path_normalise(joined, ret_cwd) : -ENOMEM;
	}
	if (strncmp(cwd, mount_point, length) == 0 && (cwd[length] == '/' || !cwd[length]))
		cwd += length;
	return path_normalise(cwd, ret_cwd);
}

static char *request_text(const struct exec_options *options, const char *cwd, bool no_input)
{
	cJSON *request = cJSON_CreateObject(), *argv;
	struct winsize window = {0};
	char *text;

	cJSON_AddStringToObject(request, "request", "exec");
	argv = cJSON_AddArrayToObject(request, "argv");
	for (char **word = options->command; *word; word++)
		cJSON_AddItemToArray(argv, cJSON_CreateString(*word));
	cJSON_AddStringToObject(request, "cwd", cwd);
	cJSON_AddBoolToObject(request, "cwd_is_absolute", options->cwd && options->cwd[0] == '/');
	cJSON_AddItemReferenceToObject(request, "env", options->environment);
	cJSON_AddNumberToObject(
		request, "timeout_ms", (double)((options->timeout_us + 999) / 1000));
	if (options->call_id)
		cJSON_AddStringToObject(request, "call_id", options->call_id);
	if (options->tty && ioctl(STDIN_FILENO, TIOCGWINSZ, &window) == 0) {
		cJSON_AddNumberToObject(request, "rows", window.ws_row);
		cJSON_AddNumberToObject(request, "columns", window.ws_col);
	}
	cJSON_AddBoolToObject(request, "pty", options->tty);
	cJSON_AddBoolToObject(request, "stdin_closed", no_input);
	cJSON_AddBoolToObject(request, "merged", options->merge || exec_client_has_one_output());
	cJSON_AddBoolToObject(request, "tell_ports", true);
	exec_client_add_umask(request);
	text = cJSON_PrintUnformatted(request);
	cJSON_Delete(request);
	return text;
}

static int explain_no_daemon(const char *mount_point, int r)
{
	if (r == -E2BIG)
		return command_error("exec", "the command line is longer than %d bytes",
			CONTROL_FRAME_MAX_BYTES);
	return command_error("exec",
		"the daemon of \"%s\" does not answer (%s): see 'isthmus list'", mount_point,
		strerror(-r));
}

static int explain_cwd(const char *cwd, int r)
{
	return command_error("exec", "\"%s\": %s", cwd,
		r == -EINVAL ? "it is outside the workspace" : strerror(-r));
}

/* In a raw terminal a line feed needs a carriage return. */
static void note_port(void *user, unsigned port)
{
	const struct exec_options *options = user;

	command_note("exec", "port %u is now listening at the workspace: isthmus forward %s %u%s",
		port, options->directory ? options->directory : ".", port,
		options->tty ? "\r" : "");
}

static void note_waiting(void *user, const char *problem)
{
	const struct exec_options *options = user;

	command_note(
		"exec", "still waiting (Ctrl-C gives up): %s%s", problem, options->tty ? "\r" : "");
}

static int run(const struct exec_options *options)
{
	cleanup_free char *socket_path = NULL, *mount_point = NULL, *workspace_path = NULL;
	cleanup_free char *cwd = NULL, *text = NULL;
	const char *directory = options->directory ? options->directory : ".";
	struct exec_client client = {.tty = options->tty,
		.no_input = options->no_input || exec_client_has_no_input(),
		.listening = note_port,
		.waiting = note_waiting,
		.user = (void *)(uintptr_t)options};
	struct exec_client_end end;
	int r;

	r = command_find_mount("exec", directory, &socket_path, &mount_point, &workspace_path);
	if (r < 0)
		return EXEC_EXIT_OWN_FAILURE;
	r = request_cwd(options, mount_point, workspace_path, &cwd);
	if (r < 0) {
		explain_cwd(options->cwd, r);
		return EXEC_EXIT_OWN_FAILURE;
	}
	text = request_text(options, cwd, client.no_input);
	client.control_path = socket_path;
	client.request = text;
	r = text ? exec_client_start(&client) : -E2BIG;
	if (r < 0) {
		explain_no_daemon(mount_point, r);
		return EXEC_EXIT_OWN_FAILURE;
	}
	exec_client_run(&client, &end);
	if (end.error && end.error != -EPIPE)
		command_error("exec", "%s", end.message ? end.message : strerror(-end.error));
	if (end.path)
		command_note("exec", "exit code 127: the PATH there is %s%s", end.path,
			options->tty ? "\r" : "");
	if (end.timed_out)
		command_note("exec",
			"the command ran longer than %g s (--timeout): it and its children were "
			"killed",
			(double)options->timeout_us / 1e6);
	return end.code;
}

/* ---- The command line --------------------------------------------------------------------- */

static int add_variable(void *into, const char *text)
{
	return command_add_variable("exec", into, text);
}

static int set_timeout(void *into, const char *text)
{
	uint64_t *timeout_us = into;

	if (command_parse_time(text, timeout_us) && *timeout_us > 0)
		return 0;
	return command_usage_error("exec", "\"%s\" is not a time such as 30, 1.5 or 2m", text);
}

static int set_directory(void *into, const char *text)
{
	const char **directory = into;

	if (*directory)
		return command_usage_error("exec", "the command comes after \"--\"");
	*directory = text;
	return 0;
}

static int parse_and_run(int argc, char **argv, struct exec_options *options)
{
	const struct command_option known[] = {
		{"env", 'e', .set = add_variable, .into = options->environment},
		{"cwd", 'C', .value = &options->cwd},
		{"timeout", .set = set_timeout, .into = &options->timeout_us},
		{"merge", .flag = &options->merge},
		{"no-input", 'n', .flag = &options->no_input},
		{"tty", 't', .flag = &options->tty},
		{"call", .value = &options->call_id},
		{0},
	};
	const struct command_line line = {.command = "exec",
		.usage = usage,
		.options = known,
		.argument = set_directory,
		.into = &options->directory};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code ? EXEC_EXIT_OWN_FAILURE : 0;
	options->command = argv + optind;
	if (!*options->command) {
		command_usage_error("exec", "no command; usage: exec [DIR] -- COMMAND");
		return EXEC_EXIT_OWN_FAILURE;
	}
	if (options->tty && options->no_input) {
		command_usage_error("exec", "-t reads standard input, which -n forbids");
		return EXEC_EXIT_OWN_FAILURE;
	}
	if (options->tty && !isatty(STDIN_FILENO)) {
		command_error("exec", "-t needs a terminal as standard input");
		return EXEC_EXIT_OWN_FAILURE;
	}
	if (options->tty && getenv("TERM") && !cJSON_HasObjectItem(options->environment, "TERM"))
		add_variable(options->environment, "TERM");
	return run(options);
}

int exec_command(int argc, char **argv)
{
	struct exec_options options = {.environment = cJSON_CreateObject()};
	int result = parse_and_run(argc, argv, &options);

	cJSON_Delete(options.environment);
	/* Ends without joining the threads, which have nothing to clean up. */
	exec_client_leave(result);
}
