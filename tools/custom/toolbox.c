/* One call of a toolbox: a process, the arguments on its input, the result on its output. */
#include <errno.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/utf8.h"
#include "tools/base/output_notice.h"
#include "tools/base/tail.h"
#include "tools/custom/internal.h"

struct run {
	struct tool_call *call;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct tail output; /* guarded by lock, as are all fields below */
	bool ended;
	int exit_code, signal;
	struct custom_errors errors;
};

static void take_output(void *user, const void *data, size_t size)
{
	struct run *run = user;

	pthread_mutex_lock(&run->lock);
	(void)!tail_add(&run->output, data, size);
	tool_update(run->call, data, size);
	pthread_mutex_unlock(&run->lock);
}

static void take_end(void *user, int exit_code, int signal)
{
	struct run *run = user;

	pthread_mutex_lock(&run->lock);
	run->ended = true;
	run->exit_code = exit_code;
	run->signal = signal;
	pthread_cond_broadcast(&run->changed);
	pthread_mutex_unlock(&run->lock);
}

/* The arguments in text form: one line "key: value" each. */
static char *make_lines(const cJSON *arguments)
{
	struct buffer lines cleanup_buffer = {0};
	const cJSON *item;

	cJSON_ArrayForEach(item, arguments) {
		cleanup_free char *text =
			cJSON_IsString(item) ? NULL : cJSON_PrintUnformatted(item);

		if (buffer_printf(
			    &lines, "%s: %s\n", item->string, text ? text : item->valuestring) < 0)
			return NULL;
	}
	return buffer_steal_string(&lines);
}

static char *make_input(const struct tool_call *call)
{
	return custom_tool_of(call)->source->text_form ? make_lines(call->arguments)
						       : cJSON_PrintUnformatted(call->arguments);
}

/* Waits for the end of the process.  False: the call was cancelled, or the time is up. */
static bool await_end(struct run *run, int64_t until_ms)
{
	bool ended;

	pthread_mutex_lock(&run->lock);
	while (!run->ended && !tool_cancelled(run->call) && clock_now_ms() < until_ms)
		clock_cond_wait_ms(&run->changed, &run->lock, 50);
	ended = run->ended;
	pthread_mutex_unlock(&run->lock);
	return ended;
}

static int add_output(struct tool_call *call, struct run *run)
{
	size_t start = tail_start(&run->output);
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *notice = NULL;

	if (utf8_append_clean(&text, run->output.kept.data + start, run->output.kept.size - start) <
			0 ||
		buffer_append(&text, "", 1) < 0)
		return tool_fail_errno(call, -ENOMEM, "keep the output", NULL);
	cJSON_AddStringToObject(call->data, "text", (const char *)text.data);
	notice = output_notice(call, &run->output);
	if (notice) {
		if (run->output.path)
			cJSON_AddStringToObject(call->data, "output_file", run->output.path);
		cJSON_AddStringToObject(call->data, "notice", notice);
		if (tool_text(call, "%s\n", notice) < 0)
			return -1;
	}
	return tool_text(call, "%s", (const char *)text.data);
}

static int finish(struct tool_call *call, struct run *run, bool in_time)
{
	const struct custom_tool *tool = custom_tool_of(call);
	struct buffer errors cleanup_buffer = {0};

	if (add_output(call, run) < 0)
		return -1;
	if (!in_time && tool_cancelled(call))
		return tool_fail(call, TOOL_ABORTED, NULL, "The call was cancelled.");
	if (!in_time)
		return tool_fail(call, TOOL_TIMEOUT, NULL, "%s was ended after %g s.",
			tool->tool.name, tool->timeout_s);
	if (!run->signal && !run->exit_code)
		return 0;
	custom_errors_say(&run->errors, ": ", &errors);
	call->exit_code = run->signal ? 128 + run->signal : run->exit_code;
	return tool_fail(call, TOOL_EXIT_STATUS, CUSTOM_NEXT_STEP, "%s ended with %s %d%.*s",
		tool->tool.name, run->signal ? "signal" : "exit code",
		run->signal ? run->signal : run->exit_code, errors.size ? (int)errors.size : 1,
		errors.size ? (const char *)errors.data : ".");
}

static int run_process(struct tool_call *call, struct run *run)
{
	const struct custom_tool *tool = custom_tool_of(call);
	const struct custom_events events = {take_output, take_end, run, &run->errors};
	cleanup_free char *input = make_input(call);
	int64_t until_ms = clock_now_ms() + (int64_t)(tool->timeout_s * 1000);
	struct custom_process *process;
	bool in_time;
	int r = input ? custom_process_start(call->session, &tool->source->entry, "execute", call,
				&events, &process)
		      : -ENOMEM;

	if (r < 0)
		return custom_fail_unstarted(call, r);
	/* Ignore a failure: the tool need not read its arguments. */
	(void)!custom_process_write(process, call, input, strlen(input));
	custom_process_close_input(process);
	in_time = await_end(run, until_ms);
	custom_process_stop(process, 0);
	return finish(call, run, in_time);
}

int custom_toolbox_execute(struct tool_call *call)
{
	struct run run = {.call = call,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.output = TAIL_INIT(call->call_id),
		.errors.path = custom_tool_of(call)->source->entry.path};
	int r;

	clock_cond_init(&run.changed);
	r = run_process(call, &run);
	tail_done(&run.output);
	custom_errors_done(&run.errors);
	pthread_cond_destroy(&run.changed);
	return r;
}
