#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/remote/client/client_internal.h"

/* ---- The table of calls --------------------------------------------------------- */

void call_free(struct call *call)
{
	if (!call)
		return;
	while (call->first) {
		struct call_data *next = call->first->next;

		free(call->first->payload);
		free(call->first);
		call->first = next;
	}
	free(call->payload);
	wire_writer_done(&call->content);
	free(call);
}

pthread_cond_t *call_answered(struct remote *remote, uint32_t id)
{
	return &remote->answered[id % ANSWER_CONDITIONS];
}

/* Under the lock. */
static struct call *find_call(struct remote *remote, uint32_t id)
{
	struct call *call = remote->calls[id % CALL_SLOTS];

	return call && call->id == id ? call : NULL;
}

static void unregister_call(struct call *call)
{
	struct remote *remote = call->remote;

	if (find_call(remote, call->id) != call)
		return;
	remote->calls[call->id % CALL_SLOTS] = NULL;
	if (call->channel)
		remote_channel_put(call->channel);
	if (--remote->call_count == CALLS_MAX - 1)
		pthread_cond_broadcast(&remote->freed);
}

/* Under the lock. */
static bool is_outdated(const struct remote_request *request)
{
	const struct object_ref *object = request->object;
	const struct remote_file *files[] = {request->gives_back ? NULL : request->file,
		object && object->file ? remote_file_of(object->file) : NULL, request->uses};

	for (size_t i = 0; i < array_size(files); i++)
		if (files[i] && files[i]->epoch != request->remote->epoch)
			return true;
	return false;
}

static enum lane_priority priority_of(const struct remote_request *request)
{
	bool is_behind =
		request->order || (request->is_behind_writes && request->remote->write_bytes > 0);

	return is_behind && !request->is_urgent ? LANE_BULK : LANE_URGENT;
}

/* Sends a copy: the connection may break before it has arrived. */
static int queue_content(const struct call *call, struct lane *lane)
{
	const struct buffer *content = &call->content.buffer;
	cleanup_wire_writer struct wire_writer copy = {0};

	lane_writer_init(&copy);
	wire_put_raw(&copy, content->data + FRAME_HEADER_BYTES, content->size - FRAME_HEADER_BYTES);
	return lane_queue(lane, LANE_BULK, FRAME_DATA, call->id, &copy);
}

/* Its content goes by a further connection, ahead of the request: content that no request will name
 * goes with its connection. */
static int queue_detached(
	struct call *call, const struct remote_request *request, struct wire_writer *out)
{
	struct remote *remote = call->remote;
	struct remote_channel *channel = remote_channel_to_write(remote);
	int r;

	if (!channel)
		return RESULT_LOST;
	r = queue_content(call, channel->lane);
	if (r < 0)
		return r;
	r = lane_queue(remote->lane, priority_of(request), call->type, call->id, out);
	if (r < 0) {
		channel->lost = true;
		return r;
	}
	remote_channel_enter(channel);
	call->channel = channel;
	return 0;
}

static int queue_call(
	struct call *call, const struct remote_request *request, struct wire_writer *out)
{
	struct remote *remote = call->remote;
	const struct remote_channel *channel;

	if (request->is_detached)
		return queue_detached(call, request, out);
	channel = call->channel = request->may_spread ? remote_channel_take(remote) : NULL;
	return lane_queue(channel ? channel->lane : remote->lane, priority_of(request), call->type,
		call->id, out);
}

/* The frame is in the lane as soon as the call is in the table: when a session ends, what was not
 * sent is found there and withdrawn. */
static int register_call(struct call *call, const struct remote_request *request,
	struct wire_writer *out, struct lane **ret_lane)
{
	struct remote *remote = call->remote;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (remote->call_count >= CALLS_MAX && r == 0 && !call->gives_back)
		r = request->at_once
			    ? RESULT_BUSY
			    : remote_wait(remote, request->ctx, &remote->freed, &remote->lock);
	if (remote->call_count >= CALL_SLOTS)
		r = -EIO;
	if (r == 0 && is_outdated(request))
		r = RESULT_AGAIN;
	if (r == 0) {
		do
			call->id = ++remote->call_serial;
		while (remote->calls[call->id % CALL_SLOTS]);
		remote->calls[call->id % CALL_SLOTS] = call;
		remote->call_count++;
		call->epoch = remote->epoch;
		r = queue_call(call, request, out);
		*ret_lane = call->channel ? call->channel->lane : remote->lane;
		if (r < 0)
			unregister_call(call);
	}
	pthread_mutex_unlock(&remote->lock);
	return r;
}

int remote_wait_for_slot(struct remote *remote, struct op_context *ctx)
{
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (remote->call_count >= CALLS_MAX && r == 0)
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	pthread_mutex_unlock(&remote->lock);
	return r;
}

int call_new(const struct remote_request *request, struct call **ret_call)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	call->remote = request->remote;
	call->type = request->type;
	call->gives_back = request->gives_back;
	call->makes = request->makes;
	call->lock = request->lock;
	call->repeatable =
		!request->only_once && (request_flags(request->type) & REQUEST_IS_REPEATABLE);
	call->last = &call->first;
	*ret_call = call;
	return 0;
}

int call_send(struct call *call, const struct remote_request *request, struct wire_writer *out)
{
	struct remote *remote = call->remote;
	struct lane *lane;
	int r;

	if (remote->bad_since_ms && !remote->is_wanted) {
		remote->is_wanted = true;
		pthread_cond_signal(&remote->manager);
	}
	if (!call->gives_back && remote_is_offline(remote))
		return -EIO;
	r = register_call(call, request, out, &lane);
	if (r == 0)
		lane_push(lane);
	if (r == 0 && lane != remote->lane && request->is_detached)
		lane_push(remote->lane);
	return r == -EMSGSIZE ? -E2BIG : r;
}

void call_cancel(struct call *call)
{
	if (!call->gives_back)
		lane_send(call->remote->lane, LANE_URGENT, FRAME_CANCEL, call->id, NULL);
}

bool call_abandon(struct call *call)
{
	call->abandoned =
		!call->done && (call->gives_back || !lane_withdraw(call->remote->lane, call->id));
	return call->abandoned;
}

void call_drop(struct call *call)
{
	if (!call)
		return;
	pthread_mutex_lock(&call->remote->lock);
	unregister_call(call);
	pthread_mutex_unlock(&call->remote->lock);
	call_free(call);
}

/* ---- The reader thread ------------------------------------------------------------------ */

/* Something that nobody knows of any more is given back. */
static void undo(struct call *call)
{
	struct op_context ctx;
	cleanup_remote_request struct remote_request request = {
		&ctx, call->remote, REQUEST_CLOSE, .gives_back = true};

	if (call->result < 0 || !call->makes)
		return;
	op_context_init(&ctx);
	wire_put_number(&request.arguments, call->makes);
	switch (call->type) {
	case REQUEST_MKDIR:
	case REQUEST_OPEN:
	case REQUEST_CREATE:
	case REQUEST_CREATE_UNNAMED:
		remote_request_give_back(&request);
		return;
	case REQUEST_LOCK:
		request.type = REQUEST_LOCK;
		call->lock.type = LOCK_NONE;
		wire_put_lock(&request.arguments, &call->lock);
		wire_put_number(&request.arguments, 0);
		wire_put_number(&request.arguments, 0);
		remote_request_give_back(&request);
		return;
	case REQUEST_EXEC:
		lane_send(call->remote->lane, LANE_URGENT, FRAME_KILL, (uint32_t)call->makes, NULL);
		return;
	default:
		return;
	}
}

/* Under the lock.  Returns true when the call is the caller's to complete or free; else whoever
 * waits for it is to be woken. */
static bool finish_call(struct call *call, int64_t result)
{
	call->result = result;
	call->done = true;
	if (call->complete || call->abandoned) {
		unregister_call(call);
		return true;
	}
	return false;
}

static void dispose(struct call *call)
{
	if (call->complete) {
		call->complete(call);
		return;
	}
	undo(call);
	call_free(call);
}

static int take_reply(struct remote *remote, uint32_t id, uint8_t *payload, size_t size)
{
	struct wire_reader body = wire_reader_over(payload, size);
	uint64_t position;
	int64_t result = wire_get_result(&body, &position);
	struct call *call;
	bool ours = false;

	if (body.failed || !remote_position_is_good(position)) {
		free(payload);
		return -EPROTO;
	}
	pthread_mutex_lock(&remote->lock);
	call = find_call(remote, id);
	if (call && !call->done) {
		if (result > 0 && !(request_flags(call->type) & REQUEST_HAS_COUNT))
			result = -EIO;
		call->payload = payload;
		call->body = body;
		call->base = remote_base(remote);
		call->position = position ? position + call->base : 0;
		call->changes = remote->feed_received;
		ours = finish_call(call, result);
		payload = NULL;
	}
	pthread_mutex_unlock(&remote->lock);
	free(payload);
	if (ours)
		dispose(call);
	else
		pthread_cond_broadcast(call_answered(remote, id));
	return 0;
}

static int take_data(struct remote *remote, uint32_t id, uint8_t *payload, size_t size)
{
	struct call_data *part = calloc(1, sizeof(*part));
	struct call *call;
	int r = 0;

	if (!part) {
		free(payload);
		return -ENOMEM;
	}
	part->payload = payload;
	part->size = size;
	pthread_mutex_lock(&remote->lock);
	call = find_call(remote, id);
	if (call && (!(request_flags(call->type) & REQUEST_IS_LISTING) ||
			    call->data_bytes > 2 * CREDIT_LISTING_BYTES)) {
		r = -EPROTO;
	} else if (call && !call->abandoned && !call->done) {
		part->base = remote_base(remote);
		call->data_bytes += size + FRAME_HEADER_BYTES;
		*call->last = part;
		call->last = &part->next;
		part = NULL;
	}
	pthread_mutex_unlock(&remote->lock);
	pthread_cond_broadcast(call_answered(remote, id));
	if (part)
		free(part->payload);
	free(part);
	return r;
}

int remote_take_answer(struct remote *remote, const struct frame_header *header, uint8_t *payload)
{
	return header->type == FRAME_REPLY ? take_reply(remote, header->id, payload, header->size)
					   : take_data(remote, header->id, payload, header->size);
}

/* Under the lock, which it drops where somebody is to be told. */
static void fail_call(struct call *call, int64_t result)
{
	struct remote *remote = call->remote;

	if (!finish_call(call, result)) {
		pthread_cond_broadcast(call_answered(remote, call->id));
		return;
	}
	pthread_mutex_unlock(&remote->lock);
	dispose(call);
	pthread_mutex_lock(&remote->lock);
}

/* Of a session that is gone.  Under remote->lock. */
static bool withdraw(void *user, uint32_t id)
{
	struct remote *remote = user;
	struct call *call = find_call(remote, id);

	if (!call || call->done || call->epoch == remote->epoch)
		return false;
	call->withdrawn = true;
	return true;
}

void remote_fail_calls(struct remote *remote)
{
	size_t left = remote->call_count;

	remote->epoch++;
	lane_withdraw_all(remote->lane, withdraw, remote);
	for (size_t i = 0; i < CALL_SLOTS && left; i++) {
		struct call *call = remote->calls[i];
		int64_t result;

		left -= call != NULL;
		if (!call || call->done || call->epoch == remote->epoch)
			continue;
		result = call->withdrawn || call->repeatable ? RESULT_AGAIN : -EIO;
		fail_call(call, result);
	}
}

/* Under the lock. */
static bool send_content_again(struct call *call)
{
	struct remote *remote = call->remote;

	if (call->epoch == remote->epoch && queue_content(call, remote->lane) < 0)
		return false;
	remote_channel_put(call->channel);
	call->channel = NULL;
	return true;
}

bool remote_fail_calls_of(struct remote *remote, const struct remote_channel *channel)
{
	bool complete = true;

	for (size_t i = 0; i < CALL_SLOTS; i++) {
		struct call *call = remote->calls[i];

		if (!call || call->done || call->channel != channel)
			continue;
		if (call->type == REQUEST_WRITE_DETACHED)
			complete = send_content_again(call) && complete;
		else
			fail_call(call, RESULT_LOST);
	}
	return complete;
}
