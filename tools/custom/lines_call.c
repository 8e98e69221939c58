/* One call of a tool that speaks isthmus-tool/1. */
#include <errno.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/base/process.h"
#include "tools/custom/hosts.h"
#include "tools/custom/journal.h"
#include "tools/custom/render.h"

enum {
	POLL_MS = 50,
	GRACE_MS = 500, /* for the process to end after its result, or after a cancel */
	RENDER_MS = 2000,
	HOST_GRACE_MS = 2000,      /* for a call to stop, before its shared process is ended */
	EXEC_OUTPUT_MAX = 1 << 20, /* bytes per stream */
	EXEC_WORDS_MAX = 1000,
};

struct conversation {
	struct tool_call *call;
	const struct custom_tool *tool;
	struct custom_lines *lines;
	struct custom_channel channel;
	int64_t until_ms;
};

/* ---- Requests of the tool ----------------------------------------------------------------- */

static void say_update(struct conversation *talk, const cJSON *message)
{
	const cJSON *block =
		cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(message, "content"), 0);
	const char *text = json_text(block, "text");

	if (custom_render_ask(talk->lines, talk->call, TOOL_PHASE_PARTIAL, message))
		return;
	if (text && talk->call->sink.partial)
		talk->call->sink.partial(talk->call->sink.user, text, strlen(text));
}

static struct tool_question make_question(const cJSON *message, enum tool_question_kind kind)
{
	const char *title = json_text(message, "title");

	return (struct tool_question){
		.kind = kind,
		.title = title ? title : "",
		.message = json_text(message, "message"),
		.placeholder = json_text(message, "placeholder"),
		.prefill = json_text(message, "prefill"),
		.options = cJSON_GetObjectItemCaseSensitive(message, "options"),
		.timeout_ms = json_integer(message, "timeout"),
	};
}

static int find_kind(const char *method)
{
	static const char *const names[] = {[TOOL_ASK_SELECT] = "select",
		[TOOL_ASK_CONFIRM] = "confirm",
		[TOOL_ASK_INPUT] = "input",
		[TOOL_ASK_EDITOR] = "editor"};

	for (size_t i = 0; method && i < array_size(names); i++)
		if (strcmp(names[i], method) == 0)
			return (int)i;
	return -1;
}

/* Asks a person.  The time until the answer does not count for the tool's timeout. */
static cJSON *ask_person(struct conversation *talk, const cJSON *message)
{
	const char *method = json_text(message, "method");
	struct tool_call *call = talk->call;
	int kind = find_kind(method);
	int64_t start_ms = clock_now_ms();
	struct tool_question question;
	cJSON *value = NULL;

	if (kind < 0 || !call->ask_user)
		return NULL;
	question = make_question(message, (enum tool_question_kind)kind);
	if (kind == TOOL_ASK_SELECT && !cJSON_GetArraySize(question.options))
		return NULL;
	value = call->ask_user(call, &question);
	talk->until_ms += clock_now_ms() - start_ms;
	return value;
}

static void answer_ui(struct conversation *talk, const cJSON *message)
{
	const char *method = json_text(message, "method"), *ask = json_text(message, "ask");
	const char *text = json_text(message, "message");
	cJSON *reply, *value;

	if (method && strcmp(method, "notify") == 0) {
		if (text && talk->call->tell_user)
			talk->call->tell_user(talk->call, text);
		return;
	}
	value = ask_person(talk, message);
	reply = cJSON_CreateObject();
	cJSON_AddStringToObject(reply, "type", "ui_response");
	cJSON_AddStringToObject(reply, "id", talk->call->call_id);
	cJSON_AddStringToObject(reply, "ask", ask ? ask : "");
	if (value)
		cJSON_AddItemToObject(reply, "value", value);
	else
		cJSON_AddTrueToObject(reply, "cancelled");
	custom_lines_send(talk->lines, talk->call, reply);
}

struct exec_output {
	struct buffer streams[2];
};

static int take_exec_output(void *user, bool is_stderr, const void *data, size_t size)
{
	struct buffer *stream = &((struct exec_output *)user)->streams[is_stderr];
	size_t room = EXEC_OUTPUT_MAX - stream->size;

	return buffer_append(stream, data, size < room ? size : room);
}

static const char **exec_argv(const cJSON *message)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(message, "argv"), *word;
	int count = cJSON_GetArraySize(list);
	const char **argv;
	size_t i = 0;

	if (count < 1 || count > EXEC_WORDS_MAX)
		return NULL;
	argv = calloc((size_t)count + 1, sizeof(*argv));
	cJSON_ArrayForEach(word, list) {
		if (argv && cJSON_IsString(word))
			argv[i++] = word->valuestring;
	}
	return argv;
}

static void add_stream(cJSON *reply, const char *name, struct buffer *stream)
{
	cleanup_free char *text = utf8_repair(buffer_steal_string(stream));

	cJSON_AddStringToObject(reply, name, text ? text : "");
}

/* Runs a command of the tool: where the files are, as the tool bash does, unless the user's
 * settings say here.  The permission for the call covers it. */
static void run_exec(struct conversation *talk, const cJSON *message)
{
	cleanup_free const char **argv = exec_argv(message);
	struct exec_output output = {0};
	struct process_request request = {.argv = argv,
		.directory = "",
		.is_here = talk->tool->source->execs_here,
		.timeout_ms = (uint32_t)json_integer(message, "timeout"),
		.output = take_exec_output,
		.user = &output};
	struct process_result result = {0};
	const char *ask = json_text(message, "ask");
	cJSON *reply = cJSON_CreateObject();
	int r = argv ? process_run(talk->call, &request, &result) : -EINVAL;

	cJSON_Delete(result.changed);
	cJSON_AddStringToObject(reply, "type", "exec_result");
	cJSON_AddStringToObject(reply, "ask", ask ? ask : "");
	add_stream(reply, "stdout", &output.streams[0]);
	if (r < 0 && r != -ECANCELED)
		buffer_printf(&output.streams[1], "%s: %s", argv ? argv[0] : "argv", strerror(-r));
	add_stream(reply, "stderr", &output.streams[1]);
	cJSON_AddNumberToObject(reply, "code", r < 0 ? 1 : result.signal ? 0 : result.exit_code);
	cJSON_AddBoolToObject(
		reply, "killed", r == -ECANCELED || result.timed_out || result.signal);
	custom_lines_send(talk->lines, talk->call, reply);
	buffer_done(&output.streams[0]);
	buffer_done(&output.streams[1]);
}

/* ---- The call ---------------------------------------------------------------------------------
 */

/* Handles a message.  1: the call is over; 0: it continues; -1: it failed (recorded). */
static int take_message(struct conversation *talk, const cJSON *message)
{
	const char *type = json_text(message, "type"), *text = json_text(message, "message");
	const cJSON *details = cJSON_GetObjectItemCaseSensitive(message, "details");

	if (!type)
		return 0;
	if (strcmp(type, "update") == 0) {
		say_update(talk, message);
	} else if (strcmp(type, "ui_request") == 0) {
		answer_ui(talk, message);
	} else if (strcmp(type, "exec") == 0) {
		run_exec(talk, message);
	} else if (strcmp(type, "rendered") == 0) {
		custom_render_take(talk->call, message);
	} else if (strcmp(type, "result") == 0) {
		custom_render_result(talk->lines, &talk->channel, talk->call, message, RENDER_MS);
		return custom_take_result(talk->call, message) < 0 ? -1 : 1;
	} else if (strcmp(type, "error") == 0) {
		if (details)
			cJSON_AddItemToObject(
				talk->call->data, "details", cJSON_Duplicate(details, true));
		return tool_fail(talk->call, TOOL_EXIT_STATUS, "", "%s",
			text ? text : "The tool failed and did not say why.");
	}
	return 0;
}

static int fail_ended(struct conversation *talk)
{
	struct buffer end cleanup_buffer = {0};

	custom_lines_say_end(talk->lines, &end);
	return tool_fail(talk->call, TOOL_EXIT_STATUS, CUSTOM_NEXT_STEP,
		"The tool ended (%.*s) without a result.", (int)end.size, (const char *)end.data);
}

static int converse(struct conversation *talk)
{
	for (;;) {
		bool ended = custom_lines_ended(talk->lines);
		cJSON *message = custom_channel_next(talk->lines, &talk->channel, POLL_MS);
		int r = message ? take_message(talk, message) : 0;

		cJSON_Delete(message);
		if (r != 0)
			return r < 0 ? -1 : 0;
		if (tool_cancelled(talk->call))
			return tool_fail(talk->call, TOOL_ABORTED, NULL, "The call was cancelled.");
		if (clock_now_ms() > talk->until_ms)
			return tool_fail(talk->call, TOOL_TIMEOUT, NULL, "%s was ended after %g s.",
				talk->tool->tool.name, talk->tool->timeout_s);
		if (!message && ended)
			return fail_ended(talk);
	}
}

static cJSON *execute_message(const struct conversation *talk)
{
	const struct tool_call *call = talk->call;
	const char *session = tool_conversation(call);
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "type", "execute");
	cJSON_AddStringToObject(message, "id", call->call_id);
	cJSON_AddStringToObject(message, "tool", talk->tool->own_name);
	cJSON_AddItemToObject(message, "params", cJSON_Duplicate(call->arguments, true));
	cJSON_AddBoolToObject(message, "has_ui", call->ask_user != NULL);
	cJSON_AddNumberToObject(message, "queued", call->queued);
	if (session)
		cJSON_AddStringToObject(message, "session", session);
	/* A process that lives for the session knows them. */
	if (!talk->channel.writer)
		cJSON_AddItemToObject(
			message, "entries", custom_journal_entries(session, talk->tool->source));
	return message;
}

static void cancel(struct conversation *talk)
{
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "type", "cancel");
	cJSON_AddStringToObject(message, "id", talk->call->call_id);
	cJSON_AddStringToObject(
		message, "reason", talk->call->code == TOOL_TIMEOUT ? "timeout" : "abort");
	custom_lines_send(talk->lines, NULL, message);
}

static void keep_result(void *user, const cJSON *message, bool is_error)
{
	const struct conversation *talk = user;

	custom_journal_add(talk->call, message, is_error, talk->channel.writer);
}

static int run(struct conversation *talk)
{
	int r = custom_lines_send(talk->lines, talk->call, execute_message(talk));

	/* -EPIPE: the process has ended; its exit status says more than this error. */
	if (r < 0 && r != -EPIPE && r != -EINTR) {
		r = tool_fail_errno(talk->call, r, "speak to the tool", talk->tool->tool.name);
	} else {
		custom_render_ask(talk->lines, talk->call, TOOL_PHASE_CALL, NULL);
		r = converse(talk);
	}
	if (talk->call->code == TOOL_ABORTED || talk->call->code == TOOL_TIMEOUT)
		cancel(talk);
	return r;
}

/* Runs the call in its own process, which has the protocol's grace time to end. */
static int run_once(struct conversation *talk)
{
	struct tool_call *call = talk->call;
	int r = custom_lines_start(call->session, talk->tool->source, call, &talk->lines);

	if (r < 0)
		return custom_fail_unstarted(call, r);
	custom_channel_open(talk->lines, &talk->channel, call->call_id);
	r = run(talk);
	custom_channel_close(talk->lines, &talk->channel);
	custom_lines_stop(talk->lines, GRACE_MS);
	return r;
}

/* Waits for a cancelled call to stop.  True: it has answered; the result is dropped. */
static bool stops(struct conversation *talk)
{
	int64_t until_ms = clock_now_ms() + HOST_GRACE_MS;

	while (clock_now_ms() < until_ms && !custom_lines_ended(talk->lines)) {
		cJSON *message = custom_channel_next(talk->lines, &talk->channel, POLL_MS);
		const char *type = json_text(message, "type");
		bool is_end = type && (strcmp(type, "result") == 0 || strcmp(type, "error") == 0);

		cJSON_Delete(message);
		if (is_end)
			return true;
	}
	return false;
}

static int run_at_host(struct conversation *talk)
{
	struct tool_call *call = talk->call;
	struct custom_host *host;
	int r = custom_host_take(call, &talk->channel, &host);
	bool is_stuck;

	if (r < 0)
		return custom_fail_unstarted(call, r);
	talk->lines = custom_host_lines(host);
	r = run(talk);
	is_stuck = (call->code == TOOL_ABORTED || call->code == TOOL_TIMEOUT) && !stops(talk);
	custom_host_give_back(host, &talk->channel, is_stuck);
	return r;
}

int custom_lines_execute(struct tool_call *call)
{
	const struct custom_tool *tool = custom_tool_of(call);
	struct conversation talk = {.call = call,
		.tool = tool,
		.until_ms = clock_now_ms() + (int64_t)(tool->timeout_s * 1000)};

	custom_hosts_begin(call->session);
	talk.channel = (struct custom_channel){.at_result = keep_result, .user = &talk};
	return tool->source->lives ? run_at_host(&talk) : run_once(&talk);
}
