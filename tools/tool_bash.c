#include <errno.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "tools/permission.h"
#include "tools/process.h"
#include "tools/registry.h"
#include "tools/shell.h"
#include "tools/shell_words.h"
#include "tools/tail.h"
#include "tools/text.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{"
	"\"command\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":100000,\"description\":"
	"\"Command line for bash\"},"
	"\"workdir\":{\"type\":\"string\",\"description\":\"Directory to run in; default: the "
	"root\"},"
	"\"timeout_s\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":86400,\"default\":120,"
	"\"description\":\"Seconds until everything it started is ended\"},"
	"\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
	"\"description\":"
	"\"Variables to set; nothing but PATH, HOME, USER, LOGNAME, SHELL and LANG is inherited\"},"
	"\"description\":{\"type\":\"string\",\"description\":\"What it is for, in a few words\"}},"
	"\"required\":[\"command\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},"
	"\"output\":{\"type\":\"string\",\"description\":\"stdout and stderr as they came\"},"
	"\"exit_code\":{\"type\":\"integer\"},\"signal\":{\"type\":\"integer\"},"
	"\"timed_out\":{\"type\":\"boolean\"},\"truncated\":{\"type\":\"boolean\"},"
	"\"output_file\":{\"type\":\"string\"},\"output_bytes\":{\"type\":\"integer\"},"
	"\"notice\":{\"type\":\"string\"},"
	"\"changed\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
	"\"changed_truncated\":{\"type\":\"boolean\"}},"
	"\"required\":[\"command\",\"output\",\"exit_code\",\"truncated\"]}";

enum { EXIT_TIMED_OUT = 124 }; /* as timeout(1) */

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
	const cJSON *env = cJSON_GetObjectItemCaseSensitive(call->arguments, "env"), *item;
	char **list = calloc((size_t)cJSON_GetArraySize(env) + 1, sizeof(*list));
	size_t used = 0;

	*ret_list = list;
	if (!list)
		return tool_fail_errno(call, -ENOMEM, "run the command", NULL);
	cJSON_ArrayForEach(item, env)
	{
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
	if (run->tail.path)
		cJSON_AddStringToObject(call->data, "output_file", run->tail.path);
}

static void add_notice(struct run *run)
{
	struct tool_call *call = run->call;
	struct buffer notice cleanup_buffer = {0};
	cleanup_free char *text = NULL;
	size_t shown = run->tail.kept.size - tail_start(&run->tail);
	char all[32], part[32];

	if (shown >= run->tail.bytes)
		return;
	buffer_printf(&notice, "[Showing the last %s of %s (%llu lines).", text_size(shown, part),
		text_size(run->tail.bytes, all), (unsigned long long)run->tail.lines);
	if (run->tail.path)
		buffer_printf(&notice, " %s is in %s: use read with an offset to see more.]",
			run->tail.file_cut ? "Its first part" : "All of it", run->tail.path);
	else
		buffer_append_string(&notice, " The rest could not be kept.]");
	text = buffer_steal_string(&notice);
	if (!text)
		return;
	cJSON_AddStringToObject(call->data, "notice", text);
	tool_text(call, "%s%s", call->text.size ? "\n" : "", text);
}

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
	if (result->changed) {
		cJSON_AddItemToObject(call->data, "changed", result->changed);
		cJSON_AddBoolToObject(call->data, "changed_truncated", result->changed_truncated);
	}
	if (result->timed_out)
		return tool_fail(call, TOOL_TIMEOUT, NULL,
			"The command was ended after %g s; its output so far is kept.", timeout_s);
	if (result->signal)
		return tool_fail(call, TOOL_EXIT_STATUS, NULL,
			"The command was ended by signal %d (%s).", result->signal,
			strsignal(result->signal));
	if (result->exit_code)
		return tool_fail(call, TOOL_EXIT_STATUS, NULL,
			"The command ended with exit code %d.", result->exit_code);
	return call->text.size ? 0 : tool_text(call, "[No output.]");
}

static int execute(struct tool_call *call)
{
	cleanup_free char *directory = NULL;
	cleanup_with(environment_free) char **environment = NULL;
	struct run run = {.call = call, .tail = TAIL_INIT(call->call_id)};
	struct process_result result = {0};
	struct process_request request = {
		.command = tool_string(call, "command"),
		.timeout_ms = (uint32_t)(tool_number(call, "timeout_s", 120) * 1000),
		.output = take_output,
		.user = &run,
	};
	int r;

	if (tool_path(call, "workdir", &directory) < 0 || make_environment(call, &environment) < 0)
		return -1;
	request.directory = directory;
	request.environment = (const char *const *)environment;
	cJSON_AddStringToObject(call->data, "command", request.command);
	r = process_run(call, &request, &result);
	if (r == 0) {
		add_output(&run);
		add_notice(&run);
		r = finish(&run, &result);
	} else {
		r = tool_fail_errno(call, r, "run the command in", directory);
	}
	tail_done(&run.tail);
	return r;
}

/* ---- Permission: each command in the line by itself ---------------------------------- */

struct asking {
	struct permission_subject *subjects;
	char **owned; /* texts of the subjects */
	size_t count;
	size_t owned_count;
	const char *settings; /* "A=1 B=2 ", as if they stood in front of each command */
	bool is_special;      /* one of them changes how commands run */
};

/* What `env` sets can change what a command does, as what stands in front of it can. */
static int read_settings(struct tool_call *call, char **ret_settings, bool *ret_special)
{
	const cJSON *env = cJSON_GetObjectItemCaseSensitive(call->arguments, "env"), *item;
	struct buffer text cleanup_buffer = {0};

	*ret_special = false;
	cJSON_ArrayForEach(item, env)
	{
		const char *name = item->string;

		if (buffer_printf(&text, "%s=%s ", name, item->valuestring) < 0)
			return -ENOMEM;
		*ret_special = *ret_special || !*name || strpbrk(name, "=%()") ||
			       shell_variable_is_special(name, strlen(name));
	}
	*ret_settings = buffer_steal_string(&text);
	return *ret_settings ? 0 : -ENOMEM;
}

static void asking_done(struct asking *asking)
{
	for (size_t i = 0; i < asking->owned_count; i++)
		free(asking->owned[i]);
	free(asking->owned);
	free(asking->subjects);
}

/* Takes ownership of the texts. */
static int add_subject(struct asking *asking, char *text, char *remember)
{
	asking->subjects[asking->count].must_ask = asking->is_special;
	asking->owned[asking->owned_count++] = text;
	asking->owned[asking->owned_count++] = remember;
	asking->subjects[asking->count].text = text;
	asking->subjects[asking->count].remember = remember;
	return text && remember ? 0 : -ENOMEM;
}

static int add_commands(struct asking *asking, const struct shell_analysis *analysis)
{
	for (size_t i = 0; i < analysis->count; i++) {
		const struct shell_command *command = &analysis->commands[i];
		cleanup_free char *settings = permission_literal(asking->settings);
		cleanup_free char *prefix = permission_literal(command->remember);
		char *remember = NULL, *text = NULL;

		if (!prefix || !settings || asprintf(&remember, "%s%s *", settings, prefix) < 0)
			remember = NULL;
		if (asprintf(&text, "%s%s", asking->settings, command->text) < 0)
			text = NULL;
		if (add_subject(asking, text, remember) < 0)
			return -ENOMEM;
		asking->subjects[asking->count].plain = command->plain;
		asking->subjects[asking->count++].must_ask |= command->unknown;
	}
	return 0;
}

static int add_outside(struct asking *asking, const struct shell_analysis *analysis)
{
	for (size_t i = 0; i < analysis->outside_count; i++) {
		char *text = NULL;

		if (asprintf(&text, "outside %s", analysis->outside[i]) < 0)
			return -ENOMEM;
		if (add_subject(asking, text, permission_literal(text)) < 0)
			return -ENOMEM;
		asking->count++;
	}
	return 0;
}

static char *reason_words(const struct shell_analysis *analysis, bool is_special)
{
	struct buffer words = {0};

	if (is_special)
		buffer_append_string(&words, "it sets a variable that changes how commands run");
	else if (analysis->reason)
		buffer_append_string(&words, analysis->reason);
	for (size_t i = 0; i < analysis->outside_count; i++)
		buffer_printf(&words, "%s%s",
			i            ? ", "
			: words.size ? "; it names paths outside the root: "
				     : "it names paths outside the root: ",
			analysis->outside[i]);
	return words.size ? buffer_steal_string(&words) : NULL;
}

static int ask_about(struct tool_call *call, const struct shell_analysis *analysis,
	const char *command, const char *settings, bool is_special)
{
	size_t most = analysis->count + analysis->outside_count + 2;
	struct asking asking cleanup_with(asking_done) = {
		.subjects = calloc(most, sizeof(*asking.subjects)),
		.owned = calloc(2 * most, sizeof(*asking.owned)),
		.settings = settings,
		.is_special = is_special,
	};
	cleanup_free char *reason = reason_words(analysis, is_special), *sentence = NULL;

	if (asprintf(&sentence, "Run command: %s%s", settings, command) < 0)
		sentence = NULL;
	if (!sentence || !asking.subjects || !asking.owned || add_commands(&asking, analysis) < 0 ||
		add_outside(&asking, analysis) < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (is_special)
		asking.subjects[asking.count++] =
			(struct permission_subject){.text = settings, .must_ask = true};
	if (!analysis->understood)
		asking.subjects[asking.count++] =
			(struct permission_subject){.text = command, .must_ask = true};
	return permission_ask_all(
		call, TOOL_DANGEROUS, asking.subjects, asking.count, sentence, reason);
}

static int permission(struct tool_call *call)
{
	const struct tool_session *session = call->session;
	const char *command = tool_string(call, "command");
	cleanup_free char *settings = NULL, *directory = NULL;
	struct shell_analysis analysis;
	bool is_special;
	int r;

	if (permissions_allow_all(session->permissions, call->tool->name))
		return 0;
	if (tool_path(call, "workdir", &directory) < 0)
		return -1;
	r = read_settings(call, &settings, &is_special);
	/* On a mount the command runs elsewhere: the root's path there is not known here. */
	if (r == 0)
		r = shell_analyse(command, session->control_socket ? NULL : session->root.path,
			directory, &analysis);
	if (r < 0)
		return tool_fail_errno(call, r, "ask for permission", NULL);
	r = ask_about(call, &analysis, command, settings, is_special);
	shell_analysis_done(&analysis);
	return r;
}

const struct tool tool_bash = {
	.name = "bash",
	.label = "Run command",
	.description =
		"Run a command with bash where the workspace is, and get its output and exit code. "
		"There is no input. Everything it started is ended with it. Long output is cut to "
		"its "
		"end (2000 lines or 50 KB); all of it is then in a file that read can show. For "
		"files, prefer read, edit, write, ls, find and grep.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_DANGEROUS,
	.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_OPEN_WORLD,
	.permission = permission,
	.execute = execute,
};
