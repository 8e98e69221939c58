/*
 * Tools of an MCP server (Model Context Protocol) on its standard input and output.  As with other
 * tools, each call is a process of its own: initialize, tools/call, end.
 */
#include <errno.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "tools/custom/lines.h"

enum {
	DESCRIBE_MS = 30000, /* some servers download themselves before they run */
	START_MS = 30000,
	POLL_MS = 50,
	GRACE_MS = 500,
	PAGES_MAX = 20,
	FIELDS_MAX = 20,
};

struct client {
	struct custom_lines *lines;
	struct custom_channel channel;
	struct tool_call *call; /* NULL: while it is asked to describe itself */
	int last_id;
	int64_t until_ms;
	struct buffer problem; /* why a request failed */
};

/* ---- Requests and notifications of the server ------------------------------------------------ */

static int send_message(struct client *client, const char *method, int id, cJSON *params)
{
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "jsonrpc", "2.0");
	if (id)
		cJSON_AddNumberToObject(message, "id", id);
	cJSON_AddStringToObject(message, "method", method);
	cJSON_AddItemToObject(message, "params", params ? params : cJSON_CreateObject());
	return custom_lines_send(client->lines, client->call, message);
}

/* Answers a request of the server.  `key`: "result" or "error". */
static void respond(struct client *client, const cJSON *request, const char *key, cJSON *value)
{
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "jsonrpc", "2.0");
	cJSON_AddItemToObject(message, "id",
		cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(request, "id"), true));
	cJSON_AddItemToObject(message, key, value);
	custom_lines_send(client->lines, client->call, message);
}

/* Asks for one field of a form. */
static cJSON *ask_field(struct client *client, const char *title, const cJSON *field)
{
	const char *type = json_text(field, "type"), *name = json_text(field, "title");
	struct tool_question question = {.kind = TOOL_ASK_INPUT,
		.title = title,
		.message = name ? name : field->string,
		.placeholder = json_text(field, "description"),
		.options = cJSON_GetObjectItemCaseSensitive(field, "enum")};
	cJSON *value, *number;
	char *end;

	if (cJSON_GetArraySize(question.options))
		question.kind = TOOL_ASK_SELECT;
	else if (type && strcmp(type, "boolean") == 0)
		question.kind = TOOL_ASK_CONFIRM;
	value = client->call->ask_user(client->call, &question);
	if (!cJSON_IsString(value) || !type ||
		(strcmp(type, "number") != 0 && strcmp(type, "integer") != 0))
		return value;
	number = cJSON_CreateNumber(strtod(value->valuestring, &end));
	if (end == value->valuestring || *end) {
		cJSON_Delete(number);
		number = NULL;
	}
	cJSON_Delete(value);
	return number;
}

/* Asks for all fields.  NULL: there is no person to ask, or a question got no answer. */
static cJSON *fill_in(struct client *client, const cJSON *params)
{
	const char *title = json_text(params, "message");
	const cJSON *fields = cJSON_GetObjectItemCaseSensitive(
			    cJSON_GetObjectItemCaseSensitive(params, "requestedSchema"),
			    "properties"),
		    *field;
	cJSON *content = cJSON_CreateObject();

	if (!client->call || !client->call->ask_user || cJSON_GetArraySize(fields) > FIELDS_MAX) {
		cJSON_Delete(content);
		return NULL;
	}
	cJSON_ArrayForEach(field, fields) {
		cJSON *value = ask_field(client, title ? title : "", field);

		if (!value) {
			cJSON_Delete(content);
			return NULL;
		}
		cJSON_AddItemToObject(content, field->string, value);
	}
	return content;
}

/* Asks a person.  The time until the answer does not count for the tool's timeout. */
static void answer_elicitation(struct client *client, const cJSON *request)
{
	int64_t start_ms = clock_now_ms();
	cJSON *content = fill_in(client, cJSON_GetObjectItemCaseSensitive(request, "params"));
	cJSON *result = cJSON_CreateObject();

	client->until_ms += clock_now_ms() - start_ms;
	cJSON_AddStringToObject(result, "action", content ? "accept" : "cancel");
	if (content)
		cJSON_AddItemToObject(result, "content", content);
	respond(client, request, "result", result);
}

static void take_request(struct client *client, const cJSON *message, const char *method)
{
	const cJSON *params = cJSON_GetObjectItemCaseSensitive(message, "params");
	const char *text = json_text(params, "message");
	cJSON *error;

	if (strcmp(method, "notifications/progress") == 0) {
		if (text && client->call && client->call->sink.partial)
			client->call->sink.partial(client->call->sink.user, text, strlen(text));
	} else if (strcmp(method, "ping") == 0) {
		respond(client, message, "result", cJSON_CreateObject());
	} else if (strcmp(method, "elicitation/create") == 0) {
		answer_elicitation(client, message);
	} else if (cJSON_GetObjectItemCaseSensitive(message, "id")) {
		error = cJSON_CreateObject();
		cJSON_AddNumberToObject(error, "code", -32601);
		cJSON_AddStringToObject(error, "message", "Method not found");
		respond(client, message, "error", error);
	}
}

/* ---- Requests to it ---------------------------------------------------------------------------
 */

/* The result in an answer; NULL with a sentence in client->problem. */
static cJSON *take_answer(struct client *client, cJSON *message)
{
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(message, "error");
	const char *text = json_text(error, "message");
	cJSON *result = cJSON_DetachItemFromObjectCaseSensitive(message, "result");

	if (!result)
		buffer_printf(&client->problem, "%s", text ? text : "it answered nothing");
	return result;
}

static bool gives_up(struct client *client, bool ended)
{
	if (client->call && tool_cancelled(client->call))
		buffer_append_string(&client->problem, "the call was cancelled");
	else if (clock_now_ms() > client->until_ms)
		buffer_append_string(&client->problem, "it did not answer in time");
	else if (ended)
		custom_lines_say_end(client->lines, &client->problem);
	return client->problem.size > 0;
}

static cJSON *request(struct client *client, const char *method, cJSON *params)
{
	int id = ++client->last_id;

	send_message(client, method, id, params);
	for (;;) {
		bool ended = custom_lines_ended(client->lines);
		cJSON *message = custom_channel_next(client->lines, &client->channel, POLL_MS);
		const char *asked = json_text(message, "method");
		cJSON *result = NULL;
		bool answered = message && !asked && json_integer(message, "id") == id;

		if (asked)
			take_request(client, message, asked);
		else if (answered)
			result = take_answer(client, message);
		cJSON_Delete(message);
		if (answered || gives_up(client, ended && !message))
			return result;
	}
}

static bool greet(struct client *client)
{
	cJSON *params = cJSON_CreateObject(), *capabilities, *info, *result;

	cJSON_AddStringToObject(params, "protocolVersion", "2025-06-18");
	capabilities = cJSON_AddObjectToObject(params, "capabilities");
	if (client->call && client->call->ask_user)
		cJSON_AddObjectToObject(capabilities, "elicitation");
	info = cJSON_AddObjectToObject(params, "clientInfo");
	cJSON_AddStringToObject(info, "name", "isthmus");
	cJSON_AddStringToObject(info, "version", ISTHMUS_VERSION);
	result = request(client, "initialize", params);
	if (!result)
		return false;
	cJSON_Delete(result);
	send_message(client, "notifications/initialized", 0, NULL);
	return true;
}

static int client_open(struct client *client, const struct tool_session *session,
	const struct custom_source *source, struct tool_call *call, int64_t limit_ms)
{
	int r = custom_lines_start(session, source, call, &client->lines);

	if (r < 0)
		return r;
	client->call = call;
	client->until_ms = clock_now_ms() + limit_ms;
	custom_channel_open(client->lines, &client->channel, "");
	return 0;
}

static void client_close(struct client *client)
{
	custom_channel_close(client->lines, &client->channel);
	custom_lines_stop(client->lines, GRACE_MS);
	buffer_done(&client->problem);
}

/* ---- What it has
 * ------------------------------------------------------------------------------------ */

/* Adds a page of tools/list to `tools`.  Returns the next cursor, which the caller frees; NULL:
 * this is the last page. */
static char *take_page(cJSON *page, cJSON *tools)
{
	const char *cursor = json_text(page, "nextCursor");
	char *next = cursor ? strdup(cursor) : NULL;
	cJSON *list = cJSON_GetObjectItemCaseSensitive(page, "tools"), *item;

	while ((item = cJSON_DetachItemFromArray(list, 0))) {
		cJSON *schema = cJSON_DetachItemFromObjectCaseSensitive(item, "inputSchema");
		cJSON *title = cJSON_DetachItemFromObjectCaseSensitive(item, "title");

		if (schema)
			cJSON_AddItemToObject(item, "parameters", schema);
		if (title)
			cJSON_AddItemToObject(item, "label", title);
		cJSON_DeleteItemFromObjectCaseSensitive(item, "outputSchema");
		cJSON_AddItemToArray(tools, item);
	}
	cJSON_Delete(page);
	return next;
}

static void list_tools(struct client *client, cJSON *tools)
{
	cleanup_free char *cursor = NULL;

	for (int pages = 0; pages < PAGES_MAX && !client->problem.size; pages++) {
		cJSON *params = cJSON_CreateObject(), *page;

		if (cursor)
			cJSON_AddStringToObject(params, "cursor", cursor);
		page = request(client, "tools/list", params);
		free(cursor);
		cursor = page ? take_page(page, tools) : NULL;
		if (!cursor)
			return;
	}
}

cJSON *custom_mcp_describe(const struct tool_session *session, struct custom_entry *entry)
{
	const struct custom_source source = {.entry = *entry};
	struct client client = {0};
	cJSON *description, *tools;
	int r = client_open(&client, session, &source, NULL, DESCRIBE_MS);

	if (r < 0) {
		cleanup_free char *reason = custom_unstarted(entry, r);

		custom_problem(entry, "%s", reason ? reason : strerror(-r));
		return NULL;
	}
	description = cJSON_CreateObject();
	cJSON_AddStringToObject(description, "protocol", "mcp");
	tools = cJSON_AddArrayToObject(description, "tools");
	if (greet(&client))
		list_tools(&client, tools);
	if (client.problem.size) {
		custom_problem(entry, "as a server of MCP it failed: %.*s",
			(int)client.problem.size, (const char *)client.problem.data);
		cJSON_Delete(description);
		description = NULL;
	}
	client_close(&client);
	return description;
}

/* ---- A call
 * ---------------------------------------------------------------------------------------------- */

static cJSON *call_params(struct tool_call *call)
{
	cJSON *params = cJSON_CreateObject();

	cJSON_AddStringToObject(params, "name", custom_tool_of(call)->own_name);
	cJSON_AddItemToObject(params, "arguments", cJSON_Duplicate(call->arguments, true));
	cJSON_AddStringToObject(
		cJSON_AddObjectToObject(params, "_meta"), "progressToken", call->call_id);
	return params;
}

static int take_result(struct tool_call *call, cJSON *result)
{
	cJSON *structure = cJSON_DetachItemFromObjectCaseSensitive(result, "structuredContent");

	if (structure)
		cJSON_AddItemToObject(result, "details", structure);
	if (custom_take_result(call, result) < 0)
		return -1;
	if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "isError")))
		return 0;
	return tool_fail(
		call, TOOL_EXIT_STATUS, "", "%s failed; its output says why.", call->tool->name);
}

static int fail(struct client *client)
{
	struct tool_call *call = client->call;
	cJSON *params;

	if (tool_cancelled(call) || clock_now_ms() > client->until_ms) {
		params = cJSON_CreateObject();
		cJSON_AddNumberToObject(params, "requestId", client->last_id);
		send_message(client, "notifications/cancelled", 0, params);
	}
	if (tool_cancelled(call))
		return tool_fail(call, TOOL_ABORTED, NULL, "The call was cancelled.");
	if (clock_now_ms() > client->until_ms)
		return tool_fail(call, TOOL_TIMEOUT, NULL,
			"The server of %s gave no answer in %g s.", call->tool->name,
			custom_tool_of(call)->timeout_s);
	return tool_fail(call, TOOL_EXIT_STATUS, CUSTOM_NEXT_STEP, "The server of %s failed: %.*s.",
		call->tool->name, (int)client->problem.size, (const char *)client->problem.data);
}

int custom_mcp_execute(struct tool_call *call)
{
	const struct custom_tool *tool = custom_tool_of(call);
	struct client client = {0};
	cJSON *result = NULL;
	int r = client_open(&client, call->session, tool->source, call, START_MS);

	if (r < 0)
		return custom_fail_unstarted(call, r);
	if (greet(&client)) {
		client.until_ms = clock_now_ms() + (int64_t)(tool->timeout_s * 1000);
		result = request(&client, "tools/call", call_params(call));
	}
	r = result ? take_result(call, result) : fail(&client);
	cJSON_Delete(result);
	client_close(&client);
	return r;
}
