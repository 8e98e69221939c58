/*
 * Files that are prepared, without a name, in directories where files are made: the next one there
 * can be answered at once, with the object and the attributes that it will have, and is given its
 * name behind that (NAME).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum {
	PREPARED_MAX = 64,      /* of the whole workspace ... */
	WANTED_MAX = 8,         /* ... and of a directory */
	KEPT_MS = 60000,        /* for the next file there */
	LITTLE_ROOM_MS = 10000, /* after a write was told of it, files are waited for */
	REFUSED_MS = 60000,     /* until a directory that cannot have any is asked again */
	MAKES_FILES_MS = 5000,  /* who made one so lately may make another in a new directory */
};

enum prepared_state { PREPARED_ASKED, PREPARED_READY, PREPARED_REFUSED };

/* Whose files, and where. */
struct file_kind {
	struct object_id directory;
	uint32_t uid, gid, umask, mode;
};

struct prepared_file {
	struct prepared_file *next; /* under remote->lock */
	struct remote *remote;
	struct file_kind kind;
	enum prepared_state state;
	uint64_t handle;
	uint64_t epoch;
	int64_t since_ms;  /* in that state */
	uint64_t ready_ns; /* its times are as of then */
	bool little_room;
	struct attributes attributes;
};

static struct file_kind kind_of(const struct op_context *ctx, uint32_t mode)
{
	return (struct file_kind){.directory = ctx->parent,
		.uid = ctx->uid,
		.gid = ctx->gid,
		.umask = ctx->umask,
		.mode = mode};
}

static bool same_kind(const struct file_kind *a, const struct file_kind *b)
{
	return object_id_equal(&a->directory, &b->directory) && a->uid == b->uid &&
	       a->gid == b->gid && a->umask == b->umask && a->mode == b->mode;
}

static void give_back(struct remote *remote, uint64_t handle)
{
	struct op_context ctx;
	cleanup_remote_request struct remote_request request = {
		&ctx, remote, REQUEST_CLOSE, .order = handle};

	op_context_init(&ctx);
	wire_put_number(&request.arguments, handle);
	remote_request_give_back(&request);
}

/* ---- The list ------------------------------------------------------------------------ */

/* Under the lock. */
static struct prepared_file **slot_of(struct remote *remote, const struct prepared_file *file)
{
	struct prepared_file **slot = &remote->prepared;

	while (*slot && *slot != file)
		slot = &(*slot)->next;
	return slot;
}

static void take_out(struct prepared_file **slot)
{
	*slot = (*slot)->next;
}

static bool is_over(const struct remote *remote, const struct prepared_file *file, int64_t now_ms)
{
	if (file->state == PREPARED_ASKED)
		return false;
	return file->epoch != remote->epoch ||
	       now_ms - file->since_ms > (file->state == PREPARED_READY ? KEPT_MS : REFUSED_MS);
}

/* One that is over, or `oldest`: the one that was prepared first.  NULL: none.  Under the lock. */
static struct prepared_file *take_over(struct remote *remote, bool oldest)
{
	int64_t now_ms = clock_now_ms();
	struct prepared_file **found = NULL, *file;

	for (struct prepared_file **slot = &remote->prepared; *slot; slot = &(*slot)->next)
		if (is_over(remote, *slot, now_ms) || (oldest && (*slot)->state != PREPARED_ASKED))
			found = slot; /* new ones are put first */
	if (!found)
		return NULL;
	file = *found;
	take_out(found);
	return file;
}

static void drop(struct remote *remote, struct prepared_file *file)
{
	bool is_there;

	pthread_mutex_lock(&remote->lock);
	is_there = file->state == PREPARED_READY && file->epoch == remote->epoch;
	pthread_mutex_unlock(&remote->lock);
	if (is_there)
		give_back(remote, file->handle);
	free(file);
}

void remote_prepared_tidy(struct remote *remote)
{
	struct prepared_file *file;

	do {
		pthread_mutex_lock(&remote->lock);
		file = take_over(remote, false);
		pthread_mutex_unlock(&remote->lock);
		if (file)
			drop(remote, file);
	} while (file);
}

void remote_prepared_free(struct remote *remote)
{
	struct prepared_file *file;

	while ((file = remote->prepared)) {
		remote->prepared = file->next;
		free(file);
	}
}

/* ---- Preparing ------------------------------------------------------------------------ */

static int read_prepared(struct call *call, struct attributes *ret_attributes)
{
	if (call->result < 0)
		return (int)call->result;
	wire_get_attributes(&call->body, ret_attributes);
	if (wire_reader_finish(&call->body) < 0 || !S_ISREG(ret_attributes->mode) ||
		(call->result & ~OPENED_WITH_LITTLE_ROOM))
		return -EIO;
	return 0;
}

static void become(struct prepared_file *file, enum prepared_state state, uint64_t epoch)
{
	file->state = state;
	file->epoch = epoch;
	file->since_ms = clock_now_ms();
	file->ready_ns = clock_now_ns();
}

static void prepared(struct call *call)
{
	struct prepared_file *file = call->user;
	struct remote *remote = file->remote;
	int r = read_prepared(call, &file->attributes);

	pthread_mutex_lock(&remote->lock);
	file->little_room = r == 0 && (call->result & OPENED_WITH_LITTLE_ROOM);
	become(file, r == 0 ? PREPARED_READY : PREPARED_REFUSED, call->epoch);
	pthread_mutex_unlock(&remote->lock);
	call_free(call);
}

/* Asks for one more. */
static void prepare(struct op_context *ctx, struct remote *remote, const char *directory,
	const struct file_kind *kind)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote, REQUEST_PREPARE, .at_once = true};
	struct prepared_file *file = calloc(1, sizeof(*file));

	if (!file)
		return;
	file->remote = remote;
	file->kind = *kind;
	file->state = PREPARED_ASKED;
	pthread_mutex_lock(&remote->lock);
	file->handle = ++remote->next_handle;
	file->next = remote->prepared;
	remote->prepared = file;
	pthread_mutex_unlock(&remote->lock);
	wire_put_name(&request.arguments, directory, &kind->directory);
	wire_put_open_flags(&request.arguments, O_RDWR);
	wire_put_number(&request.arguments, kind->mode);
	wire_put_number(&request.arguments, file->handle);
	if (remote_request_submit(&request, prepared, file) == 0)
		return;
	pthread_mutex_lock(&remote->lock);
	take_out(slot_of(remote, file));
	pthread_mutex_unlock(&remote->lock);
	free(file);
}

/* Under the lock. */
static bool is_full(const struct remote *remote)
{
	unsigned count = 0;

	for (const struct prepared_file *file = remote->prepared; file; file = file->next)
		count++;
	return count >= PREPARED_MAX;
}

/* How many more are to be prepared.  Under the lock. */
static unsigned count_missing(const struct remote *remote, const struct file_kind *kind)
{
	unsigned count = 0;

	for (const struct prepared_file *file = remote->prepared; file; file = file->next) {
		if (!same_kind(&file->kind, kind))
			continue;
		if (file->state == PREPARED_REFUSED)
			return 0;
		count++;
	}
	return count < remote->prepared_wanted ? remote->prepared_wanted - count : 0;
}

/* A caller that may not open the file for writing afterwards needs it to be created open. */
static bool may_be_prepared(const struct op_context *ctx, int flags, uint32_t mode)
{
	const uint32_t owner = S_IRUSR | S_IWUSR;

	return ctx->create_hint != CREATE_WAITS && ctx->parent.inode &&
	       (flags & O_ACCMODE) != O_RDONLY && (mode & ~ctx->umask & owner) == owner &&
	       !(mode & 07000);
}

void remote_prepared_want(struct op_context *ctx, struct remote *remote, const char *path,
	int flags, uint32_t mode, bool makes)
{
	const struct file_kind kind = kind_of(ctx, mode);
	cleanup_free char *directory = strndup(path, path_parent_length(path));
	struct prepared_file *old = NULL;
	unsigned missing;

	if (!directory || !may_be_prepared(ctx, flags, mode) ||
		!(remote->capabilities & WORKSPACE_CAN_PREPARE))
		return;
	pthread_mutex_lock(&remote->lock);
	if (makes)
		remote->file_maker = (struct file_maker){
			kind.uid, kind.gid, kind.umask, kind.mode, clock_now_ms()};
	if (!remote->prepared_wanted)
		remote->prepared_wanted = 1;
	missing = count_missing(remote, &kind);
	if (missing && is_full(remote)) {
		old = take_over(remote, true);
		missing = old ? 1 : 0;
	}
	pthread_mutex_unlock(&remote->lock);
	if (old)
		drop(remote, old);
	while (missing--)
		prepare(ctx, remote, directory, &kind);
}

/* ---- In a new directory ---------------------------------------------------------------- */

static bool makes_files(const struct op_context *ctx, const struct file_maker *maker)
{
	return maker->at_ms && clock_now_ms() - maker->at_ms < MAKES_FILES_MS &&
	       maker->uid == ctx->uid && maker->gid == ctx->gid && maker->umask == ctx->umask;
}

struct prepared_file *remote_prepared_new(
	struct op_context *ctx, struct remote *remote, uint32_t *ret_mode, uint64_t *ret_handle)
{
	struct prepared_file *file = NULL;

	pthread_mutex_lock(&remote->lock);
	if (makes_files(ctx, &remote->file_maker))
		file = calloc(1, sizeof(*file));
	if (file) {
		file->remote = remote;
		file->kind = kind_of(ctx, remote->file_maker.mode);
		file->state = PREPARED_REFUSED;
		file->handle = ++remote->next_handle;
		*ret_mode = file->kind.mode;
		*ret_handle = file->handle;
	}
	pthread_mutex_unlock(&remote->lock);
	return file;
}

void remote_prepared_is_ready(struct prepared_file *file, const struct object_id *directory,
	uint64_t epoch, const struct attributes *attributes)
{
	file->kind.directory = *directory;
	file->attributes = *attributes;
	become(file, PREPARED_READY, epoch);
}

void remote_prepared_done(struct prepared_file *file)
{
	struct remote *remote = file ? file->remote : NULL;
	struct prepared_file *old;

	if (!file || file->state != PREPARED_READY) {
		free(file);
		return;
	}
	pthread_mutex_lock(&remote->lock);
	old = take_over(remote, is_full(remote));
	file->next = remote->prepared;
	remote->prepared = file;
	pthread_mutex_unlock(&remote->lock);
	if (old)
		drop(remote, old);
}

/* ---- Taking --------------------------------------------------------------------------- */

/* Under the lock.  `kind` NULL: any on the file system `device`.  NULL: none is ready; where some
 * are on the way there are to be more. */
static struct prepared_file *take_ready(
	struct remote *remote, const struct file_kind *kind, uint64_t device)
{
	int64_t now_ms = clock_now_ms();
	bool is_asked = false;

	for (struct prepared_file **slot = &remote->prepared; *slot; slot = &(*slot)->next) {
		struct prepared_file *file = *slot;

		if ((kind && !same_kind(&file->kind, kind)) || is_over(remote, file, now_ms))
			continue;
		is_asked = is_asked || file->state == PREPARED_ASKED;
		if (file->state != PREPARED_READY ||
			(!kind && file->attributes.id.device != device))
			continue;
		take_out(slot);
		return file;
	}
	if (is_asked && remote->prepared_wanted < WANTED_MAX)
		remote->prepared_wanted++;
	return NULL;
}

/* By the clock there. */
static struct timespec time_there(const struct prepared_file *file)
{
	const struct timespec *then = &file->attributes.ctime;
	struct timespec now =
		clock_at_ns(clock_now_ns() - file->ready_ns + (uint64_t)then->tv_nsec);

	now.tv_sec += then->tv_sec;
	return now;
}

/* What the file will be when it has its name. */
static struct attributes named_attributes(const struct prepared_file *file)
{
	struct attributes attributes = file->attributes;

	attributes.nlink = 1;
	attributes.atime = attributes.mtime = attributes.ctime = time_there(file);
	attributes.changed_lately = true;
	return attributes;
}

/* -EAGAIN: none. */
static int take(struct remote *remote, const struct file_kind *kind, uint64_t device,
	struct prepared_taken *ret_taken)
{
	bool has_little_room;
	struct prepared_file *file;

	pthread_mutex_lock(&remote->lock);
	file = take_ready(remote, kind, device);
	has_little_room =
		remote->little_room_ms && clock_now_ms() - remote->little_room_ms < LITTLE_ROOM_MS;
	pthread_mutex_unlock(&remote->lock);
	if (!file)
		return -EAGAIN;
	if (file->little_room || has_little_room) {
		drop(remote, file);
		return -EAGAIN;
	}
	*ret_taken = (struct prepared_taken){file->handle, file->epoch, named_attributes(file)};
	free(file);
	return 0;
}

int remote_prepared_take(struct op_context *ctx, struct remote *remote, int flags, uint32_t mode,
	struct prepared_taken *ret_taken)
{
	const struct file_kind kind = kind_of(ctx, mode);

	if (ctx->create_hint != CREATE_ASYNC || !may_be_prepared(ctx, flags, mode))
		return -EAGAIN;
	return take(remote, &kind, 0, ret_taken);
}

int remote_prepared_take_any(struct op_context *ctx, struct remote *remote, uint64_t device,
	struct prepared_taken *ret_taken)
{
	return ctx->create_hint == CREATE_ASYNC ? take(remote, NULL, device, ret_taken) : -EAGAIN;
}

void remote_prepared_return(struct remote *remote, const struct prepared_taken *taken)
{
	bool is_there;

	pthread_mutex_lock(&remote->lock);
	is_there = taken->epoch == remote->epoch;
	pthread_mutex_unlock(&remote->lock);
	if (is_there)
		give_back(remote, taken->handle);
}
