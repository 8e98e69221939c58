#include "tools/mcp/mcp.h"

#include <limits.h>
#include <string.h>
#include <sys/xattr.h>

#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/commands.h"
#include "tools/custom/custom.h"
#include "tools/custom/messages.h"
#include "tools/custom/session.h"
#include "tools/syntax/syntax.h"

#define META "io.modelcontextprotocol/"

static const char modern_version[] = "2026-07-28";

/* The versions with a handshake, the newest first. */
static const char *const handshake_versions[] = {
	"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

/* ---- The methods --------------------------------------------------------------------- */

static void add_implementation(cJSON *object, const char *name)
{
	cJSON *info = cJSON_AddObjectToObject(object, name);

	cJSON_AddStringToObject(info, "name", "isthmus");
	cJSON_AddStringToObject(info, "title", "isthmus workspace tools");
	cJSON_AddStringToObject(info, "version", ISTHMUS_VERSION);
}

static const char channel_capability[] = "claude/channel";

/* Sends a message of a custom tool at once, if the client takes messages at any time. */
static void send_message(void *user, cJSON *message)
{
	cJSON *params = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(params, "meta");

	cJSON_AddItemToObject(
		params, "content", cJSON_DetachItemFromObjectCaseSensitive(message, "text"));
	cJSON_AddItemToObject(
		meta, "type", cJSON_DetachItemFromObjectCaseSensitive(message, "custom_type"));
	cJSON_Delete(message);
	mcp_notify(user, "notifications/claude/channel", params);
}

static void add_channel(cJSON *result, struct mcp_server *server)
{
	cJSON *capabilities = cJSON_GetObjectItemCaseSensitive(result, "capabilities");

	cJSON_AddObjectToObject(
		cJSON_AddObjectToObject(capabilities, "experimental"), channel_capability);
	custom_messages_redirect(send_message, server);
}

/* Whether the session is on a mount of another machine; "local:" is this machine. */
static bool is_elsewhere(const struct tool_session *session)
{
	char uri[2 * PATH_MAX] = "";

	return session->control_socket &&
	       getxattr(session->mount_point, "user.isthmus.uri", uri, sizeof(uri) - 1) > 0 &&
	       strncmp(uri, "local:", 6) != 0;
}

static void add_instructions(cJSON *result, const struct tool_session *session)
{
	struct buffer instructions cleanup_buffer = {0};
	const char *root = session->root.path;

	buffer_append_string(&instructions, "Tools for the files and commands of the directory ");
	utf8_append_clean(&instructions, root, strlen(root));
	buffer_append_string(&instructions, "; paths are relative to it. ");
	if (is_elsewhere(session))
		buffer_append_string(&instructions,
			"It is a mount of another place: commands of these tools run there, not "
			"on this machine. ");
	buffer_append_string(&instructions,
		"Prefer edit over write for existing files, grep and find over bash for searching. "
		"A failed call says what to do next.");
	if (buffer_append(&instructions, "", 1) == 0)
		cJSON_AddStringToObject(result, "instructions", (const char *)instructions.data);
}

static void add_capabilities(cJSON *result, const struct mcp_server *server, bool tells_changes)
{
	cJSON *tools =
		cJSON_AddObjectToObject(cJSON_AddObjectToObject(result, "capabilities"), "tools");

	if (tells_changes)
		cJSON_AddTrueToObject(tools, "listChanged");
	add_instructions(result, &server->session);
}

static const char *agree_on_version(const char *wanted)
{
	for (size_t i = 0; i < array_size(handshake_versions); i++)
		if (strcmp(handshake_versions[i], wanted) == 0)
			return handshake_versions[i];
	return handshake_versions[0];
}

/* Writes "name version" of an Implementation, cut if it is too long, possibly inside a character:
 * the log takes any bytes. */
static void take_agent(const cJSON *info, char agent[LOG_NAME_MAX_BYTES + 1])
{
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(info, "name"));
	const char *version =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(info, "version"));

	if (name)
		snprintf(agent, LOG_NAME_MAX_BYTES + 1, "%s%s%s", name, version ? " " : "",
			version ? version : "");
}

static void initialize(struct mcp_request *request)
{
	struct mcp_server *server = request->server;
	const char *wanted = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(request->params, "protocolVersion"));
	const cJSON *capabilities =
		cJSON_GetObjectItemCaseSensitive(request->params, "capabilities");
	const char *version;
	cJSON *result;

	if (!wanted) {
		mcp_fail(request, MCP_INVALID_PARAMS, "params.protocolVersion must be a string",
			NULL);
		return;
	}
	version = agree_on_version(wanted);
	take_agent(cJSON_GetObjectItemCaseSensitive(request->params, "clientInfo"), server->agent);
	server->takes_links = strcmp(version, "2025-06-18") >= 0;
	server->batches = strcmp(version, "2025-03-26") == 0;
	server->can_elicit =
		cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(capabilities, "elicitation"));
	result = cJSON_CreateObject();
	cJSON_AddStringToObject(result, "protocolVersion", version);
	add_implementation(result, "serverInfo");
	add_capabilities(result, server, true);
	if (server->has_channel ||
		json_member(json_member(capabilities, "experimental"), channel_capability))
		add_channel(result, server);
	atomic_store(&server->tells_changes, true);
	mcp_answer(request, result);
}

static cJSON *all_versions(void)
{
	cJSON *list = cJSON_CreateArray();

	cJSON_AddItemToArray(list, cJSON_CreateString(modern_version));
	for (size_t i = 0; i < array_size(handshake_versions); i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(handshake_versions[i]));
	return list;
}

static void discover(struct mcp_request *request)
{
	cJSON *result;

	if (!request->modern) {
		mcp_fail(request, MCP_INVALID_PARAMS,
			"server/discover needs params._meta with " META "protocolVersion", NULL);
		return;
	}
	result = cJSON_CreateObject();
	cJSON_AddItemToObject(result, "supportedVersions", all_versions());
	add_capabilities(result, request->server, false);
	cJSON_AddNumberToObject(result, "ttlMs", 3600000);
	cJSON_AddStringToObject(result, "cacheScope", "private");
	add_implementation(cJSON_AddObjectToObject(result, "_meta"), META "serverInfo");
	mcp_answer(request, result);
}

static void ping(struct mcp_request *request)
{
	mcp_answer(request, cJSON_CreateObject());
}

static const struct {
	const char *name;
	void (*run)(struct mcp_request *request);
} methods[] = {
	{"initialize", initialize},
	{"server/discover", discover},
	{"ping", ping},
	{"tools/list", mcp_list_tools},
};

/* ---- One message -------------------------------------------------------------------------- */

/* Checks the `_meta` of a request in the stateless protocol.  False: the request was refused. */
static bool take_envelope(struct mcp_request *request)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(request->params, "_meta");
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(meta, META "protocolVersion");
	const cJSON *capabilities =
		cJSON_GetObjectItemCaseSensitive(meta, META "clientCapabilities");
	cJSON *data;

	strcpy(request->agent, request->server->agent);
	if (!version) {
		request->can_elicit = request->server->can_elicit;
		request->takes_links = request->server->takes_links;
		return true;
	}
	request->modern = request->takes_links = true;
	if (!cJSON_IsString(version)) {
		mcp_fail(
			request, MCP_INVALID_PARAMS, META "protocolVersion must be a string", NULL);
		return false;
	}
	if (strcmp(version->valuestring, modern_version) != 0) {
		data = cJSON_CreateObject();
		cJSON_AddItemToObject(data, "supported", all_versions());
		cJSON_AddStringToObject(data, "requested", version->valuestring);
		mcp_fail(request, MCP_UNSUPPORTED_VERSION, "Unsupported protocol version", data);
		return false;
	}
	if (!cJSON_IsObject(capabilities)) {
		mcp_fail(request, MCP_INVALID_PARAMS,
			"params._meta needs " META "clientCapabilities, an object", NULL);
		return false;
	}
	take_agent(cJSON_GetObjectItemCaseSensitive(meta, META "clientInfo"), request->agent);
	request->can_elicit =
		cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(capabilities, "elicitation"));
	return true;
}

/* The raw text of the progress token in params._meta. */
static char *take_progress_token(const char *text, size_t size)
{
	cleanup_free char *params = mcp_raw_member(text, size, "params");
	cleanup_free char *meta = params ? mcp_raw_member(params, strlen(params), "_meta") : NULL;
	char *token = meta ? mcp_raw_member(meta, strlen(meta), "progressToken") : NULL;

	if (token && !mcp_is_id(token)) {
		free(token);
		return NULL;
	}
	return token;
}

static void cancel_call(struct mcp_server *server, const char *text, size_t size)
{
	cleanup_free char *params = mcp_raw_member(text, size, "params");
	cleanup_free char *id = params ? mcp_raw_member(params, strlen(params), "requestId") : NULL;

	if (!id)
		return;
	pthread_mutex_lock(&server->lock);
	for (struct mcp_request *at = server->calls; at; at = at->next)
		/* An answered call is parked (mcp_ui.c), and some clients cancel every call. */
		if (!at->answered && strcmp(at->id, id) == 0)
			mcp_cancel(at);
	pthread_mutex_unlock(&server->lock);
}

/* Takes the client's answer to a question of the server; ignores an answer to anything else. */
static void take_response(struct mcp_server *server, cJSON *message)
{
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "id"));
	cJSON *result = cJSON_DetachItemFromObjectCaseSensitive(message, "result");

	pthread_mutex_lock(&server->lock);
	for (struct mcp_request *at = server->calls; id && at; at = at->next) {
		if (!at->elicitation || strcmp(at->elicitation, id) != 0 || at->elicited)
			continue;
		/* An error counts as an answer: not allowed. */
		at->elicited = result ? result : cJSON_CreateObject();
		result = NULL;
		pthread_cond_broadcast(&at->news);
	}
	pthread_mutex_unlock(&server->lock);
	cJSON_Delete(result);
}

static void run_method(struct mcp_request *request, const char *method)
{
	cleanup_free char *message = NULL;

	if (strcmp(method, "tools/call") == 0) {
		mcp_call_tool(request);
		return;
	}
	for (size_t i = 0; i < array_size(methods); i++) {
		if (strcmp(methods[i].name, method) == 0) {
			methods[i].run(request);
			mcp_request_free(request);
			return;
		}
	}
	if (asprintf(&message, "Method not found: %s", method) < 0)
		message = NULL;
	mcp_fail(request, MCP_METHOD_NOT_FOUND, message ? message : "Method not found", NULL);
	mcp_request_free(request);
}

static struct mcp_request *request_new(
	struct mcp_server *server, struct mcp_batch *batch, const char *text, size_t size, char *id)
{
	struct mcp_request *request = calloc(1, sizeof(*request));

	if (!request) {
		free(id);
		return NULL;
	}
	request->server = server;
	request->id = id;
	request->batch = batch;
	request->progress_token = take_progress_token(text, size);
	clock_cond_init(&request->news);
	if (batch) {
		pthread_mutex_lock(&server->write_lock);
		batch->pending++;
		pthread_mutex_unlock(&server->write_lock);
	}
	return request;
}

static void take_request(struct mcp_server *server, struct mcp_batch *batch, const char *text,
	size_t size, cJSON *message, const char *method)
{
	cJSON *params = cJSON_GetObjectItemCaseSensitive(message, "params");
	char *id = mcp_raw_member(text, size, "id");
	struct mcp_request *request;

	if (!id || !mcp_is_id(id)) {
		mcp_fail_raw(server, batch, NULL, MCP_INVALID_REQUEST,
			"the id must be a string or a number", NULL);
		free(id);
		return;
	}
	request = request_new(server, batch, text, size, id);
	if (!request)
		return;
	if (params && !cJSON_IsObject(params)) {
		mcp_fail(request, MCP_INVALID_PARAMS, "params must be an object", NULL);
		mcp_request_free(request);
		return;
	}
	request->params =
		params ? cJSON_DetachItemViaPointer(message, params) : cJSON_CreateObject();
	if (json_has_escaped_nul(text, size)) {
		mcp_fail(request, MCP_INVALID_PARAMS,
			"\\u0000 cannot be part of a path, a command or a text file here", NULL);
		mcp_request_free(request);
	} else if (!take_envelope(request)) {
		mcp_request_free(request);
	} else {
		run_method(request, method);
	}
}

/* Refuses what is no message.  If it is meant as a request, its client waits for an answer with
 * its id. */
static void refuse_broken(struct mcp_server *server, struct mcp_batch *batch, const char *text,
	size_t size, enum mcp_error code, const char *problem)
{
	cleanup_free char *id = mcp_broken_id(text, size);

	mcp_fail_raw(server, batch, id, code, problem, NULL);
}

static void take_message(struct mcp_server *server, struct mcp_batch *batch, const char *text,
	size_t size, cJSON *message)
{
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(message, "jsonrpc");
	const cJSON *method = cJSON_GetObjectItemCaseSensitive(message, "method");
	bool has_id = cJSON_GetObjectItemCaseSensitive(message, "id") != NULL;

	if (!cJSON_IsObject(message) || !cJSON_IsString(version) ||
		strcmp(version->valuestring, "2.0") != 0) {
		refuse_broken(server, batch, text, size, MCP_INVALID_REQUEST,
			"a message is an object with \"jsonrpc\": \"2.0\"");
	} else if (cJSON_IsString(method) && has_id) {
		take_request(server, batch, text, size, message, method->valuestring);
	} else if (cJSON_IsString(method)) {
		if (strcmp(method->valuestring, "notifications/cancelled") == 0)
			cancel_call(server, text, size);
	} else if (!method && has_id &&
		   (cJSON_GetObjectItemCaseSensitive(message, "result") ||
			   cJSON_GetObjectItemCaseSensitive(message, "error"))) {
		take_response(server, message);
	} else {
		refuse_broken(server, batch, text, size, MCP_INVALID_REQUEST,
			"a message needs a method, or an id with a result or an error");
	}
}

static void take_batch(struct mcp_server *server, cJSON *list)
{
	struct mcp_batch *batch;
	int count = cJSON_GetArraySize(list);
	cJSON *message;

	if (!server->batches || count == 0 || count > MCP_BATCH_MAX) {
		mcp_fail_raw(server, NULL, NULL, MCP_INVALID_REQUEST,
			!server->batches ? "batches are part of protocol version 2025-03-26 only"
			: count          ? "a batch has at most 100 messages"
					 : "a batch must not be empty",
			NULL);
		return;
	}
	batch = calloc(1, sizeof(*batch));
	if (!batch)
		return;
	batch->pending = 1; /* held by this function, so that the batch lives until all are taken */
	while ((message = cJSON_DetachItemFromArray(list, 0))) {
		/* Printing would change ids of 16 or more digits: in a batch such ids are
		 * refused. */
		cleanup_free char *text = cJSON_PrintUnformatted(message);

		if (text)
			take_message(server, batch, text, strlen(text), message);
		cJSON_Delete(message);
	}
	mcp_batch_done(server, batch);
}

void mcp_take_line(struct mcp_server *server, const char *text, size_t size)
{
	struct syntax_error error = {0};
	cJSON *message = NULL;
	char problem[400];

	while (size && strchr(" \t\r", text[size - 1]) && text[size - 1])
		size--;
	if (!size)
		return;
	if (syntax_json(text, size, 0, &error) == 0)
		message = cJSON_ParseWithLength(text, size);
	if (!message) {
		if (error.line)
			snprintf(problem, sizeof(problem), "Parse error at column %zu: %s",
				error.column, error.message);
		else /* what cJSON refuses beyond that */
			snprintf(problem, sizeof(problem),
				"Parse error: half of a surrogate pair (\\ud800 to \\udfff), "
				"a number that is too long, or too deep nesting");
		refuse_broken(server, NULL, text, size, MCP_PARSE_ERROR, problem);
	} else if (cJSON_IsArray(message)) {
		take_batch(server, message);
	} else {
		take_message(server, NULL, text, size, message);
	}
	cJSON_Delete(message);
}

/* ---- The command ---------------------------------------------------------------------- */

static const char usage[] =
	"usage: isthmus mcp [--policy FILE] [--yes] [--user NAME] [--conversation ID]\n"
	"                   [--tool PATH]... [--channel] [DIR]\n"
	"\n"
	"Serves the tools for DIR (default: the current directory) to an agent, by the Model\n"
	"Context Protocol on standard input and output.\n"
	"  --policy FILE      read permission rules (isthmus-tools(1), PERMISSIONS)\n"
	"  --yes              allow everything that no rule denies\n"
	"  --tool PATH        also serve the custom tool in PATH (may be repeated)\n"
	"  --user NAME        record this user in the mount's log\n"
	"  --conversation ID  record this conversation in the mount's log\n"
	"  --channel          send messages of custom tools to Claude Code's channel at once\n";

struct options {
	const char *directory;
	const char *policy;
	const char *user, *conversation;
	bool yes, channel;
	struct custom_options custom;
};

static bool is_name_option(const char *word)
{
	return strcmp(word, "--user") == 0 || strcmp(word, "--tool") == 0 ||
	       strcmp(word, "--conversation") == 0;
}

/* 0; 1: printed the help; -1: printed an error. */
static int parse(int argc, char **argv, struct options *options)
{
	*options = (struct options){.directory = "."};
	for (int i = 1, words = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			return 1;
		}
		if (strcmp(argv[i], "--yes") == 0)
			options->yes = true;
		else if (strcmp(argv[i], "--channel") == 0)
			options->channel = true;
		else if (strcmp(argv[i], "--policy") == 0 && i + 1 < argc)
			options->policy = argv[++i];
		else if (strcmp(argv[i], "--tool") == 0 && i + 1 < argc &&
			 options->custom.path_count < CUSTOM_PATHS_MAX)
			options->custom.paths[options->custom.path_count++] = argv[++i];
		else if (strcmp(argv[i], "--user") == 0 && i + 1 < argc)
			options->user = argv[++i];
		else if (strcmp(argv[i], "--conversation") == 0 && i + 1 < argc)
			options->conversation = argv[++i];
		else if (argv[i][0] != '-' && words++ == 0)
			options->directory = argv[i];
		else {
			fprintf(stderr, "isthmus mcp: %s \"%s\"\n\n",
				strcmp(argv[i], "--policy") == 0 ? "no file after"
				: is_name_option(argv[i])        ? "no value after"
				: argv[i][0] == '-'              ? "unknown option"
								 : "more than one DIR:",
				argv[i]);
			return -1;
		}
	}
	return 0;
}

static struct mcp_server server = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.write_lock = PTHREAD_MUTEX_INITIALIZER,
	.work = PTHREAD_COND_INITIALIZER,
};

/* Tells the client that the tools have changed.  In the stateless protocol clients ask again after
 * ttlMs instead. */
static void tell_changed(void)
{
	if (atomic_load(&server.tells_changes))
		mcp_notify(&server, "notifications/tools/list_changed", NULL);
}

int mcp_command(int argc, char **argv)
{
	static struct options options; /* static: the registry keeps pointers into it */
	int r = parse(argc, argv, &options);

	if (r < 0)
		fputs(usage, stderr);
	if (r != 0)
		return r < 0 ? 2 : 0;
	options.custom.root = options.directory;
	options.custom.changed = tell_changed;
	options.custom.session = custom_session_name(options.conversation);
	custom_use(&options.custom);
	if (open_session(options.directory, options.policy, options.yes, &server.session) < 0)
		return 1;
	if (server.session.problem) {
		fprintf(stderr, "isthmus-tools: cannot work in \"%s\": %s\n", options.directory,
			server.session.problem);
		return 1;
	}
	server.session.user = options.user;
	server.session.conversation = options.custom.session;
	server.session.keeps_jobs = true;
	server.has_channel = options.channel;
	clock_cond_init(&server.idle);
	server.states = mcp_states_new();
	if (!server.states)
		return 1;
	r = mcp_serve(&server);
	custom_end();
	mcp_states_free(server.states);
	close_session(&server.session);
	return r < 0 ? 1 : 0;
}
