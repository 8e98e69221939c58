#include "fs/invalidate.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/dropper.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/path.h"

enum {
	QUEUE_MAX = 65536,
	MOVED_MAX = 256,   /* renames without an event since */
	NO_MEMORY_MS = 50, /* until what there was no memory for is tried again */
};

struct queued {
	struct queued *next;
	struct change change; /* `path` points to the text below */
	uint64_t renames;     /* of ours that had begun when it was handled; 0: it has not been */
	char path[];
};

/* A directory that is another inode now. */
struct left {
	struct left *next;
	struct inode *inode; /* with a reference */
};

/* A directory that was renamed through this mount: what the place looked at before that is told by
 * the old path. */
struct moved_directory {
	struct moved_directory *next;
	uint64_t at;
	bool swap;
	char *from, *to;
};

struct invalidator {
	struct session *session;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct queued *first, **last;       /* lock, as all below */
	struct queued *again, **last_again; /* to be queued once more: keep_for_renames() */
	size_t count, again_count;
	struct renaming *renaming, **last_renaming; /* under way, the first began first */
	uint64_t renames;                           /* that have begun */
	struct left *left;
	struct moved_directory *moved, **last_moved; /* in the order of renames */
	uint64_t spares_due_ns;                      /* when to look at them; 0: there is none */
	bool busy;                                   /* the thread works on some */
	atomic_bool ending;
	bool lost;   /* changes were dropped: rescan everything */
	bool expire; /* what is believed for a time only is to go */
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
static void drop_entry(struct session *s, const struct inode *parent, const char *name)
{
	fuse_ino_t ino = session_ino(s, parent);
	size_t length = strlen(name);

	/* First: when the kernel has looked again it may be missing still. */
	inode_table_not_missing(s->mount->inodes, parent, name);
	if (!s->expires_entries)
		fuse_lowlevel_notify_inval_entry(s->fuse, ino, name, length);
	else
#if FUSE_VERSION < 316
		fuse_lowlevel_notify_expire_entry(s->fuse, ino, name, length, FUSE_LL_EXPIRE_ONLY);
#else
		fuse_lowlevel_notify_expire_entry(s->fuse, ino, name, length);
#endif
}

/* While an answer that names the inode is on its way, the kernel does not know it: dropping
 * the entry waits for that.  `found`: what is there now, or NULL. */
static void drop_child(struct session *s, const struct inode *parent, const char *name,
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
	if (control_note_change(s->mount, path))
		return;
	switch (foreign_judge(&s->foreign, path, id, clock_now_ms())) {
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
	if (!control_note_lost(s->mount))
		record_foreign(s, path, true);
}

/* ---- One change --------------------------------------------------------------------------- */

/* An event that tells nothing new is an echo of our own doing, or of what changed within one tick
 * of the place's clock, or of a write that had set the mtime but not yet the content when the
 * kernel looked: it asks us again.  (Nor is it told by how long answers take whether one from
 * before has overtaken another.) */
static void entry_changed(struct session *s, struct inode *parent, struct inode *child,
	const char *path, const struct attributes *now)
{
	const char *name = path_name(path);
	struct inode_version version;
	struct inode_state known;
	struct inode_note note;

	inode_version_of(now, &version);
	inode_table_state(s->mount->inodes, child, &known);
	if (memcmp(&known.version, &version, sizeof(version)) == 0) {
		if (known.writers)
			drop_child(s, parent, name, child, false, &version);
		if (!child->is_directory)
			drop_child(s, parent, name, child, true, &version);
		return;
	}
	/* Names in a directory are told of by themselves. */
	if (child->is_directory && known.version.mode == version.mode &&
		known.version.uid == version.uid && known.version.gid == version.gid)
		control_note_change(s->mount, path);
	else
		note_change(s, path, &now->id);
	if (known.writers) {
		/* Most likely our own writes, but perhaps not only: the kernel compares the
		 * times before it trusts its pages again. */
		drop_child(s, parent, name, child, false, &version);
		return;
	}
	inode_table_note(s->mount->inodes, child, now, &note);
	/* Whoever has written may have set the mtime back: ctime moves all the same. */
	drop_child(s, parent, name, child,
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

static bool is_ending(struct op_context *op)
{
	const struct session *s = op->interrupted_data;

	return s->invalidator->ending;
}

/* The event may be older than what the kernel knows: what is there now decides.  False: the
 * name was entered meanwhile, by somebody who may have looked before. */
static bool entry_replaced(
	struct session *s, struct inode *parent, const char *path, struct inode *child)
{
	uint64_t epoch = inode_table_epoch(s->mount->inodes);
	struct attributes now;
	struct op_context op;
	int r;

	op_context_init(&op);
	op.interrupted = is_ending;
	op.interrupted_data = s;
	r = workspace_getattr(&op, s->mount->workspace, &OBJECT_AT(path), &now);
	if (r == 0 && object_id_equal(&child->id, &now.id)) {
		entry_changed(s, parent, child, path, &now);
		return true;
	}
	note_change(s, path, NULL);
	if (!inode_table_vanished(s->mount->inodes, parent, path_name(path), epoch))
		return false;
	drop_name(s, parent, path_name(path), child);
	inode_table_told_of_loss(s->mount->inodes, child);
	return true;
}

/* A directory that the kernel knows was moved here: who works in it, or has it open, goes along. */
static void directory_moved(
	struct session *s, struct inode *parent, const char *path, const struct object_id *id)
{
	struct inode_table *table = s->mount->inodes;
	uint64_t epoch = inode_table_epoch(table);
	struct inode *inode = inode_table_misplaced(table, parent, path_name(path), id);
	struct attributes now;
	struct op_context op;

	if (!inode)
		return;
	op_context_init(&op);
	op.interrupted = is_ending;
	op.interrupted_data = s;
	if (workspace_getattr(&op, s->mount->workspace, &OBJECT_AT(path), &now) == 0 &&
		object_id_equal(&now.id, id))
		inode_table_moved(table, parent, path_name(path), inode, epoch);
	inode_table_unref(table, inode);
}

static bool is_about(const struct change *change, const struct inode *child)
{
	return change->exists && object_id_equal(&child->id, &change->attributes.id);
}

static void handle_entry(struct session *s, const struct change *change)
{
	struct inode_table *table = s->mount->inodes;
	size_t parent_length = path_parent_length(change->path);
	cleanup_free char *parent_path = strndup(change->path, parent_length);
	const char *name = path_name(change->path);
	struct inode *parent, *child;

	if (!*change->path) {
		entry_changed(s, NULL, inode_table_root(table), "", &change->attributes);
		return;
	}
	if (!parent_path) {
		try_again(s->invalidator);
		return;
	}
	parent = inode_table_find(table, parent_path);
	if (!parent) {
		note_change(s, change->path, change->exists ? &change->attributes.id : NULL);
		return;
	}
	child = inode_table_child(table, parent, name);
	if (!child)
		parent->changes++;
	if (!child && (change->exists || !inode_table_removed_lately(table, parent, name))) {
		note_change(s, change->path, change->exists ? &change->attributes.id : NULL);
		drop_name(s, parent, name, NULL);
	}
	while (child && !is_about(change, child) &&
		!entry_replaced(s, parent, change->path, child)) {
		inode_table_unref(table, child);
		child = inode_table_child(table, parent, name);
	}
	if (child && is_about(change, child))
		entry_changed(s, parent, child, change->path, &change->attributes);
	else if (change->exists && S_ISDIR(change->attributes.mode))
		directory_moved(s, parent, change->path, &change->attributes.id);
	inode_table_unref(table, child);
	inode_table_unref(table, parent);
}

/* What was not there may be there now. */
static void drop_missing(struct session *s, struct inode *directory)
{
	struct missing *names = inode_table_take_missing(s->mount->inodes, directory);

	for (const struct missing *missing = names; missing; missing = missing->next)
		drop_entry(s, directory, missing->name);
	missing_free(names);
}

/* Everything known at or below `top` may have changed. */
static void drop_subtree(struct session *s, struct inode *top, bool whole_subtree)
{
	struct inode_table *table = s->mount->inodes;
	struct inode_place *places;
	size_t count;

	if (inode_table_places(table, top, whole_subtree, &places, &count) < 0) {
		try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		dropper_drop(s->dropper, places[i].inode, true, NULL);
		if (places[i].parent)
			drop_entry(s, places[i].parent, places[i].name);
		if (whole_subtree)
			drop_missing(s, places[i].inode);
	}
	drop_missing(s, top);
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

	if (inode_table_places(table, root, true, &places, &count) < 0) {
		try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct inode_place *place = &places[i];
		struct inode_state state;

		inode_table_state(table, place->inode, &state);
		if (place->parent && place->parent->watched &&
			(place->inode->is_directory ? place->inode->watched
						    : state.version.nlink == 1))
			continue;
		dropper_drop(s->dropper, place->inode, true, NULL);
		if (place->parent && !place->parent->watched)
			drop_entry(s, place->parent, place->name);
	}
	dropper_drop(s->dropper, root, false, NULL);
	inode_table_places_free(table, places, count);
}

static void handle_directory(struct session *s, const struct change *change)
{
	struct inode *top = inode_table_find(s->mount->inodes, change->path);

	if (change->kind == CHANGE_RESCAN)
		note_lost(s, change->path);
	if (!top)
		return;
	inode_table_watch_lost(s->mount->inodes, top, change->kind == CHANGE_RESCAN);
	drop_subtree(s, top, change->kind == CHANGE_RESCAN);
	inode_table_unref(s->mount->inodes, top);
}

/* ---- Directories that we renamed ----------------------------------------------------------- */

static void moved_free(struct moved_directory *moved)
{
	free(moved->from);
	free(moved->to);
	free(moved);
}

/* Events are told in the order of their looks: none will be older.  With the lock held. */
static void forget_moved(struct invalidator *v, uint64_t at)
{
	while (v->moved && v->moved->at <= at) {
		struct moved_directory *moved = v->moved;

		v->moved = moved->next;
		moved_free(moved);
	}
	if (!v->moved)
		v->last_moved = &v->moved;
}

static void follow(char **path, const char *from, const char *to)
{
	const char *rest = *path + strlen(from);
	char *followed = path_join(to, *rest == '/' ? rest + 1 : rest);

	free(*path);
	*path = followed;
}

/* Where what the event tells of is now; NULL: at its path. */
static char *follow_moved(struct invalidator *v, const struct change *change)
{
	char *path;

	pthread_mutex_lock(&v->lock);
	forget_moved(v, change->at);
	path = v->moved ? strdup(change->path) : NULL;
	for (const struct moved_directory *moved = v->moved; path && moved; moved = moved->next) {
		if (moved->at <= change->at)
			continue;
		if (path_is_within(path, moved->from))
			follow(&path, moved->from, moved->to);
		else if (moved->swap && path_is_within(path, moved->to))
			follow(&path, moved->to, moved->from);
	}
	v->lost = v->lost || (v->moved && !path); /* no memory */
	pthread_mutex_unlock(&v->lock);
	if (path && strcmp(path, change->path) == 0) {
		free(path);
		path = NULL;
	}
	return path;
}

static void handle_at_path(struct session *s, const struct change *change)
{
	if (change->kind == CHANGE_ENTRY)
		handle_entry(s, change);
	else
		handle_directory(s, change);
}

static void handle(struct invalidator *v, const struct change *change)
{
	cleanup_free char *now_at = NULL;
	struct change followed = *change;

	if (change->kind != CHANGE_ENTRY)
		followed.at = 0; /* unknown: perhaps before all renames */
	handle_at_path(v->session, change);
	now_at = follow_moved(v, &followed);
	if (!now_at)
		return;
	followed.path = now_at;
	handle_at_path(v->session, &followed);
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

	*v->last = v->again;
	list = v->first;
	v->first = v->again = NULL;
	v->last = &v->first;
	v->last_again = &v->again;
	v->count = v->again_count = 0;
	v->lost = true;
	return list;
}

/* `entry` NULL: there was no memory for one. */
static void enqueue(struct invalidator *v, struct queued *entry)
{
	struct queued *lost = NULL;

	pthread_mutex_lock(&v->lock);
	if (!entry || v->count + v->again_count >= QUEUE_MAX) {
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

static void take_change(void *user, const struct change *change)
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

void invalidator_unwatched(struct invalidator *v, const char *path)
{
	const struct change change = {.kind = CHANGE_UNWATCHED, .path = path};

	take_change(v, &change);
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

static void handle_left(struct invalidator *v, struct left *list)
{
	while (list) {
		struct left *next = list->next;

		drop_subtree(v->session, list->inode, false);
		inode_table_unref(v->session->mount->inodes, list->inode);
		free(list);
		list = next;
	}
}

/* ---- Renames under way ----
 *
 * The workspace tells of a change by the new path as soon as it has renamed the directory.  Until
 * the reply has been entered in the inode table, nothing is known by that path here.  So what is
 * handled while a rename of ours is under way is handled once more when that is done. */

/* With the lock held.  True when it leads to work. */
static bool queue_again(struct invalidator *v)
{
	bool any = false;

	while (v->again && (!v->renaming || v->again->renames < v->renaming->number)) {
		struct queued *entry = v->again;

		v->again = entry->next;
		v->again_count--;
		entry->next = NULL;
		*v->last = entry;
		v->last = &entry->next;
		v->count++;
		any = true;
	}
	if (!v->again)
		v->last_again = &v->again;
	return any;
}

/* With the lock held.  `list` was handled while a rename was under way.  Returns what need not be
 * handled any more. */
static struct queued *keep_for_renames(struct invalidator *v, struct queued *list)
{
	struct queued *done = NULL;

	while (list) {
		struct queued *entry = list;

		list = entry->next;
		if (entry->renames) {
			entry->next = done;
			done = entry;
			continue;
		}
		entry->renames = v->renames;
		entry->next = NULL;
		*v->last_again = entry;
		v->last_again = &entry->next;
		v->again_count++;
	}
	queue_again(v);
	return done;
}

void invalidator_renaming(struct invalidator *v, struct renaming *renaming)
{
	pthread_mutex_lock(&v->lock);
	*renaming = (struct renaming){.number = ++v->renames};
	*v->last_renaming = renaming;
	v->last_renaming = &renaming->next;
	pthread_mutex_unlock(&v->lock);
}

void invalidator_renamed(struct invalidator *v, struct renaming *renaming)
{
	struct renaming **at = &v->renaming;

	pthread_mutex_lock(&v->lock);
	while (*at != renaming)
		at = &(*at)->next;
	*at = renaming->next;
	if (!*at)
		v->last_renaming = at;
	if (queue_again(v))
		pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* With the lock held, but meanwhile. */
static void handle_all(struct invalidator *v)
{
	static const struct change everything = {.kind = CHANGE_RESCAN, .path = ""};
	struct queued *list = v->first;
	struct left *left = v->left;
	bool lost = v->lost, expire = v->expire, is_renaming = v->renaming;
	uint64_t renames = v->renames;

	v->first = NULL;
	v->last = &v->first;
	v->count = 0;
	v->left = NULL;
	v->lost = v->expire = false;
	v->busy = true;
	pthread_mutex_unlock(&v->lock);
	if (lost)
		handle(v, &everything);
	handle_left(v, left);
	for (const struct queued *entry = list; entry; entry = entry->next)
		handle(v, &entry->change);
	if (expire)
		drop_unwatched(v->session);
	pthread_mutex_lock(&v->lock);
	if (is_renaming || v->renames != renames)
		list = keep_for_renames(v, list);
	pthread_mutex_unlock(&v->lock);
	queue_free(list);
	pthread_mutex_lock(&v->lock);
	v->busy = false;
	pthread_cond_broadcast(&v->changed);
}

/* With the lock held. */
static bool has_work(const struct invalidator *v)
{
	return v->first || v->left || v->lost || v->expire;
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
	struct timespec until = clock_at_ns(v->spares_due_ns);

	if (v->spares_due_ns)
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
		if (!has_work(v)) {
			wait_for_work(v);
			continue;
		}
		handle_all(v);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int invalidator_start(struct session *s, struct invalidator **ret_invalidator)
{
	struct invalidator *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->session = s;
	v->last = &v->first;
	v->last_again = &v->again;
	v->last_moved = &v->moved;
	v->last_renaming = &v->renaming;
	pthread_mutex_init(&v->lock, NULL);
	clock_cond_init(&v->changed);
	*ret_invalidator = v; /* the thread asks there whether it is to end */
	r = -pthread_create(&v->thread, NULL, thread_main, v);
	if (r < 0) {
		*ret_invalidator = NULL;
		free(v);
		return r;
	}
	r = workspace_watch(s->mount->workspace, take_change, v);
	if (r < 0 && r != -EOPNOTSUPP)
		log_warning("changes at \"%s\" are not reported (%s): believing names for %u ms",
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
	forget_moved(v, UINT64_MAX);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

void invalidator_moved(
	struct invalidator *v, const char *from, const char *to, bool swap, uint64_t at)
{
	struct moved_directory *moved = calloc(1, sizeof(*moved));
	struct queued *lost = NULL;
	size_t count = 1;

	if (moved)
		*moved = (struct moved_directory){
			.at = at, .swap = swap, .from = strdup(from), .to = strdup(to)};
	pthread_mutex_lock(&v->lock);
	for (const struct moved_directory *m = v->moved; m; m = m->next)
		count++;
	if (!at || !moved || !moved->from || !moved->to || count > MOVED_MAX) {
		if (moved)
			moved_free(moved);
		forget_moved(v, UINT64_MAX);
		lost = lose_changes(v);
		pthread_cond_broadcast(&v->changed);
	} else {
		*v->last_moved = moved;
		v->last_moved = &moved->next;
	}
	pthread_mutex_unlock(&v->lock);
	queue_free(lost);
}

void invalidator_drain(struct invalidator *v)
{
	pthread_mutex_lock(&v->lock);
	if (atomic_exchange(&v->session->believes_for_a_time, false))
		v->expire = true;
	pthread_cond_broadcast(&v->changed);
	while ((has_work(v) || v->again || v->busy) && !v->ending)
		pthread_cond_wait(&v->changed, &v->lock);
	pthread_mutex_unlock(&v->lock);
	dropper_drain(v->session->dropper);
}
