/* Permission questions to the client: a request of the server in the protocol with a handshake, an
 * `input_required` result in the stateless one. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "ops/support/clock.h"
#include "tools/mcp/mcp.h"
#include "tools/permission/permission.h"

enum { STATES_MAX = 256, STATE_SECONDS = 3600, QUESTION_SECONDS = 86400 };

/* The questions and answers of one call, under an unguessable token that the client sends back.
 * The answers are kept in this process only, so that the client cannot forge them. */
struct state {
	struct state *next;
	char token[33];
	time_t made;
	char *call;     /* tool and arguments as text: the state is valid for this call only */
	cJSON *answers; /* {SENTENCE: "once", "always" or "no"} */
	char *asked;    /* the sentence without an answer */
};

struct mcp_states {
	pthread_mutex_t lock;
	struct state *list; /* latest first; guarded by lock */
};

struct mcp_states *mcp_states_new(void)
{
	struct mcp_states *states = calloc(1, sizeof(*states));

	if (states)
		pthread_mutex_init(&states->lock, NULL);
	return states;
}

static void state_free(struct state *state)
{
	if (!state)
		return;
	free(state->call);
	free(state->asked);
	cJSON_Delete(state->answers);
	free(state);
}

void mcp_states_free(struct mcp_states *states)
{
	if (!states)
		return;
	while (states->list) {
		struct state *state = states->list;

		states->list = state->next;
		state_free(state);
	}
	pthread_mutex_destroy(&states->lock);
	free(states);
}

/* ---- The form of a question ------------------------------------------------------------- */

static cJSON *decision_schema(const struct permission_question *question)
{
	static const struct {
		const char *value, *title;
	} choices[] = {{"once", "Allow once"}, {"deny", "Do not allow"},
		{"always", "Allow for this session"}};
	cJSON *schema = cJSON_CreateObject(), *decision, *values, *titles;
	size_t count = question->remember_count ? 3 : 2;

	cJSON_AddStringToObject(schema, "type", "object");
	decision =
		cJSON_AddObjectToObject(cJSON_AddObjectToObject(schema, "properties"), "decision");
	cJSON_AddStringToObject(decision, "type", "string");
	cJSON_AddStringToObject(decision, "title", "Allow it?");
	/* Forms begin with it: the answer that allows no more than this call. */
	cJSON_AddStringToObject(decision, "default", choices[0].value);
	values = cJSON_AddArrayToObject(decision, "enum");
	titles = cJSON_AddArrayToObject(decision, "enumNames");
	for (size_t i = 0; i < count; i++) {
		cJSON_AddItemToArray(values, cJSON_CreateString(choices[i].value));
		cJSON_AddItemToArray(titles, cJSON_CreateString(choices[i].title));
	}
	cJSON_AddItemToArray(
		cJSON_AddArrayToObject(schema, "required"), cJSON_CreateString("decision"));
	return schema;
}

static cJSON *elicit_params(const struct permission_question *question, bool modern)
{
	cJSON *params = cJSON_CreateObject();
	struct buffer message cleanup_buffer = {0};
	bool shown = permission_question_text(question, &message) == 0 &&
		     buffer_append(&message, "", 1) == 0;

	if (modern)
		cJSON_AddStringToObject(params, "mode", "form");
	cJSON_AddStringToObject(params, "message",
		shown ? (const char *)message.data
		      : "There is not enough memory to show the question: do not allow it.");
	cJSON_AddItemToObject(params, "requestedSchema", decision_schema(question));
	return params;
}

/* {"action": "accept", "content": {"decision": ...}} */
static enum permission_answer read_answer(const cJSON *result)
{
	const char *action =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(result, "action"));
	const char *decision = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(result, "content"), "decision"));

	/* Hosts may send "cancel" without asking a person, and an error if they cannot ask. */
	if (!action || strcmp(action, "cancel") == 0)
		return PERMISSION_UNANSWERED;
	if (strcmp(action, "accept") != 0 || !decision)
		return PERMISSION_NO;
	if (strcmp(decision, "always") == 0)
		return PERMISSION_ALWAYS;
	return strcmp(decision, "once") == 0 ? PERMISSION_ONCE : PERMISSION_NO;
}

/* ---- With a handshake: ask and wait -------------------------------------------------------- */

int mcp_elicit(struct mcp_request *request, cJSON *params, uint64_t until_ns, cJSON **ret_result)
{
	const struct timespec until = clock_at_ns(until_ns);
	struct mcp_server *server = request->server;
	char id[32];

	pthread_mutex_lock(&server->lock);
	if (server->questions >= MCP_QUESTIONS_MAX) {
		pthread_mutex_unlock(&server->lock);
		cJSON_Delete(params);
		return -EBUSY;
	}
	server->questions++;
	snprintf(id, sizeof(id), "isthmus-%u", ++server->next_question);
	request->elicitation = id;
	pthread_mutex_unlock(&server->lock);
	mcp_ask(server, id, "elicitation/create", params);
	pthread_mutex_lock(&server->lock);
	while (!request->elicited && !request->cancelled &&
		pthread_cond_timedwait(&request->news, &server->lock, &until) == 0)
		;
	request->elicitation = NULL;
	*ret_result = request->elicited;
	request->elicited = NULL;
	server->questions--;
	pthread_mutex_unlock(&server->lock);
	return 0;
}

static enum permission_answer ask_and_wait(
	struct mcp_request *request, const struct permission_question *question)
{
	uint64_t until_ns = clock_now_ns() + QUESTION_SECONDS * 1000000000ULL;
	enum permission_answer answer;
	cJSON *result;

	if (mcp_elicit(request, elicit_params(question, false), until_ns, &result) < 0)
		return PERMISSION_BUSY;
	answer = result ? read_answer(result) : PERMISSION_UNANSWERED;
	cJSON_Delete(result);
	return answer;
}

/* ---- 2026-07-28: the answer comes with the next call ------------------------------ */

static char *print_call(const struct mcp_request *request)
{
	cJSON *call = cJSON_CreateArray();
	char *text;

	cJSON_AddItemToArray(call,
		cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(request->params, "name"), true));
	cJSON_AddItemToArray(call,
		cJSON_Duplicate(
			cJSON_GetObjectItemCaseSensitive(request->params, "arguments"), true));
	text = cJSON_PrintUnformatted(call);
	cJSON_Delete(call);
	return text;
}

bool mcp_same_call(const struct mcp_request *a, const struct mcp_request *b)
{
	cleanup_free char *one = print_call(a), *other = print_call(b);

	return one && other && strcmp(one, other) == 0;
}

static struct state *take_state(struct mcp_states *states, const char *token)
{
	struct state **at, *state = NULL;

	pthread_mutex_lock(&states->lock);
	for (at = &states->list; *at; at = &(*at)->next) {
		if (strcmp((*at)->token, token) == 0) {
			state = *at;
			*at = state->next;
			break;
		}
	}
	pthread_mutex_unlock(&states->lock);
	return state;
}

static void keep_state(struct mcp_states *states, struct state *state)
{
	struct state **at;
	unsigned count = 0;

	pthread_mutex_lock(&states->lock);
	state->next = states->list;
	states->list = state;
	/* Drop the oldest, which are at the end. */
	for (at = &states->list; *at; at = &(*at)->next) {
		if (++count <= STATES_MAX && state->made - (*at)->made < STATE_SECONDS)
			continue;
		while (*at) {
			struct state *old = *at;

			*at = old->next;
			state_free(old);
		}
		break;
	}
	pthread_mutex_unlock(&states->lock);
}

int mcp_states_take(struct mcp_request *request)
{
	const cJSON *token = cJSON_GetObjectItemCaseSensitive(request->params, "requestState");
	const cJSON *response = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(request->params, "inputResponses"), "permission");
	cleanup_free char *call = print_call(request);
	struct state *state;
	int r = -1;

	if (!token)
		return 0;
	state = cJSON_IsString(token) ? take_state(request->server->states, token->valuestring)
				      : NULL;
	if (state && call && strcmp(call, state->call) == 0 &&
		time(NULL) - state->made < STATE_SECONDS) {
		static const char *const words[] = {"once", "always", "no", "none"};

		if (state->asked && response)
			cJSON_AddStringToObject(
				state->answers, state->asked, words[read_answer(response)]);
		request->questions = state->answers;
		state->answers = NULL;
		r = 0;
	}
	state_free(state);
	return r;
}

static enum permission_answer ask_later(
	struct mcp_request *request, const struct permission_question *question)
{
	const char *answer = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(request->questions, question->sentence));
	cJSON *asked;

	if (answer)
		return strcmp(answer, "once") == 0     ? PERMISSION_ONCE
		       : strcmp(answer, "always") == 0 ? PERMISSION_ALWAYS
		       : strcmp(answer, "none") == 0   ? PERMISSION_UNANSWERED
						       : PERMISSION_NO;
	asked = cJSON_CreateObject();
	cJSON_AddStringToObject(asked, "method", "elicitation/create");
	cJSON_AddItemToObject(asked, "params", elicit_params(question, true));
	cJSON_AddStringToObject(asked, "sentence", question->sentence);
	cJSON_Delete(request->elicited);
	request->elicited = asked;
	return PERMISSION_LATER;
}

cJSON *mcp_states_question(struct mcp_request *request)
{
	struct state *state = calloc(1, sizeof(*state));
	cJSON *result = cJSON_CreateObject(), *asked = request->elicited;
	const char *sentence =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(asked, "sentence"));
	uint64_t random[2];

	if (!state || getrandom(random, sizeof(random), 0) != sizeof(random)) {
		state_free(state);
		cJSON_Delete(result);
		return NULL;
	}
	snprintf(state->token, sizeof(state->token), "%016llx%016llx",
		(unsigned long long)random[0], (unsigned long long)random[1]);
	state->made = time(NULL);
	state->call = print_call(request);
	state->asked = sentence ? strdup(sentence) : NULL;
	state->answers = request->questions ? request->questions : cJSON_CreateObject();
	request->questions = NULL;
	request->elicited = NULL;
	cJSON_DeleteItemFromObjectCaseSensitive(asked, "sentence");
	cJSON_AddStringToObject(result, "resultType", "input_required");
	cJSON_AddItemToObject(
		cJSON_AddObjectToObject(result, "inputRequests"), "permission", asked);
	cJSON_AddStringToObject(result, "requestState", state->token);
	keep_state(request->server->states, state);
	return result;
}

int mcp_ask_permission(struct tool_call *call, const struct permission_question *question)
{
	struct mcp_request *request = call->asker;

	if (!request->can_elicit)
		return PERMISSION_NOBODY;
	return request->modern ? ask_later(request, question) : ask_and_wait(request, question);
}
