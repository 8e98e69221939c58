#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/exec.h"

struct output {
	struct output *next;
	uint8_t *payload;
	struct exec_event event;
	size_t frame_bytes; /* it counts with its header: a small frame costs more than its bytes */
	const uint8_t *data; /* what is left */
	size_t size;
};

/* All fields are guarded by remote->lock. */
struct remote_process {
	struct process base;
	struct remote *remote;
	struct remote_process *next;
	uint32_t id;
	pthread_cond_t changed;
	struct output *first, **last;
	size_t output_bytes;   /* of the frames in that list ... */
	size_t consumed_bytes; /* ... and of those taken from it since the last credit */
	bool ended;            /* EXIT came, or the session is gone ... */
	bool lost;             /* ... and how it ended nobody knows */
	uint64_t feed_needed;  /* EXIT: changes that are to be delivered before */
	int64_t input_credit;
	bool input_refused, input_closed;
};

static inline struct remote_process *remote_process_of(struct process *process)
{
	return (struct remote_process *)process;
}

int remote_process_new(struct remote *remote, struct remote_process **ret_process)
{
	struct remote_process *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->base.workspace = &remote->base;
	p->remote = remote;
	p->last = &p->first;
	p->input_credit = CREDIT_INPUT_BYTES;
	clock_cond_init(&p->changed);
	pthread_mutex_lock(&remote->lock);
	p->id = ++remote->next_process;
	p->next = remote->processes;
	remote->processes = p;
	pthread_mutex_unlock(&remote->lock);
	*ret_process = p;
	return 0;
}

static void process_forget(struct remote_process *p)
{
	struct remote *remote = p->remote;
	struct remote_process **slot = &remote->processes;

	pthread_mutex_lock(&remote->lock);
	while (*slot != p)
		slot = &(*slot)->next;
	*slot = p->next;
	pthread_mutex_unlock(&remote->lock);
	while (p->first) {
		struct output *next = p->first->next;

		free(p->first->payload);
		free(p->first);
		p->first = next;
	}
	pthread_cond_destroy(&p->changed);
	free(p);
}

static void put_strings(struct wire_writer *w, const char *const *strings)
{
	size_t count = 0;

	while (strings && strings[count])
		count++;
	wire_put_number(w, count);
	for (size_t i = 0; i < count; i++)
		wire_put_string(w, strings[i]);
}

int remote_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process)
{
	struct remote *remote = remote_of(w);
	cleanup_remote_request struct remote_request exec = {ctx, remote, REQUEST_EXEC};
	struct remote_process *p = NULL;
	unsigned need = WORKSPACE_CAN_EXEC |
			(request->flags & EXEC_STREAM ? (unsigned)WORKSPACE_CAN_STREAM : 0);
	int r = (remote->capabilities & need) == need ? 0 : -EOPNOTSUPP;

	if (r == 0)
		r = remote_settle(ctx, remote);
	if (r == 0)
		r = remote_process_new(remote, &p);
	if (r < 0)
		return r;
	wire_put_number(&exec.arguments, p->id);
	wire_put_number(&exec.arguments, request->flags);
	wire_put_number(&exec.arguments, request->timeout_ms);
	wire_put_number(&exec.arguments, request->rows);
	wire_put_number(&exec.arguments, request->columns);
	wire_put_string(&exec.arguments, request->cwd);
	wire_put_string(&exec.arguments, request->argv ? "" : request->command);
	put_strings(&exec.arguments, request->argv);
	put_strings(&exec.arguments, request->environment);
	exec.makes = p->id;
	r = (int)remote_request_run(&exec, NULL, NULL);
	if (r < 0) {
		process_forget(p);
		return r;
	}
	*ret_process = &p->base;
	return 0;
}

/* ---- Frames ---------------------------------------------------------------------- */

/* Under the lock. */
static struct remote_process *find_process(struct remote *remote, uint32_t id)
{
	struct remote_process *p = remote->processes;

	while (p && p->id != id)
		p = p->next;
	return p;
}

/* What is told beside the bytes. */
static int decode_note(struct output *output, struct wire_reader *in)
{
	if (output->event.type == EXEC_LISTENING)
		output->event.port = (uint16_t)wire_get_number_max(in, UINT16_MAX);
	return wire_reader_finish(in);
}

static int decode_output(struct output *output, const struct frame_header *header)
{
	struct wire_reader in = wire_reader_over(output->payload, header->size);

	if (header->type == FRAME_OUTPUT) {
		output->event.type = (enum exec_event_type)wire_get_number_max(&in, EXEC_LISTENING);
		if (output->event.type > EXEC_STDERR)
			return decode_note(output, &in);
		output->size = wire_reader_left(&in);
		output->data = wire_get_raw(&in, output->size);
		return in.failed || !output->size ? -EPROTO : 0;
	}
	output->event.type = EXEC_EXIT;
	output->event.exit_code = (int)wire_get_signed(&in);
	output->event.signal = (int)wire_get_number_max(&in, 64);
	output->event.timed_out = wire_get_number_max(&in, 1);
	return wire_reader_finish(&in);
}

static void queue_output(struct remote_process *p, struct output *output)
{
	output->next = NULL;
	*p->last = output;
	p->last = &output->next;
	p->output_bytes += output->frame_bytes;
	if (output->event.type == EXEC_EXIT) {
		p->ended = true;
		p->feed_needed = p->remote->feed_received;
	}
	pthread_cond_broadcast(&p->changed);
}

static int take_output(struct remote *remote, const struct frame_header *header, uint8_t *payload)
{
	struct output *output = calloc(1, sizeof(*output));
	struct remote_process *p;
	int r;

	if (!output) {
		free(payload);
		return -ENOMEM;
	}
	output->payload = payload;
	output->frame_bytes = FRAME_HEADER_BYTES + header->size;
	r = decode_output(output, header);
	if (r == 0) {
		pthread_mutex_lock(&remote->lock);
		p = find_process(remote, header->id);
		if (p && p->output_bytes > 2 * CREDIT_OUTPUT_BYTES)
			r = -EPROTO;
		if (p && !p->ended && r == 0) {
			queue_output(p, output);
			output = NULL;
		}
		pthread_mutex_unlock(&remote->lock);
	}
	if (output)
		free(output->payload);
	free(output);
	return r;
}

/* No bytes: the process takes no more input. */
static int take_input_credit(
	struct remote *remote, const struct frame_header *header, uint8_t *payload)
{
	struct wire_reader in = wire_reader_over(payload, header->size);
	uint64_t bytes = wire_get_number_max(&in, CREDIT_INPUT_BYTES);
	struct remote_process *p;
	int r = wire_reader_finish(&in);

	pthread_mutex_lock(&remote->lock);
	p = r == 0 ? find_process(remote, header->id) : NULL;
	if (p && p->input_credit + (int64_t)bytes > CREDIT_INPUT_BYTES) {
		r = -EPROTO; /* for what we never sent */
	} else if (p) {
		p->input_refused = p->input_refused || bytes == 0;
		p->input_credit += (int64_t)bytes;
		pthread_cond_broadcast(&p->changed);
	}
	pthread_mutex_unlock(&remote->lock);
	free(payload);
	return r;
}

int remote_process_frame(struct remote *remote, const struct frame_header *header, uint8_t *payload)
{
	if (header->type == FRAME_INPUT_CREDIT)
		return take_input_credit(remote, header, payload);
	return take_output(remote, header, payload);
}

void remote_processes_lost(struct remote *remote)
{
	for (struct remote_process *p = remote->processes; p; p = p->next) {
		p->lost = p->lost || !p->ended;
		p->ended = true;
		pthread_cond_broadcast(&p->changed);
	}
}

/* ---- Operations ------------------------------------------------------------------------ */

/* Under the lock.  What is to be credited now; 0 while the far end has plenty left. */
static size_t take_credit(struct remote_process *p)
{
	size_t bytes = p->consumed_bytes;

	if (bytes < CREDIT_OUTPUT_BYTES / 8)
		return 0;
	p->consumed_bytes = 0;
	return bytes;
}

static void give_credit(struct remote_process *p, size_t size)
{
	struct wire_writer writer;

	lane_writer_init(&writer);
	wire_put_number(&writer, size);
	lane_send(p->remote->lane, LANE_URGENT, FRAME_OUTPUT_CREDIT, p->id, &writer);
}

/* Under the lock.  Moves bytes of the first output; frees it when it is empty. */
static void take_first(
	struct remote_process *p, void *buffer, size_t size, struct exec_event *ret_event)
{
	struct output *output = p->first;
	size_t count = output->size < size ? output->size : size;

	*ret_event = output->event;
	if (output->event.type == EXEC_EXIT)
		return;
	if (count) {
		memcpy(buffer, output->data, count);
		output->data += count;
	}
	ret_event->size = count;
	output->size -= count;
	if (output->size)
		return;
	p->output_bytes -= output->frame_bytes;
	p->consumed_bytes += output->frame_bytes;
	p->first = output->next;
	if (!p->first)
		p->last = &p->first;
	free(output->payload);
	free(output);
}

int remote_process_next(struct op_context *ctx, struct process *process, void *buffer, size_t size,
	struct exec_event *ret_event)
{
	struct remote_process *p = remote_process_of(process);
	struct remote *remote = p->remote;
	size_t credit = 0;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (!p->first && r == 0)
		r = p->lost ? -ECONNRESET : remote_wait(remote, ctx, &p->changed, &remote->lock);
	while (r == 0 && p->first->event.type == EXEC_EXIT &&
		(int64_t)(p->feed_needed - remote->feed_delivered) > 0)
		r = remote_wait(remote, ctx, &remote->feed_moved, &remote->lock);
	if (r == 0)
		take_first(p, buffer, size, ret_event);
	if (r == 0 && !p->ended)
		credit = take_credit(p);
	pthread_mutex_unlock(&remote->lock);
	if (credit)
		give_credit(p, credit);
	return r;
}

/* Takes credit for up to `size` bytes.  Returns how many, -EPIPE, -EINTR, -EIO. */
static ssize_t reserve_input(struct op_context *ctx, struct remote_process *p, size_t size)
{
	struct remote *remote = p->remote;
	ssize_t count = 0;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (r == 0 && p->input_credit <= 0 && !p->input_refused && !p->ended)
		r = remote_wait(remote, ctx, &p->changed, &remote->lock);
	if (p->input_refused || p->ended || p->input_closed)
		r = -EPIPE;
	if (r == 0) {
		count = (size_t)p->input_credit < size ? (ssize_t)p->input_credit : (ssize_t)size;
		p->input_credit -= count;
	}
	pthread_mutex_unlock(&remote->lock);
	return r < 0 ? r : count;
}

ssize_t remote_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	struct remote_process *p = remote_process_of(process);
	struct wire_writer writer;
	ssize_t count;
	int r;

	if (size == 0)
		return 0;
	count = reserve_input(ctx, p, size);
	if (count < 0)
		return count;
	lane_writer_init(&writer);
	wire_put_raw(&writer, data, (size_t)count);
	r = lane_send(p->remote->lane, LANE_BULK, FRAME_INPUT, p->id, &writer);
	return r < 0 ? r : count;
}

int remote_process_close_stdin(struct op_context *ctx, struct process *process)
{
	struct remote_process *p = remote_process_of(process);
	bool first;

	(void)ctx;
	pthread_mutex_lock(&p->remote->lock);
	first = !p->input_closed && !p->ended;
	p->input_closed = true;
	pthread_mutex_unlock(&p->remote->lock);
	if (!first)
		return 0;
	return lane_send(p->remote->lane, LANE_BULK, FRAME_INPUT, p->id, NULL);
}

static bool has_ended(struct remote_process *p)
{
	bool ended;

	pthread_mutex_lock(&p->remote->lock);
	ended = p->ended;
	pthread_mutex_unlock(&p->remote->lock);
	return ended;
}

int remote_process_signal(struct op_context *ctx, struct process *process, int signal)
{
	struct remote_process *p = remote_process_of(process);
	cleanup_remote_request struct remote_request request = {ctx, p->remote, REQUEST_SIGNAL};

	if (has_ended(p))
		return -ESRCH;
	wire_put_number(&request.arguments, p->id);
	wire_put_number(&request.arguments, (uint64_t)signal);
	return (int)remote_request_run(&request, NULL, NULL);
}

int remote_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	struct remote_process *p = remote_process_of(process);
	cleanup_remote_request struct remote_request request = {ctx, p->remote, REQUEST_RESIZE};

	if (has_ended(p))
		return -ESRCH;
	wire_put_number(&request.arguments, p->id);
	wire_put_number(&request.arguments, rows);
	wire_put_number(&request.arguments, columns);
	return (int)remote_request_run(&request, NULL, NULL);
}

void remote_process_free(struct process *process)
{
	struct remote_process *p = remote_process_of(process);

	if (!has_ended(p))
		lane_send(p->remote->lane, LANE_URGENT, FRAME_KILL, p->id, NULL);
	process_forget(p);
}
