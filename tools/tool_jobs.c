/* The tools bash_output, bash_input and bash_kill, for background commands of bash. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "tools/base/jobs.h"
#include "tools/base/output_notice.h"
#include "tools/base/tool.h"

#define ID_PROPERTY                                                                      \
	"\"id\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"Number that bash " \
	"gave\"}"

static const char any_data[] = "{\"type\":\"object\"}";

static unsigned number_of(const struct tool_call *call)
{
	return (unsigned)tool_integer(call, "id", 0);
}

static int fail_unknown(struct tool_call *call)
{
	return tool_fail(call, TOOL_NOT_FOUND,
		"Call bash_output without id to see which there are.",
		"There is no background command %u in this session.", number_of(call));
}

/* Asks nothing: the command was allowed when it was started in this session. */
static int no_question(struct tool_call *call)
{
	(void)call;
	return 0;
}

/* ---- bash_output ---------------------------------------------------------------------------- */

static int compile_filter(struct tool_call *call, pcre2_code **ret_code)
{
	const char *filter = tool_string(call, "filter");
	PCRE2_UCHAR message[160];
	PCRE2_SIZE at;
	int error;

	*ret_code = NULL;
	if (!filter)
		return 0;
	*ret_code = pcre2_compile(
		(PCRE2_SPTR)filter, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
	if (*ret_code)
		return 0;
	pcre2_get_error_message(error, message, array_size(message));
	return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL,
		"The filter is not valid at character %zu: %s.", at + 1, (const char *)message);
}

static bool line_matches(
	pcre2_code *code, pcre2_match_data *match, const uint8_t *line, size_t size)
{
	return pcre2_match(code, line, size, 0, 0, match, NULL) >= 0;
}

/* Keeps the lines that match; the text must be UTF-8. */
static int filter_lines(pcre2_code *code, const struct buffer *text, struct buffer *out)
{
	pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
	const uint8_t *at = text->data, *end = text->data + text->size;
	int r = match ? 0 : -ENOMEM;

	while (r == 0 && at < end) {
		const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
		const uint8_t *next = newline ? newline + 1 : end;

		if (line_matches(code, match, at, (size_t)((newline ? newline : end) - at)))
			r = buffer_append(out, at, (size_t)(next - at));
		at = next;
	}
	pcre2_match_data_free(match);
	return r;
}

/* Shows the end of the output that fits an answer; if it is longer, a file has all of it. */
static int show_output(struct tool_call *call, const struct buffer *text)
{
	struct tail tail = TAIL_INIT(call->call_id);
	int r = text->size ? tail_add(&tail, text->data, text->size) : 0;
	size_t start = tail_start(&tail);
	cleanup_free char *notice = NULL;

	if (r == 0)
		r = buffer_append(&call->text, tail.kept.data + start, tail.kept.size - start);
	notice = r == 0 ? output_notice(call, &tail) : NULL;
	if (notice)
		r = buffer_printf(&call->text, "\n%s", notice);
	tail_done(&tail);
	return r;
}

static int describe_state(struct tool_call *call, const struct job_look *look)
{
	const char *space =
		call->text.size && call->text.data[call->text.size - 1] != '\n' ? "\n" : "";

	if (!look->ended)
		return tool_text(call, "%s[Running %u s.]", space, look->seconds);
	if (look->error == -ECANCELED)
		return tool_text(call, "%s[Ended: it was killed.]", space);
	if (look->error < 0)
		return tool_text(call, "%s[Ended: %s.]", space, strerror(-look->error));
	if (look->signal)
		return tool_text(call, "%s[Ended by signal %d (%s).]", space, look->signal,
			strsignal(look->signal));
	return tool_text(call, "%s[Ended with exit code %d.]", space, look->exit_code);
}

static int show_look(struct tool_call *call, const struct job_look *look, pcre2_code *filter)
{
	struct buffer clean cleanup_buffer = {0}, kept cleanup_buffer = {0};
	int r = look->output.size ? utf8_append_clean(&clean, look->output.data, look->output.size)
				  : 0;

	if (r == 0 && look->missed)
		r = buffer_printf(&call->text, "[%llu earlier bytes were not kept.]\n",
			(unsigned long long)look->missed);
	if (r == 0 && filter)
		r = filter_lines(filter, &clean, &kept);
	if (r == 0)
		r = show_output(call, filter ? &kept : &clean);
	if (r < 0)
		return tool_fail_errno(call, r, "show the output", NULL);
	cJSON_AddBoolToObject(call->data, "running", !look->ended);
	if (look->ended && look->error == 0 && !look->signal)
		cJSON_AddNumberToObject(call->data, "exit_code", look->exit_code);
	return describe_state(call, look);
}

static int list(struct tool_call *call)
{
	int r = jobs_list(call->session->jobs, &call->text);

	if (r < 0)
		return tool_fail_errno(call, r, "list background commands", NULL);
	return call->text.size ? 0 : tool_text(call, "[No background commands.]\n");
}

static int execute_output(struct tool_call *call)
{
	struct job_look look = {0};
	pcre2_code *filter;
	int r;

	if (!number_of(call))
		return list(call);
	if (compile_filter(call, &filter) < 0)
		return -1;
	r = jobs_look(
		call, number_of(call), (unsigned)(tool_number(call, "wait_s", 0) * 1000), &look);
	r = r < 0 ? fail_unknown(call) : show_look(call, &look, filter);
	buffer_done(&look.output);
	pcre2_code_free(filter);
	return r;
}

const struct tool tool_bash_output = {
	.name = "bash_output",
	.label = "Read background output",
	.description = "Show what a background command has printed since the last look, and "
		       "whether it still runs. Without id: list them.",
	.input_schema =
		"{\"type\":\"object\",\"properties\":{" ID_PROPERTY
		",\"filter\":{\"type\":\"string\",\"minLength\":1,\"description\":\"Only lines "
		"that match "
		"this pattern; the others are not shown later either\"},"
		"\"wait_s\":{\"type\":\"number\",\"minimum\":0,\"maximum\":60,\"default\":0,"
		"\"description\":\"Seconds to wait for output\"}},"
		"\"additionalProperties\":false}",
	.data_schema = any_data,
	.level = TOOL_READ,
	.permission = no_question,
	.execute = execute_output,
};

/* ---- bash_input, bash_kill --------------------------------------------------------------------
 */

static int execute_input(struct tool_call *call)
{
	const char *text = tool_string(call, "text");
	int r = jobs_write(
		call->session->jobs, number_of(call), text, strlen(text), tool_flag(call, "end"));

	if (r == -ENOENT)
		return fail_unknown(call);
	if (r == -EPIPE)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, "Look at it with bash_output.",
			"Background command %u has closed its input.", number_of(call));
	if (r == -EAGAIN)
		return tool_fail(call, TOOL_TIMEOUT, "Look at it with bash_output.",
			"Background command %u has not read its input for 5 s.", number_of(call));
	return r < 0 ? tool_fail_errno(call, r, "send the input", NULL)
		     : tool_text(call, "Sent %zu bytes%s.\n", strlen(text),
			       tool_flag(call, "end") ? " and the end of the input" : "");
}

const struct tool tool_bash_input = {
	.name = "bash_input",
	.label = "Send input",
	.description = "Send text to the input of a background command.",
	.input_schema =
		"{\"type\":\"object\",\"properties\":{" ID_PROPERTY
		",\"text\":{\"type\":\"string\",\"description\":\"As it is: add the line end\"},"
		"\"end\":{\"type\":\"boolean\",\"default\":false,\"description\":\"End the input "
		"after it\"}},\"required\":[\"id\",\"text\"],\"additionalProperties\":false}",
	.data_schema = any_data,
	.level = TOOL_MODIFY,
	.permission = no_question,
	.execute = execute_input,
};

static int execute_kill(struct tool_call *call)
{
	if (jobs_kill(call->session->jobs, number_of(call)) < 0)
		return fail_unknown(call);
	return tool_text(call, "Background command %u has ended, with all that it started.\n",
		number_of(call));
}

const struct tool tool_bash_kill = {
	.name = "bash_kill",
	.label = "End background command",
	.description = "End a background command and everything it started.",
	.input_schema = "{\"type\":\"object\",\"properties\":{" ID_PROPERTY
			"},\"required\":[\"id\"],\"additionalProperties\":false}",
	.data_schema = any_data,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE,
	.permission = no_question,
	.execute = execute_kill,
};
