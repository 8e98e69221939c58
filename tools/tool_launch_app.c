#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/base/changed.h"
#include "tools/base/output_notice.h"
#include "tools/base/process.h"
#include "tools/base/tool.h"
#include "tools/shell/shell_ask.h"
#include "tools/shell/shell_parse.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"app_name\":{\"type\":\"string\",\"minLength\":1,"
	"\"maxLength\":4000,\"description\":\"Name or "
	"path\"},\"args\":{\"type\":\"array\",\"maxItems\":1000,\"items\":{\"type\":\"string\"}},"
	"\"timeout_s\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":86400,\"default\":30}},"
	"\"required\":[\"app_name\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"returncode\":{\"type\":\"integer\"},"
	"\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},"
	"\"stdout_file\":{\"type\":\"string\"},\"stderr_file\":{\"type\":\"string\"},"
	"\"changed\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
	"\"changed_truncated\":{\"type\":\"boolean\"},"
	"\"timed_out\":{\"type\":\"boolean\"}},\"required\":[\"stdout\",\"stderr\"]}";

struct run {
	struct tool_call *call;
	struct tail streams[2]; /* stdout, stderr */
};

static int take_output(void *user, bool is_stderr, const void *data, size_t size)
{
	struct run *run = user;

	tool_update(run->call, data, size);
	return tail_add(&run->streams[is_stderr], data, size);
}

static int add_stream(struct tool_call *call, struct tail *tail, const char *name)
{
	size_t start = tail_start(tail);
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *notice = output_notice(call, tail);
	char file[32];

	if ((tail->kept.size > start && utf8_append_clean(&text, tail->kept.data + start,
						tail->kept.size - start) < 0) ||
		buffer_append(&text, "", 1) < 0)
		return tool_fail_errno(call, -ENOMEM, "keep the output", NULL);
	cJSON_AddStringToObject(call->data, name, (const char *)text.data);
	snprintf(file, sizeof(file), "%s_file", name);
	if (tail->path)
		cJSON_AddStringToObject(call->data, file, tail->path);
	if (text.size > 1 && tool_text(call, "%s:\n%s\n", name, (const char *)text.data) < 0)
		return -1;
	return notice ? tool_text(call, "%s\n", notice) : 0;
}

static int finish(struct run *run, struct process_result *result, const char *app)
{
	struct tool_call *call = run->call;
	int code = result->signal ? -result->signal : result->exit_code;

	if (!result->timed_out) {
		cJSON_AddNumberToObject(call->data, "returncode", code);
		if (tool_text(call, "%s ended with return code %d.\n", app, code) < 0)
			return -1;
	}
	if (add_stream(call, &run->streams[0], "stdout") < 0 ||
		add_stream(call, &run->streams[1], "stderr") < 0)
		return -1;
	changed_add(call, result->changed, result->changed_truncated);
	if (changed_tell(call) < 0)
		return -1;
	cJSON_AddBoolToObject(call->data, "timed_out", result->timed_out);
	if (result->timed_out)
		return tool_fail(call, TOOL_TIMEOUT, NULL,
			"\"%s\" was ended after %g s; its output so far is kept.", app,
			tool_number(call, "timeout_s", 30));
	call->exit_code = result->signal ? 128 + result->signal : result->exit_code;
	if (code)
		return tool_fail(call, TOOL_EXIT_STATUS, NULL, "\"%s\" ended with return code %d.",
			app, code);
	return 0;
}

static const char **make_argv(struct tool_call *call)
{
	const cJSON *args = json_member(call->arguments, "args"), *item;
	const char **argv = calloc((size_t)cJSON_GetArraySize(args) + 2, sizeof(*argv));
	size_t count = 1;

	if (!argv)
		return NULL;
	argv[0] = tool_string(call, "app_name");
	cJSON_ArrayForEach(item, args)
		argv[count++] = item->valuestring;
	return argv;
}

static int execute(struct tool_call *call)
{
	cleanup_free const char **argv = make_argv(call);
	cleanup_free char *error_name = NULL;
	struct run run = {.call = call, .streams = {TAIL_INIT(call->call_id), {.fd = -1}}};
	struct process_result result = {0};
	struct process_request request = {
		.argv = argv,
		.directory = "",
		.timeout_ms = (uint32_t)(tool_number(call, "timeout_s", 30) * 1000),
		.output = take_output,
		.user = &run,
	};
	int r = -ENOMEM;

	if (asprintf(&error_name, "%s-stderr", call->call_id) < 0)
		error_name = NULL;
	run.streams[1].name = error_name;
	if (argv && error_name)
		r = process_run(call, &request, &result);
	if (r == 0)
		r = finish(&run, &result, argv[0]);
	else if (r == -ENOENT)
		r = tool_fail(call, TOOL_NOT_FOUND,
			"Check the name; `command -v NAME` in bash shows whether it is installed.",
			"There is no application \"%s\".", argv[0]);
	else
		r = tool_fail_errno(call, r, "launch the application", NULL);
	cJSON_Delete(result.changed);
	tail_done(&run.streams[0]);
	tail_done(&run.streams[1]);
	return r;
}

static int permission(struct tool_call *call)
{
	cleanup_free const char **argv = make_argv(call);
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = NULL, *sentence = NULL;
	const struct shell_context context = shell_context_of(call, "");
	struct shell_analysis analysis = {0};
	int r = argv ? 0 : -ENOMEM;

	if (shell_allowed(call))
		return 0;
	for (size_t i = 0; argv && argv[i] && r == 0; i++) {
		r = buffer_append_string(&line, i ? " " : "");
		if (r == 0)
			r = shell_print_literal(argv[i], &line);
	}
	text = buffer_steal_string(&line);
	if (r < 0 || !text || asprintf(&sentence, "Launch application: %s", text) < 0 ||
		shell_analyse_words(&context, argv, &analysis) < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	r = shell_ask(call, &analysis, text, sentence, NULL);
	shell_analysis_done(&analysis);
	return r;
}

const struct tool tool_launch_app = {
	.name = "launch_app",
	.label = "Launch application",
	.description = "Run a program with its arguments, without a shell or input, and get its "
		       "return code, stdout and stderr.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_DANGEROUS,
	.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_OPEN_WORLD | TOOL_IS_STRUCTURED,
	.permission = permission,
	.execute = execute,
};
