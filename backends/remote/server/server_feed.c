#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "backends/remote/server/server_internal.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

enum { HASHED_MAX_BYTES = 256 << 10 };

/* ---- What the client changed -------------------------------------------------------- */

static struct object_id *changed_slot(struct server *server, const struct object_id *id)
{
	return &server->changed[XXH3_64bits(id, sizeof(*id)) % CHANGED_SLOTS];
}

void server_note_changed(struct server *server, const struct object_id *id)
{
	pthread_mutex_lock(&server->changed_lock);
	*changed_slot(server, id) = *id;
	pthread_mutex_unlock(&server->changed_lock);
}

static bool was_changed(struct server *server, const struct object_id *id)
{
	bool result;

	pthread_mutex_lock(&server->changed_lock);
	result = object_id_equal(changed_slot(server, id), id);
	pthread_mutex_unlock(&server->changed_lock);
	return result;
}

/* ---- Hashing ----------------------------------------------------------------------- */

/* The next data from `at` on, and its end; the end of the file where there is none.  -errno. */
static int find_data(struct op_context *ctx, struct open_file *file, off_t at, off_t size,
	off_t *ret_start, off_t *ret_end)
{
	off_t start = workspace_seek(ctx, file, at, SEEK_DATA), end;

	if (start == -ENXIO) {
		*ret_start = *ret_end = size;
		return 0;
	}
	end = start < 0 ? start : workspace_seek(ctx, file, start, SEEK_HOLE);
	if (end < 0)
		return (int)end;
	*ret_start = start < size ? start : size;
	*ret_end = end < size ? end : size;
	return 0;
}

/* Does not read holes: preallocated ranges count as data once they were read, which SEEK_DATA would
 * then report to others.  `data` is zeroed.  The count, or -errno. */
static ssize_t read_data(struct op_context *ctx, struct open_file *file, uint8_t *data, off_t size)
{
	off_t at = 0, start = size, end = size;

	while (at < size) {
		ssize_t got;

		if (find_data(ctx, file, at, size, &start, &end) < 0)
			return workspace_read(ctx, file, data, (size_t)size, 0);
		got = workspace_read(ctx, file, data + start, (size_t)(end - start), start);
		if (got < end - start)
			return got < 0 ? got : start + got;
		at = end;
	}
	return size;
}

/* Reads the whole file.  -EAGAIN: its attributes are not `now` (any more). */
static int read_in_state(
	struct server *server, const char *path, const struct attributes *now, uint8_t *data)
{
	struct object_ref object = {.path = path, .id = now->id};
	struct attributes after;
	struct open_file *file;
	struct op_context ctx;
	ssize_t got;
	int r;

	op_context_init(&ctx);
	r = workspace_open_file(
		&ctx, server->workspace, &object, O_RDONLY | O_NOATIME, &file, &after);
	if (r < 0)
		return r;
	got = read_data(&ctx, file, data, (off_t)now->size_bytes);
	object = OBJECT_OF(file);
	r = workspace_getattr(&ctx, server->workspace, &object, &after);
	workspace_close(&ctx, file);
	if (r == 0 && (got < 0 || (uint64_t)got != now->size_bytes ||
			      !attributes_same_version(now, &after)))
		r = -EAGAIN;
	return r;
}

static bool hash_content(
	struct server *server, const struct change *change, XXH128_canonical_t *ret_hash)
{
	const struct attributes *now = &change->attributes;
	size_t size = (size_t)now->size_bytes;
	cleanup_free uint8_t *data = NULL;

	if (change->kind != CHANGE_ENTRY || !change->exists || !S_ISREG(now->mode) || !size ||
		now->size_bytes > HASHED_MAX_BYTES || !was_changed(server, &now->id))
		return false;
	data = calloc(1, size);
	if (!data || read_in_state(server, change->path, now, data) < 0)
		return false;
	XXH128_canonicalFromHash(ret_hash, XXH3_128bits(data, size));
	return true;
}

/* ---- The feed ----------------------------------------------------------------------- */

static void send_change(struct server *server, const struct change *change)
{
	cleanup_wire_writer struct wire_writer writer = {0};

	lane_writer_init(&writer);
	wire_put_change(&writer, change);
	if (lane_send(server->lane, LANE_URGENT, FRAME_CHANGE, 0, &writer) < 0)
		server->feed_lost = true;
}

/* Under feed_lock. */
static void send_loss(struct server *server)
{
	const struct change rescan = {.kind = CHANGE_RESCAN, .path = "", .at = server->feed_at};

	if (!server->feed_lost || lane_waiting_bytes(server->lane) > FEED_MAX_BYTES / 2)
		return;
	server->feed_lost = false;
	send_change(server, &rescan);
}

void server_tick(struct server *server)
{
	/* The thread that holds the lock sends the loss itself; it may be waiting for a file
	 * system, and this one must not wait. */
	if (pthread_mutex_trylock(&server->feed_lock) != 0)
		return;
	send_loss(server);
	pthread_mutex_unlock(&server->feed_lock);
}

/* The end of a watch is reported even if other changes are lost: there is at most one for each
 * watch. */
static void feed(void *user, const struct change *change)
{
	struct server *server = user;
	struct change sent = *change;
	XXH128_canonical_t hash;

	pthread_mutex_lock(&server->feed_lock);
	server->feed_at = change->at;
	if (lane_waiting_bytes(server->lane) > FEED_MAX_BYTES)
		server->feed_lost = true;
	if (change->kind == CHANGE_UNWATCHED || !server->feed_lost) {
		if (hash_content(server, change, &hash))
			sent.hash = hash.digest;
		send_change(server, &sent);
	}
	send_loss(server);
	pthread_mutex_unlock(&server->feed_lock);
}

int server_begin_feed(struct server *server)
{
	int r = workspace_watch(server->workspace, feed, server);

	return r == -EBUSY ? 0 : r; /* it has begun */
}

int64_t handle_watch(struct job *job, struct wire_writer *out)
{
	int r = wire_reader_finish(&job->in);

	(void)out;
	return r < 0 ? r : server_begin_feed(job->server);
}
