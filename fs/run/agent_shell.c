/* The program that `isthmus run` gives an agent in the place of its shell: what the agent runs in
 * the workspace's tree runs at the workspace, all else in the real shell of this machine.  It has
 * no children: who kills it closes its connection, and the daemon kills what runs there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "fs/run/report.h"
#include "fs/run/run_config.h"
#include "fs/run/wrapper.h"
#include "ops/support/cleanup.h"
#include "ops/support/exec_client.h"
#include "ops/support/files.h"
#include "ops/support/path.h"

enum { MARK_SIZE = 64 };

extern char **environ;

static struct report_filter filter;

__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...)
{
	va_list arguments;

	fputs("isthmus run: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return EXEC_EXIT_OWN_FAILURE;
}

/* ---- Here ------------------------------------------------------------------------------- */

static int run_here(const struct run_config *config, char **argv)
{
	const char *name = path_name(argv[0] ? argv[0] : "bash");
	/* A login shell's name begins with "-". */
	const char *program =
		strcmp(name + (*name == '-'), "sh") == 0 ? config->real_sh : config->real_bash;

	execv(program, argv);
	return fail("\"%s\": %s", program, strerror(errno));
}

/* ---- The environment --------------------------------------------------------------------- */

static bool matches_one(const char *name, size_t length, const char *const *patterns)
{
	for (; *patterns; patterns++) {
		size_t fixed = strcspn(*patterns, "*");

		if (strncmp(name, *patterns, fixed) == 0 &&
			((*patterns)[fixed] ? length >= fixed : length == fixed))
			return true;
	}
	return false;
}

static bool ends_with(const char *name, size_t length, const char *end)
{
	size_t size = strlen(end);

	return length >= size && strncmp(name + length - size, end, size) == 0;
}

/* Locale, terminal, and what agents set for their commands; the keys of the agent stay here. */
static bool is_forwarded(const char *name, size_t length)
{
	static const char *const patterns[] = {"LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM",
		"NO_COLOR", "TZ", "PAGER", "GIT_PAGER", "GH_PAGER", "GIT_EDITOR", "GIT_CONFIG_*",
		"GIT_TERMINAL_PROMPT", "CLAUDECODE", "GEMINI_CLI", "CODEX_CI", "OPENCODE", "PI_*",
		NULL};
	static const char *const secret_ends[] = {"KEY", "TOKEN", "SECRET", "SOCKET", "PASSWORD"};

	for (size_t i = 0; i < array_size(secret_ends); i++)
		if (ends_with(name, length, secret_ends[i]))
			return false;
	return matches_one(name, length, patterns);
}

static cJSON *make_environment(const struct run_config *config)
{
	cJSON *environment = cJSON_CreateObject();
	const cJSON *item;

	cJSON_ArrayForEach(item, config->environment)
		cJSON_AddStringToObject(environment, item->string, cJSON_GetStringValue(item));
	for (char **at = environ; *at; at++) {
		size_t length = strcspn(*at, "=");
		cleanup_free char *name = NULL;

		if (!(*at)[length] || !is_forwarded(*at, length))
			continue;
		name = strndup(*at, length);
		if (!name)
			break;
		if (cJSON_GetObjectItemCaseSensitive(environment, name))
			continue; /* what the user says counts more */
		cJSON_AddStringToObject(environment, name, *at + length + 1);
	}
	cJSON_AddStringToObject(environment, RUN_PROOF_VARIABLE, config->proof);
	return environment;
}

/* ---- There ------------------------------------------------------------------------------ */

static char *to_workspace(const struct run_config *config, const char *text)
{
	return strcmp(config->mount_point, config->root) == 0
		       ? strdup(text)
		       : shell_map_paths(text, config->mount_point, config->root);
}

static cJSON *make_argv(const struct run_config *config, char **argv, const struct shell_plan *plan)
{
	cJSON *list = cJSON_CreateArray();

	cJSON_AddItemToArray(list, cJSON_CreateString(config->far_shell));
	for (int i = 1; argv[i]; i++) {
		cleanup_free char *word =
			to_workspace(config, i == plan->script_index ? plan->script : argv[i]);

		if (word)
			cJSON_AddItemToArray(list, cJSON_CreateString(word));
	}
	return list;
}

static char *make_request(const struct run_config *config, char **argv, const char *cwd,
	const struct shell_plan *plan, const struct exec_client *client)
{
	cJSON *request = cJSON_CreateObject();
	struct winsize window = {0};
	char *text;

	cJSON_AddStringToObject(request, "request", "exec");
	cJSON_AddItemToObject(request, "argv", make_argv(config, argv, plan));
	cJSON_AddStringToObject(request, "cwd", cwd);
	cJSON_AddItemToObject(request, "env", make_environment(config));
	cJSON_AddBoolToObject(request, "pty", client->tty);
	cJSON_AddBoolToObject(request, "stdin_closed", client->no_input);
	cJSON_AddBoolToObject(request, "merged", exec_client_has_one_output());
	exec_client_add_umask(request);
	/* It kills the process group after each command. */
	cJSON_AddBoolToObject(request, "kill_leftovers", config->agent == AGENT_CODEX);
	if (client->tty && ioctl(STDIN_FILENO, TIOCGWINSZ, &window) == 0) {
		cJSON_AddNumberToObject(request, "rows", window.ws_row);
		cJSON_AddNumberToObject(request, "columns", window.ws_col);
	}
	text = cJSON_PrintUnformatted(request);
	cJSON_Delete(request);
	return text;
}

static int print_without_report(void *user, bool is_stderr, const void *data, size_t size)
{
	cleanup_buffer struct buffer out = {0};
	int r;

	(void)user;
	if (is_stderr)
		return write_all(STDERR_FILENO, data, size);
	r = report_filter_take(&filter, data, size, &out);
	return r < 0 ? r : write_all(STDOUT_FILENO, out.data, out.size);
}

/* The file of the agent, which waits for it. */
static int write_report(const struct run_config *config, const struct shell_plan *plan)
{
	cleanup_free char *report = buffer_steal_string(&filter.report);
	cleanup_free char *mapped = NULL, *text = NULL;
	cleanup_fd int fd = -1;

	if (!report)
		return -ENOMEM;
	mapped = shell_map_paths(report, config->root, config->mount_point);
	text = mapped ? string_printf("%s%s", mapped, *mapped ? "\n" : "") : NULL;
	if (!text)
		return -ENOMEM;
	fd = open(plan->report_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

static int finish(const struct run_config *config, const struct shell_plan *plan,
	const struct exec_client_end *end)
{
	cleanup_buffer struct buffer out = {0};
	int r = report_filter_end(&filter, &out);

	if (r == 0)
		write_all(STDOUT_FILENO, out.data, out.size);
	if (end->error && end->error != -EPIPE) {
		fail("%s", end->message ? end->message : strerror(-end->error));
		return end->code;
	}
	if (!plan->report_file || !filter.is_complete || (plan->report_needs_success && end->code))
		return end->code;
	r = write_report(config, plan);
	return r < 0 ? fail("\"%s\": %s", plan->report_file, strerror(-r)) : end->code;
}

static int run_there(const struct run_config *config, char **argv, const char *cwd,
	const struct shell_plan *plan)
{
	struct exec_client client = {.control_path = config->control_path,
		.tty = isatty(STDIN_FILENO),
		.no_input = exec_client_has_no_input(),
		.output = plan->report_file ? print_without_report : NULL};
	cleanup_free char *request = make_request(config, argv, cwd, plan, &client);
	struct exec_client_end end;
	int r;

	client.request = request;
	r = request ? exec_client_start(&client) : -ENOMEM;
	if (r < 0)
		return fail("the daemon of \"%s\" does not answer (%s): see 'isthmus list'",
			config->mount_point, strerror(-r));
	exec_client_run(&client, &end);
	return finish(config, plan, &end);
}

/* ---- Where ------------------------------------------------------------------------------ */

/* The working directory as a path of the workspace.  NULL: it lies elsewhere. */
static char *workspace_directory(const struct run_config *config)
{
	cleanup_free char *cwd = getcwd(NULL, 0);

	if (!cwd || !path_is_within(cwd, config->mount_point))
		return NULL;
	return strdup(
		cwd + strlen(config->mount_point) + (cwd[strlen(config->mount_point)] == '/'));
}

/* With 128 random bits, so that no command prints them by chance or by intent. */
static int make_marks(char begin[MARK_SIZE], char end[MARK_SIZE])
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	snprintf(begin, MARK_SIZE, "isthmus_%016" PRIx64 "%016" PRIx64 "_begin_", random[0],
		random[1]);
	snprintf(end, MARK_SIZE, "_end_%016" PRIx64 "%016" PRIx64 "_isthmus", random[0], random[1]);
	return 0;
}

static int run(const struct run_config *config, char **argv)
{
	static char begin[MARK_SIZE], end[MARK_SIZE];
	const struct report_marks marks = {begin, end};
	cleanup_free char *cwd = workspace_directory(config);
	struct shell_plan plan;
	int r;

	if (!cwd)
		return run_here(config, argv);
	r = make_marks(begin, end);
	if (r == 0)
		r = shell_plan_make(config->agent, argv, &marks, &plan);
	if (r < 0)
		return fail("%s", strerror(-r));
	if (plan.where == SHELL_HERE)
		return run_here(config, argv);
	if (plan.where == SHELL_REFUSED)
		return fail("the agent wraps its commands in a way that this version does not "
			    "know, so nothing was run: use 'isthmus mcp', or a version of the "
			    "agent that isthmus(1) names");
	filter.begin = begin;
	filter.end = end;
	return run_there(config, argv, cwd, &plan);
}

/* Ends at once: a thread may still wait for input, and memory needs no end. */
int main(int argc, char **argv)
{
	struct run_config config;
	int r = run_config_load(&config);

	(void)argc;
	if (r == -ENOENT)
		r = fail("this program is a part of isthmus, which starts it itself");
	else if (r < 0)
		r = fail("cannot read what it left for this shell: %s", strerror(-r));
	else
		r = run(&config, argv);
	exec_client_leave(r);
}
