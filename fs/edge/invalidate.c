#include "fs/edge/invalidate_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/edge/announce.h"
#include "fs/edge/dropper.h"
#include "fs/inode/inode_rules.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/path.h"

enum {
	QUEUE_MAX = 65536,
	NO_MEMORY_MS = 50, /* until what there was no memory for is tried again */
};

/* By the thread: what it could not do for want of memory is done with all else, a while later. */
static void try_again(struct invalidator *v)
{
	const struct timespec until = clock_in_ms(NO_MEMORY_MS);

	pthread_mutex_lock(&v->lock);
	v->lost = true;
	while (!v->ending)
		if (pthread_cond_timedwait(&v->changed, &v->lock, &until) == ETIMEDOUT)
			break;
	pthread_mutex_unlock(&v->lock);
}

/* ---- Telling the kernel ---------------------------------------------------------------- */

/* The kernel looks the name up again.  It need not be gone: an event of before may be told while
 * our own mkdir is on its way to the kernel.  So the entry is not dropped at once, which would
 * take the path from whoever has that as his working directory, and a file system that is mounted
 * there away; older kernels (before 6.2) know no other way. */
static void send_expiry(struct session *s, const struct inode *parent, const char *name)
{
	fuse_ino_t ino = session_ino(s, parent);
	size_t length = strlen(name);

	announce_expiry_begin(s);
	if (!s->expires_entries)
		fuse_lowlevel_notify_inval_entry(s->fuse, ino, name, length);
	else
#if FUSE_VERSION < 316
		fuse_lowlevel_notify_expire_entry(s->fuse, ino, name, length, FUSE_LL_EXPIRE_ONLY);
#else
		fuse_lowlevel_notify_expire_entry(s->fuse, ino, name, length);
#endif
	announce_expiry_end(s);
}

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

/* A revalidation has no lock: the reply to one may still be on its way to the kernel, and would
 * undo the expiry.  Its thread runs within that time. */
static void repeat_later(struct invalidator *v, struct inode *parent, const char *name)
{
	struct repeat *repeat = repeat_new(v, parent, name);

	if (!repeat) {
		try_again(v);
		return;
	}
	repeat->due_ns = clock_now_ns() + GIVEN_LATELY_MS * 1000000;
	pthread_mutex_lock(&v->lock);
	*v->last_repeat = repeat;
	v->last_repeat = &repeat->next;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

static void drop_entry(struct session *s, struct inode *parent, const char *name)
{
	bool is_given = inode_table_given_lately(s->mount->inodes, parent, name);

	/* First: when the kernel has looked again it may be missing still. */
	inode_table_not_missing(s->mount->inodes, parent, name);
	send_expiry(s, parent, name);
	if (is_given && RULE(REPEAT))
		repeat_later(s->invalidator, parent, name);
}

/* While an answer that names the inode is on its way, the kernel does not know it: dropping
 * the entry waits for that.  `found`: what is there now, or NULL. */
static void drop_child(struct session *s, struct inode *parent, const char *name,
	struct inode *child, bool pages, const struct inode_version *found)
{
	if (dropper_drop(s->dropper, child, pages, found) == -ENOENT && parent) {
		drop_entry(s, parent, name);
		dropper_drop(s->dropper, child, pages, found);
	}
}

/* ---- The log ------------------------------------------------------------------------------- */

static void record_foreign(struct session *s, const char *path, bool more)
{
	const struct log_record record = {
		.op = "foreign",
		.flags = LOG_HAS_NO_CALLER,
		.path = path,
		.start_ns = clock_wall_ns(),
		.changed_truncated = more,
	};

	mount_log_record(s->mount->log, &record);
}

/* A command of ours may have done it, or one of our requests; else others have. */
static void note_change(struct session *s, const char *path, const struct object_id *id)
{
	uint64_t now_ms = clock_now_ms();

	if (mount_note_change(s->mount, path, foreign_own_age(&s->foreign, path, id, now_ms)))
		return;
	switch (foreign_judge(&s->foreign, path, id, now_ms)) {
	case FOREIGN_NOT:
		break;
	case FOREIGN_PATH:
		record_foreign(s, path, false);
		break;
	case FOREIGN_MANY:
		record_foreign(s, "", true);
		break;
	}
}

/* Changes at or below `path` were missed. */
static void note_lost(struct session *s, const char *path)
{
	if (!mount_note_change(s->mount, NULL, UINT32_MAX))
		record_foreign(s, path, true);
}

/* ---- One change --------------------------------------------------------------------------- */

/* An event that tells nothing new is an echo of our own doing, or of what changed within one tick
 * of the place's clock, or of a write that had set the mtime but not yet the content when the
 * kernel looked: it asks us again.  `path`: to be logged if it is news; NULL: it has been. */
static void object_changed(struct session *s, struct inode *parent, const char *name,
	struct inode *inode, const struct attributes *now, const char *path)
{
	struct inode_version version;
	struct inode_state known;
	struct inode_note note;

	inode_version_of(now, &version);
	inode_table_state(s->mount->inodes, inode, &known);
	if (memcmp(&known.version, &version, sizeof(version)) == 0) {
		if (known.writers)
			drop_child(s, parent, name, inode, false, &version);
		if (!inode->is_directory)
			drop_child(s, parent, name, inode, true, &version);
		return;
	}
	/* Names in a directory are told of by themselves. */
	if (path && (!inode->is_directory || known.version.mode != version.mode ||
			    known.version.uid != version.uid || known.version.gid != version.gid))
		note_change(s, path, &now->id);
	if (known.writers) {
		/* Most likely our own writes, but perhaps not only: the kernel compares the
		 * times before it trusts its pages again. */
		drop_child(s, parent, name, inode, false, &version);
		return;
	}
	inode_table_note(s->mount->inodes, inode, now, &note);
	/* Whoever has written may have set the mtime back: ctime moves all the same. */
	drop_child(s, parent, name, inode,
		note.data_changed || version.ctime_ns != known.version.ctime_ns ||
			S_ISLNK(now->mode),
		&version);
}

/* The kernel's entry is not what is there (any more): removed, or replaced. */
static void drop_name(
	struct session *s, struct inode *parent, const char *name, struct inode *child)
{
	drop_entry(s, parent, name);
	dropper_drop(s->dropper, parent, true, NULL);
	if (child)
		dropper_drop(s->dropper, child, child->is_directory, NULL);
}

/* True: that was news, and has been logged. */
static bool name_changed(struct session *s, struct inode *parent, const char *name,
	const struct change *change, const char *path)
{
	const struct attributes *found = change->exists ? &change->attributes : NULL;
	struct inode *lost = NULL;

	if (inode_table_told(s->mount->inodes, parent, name, found, change->at, &lost) ==
		NAME_AS_KNOWN)
		return false;
	note_change(s, path, found ? &found->id : NULL);
	drop_name(s, parent, name, lost);
	if (lost)
		inode_table_told_of_loss(s->mount->inodes, lost);
	inode_table_unref(s->mount->inodes, lost);
	return true;
}

static void note_before(struct inode_table *table, struct inode *parent, const char *name,
	struct known_before *ret_before)
{
	struct inode *inode = inode_table_child(table, parent, name);
	struct inode_state state;

	*ret_before = (struct known_before){.kind = BEFORE_UNKNOWN};
	if (inode) {
		inode_table_state(table, inode, &state);
		ret_before->kind = state.version.mode ? BEFORE_OBJECT : BEFORE_UNKNOWN;
		ret_before->id = inode->id;
		ret_before->version = state.version;
	} else if (inode_table_is_missing(table, parent, name)) {
		ret_before->kind = BEFORE_NOTHING;
	}
	inode_table_unref(table, inode);
}

static void tell_observer(struct session *s, struct inode *parent, const struct change *change,
	const struct known_before *before)
{
	const struct change_observer *observer = s->observer;

	if (observer && *path_name(change->path))
		observer->foreign(observer->user, parent, path_name(change->path), change, before);
}

static void observer_lost(struct session *s, struct inode *directory)
{
	const struct change_observer *observer = s->observer;

	if (observer)
		observer->lost(observer->user, directory);
}

static void handle_entry(struct session *s, const struct change *change)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *parent = inode_table_find_directory(table, &change->directory);
	const char *name = path_name(change->path), *path = change->path;
	struct path_string now_at = {.heap = NULL};
	struct inode *inode = NULL;
	struct known_before before;
	bool is_logged;

	if (parent && s->observer)
		note_before(table, parent, name, &before);
	/* A directory above may have been renamed through this mount since the look. */
	if (parent && inode_table_path(table, parent, name, &now_at) == 0)
		path = now_at.path;
	if (parent && s->observer)
		before.is_ours = foreign_is_own(&s->foreign, path,
			change->exists ? &change->attributes.id : NULL, clock_now_ms());
	is_logged = parent && name_changed(s, parent, name, change, path);
	if (change->exists)
		inode = inode_table_find_id(table, &change->attributes.id);
	if (inode)
		object_changed(
			s, parent, name, inode, &change->attributes, is_logged ? NULL : path);
	else if (!parent)
		note_change(s, path, change->exists ? &change->attributes.id : NULL);
	if (parent && s->observer)
		tell_observer(s, parent, change, &before);
	inode_table_unref(table, inode);
	inode_table_unref(table, parent);
	path_string_done(&now_at);
}

/* Everything known in the directory may have changed, or everywhere (NULL). */
static void drop_known(struct session *s, struct inode *directory)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *top = directory ? directory : inode_table_root(table);
	struct inode_place *places;
	size_t count;

	if (inode_table_places(table, directory, &places, &count) < 0) {
		try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (places[i].inode)
			dropper_drop(s->dropper, places[i].inode, true, NULL);
		if (places[i].inode || RULE(MISSING_TOLD))
			drop_entry(s, places[i].parent, places[i].name);
	}
	dropper_drop(s->dropper, top, true, NULL);
	inode_table_places_free(table, places, count);
}

/* A command may have changed what nobody watches: the kernel asks again, before its time. */
static void drop_unwatched(struct session *s)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *root = inode_table_root(table);
	struct inode_place *places;
	size_t count;

	if (inode_table_places(table, NULL, &places, &count) < 0) {
		try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct inode_place *place = &places[i];
		struct inode_state state;

		if (!place->inode)
			continue;
		inode_table_state(table, place->inode, &state);
		if (place->parent->directory->watched &&
			(place->inode->is_directory ? place->inode->directory->watched
						    : state.version.nlink == 1))
			continue;
		dropper_drop(s->dropper, place->inode, true, NULL);
		if (!place->parent->directory->watched)
			drop_entry(s, place->parent, place->name);
	}
	dropper_drop(s->dropper, root, false, NULL);
	inode_table_places_free(table, places, count);
}

static void handle_directory(struct session *s, const struct change *change)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *top = inode_table_find_directory(table, &change->directory);

	if (!top)
		return;
	inode_table_watch_lost(table, top);
	drop_known(s, top);
	observer_lost(s, top);
	inode_table_unref(table, top);
}

static void handle_loss(struct session *s)
{
	note_lost(s, "");
	inode_table_watch_lost(s->mount->inodes, NULL);
	drop_known(s, NULL);
	observer_lost(s, NULL);
}

static void handle(struct session *s, const struct change *change)
{
	switch (change->kind) {
	case CHANGE_ENTRY:
		handle_entry(s, change);
		break;
	case CHANGE_UNWATCHED:
		handle_directory(s, change);
		break;
	case CHANGE_RESCAN:
		handle_loss(s);
		break;
	}
}

/* ---- The queue ---- */
static void queue_free(struct queued *list)
{
	while (list) {
		struct queued *next = list->next;

		free(list);
		list = next;
	}
}

/* With the lock held.  Forgets single changes in favour of a rescan of everything; the caller frees
 * them once the lock is free. */
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

	pthread_mutex_lock(&v->lock);
	if (!entry || v->count >= QUEUE_MAX) {
		lost = lose_changes(v);
		if (entry)
			entry->next = lost;
		lost = entry ? entry : lost;
	} else {
		*v->last = entry;
		v->last = &entry->next;
		v->count++;
	}
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
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

void invalidator_left(struct invalidator *v, struct inode *former)
{
	struct left *left = malloc(sizeof(*left));

	pthread_mutex_lock(&v->lock);
	if (left) {
		*left = (struct left){.next = v->left, .inode = former};
		v->left = left;
	}
	v->lost = v->lost || !left;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	if (!left)
		inode_table_unref(v->session->mount->inodes, former);
}

void invalidator_expire(struct invalidator *v, struct inode *directory, const char *name)
{
	drop_entry(v->session, directory, name);
}

void invalidator_another(struct invalidator *v, struct inode *directory, const char *name)
{
	repeat_later(v, directory, name);
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

/* The kernel has moved what it had: perhaps with what a notification under way was to take back at
 * the old name, or to where no event will say that it has changed. */
static void expire_moved(struct invalidator *v, const struct own_change *own)
{
	struct repeat *repeat = NULL;
	bool is_told;

	pthread_mutex_lock(&v->lock);
	is_told = v->busy || v->repeats || !own->moves_in->directory->watched;
	pthread_mutex_unlock(&v->lock);
	if (is_told && RULE(OWN_MOVED))
		repeat = repeat_new(v, own->moves_in, own->name);
	pthread_mutex_lock(&v->lock);
	v->lost = v->lost || (is_told && !repeat && RULE(OWN_MOVED));
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

/* True: it has been put aside, until one of them ends. */
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

/* With the lock held, but meanwhile. */
void invalidator_handle_next(struct invalidator *v)
{
	const bool lost = v->lost;
	struct left *left = lost ? NULL : v->left;
	struct queued *entry = lost || left ? NULL : take_first(v);
	const bool expire = !lost && !left && !entry && v->expire;
	struct repeat *repeat = lost || left || entry || expire ? NULL : take_repeat(v);

	v->lost = false;
	if (left)
		v->left = left->next;
	if (expire)
		v->expire = false;
	v->busy = true;
	pthread_mutex_unlock(&v->lock);
	if (lost)
		handle_loss(v->session);
	if (left) {
		drop_known(v->session, left->inode);
		inode_table_unref(v->session->mount->inodes, left->inode);
		free(left);
	}
	if (entry && !waits_for_own(v, entry)) {
		handle(v->session, &entry->change);
		free(entry);
	}
	if (expire)
		drop_unwatched(v->session);
	if (repeat) {
		if (repeat->is_first)
			drop_entry(v->session, repeat->directory, repeat->name);
		else
			send_expiry(v->session, repeat->directory, repeat->name);
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
	return v->first || v->left || v->lost || v->expire || is_repeat_due(v);
}

/* Whichever is earlier; 0 is never. */
static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

void invalidator_spare_added(struct invalidator *v)
{
	pthread_mutex_lock(&v->lock);
	if (!v->spares_due_ns) {
		v->spares_due_ns = clock_now_ns() + SPARE_NS;
		pthread_cond_broadcast(&v->changed);
	}
	pthread_mutex_unlock(&v->lock);
}

/* With the lock held.  False: nothing was due. */
static bool close_spares(struct invalidator *v)
{
	uint64_t next_ns;

	if (!v->spares_due_ns || v->spares_due_ns > clock_now_ns())
		return false;
	v->spares_due_ns = 0;
	pthread_mutex_unlock(&v->lock);
	next_ns = inode_table_close_spares(v->session->mount->inodes);
	pthread_mutex_lock(&v->lock);
	v->spares_due_ns = earlier(v->spares_due_ns, next_ns);
	return true;
}

/* With the lock held. */
static void wait_for_work(struct invalidator *v)
{
	uint64_t due_ns = earlier(v->spares_due_ns, v->repeats ? v->repeats->due_ns : 0);
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
		if (close_spares(v))
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
	v = *ret_invalidator; /* the thread asks there whether it is to end */
	r = -pthread_create(&v->thread, NULL, thread_main, v);
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
	while (v->left) {
		struct left *next = v->left->next;

		free(v->left);
		v->left = next;
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

/* With the lock held. */
static bool is_settled(const struct invalidator *v)
{
	return !invalidator_has_work(v) && !v->waiting && !v->busy;
}

void invalidator_drain(struct invalidator *v)
{
	pthread_mutex_lock(&v->lock);
	if (atomic_exchange(&v->session->believes_for_a_time, false))
		v->expire = true;
	if (!is_settled(v)) /* each command ends with a drain: usually nobody need wake up for it */
		pthread_cond_broadcast(&v->changed);
	while (!is_settled(v) && !v->ending)
		pthread_cond_wait(&v->changed, &v->lock);
	pthread_mutex_unlock(&v->lock);
	dropper_drain(v->session->dropper);
}
