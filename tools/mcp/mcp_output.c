#include <errno.h>
#include <string.h>

#include "tools/mcp/mcp.h"
#include "tools/text/text.h"

/* Writes a line.  If stdout is closed, all output is dropped; the server ends at the end of its
 * input. */
static void write_line(struct mcp_server *server, struct buffer *line)
{
	const uint8_t *at = line->data;
	size_t left;

	if (buffer_append(line, "\n", 1) < 0)
		return;
	at = line->data;
	left = line->size;
	while (left && !server->output_lost) {
		ssize_t done = write(STDOUT_FILENO, at, left);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			server->output_lost = true;
			break;
		}
		at += done;
		left -= (size_t)done;
	}
}

/* Sends one message, or adds it to its batch.  With write_lock held. */
static void send_message(struct mcp_server *server, struct mcp_batch *batch, struct buffer *line)
{
	if (!batch) {
		write_line(server, line);
		return;
	}
	buffer_append_string(&batch->text, batch->text.size ? "," : "[");
	buffer_append(&batch->text, line->data, line->size);
}

void mcp_batch_done(struct mcp_server *server, struct mcp_batch *batch)
{
	if (!batch)
		return;
	pthread_mutex_lock(&server->write_lock);
	if (--batch->pending == 0) {
		if (batch->text.size) {
			buffer_append_string(&batch->text, "]");
			write_line(server, &batch->text);
		}
		buffer_done(&batch->text);
		free(batch);
	}
	pthread_mutex_unlock(&server->write_lock);
}

static void send_parts(struct mcp_server *server, struct mcp_batch *batch, const char *id,
	const char *key, char *value)
{
	struct buffer line cleanup_buffer = {0};

	if (value &&
		buffer_printf(&line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":", id ? id : "null",
			key) == 0 &&
		buffer_append_string(&line, value) == 0 && buffer_append(&line, "}", 1) == 0) {
		pthread_mutex_lock(&server->write_lock);
		send_message(server, batch, &line);
		pthread_mutex_unlock(&server->write_lock);
	}
	free(value);
}

/* Reserves the right to answer the request.  False: it was answered or cancelled. */
static bool claim_answer(struct mcp_request *request)
{
	bool may;

	if (!request->id)
		return false;
	pthread_mutex_lock(&request->server->lock);
	may = !request->cancelled && !request->answered;
	request->answered = true;
	pthread_mutex_unlock(&request->server->lock);
	return may;
}

void mcp_answer(struct mcp_request *request, cJSON *result)
{
	char *text;

	if (request->modern && !cJSON_GetObjectItemCaseSensitive(result, "resultType"))
		cJSON_AddStringToObject(result, "resultType", "complete");
	text = cJSON_PrintUnformatted(result);
	cJSON_Delete(result);
	if (claim_answer(request))
		send_parts(request->server, request->batch, request->id, "result", text);
	else
		free(text);
}

static char *error_text(enum mcp_error code, const char *message, cJSON *data)
{
	cJSON *error = cJSON_CreateObject();
	char *text;

	cJSON_AddNumberToObject(error, "code", code);
	cJSON_AddStringToObject(error, "message", message);
	if (data)
		cJSON_AddItemToObject(error, "data", data);
	text = cJSON_PrintUnformatted(error);
	cJSON_Delete(error);
	return text;
}

void mcp_fail(struct mcp_request *request, enum mcp_error code, const char *message, cJSON *data)
{
	char *text = error_text(code, message, data);

	if (claim_answer(request))
		send_parts(request->server, request->batch, request->id, "error", text);
	else
		free(text);
}

void mcp_fail_raw(struct mcp_server *server, struct mcp_batch *batch, const char *id,
	enum mcp_error code, const char *message, cJSON *data)
{
	send_parts(server, batch, id, "error", error_text(code, message, data));
}

static void send_call(struct mcp_server *server, const char *id, const char *method, cJSON *params)
{
	cJSON *message = cJSON_CreateObject();
	struct buffer line cleanup_buffer = {0};
	char *text;

	cJSON_AddStringToObject(message, "jsonrpc", "2.0");
	if (id)
		cJSON_AddStringToObject(message, "id", id);
	cJSON_AddStringToObject(message, "method", method);
	cJSON_AddItemToObject(message, "params", params);
	text = cJSON_PrintUnformatted(message);
	cJSON_Delete(message);
	if (text && buffer_append_string(&line, text) == 0) {
		pthread_mutex_lock(&server->write_lock);
		write_line(server, &line);
		pthread_mutex_unlock(&server->write_lock);
	}
	free(text);
}

void mcp_notify(struct mcp_server *server, const char *method, cJSON *params)
{
	send_call(server, NULL, method, params);
}

void mcp_ask(struct mcp_server *server, const char *id, const char *method, cJSON *params)
{
	send_call(server, id, method, params);
}
