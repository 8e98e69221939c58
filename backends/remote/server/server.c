#include "backends/remote/server/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/server/server_internal.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/workspace.h"

/* ---- Jobs ------------------------------------------------------------------- */

static size_t job_hash(const void *entry)
{
	return ((const struct job *)entry)->header.id;
}

static void **job_link(void *entry)
{
	return (void **)&((struct job *)entry)->in_hash;
}

struct job *server_find_job(struct server *server, uint32_t id)
{
	struct job *job = hash_table_bucket(&server->jobs, id);

	while (job && job->header.id != id)
		job = job->in_hash;
	return job;
}

static void job_free(struct job *job)
{
	free(job->groups);
	server_content_free(job->content);
	free(job->payload);
	free(job);
}

static bool job_interrupted(struct op_context *ctx)
{
	const struct job *job = ctx->interrupted_data;

	return job->cancelled;
}

static void submit(struct server *server, struct job *job, bool is_worker);

/* `is_worker`: this thread looks for its next job now. */
static int leave_order(struct job *job, bool is_worker)
{
	struct server *server = job->server;
	struct handle *handle = job->ordered;
	struct job *next;

	if (!handle)
		return 0;
	job->ordered = NULL;
	pthread_mutex_lock(&server->lock);
	next = handle->first;
	handle->busy = next;
	if (next) {
		handle->first = next->next;
		if (!handle->first)
			handle->last = &handle->first;
	}
	pthread_mutex_unlock(&server->lock);
	if (next)
		submit(server, next, is_worker);
	return server_handle_put(server, handle);
}

void server_submit(struct job *job)
{
	submit(job->server, job, false);
}

int server_leave_order(struct job *job)
{
	return leave_order(job, false);
}

static void job_finish(struct job *job)
{
	struct server *server = job->server;

	leave_order(job, !job->may_last);
	pthread_mutex_lock(&server->lock);
	hash_table_remove(&server->jobs, job, job_hash, job_link);
	server->job_bytes -= job->header.size + (job->content ? job->content->size : 0);
	server->closing -= job->header.type == REQUEST_CLOSE;
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
	job_free(job);
}

static int64_t job_answer(struct job *job, struct wire_writer *out)
{
	size_t start = out->buffer.size;
	int64_t result = -EINTR;

	if (!job->cancelled)
		result = server_request_handler(job->header.type)(job, out);
	if (result >= 0 && (request_flags(job->header.type) & REQUEST_HAS_FACTS))
		wire_put_facts(out, &job->facts);
	if (job->in.failed)
		result = -EPROTO;
	if (result >= 0 && out->error)
		result = out->error;
	if (result < 0)
		out->buffer.size = start;
	return result;
}

/* A short listing is needed soon; a long one lets other frames pass. */
static enum lane_priority answer_priority(const struct job *job)
{
	if (!(request_flags(job->header.type) & REQUEST_IS_BULK))
		return LANE_URGENT;
	if (job->is_guess)
		return LANE_GUESS;
	return job->listed_bytes && job->listed_bytes <= LISTING_SHORT_BYTES ? LANE_URGENT
									     : LANE_BULK;
}

static void job_run(struct job *job)
{
	static const uint8_t room[WIRE_RESULT_BYTES];
	cleanup_wire_writer struct wire_writer out = {0};
	struct server_process *started;
	int64_t result;

	lane_writer_init(&out);
	wire_put_raw(&out, room, sizeof(room));
	if (out.error == 0) {
		result = job_answer(job, &out);
		out.error = 0;
		wire_set_result(
			out.buffer.data + FRAME_HEADER_BYTES, result, job->ctx.served.position);
	}
	if (lane_send(job->lane, answer_priority(job), FRAME_REPLY, job->header.id, &out) < 0)
		log_error("no memory for the answer to request %u", job->header.id);
	started = job->started;
	job_finish(job);
	if (started)
		server_process_run(started);
}

/* The first channel whose lane has little to send. */
static struct job *pop_job(struct job_queue *queue, size_t waiting_max_bytes)
{
	struct job **slot = &queue->first;
	struct job *job;

	while (*slot && lane_waiting_bytes((*slot)->lane) >= waiting_max_bytes)
		slot = &(*slot)->next;
	job = *slot;
	if (!job)
		return NULL;
	*slot = job->next;
	if (!*slot)
		queue->last = slot;
	return job;
}

static void push_job(struct job_queue *queue, struct job *job)
{
	job->next = NULL;
	*queue->last = job;
	queue->last = &job->next;
}

/* Small requests first; bulk ones wait while there is plenty to send, or a client that
 * reads nothing could grow us.  (Not reading from it instead would leave its acknowledgements
 * unread.)  Under the lock. */
static struct job *next_job(struct server *server)
{
	bool stopping = server->stopping;
	struct job *job = pop_job(&server->small, stopping ? SIZE_MAX : WAITING_SMALL_MAX_BYTES);

	return job ? job : pop_job(&server->bulk, stopping ? SIZE_MAX : WAITING_MAX_BYTES);
}

/* There is no signal when the lane has room again.  Under the lock. */
static void wait_for_room(struct server *server, pthread_cond_t *condition)
{
	clock_cond_wait_ms(condition, &server->lock, WAITING_POLL_MS);
}

bool server_wait_for_credit(struct server *server, const int64_t *credit)
{
	if (*credit <= 0)
		pthread_cond_wait(&server->moved, &server->lock);
	else if (lane_waiting_bytes(server->lane) > WAITING_SMALL_MAX_BYTES)
		wait_for_room(server, &server->moved);
	else
		return false;
	return true;
}

/* A task of the workers: goes on until there is no job. */
static void run_jobs(void *user)
{
	struct server *server = user;
	struct job *job;

	pthread_mutex_lock(&server->lock);
	while (server->small.first || server->bulk.first) {
		job = next_job(server);
		if (!job) {
			wait_for_room(server, &server->work);
			continue;
		}
		pthread_mutex_unlock(&server->lock);
		job_run(job);
		pthread_mutex_lock(&server->lock);
	}
	pthread_mutex_unlock(&server->lock);
}

static void run_long_job(void *user)
{
	struct job *job = user;

	job->may_last = true;
	job_run(job);
}

static bool may_wait(const struct job *job)
{
	return (request_flags(job->header.type) & REQUEST_WAITS) || server_close_frees_locks(job);
}

/* Called without the lock, as a thread that is woken takes the lock first.  `is_worker`: the caller
 * is a worker that looks for its next job now and finds this one, so no other worker is woken. */
static void submit(struct server *server, struct job *job, bool is_worker)
{
	unsigned flags = request_flags(job->header.type);

	if (may_wait(job) && worker_pool_submit(&server->lasting, run_long_job, job))
		return;
	pthread_mutex_lock(&server->lock);
	if (server_content_is_missing(job)) {
		pthread_mutex_unlock(&server->lock);
		return;
	}
	push_job(flags & REQUEST_IS_BULK ? &server->bulk : &server->small, job);
	pthread_mutex_unlock(&server->lock);
	if (is_worker)
		return;
	/* Refused: all workers are busy, and one task waits that will find the job. */
	worker_pool_submit(&server->workers, run_jobs, server);
	pthread_cond_signal(&server->work);
}

/* ---- Requests ------------------------------------------------------------------ */

/* The caller, and the handle whose earlier jobs come first. */
static int read_prologue(struct job *job, uint64_t *ret_order)
{
	size_t count;

	op_context_init(&job->ctx);
	job->ctx.pid = 0;
	job->ctx.interrupted = job_interrupted;
	job->ctx.interrupted_data = job;
	job->ctx.uid = (uid_t)wire_get_number_max(&job->in, UINT32_MAX);
	job->ctx.gid = (gid_t)wire_get_number_max(&job->in, UINT32_MAX);
	job->ctx.umask = (mode_t)wire_get_number_max(&job->in, 0777);
	count = wire_get_number_max(&job->in, GROUPS_MAX);
	if (count) {
		job->groups = calloc(count, sizeof(*job->groups));
		if (!job->groups)
			return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		job->groups[i] = (gid_t)wire_get_number_max(&job->in, UINT32_MAX);
	job->ctx.groups = job->groups;
	job->ctx.group_count = count;
	if (request_flags(job->header.type) & REQUEST_HAS_FACTS)
		job->ctx.facts = &job->facts;
	*ret_order = wire_get_number(&job->in);
	return job->in.failed ? -EPROTO : 0;
}

static int accept_job(struct server *server, struct job *job, uint64_t order)
{
	struct handle *handle;
	bool is_first;

	pthread_mutex_lock(&server->lock);
	if (server_find_job(server, job->header.id)) {
		pthread_mutex_unlock(&server->lock);
		return -EPROTO;
	}
	hash_table_insert(&server->jobs, job, job_hash, job_link);
	job->number = ++server->job_number;
	server->job_bytes += job->header.size;
	server->closing += job->header.type == REQUEST_CLOSE;
	server_content_claim(job);
	handle = order ? server_handle_find(server, order) : NULL;
	if (handle) {
		handle->refs++;
		job->ordered = handle;
	}
	is_first = !handle || !handle->busy;
	if (is_first && handle)
		handle->busy = true;
	if (!is_first) {
		job->next = NULL;
		*handle->last = job;
		handle->last = &job->next;
	}
	pthread_mutex_unlock(&server->lock);
	if (is_first)
		submit(server, job, false);
	return 0;
}

static int take_request(
	struct server_channel *channel, const struct frame_header *header, uint8_t *payload)
{
	struct server *server = channel->server;
	struct job *job = calloc(1, sizeof(*job));
	uint64_t order;
	int r;

	if (!job) {
		free(payload);
		return -ENOMEM;
	}
	job->server = server;
	job->lane = channel->lane;
	job->header = *header;
	job->payload = payload;
	job->in = wire_reader_over(payload, header->size);
	job->credit = CREDIT_LISTING_BYTES;
	r = read_prologue(job, &order);
	if (r == 0)
		r = accept_job(server, job, order);
	if (r < 0)
		job_free(job);
	return r;
}

void server_add_credit(int64_t *credit, uint64_t bytes, int64_t max)
{
	*credit = (int64_t)bytes < max - *credit ? *credit + (int64_t)bytes : max;
}

static void take_credit(struct server *server, uint32_t id, uint64_t bytes)
{
	struct job *job;

	pthread_mutex_lock(&server->lock);
	job = server_find_job(server, id);
	if (job)
		server_add_credit(&job->credit, bytes, CREDIT_LISTING_BYTES);
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
}

static void take_cancel(struct server *server, uint32_t id)
{
	struct job *job;
	bool due = false;

	pthread_mutex_lock(&server->lock);
	job = server_find_job(server, id);
	if (job) {
		job->cancelled = true;
		due = server_content_is_due(job);
	}
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
	if (due)
		submit(server, job, false);
}

int server_send_data(struct job *job, struct wire_writer *writer)
{
	struct server *server = job->server;
	size_t size = writer->buffer.size;
	bool stop;

	pthread_mutex_lock(&server->lock);
	while (!job->cancelled && !server->stopping && server_wait_for_credit(server, &job->credit))
		;
	job->credit -= (int64_t)size;
	stop = job->cancelled || server->stopping;
	pthread_mutex_unlock(&server->lock);
	if (stop)
		return -EINTR;
	job->listed_bytes += size;
	return lane_send(job->lane, answer_priority(job), FRAME_DATA, job->header.id, writer);
}

void server_wait_for_closes(struct job *job)
{
	struct server *server = job->server;

	pthread_mutex_lock(&server->lock);
	while (server->closing && !job->cancelled && !server->stopping)
		pthread_cond_wait(&server->moved, &server->lock);
	pthread_mutex_unlock(&server->lock);
}

/* Under the lock. */
static bool has_earlier_writes(const struct job *job)
{
	struct server *server = job->server;
	struct job *other = NULL;

	while ((other = hash_table_next(&server->jobs, other, job_hash, job_link)))
		if (other->number < job->number &&
			(request_flags(other->header.type) & REQUEST_IS_QUEUED))
			return true;
	return false;
}

int server_wait_for_writes(struct job *job)
{
	struct server *server = job->server;
	bool stop;

	pthread_mutex_lock(&server->lock);
	while (has_earlier_writes(job) && !job->cancelled && !server->stopping)
		pthread_cond_wait(&server->moved, &server->lock);
	stop = job->cancelled || server->stopping;
	pthread_mutex_unlock(&server->lock);
	return stop ? -EINTR : 0;
}

static int take_unwatch(struct server *server, struct wire_reader *in)
{
	struct object_ref directory = {.path = ""}; /* its path is not known */

	wire_get_object_id(in, &directory.id);
	if (!in->failed)
		workspace_unwatch(server->workspace, &directory);
	return wire_reader_finish(in);
}

static int received(void *user, const struct frame_header *header, uint8_t *payload)
{
	struct server_channel *channel = user;
	struct server *server = channel->server;
	struct wire_reader in = wire_reader_over(payload, header->size);
	int r = 0;

	if (header->type == FRAME_DATA)
		return server_content_take(channel, header, payload);
	if (channel->index > 0 && header->type != REQUEST_READ) {
		free(payload);
		return -EPROTO;
	}
	if (server_request_handler(header->type))
		return take_request(channel, header, payload);
	switch (header->type) {
	case FRAME_CREDIT:
		take_credit(server, header->id, wire_get_number_max(&in, UINT32_MAX));
		r = wire_reader_finish(&in);
		break;
	case FRAME_CANCEL:
		take_cancel(server, header->id);
		break;
	case FRAME_UNWATCH:
		r = take_unwatch(server, &in);
		break;
	case FRAME_BYE:
		server->callbacks.goodbye(server->user);
		break;
	case FRAME_INPUT:
	case FRAME_OUTPUT_CREDIT:
	case FRAME_KILL:
		return server_process_frame(server, header, payload);
	default:
		r = -EPROTO;
		break;
	}
	free(payload);
	return r;
}

static bool ready(void *user)
{
	struct server *server = ((struct server_channel *)user)->server;
	bool room;

	pthread_mutex_lock(&server->lock);
	room = server->jobs.count < JOBS_MAX && server->job_bytes < JOB_BYTES_MAX;
	pthread_mutex_unlock(&server->lock);
	return room;
}

static void lost(void *user, int error)
{
	struct server_channel *channel = user;
	struct server *server = channel->server;

	log_info("connection lost: %s", strerror(-error));
	server->callbacks.lost(server->user, channel->index);
}

/* ---- Life ------------------------------------------------------------------------------ */

static void free_lanes(struct server *server)
{
	for (unsigned i = 0; i < CHANNELS_MAX; i++)
		lane_free(server->channels[i].lane);
}

static int new_lanes(struct server *server)
{
	static const struct lane_callbacks callbacks = {
		.received = received, .ready = ready, .lost = lost};
	int r = 0;

	for (unsigned i = 0; i < CHANNELS_MAX && r == 0; i++) {
		server->channels[i] = (struct server_channel){.server = server, .index = i};
		r = lane_new(&callbacks, &server->channels[i], &server->channels[i].lane);
	}
	server->lane = server->channels[0].lane;
	return r;
}

static int init_tables(struct server *server)
{
	int r = hash_table_init_small(&server->jobs);

	if (r == 0)
		r = hash_table_init_small(&server->handles);
	return r < 0 ? r : hash_table_init_small(&server->contents);
}

/* One task more than threads, so that none of them ends without looking at what came last. */
static const struct worker_limits worker_limits = {.name = "request",
	.stack_bytes = SERVER_STACK_BYTES,
	.threads_max = WORKERS_MAX,
	.idle_max = WORKERS_MAX,
	.queue_max = 1};

/* Few of the jobs that may wait do, as most locks are free: starting a thread for each would take
 * longer than the job. */
static const struct worker_limits lasting_limits = {.name = "long-request",
	.stack_bytes = SERVER_STACK_BYTES,
	.threads_max = JOBS_MAX + 2 * PROCESSES_MAX,
	.idle_max = LONG_IDLE_MAX};

int server_new(struct workspace *w, const struct server_callbacks *callbacks, void *user,
	struct server **ret_server)
{
	struct server *server = calloc(1, sizeof(*server));
	int r = server ? init_tables(server) : -ENOMEM;

	if (r == 0)
		r = new_lanes(server);
	if (r < 0) {
		if (server) {
			free_lanes(server);
			hash_table_done(&server->contents);
			hash_table_done(&server->handles);
			hash_table_done(&server->jobs);
		}
		free(server);
		return r;
	}
	server->workspace = w;
	server->callbacks = *callbacks;
	server->user = user;
	server->small.last = &server->small.first;
	server->bulk.last = &server->bulk.first;
	pthread_mutex_init(&server->lock, NULL);
	pthread_mutex_init(&server->changed_lock, NULL);
	pthread_mutex_init(&server->feed_lock, NULL);
	clock_cond_init(&server->work);
	clock_cond_init(&server->moved);
	worker_pool_init(&server->workers, &worker_limits);
	worker_pool_init(&server->lasting, &lasting_limits);
	*ret_server = server;
	return 0;
}

/* A job that waits for content, and is to wait no longer.  Under the lock. */
static struct job *find_due(struct server *server)
{
	struct job *job = NULL;

	while ((job = hash_table_next(&server->jobs, job, job_hash, job_link)))
		if (server_content_is_due(job))
			return job;
	return NULL;
}

/* Under the lock, which it releases meanwhile. */
static void cancel_jobs(struct server *server)
{
	struct job *job = NULL;

	while ((job = hash_table_next(&server->jobs, job, job_hash, job_link)))
		job->cancelled = true;
	while ((job = find_due(server))) {
		pthread_mutex_unlock(&server->lock);
		submit(server, job, false);
		pthread_mutex_lock(&server->lock);
	}
}

static void stop_everything(struct server *server)
{
	pthread_mutex_lock(&server->lock);
	server->stopping = true;
	cancel_jobs(server);
	pthread_cond_broadcast(&server->work);
	pthread_cond_broadcast(&server->moved);
	pthread_mutex_unlock(&server->lock);
	server_processes_stop(server);
	pthread_mutex_lock(&server->lock);
	while (server->jobs.count || server->process_count)
		pthread_cond_wait(&server->moved, &server->lock);
	pthread_mutex_unlock(&server->lock);
	worker_pool_done(&server->workers);
	worker_pool_done(&server->lasting);
}

void server_free(struct server *server)
{
	if (!server)
		return;
	for (unsigned i = 0; i < CHANNELS_MAX; i++)
		lane_detach(server->channels[i].lane);
	stop_everything(server);
	server_handles_close(server);
	for (unsigned i = 0; i < CHANNELS_MAX; i++)
		server_forget_content(server, i);
	hash_table_done(&server->contents);
	hash_table_done(&server->handles);
	hash_table_done(&server->jobs);
	workspace_free(server->workspace);
	free_lanes(server);
	pthread_cond_destroy(&server->work);
	pthread_cond_destroy(&server->moved);
	pthread_mutex_destroy(&server->lock);
	pthread_mutex_destroy(&server->changed_lock);
	pthread_mutex_destroy(&server->feed_lock);
	free(server);
}

struct lane *server_lane(struct server *server, unsigned channel)
{
	return server->channels[channel].lane;
}
