#include "tools/base/tool.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#include "ops/support/clock.h"
#include "ops/support/control.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/reach.h"
#include "ops/support/utf8.h"
#include "tools/base/jobs.h"

/* ---- Session and call ------------------------------------------------------- */

int tool_session_open(const char *directory, struct tool_session *ret_session)
{
	struct tool_session session = {0};
	int r = files_root_open(directory, &session.root);

	if (r < 0)
		return r;
	/* Fails harmlessly outside a mount; a mount with a dead daemon has failed above. */
	control_find(session.root.path, &session.control_socket, &session.mount_point,
		&session.workspace_path);
	session.jobs = jobs_new();
	*ret_session = session;
	return session.jobs ? 0 : -ENOMEM;
}

void tool_session_close(struct tool_session *session)
{
	jobs_free(session->jobs);
	files_root_close(&session->root);
	free(session->control_socket);
	free(session->mount_point);
	free(session->workspace_path);
	free(session->problem);
}

static void make_call_id(char id[64])
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	snprintf(id, 64, "call-%016llx", (unsigned long long)random);
}

struct tool_call *tool_call_new(struct tool_session *session, const struct tool *tool,
	cJSON *arguments, const char *call_id)
{
	struct tool_call *call = calloc(1, sizeof(*call));

	if (!arguments)
		arguments = cJSON_CreateObject();
	if (!call || !arguments) {
		free(call);
		cJSON_Delete(arguments);
		return NULL;
	}
	call->tool = tool;
	call->session = session;
	call->arguments = arguments;
	call->data = cJSON_CreateObject();
	call->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (call_id)
		snprintf(call->call_id, sizeof(call->call_id), "%s", call_id);
	else
		make_call_id(call->call_id);
	if (!call->data || call->cancel_fd < 0) {
		tool_call_free(call);
		return NULL;
	}
	return call;
}

void tool_call_free(struct tool_call *call)
{
	if (!call)
		return;
	if (call->state_free)
		call->state_free(call->state);
	cJSON_Delete(call->arguments);
	cJSON_Delete(call->data);
	free(call->conversation);
	buffer_done(&call->text);
	free(call->remark);
	free(call->user);
	buffer_done(&call->notes);
	buffer_done(&call->image.bytes);
	free(call->image.mime_type);
	free(call->message);
	free(call->ai_message);
	free(call->search_path);
	if (call->cancel_fd >= 0)
		close(call->cancel_fd);
	free(call);
}

void tool_cancel(struct tool_call *call)
{
	const uint64_t one = 1;

	atomic_store(&call->cancelled, true);
	(void)!write(call->cancel_fd, &one, sizeof(one));
}

/* ---- Failing ------------------------------------------------------------------ */

/* If the mount cannot reach its workspace, that is the reason of the failure: says so. */
static enum tool_error_code see_reach(
	const struct tool_session *session, enum tool_error_code code, struct buffer *message)
{
	cleanup_free char *problem = NULL;

	if ((code != TOOL_IO_ERROR && code != TOOL_NOT_CONNECTED) || !session->control_socket)
		return code;
	problem = reach_problem(session->control_socket, REACH_WAIT_MS);
	if (!problem)
		return code;
	buffer_printf(message, " %s", problem);
	return TOOL_NOT_CONNECTED;
}

static bool root_is_gone(const struct files_root *root)
{
	struct stat open, named;

	if (fstat(root->fd, &open) < 0)
		return false;
	if (stat(root->path, &named) < 0)
		return errno == ENOENT;
	return open.st_dev != named.st_dev || open.st_ino != named.st_ino;
}

static int fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	struct buffer *message)
{
	const struct tool_error_info *info;
	struct buffer clean cleanup_buffer = {0};

	if (call->code != TOOL_OK)
		return -1;
	call->code = code = see_reach(call->session, code, message);
	info = tool_error_info(code);
	call->recoverable = info->recoverable;
	if (code == TOOL_NOT_FOUND && root_is_gone(&call->session->root)) {
		buffer_printf(message, " The root directory \"%s\" was moved, removed or replaced.",
			call->session->root.path);
		next_step = "Ask the user to start the tools again where it is now.";
		call->recoverable = false;
	}
	utf8_append_clean(&clean, message->data, message->size);
	call->message = buffer_steal_string(&clean);
	if (!next_step)
		next_step = info->next_step;
	if (asprintf(&call->ai_message, "%s%s%s", call->message ? call->message : info->name,
		    *next_step ? " " : "", next_step) < 0)
		call->ai_message = NULL;
	return -1;
}

int tool_fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	const char *format, ...)
{
	struct buffer message cleanup_buffer = {0};
	va_list arguments;

	va_start(arguments, format);
	buffer_vprintf(&message, format, arguments);
	va_end(arguments);
	return fail(call, code, next_step, &message);
}

int tool_fail_errno(struct tool_call *call, int error, const char *action, const char *path)
{
	struct buffer message cleanup_buffer = {0};
	cleanup_free char *near = NULL;
	const char *reason, *next_step = NULL;
	enum tool_error_code code = tool_error_from_errno(error, &reason);

	if (code == TOOL_NOT_FOUND && path && call->near_names)
		near = call->near_names(call, path);
	if (path)
		buffer_printf(
			&message, "Cannot %s \"%s\": %s.", action, *path ? path : ".", reason);
	else
		buffer_printf(&message, "Cannot %s: %s.", action, reason);
	if (near)
		buffer_printf(&message, " Names like it: %s.", near);
	else if (code == TOOL_NOT_FOUND && path && strstr(path, "\xef\xbf\xbd"))
		next_step = "U+FFFD stands for a byte that is not UTF-8, which no path can name "
			    "here: use bash with a pattern, in which ? stands for such a byte.";
	return fail(call, code, next_step, &message);
}

static void add_sentence(char **text, const struct buffer *sentence)
{
	char *longer = NULL;

	if (!*text || asprintf(&longer, "%s %.*s", *text, (int)sentence->size,
			      (const char *)sentence->data) < 0)
		return;
	free(*text);
	*text = longer;
}

void tool_fail_more(struct tool_call *call, const char *format, ...)
{
	struct buffer piece cleanup_buffer = {0}, clean cleanup_buffer = {0};
	va_list arguments;

	va_start(arguments, format);
	buffer_vprintf(&piece, format, arguments);
	va_end(arguments);
	utf8_append_clean(&clean, piece.data, piece.size);
	add_sentence(&call->message, &clean);
	add_sentence(&call->ai_message, &clean);
}

int tool_check_search(struct tool_call *call, const char *path, bool found, char **ret_notice)
{
	const char *socket = call->session->control_socket;
	cleanup_free char *problem = socket ? reach_problem(socket, 0) : NULL;

	if (!problem)
		return 0;
	if (!found)
		return tool_fail_errno(call, -ENOTCONN, "search", path);
	*ret_notice = string_printf("%s Only what is cached here was searched, as it was when the "
				    "link was last there.",
		problem);
	return *ret_notice ? 0 : tool_fail_errno(call, -ENOMEM, "search", path);
}

/* ---- Output and arguments -------------------------------------------------------- */

void tool_update(struct tool_call *call, const char *text, size_t size)
{
	if (call->sink.update && size)
		call->sink.update(call->sink.user, text, size);
}

int tool_text(struct tool_call *call, const char *format, ...)
{
	struct buffer piece cleanup_buffer = {0};
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = buffer_vprintf(&piece, format, arguments);
	va_end(arguments);
	if (r == 0)
		r = utf8_append_clean(&call->text, piece.data, piece.size);
	return r < 0 ? tool_fail_errno(call, r, "keep the output", NULL) : 0;
}

void tool_remark(struct tool_call *call, const char *format, ...)
{
	struct buffer line cleanup_buffer = {0};
	va_list arguments;
	char *whole;

	va_start(arguments, format);
	if (call->remark)
		buffer_printf(&line, "%s\n", call->remark);
	buffer_vprintf(&line, format, arguments);
	va_end(arguments);
	whole = buffer_steal_string(&line);
	if (!whole)
		return;
	free(call->remark);
	call->remark = whole;
}

static const cJSON *argument(const struct tool_call *call, const char *name)
{
	return json_member(call->arguments, name);
}

const char *tool_string(const struct tool_call *call, const char *name)
{
	return cJSON_GetStringValue(argument(call, name));
}

double tool_number(const struct tool_call *call, const char *name, double fallback)
{
	const cJSON *item = argument(call, name);

	return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

int64_t tool_integer(const struct tool_call *call, const char *name, int64_t fallback)
{
	return (int64_t)tool_number(call, name, (double)fallback);
}

bool tool_flag(const struct tool_call *call, const char *name)
{
	return cJSON_IsTrue(argument(call, name));
}

int tool_path(struct tool_call *call, const char *name, char **ret_path)
{
	const char *given = tool_string(call, name);
	int r = files_resolve(&call->session->root, given ? given : "", ret_path);

	if (r == -EXDEV)
		return tool_fail(call, TOOL_PATH_OUTSIDE_ROOT, NULL,
			"\"%s\" is outside the root directory \"%s\".", given,
			call->session->root.path);
	return r < 0 ? tool_fail_errno(call, r, "use", given) : 0;
}

/* ---- The mount ------------------------------------------------------------------------ */

static cJSON *ask_mount(const struct tool_session *session, cJSON *request)
{
	cleanup_free char *text = request ? cJSON_PrintUnformatted(request) : NULL;
	cleanup_free char *reply = NULL;

	cJSON_Delete(request);
	if (!text || control_call(session->control_socket, text, &reply) < 0)
		return NULL;
	return cJSON_Parse(reply);
}

static uint64_t take_seq(cJSON *reply, const char *name)
{
	const cJSON *item = json_member(reply, name);
	uint64_t seq = cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : 0;

	cJSON_Delete(reply);
	return seq;
}

static void add_name(cJSON *request, const char *key, const char *value)
{
	char name[LOG_NAME_MAX_BYTES + 1];

	if (!value || !*value)
		return;
	snprintf(name, sizeof(name), "%s", value);
	cJSON_AddStringToObject(request, key, name);
}

/* Registers the thread id, as the kernel tells the mount which thread made a request. */
void tool_mount_begin(struct tool_call *call)
{
	cJSON *request = cJSON_CreateObject();

	call->thread = gettid();
	cJSON_AddStringToObject(request, "request", "call_begin");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	cJSON_AddStringToObject(request, "tool", call->tool->name);
	cJSON_AddNumberToObject(request, "pid", call->thread);
	add_name(request, "agent", call->agent);
	add_name(request, "user", call->user ? call->user : call->session->user);
	add_name(request, "conversation", tool_conversation(call));
	call->first_seq = take_seq(ask_mount(call->session, request), "first_seq");
}

void tool_join_thread(struct tool_call *call)
{
	cJSON *request;

	/* The threads of the process that registered the call are known. */
	if (!call->session->control_socket || call->thread == getpid())
		return;
	request = cJSON_CreateObject();
	cJSON_AddStringToObject(request, "request", "call_join");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	cJSON_AddNumberToObject(request, "pid", gettid());
	cJSON_Delete(ask_mount(call->session, request));
}

void tool_mount_end(struct tool_call *call)
{
	cJSON *request;

	if (call->mount_ended)
		return;
	request = cJSON_CreateObject();
	cJSON_AddStringToObject(request, "request", "call_end");
	cJSON_AddStringToObject(request, "call_id", call->call_id);
	call->last_seq = take_seq(ask_mount(call->session, request), "last_seq");
}
