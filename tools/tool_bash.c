#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/base/changed.h"
#include "tools/base/jobs.h"
#include "tools/base/output_notice.h"
#include "tools/base/process.h"
#include "tools/base/tool.h"
#include "tools/shell/shell_ask.h"
#include "tools/shell/shell_parse.h"
#include "tools/shell/shell_programs.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"minLength\":1,"
	"\"maxLength\":100000},\"workdir\":{\"type\":\"string\",\"description\":\"Default: the "
	"root\"},\"timeout_s\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":86400,\"default\":"
	"120},\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
	"\"description\":\"Variables to set; those of this program are not "
	"inherited\"},\"background\":{\"type\":\"boolean\",\"default\":false,\"description\":"
	"\"Answer at once, no time limit: then use bash_output, bash_input, "
	"bash_kill\"},\"description\":{\"type\":\"string\"}},\"required\":[\"command\"],"
	"\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},"
	"\"output\":{\"type\":\"string\",\"description\":\"stdout and stderr as they came\"},"
	"\"exit_code\":{\"type\":\"integer\"},\"signal\":{\"type\":\"integer\"},"
	"\"timed_out\":{\"type\":\"boolean\"},\"truncated\":{\"type\":\"boolean\"},"
	"\"output_file\":{\"type\":\"string\"},\"output_bytes\":{\"type\":\"integer\"},"
	"\"notice\":{\"type\":\"string\"},"
	"\"changed\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
	"\"changed_truncated\":{\"type\":\"boolean\"},\"background_id\":{\"type\":\"integer\"}},"
	"\"required\":[\"command\"]}";

enum { EXIT_TIMED_OUT = 124 }; /* as timeout(1) */

/* Other agents have seconds in "timeout" (pi), milliseconds (Claude Code, opencode, at least 1000),
 * or "timeout_ms" (Codex); and "cwd".  What is given by both names stays, and is refused. */
static void adapt(cJSON *arguments)
{
	static const struct {
		const char *from, *to;
	} names[] = {{"cwd", "workdir"}, {"timeout", "timeout_s"}, {"timeout_ms", "timeout_s"}};

	for (size_t i = 0; i < array_size(names); i++) {
		cJSON *value = cJSON_GetObjectItemCaseSensitive(arguments, names[i].from);
		double number = cJSON_IsString(value) ? strtod(value->valuestring, NULL)
						      : cJSON_GetNumberValue(value);
		bool is_ms = strcmp(names[i].from, "timeout_ms") == 0 || number >= 1000;

		if (!value || cJSON_HasObjectItem(arguments, names[i].to))
			continue;
		value = cJSON_DetachItemFromObjectCaseSensitive(arguments, names[i].from);
		if (strcmp(names[i].to, "timeout_s") == 0 && is_ms && number > 0) {
			cJSON_Delete(value);
			value = cJSON_CreateNumber(number / 1000);
		}
		cJSON_AddItemToObject(arguments, names[i].to, value);
	}
}

struct run {
	struct tool_call *call;
	struct tail tail;
};

static int take_output(void *user, bool is_stderr, const void *data, size_t size)
{
	struct run *run = user;

	(void)is_stderr;
	tool_update(run->call, data, size);
	return tail_add(&run->tail, data, size);
}

static void environment_free(char ***list)
{
	for (char **at = *list; at && *at; at++)
		free(*at);
	free(*list);
}

static int make_environment(struct tool_call *call, char ***ret_list)
{
	const cJSON *env = json_member(call->arguments, "env"), *item;
	char **list = calloc((size_t)cJSON_GetArraySize(env) + 1, sizeof(*list));
	size_t used = 0;

	*ret_list = list;
	if (!list)
		return tool_fail_errno(call, -ENOMEM, "run the command", NULL);
	cJSON_ArrayForEach(item, env) {
		if (!*item->string || strchr(item->string, '='))
			return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL,
				"\"%s\" cannot be the name of a variable.", item->string);
		if (asprintf(&list[used], "%s=%s", item->string, item->valuestring) < 0) {
			list[used] = NULL;
			return tool_fail_errno(call, -ENOMEM, "run the command", NULL);
		}
		used++;
	}
	return 0;
}

static void add_output(struct run *run)
{
	struct tool_call *call = run->call;
	size_t start = tail_start(&run->tail), size = run->tail.kept.size - start;
	bool cut = size < run->tail.bytes;

	if (size)
		utf8_append_clean(&call->text, run->tail.kept.data + start, size);
	if (buffer_append(&call->text, "", 1) == 0) {
		call->text.size--;
		cJSON_AddStringToObject(call->data, "output", (const char *)call->text.data);
	}
	cJSON_AddBoolToObject(call->data, "truncated", cut);
	cJSON_AddNumberToObject(call->data, "output_bytes", (double)run->tail.bytes);
}

static void add_notice(struct run *run)
{
	struct tool_call *call = run->call;
	cleanup_free char *notice = output_notice(call, &run->tail);

	if (run->tail.path)
		cJSON_AddStringToObject(call->data, "output_file", run->tail.path);
	if (!notice)
		return;
	cJSON_AddStringToObject(call->data, "notice", notice);
	tool_text(call, "%s%s\n", call->text.size ? "\n" : "", notice);
}

static const char may_be_no[] = "For grep, diff, test and the like an exit code of 1 is an answer, "
				"not a failure. Else read the output above for the reason.";

static int finish(struct run *run, struct process_result *result)
{
	struct tool_call *call = run->call;
	double timeout_s = tool_number(call, "timeout_s", 0);

	cJSON_AddNumberToObject(call->data, "exit_code", result->exit_code);
	if (result->signal)
		cJSON_AddNumberToObject(call->data, "signal", result->signal);
	cJSON_AddBoolToObject(call->data, "timed_out", result->timed_out);
	call->exit_code = result->timed_out ? EXIT_TIMED_OUT
			  : result->signal  ? 128 + result->signal
					    : result->exit_code;
	if (!result->exit_code && !result->signal && !result->timed_out && !call->text.size &&
		tool_text(call, "[No output.]\n") < 0)
		return -1;
	changed_add(call, result->changed, result->changed_truncated);
	if (changed_tell(call) < 0)
		return -1;
	if (result->timed_out)
		return tool_fail(call, TOOL_TIMEOUT, NULL,
			"The command was ended after %g s; its output so far is kept.", timeout_s);
	if (result->signal)
		return tool_fail(call, TOOL_EXIT_STATUS, NULL,
			"The command was ended by signal %d (%s).", result->signal,
			strsignal(result->signal));
	if (result->exit_code && call->search_path)
		return tool_fail(call, TOOL_EXIT_STATUS, NULL,
			"The command ended with exit code %d; PATH is %s.", result->exit_code,
			call->search_path);
	if (result->exit_code)
		return tool_fail(call, TOOL_EXIT_STATUS, result->exit_code == 1 ? may_be_no : NULL,
			"The command ended with exit code %d.", result->exit_code);
	return 0;
}

/* ---- Permission: each command and each path by itself ---------------------- */

/* The variables in `env` as text, like assignments before a command, since both can change what a
 * command does.  Leaves out variables that only change how output looks. */
static int read_settings(struct tool_call *call, char **ret_settings, bool *ret_special)
{
	const cJSON *env = json_member(call->arguments, "env"), *item;
	struct buffer text cleanup_buffer = {0};

	*ret_special = false;
	cJSON_ArrayForEach(item, env) {
		const char *name = item->string;
		size_t length = strlen(name);

		if (shell_setting_is_harmless(name, length, item->valuestring))
			continue;
		if (shell_print_literal(name, &text) < 0 || buffer_append_string(&text, "=") < 0 ||
			(*item->valuestring && shell_print_literal(item->valuestring, &text) < 0) ||
			buffer_append_string(&text, " ") < 0)
			return -ENOMEM;
		*ret_special = *ret_special || name[strcspn(name, "=%()")] || !*name ||
			       shell_variable_is_special(name, length);
	}
	*ret_settings = buffer_steal_string(&text);
	return *ret_settings ? 0 : -ENOMEM;
}

/* If rules allow the command, its parsed form runs; if a person does, the text that was shown. */
struct line {
	char *understood; /* the parsed line, printed again; NULL: run the given text */
	char *directory;  /* where it runs; NULL: `workdir` */
};

static void line_free(void *state)
{
	struct line *line = state;

	free(line->understood);
	free(line->directory);
	free(line);
}

static int keep_understood(struct tool_call *call, struct shell_analysis *analysis)
{
	struct line *line = calloc(1, sizeof(*line));

	if (!line)
		return -ENOMEM;
	line->understood = steal_ptr(&analysis->line);
	line->directory = steal_ptr(&analysis->directory);
	if (call->state)
		call->state_free(call->state);
	call->state = line;
	call->state_free = line_free;
	return 0;
}

static const char *reason_to_ask(const struct tool_call *call, bool is_special)
{
	if (is_special)
		return "it sets a variable that changes how commands run";
	if (atomic_load(&call->session->no_bash))
		return "there is no bash where it runs, and sh may read it otherwise";
	return NULL;
}

static int ask(struct tool_call *call, const struct shell_analysis *analysis, const char *settings,
	bool is_special)
{
	const char *command = tool_string(call, "command");
	cleanup_free char *sentence = NULL;

	if (asprintf(&sentence, "Run command: %s%s", settings, command) < 0) {
		sentence = NULL;
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	}
	return shell_ask(call, analysis, command, sentence, reason_to_ask(call, is_special));
}

static int permission(struct tool_call *call)
{
	cleanup_free char *settings = NULL, *directory = NULL;
	struct shell_analysis analysis = {0};
	struct shell_context context;
	struct stat status;
	bool is_special;
	int r;

	if (tool_path(call, "workdir", &directory) < 0)
		return -1;
	/* Do not ask about a command that cannot run. */
	r = files_stat(&call->session->root, directory, &status);
	if (r == 0 && !S_ISDIR(status.st_mode))
		r = -ENOTDIR;
	if (r < 0)
		return tool_fail_errno(call, r, "run the command in", directory);
	if (shell_allowed(call))
		return 0;
	context = shell_context_of(call, directory);
	r = read_settings(call, &settings, &is_special);
	if (r == 0)
		r = shell_analyse(&context, settings, tool_string(call, "command"), &analysis);
	if (r == 0)
		r = keep_understood(call, &analysis);
	if (r < 0)
		r = tool_fail_errno(call, r, "ask for permission", NULL);
	else
		r = ask(call, &analysis, settings, is_special);
	shell_analysis_done(&analysis);
	return r;
}

/* ---- The call ----------------------------------------- */

static int run_command(struct tool_call *call, struct run *run, struct process_result *result,
	const char *directory, const char *const *environment)
{
	struct line *line = call->state; /* NULL: everything is allowed */
	bool as_given = !line || call->approved;
	struct process_request request = {
		.command = as_given ? tool_string(call, "command") : line->understood,
		.any_shell = as_given,
		.directory = as_given || !line->directory ? directory : line->directory,
		.environment = environment,
		.timeout_ms = (uint32_t)(tool_number(call, "timeout_s", 120) * 1000),
		.ends_call = true,
		.merged = true,
		.output = take_output,
		.user = run,
	};

	return request.command ? process_run(call, &request, result) : -EINVAL;
}

static int start_job(struct tool_call *call, const char *directory, const char *const *environment)
{
	struct line *line = call->state;
	bool as_given = !line || call->approved;
	const struct job_request request = {
		.command = as_given ? tool_string(call, "command") : line->understood,
		.any_shell = as_given,
		.directory = as_given || !line->directory ? directory : line->directory,
		.environment = environment,
	};
	unsigned number = 0;
	int r;

	if (!call->session->keeps_jobs)
		return tool_fail(call, TOOL_UNSUPPORTED, "Run it without background.",
			"A background command would end with this call.");
	r = request.command ? jobs_start(call, &request, &number) : -EINVAL;
	if (r == -EAGAIN)
		return tool_fail(call, TOOL_CONFLICT,
			"End one with bash_kill, or take the last output of one that has ended "
			"with "
			"bash_output.",
			"There are %d background commands already.", JOBS_MAX);
	if (r < 0)
		return tool_fail_errno(call, r, "run the command in", directory);
	cJSON_AddNumberToObject(call->data, "background_id", number);
	return tool_text(call,
		"Background command %u is running: bash_output with id %u shows its output.\n",
		number, number);
}

static int execute(struct tool_call *call)
{
	cleanup_free char *directory = NULL;
	cleanup_with(environment_free) char **environment = NULL;
	struct run run = {.call = call, .tail = TAIL_INIT(call->call_id)};
	struct process_result result = {0};
	int r;

	if (tool_path(call, "workdir", &directory) < 0 || make_environment(call, &environment) < 0)
		return -1;
	cJSON_AddStringToObject(call->data, "command", tool_string(call, "command"));
	if (tool_flag(call, "background"))
		return start_job(call, directory, (const char *const *)environment);
	r = run_command(call, &run, &result, directory, (const char *const *)environment);
	if (r == -ENOEXEC && permission(call) < 0) {
		tail_done(&run.tail);
		return -1;
	}
	if (r == -ENOEXEC)
		r = run_command(call, &run, &result, directory, (const char *const *)environment);
	if (r == 0) {
		add_output(&run);
		add_notice(&run);
		r = finish(&run, &result);
	} else if (r == -ECANCELED) {
		r = tool_fail(call, TOOL_ABORTED, NULL,
			"The command, and all that it started, was ended.");
	} else {
		r = tool_fail_errno(call, r, "run the command in", directory);
	}
	cJSON_Delete(result.changed);
	tail_done(&run.tail);
	return r;
}

const struct tool tool_bash = {
	.name = "bash",
	.label = "Run command",
	.description = "Run a command with bash where the workspace is: output, exit code and the "
		       "paths that changed. There is no input. Everything it started is ended with "
		       "it: for a server or a watcher set background. Of long output the end is "
		       "shown (2000 lines or 50 KB); all of it is then in a file for read and "
		       "grep. For files, prefer read, edit, write, ls, find and grep. Commit, push "
		       "and discard changes with git only when the user asks for it.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_DANGEROUS,
	.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_OPEN_WORLD,
	.adapt = adapt,
	.permission = permission,
	.execute = execute,
};
