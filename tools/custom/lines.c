#include "tools/custom/lines.h"

#include <errno.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/utf8.h"
#include "tools/custom/bus.h"

enum { QUEUE_MAX = 256 };

struct custom_lines {
	struct custom_process *process; /* NULL: it was ended; guarded by send_lock */
	atomic_bool ending;             /* a thread is ending it */
	pthread_mutex_t send_lock;      /* one line at a time */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct custom_channel *channels; /* guarded by lock, as are the fields below */
	bool ended;
	int exit_code, signal;
	struct custom_errors errors; /* used by the process's thread only, until it has ended */
	struct buffer input;         /* used by that thread only */
	bool skipping;               /* inside a line that is too long; used by that thread only */
	const char *ignored;         /* why a line was first ignored; static; guarded by lock */
	const char *path;            /* of the tool, for the log */
};

/* Logs the first ignored line only, as a tool that writes one invalid line writes many.  `why` is
 * static. */
static void ignore_line(struct custom_lines *lines, enum log_level level, const char *why)
{
	bool is_first;

	pthread_mutex_lock(&lines->lock);
	is_first = !lines->ignored;
	if (is_first)
		lines->ignored = why;
	pthread_mutex_unlock(&lines->lock);
	if (is_first)
		log_print(level, "\"%s\" wrote %s, ignoring it and further ones", lines->path, why);
}

/* The channel of a message.  One without a known id belongs to the call that began last, as do all
 * messages of MCP, whose ids are those of requests.  Called with the lock held. */
static struct custom_channel *find_channel(const struct custom_lines *lines, const cJSON *message)
{
	const char *id = json_text(message, "jsonrpc") ? NULL : json_text(message, "id");
	struct custom_channel *channel = lines->channels;

	while (id && channel && strcmp(channel->id, id) != 0)
		channel = channel->next;
	return channel;
}

static bool is_update(const cJSON *message)
{
	const char *type = json_text(message, "type");

	return type && strcmp(type, "update") == 0;
}

/* Whether it is the result of the call, which is taken even if the queue is full.  Called with the
 * lock held. */
static bool is_awaited(const struct custom_channel *channel, const cJSON *message)
{
	const char *type = json_text(message, "type");

	return type && !channel->has_result &&
	       (strcmp(type, "result") == 0 || strcmp(type, "error") == 0);
}

/* Called with the lock held. */
static void note_result(struct custom_channel *channel, const cJSON *message)
{
	if (!is_awaited(channel, message))
		return;
	channel->has_result = true;
	if (channel->at_result)
		channel->at_result(
			channel->user, message, strcmp(json_text(message, "type"), "error") == 0);
}

/* Refuses a question of the tool while no call runs, as there is no client to ask. */
static void refuse(struct custom_lines *lines, const cJSON *message)
{
	const char *type = json_text(message, "type"), *ask = json_text(message, "ask");
	bool is_exec = type && strcmp(type, "exec") == 0;
	cJSON *reply;

	if (!ask || !type || (!is_exec && strcmp(type, "ui_request") != 0))
		return;
	reply = cJSON_CreateObject();
	cJSON_AddStringToObject(reply, "type", is_exec ? "exec_result" : "ui_response");
	cJSON_AddStringToObject(reply, "ask", ask);
	cJSON_AddTrueToObject(reply, is_exec ? "killed" : "cancelled");
	if (is_exec) {
		cJSON_AddStringToObject(reply, "stdout", "");
		cJSON_AddStringToObject(reply, "stderr", "no call of the tool is running");
		cJSON_AddNumberToObject(reply, "code", 1);
	}
	custom_lines_send(lines, NULL, reply);
}

/* Puts a message into its channel.  If there are too many, updates are dropped first, as each
 * replaces the one before. */
static void sort_message(struct custom_lines *lines, cJSON *message)
{
	struct custom_channel *channel;
	bool is_full;
	int waiting;

	pthread_mutex_lock(&lines->lock);
	channel = find_channel(lines, message);
	waiting = channel ? cJSON_GetArraySize(channel->queue) : 0;
	is_full = channel && waiting >= (is_update(message) ? QUEUE_MAX / 2 : QUEUE_MAX);
	if (channel && (!is_full || is_awaited(channel, message))) {
		note_result(channel, message);
		cJSON_AddItemToArray(channel->queue, message);
		message = NULL;
		pthread_cond_broadcast(&lines->changed);
	}
	pthread_mutex_unlock(&lines->lock);
	if (message && !is_update(message)) {
		if (is_full)
			ignore_line(lines, LOG_LEVEL_WARNING, "more lines than a call takes");
		else /* late, as a rule */
			ignore_line(
				lines, LOG_LEVEL_INFO, "a line that is about no call that runs");
		refuse(lines, message);
	}
	cJSON_Delete(message);
}

static void take_line(struct custom_lines *lines, const char *text, size_t size)
{
	struct buffer clean cleanup_buffer = {0};
	cJSON *message = NULL;

	if (size && utf8_append_clean(&clean, text, size) == 0) {
		json_replace_escapes((char *)clean.data, clean.size);
		message = cJSON_ParseWithLength((const char *)clean.data, clean.size);
	}
	if (cJSON_IsObject(message)) {
		if (custom_bus_take(lines, message))
			cJSON_Delete(message);
		else
			sort_message(lines, message);
		return;
	}
	cJSON_Delete(message);
	if (size)
		ignore_line(lines, LOG_LEVEL_WARNING, "a line that is no JSON object");
}

static void take_output(void *user, const void *data, size_t size)
{
	struct custom_lines *lines = user;
	const char *start, *end, *newline;

	if (buffer_append(&lines->input, data, size) < 0)
		return;
	start = (const char *)lines->input.data;
	end = start + lines->input.size;
	while ((newline = memchr(start, '\n', (size_t)(end - start)))) {
		if (!lines->skipping)
			take_line(lines, start, (size_t)(newline - start));
		lines->skipping = false;
		start = newline + 1;
	}
	buffer_consume(&lines->input, (size_t)(start - (const char *)lines->input.data));
	if (lines->input.size > CUSTOM_LINE_MAX_BYTES && !lines->skipping) {
		ignore_line(lines, LOG_LEVEL_WARNING, "a line of more than 8 MiB");
		lines->skipping = true;
	}
	if (lines->skipping)
		lines->input.size = 0;
}

static void take_end(void *user, int exit_code, int signal)
{
	struct custom_lines *lines = user;

	/* The last line may have no line end. */
	if (!lines->skipping && lines->input.size)
		take_line(lines, (const char *)lines->input.data, lines->input.size);
	pthread_mutex_lock(&lines->lock);
	lines->ended = true;
	lines->exit_code = exit_code;
	lines->signal = signal;
	pthread_cond_broadcast(&lines->changed);
	pthread_mutex_unlock(&lines->lock);
}

static void lines_free(struct custom_lines *lines)
{
	buffer_done(&lines->input);
	custom_errors_done(&lines->errors);
	pthread_cond_destroy(&lines->changed);
	pthread_mutex_destroy(&lines->lock);
	pthread_mutex_destroy(&lines->send_lock);
	free(lines);
}

int custom_lines_start(const struct tool_session *session, const struct custom_source *source,
	const struct tool_call *call, struct custom_lines **ret_lines)
{
	struct custom_lines *lines = calloc(1, sizeof(*lines));
	struct custom_events events = {take_output, take_end, lines, NULL};
	int r;

	if (!lines)
		return -ENOMEM;
	events.errors = &lines->errors;
	pthread_mutex_init(&lines->lock, NULL);
	pthread_mutex_init(&lines->send_lock, NULL);
	clock_cond_init(&lines->changed);
	lines->path = lines->errors.path = source->entry.path;
	r = custom_bus_join(lines, source, call ? tool_conversation(call) : NULL);
	if (r < 0) {
		lines_free(lines);
		return r;
	}
	pthread_mutex_lock(&lines->send_lock);
	r = custom_process_start(
		session, &source->entry, "execute", call, &events, &lines->process);
	pthread_mutex_unlock(&lines->send_lock);
	if (r < 0) {
		custom_bus_leave(lines);
		lines_free(lines);
		return r;
	}
	*ret_lines = lines;
	return 0;
}

void custom_lines_close(struct custom_lines *lines)
{
	pthread_mutex_lock(&lines->send_lock);
	if (lines->process)
		custom_process_close_input(lines->process);
	pthread_mutex_unlock(&lines->send_lock);
}

void custom_lines_end(struct custom_lines *lines, int grace_ms)
{
	struct custom_process *process;

	if (atomic_exchange(&lines->ending, true))
		return;
	/* Makes a thread that is writing release send_lock. */
	process = lines->process;
	custom_process_give_up(process);
	pthread_mutex_lock(&lines->send_lock);
	lines->process = NULL;
	pthread_mutex_unlock(&lines->send_lock);
	custom_process_stop(process, grace_ms);
}

void custom_lines_stop(struct custom_lines *lines, int grace_ms)
{
	if (!lines)
		return;
	custom_lines_end(lines, grace_ms);
	custom_bus_leave(lines);
	lines_free(lines);
}

bool custom_lines_ended(struct custom_lines *lines)
{
	bool ended;

	pthread_mutex_lock(&lines->lock);
	ended = lines->ended;
	pthread_mutex_unlock(&lines->lock);
	return ended;
}

int custom_lines_send(struct custom_lines *lines, struct tool_call *call, cJSON *message)
{
	cleanup_free char *text = cJSON_PrintUnformatted(message);
	struct buffer line cleanup_buffer = {0};
	int r;

	cJSON_Delete(message);
	if (!text || buffer_printf(&line, "%s\n", text) < 0)
		return -ENOMEM;
	pthread_mutex_lock(&lines->send_lock);
	r = lines->process ? custom_process_write(lines->process, call, line.data, line.size)
			   : -EPIPE;
	pthread_mutex_unlock(&lines->send_lock);
	return r;
}

void custom_channel_open(struct custom_lines *lines, struct custom_channel *channel, const char *id)
{
	snprintf(channel->id, sizeof(channel->id), "%s", id);
	channel->queue = cJSON_CreateArray();
	pthread_mutex_lock(&lines->lock);
	channel->next = lines->channels;
	lines->channels = channel;
	pthread_mutex_unlock(&lines->lock);
}

void custom_channel_close(struct custom_lines *lines, struct custom_channel *channel)
{
	struct custom_channel **at = &lines->channels;

	pthread_mutex_lock(&lines->lock);
	while (*at != channel)
		at = &(*at)->next;
	*at = channel->next;
	pthread_mutex_unlock(&lines->lock);
	cJSON_Delete(channel->queue);
}

cJSON *custom_channel_next(struct custom_lines *lines, struct custom_channel *channel, int ms)
{
	const struct timespec until = clock_in_ms(ms);
	cJSON *message;

	pthread_mutex_lock(&lines->lock);
	while (!channel->queue->child && !lines->ended &&
		pthread_cond_timedwait(&lines->changed, &lines->lock, &until) == 0)
		;
	message = cJSON_DetachItemFromArray(channel->queue, 0);
	pthread_mutex_unlock(&lines->lock);
	return message;
}

void custom_lines_say_end(struct custom_lines *lines, struct buffer *message)
{
	buffer_printf(message, "%s %d", lines->signal ? "signal" : "exit",
		lines->signal ? lines->signal : lines->exit_code);
	custom_errors_say(&lines->errors, ": ", message);
	if (lines->ignored)
		buffer_printf(message, "; it wrote %s", lines->ignored);
}
