#include "tools/base/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/files.h"
#include "ops/support/thread.h"
#include "ops/support/visible.h"
#include "tools/base/process.h"
#include "tools/base/tool.h"

enum { WRITE_WAIT_MS = 5000 };

struct job {
	unsigned number;
	struct jobs *jobs;
	struct tool_call *call; /* of the job itself; cancelling it kills the job */
	char *command, *directory;
	char **environment;
	bool any_shell;
	int input[2];
	pthread_t thread;
	uint64_t started_ns;

	/* Guarded by jobs->lock. */
	struct buffer output;
	uint64_t missed;
	bool ended;
	struct process_result result;
	int error;
	unsigned users;  /* calls that use it; it is freed only when there are none */
	bool is_written; /* a call is writing to its input */
};

struct jobs {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job *list[JOBS_MAX];
	unsigned last_number;
};

/* ---- A job ------------------------------------------------------------------------------ */

static int take_output(void *user, bool is_stderr, const void *data, size_t size)
{
	struct job *job = user;
	size_t over;
	int r;

	(void)is_stderr;
	pthread_mutex_lock(&job->jobs->lock);
	r = buffer_append(&job->output, data, size);
	over = job->output.size > JOB_OUTPUT_BYTES ? job->output.size - JOB_OUTPUT_BYTES : 0;
	buffer_consume(&job->output, over);
	job->missed += over;
	pthread_cond_broadcast(&job->jobs->changed);
	pthread_mutex_unlock(&job->jobs->lock);
	return r;
}

static void *job_run(void *user)
{
	struct job *job = user;
	const struct process_request request = {
		.command = job->command,
		.any_shell = job->any_shell,
		.directory = job->directory,
		.environment = (const char *const *)job->environment,
		.input = job->input[0],
		.has_input = true,
		.merged = true,
		.output = take_output,
		.user = job,
	};
	struct process_result result = {0};
	int r = process_run(job->call, &request, &result);

	pthread_mutex_lock(&job->jobs->lock);
	cJSON_Delete(result.changed);
	result.changed = NULL;
	job->result = result;
	job->error = r;
	job->ended = true;
	pthread_cond_broadcast(&job->jobs->changed);
	pthread_mutex_unlock(&job->jobs->lock);
	return NULL;
}

static void job_free(struct job *job)
{
	if (!job)
		return;
	for (char **at = job->environment; at && *at; at++)
		free(*at);
	free(job->environment);
	free(job->command);
	free(job->directory);
	tool_call_free(job->call);
	buffer_done(&job->output);
	for (size_t i = 0; i < array_size(job->input); i++)
		if (job->input[i] >= 0)
			close(job->input[i]);
	free(job);
}

static char **copy_strings(const char *const *list)
{
	size_t count = 0;
	char **copy;

	while (list && list[count])
		count++;
	copy = calloc(count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++)
		copy[i] = strdup(list[i]);
	return copy;
}

static struct job *job_new(struct tool_call *call, const struct job_request *request)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->jobs = call->session->jobs;
	job->input[0] = job->input[1] = -1;
	job->started_ns = clock_now_ns();
	job->command = strdup(request->command);
	job->directory = strdup(request->directory);
	job->environment = copy_strings(request->environment);
	job->any_shell = request->any_shell;
	job->call = tool_call_new(call->session, call->tool, NULL, call->call_id);
	if (job->command && job->directory && job->environment && job->call &&
		pipe2(job->input, O_CLOEXEC) == 0 && fcntl(job->input[1], F_SETFL, O_NONBLOCK) == 0)
		return job;
	job_free(job);
	return NULL;
}

/* ---- The list --------------------------------------------------------------------------- */

struct jobs *jobs_new(void)
{
	struct jobs *jobs = calloc(1, sizeof(*jobs));

	if (!jobs)
		return NULL;
	pthread_mutex_init(&jobs->lock, NULL);
	clock_cond_init(&jobs->changed);
	return jobs;
}

static struct job **find(struct jobs *jobs, unsigned number)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (jobs->list[i] && jobs->list[i]->number == number)
			return &jobs->list[i];
	return NULL;
}

static struct job **find_room(struct jobs *jobs)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (!jobs->list[i])
			return &jobs->list[i];
	return NULL;
}

void jobs_free(struct jobs *jobs)
{
	if (!jobs)
		return;
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (jobs->list[i])
			tool_cancel(jobs->list[i]->call);
	for (size_t i = 0; i < JOBS_MAX; i++) {
		if (!jobs->list[i])
			continue;
		pthread_join(jobs->list[i]->thread, NULL);
		job_free(jobs->list[i]);
	}
	pthread_cond_destroy(&jobs->changed);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
}

int jobs_start(struct tool_call *call, const struct job_request *request, unsigned *ret_number)
{
	struct jobs *jobs = call->session->jobs;
	struct job *job = job_new(call, request), **room;
	int r = job ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	room = find_room(jobs);
	r = room ? thread_start(&job->thread, "job", 0, job_run, job) : -EAGAIN;
	if (r == 0) {
		*room = job;
		job->number = *ret_number = ++jobs->last_number;
	}
	pthread_mutex_unlock(&jobs->lock);
	if (r < 0)
		job_free(job);
	return r;
}

/* ---- Looking ------------------------------------------------------------------------------ */

static void wait_for_news(struct tool_call *call, struct job *job, unsigned wait_ms)
{
	const uint64_t end_ns = clock_now_ns() + (uint64_t)wait_ms * 1000000;

	while (!job->output.size && !job->ended && !tool_cancelled(call) &&
		clock_now_ns() < end_ns) {
		const struct timespec soon = clock_in_ms(50);

		pthread_cond_timedwait(&job->jobs->changed, &job->jobs->lock, &soon);
	}
}

static void take_look(struct job *job, struct job_look *look)
{
	*look = (struct job_look){
		.output = job->output,
		.missed = job->missed,
		.ended = job->ended,
		.exit_code = job->result.exit_code,
		.signal = job->result.signal,
		.error = job->error,
		.seconds = (unsigned)((clock_now_ns() - job->started_ns) / 1000000000),
	};
	job->output = (struct buffer){0};
	job->missed = 0;
}

/* Frees a job that has ended.  Called with the lock held; releases it while it joins the thread. */
static void forget(struct jobs *jobs, struct job **at)
{
	struct job *job = *at;

	*at = NULL;
	pthread_mutex_unlock(&jobs->lock);
	pthread_join(job->thread, NULL);
	job_free(job);
	pthread_mutex_lock(&jobs->lock);
}

int jobs_look(struct tool_call *call, unsigned number, unsigned wait_ms, struct job_look *ret_look)
{
	struct jobs *jobs = call->session->jobs;
	struct job **at, *job;

	pthread_mutex_lock(&jobs->lock);
	at = find(jobs, number);
	if (at) {
		job = *at;
		job->users++;
		wait_for_news(call, job, wait_ms);
		take_look(job, ret_look);
		if (--job->users == 0 && job->ended)
			forget(jobs, at);
	}
	pthread_mutex_unlock(&jobs->lock);
	return at ? 0 : -ENOENT;
}

/* ---- Acting ------------------------------------------------------------------------------- */

/* Writes input, with a timeout: if the job does not read, the call fails and says so. */
static int write_input(int fd, const uint8_t *data, size_t size)
{
	while (size > 0) {
		struct pollfd room = {.fd = fd, .events = POLLOUT};
		ssize_t done = write(fd, data, size);

		if (done > 0) {
			data += done;
			size -= (size_t)done;
		} else if (errno != EAGAIN && errno != EINTR) {
			return -errno;
		} else if (poll(&room, 1, WRITE_WAIT_MS) == 0) {
			return -EAGAIN;
		}
	}
	return 0;
}

int jobs_write(struct jobs *jobs, unsigned number, const void *data, size_t size, bool end)
{
	struct job **at, *job = NULL;
	int r = -ENOENT;

	pthread_mutex_lock(&jobs->lock);
	at = find(jobs, number);
	if (at) {
		job = *at;
		r = job->ended || job->input[1] < 0 ? -EPIPE : job->is_written ? -EAGAIN : 0;
	}
	if (r < 0) {
		pthread_mutex_unlock(&jobs->lock);
		return r;
	}
	job->users++;
	job->is_written = true;
	pthread_mutex_unlock(&jobs->lock);
	r = write_input(job->input[1], data, size);
	pthread_mutex_lock(&jobs->lock);
	if (r == 0 && end) {
		close(job->input[1]);
		job->input[1] = -1;
	}
	job->is_written = false;
	job->users--;
	pthread_mutex_unlock(&jobs->lock);
	return r;
}

int jobs_kill(struct jobs *jobs, unsigned number)
{
	struct job **at;

	pthread_mutex_lock(&jobs->lock);
	at = find(jobs, number);
	if (at) {
		struct job *job = *at;

		job->users++;
		tool_cancel(job->call);
		while (!job->ended)
			pthread_cond_wait(&jobs->changed, &jobs->lock);
		job->users--;
	}
	pthread_mutex_unlock(&jobs->lock);
	return at ? 0 : -ENOENT;
}

static int list_one(const struct job *job, struct buffer *out)
{
	unsigned seconds = (unsigned)((clock_now_ns() - job->started_ns) / 1000000000);
	int r = job->ended ? buffer_printf(out, "%u  ended, exit code %d  ", job->number,
				     job->result.exit_code)
			   : buffer_printf(out, "%u  running %u s  ", job->number, seconds);

	if (r == 0)
		r = visible_append(out, job->command, strlen(job->command), 0);
	return r < 0 ? r : buffer_append_string(out, "\n");
}

int jobs_list(struct jobs *jobs, struct buffer *out)
{
	int r = 0;

	pthread_mutex_lock(&jobs->lock);
	for (size_t i = 0; r == 0 && i < JOBS_MAX; i++)
		if (jobs->list[i])
			r = list_one(jobs->list[i], out);
	pthread_mutex_unlock(&jobs->lock);
	return r;
}
