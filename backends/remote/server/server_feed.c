#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "backends/remote/server/server_internal.h"
#include "ops/read_data.h"
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
	got = read_data(&ctx, file, data, now->size_bytes);
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
	data = malloc(size);
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

/* Once no more than `waiting_max_bytes` wait to be sent.  Under feed_lock. */
static void send_loss(struct server *server, size_t waiting_max_bytes)
{
	const struct change rescan = {.kind = CHANGE_RESCAN, .path = "", .at = server->feed_at};

	if (!server->feed_lost || lane_waiting_bytes(server->lane) > waiting_max_bytes)
		return;
	server->feed_lost = false;
	send_change(server, &rescan);
}

void server_tell_loss(struct server *server)
{
	pthread_mutex_lock(&server->feed_lock);
	send_loss(server, SIZE_MAX);
	pthread_mutex_unlock(&server->feed_lock);
}

void server_tick(struct server *server)
{
	/* The thread that holds the lock sends the loss itself; it may be waiting for a file
	 * system, and this one must not wait. */
	if (pthread_mutex_trylock(&server->feed_lock) != 0)
		return;
	send_loss(server, FEED_MAX_BYTES / 2);
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
	send_loss(server, FEED_MAX_BYTES / 2);
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
