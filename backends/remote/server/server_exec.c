#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/server/server_internal.h"
#include "ops/support/exec.h"
#include "ops/workspace.h"

enum { INPUT_GATHERED_BYTES = 4096 };

struct input {
	struct input *next;
	uint8_t *payload;
	size_t size; /* 0: end of file */
	size_t room; /* of the payload */
};

/* One command of the client.  All fields but `process` are guarded by server->lock. */
struct server_process {
	struct server_process *next;
	struct server *server;
	uint32_t id;
	struct process *process;
	unsigned refs; /* its two threads, and requests */
	bool stopping; /* killed by the client, or the session ends */
	bool ended;    /* EXIT has been sent */
	bool listed;
	int64_t credit; /* bytes of output that may be sent */
	struct input *first, **last;
	struct input *newest; /* may be gone when there is no first */
	size_t input_bytes;
	bool input_ended; /* its end of file has come */
	bool has_input_thread;
};

static bool process_interrupted(struct op_context *ctx)
{
	struct server_process *p = ctx->interrupted_data;
	bool stop;

	pthread_mutex_lock(&p->server->lock);
	stop = p->stopping || p->ended;
	pthread_mutex_unlock(&p->server->lock);
	return stop;
}

static void process_context(struct op_context *ctx, struct server_process *p)
{
	op_context_init(ctx);
	ctx->interrupted = process_interrupted;
	ctx->interrupted_data = p;
}

/* Under the lock. */
static struct server_process *find_process(struct server *server, uint32_t id)
{
	struct server_process *p = server->processes;

	while (p && p->id != id)
		p = p->next;
	return p;
}

static void unlist(struct server_process *p)
{
	struct server_process **slot = &p->server->processes;

	if (!p->listed)
		return;
	while (*slot != p)
		slot = &(*slot)->next;
	*slot = p->next;
	p->listed = false;
}

static void process_put(struct server_process *p)
{
	struct server *server = p->server;
	bool last;

	pthread_mutex_lock(&server->lock);
	last = --p->refs == 0;
	pthread_mutex_unlock(&server->lock);
	if (!last)
		return;
	workspace_process_free(p->process);
	while (p->first) {
		struct input *next = p->first->next;

		free(p->first->payload);
		free(p->first);
		p->first = next;
	}
	free(p);
	pthread_mutex_lock(&server->lock);
	server->process_count--;
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
}

/* ---- Output -------------------------------------------------------------------- */

static bool wait_for_credit(struct server_process *p, size_t frame_bytes)
{
	struct server *server = p->server;
	bool go;

	pthread_mutex_lock(&server->lock);
	while (!p->stopping && server_wait_for_credit(server, &p->credit))
		;
	go = !p->stopping;
	p->credit -= (int64_t)frame_bytes;
	pthread_mutex_unlock(&server->lock);
	return go;
}

static int send_output(
	struct server_process *p, const struct exec_event *event, const uint8_t *data)
{
	cleanup_wire_writer struct wire_writer writer = {0};

	lane_writer_init(&writer);
	wire_put_number(&writer, event->type);
	if (event->type == EXEC_LISTENING)
		wire_put_number(&writer, event->port);
	else
		wire_put_raw(&writer, data, event->size);
	if (!writer.error && !wait_for_credit(p, writer.buffer.size))
		return -EINTR;
	return lane_send(p->server->lane, LANE_BULK, FRAME_OUTPUT, p->id, &writer);
}

/* In the class of the output, which it must not overtake. */
static void send_exit(struct server_process *p, const struct exec_event *event)
{
	cleanup_wire_writer struct wire_writer writer = {0};

	lane_writer_init(&writer);
	wire_put_signed(&writer, event->exit_code);
	wire_put_number(&writer, (uint64_t)event->signal);
	wire_put_number(&writer, event->timed_out);
	lane_send(p->server->lane, LANE_BULK, FRAME_EXIT, p->id, &writer);
}

void server_process_run(struct server_process *p)
{
	struct server *server = p->server;
	uint8_t data[OUTPUT_CHUNK_BYTES];
	struct exec_event event = {0};
	struct op_context ctx;
	int r;

	process_context(&ctx, p);
	do {
		r = workspace_process_next(&ctx, p->process, data, sizeof(data), &event);
		if (r == 0 && event.type != EXEC_EXIT)
			r = send_output(p, &event, data);
	} while (r == 0 && event.type != EXEC_EXIT);
	if (r < 0)
		event = (struct exec_event){.type = EXEC_EXIT, .exit_code = -1, .signal = 9};
	pthread_mutex_lock(&server->lock);
	unlist(p);
	p->ended = true;
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
	server_tell_loss(server);
	send_exit(p, &event);
	process_put(p);
}

/* ---- Input ----------------------------------------------------------------------- */

static void send_input_credit(struct server_process *p, size_t size)
{
	cleanup_wire_writer struct wire_writer writer = {0};

	lane_writer_init(&writer);
	wire_put_number(&writer, size);
	lane_send(p->server->lane, LANE_URGENT, FRAME_INPUT_CREDIT, p->id, &writer);
}

/* Returns false when no more input is wanted. */
static bool write_input(struct server_process *p, const struct input *input)
{
	struct op_context ctx;
	size_t done = 0;

	process_context(&ctx, p);
	if (input->size == 0)
		workspace_process_close_stdin(&ctx, p->process);
	while (done < input->size) {
		ssize_t n = workspace_process_write(
			&ctx, p->process, input->payload + done, input->size - done);

		if (n < 0)
			return false;
		done += (size_t)n;
	}
	if (done)
		send_input_credit(p, done);
	return input->size > 0;
}

static void run_input(void *user)
{
	struct server_process *p = user;
	struct server *server = p->server;
	bool wanted = true;

	pthread_mutex_lock(&server->lock);
	while (wanted && !p->stopping && !p->ended) {
		struct input *input = p->first;

		if (!input) {
			pthread_cond_wait(&server->moved, &server->lock);
			continue;
		}
		p->first = input->next;
		if (!p->first)
			p->last = &p->first;
		p->input_bytes -= input->size;
		pthread_mutex_unlock(&server->lock);
		wanted = write_input(p, input);
		if (!wanted)
			send_input_credit(p, 0);
		free(input->payload);
		free(input);
		pthread_mutex_lock(&server->lock);
	}
	pthread_mutex_unlock(&server->lock);
	process_put(p);
}

/* Small pieces are gathered, as credit counts bytes, not the cost of a frame. */
static struct input *input_new(const uint8_t *payload, size_t size)
{
	struct input *input = calloc(1, sizeof(*input));

	if (!input)
		return NULL;
	input->room = size && size < INPUT_GATHERED_BYTES ? INPUT_GATHERED_BYTES : size;
	input->payload = malloc(input->room + 1);
	if (!input->payload) {
		free(input);
		return NULL;
	}
	memcpy(input->payload, payload, size);
	input->size = size;
	return input;
}

static bool fits_into_newest(const struct server_process *p, size_t size)
{
	return p->first && size && p->newest->room - p->newest->size >= size;
}

/* Under the lock. */
static int queue_input(struct server_process *p, const uint8_t *payload, size_t size)
{
	struct input *input;

	if (p->input_bytes + size > CREDIT_INPUT_BYTES)
		return -EPROTO;
	p->input_bytes += size;
	if (fits_into_newest(p, size)) {
		memcpy(p->newest->payload + p->newest->size, payload, size);
		p->newest->size += size;
		return 0;
	}
	input = input_new(payload, size);
	if (!input)
		return -ENOMEM;
	*p->last = p->newest = input;
	p->last = &input->next;
	if (!p->has_input_thread && worker_pool_submit(&p->server->lasting, run_input, p)) {
		p->has_input_thread = true;
		p->refs++;
	}
	return 0;
}

int server_process_frame(struct server *server, const struct frame_header *header, uint8_t *payload)
{
	struct wire_reader in = wire_reader_over(payload, header->size);
	struct server_process *p;
	int r = 0;

	pthread_mutex_lock(&server->lock);
	p = find_process(server, header->id);
	if (p && header->type == FRAME_KILL) {
		p->stopping = true;
		unlist(p);
	} else if (p && header->type == FRAME_OUTPUT_CREDIT) {
		server_add_credit(
			&p->credit, wire_get_number_max(&in, UINT32_MAX), CREDIT_OUTPUT_BYTES);
		r = wire_reader_finish(&in);
	} else if (p && !p->input_ended) {
		p->input_ended = !header->size;
		r = queue_input(p, payload, header->size);
	}
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
	free(payload);
	return r;
}

void server_processes_stop(struct server *server)
{
	pthread_mutex_lock(&server->lock);
	for (struct server_process *p = server->processes; p; p = p->next)
		p->stopping = true;
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
}

/* ---- Requests ----------------------------------------------------------------------- */

static int read_strings(struct job *job, const char ***ret_strings)
{
	size_t count = wire_get_number_max(&job->in, ARGUMENTS_MAX);
	const char **strings;

	if (count > wire_reader_left(&job->in))
		return -EPROTO;
	strings = calloc(count + 1, sizeof(*strings));
	if (!strings)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		strings[i] = wire_get_string(&job->in);
	*ret_strings = strings;
	return 0;
}

static int start_process(struct job *job, uint32_t id, const struct exec_request *request,
	struct server_process **ret_process)
{
	struct server *server = job->server;
	struct server_process *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return -ENOMEM;
	*p = (struct server_process){
		.server = server, .id = id, .refs = 1, .credit = CREDIT_OUTPUT_BYTES};
	p->last = &p->first;
	pthread_mutex_lock(&server->lock);
	if (find_process(server, id) || server->stopping)
		r = -EINVAL;
	else if (server->process_count >= PROCESSES_MAX)
		r = -EAGAIN;
	else
		server->process_count++;
	pthread_mutex_unlock(&server->lock);
	if (r < 0) {
		free(p);
		return r;
	}
	r = workspace_exec(&job->ctx, server->workspace, request, &p->process);
	if (r < 0) {
		process_put(p);
		return r;
	}
	pthread_mutex_lock(&server->lock);
	p->next = server->processes;
	server->processes = p;
	p->listed = true;
	p->stopping = server->stopping;
	pthread_mutex_unlock(&server->lock);
	*ret_process = p;
	return 0;
}

int64_t handle_exec(struct job *job, struct wire_writer *out)
{
	cleanup_free const char **argv = NULL, **environment = NULL;
	struct exec_request request = {0};
	uint32_t id = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	int r;

	(void)out;
	request.flags = (unsigned)wire_get_number_max(&job->in, UINT32_MAX);
	request.timeout_ms = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	request.rows = (uint16_t)wire_get_number_max(&job->in, UINT16_MAX);
	request.columns = (uint16_t)wire_get_number_max(&job->in, UINT16_MAX);
	request.cwd = wire_get_path(&job->in);
	request.command = wire_get_string(&job->in);
	r = read_strings(job, &argv);
	if (r == 0)
		r = read_strings(job, &environment);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	request.argv = argv[0] ? argv : NULL;
	request.environment = environment;
	if (!job->may_last)
		return -EAGAIN; /* there is no thread for its output */
	server_wait_for_closes(job);
	return start_process(job, id, &request, &job->started);
}

static struct server_process *read_process(struct job *job)
{
	struct server *server = job->server;
	uint32_t id = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	struct server_process *p;

	pthread_mutex_lock(&server->lock);
	p = find_process(server, id);
	if (p)
		p->refs++;
	pthread_mutex_unlock(&server->lock);
	return p;
}

int64_t handle_signal(struct job *job, struct wire_writer *out)
{
	struct server_process *p = read_process(job);
	int signal = (int)wire_get_number_max(&job->in, 64);
	int r = wire_reader_finish(&job->in);

	(void)out;
	if (!p)
		return r < 0 ? r : -ESRCH;
	if (r == 0)
		r = workspace_process_signal(&job->ctx, p->process, signal);
	process_put(p);
	return r;
}

int64_t handle_resize(struct job *job, struct wire_writer *out)
{
	struct server_process *p = read_process(job);
	uint16_t rows = (uint16_t)wire_get_number_max(&job->in, UINT16_MAX);
	uint16_t columns = (uint16_t)wire_get_number_max(&job->in, UINT16_MAX);
	int r = wire_reader_finish(&job->in);

	(void)out;
	if (!p)
		return r < 0 ? r : -ESRCH;
	if (r == 0)
		r = workspace_process_resize(&job->ctx, p->process, rows, columns);
	process_put(p);
	return r;
}
