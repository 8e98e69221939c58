#include "ops/cached_readahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHUNK_BYTES = 1 << 20,
	WINDOW_MIN = 2, /* chunks ahead of the reader */
	WINDOW_MAX = 16,
	SLACK_BYTES = 4 << 20, /* the kernel's own read-ahead asks out of order */
};

struct chunk {
	struct chunk *next; /* by offset */
	struct readahead *readahead;
	struct open_file *inner;
	uint64_t offset;
	uint64_t asked;    /* clock */
	uint64_t asked_ms; /* under a TTL */
	bool done, stale;
	unsigned readers; /* copying */
	ssize_t size;     /* or -errno */
	uint8_t *data;
};

struct readahead {
	pthread_mutex_t lock;
	pthread_cond_t done;
	struct cached *cached;
	struct chunk *chunks;
	unsigned in_flight;
	unsigned window;
	uint64_t next; /* where a sequential reader reads on */
	uint64_t end;  /* of file, as far as known */
	bool closing;
};

static void chunk_free(struct chunk *chunk)
{
	free(chunk->data);
	free(chunk);
}

/* Frees chunks that are stale, or that the reader has left behind. */
static void sweep(struct readahead *ra)
{
	struct chunk **link = &ra->chunks;

	while (*link) {
		struct chunk *chunk = *link;
		bool behind = chunk->offset + CHUNK_BYTES + SLACK_BYTES <= ra->next;

		if (!chunk->done || chunk->readers || (!chunk->stale && !behind)) {
			link = &chunk->next;
			continue;
		}
		*link = chunk->next;
		chunk_free(chunk);
	}
}

static void fetch(void *user)
{
	struct chunk *chunk = user;
	struct readahead *ra = chunk->readahead;
	struct op_context ctx;
	ssize_t size = -ENOMEM;

	op_context_init(&ctx);
	chunk->data = malloc(CHUNK_BYTES);
	if (chunk->data)
		size = workspace_read(
			&ctx, chunk->inner, chunk->data, CHUNK_BYTES, (off_t)chunk->offset);
	pthread_mutex_lock(&ra->lock);
	chunk->size = size;
	chunk->done = true;
	ra->in_flight--;
	if (size >= 0 && size < CHUNK_BYTES)
		ra->end = chunk->offset + (uint64_t)size;
	pthread_cond_broadcast(&ra->done);
	pthread_mutex_unlock(&ra->lock);
}

static struct chunk *find_chunk(const struct readahead *ra, uint64_t offset)
{
	struct chunk *chunk = ra->chunks;

	while (chunk &&
		(chunk->stale || offset < chunk->offset || offset >= chunk->offset + CHUNK_BYTES))
		chunk = chunk->next;
	return chunk;
}

static void start_chunk(
	struct readahead *ra, struct open_file *inner, uint64_t offset, uint64_t asked)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return;
	*chunk = (struct chunk){.next = ra->chunks,
		.readahead = ra,
		.inner = inner,
		.offset = offset,
		.asked = asked,
		.asked_ms = cached_now_ms()};
	if (!worker_pool_submit(ra->cached->readers, fetch, chunk)) {
		free(chunk);
		return;
	}
	ra->chunks = chunk;
	ra->in_flight++;
}

/* Keeps the window ahead of `offset` full. */
static void top_up(struct readahead *ra, struct open_file *inner, uint64_t offset, uint64_t asked)
{
	uint64_t first = offset - offset % CHUNK_BYTES;

	for (unsigned i = 0; i < ra->window; i++) {
		uint64_t at = first + (uint64_t)i * CHUNK_BYTES;

		if (at >= ra->end || ra->in_flight >= ra->window)
			return;
		if (!find_chunk(ra, at))
			start_chunk(ra, inner, at, asked);
	}
}

/* Has the file changed since the chunk was asked for? */
static void drop_outdated(struct readahead *ra, uint64_t changed_at, bool believed)
{
	uint64_t now_ms = cached_now_ms();

	for (struct chunk *chunk = ra->chunks; chunk; chunk = chunk->next)
		if (changed_at > chunk->asked ||
			(!believed && now_ms - chunk->asked_ms >= ra->cached->ttl_ms))
			chunk->stale = true;
}

static struct readahead *readahead_of(struct cached_file *file)
{
	struct readahead *ra;

	pthread_mutex_lock(&file->open_lock);
	if (!file->readahead && (ra = calloc(1, sizeof(*ra)))) {
		pthread_mutex_init(&ra->lock, NULL);
		pthread_cond_init(&ra->done, NULL);
		ra->cached = cached_of(file->file.workspace);
		ra->window = WINDOW_MIN;
		ra->end = file->attributes.size_bytes;
		file->readahead = ra;
	}
	ra = file->readahead;
	pthread_mutex_unlock(&file->open_lock);
	return ra;
}

static bool is_sequential(const struct readahead *ra, uint64_t offset)
{
	return offset <= ra->next + SLACK_BYTES && offset + SLACK_BYTES >= ra->next;
}

/* Waits for the chunk and copies from it.  0: nothing here, ask the place. */
static ssize_t take(
	struct readahead *ra, struct op_context *ctx, uint64_t offset, void *data, size_t size)
{
	struct chunk *chunk = find_chunk(ra, offset);
	ssize_t count = 0;

	if (!chunk)
		return 0;
	chunk->readers++;
	while (!chunk->done) {
		struct timespec until;

		if (op_interrupted(ctx)) {
			chunk->readers--;
			return -EINTR;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 50000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&ra->done, &ra->lock, &until);
	}
	if (chunk->size > (ssize_t)(offset - chunk->offset))
		count = chunk->size - (ssize_t)(offset - chunk->offset);
	if (count > (ssize_t)size)
		count = (ssize_t)size;
	pthread_mutex_unlock(&ra->lock);
	if (count > 0)
		memcpy(data, chunk->data + (offset - chunk->offset), (size_t)count);
	pthread_mutex_lock(&ra->lock);
	chunk->readers--;
	chunk->stale = chunk->stale || chunk->size < 0;
	return count;
}

static ssize_t take_all(
	struct readahead *ra, struct op_context *ctx, uint64_t offset, char *data, size_t size)
{
	size_t done = 0;
	ssize_t part = 1;

	while (done < size && part > 0) {
		part = take(ra, ctx, offset + done, data + done, size - done);
		if (part > 0)
			done += (size_t)part;
	}
	return part < 0 ? part : (ssize_t)done;
}

ssize_t readahead_read(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset)
{
	struct readahead *ra = readahead_of(file);
	uint64_t at = (uint64_t)offset, changed_at, asked;
	bool believed, writing;
	ssize_t done = 0, rest;

	if (!ra)
		return workspace_read(ctx, inner, data, size, offset);
	pthread_mutex_lock(&ra->cached->lock);
	changed_at = file->node ? file->node->changed_at : 0;
	believed = file->node && node_attributes_are_fresh(ra->cached, file->node);
	writing = file->node && file->node->writers > 0;
	asked = ra->cached->clock;
	pthread_mutex_unlock(&ra->cached->lock);

	pthread_mutex_lock(&ra->lock);
	drop_outdated(ra, changed_at, believed);
	sweep(ra);
	if (!writing && is_sequential(ra, at) && at < ra->end) {
		if (at > 0 && ra->window < WINDOW_MAX && find_chunk(ra, at))
			ra->window++;
		top_up(ra, inner, at, asked);
		done = take_all(ra, ctx, at, data, size);
	} else {
		ra->window = WINDOW_MIN;
	}
	if (done >= 0 && at + size > ra->next)
		ra->next = at + size;
	else if (done >= 0 && !is_sequential(ra, at))
		ra->next = at + size;
	pthread_mutex_unlock(&ra->lock);
	if (done < 0 || (size_t)done == size)
		return done;
	rest = workspace_read(ctx, inner, (char *)data + done, size - (size_t)done, offset + done);
	return rest < 0 ? (done ? done : rest) : done + rest;
}

void readahead_forget(struct cached_file *file)
{
	struct readahead *ra;

	pthread_mutex_lock(&file->open_lock);
	ra = file->readahead;
	pthread_mutex_unlock(&file->open_lock);
	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	for (struct chunk *chunk = ra->chunks; chunk; chunk = chunk->next)
		chunk->stale = true;
	ra->end = UINT64_MAX;
	pthread_mutex_unlock(&ra->lock);
}

void readahead_free(struct cached_file *file)
{
	struct readahead *ra = file->readahead;

	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	while (ra->in_flight > 0)
		pthread_cond_wait(&ra->done, &ra->lock);
	for (struct chunk *chunk = ra->chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		chunk_free(chunk);
	}
	pthread_mutex_unlock(&ra->lock);
	pthread_cond_destroy(&ra->done);
	pthread_mutex_destroy(&ra->lock);
	free(ra);
	file->readahead = NULL;
}
