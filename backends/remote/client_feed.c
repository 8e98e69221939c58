#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client_internal.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"

enum { WATCH_BUCKETS = 4096 };

/* The directories whose changes the session reports. */
struct watched_directory {
	struct watched_directory *next;
	char path[];
};

struct watch_set {
	struct watched_directory *buckets[WATCH_BUCKETS];
	size_t count;
};

static struct watched_directory **watch_slot(struct watch_set *set, const char *path)
{
	struct watched_directory **slot;
	uint32_t hash = 2166136261u ^ (uint32_t)hash_seed();

	for (const char *c = path; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 16777619u;
	slot = &set->buckets[hash % WATCH_BUCKETS];
	while (*slot && strcmp((*slot)->path, path) != 0)
		slot = &(*slot)->next;
	return slot;
}

static void watch_set_remove(struct watch_set *set, const char *path)
{
	struct watched_directory **slot = watch_slot(set, path);
	struct watched_directory *directory = *slot;

	if (!directory)
		return;
	*slot = directory->next;
	set->count--;
	free(directory);
}

static void watch_set_add(struct watch_set *set, const char *path)
{
	struct watched_directory **slot = watch_slot(set, path);
	size_t size = strlen(path) + 1;

	if (*slot)
		return;
	*slot = malloc(sizeof(**slot) + size);
	if (!*slot)
		return;
	(*slot)->next = NULL;
	memcpy((*slot)->path, path, size);
	set->count++;
}

void remote_note_watched(struct remote *remote, const char *path, bool watched)
{
	pthread_mutex_lock(&remote->lock);
	if (remote->watched && watched)
		watch_set_add(remote->watched, path);
	else if (!watched)
		remote->unwatched++;
	pthread_mutex_unlock(&remote->lock);
}

size_t remote_watched_count(struct remote *remote)
{
	size_t count;

	pthread_mutex_lock(&remote->lock);
	count = remote->watched ? remote->watched->count : 0;
	pthread_mutex_unlock(&remote->lock);
	return count;
}

/* ---- Delivery ------------------------------------------------------------------ */

static void deliver(struct remote *remote, const struct change *change)
{
	if (change->kind == CHANGE_UNWATCHED) {
		pthread_mutex_lock(&remote->lock);
		watch_set_remove(remote->watched, change->path);
		pthread_mutex_unlock(&remote->lock);
	}
	if (change->kind == CHANGE_ENTRY && change->exists)
		remote_object_changed(remote, &change->attributes.id);
	remote->sink(remote->sink_user, change);
}

static void deliver_rescan(struct remote *remote)
{
	static const struct change rescan = {.kind = CHANGE_RESCAN, .path = ""};

	remote_object_changed(remote, NULL);
	deliver(remote, &rescan);
}

/* The new session watches nothing. */
static void deliver_loss(struct remote *remote)
{
	struct watch_set *set = calloc(1, sizeof(*set));
	struct watch_set *old;

	deliver_rescan(remote);
	if (!set)
		return;
	pthread_mutex_lock(&remote->lock);
	old = remote->watched;
	remote->watched = set;
	pthread_mutex_unlock(&remote->lock);
	for (size_t i = 0; i < WATCH_BUCKETS; i++)
		while (old->buckets[i]) {
			struct watched_directory *directory = old->buckets[i];
			struct change change = {.kind = CHANGE_UNWATCHED, .path = directory->path};

			old->buckets[i] = directory->next;
			remote->sink(remote->sink_user, &change);
			free(directory);
		}
	free(old);
}

/* Under the lock, but meanwhile.  False: nothing was. */
static bool deliver_what_was_dropped(struct remote *remote)
{
	bool lost = remote->feed_lost;

	if (!remote->feed_overflowed && !lost)
		return false;
	remote->feed_overflowed = remote->feed_lost = false;
	pthread_mutex_unlock(&remote->lock);
	if (lost)
		deliver_loss(remote);
	else
		deliver_rescan(remote);
	pthread_mutex_lock(&remote->lock);
	remote->feed_delivered++;
	pthread_cond_broadcast(&remote->feed_moved);
	return true;
}

static void *run_feed(void *argument)
{
	struct remote *remote = argument;

	pthread_mutex_lock(&remote->lock);
	while (remote->feed_runs) {
		struct feed_change *item = remote->feed_first;
		struct wire_reader reader;
		struct change change;

		if (deliver_what_was_dropped(remote))
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
		reader = wire_reader_over(item->payload, item->size);
		wire_get_change(&reader, &change);
		change.looked_ns += item->clock_offset_ns;
		deliver(remote, &change);
		free(item->payload);
		free(item);
		pthread_mutex_lock(&remote->lock);
		remote->feed_delivered++;
		pthread_cond_broadcast(&remote->feed_moved);
	}
	pthread_mutex_unlock(&remote->lock);
	return NULL;
}

/* Under the lock. */
static void clear_queue(struct remote *remote)
{
	while (remote->feed_first) {
		struct feed_change *next = remote->feed_first->next;

		free(remote->feed_first->payload);
		free(remote->feed_first);
		remote->feed_first = next;
		remote->feed_delivered++;
	}
	remote->feed_last = &remote->feed_first;
	remote->feed_count = remote->feed_bytes = 0;
}

/* Under the lock.  What is dropped counts as one change that comes: no memory is needed for that.
 */
static void drop_queue(struct remote *remote, bool *why)
{
	clear_queue(remote);
	if (!remote->feed_overflowed && !remote->feed_lost)
		remote->feed_received++;
	*why = true;
	pthread_cond_broadcast(&remote->feed_moved);
}

/* Under the lock. */
static int push(struct remote *remote, uint8_t *payload, size_t size)
{
	struct feed_change *item = calloc(1, sizeof(*item));

	if (!item)
		return -ENOMEM;
	*item = (struct feed_change){
		.payload = payload, .size = size, .clock_offset_ns = remote->clock_offset_ns};
	*remote->feed_last = item;
	remote->feed_last = &item->next;
	remote->feed_count++;
	remote->feed_bytes += size;
	remote->feed_received++;
	pthread_cond_broadcast(&remote->feed_moved);
	return 0;
}

int remote_feed_take(struct remote *remote, uint8_t *payload, size_t size)
{
	struct wire_reader reader = wire_reader_over(payload, size);
	struct change change;
	int r;

	wire_get_change(&reader, &change);
	r = wire_reader_finish(&reader);
	if (r < 0) {
		free(payload);
		return r;
	}
	pthread_mutex_lock(&remote->lock);
	if (!remote->sink) {
		free(payload);
	} else if (remote->feed_count >= FEED_MAX_CHANGES || remote->feed_bytes >= FEED_MAX_BYTES) {
		drop_queue(remote, &remote->feed_overflowed);
		free(payload);
	} else {
		if (change.looked_ns)
			remote_note_clock(remote, change.looked_ns);
		r = push(remote, payload, size);
		if (r < 0)
			free(payload);
	}
	pthread_mutex_unlock(&remote->lock);
	return r;
}

/* ---- Operations -------------------------------------------------------------------- */

static void watch_answered(struct call *call)
{
	call_free(call);
}

/* By the manager's thread, which must not wait: nobody else sees that the link is lost again. */
static void ask_for_feed_again(struct remote *remote)
{
	struct op_context ctx;
	struct query q;

	op_context_init(&ctx);
	query_begin(&q, &ctx, remote, REQUEST_WATCH, 0);
	query_gives_back(&q);
	query_submit(&q, watch_answered, NULL);
	query_done(&q);
}

static int ask_for_feed(struct remote *remote)
{
	struct op_context ctx;
	struct query q;
	int64_t result;

	op_context_init(&ctx);
	do {
		query_begin(&q, &ctx, remote, REQUEST_WATCH, 0);
		result = query_run(&q);
	} while (query_end(&q, &result));
	return (int)result;
}

void remote_feed_lost(struct remote *remote)
{
	bool watching;

	pthread_mutex_lock(&remote->lock);
	watching = remote->sink;
	if (watching)
		drop_queue(remote, &remote->feed_lost);
	pthread_mutex_unlock(&remote->lock);
	if (watching)
		ask_for_feed_again(remote);
}

int remote_feed_start(struct remote *remote, change_sink sink, void *user)
{
	int r = 0;

	pthread_mutex_lock(&remote->lock);
	if (remote->sink)
		r = -EBUSY;
	if (r == 0 && !remote->watched)
		remote->watched = calloc(1, sizeof(*remote->watched));
	if (r == 0 && !remote->watched)
		r = -ENOMEM;
	if (r == 0) {
		remote->feed_runs = true;
		r = remote_thread_start(&remote->feed_thread, run_feed, remote);
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

void remote_unwatch(struct workspace *w, const char *path)
{
	struct remote *remote = remote_of(w);
	struct wire_writer writer;

	pthread_mutex_lock(&remote->lock);
	if (remote->watched)
		watch_set_remove(remote->watched, path);
	pthread_mutex_unlock(&remote->lock);
	lane_writer_init(&writer);
	wire_put_string(&writer, path);
	lane_send(remote->lane, LANE_URGENT, FRAME_UNWATCH, 0, &writer);
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
	for (size_t i = 0; remote->watched && i < WATCH_BUCKETS; i++)
		while (remote->watched->buckets[i])
			watch_set_remove(remote->watched, remote->watched->buckets[i]->path);
	free(remote->watched);
}
