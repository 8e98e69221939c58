/*
 * Questions of a custom tool to the client's user.  In the protocol with a handshake a question is
 * a request of the server.  In the stateless one the call is answered with an `input_required`
 * result; its thread and the tool's process are parked until the client sends the call again with
 * the answer, so that the tool does not repeat its work from before the question.
 */
#include <string.h>
#include <sys/random.h>

#include "ops/support/clock.h"
#include "ops/support/hex.h"
#include "ops/support/json.h"
#include "ops/support/visible.h"
#include "tools/mcp/mcp.h"

enum { PARKED_MAX = 16, PARKED_SECONDS = 600 };

static const char question_key[] = "question";

/* ---- The form ------------------------------------------------------------------------------- */

static cJSON *value_schema(const struct tool_question *question)
{
	cJSON *schema = cJSON_CreateObject();

	cJSON_AddStringToObject(
		schema, "type", question->kind == TOOL_ASK_CONFIRM ? "boolean" : "string");
	if (question->kind == TOOL_ASK_SELECT)
		cJSON_AddItemToObject(schema, "enum", cJSON_Duplicate(question->options, true));
	if (question->kind == TOOL_ASK_INPUT && question->placeholder)
		cJSON_AddStringToObject(schema, "description", question->placeholder);
	if (question->kind == TOOL_ASK_EDITOR && question->prefill)
		cJSON_AddStringToObject(schema, "default", question->prefill);
	return schema;
}

static cJSON *form(const struct tool_call *call, const struct tool_question *question, bool modern)
{
	cJSON *params = cJSON_CreateObject(), *schema;
	struct buffer message cleanup_buffer = {0};

	/* Name the tool, so that it cannot pretend to be isthmus. */
	buffer_printf(&message, "%s asks: ", call->tool->name);
	visible_append(&message, question->title, strlen(question->title), VISIBLE_INDENT);
	if (question->message) {
		buffer_append(&message, "\n", 1);
		visible_append(
			&message, question->message, strlen(question->message), VISIBLE_INDENT);
	}
	buffer_append(&message, "", 1);
	if (modern)
		cJSON_AddStringToObject(params, "mode", "form");
	cJSON_AddStringToObject(params, "message", (const char *)message.data);
	schema = cJSON_AddObjectToObject(params, "requestedSchema");
	cJSON_AddStringToObject(schema, "type", "object");
	cJSON_AddItemToObject(
		cJSON_AddObjectToObject(schema, "properties"), "value", value_schema(question));
	cJSON_AddItemToArray(
		cJSON_AddArrayToObject(schema, "required"), cJSON_CreateString("value"));
	return params;
}

/* The answer, if it is valid for the question; else NULL. */
static cJSON *read_value(const struct tool_question *question, const cJSON *result)
{
	const char *action = json_text(result, "action");
	const cJSON *option, *value = cJSON_GetObjectItemCaseSensitive(
				     cJSON_GetObjectItemCaseSensitive(result, "content"), "value");
	bool good =
		question->kind == TOOL_ASK_CONFIRM ? cJSON_IsBool(value) : cJSON_IsString(value);

	if (!good || !action || strcmp(action, "accept") != 0)
		return NULL;
	if (question->kind != TOOL_ASK_SELECT)
		return cJSON_Duplicate(value, true);
	cJSON_ArrayForEach(option, question->options) {
		if (cJSON_Compare(option, value, true))
			return cJSON_Duplicate(value, true);
	}
	return NULL;
}

/* ---- Parked
 * --------------------------------------------------------------------------------------- */

/* With the lock held. */
static bool has_room(const struct mcp_server *server)
{
	unsigned count = 0;

	for (const struct mcp_request *at = server->calls; at; at = at->next)
		count += at->handle[0] != '\0';
	return count < PARKED_MAX;
}

static bool park(struct mcp_request *request)
{
	uint8_t random[16];
	bool parked = false;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return false;
	pthread_mutex_lock(&request->server->lock);
	if (has_room(request->server)) {
		hex_write(random, sizeof(random), request->handle);
		parked = true;
	}
	pthread_mutex_unlock(&request->server->lock);
	return parked;
}

static void answer_with_question(struct mcp_request *request, cJSON *params)
{
	cJSON *result = cJSON_CreateObject(), *asked;

	cJSON_AddStringToObject(result, "resultType", "input_required");
	asked = cJSON_AddObjectToObject(
		cJSON_AddObjectToObject(result, "inputRequests"), question_key);
	cJSON_AddStringToObject(asked, "method", "elicitation/create");
	cJSON_AddItemToObject(asked, "params", params);
	cJSON_AddStringToObject(result, "requestState", request->handle);
	mcp_answer(request, result);
}

static uint64_t wait_limit_ns(const struct tool_question *question)
{
	uint64_t ms = PARKED_SECONDS * 1000ULL;

	if (question->timeout_ms > 0 && (uint64_t)question->timeout_ms < ms)
		ms = (uint64_t)question->timeout_ms;
	return clock_now_ns() + ms * 1000000;
}

/* Waits for the repeated call.  NULL: the call was cancelled, or the time is up. */
static struct mcp_request *await_successor(struct mcp_request *request, uint64_t until_ns)
{
	const struct timespec until = clock_at_ns(until_ns);
	struct mcp_server *server = request->server;
	struct mcp_request *successor;

	pthread_mutex_lock(&server->lock);
	while (!request->successor && !request->cancelled &&
		pthread_cond_timedwait(&request->news, &server->lock, &until) == 0)
		;
	successor = request->successor;
	request->handle[0] = '\0';
	pthread_mutex_unlock(&server->lock);
	return successor;
}

/* Moves the call from the parked request to the one that repeats it. */
static void hand_over(struct tool_call *call, struct mcp_request *from, struct mcp_request *to)
{
	call->asker = to;
	mcp_set_sink(to);
	from->call = NULL;
	mcp_request_free(from);
}

static cJSON *ask_parked(
	struct tool_call *call, struct mcp_request *request, const struct tool_question *question)
{
	struct mcp_request *successor;

	if (request->handle[0] || !park(request))
		return NULL;
	answer_with_question(request, form(call, question, true));
	successor = await_successor(request, wait_limit_ns(question));
	if (!successor) {
		tool_cancel(call); /* no request is left for its result */
		return NULL;
	}
	hand_over(call, request, successor);
	return read_value(question,
		cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(successor->params, "inputResponses"),
			question_key));
}

bool mcp_ui_resume(struct mcp_request *request)
{
	const char *state = json_text(request->params, "requestState");
	struct mcp_server *server = request->server;
	bool resumed = false;

	pthread_mutex_lock(&server->lock);
	for (struct mcp_request **at = &server->calls; state && *state && *at; at = &(*at)->next) {
		struct mcp_request *parked = *at;

		if (strcmp(parked->handle, state) != 0 || !mcp_same_call(parked, request))
			continue;
		/* Replace it in the list at once, so that a cancellation finds the new one. */
		request->next = parked->next;
		request->call = parked->call;
		request->started_ns = request->output_ns = clock_now_ns();
		*at = request;
		parked->handle[0] = '\0';
		parked->successor = request;
		pthread_cond_broadcast(&parked->news);
		resumed = true;
		break;
	}
	pthread_mutex_unlock(&server->lock);
	return resumed;
}

/* ---- For tool_call
 * ------------------------------------------------------------------------------------- */

cJSON *mcp_ask_user(struct tool_call *call, const struct tool_question *question)
{
	struct mcp_request *request = call->asker;
	cJSON *result, *value;

	if (request->modern)
		return ask_parked(call, request, question);
	if (mcp_elicit(request, form(call, question, false), wait_limit_ns(question), &result) < 0)
		return NULL;
	value = read_value(question, result);
	cJSON_Delete(result);
	return value;
}

void mcp_tell_user(struct tool_call *call, const char *message)
{
	buffer_printf(&call->notes, "%s%s", call->notes.size ? "\n" : "", message);
}
