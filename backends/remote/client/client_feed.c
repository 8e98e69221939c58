#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"
#include "ops/support/thread.h"

/* A directory whose changes the session reports. */
struct watched_directory {
	struct watched_directory *next; /* in the table */
	struct object_id id;
	uint64_t since;
	char path[];
};

static size_t path_hash(const char *path)
{
	return XXH3_64bits_withSeed(path, strlen(path), hash_seed());
}

static size_t watched_hash(const void *entry)
{
	return path_hash(((const struct watched_directory *)entry)->path);
}

static void **watched_link(void *entry)
{
	return (void **)&((struct watched_directory *)entry)->next;
}

static struct watched_directory *find_watched(const struct hash_table *watched, const char *path)
{
	struct watched_directory *directory = hash_table_bucket(watched, path_hash(path));

	while (directory && strcmp(directory->path, path) != 0)
		directory = directory->next;
	return directory;
}

static struct watched_directory *next_watched(
	const struct hash_table *watched, struct watched_directory *directory)
{
	return hash_table_next(watched, directory, watched_hash, watched_link);
}

/* A watch has ended, maybe one before the present one.  Who asked by the path alone may not know
 * the id. */
static void remove_watched(struct hash_table *watched, const struct change *end)
{
	struct watched_directory *directory = find_watched(watched, end->path);

	if (!directory || directory->since > end->at ||
		(directory->id.inode && !object_id_equal(&directory->id, &end->directory)))
		return;
	hash_table_remove(watched, directory, watched_hash, watched_link);
	free(directory);
}

static void add_watched(
	struct hash_table *watched, const char *path, const struct object_id *id, uint64_t since)
{
	struct watched_directory *directory = find_watched(watched, path);
	size_t size = strlen(path) + 1;

	if (!directory) {
		directory = malloc(sizeof(*directory) + size);
		if (!directory)
			return;
		memcpy(directory->path, path, size);
		hash_table_insert(watched, directory, watched_hash, watched_link);
	}
	directory->id = *id;
	directory->since = since;
}

void remote_note_watched(
	struct remote *remote, const char *path, const struct object_id *id, uint64_t since)
{
	pthread_mutex_lock(&remote->lock);
	if (remote->sink && since)
		add_watched(&remote->watched, path, id, since);
	else if (!since)
		remote->unwatched++;
	pthread_mutex_unlock(&remote->lock);
}

size_t remote_watched_count(struct remote *remote)
{
	size_t count;

	pthread_mutex_lock(&remote->lock);
	count = remote->watched.count;
	pthread_mutex_unlock(&remote->lock);
	return count;
}

/* ---- Delivery ------------------------------------------------------------------ */

static void deliver(struct remote *remote, const struct change *change)
{
	if (change->kind == CHANGE_UNWATCHED) {
		pthread_mutex_lock(&remote->lock);
		remove_watched(&remote->watched, change);
		pthread_mutex_unlock(&remote->lock);
	}
	if (change->kind == CHANGE_ENTRY && change->exists)
		remote_object_changed(remote, &change->attributes.id, change->at);
	if (change->kind == CHANGE_RESCAN)
		remote_object_changed(remote, NULL, change->at);
	remote->sink(remote->sink_user, change);
}

static void deliver_rescan(struct remote *remote, uint64_t at)
{
	const struct change rescan = {.kind = CHANGE_RESCAN, .path = "", .at = at};

	deliver(remote, &rescan);
}

/* Those that are watched since `at` at the latest.  Under the lock. */
static struct watched_directory *take_watched(struct hash_table *watched, uint64_t at)
{
	struct watched_directory *taken = NULL, *next;

	for (struct watched_directory *d = next_watched(watched, NULL); d; d = next) {
		next = next_watched(watched, d);
		if (d->since > at)
			continue;
		hash_table_remove(watched, d, watched_hash, watched_link);
		d->next = taken;
		taken = d;
	}
	return taken;
}

static void deliver_loss(struct remote *remote, uint64_t at)
{
	struct watched_directory *ended;

	deliver_rescan(remote, at);
	pthread_mutex_lock(&remote->lock);
	ended = take_watched(&remote->watched, at);
	pthread_mutex_unlock(&remote->lock);
	while (ended) {
		struct watched_directory *directory = ended;
		struct change change = {.kind = CHANGE_UNWATCHED,
			.path = directory->path,
			.directory = directory->id,
			.at = at};

		ended = directory->next;
		remote->sink(remote->sink_user, &change);
		free(directory);
	}
}

/* Under the lock, but meanwhile.  False: nothing was. */
static bool deliver_what_was_lost(struct remote *remote)
{
	uint64_t at = remote->feed_lost_at;

	if (!remote->feed_lost)
		return false;
	remote->feed_lost = false;
	pthread_mutex_unlock(&remote->lock);
	deliver_loss(remote, at);
	pthread_mutex_lock(&remote->lock);
	remote->feed_delivered++;
	pthread_cond_broadcast(&remote->feed_moved);
	return true;
}

static void deliver_item(struct remote *remote, const struct feed_change *item)
{
	struct wire_reader reader;
	struct change change;

	if (!item->payload) {
		deliver_rescan(remote, item->at);
		return;
	}
	reader = wire_reader_over(item->payload, item->size);
	wire_get_change(&reader, &change);
	change.at = item->at;
	deliver(remote, &change);
}

static void item_free(struct feed_change *item)
{
	free(item->payload);
	free(item);
}

static void *run_feed(void *argument)
{
	struct remote *remote = argument;

	pthread_mutex_lock(&remote->lock);
	while (remote->feed_runs) {
		struct feed_change *item = remote->feed_first;

		if (deliver_what_was_lost(remote))
			continue;
		if (!item) {
			pthread_cond_wait(&remote->feed_moved, &remote->lock);
			continue;
		}
		remote->feed_first = item->next;
		if (!remote->feed_first)
			remote->feed_last = &remote->feed_first;
		remote->feed_count--;
		remote->feed_bytes -= item->size;
		pthread_mutex_unlock(&remote->lock);
		deliver_item(remote, item);
		item_free(item);
		pthread_mutex_lock(&remote->lock);
		remote->feed_delivered++;
		pthread_cond_broadcast(&remote->feed_moved);
	}
	pthread_mutex_unlock(&remote->lock);
	return NULL;
}

/* Under the lock, as what follows. */
static void append(struct remote *remote, struct feed_change *item)
{
	item->next = NULL;
	*remote->feed_last = item;
	remote->feed_last = &item->next;
	remote->feed_count++;
	remote->feed_bytes += item->size;
	pthread_cond_broadcast(&remote->feed_moved);
}

static struct feed_change *take_queue(struct remote *remote)
{
	struct feed_change *items = remote->feed_first;

	remote->feed_first = NULL;
	remote->feed_last = &remote->feed_first;
	remote->feed_count = remote->feed_bytes = 0;
	return items;
}

static void clear_queue(struct remote *remote)
{
	struct feed_change *items = take_queue(remote);

	while (items) {
		struct feed_change *next = items->next;

		item_free(items);
		items = next;
		remote->feed_delivered++;
	}
}

/* All watches that began up to there count as ended.  No memory is needed for that. */
static void lose_watches(struct remote *remote, uint64_t at)
{
	clear_queue(remote);
	if (!remote->feed_lost)
		remote->feed_received++;
	remote->feed_lost = true;
	remote->feed_lost_at = at;
	pthread_cond_broadcast(&remote->feed_moved);
}

static bool is_full(const struct remote *remote)
{
	return remote->feed_count >= FEED_MAX_CHANGES || remote->feed_bytes >= FEED_MAX_BYTES;
}

static bool is_end_of_watch(const struct feed_change *item)
{
	return item->payload && item->payload[0] == CHANGE_UNWATCHED;
}

/* Ends of watches stay, and in their order: nothing else tells of them.  The others, and what has
 * come with `at`, become one loss behind them, in the memory of one of them. */
static void drop_changes(struct remote *remote, uint64_t at)
{
	struct feed_change *items = take_queue(remote), *loss = NULL;

	while (items) {
		struct feed_change *item = items;

		items = item->next;
		if (is_end_of_watch(item)) {
			append(remote, item);
			continue;
		}
		if (loss) {
			item_free(loss);
			remote->feed_delivered++;
		}
		loss = item;
	}
	if (loss) {
		free(loss->payload);
		*loss = (struct feed_change){.at = at};
		append(remote, loss);
	}
	if (is_full(remote))
		lose_watches(remote, at);
}

static int push(struct remote *remote, uint8_t *payload, size_t size, uint64_t at)
{
	struct feed_change *item = calloc(1, sizeof(*item));

	if (!item)
		return -ENOMEM;
	*item = (struct feed_change){.payload = payload, .size = size, .at = at};
	append(remote, item);
	remote->feed_received++;
	return 0;
}

/* Without a sink, or where there is no room, the payload is not needed. */
static int take_change(struct remote *remote, uint8_t **payload, size_t size, uint64_t at)
{
	int r;

	if (!remote->sink)
		return 0;
	if (is_full(remote)) {
		drop_changes(remote, at);
		if ((*payload)[0] != CHANGE_UNWATCHED)
			return 0;
	}
	r = push(remote, *payload, size, at);
	if (r == 0)
		*payload = NULL;
	return r;
}

int remote_feed_take(struct remote *remote, uint8_t *payload, size_t size)
{
	struct wire_reader reader = wire_reader_over(payload, size);
	struct change change;
	int r;

	wire_get_change(&reader, &change);
	r = wire_reader_finish(&reader);
	if (r == 0 && !remote_position_is_good(change.at))
		r = -EPROTO;
	pthread_mutex_lock(&remote->lock);
	if (r == 0)
		r = take_change(remote, &payload, size, change.at + remote_base(remote));
	pthread_mutex_unlock(&remote->lock);
	free(payload);
	return r;
}

/* ---- Operations -------------------------------------------------------------------- */

void remote_feed_again(struct remote *remote)
{
	struct op_context ctx;
	struct remote_request request = {&ctx, remote, REQUEST_WATCH};
	bool watching;

	pthread_mutex_lock(&remote->lock);
	watching = remote->sink;
	pthread_mutex_unlock(&remote->lock);
	if (!watching)
		return;
	op_context_init(&ctx);
	remote_request_give_back(&request);
}

static int ask_for_feed(struct remote *remote)
{
	struct op_context ctx;
	struct remote_request request = {&ctx, remote, REQUEST_WATCH};

	op_context_init(&ctx);
	return (int)remote_request_run(&request, NULL, NULL);
}

void remote_feed_lost(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	if (remote->sink)
		lose_watches(remote, remote_base(remote));
	pthread_mutex_unlock(&remote->lock);
}

int remote_feed_start(struct remote *remote, change_sink sink, void *user)
{
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	if (remote->sink)
		r = -EBUSY;
	if (r == 0) {
		remote->feed_runs = true;
		r = thread_start(&remote->feed_thread, "feed", 0, run_feed, remote);
		remote->feed_runs = r == 0;
	}
	if (r == 0) {
		remote->sink = sink;
		remote->sink_user = user;
	}
	pthread_mutex_unlock(&remote->lock);
	return r;
}

int remote_watch(struct workspace *w, change_sink sink, void *user)
{
	struct remote *remote = remote_of(w);
	int r;

	if (!(remote->capabilities & WORKSPACE_CAN_WATCH))
		return -EOPNOTSUPP;
	r = remote_feed_start(remote, sink, user);
	return r < 0 ? r : ask_for_feed(remote);
}

void remote_unwatch(struct workspace *w, const struct object_ref *directory)
{
	struct remote *remote = remote_of(w);
	struct wire_writer writer;

	lane_writer_init(&writer);
	wire_put_object_id(&writer, &directory->id);
	lane_send(remote->lane, LANE_URGENT, FRAME_UNWATCH, 0, &writer);
}

void remote_feed_await(struct remote *remote, uint64_t received)
{
	pthread_mutex_lock(&remote->lock);
	while (remote->feed_runs && (int64_t)(received - remote->feed_delivered) > 0)
		pthread_cond_wait(&remote->feed_moved, &remote->lock);
	pthread_mutex_unlock(&remote->lock);
}

void remote_feed_stop(struct remote *remote)
{
	bool runs;

	pthread_mutex_lock(&remote->lock);
	runs = remote->feed_runs;
	remote->feed_runs = false;
	pthread_cond_broadcast(&remote->feed_moved);
	pthread_mutex_unlock(&remote->lock);
	if (runs)
		pthread_join(remote->feed_thread, NULL);
	clear_queue(remote);
	for (struct watched_directory *d = take_watched(&remote->watched, UINT64_MAX), *next; d;
		d = next) {
		next = d->next;
		free(d);
	}
	hash_table_done(&remote->watched);
}
