#include "ops/workspace_look.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/clock.h"

enum {
	CHUNK_BYTES = 128 << 10,
	LINE_MAX_BYTES = 32 << 20, /* who matches line by line has to say that it is too long */
	THREADS_MAX = 8,
	WAIT_STEP_MS = 50,
};

struct looker {
	struct op_context *ctx;
	struct op_context others_ctx; /* of the other threads: each has a copy */
	struct workspace *workspace;
	const struct literals *texts;
	size_t overlap; /* bytes at the end of a chunk in which a text may begin */
	atomic_bool stopped;
	pthread_t threads[THREADS_MAX];
	unsigned thread_count;
	struct buffer memory;

	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct look *looks; /* guarded by lock, like what follows */
	size_t next, count;
	unsigned busy;
	bool ending;
};

/* ---- One file ------------------------------------------------------------------------------- */

struct content {
	struct op_context *ctx;
	struct open_file *file;
	off_t offset;
	struct buffer *memory; /* what is kept of the last chunk, then the next one */
	size_t line_bytes;     /* since the last line end */
};

/* 1: a text is in it, or that is not known; 0: not so far; -ENODATA: nowhere. */
static int look_at_chunk(struct looker *looker, struct content *content)
{
	struct buffer *memory = content->memory;
	struct literal_scan scan = {0};
	const uint8_t *at, *end, *newline;
	ssize_t got;
	bool is_last;

	if (buffer_reserve(memory, CHUNK_BYTES) < 0)
		return 1;
	at = memory->data + memory->size;
	got = workspace_read(content->ctx, content->file, memory->data + memory->size, CHUNK_BYTES,
		content->offset);
	if (got < 0)
		return 1;
	end = memchr(at, 0, (size_t)got);
	is_last = end || got < CHUNK_BYTES;
	end = end ? end : at + got;
	if (literals_find(looker->texts, &scan, memory->data, end))
		return 1;
	if (is_last)
		return -ENODATA;
	newline = memrchr(at, '\n', (size_t)got);
	content->line_bytes = newline ? (size_t)(end - newline) : content->line_bytes + (size_t)got;
	if (content->line_bytes > LINE_MAX_BYTES)
		return 1;
	content->offset += got;
	memory->size += (size_t)got;
	if (memory->size > looker->overlap) {
		memmove(memory->data, end - looker->overlap, looker->overlap);
		memory->size = looker->overlap;
	}
	return 0;
}

static bool lacks_texts(struct looker *looker, struct op_context *ctx, struct buffer *memory,
	const struct look *look)
{
	const struct object_ref object = {.path = look->path, .id = look->id};
	struct content content = {.ctx = ctx, .memory = memory};
	struct attributes attributes;
	int r;

	if (workspace_open_file(ctx, looker->workspace, &object,
		    O_RDONLY | O_NOATIME | O_NONBLOCK | O_NOCTTY, &content.file, &attributes) < 0)
		return false;
	memory->size = 0;
	do
		r = op_interrupted(ctx) ? 1 : look_at_chunk(looker, &content);
	while (r == 0);
	workspace_close(ctx, content.file);
	return r == -ENODATA;
}

/* ---- Several at once --------------------------------------------------------------------------
 */

static struct look *take(struct looker *looker)
{
	struct look *look = NULL;

	pthread_mutex_lock(&looker->lock);
	if (looker->next < looker->count && !looker->stopped)
		look = &looker->looks[looker->next++];
	pthread_mutex_unlock(&looker->lock);
	return look;
}

static void look_at_all(struct looker *looker, struct op_context *ctx, struct buffer *memory)
{
	struct look *look;

	while ((look = take(looker))) {
		look->lacks = lacks_texts(looker, ctx, memory, look);
		if (ctx == looker->ctx && op_interrupted(ctx))
			looker->stopped = true;
	}
}

static bool is_stopped(struct op_context *ctx)
{
	const struct looker *looker = ctx->interrupted_data;

	return looker->stopped;
}

static void *run_thread(void *user)
{
	struct buffer memory cleanup_buffer = {0};
	struct looker *looker = user;
	struct op_context ctx = looker->others_ctx;

	pthread_mutex_lock(&looker->lock);
	while (!looker->ending) {
		if (looker->next >= looker->count) {
			pthread_cond_wait(&looker->work, &looker->lock);
			continue;
		}
		looker->busy++;
		pthread_mutex_unlock(&looker->lock);
		look_at_all(looker, &ctx, &memory);
		pthread_mutex_lock(&looker->lock);
		looker->busy--;
		pthread_cond_signal(&looker->done);
	}
	pthread_mutex_unlock(&looker->lock);
	return NULL;
}

/* The others come when there is more than one file for the first time. */
static void start_threads(struct looker *looker)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	while (looker->thread_count + 1 < (online < 1 ? 1 : (unsigned long)online) &&
		looker->thread_count < THREADS_MAX &&
		pthread_create(&looker->threads[looker->thread_count], NULL, run_thread, looker) ==
			0)
		looker->thread_count++;
}

int looker_run(struct looker *looker, struct look *looks, size_t count)
{
	if (count > 1 && looker->thread_count == 0)
		start_threads(looker);
	pthread_mutex_lock(&looker->lock);
	looker->looks = looks;
	looker->next = 0;
	looker->count = count;
	if (count > 1)
		pthread_cond_broadcast(&looker->work);
	pthread_mutex_unlock(&looker->lock);
	look_at_all(looker, looker->ctx, &looker->memory);
	pthread_mutex_lock(&looker->lock);
	looker->count = 0;
	while (looker->busy > 0) {
		if (op_interrupted(looker->ctx))
			looker->stopped = true;
		clock_cond_wait_ms(&looker->done, &looker->lock, WAIT_STEP_MS);
	}
	pthread_mutex_unlock(&looker->lock);
	return looker->stopped ? -EINTR : 0;
}

int looker_new(struct op_context *ctx, struct workspace *w, const struct literals *texts,
	struct looker **ret_looker)
{
	struct looker *looker = calloc(1, sizeof(*looker));

	if (!looker)
		return -ENOMEM;
	looker->ctx = ctx;
	looker->others_ctx = *ctx;
	looker->others_ctx.facts = NULL;
	looker->others_ctx.interrupted = is_stopped;
	looker->others_ctx.interrupted_data = looker;
	looker->workspace = w;
	looker->texts = texts;
	for (size_t i = 0; i < literals_count(texts); i++)
		if (literals_text(texts, i).size > looker->overlap + 1)
			looker->overlap = literals_text(texts, i).size - 1;
	pthread_mutex_init(&looker->lock, NULL);
	pthread_cond_init(&looker->work, NULL);
	clock_cond_init(&looker->done);
	*ret_looker = looker;
	return 0;
}

void looker_free(struct looker *looker)
{
	if (!looker)
		return;
	pthread_mutex_lock(&looker->lock);
	looker->ending = true;
	pthread_cond_broadcast(&looker->work);
	pthread_mutex_unlock(&looker->lock);
	for (unsigned i = 0; i < looker->thread_count; i++)
		pthread_join(looker->threads[i], NULL);
	pthread_cond_destroy(&looker->done);
	pthread_cond_destroy(&looker->work);
	pthread_mutex_destroy(&looker->lock);
	buffer_done(&looker->memory);
	free(looker);
}
