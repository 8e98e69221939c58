#include "tools/syntax/syntax.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <yaml.h>

#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { CHECK_MS = 10000, CHECK_OUTPUT_BYTES = 4096, CHECK_MEMORY_BYTES = 1 << 30 };

/* ---- YAML ------------------------------------------------------------------------ */

int syntax_yaml(const void *content, size_t size, struct syntax_error *error)
{
	yaml_parser_t parser;
	yaml_event_t event;
	int r = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, content ? content : (const void *)"", size);
	for (bool end = false; !end && r == 0;) {
		if (yaml_parser_parse(&parser, &event)) {
			end = event.type == YAML_STREAM_END_EVENT;
			yaml_event_delete(&event);
			continue;
		}
		r = parser.error == YAML_MEMORY_ERROR ? -ENOMEM : -EINVAL;
		error->line = parser.problem_mark.line + 1;
		error->column = parser.problem_mark.column + 1;
		snprintf(error->words, sizeof(error->words), "%s%s%s",
			parser.problem ? parser.problem : "it cannot be parsed",
			parser.context ? ", " : "", parser.context ? parser.context : "");
	}
	yaml_parser_delete(&parser);
	return r;
}

/* ---- Checkers that are programs ------------------------------------------------------- */

static int content_fd(const void *content, size_t size)
{
	cleanup_fd int fd = memfd_create("content", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (size) {
		ssize_t done = write(fd, content, size);

		if (done < 0)
			return -errno;
		content = (const char *)content + done;
		size -= (size_t)done;
	}
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* env(1) looks the program up in the PATH that it is given, not in ours. */
static int spawn(const char *const *argv, int input, int output, pid_t *ret_pid)
{
	static const char *const environment[] = {
		"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
	posix_spawn_file_actions_t actions;
	int r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input, 0);
	posix_spawn_file_actions_adddup2(&actions, output, 1);
	posix_spawn_file_actions_adddup2(&actions, output, 2);
	r = posix_spawnp(
		ret_pid, argv[0], &actions, NULL, (char *const *)argv, (char *const *)environment);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static void limit(pid_t pid)
{
	const struct rlimit memory = {CHECK_MEMORY_BYTES, CHECK_MEMORY_BYTES}, cpu = {10, 10},
			    files = {0, 0};

	prlimit(pid, RLIMIT_AS, &memory, NULL);
	prlimit(pid, RLIMIT_CPU, &cpu, NULL);
	prlimit(pid, RLIMIT_FSIZE, &files, NULL);
}

/* What it prints, until it ends or its time is up. */
static void collect(int fd, char output[CHECK_OUTPUT_BYTES])
{
	int64_t start_ms = clock_now_ms();
	size_t used = 0;

	for (;;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		char more[512];
		ssize_t got;
		int64_t passed_ms;

		passed_ms = clock_now_ms() - start_ms;
		if (passed_ms >= CHECK_MS || poll(&wait, 1, (int)(CHECK_MS - passed_ms)) == 0)
			break;
		got = read(fd, more, sizeof(more));
		if (got == 0 || (got < 0 && errno != EINTR))
			break;
		for (ssize_t i = 0; i < got && used + 1 < CHECK_OUTPUT_BYTES; i++)
			output[used++] = more[i];
	}
	output[used] = '\0';
}

/* Runs the checker with the content as its input.  Its exit code; -ENOENT: not there, or it
 * did not get to an answer. */
static int run_checker(
	const char *const *argv, const void *content, size_t size, char output[CHECK_OUTPUT_BYTES])
{
	cleanup_fd int input = content_fd(content, size), from = -1, to = -1;
	int ends[2], status, r;
	pid_t pid;

	if (input < 0)
		return input;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	from = ends[0];
	to = ends[1];
	r = spawn(argv, input, to, &pid);
	if (r < 0)
		return r;
	limit(pid);
	close(steal_fd(&to));
	collect(from, output);
	kill(pid, SIGKILL); /* no-op for one that has ended: it is not reaped yet */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -ENOENT;
}

/* "LINE:COLUMN:words", as our own checks below print it. */
static int take_report(const char *output, struct syntax_error *error)
{
	int used = 0;

	if (sscanf(output, "%zu:%zu:%n", &error->line, &error->column, &used) < 2 || !used)
		return -ENOENT;
	snprintf(error->words, sizeof(error->words), "%.*s", (int)strcspn(output + used, "\n"),
		output + used);
	if (error->line == 0)
		error->line = 1;
	return -EINVAL;
}

static int run_python(
	const char *script, const void *content, size_t size, struct syntax_error *error)
{
	const char *const argv[] = {"env", "python3", "-I", "-S", "-c", script, NULL};
	char output[CHECK_OUTPUT_BYTES];
	int code = run_checker(argv, content, size, output);

	if (code <= 0)
		return code;
	return code == 9 ? take_report(output, error) : -ENOENT;
}

/* As all that ask a program: -ENOENT when it is not here. */
static int check_python(const void *content, size_t size, struct syntax_error *error)
{
	static const char script[] =
		"import ast,sys,warnings\n"
		"warnings.simplefilter('ignore')\n"
		"try:\n"
		"  ast.parse(sys.stdin.buffer.read())\n"
		"except SyntaxError as e:\n"
		"  print('%d:%d:%s' % (e.lineno or 1, e.offset or 1, e.msg)); sys.exit(9)\n"
		"except ValueError as e:\n"
		"  print('1:1:%s' % e); sys.exit(9)\n";

	return run_python(script, content, size, error);
}

static int check_toml(const void *content, size_t size, struct syntax_error *error)
{
	static const char script[] =
		"import sys,tomllib,re\n"
		"try:\n"
		"  tomllib.loads(sys.stdin.buffer.read().decode())\n"
		"except UnicodeDecodeError as e:\n"
		"  print('%d:1:it is not UTF-8' % (e.object[:e.start].count(b'\\n') + 1)); "
		"sys.exit(9)\n"
		"except tomllib.TOMLDecodeError as e:\n"
		"  m = re.search(r'\\(at line (\\d+), column (\\d+)\\)', str(e))\n"
		"  print('%s:%s:%s' % (m[1] if m else 1, m[2] if m else 1, e)); sys.exit(9)\n";

	return run_python(script, content, size, error);
}

static int check_shell(const void *content, size_t size, struct syntax_error *error)
{
	static const char *const argv[] = {"env", "bash", "-n", NULL};
	char output[CHECK_OUTPUT_BYTES];
	int code = run_checker(argv, content, size, output), used = 0;

	if (code <= 0)
		return code;
	if (sscanf(output, "bash: line %zu: %n", &error->line, &used) < 1 || !used)
		return -ENOENT;
	snprintf(error->words, sizeof(error->words), "%.*s", (int)strcspn(output + used, "\n"),
		output + used);
	return -EINVAL;
}

/* ---- Which one ---------------------------------------------------------------------------- */

static int strict_json(const void *content, size_t size, struct syntax_error *error)
{
	return syntax_json(content, size, 0, error);
}

static int json_with_comments(const void *content, size_t size, struct syntax_error *error)
{
	return syntax_json(content, size, SYNTAX_JSON_COMMENTS, error);
}

static const struct {
	const char *pattern; /* of the path, or of the name where it has no slash */
	const char *language;
	int (*check)(const void *content, size_t size, struct syntax_error *error);
} checkers[] = {
	{"*.jsonc", "JSON with comments", json_with_comments},
	{"tsconfig*.json", "JSON with comments", json_with_comments},
	{"*.vscode/*.json", "JSON with comments", json_with_comments},
	{"*.json", "JSON", strict_json},
	{"*.yaml", "YAML", syntax_yaml},
	{"*.yml", "YAML", syntax_yaml},
	{"*.py", "Python", check_python},
	{"*.toml", "TOML", check_toml},
	{"*.sh", "shell", check_shell},
};

static int report(struct tool_call *call, const char *path, const char *language,
	const struct syntax_error *error)
{
	char column[32] = "";

	if (error->column)
		snprintf(column, sizeof(column), ", column %zu", error->column);
	cJSON_AddNumberToObject(call->data, "line", (double)error->line);
	if (error->column)
		cJSON_AddNumberToObject(call->data, "column", (double)error->column);
	return tool_fail(call, TOOL_SYNTAX_ERROR, NULL,
		"The new content of \"%s\" is not valid %s: line %zu%s: %s.", path, language,
		error->line, column, error->words);
}

int syntax_check(struct tool_call *call, const char *path, const void *content, size_t size)
{
	for (size_t i = 0; i < array_size(checkers); i++) {
		const char *pattern = checkers[i].pattern;
		struct syntax_error error = {0};
		int r;

		if (fnmatch(pattern, strchr(pattern, '/') ? path : path_name(path), 0) != 0)
			continue;
		r = checkers[i].check(content, size, &error);
		if (r == -EINVAL)
			return report(call, path, checkers[i].language, &error);
		if (r < 0 && !cJSON_GetObjectItemCaseSensitive(call->data, "syntax_warning")) {
			char words[160];

			snprintf(words, sizeof(words),
				"The %s syntax was not checked: its checker is not installed or "
				"gave no answer.",
				checkers[i].language);
			cJSON_AddStringToObject(call->data, "syntax_warning", words);
		}
		return 0;
	}
	return 0;
}
