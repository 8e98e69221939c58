#include <cjson/cJSON.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/command_text.h"
#include "fs/commands/commands.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/path.h"

enum {
	EXIT_OWN_FAILURE = 125,
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_TIMED_OUT = 124,
	EXIT_SIGNALLED = 128,
	INPUT_BYTES = 64 << 10,
	GRACE_S = 3, /* from the first interrupt to the end */
};

static const char usage[] =
	"usage: isthmus exec [DIR] [OPTION...] -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a command where the workspace is.  DIR is a directory of the mount and becomes the\n"
	"command's working directory; without it the current directory does.\n"
	"\n"
	"  -e, --env NAME=VALUE  set a variable (NAME alone: with its value here)\n"
	"  -C, --cwd PATH        run in this directory: relative to DIR, or a path of the mount,\n"
	"                        or, with a leading '/', of the workspace\n"
	"      --timeout TIME    end the command and all its children after TIME (30, 1.5, 2m)\n"
	"  -t, --tty             give the command a terminal\n"
	"      --call ID         the tool call that the log shall name\n"
	"\n"
	"Exit code: that of the command, 128+N when signal N ended it, 124 after --timeout,\n"
	"127 and 126 when it was not found or cannot be executed, 125 when isthmus failed.\n";

struct exec_options {
	const char *directory;
	const char *cwd;
	const char *call_id;
	uint64_t timeout_us;
	bool tty;
	cJSON *environment;
	char **command;
};

/* The connection, and who may send on it. */
static struct {
	int fd;
	pthread_mutex_t send_lock;
	atomic_int interrupted_by; /* signal; 0: none */
	atomic_bool cut;           /* by ourselves: what was interrupted would not end */
} link_to_daemon = {.fd = -1, .send_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- The terminal --------------------------------------------------------------------- */

static struct termios terminal_before;
static atomic_bool terminal_is_raw;

static void restore_terminal(void)
{
	if (atomic_exchange(&terminal_is_raw, false))
		tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal_before) < 0)
		return;
	raw = terminal_before;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0) {
		terminal_is_raw = true;
		atexit(restore_terminal);
	}
}

static _Noreturn void leave(int code)
{
	restore_terminal();
	fflush(stdout);
	_exit(code);
}

/* ---- To the daemon: stdin, signals ------------------------------------------------------ */

static bool send_frame(enum control_frame_type type, const void *data, size_t size)
{
	int r;

	pthread_mutex_lock(&link_to_daemon.send_lock);
	r = control_send(link_to_daemon.fd, type, data, size);
	pthread_mutex_unlock(&link_to_daemon.send_lock);
	return r == 0;
}

static void *input_run(void *user)
{
	static uint8_t data[INPUT_BYTES];

	(void)user;
	for (;;) {
		ssize_t got = read(STDIN_FILENO, data, sizeof(data));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if (!send_frame(CONTROL_STDIN, data, (size_t)got))
			return NULL;
	}
	send_frame(CONTROL_STDIN_EOF, NULL, 0);
	return NULL;
}

static void send_window(void)
{
	struct winsize window;
	uint8_t payload[4];

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &window) < 0)
		return;
	payload[0] = (uint8_t)window.ws_row;
	payload[1] = (uint8_t)(window.ws_row >> 8);
	payload[2] = (uint8_t)window.ws_col;
	payload[3] = (uint8_t)(window.ws_col >> 8);
	send_frame(CONTROL_RESIZE, payload, sizeof(payload));
}

/* Input that the command does not read may hold the connection: then the interrupt ends it. */
static bool forward_signal(int signal)
{
	const uint8_t payload[4] = {(uint8_t)signal};
	struct timespec deadline;
	int r;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec++;
	if (pthread_mutex_timedlock(&link_to_daemon.send_lock, &deadline) != 0)
		return false;
	r = control_send(link_to_daemon.fd, CONTROL_SIGNAL, payload, sizeof(payload));
	pthread_mutex_unlock(&link_to_daemon.send_lock);
	return r == 0;
}

/* The first interrupt goes to the command; the second, or the end of its grace, ends all: the
 * daemon kills the tree when the connection closes. */
static void *signals_run(void *user)
{
	const struct timespec grace = {.tv_sec = GRACE_S};
	const sigset_t *set = user;

	for (;;) {
		int first = link_to_daemon.interrupted_by;
		int signal = first ? sigtimedwait(set, NULL, &grace) : sigwaitinfo(set, NULL);

		if (signal == SIGWINCH) {
			send_window();
			continue;
		}
		if (signal < 0 && errno == EINTR)
			continue;
		if (!first) {
			link_to_daemon.interrupted_by = signal;
			if (forward_signal(signal))
				continue;
			first = signal;
		}
		link_to_daemon.cut = true;
		shutdown(link_to_daemon.fd, SHUT_RDWR);
		leave(EXIT_SIGNALLED + first);
	}
}

static bool start_thread(void *(*run)(void *), void *user)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, user) != 0)
		return false;
	pthread_detach(thread);
	return true;
}

/* ---- From the daemon: output, the end ---------------------------------------------------- */

static int exit_code_of(const struct buffer *payload)
{
	cJSON *end = cJSON_ParseWithLength((const char *)payload->data, payload->size);
	int signal = (int)json_integer(end, "signal"), code = (int)json_integer(end, "exit_code");

	if (!cJSON_IsObject(end))
		code = EXIT_OWN_FAILURE;
	else if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(end, "timed_out")))
		code = EXIT_TIMED_OUT;
	else if (signal)
		code = EXIT_SIGNALLED + signal;
	cJSON_Delete(end);
	return code;
}

static int report_failure(const struct buffer *payload)
{
	cleanup_free char *message = NULL;
	int r = control_failure(payload, &message);

	command_error("exec", "%s", message ? message : strerror(-r));
	if (r == -ENOENT)
		return EXIT_NOT_FOUND;
	return r == -EACCES || r == -ENOEXEC ? EXIT_NOT_EXECUTABLE : EXIT_OWN_FAILURE;
}

static int receive_output(void)
{
	cleanup_buffer struct buffer payload = {0};

	for (;;) {
		enum control_frame_type type;
		int r = control_receive(link_to_daemon.fd, &type, &payload);

		if (r < 0 && link_to_daemon.cut)
			return EXIT_SIGNALLED + link_to_daemon.interrupted_by;
		if (r < 0) {
			command_error("exec", "the mount went away while the command ran (%s)",
				strerror(-r));
			return EXIT_OWN_FAILURE;
		}
		switch (type) {
		case CONTROL_STDOUT:
		case CONTROL_STDERR:
			r = write_all(type == CONTROL_STDOUT ? STDOUT_FILENO : STDERR_FILENO,
				payload.data, payload.size);
			if (r < 0)
				return r == -EPIPE ? EXIT_SIGNALLED + SIGPIPE : EXIT_OWN_FAILURE;
			break;
		case CONTROL_EXIT:
			return exit_code_of(&payload);
		case CONTROL_FAILURE:
			return report_failure(&payload);
		default:
			command_error("exec", "the daemon sent what this version does not know");
			return EXIT_OWN_FAILURE;
		}
	}
}

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

static char *request_text(const struct exec_options *options, const char *cwd)
{
	cJSON *request = cJSON_CreateObject(), *argv;
	struct winsize window = {0};
	char *text;

	cJSON_AddStringToObject(request, "request", "exec");
	argv = cJSON_AddArrayToObject(request, "argv");
	for (char **word = options->command; *word; word++)
		cJSON_AddItemToArray(argv, cJSON_CreateString(*word));
	cJSON_AddStringToObject(request, "cwd", cwd);
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
	text = cJSON_PrintUnformatted(request);
	cJSON_Delete(request);
	return text;
}

static int start(const struct exec_options *options)
{
	cleanup_free char *socket_path = NULL, *mount_point = NULL, *workspace_path = NULL;
	cleanup_free char *cwd = NULL, *text = NULL;
	const char *directory = options->directory ? options->directory : ".";
	int r;

	r = command_find_mount("exec", directory, &socket_path, &mount_point, &workspace_path);
	if (r < 0)
		return r;
	r = request_cwd(options, mount_point, workspace_path, &cwd);
	if (r < 0) {
		command_error("exec", "\"%s\": %s", options->cwd,
			r == -EINVAL ? "that is outside the workspace" : strerror(-r));
		return r;
	}
	text = request_text(options, cwd);
	if (!text || strlen(text) > CONTROL_FRAME_MAX_BYTES) {
		command_error("exec", "the command line is longer than %d bytes",
			CONTROL_FRAME_MAX_BYTES);
		return -E2BIG;
	}
	r = link_to_daemon.fd = control_connect(socket_path);
	if (r >= 0)
		r = control_send(r, CONTROL_JSON, text, strlen(text));
	if (r < 0)
		command_error("exec",
			"the daemon of \"%s\" does not answer (%s): see 'isthmus list'",
			mount_point, strerror(-r));
	return r;
}

static int run(const struct exec_options *options)
{
	static sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	if (options->tty)
		sigaddset(&set, SIGWINCH);
	if (start(options) < 0)
		return EXIT_OWN_FAILURE;
	signal(SIGPIPE, SIG_IGN);
	/* Inherited by the threads: the one that waits gets them all. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (options->tty)
		make_terminal_raw();
	if (!start_thread(signals_run, &set) || !start_thread(input_run, NULL)) {
		command_error("exec", "no thread: %s", strerror(EAGAIN));
		return EXIT_OWN_FAILURE;
	}
	return receive_output();
}

/* ---- The command line --------------------------------------------------------------------- */

static int add_variable(void *into, const char *text)
{
	cJSON *environment = into;
	const char *equals = strchr(text, '=');
	cleanup_free char *name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
	const char *value = equals ? equals + 1 : getenv(text);

	if (!name || !*name)
		return command_usage_error("exec", "\"%s\" is not NAME=VALUE", text);
	cJSON_DeleteItemFromObjectCaseSensitive(environment, name);
	return !value || cJSON_AddStringToObject(environment, name, value) ? 0 : -ENOMEM;
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
		return code ? EXIT_OWN_FAILURE : 0;
	options->command = argv + optind;
	if (!*options->command) {
		command_usage_error("exec", "there is no command after \"--\"");
		return EXIT_OWN_FAILURE;
	}
	if (options->tty && !isatty(STDIN_FILENO)) {
		command_error("exec", "-t needs a terminal as standard input");
		return EXIT_OWN_FAILURE;
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
	/* The threads may be anywhere; nothing of theirs needs an end. */
	leave(result);
}
