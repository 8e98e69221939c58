#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "tools/base/registry.h"
#include "tools/custom/custom.h"
#include "tools/custom/messages.h"
#include "tools/custom/session.h"
#include "tools/mcp/mcp.h"
#include "tools/run.h"
#include "tools/text/text.h"

enum {
	LIST_TTL_MS = 60000,
	PROGRESS_INTERVAL_NS = 100000000,
	PROGRESS_TEXT_MAX = 200,
	PARTIALS_FREE = 100,
	WIDTH_USUAL = 80,
	WIDTH_MAX = 10000,
};

/* Clients give up a call after 60 s without a message. */
static const uint64_t heartbeat_interval_ns = 5000000000;

/* ---- tools/list ---------------------------------------------------------------------- */

/* Removes what a model need not know before a call: bounds, which error messages tell, and defaults
 * of JSON Schema.  Hosts put each schema into the model's context in full. */
static void shorten_schema(cJSON *schema)
{
	static const char *const bounds[] = {
		"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"};
	static const char *const off[] = {"default", "additionalProperties"};

	/* The members of "properties" are names of arguments, not keywords. */
	if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(schema, "type"))) {
		for (size_t i = 0; i < array_size(bounds); i++)
			cJSON_DeleteItemFromObjectCaseSensitive(schema, bounds[i]);
		for (size_t i = 0; i < array_size(off); i++)
			if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(schema, off[i])))
				cJSON_DeleteItemFromObjectCaseSensitive(schema, off[i]);
	}
	for (cJSON *item = schema->child; item; item = item->next)
		shorten_schema(item);
}

static cJSON *input_schema(const struct tool *tool)
{
	cJSON *schema = cJSON_Parse(tool->input_schema);

	/* Schemas of custom tools stay as their authors wrote them. */
	if (schema && !tool->parsed_schema)
		shorten_schema(schema);
	return schema;
}

static cJSON *tool_json(const struct tool *tool)
{
	cJSON *item = cJSON_CreateObject(), *annotations;
	bool reads = tool->level == TOOL_READ;

	cJSON_AddStringToObject(item, "name", tool->name);
	cJSON_AddStringToObject(item, "title", tool->label);
	cJSON_AddStringToObject(item, "description", tool->description);
	cJSON_AddItemToObject(item, "inputSchema", input_schema(tool));
	if (tool->hints & TOOL_IS_STRUCTURED)
		cJSON_AddItemToObject(item, "outputSchema", tool_result_schema(tool));
	annotations = cJSON_AddObjectToObject(item, "annotations");
	cJSON_AddStringToObject(annotations, "title", tool->label);
	cJSON_AddBoolToObject(annotations, "readOnlyHint", reads);
	cJSON_AddBoolToObject(annotations, "destructiveHint", tool->hints & TOOL_IS_DESTRUCTIVE);
	cJSON_AddBoolToObject(annotations, "idempotentHint", tool->hints & TOOL_IS_IDEMPOTENT);
	cJSON_AddBoolToObject(annotations, "openWorldHint", tool->hints & TOOL_IS_OPEN_WORLD);
	if (tool->parsed_schema)
		cJSON_AddTrueToObject(cJSON_AddObjectToObject(item, "_meta"), "isthmus/custom");
	return item;
}

void mcp_list_tools(struct mcp_request *request)
{
	const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(request->params, "cursor");
	cJSON *result, *list;
	const struct tool *tool;

	if (cursor) {
		mcp_fail(request, MCP_INVALID_PARAMS,
			"there is no such page: all tools come at once", NULL);
		return;
	}
	result = cJSON_CreateObject();
	list = cJSON_AddArrayToObject(result, "tools");
	for (size_t i = 0; (tool = registry_at(i)); i++)
		cJSON_AddItemToArray(list, tool_json(tool));
	if (request->modern) {
		cJSON_AddNumberToObject(result, "ttlMs", LIST_TTL_MS);
		cJSON_AddStringToObject(result, "cacheScope", "public");
	}
	mcp_answer(request, result);
}

/* ---- Results ------------------------------------------------------------------------------ */

static void add_text(cJSON *content, const char *text)
{
	cJSON *block = cJSON_CreateObject();

	cJSON_AddStringToObject(block, "type", "text");
	cJSON_AddStringToObject(block, "text", text);
	cJSON_AddItemToArray(content, block);
}

static void add_image(cJSON *content, const struct tool_image *image)
{
	cleanup_free char *data = text_base64(image->bytes.data, image->bytes.size);
	cJSON *block = cJSON_CreateObject();

	cJSON_AddStringToObject(block, "type", "image");
	cJSON_AddStringToObject(block, "data", data ? data : "");
	cJSON_AddStringToObject(block, "mimeType", image->mime_type);
	cJSON_AddItemToArray(content, block);
}

static void set_audience(cJSON *content, const char *who)
{
	cJSON *block = cJSON_GetArrayItem(content, cJSON_GetArraySize(content) - 1);

	cJSON_AddItemToArray(
		cJSON_AddArrayToObject(cJSON_AddObjectToObject(block, "annotations"), "audience"),
		cJSON_CreateString(who));
}

/* All of a custom tool's long output, for people whose client opens it; the text says where it is.
 */
static void add_link(cJSON *content, const struct tool_call *call)
{
	const char *path = json_text(call->data, "output_file");
	cleanup_free char *encoded = path ? text_percent_encode(path, "/") : NULL;
	cleanup_free char *uri = encoded ? string_printf("file://%s", encoded) : NULL;
	cJSON *block;

	/* It may be where commands run, on another machine. */
	if (!uri || !call->tool->parsed_schema || access(path, R_OK) < 0)
		return;
	block = cJSON_CreateObject();
	cJSON_AddStringToObject(block, "type", "resource_link");
	cJSON_AddStringToObject(block, "uri", uri);
	cJSON_AddStringToObject(block, "name", "output");
	cJSON_AddStringToObject(block, "title", "All of the output");
	cJSON_AddStringToObject(block, "mimeType", "text/plain");
	cJSON_AddItemToArray(content, block);
	set_audience(content, "user");
}

/* The text for models that see no other part of the result: the output so far, then the error. */
static int whole_text(struct tool_call *call, struct buffer *text)
{
	int r = buffer_append(text, call->text.data, call->text.size);

	if (r == 0 && call->code != TOOL_OK)
		r = buffer_printf(text, "%s%s: %s",
			text->size && text->data[text->size - 1] != '\n' ? "\n" : "",
			tool_error_info(call->code)->name,
			call->ai_message ? call->ai_message : "");
	return r < 0 ? r : buffer_append(text, "", 1);
}

/* Whether the client shows the model all of a failed call, `_meta` too, which repeats the text. */
static bool shows_all_of_failures(const struct tool_call *call)
{
	static const char *const names[] = {"gemini-cli", "qwen-cli", "qwen-code"};

	for (size_t i = 0; i < array_size(names); i++)
		if (strncmp(call->agent, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* Adds the JSON result to `_meta`, which models do not see.  Not as structuredContent: many hosts
 * then show neither images nor the text, which is often ten times shorter. */
static void add_for_programs(cJSON *result, cJSON *json)
{
	cJSON_AddItemToObject(cJSON_AddObjectToObject(result, "_meta"), "isthmus/result", json);
}

static void add_drawn(cJSON *result, struct mcp_request *request)
{
	cJSON *meta = json_member(result, "_meta");

	if (!request->drawn)
		return;
	if (!meta)
		meta = cJSON_AddObjectToObject(result, "_meta");
	cJSON_AddItemToObject(meta, "isthmus/render", request->drawn);
	request->drawn = NULL;
}

/* Adds the notes of a custom tool for the user, which the model need not read. */
static void add_notes(cJSON *content, struct tool_call *call)
{
	struct buffer text cleanup_buffer = {0};

	if (!call->notes.size || utf8_append_clean(&text, call->notes.data, call->notes.size) < 0 ||
		buffer_append(&text, "", 1) < 0)
		return;
	add_text(content, (const char *)text.data);
	set_audience(content, "user");
}

/* Adds the messages of custom tools to the agent, before the result of any tool. */
static void add_messages(cJSON *content, const struct tool_call *call)
{
	cJSON *messages = custom_messages_take(tool_conversation(call));
	const cJSON *message;

	cJSON_ArrayForEach(message, messages) {
		add_text(content,
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "text")));
		if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "display")))
			set_audience(content, "assistant");
	}
	cJSON_Delete(messages);
}

static cJSON *call_result(struct tool_call *call)
{
	cJSON *result = cJSON_CreateObject(), *content = cJSON_AddArrayToObject(result, "content");
	struct mcp_request *request = call->asker;
	struct buffer text cleanup_buffer = {0};

	add_messages(content, call);

	if (whole_text(call, &text) == 0)
		add_text(content, (const char *)text.data);
	if (call->image.mime_type && call->code == TOOL_OK)
		add_image(content, &call->image);
	if (call->remark && call->code == TOOL_OK)
		add_text(content, call->remark);
	if (request->takes_links)
		add_link(content, call);
	add_notes(content, call);
	if (call->tool->hints & TOOL_IS_STRUCTURED)
		cJSON_AddItemToObject(result, "structuredContent", tool_result_json(call));
	else if (call->code == TOOL_OK || !shows_all_of_failures(call))
		add_for_programs(result, tool_result_json(call));
	cJSON_AddBoolToObject(result, "isError", call->code != TOOL_OK);
	add_drawn(result, request);
	return result;
}

/* ---- Progress ------------------------------------------------------------------------------- */

/* Sends progress.  Called with the server's lock held, so that none can follow the answer. */
static void send_progress(struct mcp_request *request, const char *message)
{
	cJSON *params = cJSON_CreateObject();

	cJSON_AddItemToObject(params, "progressToken", cJSON_CreateRaw(request->progress_token));
	cJSON_AddNumberToObject(params, "progress", (double)request->progress);
	if (*message)
		cJSON_AddStringToObject(params, "message", message);
	request->progress_ns = clock_now_ns();
	mcp_notify(request->server, "notifications/progress", params);
}

static bool is_due(const struct mcp_request *request)
{
	return request->progress_token && !tool_cancelled(request->call) &&
	       clock_now_ns() - request->progress_ns >= PROGRESS_INTERVAL_NS;
}

/* Sends the number of output bytes so far as progress, with the last line as the message. */
static void on_update(void *user, const char *text, size_t size)
{
	struct mcp_request *request = user;
	struct buffer line cleanup_buffer = {0};
	const char *start, *end = text + size;
	size_t whole = size;

	while (end > text && (end[-1] == '\n' || end[-1] == '\r'))
		end--;
	start = memrchr(text, '\n', (size_t)(end - text));
	start = start ? start + 1 : text;
	size = text_cut(start, (size_t)(end - start), PROGRESS_TEXT_MAX);
	if (utf8_append_clean(&line, start, size) < 0 || buffer_append(&line, "", 1) < 0)
		return;
	pthread_mutex_lock(&request->server->lock);
	request->progress += whole;
	request->output_ns = clock_now_ns();
	if (is_due(request))
		send_progress(request, (const char *)line.data);
	pthread_mutex_unlock(&request->server->lock);
}

static void send_heartbeat(struct mcp_request *request, uint64_t now)
{
	char message[PROGRESS_TEXT_MAX];

	snprintf(message, sizeof(message), "running %u s, no output for %u s",
		(unsigned)((now - request->started_ns) / 1000000000),
		(unsigned)((now - request->output_ns) / 1000000000));
	request->progress++;
	send_progress(request, message);
}

void mcp_send_heartbeats(struct mcp_server *server)
{
	uint64_t now = clock_now_ns();

	for (struct mcp_request *at = server->calls; at; at = at->next) {
		uint64_t last = at->progress_ns > at->started_ns ? at->progress_ns : at->started_ns;

		if (at->progress_token && at->started_ns && !at->answered && !at->cancelled &&
			now - last >= heartbeat_interval_ns)
			send_heartbeat(at, now);
	}
}

/* Sends partial results as messages: the first PARTIALS_FREE, then one per interval. */
static void on_partial(void *user, const char *text, size_t size)
{
	struct mcp_request *request = user;
	struct buffer line cleanup_buffer = {0};
	const char *end = memchr(text, '\n', size);

	size = text_cut(text, end ? (size_t)(end - text) : size, PROGRESS_TEXT_MAX);
	if (utf8_append_clean(&line, text, size) < 0 || buffer_append(&line, "", 1) < 0)
		return;
	pthread_mutex_lock(&request->server->lock);
	request->progress++;
	request->output_ns = clock_now_ns();
	if (!tool_cancelled(request->call) &&
		(request->partials++ < PARTIALS_FREE || is_due(request)))
		send_progress(request, (const char *)line.data);
	pthread_mutex_unlock(&request->server->lock);
}

/* Keeps the drawing for the result, for clients that show it. */
static void on_drawn(void *user, enum tool_phase phase, const char *text)
{
	struct mcp_request *request = user;

	if (!text)
		return;
	if (phase == TOOL_PHASE_PARTIAL) {
		if (request->progress_token)
			on_partial(user, text, strlen(text));
		return;
	}
	if (!request->drawn)
		request->drawn = cJSON_CreateObject();
	cJSON_AddStringToObject(request->drawn, phase == TOOL_PHASE_CALL ? "call" : "result", text);
}

void mcp_set_sink(struct mcp_request *request)
{
	const cJSON *render = json_member(json_member(request->params, "_meta"), "isthmus/render");
	int64_t width = json_integer(render, "width");
	struct tool_sink sink = {.user = request};

	if (request->progress_token) {
		sink.update = on_update;
		sink.partial = on_partial;
	}
	if (cJSON_IsObject(render)) {
		sink.drawn = on_drawn;
		sink.width = width > 0 && width < WIDTH_MAX ? (int)width : WIDTH_USUAL;
		sink.expanded = json_is_true(render, "expanded");
	}
	request->call->sink = sink;
}

/* ---- tools/call -------------------------------------------------------------------------- */

void mcp_request_free(struct mcp_request *request)
{
	if (!request)
		return;
	tool_call_free(request->call);
	cJSON_Delete(request->params);
	cJSON_Delete(request->elicited);
	cJSON_Delete(request->questions);
	cJSON_Delete(request->drawn);
	pthread_cond_destroy(&request->news);
	free(request->progress_token);
	free(request->id);
	mcp_batch_done(request->server, request->batch);
	free(request);
}

void mcp_cancel(struct mcp_request *request)
{
	request->cancelled = true;
	if (request->call)
		tool_cancel(request->call);
	pthread_cond_broadcast(&request->news);
}

static void unlink_request(struct mcp_request *request)
{
	struct mcp_server *server = request->server;
	struct mcp_request **at;

	pthread_mutex_lock(&server->lock);
	for (at = &server->calls; *at != request; at = &(*at)->next)
		;
	*at = request->next;
	pthread_mutex_unlock(&server->lock);
}

/* The last step of a call: the server may end after it. */
static void count_down(struct mcp_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->call_count--;
	pthread_cond_broadcast(&server->idle);
	pthread_mutex_unlock(&server->lock);
}

static void finish(struct mcp_request *request)
{
	struct tool_call *call = request->call;
	cJSON *result;

	result = call->deferred ? mcp_states_question(request) : call_result(call);
	if (result)
		mcp_answer(request, result);
	else
		mcp_fail(request, MCP_INTERNAL_ERROR, "there is not enough memory", NULL);
}

void mcp_run_call(struct mcp_request *request)
{
	struct mcp_server *server = request->server;
	struct tool_call *call;

	pthread_mutex_lock(&server->lock);
	request->started_ns = request->output_ns = clock_now_ns();
	pthread_mutex_unlock(&server->lock);
	call = request->call;
	tool_run(call);
	request = call->asker; /* a parked call may have moved to another request */
	finish(request);
	unlink_request(request);
	mcp_request_free(request);
	count_down(server);
}

/* Takes user, conversation and position of the client's session from `_meta`, if it has them. */
static void take_session(struct mcp_request *request)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(request->params, "_meta"),
		    *queued = cJSON_GetObjectItemCaseSensitive(meta, "isthmus/queued");
	const cJSON *parent = json_member(meta, "isthmus/parent");
	const char *session = json_text(meta, "isthmus/session"),
		   *user = json_text(meta, "isthmus/user");
	struct tool_call *call = request->call;

	if (!session)
		session = json_text(meta, "isthmus/conversation");
	if (user)
		call->user = strdup(user);
	if (session && path_is_name(session))
		call->conversation = strdup(session);
	else
		call->conversation = custom_session_current();
	if (cJSON_IsNumber(queued))
		call->queued = queued->valueint;
	if (cJSON_IsString(parent) || cJSON_IsNull(parent))
		custom_session_at(tool_conversation(call), cJSON_GetStringValue(parent));
}

void mcp_call_tool(struct mcp_request *request)
{
	cJSON *name = cJSON_GetObjectItemCaseSensitive(request->params, "name"), *arguments;
	const struct tool *tool = cJSON_IsString(name) ? registry_find(name->valuestring) : NULL;
	cleanup_free char *message = NULL;

	if (!cJSON_IsString(name))
		mcp_fail(request, MCP_INVALID_PARAMS, "params.name must be a string", NULL);
	else if (!tool && asprintf(&message, "Unknown tool: %s", name->valuestring) > 0)
		mcp_fail(request, MCP_INVALID_PARAMS, message, NULL);
	else if (request->modern && mcp_ui_resume(request))
		return;
	else if (request->modern && mcp_states_take(request) < 0)
		mcp_fail(request, MCP_INVALID_PARAMS,
			"the question is no longer open, or it was one of another call: call the "
			"tool again, without requestState",
			NULL);
	if (request->answered) {
		mcp_request_free(request);
		return;
	}
	arguments = cJSON_GetObjectItemCaseSensitive(request->params, "arguments");
	/* Clients in languages whose empty map is an empty list, and those that send what is not
	 * there. */
	if (cJSON_IsNull(arguments) || (cJSON_IsArray(arguments) && !arguments->child))
		arguments = NULL;
	request->call = tool_call_new(
		&request->server->session, tool, cJSON_Duplicate(arguments, true), NULL);
	if (!request->call) {
		mcp_fail(request, MCP_INTERNAL_ERROR, "there is not enough memory", NULL);
		mcp_request_free(request);
		return;
	}
	request->call->ask_permission = mcp_ask_permission;
	request->call->asker = request;
	strcpy(request->call->agent, request->agent);
	take_session(request);
	if (request->can_elicit)
		request->call->ask_user = mcp_ask_user;
	request->call->tell_user = mcp_tell_user;
	mcp_set_sink(request);
	if (mcp_queue_call(request) < 0) {
		mcp_fail(request, MCP_INTERNAL_ERROR,
			"too many calls wait: send it again when some have ended", NULL);
		mcp_request_free(request);
	}
}
