#include "fs/edge/invalidate_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/edge/dropper.h"
#include "fs/inode/inode_rules.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/support/thread.h"
#include "ops/workspace.h"

enum {
	QUEUE_MAX = 65536,
	NO_MEMORY_MS = 50, /* until work that failed for want of memory is tried again */
	PASS_MS = 50,      /* between two calls of op_interrupted() */
};

/* ---- The queue --------------------------------------------------------------------- */

static void queue_free(struct queued *list)
{
	while (list) {
		struct queued *next = list->next;

		free(list);
		list = next;
	}
}

/* With the lock held.  Replaces the queued changes by a rescan of everything; the caller frees them
 * without the lock. */
static struct queued *lose_changes(struct invalidator *v)
{
	struct queued *list;

	*v->last = v->waiting;
	list = v->first;
	v->first = v->waiting = NULL;
	v->last = &v->first;
	v->last_waiting = &v->waiting;
	v->count = 0;
	v->lost = true;
	return list;
}

/* `entry` NULL: there was no memory for one. */
static void enqueue(struct invalidator *v, struct queued *entry)
{
	struct queued *lost = NULL;
	bool may_sleep;

	pthread_mutex_lock(&v->lock);
	may_sleep = !v->first && !v->busy;
	if (!entry || v->count >= QUEUE_MAX) {
		lost = lose_changes(v);
		if (entry)
			entry->next = lost;
		lost = entry ? entry : lost;
	} else {
		entry->number = ++v->number;
		*v->last = entry;
		v->last = &entry->next;
		v->count++;
	}
	pthread_mutex_unlock(&v->lock);
	/* Without the lock: a thread that wakes up takes it next. */
	if (may_sleep)
		pthread_cond_broadcast(&v->changed);
	queue_free(lost);
}

void invalidator_take(void *user, const struct change *change)
{
	size_t size = strlen(change->path) + 1;
	struct queued *entry = malloc(sizeof(*entry) + size);

	if (entry) {
		*entry = (struct queued){.change = *change};
		memcpy(entry->path, change->path, size);
		entry->change.path = entry->path;
		entry->change.hash = NULL;
	}
	enqueue(user, entry);
}

void invalidator_unwatched(struct invalidator *v, const struct object_id *id)
{
	const struct change change = {.kind = CHANGE_UNWATCHED, .path = "", .directory = *id};

	invalidator_take(v, &change);
}

void invalidator_superseded(struct invalidator *v, struct inode *inode)
{
	struct superseded *superseded = malloc(sizeof(*superseded));

	pthread_mutex_lock(&v->lock);
	if (superseded) {
		*superseded = (struct superseded){.next = v->superseded, .inode = inode};
		v->superseded = superseded;
	}
	v->lost = v->lost || !superseded;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	if (!superseded)
		inode_table_unref(v->session->mount->inodes, inode);
}

void invalidator_expire(struct invalidator *v, struct inode *directory, const char *name)
{
	invalidate_entry(v->session, directory, name);
}

void invalidator_another(struct invalidator *v, struct inode *directory, const char *name)
{
	invalidator_repeat_later(v, directory, name);
}

void invalidator_try_again(struct invalidator *v)
{
	const struct timespec until = clock_in_ms(NO_MEMORY_MS);

	pthread_mutex_lock(&v->lock);
	v->lost = true;
	while (!v->ending)
		if (pthread_cond_timedwait(&v->changed, &v->lock, &until) == ETIMEDOUT)
			break;
	pthread_mutex_unlock(&v->lock);
}

/* ---- Expiring once more --------------------------------------------------------------- */

/* NULL: no memory. */
static struct repeat *repeat_new(struct invalidator *v, struct inode *parent, const char *name)
{
	size_t size = strlen(name) + 1;
	struct repeat *repeat = calloc(1, sizeof(*repeat) + size);

	if (!repeat)
		return NULL;
	inode_table_ref(v->session->mount->inodes, parent);
	repeat->directory = parent;
	memcpy(repeat->name, name, size);
	return repeat;
}

void invalidator_repeat_later(struct invalidator *v, struct inode *parent, const char *name)
{
	struct repeat *repeat = repeat_new(v, parent, name);

	if (!repeat) {
		invalidator_try_again(v);
		return;
	}
	repeat->due_ns = clock_now_ns() + GIVEN_LATELY_MS * 1000000;
	pthread_mutex_lock(&v->lock);
	*v->last_repeat = repeat;
	v->last_repeat = &repeat->next;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* ---- Changes of our own under way ----
 *
 * The kernel holds the directory's lock until it has our answer, so that a notification of the name
 * would wait for that, and then take back what the answer has told. */

void invalidator_own_begin(struct invalidator *v, struct own_change *own)
{
	pthread_mutex_lock(&v->lock);
	own->next = v->own;
	v->own = own;
	pthread_mutex_unlock(&v->lock);
}

/* The kernel has moved its dentry.  A notification under way for the old name may miss it, or it is
 * now in a directory that is not watched. */
static void expire_moved(struct invalidator *v, const struct own_change *own)
{
	struct repeat *repeat = NULL;
	bool must_expire;

	pthread_mutex_lock(&v->lock);
	must_expire = v->busy || v->repeats || !inode_directory(own->moves_in)->watched;
	pthread_mutex_unlock(&v->lock);
	if (must_expire && RULE(OWN_MOVED))
		repeat = repeat_new(v, own->moves_in, own->name);
	pthread_mutex_lock(&v->lock);
	v->lost = v->lost || (must_expire && !repeat && RULE(OWN_MOVED));
	if (repeat) {
		repeat->is_first = true;
		repeat->next = v->repeats;
		v->repeats = repeat;
		if (!repeat->next)
			v->last_repeat = &repeat->next;
	}
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

void invalidator_own_end(struct invalidator *v, const struct own_change *own)
{
	struct own_change **at = &v->own;

	if (own->moves_in)
		expire_moved(v, own);
	pthread_mutex_lock(&v->lock);
	while (*at != own)
		at = &(*at)->next;
	*at = own->next;
	if (v->waiting) {
		*v->last_waiting = v->first;
		if (!v->first)
			v->last = v->last_waiting;
		v->first = v->waiting;
		v->waiting = NULL;
		v->last_waiting = &v->waiting;
		pthread_cond_broadcast(&v->changed);
	}
	pthread_mutex_unlock(&v->lock);
}

/* True: it was deferred until one of them ends. */
static bool waits_for_own(struct invalidator *v, struct queued *entry)
{
	const struct change *change = &entry->change;
	const struct own_change *own;

	if (change->kind != CHANGE_ENTRY)
		return false;
	pthread_mutex_lock(&v->lock);
	own = v->own;
	while (own && !(object_id_equal(&own->directory, &change->directory) &&
			      strcmp(own->name, path_name(change->path)) == 0))
		own = own->next;
	if (own) {
		entry->next = NULL;
		*v->last_waiting = entry;
		v->last_waiting = &entry->next;
		v->count++;
	}
	pthread_mutex_unlock(&v->lock);
	return own;
}

/* With the lock held.  NULL: there is none. */
static struct queued *take_first(struct invalidator *v)
{
	struct queued *first = v->first;

	if (first && !(v->first = first->next))
		v->last = &v->first;
	v->count -= first != NULL;
	return first;
}

static bool is_repeat_due(const struct invalidator *v)
{
	return v->repeats && v->repeats->due_ns <= clock_now_ns();
}

/* With the lock held.  NULL: none is due. */
static struct repeat *take_repeat(struct invalidator *v)
{
	struct repeat *first = is_repeat_due(v) ? v->repeats : NULL;

	if (first && !(v->repeats = first->next))
		v->last_repeat = &v->repeats;
	return first;
}

/* With the lock held, which is released meanwhile. */
void invalidator_handle_next(struct invalidator *v)
{
	const bool lost = v->lost;
	struct superseded *superseded = lost ? NULL : v->superseded;
	const bool expire = !lost && !superseded && v->expire;
	struct queued *entry = lost || superseded || expire ? NULL : take_first(v);
	struct repeat *repeat = lost || superseded || entry || expire ? NULL : take_repeat(v);

	v->lost = false;
	if (superseded)
		v->superseded = superseded->next;
	if (expire)
		v->expire = false;
	v->busy = true;
	v->busy_number = entry ? entry->number : 0;
	pthread_mutex_unlock(&v->lock);
	if (lost)
		invalidate_everything(v->session, "");
	if (superseded) {
		invalidate_directory(v->session, superseded->inode);
		inode_table_unref(v->session->mount->inodes, superseded->inode);
		free(superseded);
	}
	if (entry && !waits_for_own(v, entry)) {
		invalidate_change(v->session, &entry->change);
		free(entry);
	}
	if (expire)
		invalidate_unwatched(v->session);
	if (repeat) {
		if (repeat->is_first)
			invalidate_entry(v->session, repeat->directory, repeat->name);
		else
			invalidate_expire(v->session, repeat->directory, repeat->name);
		inode_table_unref(v->session->mount->inodes, repeat->directory);
		free(repeat);
	}
	pthread_mutex_lock(&v->lock);
	v->busy = false;
	pthread_cond_broadcast(&v->changed);
}

/* With the lock held. */
bool invalidator_has_work(const struct invalidator *v)
{
	return v->first || v->superseded || v->lost || v->expire || is_repeat_due(v);
}

/* Whichever is earlier; 0 is never. */
static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

void invalidator_retry_handle_added(struct invalidator *v)
{
	pthread_mutex_lock(&v->lock);
	if (!v->retry_handles_due_ns) {
		v->retry_handles_due_ns = clock_now_ns() + RETRY_HANDLE_NS;
		pthread_cond_broadcast(&v->changed);
	}
	pthread_mutex_unlock(&v->lock);
}

/* With the lock held.  False: nothing was due. */
static bool close_retry_handles(struct invalidator *v)
{
	uint64_t next_ns;

	if (!v->retry_handles_due_ns || v->retry_handles_due_ns > clock_now_ns())
		return false;
	v->retry_handles_due_ns = 0;
	pthread_mutex_unlock(&v->lock);
	next_ns = inode_table_close_retry_handles(v->session->mount->inodes);
	pthread_mutex_lock(&v->lock);
	v->retry_handles_due_ns = earlier(v->retry_handles_due_ns, next_ns);
	return true;
}

/* With the lock held. */
static void wait_for_work(struct invalidator *v)
{
	uint64_t due_ns = earlier(v->retry_handles_due_ns, v->repeats ? v->repeats->due_ns : 0);
	struct timespec until = clock_at_ns(due_ns);

	if (due_ns)
		pthread_cond_timedwait(&v->changed, &v->lock, &until);
	else
		pthread_cond_wait(&v->changed, &v->lock);
}

static void *thread_main(void *data)
{
	struct invalidator *v = data;

	pthread_mutex_lock(&v->lock);
	while (!v->ending) {
		if (close_retry_handles(v))
			continue;
		if (!invalidator_has_work(v)) {
			wait_for_work(v);
			continue;
		}
		invalidator_handle_next(v);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int invalidator_new(struct session *s, struct invalidator **ret_invalidator)
{
	struct invalidator *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->session = s;
	v->last = &v->first;
	v->last_waiting = &v->waiting;
	v->last_repeat = &v->repeats;
	pthread_mutex_init(&v->lock, NULL);
	clock_cond_init(&v->changed);
	*ret_invalidator = v;
	return 0;
}

int invalidator_start(struct session *s, struct invalidator **ret_invalidator)
{
	struct invalidator *v;
	int r = invalidator_new(s, ret_invalidator);

	if (r < 0)
		return r;
	v = *ret_invalidator; /* the thread's end is asked for there */
	r = thread_start(&v->thread, "invalidate", 0, thread_main, v);
	if (r < 0) {
		*ret_invalidator = NULL;
		free(v);
		return r;
	}
	r = workspace_watch(s->mount->workspace, invalidator_take, v);
	if (r < 0 && r != -EOPNOTSUPP)
		log_warning("changes at \"%s\" are not reported (%s): caching names for %u ms",
			s->mount->options->uri, strerror(-r), s->mount->options->ttl_ms);
	return 0;
}

void invalidator_stop(struct invalidator *v)
{
	if (!v)
		return;
	pthread_mutex_lock(&v->lock);
	v->ending = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	pthread_join(v->thread, NULL);
}

void invalidator_free(struct invalidator *v)
{
	if (!v)
		return;
	queue_free(lose_changes(v));
	while (v->superseded) {
		struct superseded *next = v->superseded->next;

		free(v->superseded);
		v->superseded = next;
	}
	while (v->repeats) {
		struct repeat *next = v->repeats->next;

		free(v->repeats);
		v->repeats = next;
	}
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

/* Whether everything up to the change of that number has been handled; those that came later do not
 * count, or others could delay it for ever.  With the lock held. */
static bool has_passed(const struct invalidator *v, uint64_t number)
{
	return !(v->busy && v->busy_number <= number) &&
	       !(v->first && v->first->number <= number) &&
	       !(v->waiting && v->waiting->number <= number) && !v->superseded && !v->lost &&
	       !v->expire && !is_repeat_due(v);
}

/* `ctx` NULL: nothing interrupts it. */
static int pass(struct invalidator *v, struct op_context *ctx)
{
	uint64_t number;
	int r = 0;

	pthread_mutex_lock(&v->lock);
	if (atomic_exchange(&v->session->caches_unwatched, false))
		v->expire = true;
	number = v->number;
	if (!has_passed(v, number)) /* usually there is nothing to wake the thread for */
		pthread_cond_broadcast(&v->changed);
	while (!has_passed(v, number) && !v->ending && r == 0) {
		clock_cond_wait_ms(&v->changed, &v->lock, PASS_MS);
		if (ctx && op_interrupted(ctx))
			r = -EINTR;
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

void invalidator_drain(struct invalidator *v)
{
	pass(v, NULL);
	dropper_drain(v->session->dropper);
}

int invalidator_catch_up(struct invalidator *v, struct op_context *ctx)
{
	int r = pass(v, ctx);

	return r < 0 ? r : dropper_catch_up(v->session->dropper, ctx);
}
