#include <errno.h>
#include <stdlib.h>

#include "backends/remote/client/client_internal.h"

bool remote_is_offline(struct remote *remote)
{
	int64_t since = remote->bad_since_ms;

	if (remote->is_stopped)
		return true;
	return since && remote->settings.timeout_ms != REMOTE_WAITS_FOREVER &&
	       clock_now_ms() - since >= remote->settings.timeout_ms;
}

int remote_wait(struct remote *remote, struct op_context *ctx, pthread_cond_t *condition,
	pthread_mutex_t *lock)
{
	if (op_interrupted(ctx))
		return -EINTR;
	if (remote_is_offline(remote))
		return -EIO;
	clock_cond_wait_ms(condition, lock, WAIT_MS);
	return 0;
}

void remote_count_round_trip(struct remote *remote, struct op_context *ctx)
{
	ctx->served.round_trips++;
	remote->round_trips++;
}

void remote_request_done(struct remote_request *request)
{
	wire_writer_done(&request->arguments);
}

/* ---- Sending ------------------------------------------------------------------------ */

static void put_caller(struct wire_writer *out, const struct op_context *ctx)
{
	size_t groups = ctx->group_count < GROUPS_MAX ? ctx->group_count : GROUPS_MAX;

	if (!ctx->groups)
		groups = 0;
	wire_put_number(out, ctx->uid);
	wire_put_number(out, ctx->gid);
	wire_put_number(out, ctx->umask);
	wire_put_number(out, groups);
	for (size_t i = 0; i < groups; i++)
		wire_put_number(out, ctx->groups[i]);
}

/* Through its handle if it has one. */
static void put_object(struct wire_writer *out, const struct object_ref *object)
{
	const struct remote_file *file = object->file ? remote_file_of(object->file) : NULL;

	wire_put_object(out, file ? "" : object->path, &object->id, file ? file->handle : 0);
}

static int put_request(struct wire_writer *out, const struct remote_request *request)
{
	const struct wire_writer *arguments = &request->arguments;

	lane_writer_init(out);
	put_caller(out, request->ctx);
	wire_put_number(out, request->order);
	if (request->object)
		put_object(out, request->object);
	if (request->file)
		wire_put_number(out, request->file->handle);
	wire_put_raw(out, arguments->buffer.data, arguments->buffer.size);
	if (request->is_detached)
		wire_put_number(out, request->data_bytes);
	else if (request->data)
		wire_put_bytes(out, request->data, request->data_bytes);
	return arguments->error ? arguments->error : out->error;
}

static int send_call(struct call *call, const struct remote_request *request)
{
	cleanup_wire_writer struct wire_writer out = {0};
	int r = put_request(&out, request);

	if (r == 0 && request->is_detached) {
		lane_writer_init(&call->content);
		wire_put_raw(&call->content, request->data, request->data_bytes);
		r = call->content.error;
	}
	return r < 0 ? r : call_send(call, request, &out);
}

int remote_request_submit(
	const struct remote_request *request, void (*complete)(struct call *call), void *user)
{
	struct call *call;
	int r = call_new(request, &call);

	if (r < 0)
		return r;
	call->complete = complete;
	call->user = user;
	r = send_call(call, request);
	if (r < 0)
		call_free(call);
	return r;
}

void remote_request_give_back(struct remote_request *request)
{
	request->gives_back = true;
	remote_request_submit(request, call_free, NULL);
}

/* ---- Waiting for the answer ---------------------------------------------------------- */

/* Opens the files again in a new session, and finds the handle whose queued writes come first. */
static int get_ready(struct remote_request *request)
{
	const struct object_ref *object = request->object;
	struct remote_file *file = request->file;
	int r = file ? remote_file_ready(request->ctx, file) : 0;

	if (r == 0 && request->uses)
		r = remote_file_ready(request->ctx, request->uses);
	if (r == 0 && object && object->file)
		r = remote_file_ready(request->ctx, remote_file_of(object->file));
	if (r < 0 || (!file && !object))
		return r;
	r = remote_order(request->ctx, request->remote, file ? &OBJECT_OF(&file->base) : object,
		&request->order);
	return request->gives_back ? 0 : r;
}

/* Under the lock.  0, or why to give up.
 * What has its answer on the way gets it, also when somebody gives up. */
static int go_on(const struct remote_request *request, int64_t *interrupted_ms)
{
	bool is_long = request_flags(request->type) & REQUEST_TAKES_LONG;
	int64_t now = clock_now_ms();

	if (remote_is_offline(request->remote))
		return -EIO;
	if (*interrupted_ms &&
		now - *interrupted_ms > (is_long ? CANCEL_GRACE_MS : INTERRUPT_GRACE_MS)) {
		call_cancel(request->call);
		return -EINTR;
	}
	if (!*interrupted_ms && op_interrupted(request->ctx)) {
		*interrupted_ms = now;
		if (is_long)
			call_cancel(request->call);
	}
	return 0;
}

/* Not for each frame: one that is small would cost more memory here, until it is acknowledged, than
 * the far end had to send. */
static void give_credit(struct call *call, size_t size)
{
	cleanup_wire_writer struct wire_writer credit = {0};

	call->consumed_bytes += size;
	if (call->consumed_bytes < CREDIT_LISTING_BYTES / 8)
		return;
	lane_writer_init(&credit);
	wire_put_number(&credit, call->consumed_bytes);
	call->consumed_bytes = 0;
	lane_send(call->remote->lane, LANE_URGENT, FRAME_CREDIT, call->id, &credit);
}

/* Under the lock, which it drops meanwhile. */
static void take_part(const struct remote_request *request, void *user, int *taken_result)
{
	struct call *call = request->call;
	struct call_data *part = call->first;
	struct wire_reader reader = wire_reader_over(part->payload, part->size);
	size_t size = part->size + FRAME_HEADER_BYTES;

	call->first = part->next;
	if (!call->first)
		call->last = &call->first;
	call->data_bytes -= size;
	pthread_mutex_unlock(&call->remote->lock);
	if (*taken_result >= 0) {
		*taken_result = request->take_part(user, &reader, part->base);
		if (*taken_result < 0)
			call_cancel(call);
	}
	give_credit(call, size);
	free(part->payload);
	free(part);
	pthread_mutex_lock(&call->remote->lock);
}

/* Returns the result of the answer. */
static int64_t await_answer(struct remote_request *request, void *user)
{
	struct remote *remote = request->remote;
	struct call *call = request->call;
	int64_t interrupted_ms = 0;
	int taken_result = 0;
	bool has_parts = false;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while ((!call->done || call->first) && (r = go_on(request, &interrupted_ms)) == 0) {
		if (!call->first) {
			clock_cond_wait_ms(call_answered(remote, call->id), &remote->lock, WAIT_MS);
			continue;
		}
		has_parts = true;
		take_part(request, user, &taken_result);
	}
	if (r < 0 && call_abandon(call))
		request->call = NULL;
	request->ctx->served.position = request->call ? call->position : 0;
	pthread_mutex_unlock(&remote->lock);
	if (r < 0)
		return r;
	if (taken_result < 0)
		return taken_result;
	/* What has been taken cannot be taken again. */
	return call->result == RESULT_AGAIN && has_parts ? -EIO : call->result;
}

static int64_t run_once(struct remote_request *request, void *user)
{
	int r = get_ready(request);

	if (r == 0)
		r = call_new(request, &request->call);
	if (r == 0)
		r = send_call(request->call, request);
	if (r < 0)
		return r;
	remote_count_round_trip(request->remote, request->ctx);
	return await_answer(request, user);
}

int64_t remote_request_run(struct remote_request *request,
	int64_t (*take)(void *user, struct remote_request *request, int64_t result), void *user)
{
	int64_t result;

	do {
		result = run_once(request, user);
		if (result >= 0)
			result = take ? take(user, request, result)
				      : remote_request_finish(request, result);
		call_drop(request->call);
		request->call = NULL;
	} while (remote_again(request->ctx, &result));
	return result;
}

int64_t remote_request_finish(struct remote_request *request, int64_t result)
{
	struct wire_reader *answer = &request->call->body;
	struct facts facts = {0};

	if (request_flags(request->type) & REQUEST_HAS_FACTS)
		wire_get_facts(answer, &facts);
	if (wire_reader_finish(answer) < 0)
		return -EIO;
	if (request->ctx->facts)
		*request->ctx->facts = facts;
	return result;
}

bool remote_again(struct op_context *ctx, int64_t *result)
{
	if (*result != RESULT_AGAIN)
		return false;
	if (ctx->served.repeats++ < REPEATS_MAX)
		return true;
	*result = -EIO;
	return false;
}
