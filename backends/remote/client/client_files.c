#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/buffer.h"
#include "ops/support/log.h"

enum { INLINE_READ_BYTES = 128 << 10 }; /* the most that the kernel asks for at once */

/* ---- Life ------------------------------------------------------------------------ */

static int file_new(struct remote *remote, const char *path, int flags, struct remote_file **ret)
{
	struct remote_file *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return -ENOMEM;
	}
	file->base.workspace = &remote->base;
	file->remote = remote;
	file->refs = 1;
	file->flags = flags;
	pthread_mutex_init(&file->lock, NULL);
	clock_cond_init(&file->changed);
	pthread_mutex_lock(&remote->lock);
	file->handle = ++remote->next_handle;
	pthread_mutex_unlock(&remote->lock);
	*ret = file;
	return 0;
}

static void file_free(struct remote_file *file)
{
	if (!file)
		return;
	remote_file_drop_chunks(file);
	pthread_cond_destroy(&file->changed);
	pthread_mutex_destroy(&file->lock);
	free(file->path);
	free(file);
}

void remote_file_unref(struct remote_file *file)
{
	bool last;

	pthread_mutex_lock(&file->remote->lock);
	last = --file->refs == 0;
	pthread_mutex_unlock(&file->remote->lock);
	if (last)
		file_free(file);
}

static size_t file_hash(const void *entry)
{
	return remote_file_hash(&((const struct remote_file *)entry)->id);
}

static void **file_link(void *entry)
{
	return (void **)&((struct remote_file *)entry)->next;
}

struct remote_file *remote_file_next(const struct remote *remote, struct remote_file *file)
{
	return hash_table_next(&remote->files, file, file_hash, file_link);
}

static void file_publish(struct remote_file *file)
{
	struct remote *remote = file->remote;

	pthread_mutex_lock(&remote->lock);
	hash_table_insert(&remote->files, file, file_hash, file_link);
	pthread_mutex_unlock(&remote->lock);
}

void remote_file_is_other(struct remote_file *file, const struct attributes *attributes)
{
	struct remote *remote = file->remote;

	hash_table_remove(&remote->files, file, file_hash, file_link);
	file->id = attributes->id;
	file->size_hint = (off_t)attributes->size_bytes;
	file->is_new = false;
	hash_table_insert(&remote->files, file, file_hash, file_link);
}

static void file_unpublish(struct remote_file *file)
{
	struct remote *remote = file->remote;

	pthread_mutex_lock(&remote->lock);
	hash_table_remove(&remote->files, file, file_hash, file_link);
	file->closed = true;
	pthread_mutex_unlock(&remote->lock);
}

/* Allocated; NULL: no memory. */
static char *copy_path(struct remote_file *file)
{
	char *path;

	pthread_mutex_lock(&file->remote->lock);
	path = strdup(file->path);
	pthread_mutex_unlock(&file->remote->lock);
	return path;
}

/* Where a rename has moved `path` to, allocated; NULL: it was not at or below `from`. */
static char *moved_path(const char *path, const char *from, const char *to)
{
	size_t length = strlen(from);

	if (strncmp(path, from, length) != 0 || (path[length] && path[length] != '/'))
		return NULL;
	return string_printf("%s%s", to, path + length);
}

/* A file that cannot be followed is lost with its session. */
void remote_files_renamed(struct remote *remote, const char *from, const char *to, bool swapped)
{
	pthread_mutex_lock(&remote->lock);
	for (struct remote_file *f = remote_file_next(remote, NULL); f;
		f = remote_file_next(remote, f)) {
		char *path = moved_path(f->path, from, to);

		if (!path && swapped)
			path = moved_path(f->path, to, from);
		if (!path)
			continue;
		free(f->path);
		f->path = path;
	}
	pthread_mutex_unlock(&remote->lock);
}

/* ---- Opening -------------------------------------------------------------------------------- */

/* An open that is asked for, and what its answer tells. */
struct opening {
	struct remote_file *file;
	size_t wanted; /* of its content, with the answer */
	struct attributes attributes;
};

static int64_t take_opened(void *user, struct remote_request *request, int64_t result)
{
	struct opening *opening = user;
	struct remote_file *file = opening->file;
	struct call *call = request->call;
	struct wire_reader *answer = &call->body;

	wire_get_attributes(answer, &opening->attributes);
	/* The kernel drops the answer to an open of anything else, and never closes it. */
	if (answer->failed || !S_ISREG(opening->attributes.mode) || (result & ~OPENED_BITS))
		return -EIO;
	if (result & OPENED_INLINE) {
		size_t got = wire_reader_left(answer);

		if (got > opening->wanted)
			return -EIO;
		remote_file_prefill(file, steal_ptr(&call->payload), answer->data + answer->offset,
			got, opening->wanted);
	} else if (remote_request_finish(request, result) < 0) {
		return -EIO;
	}
	pthread_mutex_lock(&file->remote->lock);
	file->epoch = call->epoch;
	file->little_room = result & OPENED_WITH_LITTLE_ROOM;
	pthread_mutex_unlock(&file->remote->lock);
	return 0;
}

static size_t inline_size(int flags)
{
	bool reads = (flags & O_ACCMODE) != O_WRONLY;

	return reads && !(flags & (O_TRUNC | O_DIRECT)) ? INLINE_READ_BYTES : 0;
}

static int finish_open(struct remote_file *file, int result, const struct attributes *attributes,
	struct open_file **ret_file)
{
	if (result < 0) {
		file_free(file);
		return (int)result;
	}
	file->id = attributes->id;
	file->size_hint = (off_t)attributes->size_bytes;
	file->flags &= ~(O_TRUNC | O_EXCL | O_CREAT);
	file_publish(file);
	*ret_file = &file->base;
	return 0;
}

void remote_file_drop_prefill(struct remote_file *file)
{
	pthread_mutex_lock(&file->lock);
	remote_file_drop_chunks(file);
	pthread_mutex_unlock(&file->lock);
}

/* Through the handle of a file that was prepared, which is given the name (`makes`), or leads to
 * the file there as soon as that is open.  What is written comes behind that. */
static int begin_async(struct op_context *ctx, struct remote *remote, const char *path, int flags,
	bool makes, struct prepared_taken *taken, struct open_file **ret_file)
{
	struct remote_file *file;
	int r = file_new(remote, path, flags, &file);

	if (r < 0) {
		remote_prepared_return(remote, taken);
		return r;
	}
	file->handle = taken->handle;
	file->epoch = taken->epoch;
	file->is_new = makes;
	file->is_naming = true;
	file->may_be_other = !(flags & O_EXCL);
	finish_open(file, 0, &taken->attributes, ret_file);
	r = remote_queue_name(ctx, file, flags, makes);
	if (r < 0) {
		file_unpublish(file);
		remote_file_unref(file);
		remote_prepared_return(remote, taken);
		return r == RESULT_AGAIN ? -EAGAIN : r;
	}
	ctx->served.is_async = true;
	ctx->served.position = 0;
	return 0;
}

/* -EAGAIN: nothing is prepared. */
static int create_async(struct op_context *ctx, struct remote *remote, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct prepared_taken taken;
	int r = remote_prepared_take(ctx, remote, flags, mode, &taken);

	if (r == 0)
		r = begin_async(ctx, remote, path, flags, true, &taken, ret_file);
	if (r == 0)
		*ret_attributes = taken.attributes;
	return r;
}

/* To be written anew. */
static int open_async(struct op_context *ctx, struct remote *remote,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	const uint32_t mode = 0666; /* of the next new file there */
	struct prepared_taken taken;
	int r = remote_prepared_take_any(ctx, remote, object->id.device, &taken);

	if (r == 0) {
		taken.attributes.id = object->id;
		r = begin_async(ctx, remote, object->path, flags, false, &taken, ret_file);
	}
	if (r == 0) {
		remote_object_changed(remote, &object->id, 0);
		*ret_attributes = taken.attributes;
	}
	if (r == 0 || r == -EAGAIN)
		remote_prepared_want(ctx, remote, object->path, flags, mode, false);
	return r;
}

static int open_waiting(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	cleanup_free char *known = object->file ? copy_path(remote_file_of(object->file)) : NULL;
	struct remote *remote = remote_of(w);
	cleanup_remote_request struct remote_request request = {
		ctx, remote, REQUEST_OPEN, .object = object};
	struct opening opening = {.wanted = inline_size(flags)};
	struct remote_file *file;
	uint64_t changes = remote->changes;
	int r = object->file && !known
			? -ENOMEM
			: file_new(remote, known ? known : object->path, flags, &file);

	if (r < 0)
		return r;
	opening.file = file;
	wire_put_open_flags(&request.arguments, flags);
	wire_put_number(&request.arguments, file->handle);
	wire_put_number(&request.arguments, opening.wanted);
	request.makes = file->handle;
	request.only_once = flags & O_TRUNC;
	r = (int)remote_request_run(&request, take_opened, &opening);
	r = finish_open(file, r, &opening.attributes, ret_file);
	if (r < 0)
		return r;
	/* Content that came along with the open may be older than a change made meanwhile, by a
	 * write that did not know of this handle yet. */
	if (remote->changes != changes)
		remote_file_drop_prefill(file);
	if (flags & O_TRUNC)
		remote_object_changed(remote, &opening.attributes.id, 0);
	*ret_attributes = opening.attributes;
	return 0;
}

int remote_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int r = -EAGAIN;

	if (ctx->create_hint != CREATE_WAITS)
		r = open_async(ctx, remote_of(w), object, flags, ret_file, ret_attributes);
	if (r == -EAGAIN)
		r = open_waiting(ctx, w, object, flags, ret_file, ret_attributes);
	return r;
}

static int create(struct op_context *ctx, struct workspace *w, enum frame_type type,
	const char *path, int flags, uint32_t mode, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	struct remote *remote = remote_of(w);
	cleanup_remote_request struct remote_request request = {ctx, remote, type};
	struct opening opening = {0};
	struct remote_file *file;
	int r = file_new(remote, path, flags, &file);

	if (r < 0)
		return r;
	opening.file = file;
	wire_put_name(&request.arguments, path, &ctx->parent);
	wire_put_open_flags(&request.arguments, flags);
	wire_put_number(&request.arguments, mode);
	wire_put_number(&request.arguments, file->handle);
	request.makes = file->handle;
	r = (int)remote_request_run(&request, take_opened, &opening);
	r = finish_open(file, r, &opening.attributes, ret_file);
	if (r < 0)
		return r;
	pthread_mutex_lock(&remote->lock);
	file->is_new = true;
	pthread_mutex_unlock(&remote->lock);
	*ret_attributes = opening.attributes;
	return 0;
}

int remote_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct remote *remote = remote_of(w);
	int r = create_async(ctx, remote, path, flags, mode, ret_file, ret_attributes);

	/* For the next one, in the same flight. */
	if (r == 0 || r == -EAGAIN)
		remote_prepared_want(ctx, remote, path, flags, mode, true);
	if (r == -EAGAIN)
		r = create(ctx, w, REQUEST_CREATE, path, flags, mode, ret_file, ret_attributes);
	return r;
}

int remote_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	return create(
		ctx, w, REQUEST_CREATE_UNNAMED, directory, flags, mode, ret_file, ret_attributes);
}

/* The session that knew the handle is gone.  The name may lead to the same object still. */
static int reopen(struct op_context *ctx, struct remote_file *file, const char *path)
{
	struct object_ref object = {.path = path, .id = file->id};
	cleanup_remote_request struct remote_request request = {
		ctx, file->remote, REQUEST_OPEN, .object = &object};
	struct opening opening = {.file = file};

	wire_put_open_flags(&request.arguments, file->flags);
	wire_put_number(&request.arguments, file->handle);
	wire_put_number(&request.arguments, opening.wanted);
	return (int)remote_request_run(&request, take_opened, &opening);
}

/* In a new session.  True: it is lost, with that error.  Somebody else may have had its locks
 * since, so they are not taken again behind the owner's back. */
static bool get_back(struct op_context *ctx, struct remote_file *file, int *ret_error)
{
	cleanup_free char *path = copy_path(file);
	int r = !path ? -ENOMEM : file->has_locks ? -ENOENT : reopen(ctx, file, path);
	bool lost = path_misses_object(r);

	*ret_error = r < 0 && r != -EINTR ? -EIO : r;
	if (lost && !file->has_locks)
		*ret_error = -ESTALE;
	if (lost)
		log_warning("\"%s\" on \"%s\": the session there ended and %s; what has it open "
			    "gets %s until it opens it again",
			path, file->remote->settings.transport.name,
			file->has_locks ? "its locks with it" : "the file is no longer there",
			file->has_locks ? "EIO" : "ESTALE");
	return lost;
}

int remote_file_ready(struct op_context *ctx, struct remote_file *file)
{
	struct remote *remote = file->remote;
	bool lost = false;
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	while (file->is_reopening && r == 0)
		r = remote_wait(remote, ctx, &remote->freed, &remote->lock);
	if (r == 0 && file->epoch < remote->set_back_epoch)
		r = -ESTALE;
	if (r == 0)
		r = file->lost_error;
	if (r == 0)
		r = file->name_error;
	if (r == 0 && file->epoch != remote->epoch) {
		file->is_reopening = true;
		pthread_mutex_unlock(&remote->lock);
		lost = get_back(ctx, file, &r);
		pthread_mutex_lock(&remote->lock);
		if (lost && !file->lost_error)
			file->lost_error = r;
		file->is_reopening = false;
		pthread_cond_broadcast(&remote->freed);
	}
	pthread_mutex_unlock(&remote->lock);
	return r;
}

/* ---- Closing ---------------------------------------------------------------------- */

/* Not waited for unless locks go with it: else the answer has no news, as all writes are
 * acknowledged by then. */
static void send_close(struct op_context *ctx, struct remote_file *file)
{
	cleanup_remote_request struct remote_request request = {
		ctx, file->remote, REQUEST_CLOSE, .order = file->handle, .gives_back = true};
	bool current;

	pthread_mutex_lock(&file->remote->lock);
	current = file->epoch == file->remote->epoch;
	pthread_mutex_unlock(&file->remote->lock);
	if (!current)
		return;
	wire_put_number(&request.arguments, file->handle);
	if (file->has_locks)
		remote_request_run(&request, NULL, NULL);
	else
		remote_request_give_back(&request);
}

int remote_close(struct op_context *ctx, struct open_file *open_file)
{
	struct remote_file *file = remote_file_of(open_file);
	int r = remote_flush(ctx, open_file);
	uint64_t position = ctx->served.position;

	send_close(ctx, file);
	ctx->served.position = position; /* of the writes */
	file_unpublish(file);
	pthread_mutex_lock(&file->lock);
	remote_file_drop_chunks(file);
	pthread_mutex_unlock(&file->lock);
	remote_file_unref(file);
	return r;
}

/* ---- The rest of an open file --------------------------------------------------------- */

struct remote_request remote_request_on(
	struct op_context *ctx, struct open_file *open_file, enum frame_type type)
{
	struct remote_file *file = remote_file_of(open_file);

	return (struct remote_request){ctx, file->remote, type, .file = file};
}

/* Runs a request that changes the content of a file and that reads do not wait for: what they bring
 * until its reply may be from before it.  The end of what a read asked for beyond the end of the
 * file would be kept, and hide what was copied there. */
static int64_t run_change(struct remote_request *request, struct remote_file *file)
{
	int64_t result;

	remote_file_changed(file);
	result = remote_request_run(request, NULL, NULL);
	remote_file_changed(file);
	return result;
}

int remote_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, file, REQUEST_FALLOCATE);

	wire_put_number(&request.arguments, mode);
	wire_put_number(&request.arguments, (uint64_t)offset);
	wire_put_number(&request.arguments, (uint64_t)length);
	return (int)run_change(&request, request.file);
}

off_t remote_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, file, REQUEST_SEEK);

	wire_put_number(&request.arguments, (uint64_t)offset);
	wire_put_number(&request.arguments, whence == SEEK_HOLE ? SEEK_CODE_HOLE : SEEK_CODE_DATA);
	return (off_t)remote_request_run(&request, NULL, NULL);
}

ssize_t remote_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, from, REQUEST_COPY_RANGE);
	struct remote_file *target = remote_file_of(to);
	int64_t result = remote_settle(ctx, request.remote);

	if (result < 0)
		return (ssize_t)result;
	request.uses = target;
	wire_put_number(&request.arguments, (uint64_t)from_offset);
	wire_put_number(&request.arguments, target->handle);
	wire_put_number(&request.arguments, (uint64_t)to_offset);
	wire_put_number(&request.arguments, size);
	result = run_change(&request, target);
	return result > 0 && (uint64_t)result > size ? -EIO : (ssize_t)result;
}
