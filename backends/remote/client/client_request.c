#include "backends/remote/client/client_internal.h"

void remote_request_done(struct remote_request *request)
{
	wire_writer_done(&request->arguments);
}

int remote_put_object(struct query *q, const struct object_ref *object)
{
	struct remote_file *file = object->file ? remote_file_of(object->file) : NULL;
	int r = file ? remote_file_ready(q->ctx, file) : 0;

	if (r < 0)
		return r;
	if (file)
		q->traits.uses[0] = file;
	wire_put_object(&q->out, file ? "" : object->path, &object->id, file ? file->handle : 0);
	return 0;
}

/* The handle whose queued writes come first. */
static int find_order(const struct remote_request *request, uint64_t *ret_order)
{
	struct remote_file *file = request->file;
	struct object_ref object;
	int r = file ? remote_file_ready(request->ctx, file) : 0;

	if (r < 0 || (!file && !request->object))
		return r;
	object = file ? OBJECT_OF(&file->base) : *request->object;
	r = remote_order(request->ctx, request->remote, &object, ret_order);
	return request->traits.gives_back ? 0 : r;
}

static bool has_writes(struct remote *remote)
{
	bool has;

	pthread_mutex_lock(&remote->lock);
	has = remote->write_bytes;
	pthread_mutex_unlock(&remote->lock);
	return has;
}

void remote_request_begin(const struct remote_request *request, struct query *q)
{
	const struct wire_writer *arguments = &request->arguments;
	uint64_t order = 0;
	int r = find_order(request, &order);

	query_begin(q, request->ctx, request->remote, request->type, order);
	q->traits = request->traits;
	if (request->is_behind_writes && has_writes(request->remote))
		q->priority = LANE_BULK;
	if (!q->traits.gives_back && request->file)
		q->traits.uses[0] = request->file;
	if (r == 0 && request->object)
		r = remote_put_object(q, request->object);
	if (request->file)
		wire_put_number(&q->out, request->file->handle);
	wire_put_raw(&q->out, arguments->buffer.data, arguments->buffer.size);
	if (r == 0)
		r = arguments->error;
	if (q->error == 0)
		q->error = r;
}

int64_t remote_request_run(const struct remote_request *request,
	int64_t (*take)(void *user, struct query *q, int64_t result), void *user)
{
	struct query q;
	int64_t result;

	do {
		remote_request_begin(request, &q);
		result = query_run(&q);
		if (result >= 0)
			result = take ? take(user, &q, result) : query_finish(&q, result);
	} while (query_end(&q, &result));
	return result;
}
