#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/client/client_internal.h"

enum {
	SYNC_FLAGS = O_DSYNC | O_SYNC,
	REFUSED_FRESH_MS = 10000,
	SMALL_BYTES = 4096, /* about what a request takes that brings no content */
	DETACHED_MIN_BYTES = 64 << 10,
};

/* ---- Order among queued writes and what follows them ------------------------------------ */

uint64_t remote_order_locked(struct remote *remote, const struct object_id *id)
{
	const struct remote_file *f = remote_files_of(remote, id);

	while (f && !(f->writes && object_id_equal(&f->id, id)))
		f = f->next;
	return f ? f->handle : 0;
}

int remote_order(struct op_context *ctx, struct remote *remote, const struct object_ref *object,
	uint64_t *ret_order)
{
	struct object_id id = object->file       ? remote_file_of(object->file)->id
			      : object->id.inode ? object->id
						 : object->expected;
	bool settles;

	pthread_mutex_lock(&remote->lock);
	settles = !id.inode && remote->write_bytes;
	*ret_order = settles ? 0 : remote_order_locked(remote, &id);
	pthread_mutex_unlock(&remote->lock);
	return settles ? remote_settle(ctx, remote) : 0;
}

/* Under the lock.  True when a write of this generation or an earlier one is under way. */
static bool has_older_writes(const struct remote *remote, unsigned generation)
{
	unsigned newer = remote->write_generation - generation;

	for (unsigned i = newer; i < WRITE_GENERATIONS; i++)
		if (remote->generation_writes[(remote->write_generation - i) % WRITE_GENERATIONS])
			return true;
	return false;
}

/* Writes that are queued from now on belong to a new generation, so that a steady writer does
 * not keep others waiting. */
int remote_settle(struct op_context *ctx, struct remote *remote)
{
	unsigned generation;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	if (remote->write_bytes)
		remote_count_round_trip(remote, ctx);
	while (r == 0 &&
		remote->generation_writes[(remote->write_generation + 1) % WRITE_GENERATIONS])
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	generation = remote->write_generation++;
	while (r == 0 && remote->write_generation - generation < WRITE_GENERATIONS &&
		has_older_writes(remote, generation))
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	pthread_mutex_unlock(&remote->lock);
	return r;
}

/* ---- Writing ---------------------------------------------------------------------- */

struct queued_write {
	struct remote_file *file;
	size_t size;
	unsigned generation;
};

/* Gives the room in the window back.  Returns whether that may be what somebody waits for.  Under
 * remote->lock. */
static bool release(const struct queued_write *write)
{
	struct remote *remote = write->file->remote;
	unsigned *of_generation = &remote->generation_writes[write->generation % WRITE_GENERATIONS];
	bool was_full = remote->write_bytes >= WRITE_WINDOW_BYTES;

	write->file->writes--;
	remote->write_bytes -= write->size;
	--*of_generation;
	return !write->file->writes || !*of_generation || was_full;
}

/* `left`: the attributes of the file behind it; mode 0: not told. */
static void finish_write(struct call *call, int64_t result, const struct attributes *left)
{
	struct queued_write *write = call->user;
	struct remote_file *file = write->file;
	struct remote *remote = file->remote;
	bool frees;

	if (result == RESULT_AGAIN)
		result = -EIO;
	pthread_mutex_lock(&remote->lock);
	if (left->mode && call->position > file->written_at) {
		file->written_at = call->position;
		file->written = *left;
	}
	if (result == -ENOSPC || result == -EDQUOT)
		remote->refused_ms = clock_now_ms();
	if (result < 0 && !file->write_error)
		file->write_error = (int)result;
	if (result < 0)
		file->write_reported = false;
	frees = release(write);
	pthread_mutex_unlock(&remote->lock);
	if (frees)
		pthread_cond_broadcast(&remote->freed);
	remote_file_unref(file);
	free(write);
	call_free(call);
}

static void note_room(struct remote_file *file, bool is_little)
{
	pthread_mutex_lock(&file->remote->lock);
	file->little_room = is_little;
	if (is_little)
		file->remote->little_room_ms = clock_now_ms();
	pthread_mutex_unlock(&file->remote->lock);
}

static void write_answered(struct call *call)
{
	const struct queued_write *write = call->user;
	int64_t result = call->result;
	struct facts facts = {0};

	if (result >= 0) {
		wire_get_facts(&call->body, &facts);
		if (wire_reader_finish(&call->body) < 0)
			result = -EIO;
		else if ((uint64_t)result < write->size)
			result = -ENOSPC;
		note_room(write->file, facts.little_room);
		remote_note_written(write->file->remote, write->size);
	}
	finish_write(call, result, &facts.object);
}

/* Under remote->lock. */
static int take_error(struct remote_file *file)
{
	int error = file->write_error;

	file->write_error = 0;
	return error;
}

/* It may go on writing.  But flush and fsync tell the error all the same: the kernel passes only
 * the count of a large write on, or writes pages that nobody waits for. */
static void tell_writer(struct remote_file *file, int error)
{
	pthread_mutex_lock(&file->remote->lock);
	file->write_reported = file->write_error == error;
	pthread_mutex_unlock(&file->remote->lock);
}

/* Under remote->lock.  Requests of different handles may overtake each other. */
static bool others_write(struct remote *remote, const struct remote_file *file)
{
	for (struct remote_file *f = remote_files_of(remote, &file->id); f; f = f->next)
		if (f != file && f->writes && object_id_equal(&f->id, &file->id))
			return true;
	return false;
}

static bool must_wait(struct remote *remote, const struct remote_file *file)
{
	return remote->write_bytes >= WRITE_WINDOW_BYTES || others_write(remote, file);
}

/* Under remote->lock. */
static void take_room(struct queued_write *write)
{
	struct remote *remote = write->file->remote;

	write->generation = remote->write_generation;
	remote->generation_writes[write->generation % WRITE_GENERATIONS]++;
	remote->write_bytes += write->size;
	write->file->writes++;
	write->file->refs++;
}

/* Waits for room in the window, and takes it. */
static int reserve(struct op_context *ctx, struct queued_write *write)
{
	struct remote_file *file = write->file;
	struct remote *remote = file->remote;
	int r;

	pthread_mutex_lock(&remote->lock);
	r = file->write_reported ? 0 : file->write_error;
	if (r == 0 && must_wait(remote, file))
		remote_count_round_trip(remote, ctx);
	while (r == 0 && must_wait(remote, file))
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	if (r == 0)
		take_room(write);
	pthread_mutex_unlock(&remote->lock);
	return r;
}

static void unreserve(struct queued_write *write)
{
	struct remote_file *file = write->file;

	pthread_mutex_lock(&file->remote->lock);
	release(write);
	pthread_mutex_unlock(&file->remote->lock);
	pthread_cond_broadcast(&file->remote->freed);
	remote_file_unref(file);
}

/* Sends a request about the handle behind what is queued for it.  `answered` gives the room back,
 * which is taken. */
static int submit_queued(struct remote_request *request, struct queued_write *write,
	void (*answered)(struct call *call))
{
	int r;

	request->order = write->file->handle;
	request->uses = write->file;
	r = remote_request_submit(request, answered, write);
	if (r < 0) {
		unreserve(write);
		free(write);
	}
	return r;
}

/* The same, for `size` bytes, for which it waits until there is room. */
static int queue_request(struct remote_request *request, struct remote_file *file, size_t size,
	void (*answered)(struct call *call))
{
	struct queued_write *write = malloc(sizeof(*write));
	int r;

	if (!write)
		return -ENOMEM;
	*write = (struct queued_write){.file = file, .size = size};
	r = reserve(request->ctx, write);
	if (r < 0) {
		free(write);
		return r;
	}
	return submit_queued(request, write, answered);
}

static bool is_to_be_detached(struct remote *remote, size_t size)
{
	bool detached;

	if (size < DETACHED_MIN_BYTES)
		return false;
	pthread_mutex_lock(&remote->lock);
	detached = (remote->capabilities & WORKSPACE_CAN_DETACH) && remote_channel_to_write(remote);
	pthread_mutex_unlock(&remote->lock);
	return detached;
}

static int queue_write(struct op_context *ctx, struct remote_file *file, const void *data,
	size_t size, off_t offset)
{
	cleanup_remote_request struct remote_request request = {
		ctx, file->remote, REQUEST_WRITE, .file = file, .data = data, .data_bytes = size};
	int64_t result;

	wire_put_number(&request.arguments, (uint64_t)offset);
	request.is_detached = is_to_be_detached(file->remote, size);
	if (request.is_detached)
		request.type = REQUEST_WRITE_DETACHED;
	result = queue_request(&request, file, size, write_answered);
	if (result == RESULT_LOST) {
		request.is_detached = false;
		request.type = REQUEST_WRITE;
		result = queue_request(&request, file, size, write_answered);
	}
	return remote_again(ctx, &result) ? RESULT_AGAIN : (int)result;
}

/* ---- The size ---------------------------------------------------------------------------- */

static void size_answered(struct call *call)
{
	struct attributes attributes = {0};
	int64_t result = call->result;

	if (result >= 0) {
		wire_get_attributes(&call->body, &attributes);
		if (wire_reader_finish(&call->body) < 0)
			result = -EIO;
	}
	finish_write(call, result, result < 0 ? &(struct attributes){0} : &attributes);
}

static int queue_size(struct op_context *ctx, struct remote_file *file, uint64_t size_bytes)
{
	static const struct object_id any;
	const struct attributes want = {.size_bytes = size_bytes};
	cleanup_remote_request struct remote_request request = {ctx, file->remote, REQUEST_SETATTR};
	int64_t result;

	wire_put_object(&request.arguments, "", &any, file->handle);
	wire_put_number(&request.arguments, SET_SIZE);
	wire_put_attributes(&request.arguments, &want);
	result = queue_request(&request, file, SMALL_BYTES, size_answered);
	return remote_again(ctx, &result) ? RESULT_AGAIN : (int)result;
}

int remote_queue_size(struct op_context *ctx, struct remote_file *file, uint64_t size_bytes)
{
	int r;

	if ((file->flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	do {
		r = remote_file_ready(ctx, file);
		if (r == 0)
			r = queue_size(ctx, file, size_bytes);
	} while (r == RESULT_AGAIN);
	remote_file_changed(file); /* later reads are ordered behind it */
	ctx->served.position = 0;
	return r;
}

/* ---- The name of a file that was prepared ---------------------------------------------- */

/* Nothing else is known to have failed: it came before all writes. */
static void name_answered(struct call *call)
{
	struct queued_write *write = call->user;
	struct remote_file *file = write->file;
	struct attributes attributes = {0};
	int64_t result = call->result;
	struct facts facts = {0};
	bool is_other;

	if (result >= 0) {
		wire_get_attributes(&call->body, &attributes);
		wire_get_facts(&call->body, &facts);
		if (wire_reader_finish(&call->body) < 0 || !S_ISREG(attributes.mode))
			result = -EIO;
	}
	pthread_mutex_lock(&file->remote->lock);
	is_other = result >= 0 && !object_id_equal(&attributes.id, &file->id);
	if (is_other && !file->may_be_other)
		result = -EIO;
	else if (is_other && !file->closed)
		remote_file_is_other(file, &attributes);
	file->is_naming = false;
	file->name_error = result == RESULT_AGAIN ? -EIO : result < 0 ? (int)result : 0;
	file->little_room = result > 0;
	file->named_at = call->position;
	file->named = attributes;
	file->named_facts = facts;
	release(write);
	pthread_mutex_unlock(&file->remote->lock);
	pthread_cond_broadcast(&file->remote->freed);
	remote_file_unref(file);
	free(write);
	call_free(call);
}

int remote_queue_name(struct op_context *ctx, struct remote_file *file, int flags, bool makes)
{
	cleanup_remote_request struct remote_request request = {
		ctx, file->remote, REQUEST_NAME, .file = file, .is_urgent = true};

	wire_put_name(&request.arguments, file->path, &ctx->parent);
	wire_put_open_flags(&request.arguments, flags);
	wire_put_number(&request.arguments, makes);
	return queue_request(&request, file, SMALL_BYTES, name_answered);
}

int remote_await_name(
	struct op_context *ctx, struct open_file *open_file, struct attributes *ret_attributes)
{
	struct remote_file *file = remote_file_of(open_file);
	struct remote *remote = file->remote;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	if (file->is_naming)
		remote_count_round_trip(remote, ctx);
	while (file->is_naming && r == 0)
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	r = r < 0 ? -EAGAIN : file->name_error;
	if (r == 0) {
		*ret_attributes = file->named;
		if (ctx->facts)
			*ctx->facts = file->named_facts;
	}
	ctx->served.position = file->named_at;
	pthread_mutex_unlock(&remote->lock);
	return r;
}

/* ---- Locks that are released ------------------------------------------------------------ */

/* The lock went with its session, if that is over. */
static void unlock_answered(struct call *call)
{
	finish_write(
		call, call->result == RESULT_AGAIN ? 0 : call->result, &(struct attributes){0});
}

bool remote_queue_unlock(const struct remote_request *unlock)
{
	struct remote_request request = *unlock;
	struct remote_file *file = request.file;
	struct remote *remote = file->remote;
	struct queued_write *write = malloc(sizeof(*write));
	bool can_follow;

	if (!write)
		return false;
	*write = (struct queued_write){.file = file, .size = SMALL_BYTES};
	pthread_mutex_lock(&remote->lock);
	request.is_urgent = !remote->write_bytes;
	can_follow = !others_write(remote, file) && file->epoch == remote->epoch;
	if (can_follow)
		take_room(write);
	pthread_mutex_unlock(&remote->lock);
	if (!can_follow) {
		free(write);
		return false;
	}
	return submit_queued(&request, write, unlock_answered) == 0;
}

/* ---- What was written ------------------------------------------------------------------- */

/* Under remote->lock. */
static int wait_for_answers(struct op_context *ctx, struct remote_file *file)
{
	struct remote *remote = file->remote;
	int r = 0;

	if (file->writes)
		remote_count_round_trip(remote, ctx);
	while (file->writes && r == 0)
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	return r;
}

static int wait_for_writes(struct op_context *ctx, struct remote_file *file)
{
	struct remote *remote = file->remote;
	int r;

	pthread_mutex_lock(&remote->lock);
	r = wait_for_answers(ctx, file);
	if (r == 0)
		r = file->name_error;
	if (r == 0)
		r = take_error(file);
	ctx->served.position = file->written_at;
	if (ctx->facts)
		ctx->facts->object = file->written;
	pthread_mutex_unlock(&remote->lock);
	return r;
}

/* Of a quota nothing is told before it is full. */
static bool has_little_room(struct remote_file *file)
{
	int64_t refused_ms;
	bool little;

	pthread_mutex_lock(&file->remote->lock);
	refused_ms = file->remote->refused_ms;
	little =
		file->little_room || (refused_ms && clock_now_ms() - refused_ms < REFUSED_FRESH_MS);
	pthread_mutex_unlock(&file->remote->lock);
	return little;
}

/* The error stays, for flush and fsync. */
static int wait_for_error(struct op_context *ctx, struct remote_file *file)
{
	int r;

	pthread_mutex_lock(&file->remote->lock);
	r = wait_for_answers(ctx, file);
	if (r == 0)
		r = file->write_error;
	pthread_mutex_unlock(&file->remote->lock);
	return r;
}

ssize_t remote_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct remote_file *file = remote_file_of(open_file);
	size_t done = 0;
	int r;

	if ((file->flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	r = remote_file_ready(ctx, file);
	if (r < 0)
		return r;
	while (r == 0 && done < size) {
		size_t part = size - done < TRANSFER_MAX_BYTES ? size - done : TRANSFER_MAX_BYTES;

		r = queue_write(
			ctx, file, (const uint8_t *)data + done, part, offset + (off_t)done);
		if (r == RESULT_AGAIN) {
			r = remote_file_ready(ctx, file);
			continue;
		}
		if (r < 0)
			break;
		done += part;
	}
	/* Only now: later reads are ordered behind the queued writes. */
	remote_file_written(file, data, done, offset);
	ctx->served.position = 0;
	if (r < 0 && done)
		return (ssize_t)done; /* whoever comes next is told */
	if (r == 0 && (file->flags & SYNC_FLAGS))
		return (r = wait_for_writes(ctx, file)) < 0 ? r : (ssize_t)done;
	if (r == 0 && has_little_room(file))
		r = wait_for_error(ctx, file);
	if (r < 0)
		tell_writer(file, r);
	return r < 0 ? r : (ssize_t)done;
}

int remote_flush(struct op_context *ctx, struct open_file *file)
{
	return wait_for_writes(ctx, remote_file_of(file));
}

int remote_fsync(struct op_context *ctx, struct workspace *w, struct open_file *open_file,
	const char *path, bool data_only)
{
	struct remote_file *file = open_file ? remote_file_of(open_file) : NULL;
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_FSYNC, .file = file};
	int r, written;

	if (!file)
		wire_put_number(&request.arguments, 0);
	wire_put_string(&request.arguments, file ? "" : path);
	wire_put_number(&request.arguments, data_only);
	r = (int)remote_request_run(&request, NULL, NULL);
	if (!file)
		return r;
	written = wait_for_writes(ctx, file);
	return written < 0 ? written : r;
}

bool remote_has_no_xattrs(struct remote *remote, const struct object_ref *object, bool now_set)
{
	struct object_id id = object->file ? remote_file_of(object->file)->id : object->id;
	bool none = false;

	pthread_mutex_lock(&remote->lock);
	for (struct remote_file *f = remote_files_of(remote, &id); f; f = f->next)
		if (f->is_new && object_id_equal(&f->id, &id)) {
			f->has_xattrs = f->has_xattrs || now_set;
			none = !f->has_xattrs;
		}
	pthread_mutex_unlock(&remote->lock);
	return none;
}
