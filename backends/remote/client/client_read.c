#include <errno.h>
#include <fcntl.h>

#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/client_internal.h"

enum {
	AHEAD_FIRST_BYTES = 1 << 20,
	AHEAD_GROWTH = 4,
	AHEAD_MAX_BYTES = 16 << 20,
	QUEUED_MAX_MS = 200,           /* what the link cannot carry only keeps others waiting */
	EAGER_READ_BYTES = 128 << 10,  /* the kernel expects to read on from the start of a file */
	AHEAD_TOTAL_BYTES = 128 << 20, /* of all files */
	SEQUENTIAL_SLACK_BYTES = 4 << 20, /* the kernel's own read-ahead comes out of order */
	UNREAD_MAX = 2,                   /* one may be a lock that is only made weaker */
	FRESH_MS = 1000, /* content that waits longer for its reader is asked for anew */
};

/* ---- Chunks: all under file->lock ------------------------------------------------- */

static void chunk_free(struct chunk *chunk)
{
	chunk->file->remote->chunk_bytes -= chunk->size;
	free(chunk->payload);
	free(chunk);
}

static void drop(struct chunk *chunk)
{
	if (chunk->done)
		chunk_free(chunk);
	else
		chunk->dropped = true;
}

/* But for those that are newer; 0: all. */
static void drop_older(struct remote_file *file, uint64_t at)
{
	struct chunk **slot = &file->chunks;

	while (*slot) {
		struct chunk *chunk = *slot;

		if (at && chunk->at > at) {
			slot = &chunk->next;
			continue;
		}
		*slot = chunk->next;
		drop(chunk);
	}
	file->has_chunks = file->chunks;
	file->ahead_offset = file->grown_offset = 0;
}

void remote_file_drop_chunks(struct remote_file *file)
{
	drop_older(file, 0);
}

static bool is_stale(const struct chunk *chunk, int64_t now_ms)
{
	return chunk->done && (chunk->used >= chunk->size || now_ms - chunk->done_ms > FRESH_MS);
}

/* The chunk that holds, or will hold, the byte at `offset`; stale ones are dropped. */
static struct chunk *find_chunk(struct remote_file *file, off_t offset)
{
	struct chunk **slot = &file->chunks;
	struct chunk *found = NULL;
	int64_t now_ms = clock_now_ms();

	while (*slot) {
		struct chunk *chunk = *slot;

		if (is_stale(chunk, now_ms)) {
			*slot = chunk->next;
			chunk_free(chunk);
			continue;
		}
		if (offset >= chunk->offset && offset < chunk->offset + (off_t)chunk->size)
			found = chunk;
		slot = &chunk->next;
	}
	return found;
}

static struct chunk *chunk_new(struct remote_file *file, off_t offset, size_t size)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	*chunk = (struct chunk){
		.file = file, .offset = offset, .size = size, .sent_ms = clock_now_ms()};
	chunk->next = file->chunks;
	file->chunks = chunk;
	file->has_chunks = true;
	file->remote->chunk_bytes += size;
	return chunk;
}

void remote_file_prefill(
	struct remote_file *file, uint8_t *payload, const uint8_t *data, size_t got, size_t wanted)
{
	struct chunk *chunk = chunk_new(file, 0, wanted);

	if (!chunk) {
		free(payload);
		return;
	}
	chunk->payload = payload;
	chunk->data = data;
	chunk->got = got;
	chunk->done = true;
	chunk->done_ms = clock_now_ms();
	file->ahead_offset = (off_t)wanted;
}

enum { FILES_AT_ONCE = 64 };

/* References to files of the object (NULL: all) that hold what was read ahead. */
static size_t files_with_chunks(struct remote *remote, const struct object_id *id,
	struct remote_file *ret_files[FILES_AT_ONCE])
{
	struct remote_file *f;
	size_t count = 0;

	pthread_mutex_lock(&remote->lock);
	for (f = id ? remote_files_of(remote, id) : remote_file_next(remote, NULL);
		f && count < FILES_AT_ONCE; f = id ? f->next : remote_file_next(remote, f))
		if (f->has_chunks && (!id || object_id_equal(&f->id, id))) {
			f->refs++;
			ret_files[count++] = f;
		}
	pthread_mutex_unlock(&remote->lock);
	return count;
}

void remote_drop_stale_chunks(struct remote *remote)
{
	struct remote_file *files[FILES_AT_ONCE];
	size_t count = files_with_chunks(remote, NULL, files);

	for (size_t i = 0; i < count; i++) {
		pthread_mutex_lock(&files[i]->lock);
		find_chunk(files[i], -1);
		files[i]->has_chunks = files[i]->chunks;
		pthread_mutex_unlock(&files[i]->lock);
		remote_file_unref(files[i]);
	}
}

/* `except`: a file whose chunks have the change; or NULL. */
static void object_changed(struct remote *remote, const struct object_id *id, uint64_t at,
	const struct remote_file *except)
{
	struct remote_file *files[FILES_AT_ONCE];
	size_t count;

	remote->changes++;
	remote->own_changes += !at;
	if (at > remote->feed_at)
		remote->feed_at = at;
	if (!remote->chunk_bytes)
		return;
	do {
		count = files_with_chunks(remote, id, files);
		for (size_t j = 0; j < count; j++) {
			pthread_mutex_lock(&files[j]->lock);
			if (files[j] != except)
				drop_older(files[j], at);
			pthread_mutex_unlock(&files[j]->lock);
			remote_file_unref(files[j]);
		}
		at = 0; /* lest the same ones come again */
		except = NULL;
	} while (count == FILES_AT_ONCE);
}

void remote_object_changed(struct remote *remote, const struct object_id *id, uint64_t at)
{
	object_changed(remote, id, at, NULL);
}

static void file_changed(struct remote_file *file, const struct remote_file *except)
{
	struct object_id id;

	pthread_mutex_lock(&file->remote->lock);
	id = file->id;
	pthread_mutex_unlock(&file->remote->lock);
	object_changed(file->remote, &id, 0, except);
}

void remote_file_changed(struct remote_file *file)
{
	file_changed(file, NULL);
}

/* ---- Behind a lock ------------------------------------------------------------------------ */

/* Under file->lock. */
static struct lock_habit *find_habit(struct remote_file *file, const struct file_lock *lock)
{
	for (unsigned i = 0; i < LOCK_HABITS; i++) {
		struct lock_habit *habit = &file->lock_habits[i];

		if (habit->kind == lock->kind && habit->type == lock->type &&
			habit->offset == lock->offset)
			return habit;
	}
	return NULL;
}

size_t remote_file_wanted_with(struct remote_file *file, const struct file_lock *lock)
{
	const struct lock_habit *habit;
	size_t wanted;

	pthread_mutex_lock(&file->lock);
	habit = find_habit(file, lock);
	wanted = habit ? habit->bytes : 0;
	pthread_mutex_unlock(&file->lock);
	return wanted;
}

void remote_file_locked(struct remote_file *file, const struct file_lock *lock, uint64_t at,
	uint8_t *payload, const uint8_t *data, size_t got, size_t wanted)
{
	struct lock_habit *habit;

	pthread_mutex_lock(&file->lock);
	habit = find_habit(file, lock);
	if (!habit) {
		habit = &file->lock_habits[(file->lock_last + 1) % LOCK_HABITS];
		*habit = (struct lock_habit){lock->kind, lock->type, lock->offset, 0, 0};
	}
	if (++habit->unread > UNREAD_MAX)
		habit->bytes = 0;
	file->lock_last = (unsigned)(habit - file->lock_habits);
	if (got) {
		remote_file_prefill(file, payload, data, got, wanted);
		if (file->chunks)
			file->chunks->at = at;
	} else {
		free(payload);
	}
	pthread_mutex_unlock(&file->lock);
}

static bool came_with(const struct remote_file *file, const struct file_lock *lock)
{
	const struct lock_habit *habit = &file->lock_habits[file->lock_last];

	return habit->kind == lock->kind &&
	       (habit->offset == lock->offset || (!lock->offset && !lock->length));
}

void remote_file_unlocked(struct remote_file *file, const struct file_lock *lock)
{
	struct chunk **slot = &file->chunks;

	pthread_mutex_lock(&file->lock);
	while (came_with(file, lock) && *slot) {
		struct chunk *chunk = *slot;

		if (!chunk->at) {
			slot = &chunk->next;
			continue;
		}
		*slot = chunk->next;
		drop(chunk);
	}
	file->has_chunks = file->chunks;
	pthread_mutex_unlock(&file->lock);
}

/* Under file->lock. */
static void note_read_behind_lock(struct remote_file *file, size_t size, off_t offset)
{
	struct lock_habit *habit = &file->lock_habits[file->lock_last];

	if (!file->has_locks || offset > LOCK_INLINE_MAX_BYTES ||
		(size_t)offset + size > LOCK_INLINE_MAX_BYTES)
		return;
	if (habit->bytes < (size_t)offset + size)
		habit->bytes = (size_t)offset + size;
	habit->unread = 0;
}

/* Writes to what came with a lock.  Under file->lock.  False: it does not hold all of that. */
static bool write_to_chunks(
	struct remote_file *file, const uint8_t *data, size_t size, off_t offset)
{
	struct chunk *chunk = file->chunks;

	if (!chunk || chunk->next || !chunk->at || offset < chunk->offset ||
		offset + (off_t)size > chunk->offset + (off_t)chunk->got)
		return false;
	memcpy((uint8_t *)chunk->payload + (chunk->data - chunk->payload) +
			(offset - chunk->offset),
		data, size);
	return true;
}

void remote_file_written(struct remote_file *file, const uint8_t *data, size_t size, off_t offset)
{
	bool is_kept;

	pthread_mutex_lock(&file->lock);
	is_kept = !(file->flags & O_APPEND) && write_to_chunks(file, data, size, offset);
	pthread_mutex_unlock(&file->lock);
	file_changed(file, is_kept ? file : NULL);
}

/* ---- Fetching ------------------------------------------------------------------------ */

/* An answer that took much longer than the quickest one has waited in the link's queue. */
static void note_latency(struct remote_file *file, const struct chunk *chunk)
{
	int64_t took_ms = chunk->done_ms - chunk->sent_ms;

	if (!file->quickest_ms || took_ms < file->quickest_ms)
		file->quickest_ms = took_ms > 0 ? took_ms : 1;
	file->ahead_is_enough = took_ms > file->quickest_ms * 2 + QUEUED_MAX_MS;
	if (file->ahead_is_enough && file->ahead_bytes > AHEAD_FIRST_BYTES)
		file->ahead_bytes /= 2;
}

static void chunk_answered(struct call *call)
{
	struct chunk *chunk = call->user;
	struct remote_file *file = chunk->file;
	int64_t result = call->result, quickest_ms;

	if (result >= 0 && ((uint64_t)result > chunk->size ||
				   wire_reader_left(&call->body) != (uint64_t)result))
		result = -EIO;
	pthread_mutex_lock(&file->lock);
	chunk->done = true;
	chunk->done_ms = clock_now_ms();
	note_latency(file, chunk);
	quickest_ms = file->quickest_ms;
	if (result < 0) {
		chunk->error = (int)result;
	} else {
		chunk->got = (size_t)result;
		chunk->data = call->body.data + call->body.offset;
		chunk->payload = steal_ptr(&call->payload);
	}
	if (chunk->dropped)
		chunk_free(chunk);
	pthread_cond_broadcast(&file->changed);
	pthread_mutex_unlock(&file->lock);
	if (result > 0)
		remote_note_streamed(file->remote, (size_t)result, quickest_ms);
	call_free(call);
	remote_file_unref(file);
}

static void unlink_chunk(struct remote_file *file, struct chunk *chunk)
{
	struct chunk **slot = &file->chunks;

	while (*slot && *slot != chunk)
		slot = &(*slot)->next;
	if (*slot)
		*slot = chunk->next;
}

/* RESULT_BUSY: too many requests are under way.  RESULT_AGAIN, which remote_read() counts.
 *
 * The chunk is in the list before the order is looked up: a write that is queued later drops it,
 * and the read follows one that was queued earlier. */
static int fetch(
	struct op_context *ctx, struct remote_file *file, off_t offset, size_t size, bool is_ahead)
{
	struct remote *remote = file->remote;
	struct chunk *chunk = chunk_new(file, offset, size);
	cleanup_remote_request struct remote_request request = {
		ctx, remote, REQUEST_READ, .file = file, .at_once = true};
	int r;

	if (!chunk)
		return -ENOMEM;
	chunk->is_ahead = is_ahead;
	pthread_mutex_lock(&remote->lock);
	request.order = remote_order_locked(remote, &file->id);
	chunk->epoch = file->epoch;
	file->refs++;
	pthread_mutex_unlock(&remote->lock);
	wire_put_number(&request.arguments, (uint64_t)offset);
	wire_put_number(&request.arguments, size);
	request.may_spread = is_ahead && !request.order;
	r = remote_request_submit(&request, chunk_answered, chunk);
	if (r < 0) {
		unlink_chunk(file, chunk);
		chunk_free(chunk);
		pthread_mutex_lock(&remote->lock);
		file->refs--;
		pthread_mutex_unlock(&remote->lock);
	}
	return r;
}

/* Asks for what no chunk covers of the range. */
static int fetch_missing(struct op_context *ctx, struct remote_file *file, off_t offset, off_t end)
{
	int r = 0;

	while (offset < end && r == 0) {
		struct chunk *chunk = find_chunk(file, offset);
		off_t stop = end - offset > TRANSFER_MAX_BYTES ? offset + TRANSFER_MAX_BYTES : end;

		if (chunk) {
			offset = chunk->offset + (off_t)chunk->size;
			continue;
		}
		for (struct chunk *c = file->chunks; c; c = c->next)
			if (c->offset > offset && c->offset < stop)
				stop = c->offset;
		r = fetch(ctx, file, offset, (size_t)(stop - offset), false);
		offset = stop;
	}
	return r;
}

static bool is_sequential(const struct remote_file *file, off_t offset, size_t size)
{
	if (offset == 0 && file->next_offset == 0)
		return size >= EAGER_READ_BYTES;
	return offset >= file->next_offset - SEQUENTIAL_SLACK_BYTES &&
	       offset <= file->next_offset + SEQUENTIAL_SLACK_BYTES && file->next_offset > 0;
}

/* The next write would drop what was read ahead. */
static bool is_being_written(struct remote_file *file)
{
	bool written;

	pthread_mutex_lock(&file->remote->lock);
	written = remote_order_locked(file->remote, &file->id);
	pthread_mutex_unlock(&file->remote->lock);
	return written;
}

static void read_ahead(struct op_context *ctx, struct remote_file *file, off_t end)
{
	struct remote *remote = file->remote;
	off_t target;

	if (!file->ahead_bytes)
		file->ahead_bytes = AHEAD_FIRST_BYTES;
	if (file->ahead_offset < end)
		file->ahead_offset = end;
	target = end + (off_t)file->ahead_bytes;
	target = target < file->size_hint ? target : file->size_hint;
	while (file->ahead_offset < target && remote->chunk_bytes < AHEAD_TOTAL_BYTES) {
		off_t left = file->size_hint - file->ahead_offset;
		size_t size = left < TRANSFER_MAX_BYTES ? (size_t)left : TRANSFER_MAX_BYTES;

		if (fetch(ctx, file, file->ahead_offset, size, true) < 0)
			break;
		file->ahead_offset += (off_t)size;
	}
}

/* ---- Reading ---------------------------------------------------------------------------- */

static int wait_for_chunk(
	struct op_context *ctx, struct remote_file *file, struct chunk *chunk, bool *counted)
{
	/* What was on its way before it was wanted costs the reader no round trip. */
	if (!*counted && !chunk->is_ahead)
		remote_count_round_trip(file->remote, ctx);
	*counted = true;
	if (chunk->is_ahead && chunk->offset >= file->grown_offset && !file->ahead_is_enough &&
		file->ahead_bytes < AHEAD_MAX_BYTES) {
		file->ahead_bytes *= AHEAD_GROWTH;
		file->grown_offset = file->ahead_offset;
	}
	return remote_wait(file->remote, ctx, &file->changed, &file->lock);
}

/* The answers that free a slot need the lock. */
static int wait_for_slot(struct op_context *ctx, struct remote_file *file)
{
	int r;

	pthread_mutex_unlock(&file->lock);
	r = remote_wait_for_slot(file->remote, ctx);
	pthread_mutex_lock(&file->lock);
	return r;
}

static int fetch_or_wait(struct op_context *ctx, struct remote_file *file, off_t offset, off_t end)
{
	int r = fetch_missing(ctx, file, offset, end);

	return r == RESULT_BUSY ? wait_for_slot(ctx, file) : r;
}

/* Returns the bytes copied; sets `*at_end` at the end of the file. */
static ssize_t copy_from(
	struct chunk *chunk, uint8_t *data, size_t size, off_t offset, bool *at_end)
{
	size_t start = (size_t)(offset - chunk->offset);
	size_t left = chunk->got > start ? chunk->got - start : 0;
	size_t count = left < size ? left : size;

	memcpy(data, chunk->data + start, count);
	chunk->used += count;
	*at_end = count < size && chunk->got < chunk->size;
	return (ssize_t)count;
}

/* All that was asked of a session which has ended counts as one failure: the reader starts anew. */
static int take_failure(struct remote_file *file, struct chunk *chunk)
{
	struct remote *remote = file->remote;
	int error = chunk->error;

	pthread_mutex_lock(&remote->lock);
	if (chunk->epoch != remote->epoch)
		error = RESULT_AGAIN;
	pthread_mutex_unlock(&remote->lock);
	if (error == RESULT_AGAIN) {
		remote_file_drop_chunks(file);
		return error;
	}
	unlink_chunk(file, chunk);
	chunk_free(chunk);
	return error == RESULT_LOST ? 0 : error;
}

/* Under file->lock. */
static ssize_t read_locked(
	struct op_context *ctx, struct remote_file *file, uint8_t *data, size_t size, off_t offset)
{
	bool at_end = false, counted = false;
	size_t done = 0;
	int r;

	r = fetch_missing(ctx, file, offset, offset + (off_t)size);
	if (r == 0 && is_sequential(file, offset, size) && !is_being_written(file))
		read_ahead(ctx, file, offset + (off_t)size);
	if (r == RESULT_BUSY)
		r = 0;
	while (r == 0 && done < size && !at_end) {
		off_t position = offset + (off_t)done;
		struct chunk *chunk = find_chunk(file, position);

		if (!chunk) {
			r = fetch_or_wait(ctx, file, position, offset + (off_t)size);
		} else if (!chunk->done) {
			r = wait_for_chunk(ctx, file, chunk, &counted);
		} else if (chunk->error) {
			r = take_failure(file, chunk);
		} else {
			done += (size_t)copy_from(
				chunk, data + done, size - done, position, &at_end);
		}
	}
	if (offset + (off_t)done > file->next_offset || !is_sequential(file, offset, size))
		file->next_offset = offset + (off_t)done;
	if (!counted && r == 0)
		ctx->served.from_cache = true;
	return r < 0 ? r : (ssize_t)done;
}

ssize_t remote_read(
	struct op_context *ctx, struct open_file *open_file, void *data, size_t size, off_t offset)
{
	struct remote_file *file = remote_file_of(open_file);
	int64_t result;

	if ((file->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	do {
		int r = remote_file_ready(ctx, file);

		if (r < 0)
			return r;
		pthread_mutex_lock(&file->lock);
		note_read_behind_lock(file, size, offset);
		result = read_locked(ctx, file, data, size, offset);
		pthread_mutex_unlock(&file->lock);
	} while (remote_again(ctx, &result));
	return (ssize_t)result;
}
