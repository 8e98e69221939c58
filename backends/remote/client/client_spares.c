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
	SPARES_MAX = 64,        /* of the whole workspace ... */
	WANTED_MAX = 8,         /* ... and of a directory */
	KEPT_MS = 60000,        /* for the next file there */
	LITTLE_ROOM_MS = 10000, /* after a write was told of it, files are waited for */
	REFUSED_MS = 60000,     /* until a directory that cannot have any is asked again */
	MAKES_FILES_MS = 5000,  /* who made one so lately may make another in a new directory */
};

enum spare_state { SPARE_ASKED, SPARE_READY, SPARE_REFUSED };

/* Whose files, and where. */
struct spare_kind {
	struct object_id directory;
	uint32_t uid, gid, umask, mode;
};

struct spare {
	struct spare *next; /* under remote->lock */
	struct remote *remote;
	struct spare_kind kind;
	enum spare_state state;
	uint64_t handle;
	uint64_t epoch;
	int64_t since_ms;  /* in that state */
	uint64_t ready_ns; /* its times are as of then */
	bool little_room;
	struct attributes attributes;
};

static struct spare_kind kind_of(const struct op_context *ctx, uint32_t mode)
{
	return (struct spare_kind){.directory = ctx->parent,
		.uid = ctx->uid,
		.gid = ctx->gid,
		.umask = ctx->umask,
		.mode = mode};
}

static bool same_kind(const struct spare_kind *a, const struct spare_kind *b)
{
	return object_id_equal(&a->directory, &b->directory) && a->uid == b->uid &&
	       a->gid == b->gid && a->umask == b->umask && a->mode == b->mode;
}

static void give_back(struct remote *remote, uint64_t handle)
{
	struct op_context ctx;
	struct query q;

	op_context_init(&ctx);
	query_begin(&q, &ctx, remote, REQUEST_CLOSE, handle);
	wire_put_number(&q.out, handle);
	query_send_away(&q);
}

/* ---- The list ------------------------------------------------------------------------ */

/* Under the lock. */
static struct spare **slot_of(struct remote *remote, const struct spare *spare)
{
	struct spare **slot = &remote->spares;

	while (*slot && *slot != spare)
		slot = &(*slot)->next;
	return slot;
}

static void take_out(struct spare **slot)
{
	*slot = (*slot)->next;
}

static bool is_over(const struct remote *remote, const struct spare *spare, int64_t now_ms)
{
	if (spare->state == SPARE_ASKED)
		return false;
	return spare->epoch != remote->epoch ||
	       now_ms - spare->since_ms > (spare->state == SPARE_READY ? KEPT_MS : REFUSED_MS);
}

/* One that is over, or `oldest`: the one that was prepared first.  NULL: none.  Under the lock. */
static struct spare *take_over(struct remote *remote, bool oldest)
{
	int64_t now_ms = clock_now_ms();
	struct spare **found = NULL, *spare;

	for (struct spare **slot = &remote->spares; *slot; slot = &(*slot)->next)
		if (is_over(remote, *slot, now_ms) || (oldest && (*slot)->state != SPARE_ASKED))
			found = slot; /* new ones are put first */
	if (!found)
		return NULL;
	spare = *found;
	take_out(found);
	return spare;
}

static void drop(struct remote *remote, struct spare *spare)
{
	bool is_there;

	pthread_mutex_lock(&remote->lock);
	is_there = spare->state == SPARE_READY && spare->epoch == remote->epoch;
	pthread_mutex_unlock(&remote->lock);
	if (is_there)
		give_back(remote, spare->handle);
	free(spare);
}

void remote_spares_tidy(struct remote *remote)
{
	struct spare *spare;

	do {
		pthread_mutex_lock(&remote->lock);
		spare = take_over(remote, false);
		pthread_mutex_unlock(&remote->lock);
		if (spare)
			drop(remote, spare);
	} while (spare);
}

void remote_spares_free(struct remote *remote)
{
	struct spare *spare;

	while ((spare = remote->spares)) {
		remote->spares = spare->next;
		free(spare);
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

static void become(struct spare *spare, enum spare_state state, uint64_t epoch)
{
	spare->state = state;
	spare->epoch = epoch;
	spare->since_ms = clock_now_ms();
	spare->ready_ns = clock_now_ns();
}

static void prepared(struct call *call)
{
	struct spare *spare = call->user;
	struct remote *remote = spare->remote;
	int r = read_prepared(call, &spare->attributes);

	pthread_mutex_lock(&remote->lock);
	spare->little_room = r == 0 && (call->result & OPENED_WITH_LITTLE_ROOM);
	become(spare, r == 0 ? SPARE_READY : SPARE_REFUSED, call->epoch);
	pthread_mutex_unlock(&remote->lock);
	call_free(call);
}

/* Asks for one more. */
static void prepare(struct op_context *ctx, struct remote *remote, const char *directory,
	const struct spare_kind *kind)
{
	struct spare *spare = calloc(1, sizeof(*spare));
	struct query q;
	int r;

	if (!spare)
		return;
	spare->remote = remote;
	spare->kind = *kind;
	spare->state = SPARE_ASKED;
	pthread_mutex_lock(&remote->lock);
	spare->handle = ++remote->next_handle;
	spare->next = remote->spares;
	remote->spares = spare;
	pthread_mutex_unlock(&remote->lock);
	query_begin(&q, ctx, remote, REQUEST_PREPARE, 0);
	wire_put_name(&q.out, directory, &kind->directory);
	wire_put_open_flags(&q.out, O_RDWR);
	wire_put_number(&q.out, kind->mode);
	wire_put_number(&q.out, spare->handle);
	q.traits.at_once = true;
	r = query_submit(&q, prepared, spare);
	query_done(&q);
	if (r == 0)
		return;
	pthread_mutex_lock(&remote->lock);
	take_out(slot_of(remote, spare));
	pthread_mutex_unlock(&remote->lock);
	free(spare);
}

/* How many more are to be prepared.  Under the lock. */
static unsigned count_missing(
	const struct remote *remote, const struct spare_kind *kind, bool *ret_full)
{
	unsigned count = 0, all = 0;

	for (const struct spare *spare = remote->spares; spare; spare = spare->next) {
		*ret_full = ++all >= SPARES_MAX;
		if (!same_kind(&spare->kind, kind))
			continue;
		if (spare->state == SPARE_REFUSED)
			return 0;
		count++;
	}
	return count < remote->spares_wanted ? remote->spares_wanted - count : 0;
}

/* Who may not write to the file afterwards has to have it made open. */
static bool may_be_prepared(const struct op_context *ctx, int flags, uint32_t mode)
{
	const uint32_t owner = S_IRUSR | S_IWUSR;

	return ctx->create_hint != CREATE_WAITS && ctx->parent.inode &&
	       (flags & O_ACCMODE) != O_RDONLY && (mode & ~ctx->umask & owner) == owner &&
	       !(mode & 07000);
}

void remote_spares_want(
	struct op_context *ctx, struct remote *remote, const char *path, int flags, uint32_t mode)
{
	const struct spare_kind kind = kind_of(ctx, mode);
	cleanup_free char *directory = strndup(path, path_parent_length(path));
	struct spare *old = NULL;
	bool is_full = false;
	unsigned missing;

	if (!directory || !may_be_prepared(ctx, flags, mode) ||
		!(remote->capabilities & WORKSPACE_CAN_PREPARE))
		return;
	pthread_mutex_lock(&remote->lock);
	remote->spare_maker =
		(struct spare_maker){kind.uid, kind.gid, kind.umask, kind.mode, clock_now_ms()};
	if (!remote->spares_wanted)
		remote->spares_wanted = 1;
	missing = count_missing(remote, &kind, &is_full);
	if (missing && is_full) {
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

static bool makes_files(const struct op_context *ctx, const struct spare_maker *maker)
{
	return maker->at_ms && clock_now_ms() - maker->at_ms < MAKES_FILES_MS &&
	       maker->uid == ctx->uid && maker->gid == ctx->gid && maker->umask == ctx->umask;
}

struct spare *remote_spare_new(
	struct op_context *ctx, struct remote *remote, uint32_t *ret_mode, uint64_t *ret_handle)
{
	struct spare *spare = NULL;

	pthread_mutex_lock(&remote->lock);
	if (makes_files(ctx, &remote->spare_maker))
		spare = calloc(1, sizeof(*spare));
	if (spare) {
		spare->remote = remote;
		spare->kind = kind_of(ctx, remote->spare_maker.mode);
		spare->state = SPARE_REFUSED;
		spare->handle = ++remote->next_handle;
		*ret_mode = spare->kind.mode;
		*ret_handle = spare->handle;
	}
	pthread_mutex_unlock(&remote->lock);
	return spare;
}

void remote_spare_prepared(struct spare *spare, const struct object_id *directory, uint64_t epoch,
	const struct attributes *attributes)
{
	spare->kind.directory = *directory;
	spare->attributes = *attributes;
	become(spare, SPARE_READY, epoch);
}

/* Under the lock. */
static bool has_too_many(const struct remote *remote)
{
	unsigned count = 0;

	for (const struct spare *spare = remote->spares; spare; spare = spare->next)
		count++;
	return count >= SPARES_MAX;
}

void remote_spare_done(struct spare *spare)
{
	struct remote *remote = spare ? spare->remote : NULL;
	struct spare *old;

	if (!spare || spare->state != SPARE_READY) {
		free(spare);
		return;
	}
	pthread_mutex_lock(&remote->lock);
	old = take_over(remote, has_too_many(remote));
	spare->next = remote->spares;
	remote->spares = spare;
	pthread_mutex_unlock(&remote->lock);
	if (old)
		drop(remote, old);
}

/* ---- Taking --------------------------------------------------------------------------- */

/* Under the lock.  `kind` NULL: any.  NULL: none is ready; where some are on the way there are to
 * be more. */
static struct spare *take_ready(struct remote *remote, const struct spare_kind *kind)
{
	int64_t now_ms = clock_now_ms();
	bool is_asked = false;

	for (struct spare **slot = &remote->spares; *slot; slot = &(*slot)->next) {
		struct spare *spare = *slot;

		if ((kind && !same_kind(&spare->kind, kind)) || is_over(remote, spare, now_ms))
			continue;
		is_asked = is_asked || spare->state == SPARE_ASKED;
		if (spare->state != SPARE_READY)
			continue;
		take_out(slot);
		return spare;
	}
	if (is_asked && remote->spares_wanted < WANTED_MAX)
		remote->spares_wanted++;
	return NULL;
}

/* By the clock there. */
static struct timespec time_there(const struct spare *spare)
{
	const struct timespec *then = &spare->attributes.ctime;
	struct timespec now =
		clock_at_ns(clock_now_ns() - spare->ready_ns + (uint64_t)then->tv_nsec);

	now.tv_sec += then->tv_sec;
	return now;
}

/* What the file will be when it has its name. */
static struct attributes named_attributes(const struct spare *spare)
{
	struct attributes attributes = spare->attributes;

	attributes.nlink = 1;
	attributes.atime = attributes.mtime = attributes.ctime = time_there(spare);
	attributes.changed_lately = true;
	return attributes;
}

/* -EAGAIN: none. */
static int take(struct remote *remote, const struct spare_kind *kind, struct spare_taken *ret_taken)
{
	bool has_little_room;
	struct spare *spare;

	pthread_mutex_lock(&remote->lock);
	spare = take_ready(remote, kind);
	has_little_room =
		remote->little_room_ms && clock_now_ms() - remote->little_room_ms < LITTLE_ROOM_MS;
	pthread_mutex_unlock(&remote->lock);
	if (!spare)
		return -EAGAIN;
	if (spare->little_room || has_little_room) {
		drop(remote, spare);
		return -EAGAIN;
	}
	*ret_taken = (struct spare_taken){spare->handle, spare->epoch, named_attributes(spare)};
	free(spare);
	return 0;
}

int remote_spare_take(struct op_context *ctx, struct remote *remote, int flags, uint32_t mode,
	struct spare_taken *ret_taken)
{
	const struct spare_kind kind = kind_of(ctx, mode);

	if (ctx->create_hint != CREATE_IS_EARLY || !may_be_prepared(ctx, flags, mode))
		return -EAGAIN;
	return take(remote, &kind, ret_taken);
}

int remote_spare_take_any(
	struct op_context *ctx, struct remote *remote, struct spare_taken *ret_taken)
{
	return ctx->create_hint == CREATE_IS_EARLY ? take(remote, NULL, ret_taken) : -EAGAIN;
}

void remote_spare_return(struct remote *remote, const struct spare_taken *taken)
{
	bool is_there;

	pthread_mutex_lock(&remote->lock);
	is_there = taken->epoch == remote->epoch;
	pthread_mutex_unlock(&remote->lock);
	if (is_there)
		give_back(remote, taken->handle);
}
