#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
	pthread_cond_destroy(&call->changed);
	free(call);
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
	remote->call_count--;
	if (call->channel)
		remote_channel_put(call->channel);
	pthread_cond_broadcast(&remote->freed);
}

/* Under the lock. */
static bool is_outdated(const struct call *call)
{
	const struct remote_file *const *uses = call->traits.uses;

	for (size_t i = 0; i < array_size(call->traits.uses); i++)
		if (uses[i] && uses[i]->epoch != call->remote->epoch)
			return true;
	return false;
}

/* The frame is in the lane as soon as the call is in the table: when a session ends, what was not
 * sent is found there and withdrawn.  From here on the call may be answered, and gone, at any time.
 */
static int register_call(struct query *q, struct lane **ret_lane)
{
	struct remote *remote = q->remote;
	struct call *call = q->call;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (remote->call_count >= CALLS_MAX && r == 0 && !call->traits.gives_back)
		r = call->traits.at_once
			    ? RESULT_BUSY
			    : remote_wait(remote, q->ctx, &remote->freed, &remote->lock);
	if (remote->call_count >= CALL_SLOTS)
		r = -EIO;
	if (r == 0 && is_outdated(call))
		r = RESULT_AGAIN;
	if (r == 0) {
		do
			call->id = ++remote->call_serial;
		while (remote->calls[call->id % CALL_SLOTS]);
		remote->calls[call->id % CALL_SLOTS] = call;
		remote->call_count++;
		call->epoch = remote->epoch;
		call->channel = call->traits.may_spread ? remote_channel_take(remote) : NULL;
		*ret_lane = call->channel ? call->channel->lane : remote->lane;
		r = lane_queue(*ret_lane, q->priority, call->type, call->id, &q->out);
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

static int call_new(struct remote *remote, enum frame_type type, struct call **ret_call)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	call->remote = remote;
	call->type = type;
	call->last = &call->first;
	clock_cond_init(&call->changed);
	*ret_call = call;
	return 0;
}

/* ---- Making requests ---------------------------------------------------------------- */

void query_begin(struct query *q, struct op_context *ctx, struct remote *remote,
	enum frame_type type, uint64_t order)
{
	size_t groups = ctx->group_count < GROUPS_MAX ? ctx->group_count : GROUPS_MAX;

	*q = (struct query){.remote = remote, .ctx = ctx};
	q->priority = order ? LANE_BULK : LANE_URGENT;
	q->error = call_new(remote, type, &q->call);
	lane_writer_init(&q->out);
	wire_put_number(&q->out, ctx->uid);
	wire_put_number(&q->out, ctx->gid);
	wire_put_number(&q->out, ctx->umask);
	wire_put_number(&q->out, ctx->groups ? groups : 0);
	for (size_t i = 0; ctx->groups && i < groups; i++)
		wire_put_number(&q->out, ctx->groups[i]);
	wire_put_number(&q->out, order);
}

static int send_request(struct query *q)
{
	int r = q->error ? q->error : q->out.error;
	struct lane *lane = NULL;

	if (r == 0) {
		q->call->traits = q->traits;
		q->call->repeatable = !q->traits.only_once &&
				      (request_flags(q->call->type) & REQUEST_IS_REPEATABLE);
	}
	if (r == 0 && q->remote->bad_since_ms && !q->remote->is_wanted) {
		q->remote->is_wanted = true;
		pthread_cond_signal(&q->remote->manager);
	}
	if (r == 0 && !q->traits.gives_back && remote_is_offline(q->remote))
		r = -EIO;
	if (r == 0)
		r = register_call(q, &lane);
	if (r == 0)
		lane_push(lane);
	return r == -EMSGSIZE ? -E2BIG : r;
}

static void send_cancel(struct call *call)
{
	if (!call->traits.gives_back)
		lane_send(call->remote->lane, LANE_URGENT, FRAME_CANCEL, call->id, NULL);
}

/* Nobody waits any more.  Under the lock; the call belongs to the table until its reply comes.
 * The query keeps one that has not left this machine, or has its reply. */
static void abandon(struct query *q)
{
	struct call *call = q->call;

	if (call->done || (!call->traits.gives_back && lane_withdraw(q->remote->lane, call->id)))
		return;
	call->abandoned = true;
	q->call = NULL;
}

/* Under the lock.  0, or why to give up.
 * What has its answer on the way gets it, also when somebody gives up. */
static int go_on(struct query *q, int64_t *interrupted_ms)
{
	struct call *call = q->call;
	bool is_long = request_flags(call->type) & REQUEST_TAKES_LONG;
	int64_t now = clock_now_ms();

	if (remote_is_offline(q->remote))
		return -EIO;
	if (*interrupted_ms &&
		now - *interrupted_ms > (is_long ? CANCEL_GRACE_MS : INTERRUPT_GRACE_MS)) {
		send_cancel(call);
		return -EINTR;
	}
	if (!*interrupted_ms && op_interrupted(q->ctx)) {
		*interrupted_ms = now;
		if (is_long)
			send_cancel(call);
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
static void take_part(struct query *q, int (*take)(void *user, struct wire_reader *part),
	void *user, int *taken_result)
{
	struct call *call = q->call;
	struct call_data *part = call->first;
	struct wire_reader reader = wire_reader_over(part->payload, part->size);
	size_t size = part->size + FRAME_HEADER_BYTES;

	call->first = part->next;
	if (!call->first)
		call->last = &call->first;
	call->data_bytes -= size;
	pthread_mutex_unlock(&q->remote->lock);
	if (*taken_result >= 0) {
		q->base = part->base;
		*taken_result = take(user, &reader);
		if (*taken_result < 0)
			send_cancel(call);
	}
	give_credit(call, size);
	free(part->payload);
	free(part);
	pthread_mutex_lock(&q->remote->lock);
}

int64_t query_run_stream(
	struct query *q, int (*take)(void *user, struct wire_reader *part), void *user)
{
	struct remote *remote = q->remote;
	int64_t interrupted_ms = 0, result;
	int taken_result = 0;
	int r = send_request(q);

	if (r < 0)
		return r;
	remote_count_round_trip(remote, q->ctx);
	pthread_mutex_lock(&remote->lock);
	while ((!q->call->done || q->call->first) && r == 0) {
		r = go_on(q, &interrupted_ms);
		if (r < 0)
			break;
		if (q->call->first)
			take_part(q, take, user, &taken_result);
		else
			clock_cond_wait_ms(&q->call->changed, &remote->lock, WAIT_MS);
	}
	if (r < 0)
		abandon(q);
	q->ctx->served.position = q->call ? q->call->position : 0;
	pthread_mutex_unlock(&remote->lock);
	if (r < 0)
		return r;
	q->in = q->call->body;
	result = q->call->result;
	return taken_result < 0 ? taken_result : result;
}

int64_t query_run(struct query *q)
{
	return query_run_stream(q, NULL, NULL);
}

int query_submit(struct query *q, void (*complete)(struct call *call), void *user)
{
	struct call *call = q->call;
	int r;

	if (call) {
		call->complete = complete;
		call->user = user;
	}
	r = send_request(q);
	if (r == 0)
		q->call = NULL;
	return r;
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

void query_done(struct query *q)
{
	wire_writer_done(&q->out);
	if (q->call) {
		pthread_mutex_lock(&q->remote->lock);
		unregister_call(q->call);
		pthread_mutex_unlock(&q->remote->lock);
		call_free(q->call);
		q->call = NULL;
	}
}

void query_send_away(struct query *q)
{
	q->traits.gives_back = true;
	query_submit(q, call_free, NULL);
	query_done(q);
}

bool query_end(struct query *q, int64_t *result)
{
	query_done(q);
	return remote_again(q->ctx, result);
}

int64_t query_finish(struct query *q, int64_t result)
{
	struct facts facts = {0};

	if (result < 0)
		return result;
	if (request_flags(q->call->type) & REQUEST_HAS_FACTS)
		wire_get_facts(&q->in, &facts);
	if (wire_reader_finish(&q->in) < 0)
		return -EIO;
	if (q->ctx->facts)
		*q->ctx->facts = facts;
	return result;
}

/* ---- The reader thread ------------------------------------------------------------------ */

/* Something that nobody knows of any more is given back. */
static void undo(struct call *call)
{
	struct op_context ctx;
	struct query q;

	if (call->result < 0)
		return;
	op_context_init(&ctx);
	switch (call->type) {
	case REQUEST_MKDIR:
		if (!call->traits.makes)
			return;
		/* fall through */
	case REQUEST_OPEN:
	case REQUEST_CREATE:
	case REQUEST_CREATE_UNNAMED:
		query_begin(&q, &ctx, call->remote, REQUEST_CLOSE, 0);
		wire_put_number(&q.out, call->traits.makes);
		break;
	case REQUEST_LOCK:
		query_begin(&q, &ctx, call->remote, REQUEST_LOCK, 0);
		wire_put_number(&q.out, call->traits.makes);
		call->traits.lock.type = LOCK_NONE;
		wire_put_lock(&q.out, &call->traits.lock);
		wire_put_number(&q.out, 0);
		wire_put_number(&q.out, 0);
		break;
	case REQUEST_EXEC:
		lane_send(call->remote->lane, LANE_URGENT, FRAME_KILL, (uint32_t)call->traits.makes,
			NULL);
		return;
	default:
		return;
	}
	query_send_away(&q);
}

/* Under the lock.  Returns true when the call is the caller's to complete or free. */
static bool finish_call(struct call *call, int64_t result)
{
	call->result = result;
	call->done = true;
	if (call->complete || call->abandoned) {
		unregister_call(call);
		return true;
	}
	pthread_cond_broadcast(&call->changed);
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
		ours = finish_call(call, result);
		payload = NULL;
	}
	pthread_mutex_unlock(&remote->lock);
	free(payload);
	if (ours)
		dispose(call);
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
		pthread_cond_broadcast(&call->changed);
		part = NULL;
	}
	pthread_mutex_unlock(&remote->lock);
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

	if (!finish_call(call, result))
		return;
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

void remote_fail_calls_of(struct remote *remote, const struct remote_channel *channel)
{
	for (size_t i = 0; i < CALL_SLOTS; i++) {
		struct call *call = remote->calls[i];

		if (call && !call->done && call->channel == channel)
			fail_call(call, RESULT_LOST);
	}
}
