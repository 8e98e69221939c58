#include "fs/watchers/watchers_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

/* An object whose ctime is at most this much later than its directory's times was made by that
 * change. */
static const int64_t MADE_NS = 20000000;

enum { STARTS_FAILED_MAX = 20 };

/* The handling of one name, with its announcement, which is too large for the stack of several
 * calls. */
struct delivery {
	struct watchers *w;
	struct inode *parent;
	const char *name;
	struct seen_object was;
	bool is_wanted; /* the object itself is watched */
	bool exists;
	struct attributes now;
	uint64_t at;
	struct announcement announcement;
	struct event_command command;
};

/* ---- Calls ------------------------------------------------------------------------------- */

static int set_path(char *path, const char *text)
{
	return snprintf(path, PATH_MAX, "%s", text) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int path_of(struct watchers *w, struct inode *parent, const char *name, char *path)
{
	struct path_string text;
	int r = inode_table_path(w->mount->inodes, parent, name, &text);

	if (r < 0)
		return r;
	r = set_path(path, text.path);
	path_string_done(&text);
	return r;
}

static void set_name(char *into, const char *name)
{
	snprintf(into, NAME_MAX + 1, "%s", name);
}

static int call(struct delivery *d, enum event_call what)
{
	int r;

	d->command.call = what;
	r = event_helpers_call(&d->w->helpers, &d->command, &d->announcement);
	if (r == 0)
		d->w->mount->watch_events.announced++;
	else if (r != -EINTR && r != -ECHILD && r != -EBUSY)
		d->w->mount->watch_events.failed++;
	log_info("\"%s\": announced a change (call %d): %s", d->command.path, (int)what,
		r < 0 ? strerror(-r) : "done");
	d->w->starts_failed = r == -ECHILD ? d->w->starts_failed + 1 : 0;
	return r;
}

static void begin(struct delivery *d, enum announce_op op)
{
	d->announcement.op = op;
	d->announcement.parent = d->parent;
	d->announcement.new_parent = d->announcement.inode = d->announcement.replaced = NULL;
	d->announcement.way_length = 0;
	set_name(d->announcement.name, d->name);
	d->announcement.attributes = d->now;
	d->announcement.at = d->at;
	d->command.mode = d->now.mode & S_IFMT;
	d->command.atime = d->now.atime;
	d->command.mtime = d->now.mtime;
}

static int announce_data(struct delivery *d)
{
	int r = path_of(d->w, d->parent, d->name, d->command.path);

	begin(d, ANNOUNCE_MODIFY);
	return r < 0 ? r : call(d, EVENT_MODIFY);
}

static int announce_attributes(struct delivery *d)
{
	int r = path_of(d->w, d->parent, d->name, d->command.path);

	begin(d, ANNOUNCE_ATTRIB);
	return r < 0 ? r : call(d, EVENT_ATTRIB);
}

static int announce_new(struct delivery *d)
{
	int r = path_of(d->w, d->parent, d->name, d->command.path);
	enum event_call what = S_ISDIR(d->now.mode)   ? EVENT_MKDIR
			       : S_ISLNK(d->now.mode) ? EVENT_SYMLINK
						      : EVENT_MKNOD;

	begin(d, ANNOUNCE_CREATE);
	if (r == 0)
		r = call(d, what);
	if (r == 0 && S_ISREG(d->now.mode) && d->now.size_bytes)
		r = announce_data(d);
	return r;
}

/* ---- Removing ------------------------------------------------------------------------------ */

/* Names that were last seen in a directory; the caller frees. */
struct seen_list {
	struct seen_entry {
		char *name;
		struct seen_object object;
	} * entries;
	size_t count;
};

static void seen_list_done(struct seen_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->entries[i].name);
	free(list->entries);
}

static void copy_names(struct watchers *w, const struct inode *inode, struct seen_list *list)
{
	struct seen_directory *directory;

	watchers_lock(w);
	directory = inode ? seen_find(&w->seen, inode) : NULL;
	if (directory)
		list->entries = calloc(directory->names.count + 1, sizeof(*list->entries));
	for (size_t i = 0; list->entries && i <= directory->names.mask; i++)
		for (struct seen_name *n = directory->names.buckets[i]; n; n = n->hash_next) {
			struct seen_entry *entry = &list->entries[list->count];

			if (!n->was.exists)
				continue;
			entry->object = n->was;
			entry->name = strdup(n->name);
			list->count += entry->name != NULL;
		}
	watchers_unlock(w);
}

static int announce_gone(struct delivery *d, const char *path, struct inode *parent,
	const char *name, const struct seen_object *was, unsigned depth);

/* A tree is announced as removed leaf by leaf, though none of it exists any more: so the
 * announcement has the path to the leaf. */
static int announce_content_gone(struct delivery *d, const char *path, struct inode *parent,
	const char *name, struct inode *inode, unsigned depth)
{
	cleanup_with(seen_list_done) struct seen_list list = {NULL};
	struct announced_step *step = &d->announcement.way[depth];
	struct seen_directory *directory;
	int r = 0;

	copy_names(d->w, inode, &list);
	*step = (struct announced_step){.parent = parent, .inode = inode};
	set_name(step->name, name);
	for (size_t i = 0; i < list.count && r != -EINTR; i++) {
		cleanup_free char *below = path_join(path, list.entries[i].name);

		if (below)
			r = announce_gone(d, below, inode, list.entries[i].name,
				&list.entries[i].object, depth + 1);
	}
	watchers_lock(d->w);
	directory = inode ? seen_find(&d->w->seen, inode) : NULL;
	for (size_t i = 0; directory && i <= directory->names.mask; i++)
		for (struct seen_name *n = directory->names.buckets[i]; n; n = n->hash_next) {
			seen_settle(&d->w->seen, n);
			seen_set(&d->w->seen, n, NULL, 0);
		}
	watchers_unlock(d->w);
	return r;
}

static int announce_gone(struct delivery *d, const char *path, struct inode *parent,
	const char *name, const struct seen_object *was, unsigned depth)
{
	struct inode_table *table = d->w->mount->inodes;
	struct inode *inode = was->exists ? inode_table_find_id(table, &was->id) : NULL;
	bool is_directory = was->exists && S_ISDIR(was->version.mode);
	int r = 0;

	if (is_directory && inode && depth < ANNOUNCE_DEPTH_MAX)
		r = announce_content_gone(d, path, parent, name, inode, depth);
	if (r != -EINTR)
		r = set_path(d->command.path, path);
	if (r == 0) {
		announce_expire(d->w->mount, parent, name, d->exists);
		d->announcement.op = ANNOUNCE_DELETE;
		d->announcement.parent = parent;
		d->announcement.new_parent = d->announcement.replaced = NULL;
		d->announcement.inode = inode;
		d->announcement.way_length = depth;
		set_name(d->announcement.name, name);
		d->announcement.attributes =
			(struct attributes){.mode = is_directory  ? S_IFDIR | 0755U
						    : was->exists ? was->version.mode
								  : S_IFREG | 0644U,
				.nlink = 1,
				.uid = was->version.uid,
				.gid = was->version.gid};
		r = call(d, is_directory ? EVENT_RMDIR : EVENT_UNLINK);
	}
	inode_table_unref(table, inode);
	return r;
}

static int announce_removal(struct delivery *d)
{
	char path[PATH_MAX];
	int r = path_of(d->w, d->parent, d->name, path);

	return r < 0 ? r : announce_gone(d, path, d->parent, d->name, &d->was, 0);
}

/* ---- Moving -------------------------------------------------------------------------------- */

static int announce_move(struct delivery *d, struct inode *from, const char *from_name)
{
	struct inode_table *table = d->w->mount->inodes;
	struct inode *moved = inode_table_find_id(table, &d->now.id);
	struct inode *replaced = d->was.exists ? inode_table_find_id(table, &d->was.id) : NULL;
	int r = path_of(d->w, from, from_name, d->command.path);

	if (r == 0)
		r = path_of(d->w, d->parent, d->name, d->command.new_path);
	if (r == 0) {
		announce_expire(d->w->mount, from, from_name, false);
		begin(d, ANNOUNCE_RENAME);
		d->announcement.parent = from;
		set_name(d->announcement.name, from_name);
		d->announcement.new_parent = d->parent;
		set_name(d->announcement.new_name, d->name);
		d->announcement.inode = moved;
		d->announcement.replaced = replaced;
		r = call(d, EVENT_RENAME);
	}
	inode_table_unref(table, moved);
	inode_table_unref(table, replaced);
	return r;
}

/* A file was saved by renaming a temporary one over it, which may have come and gone unseen:
 * announced as a rename, not as a removal and a creation.  False: there was none. */
static bool was_saved(struct watchers *w, const struct inode *inode, char *ret_name)
{
	struct seen_directory *directory;
	bool found;

	watchers_lock(w);
	directory = seen_find(&w->seen, inode);
	found = directory && directory->vanished &&
		clock_now_ns() < directory->vanished_ns + SAVED_NS;
	if (found) {
		set_name(ret_name, directory->vanished);
		free(directory->vanished);
		directory->vanished = NULL;
	}
	watchers_unlock(w);
	return found;
}

/* ---- Which of them -------------------------------------------------------------------------- */

static bool is_same_data(const struct inode_version *a, const struct inode_version *b)
{
	return a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns;
}

static bool is_same_mode(const struct inode_version *a, const struct inode_version *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* Another name of it was made or removed: that has its own event, and watchers of the file itself
 * get this one.  Our own removal of a link shows here when an earlier event is handled late. */
static bool is_other_links_change(const struct delivery *d, const struct inode_version *now)
{
	struct inode_version expected = d->was.version;

	expected.nlink = now->nlink;
	expected.ctime_ns = now->ctime_ns;
	return !d->is_wanted && now->nlink != d->was.version.nlink &&
	       memcmp(&expected, now, sizeof(expected)) == 0;
}

/* Names in a directory have events of their own. */
static int announce_state(struct delivery *d)
{
	struct inode_version now;
	int r = 0;

	inode_version_of(&d->now, &now);
	if (S_ISDIR(d->now.mode))
		return is_same_mode(&d->was.version, &now) ? 0 : announce_attributes(d);
	if (is_other_links_change(d, &now))
		return 0;
	if (S_ISREG(d->now.mode) && !is_same_data(&d->was.version, &now)) {
		r = announce_data(d);
		return r < 0 || is_same_mode(&d->was.version, &now) ? r : announce_attributes(d);
	}
	return memcmp(&d->was.version, &now, sizeof(now)) == 0 ? 0 : announce_attributes(d);
}

static int64_t ns_of(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* It is not known what was at the name.  Something that was made there changed the directory's
 * times. */
static void guess_before(struct delivery *d)
{
	struct object_ref object = {.id = inode_table_id(d->w->mount->inodes, d->parent)};
	int64_t changed_ns = ns_of(&d->now.ctime);
	struct attributes parent;
	struct path_string path;
	struct op_context op;
	int r = -ENOENT;

	watchers_op(d->w, &op);
	if (d->exists && inode_table_path(d->w->mount->inodes, d->parent, NULL, &path) == 0) {
		object.path = path.path;
		r = workspace_getattr(&op, d->w->mount->workspace, &object, &parent);
		path_string_done(&path);
	}
	d->was = (struct seen_object){.exists = false};
	if (r < 0 || changed_ns <= ns_of(&parent.mtime) + MADE_NS)
		return;
	d->was.exists = true;
	d->was.id = d->now.id;
	inode_version_of(&d->now, &d->was.version);
	if (ns_of(&d->now.mtime) >= changed_ns - MADE_NS)
		d->was.version.mtime_ns--;
	else
		d->was.version.ctime_ns--;
}

static int announce_change(struct delivery *d, bool is_known)
{
	char saved_as[NAME_MAX + 1];
	int r = 0;

	if (!is_known)
		guess_before(d);
	if (d->was.exists && d->exists && object_id_equal(&d->was.id, &d->now.id))
		return announce_state(d);
	if (d->was.exists && d->exists && S_ISREG(d->now.mode) && S_ISREG(d->was.version.mode) &&
		was_saved(d->w, d->parent, saved_as))
		return announce_move(d, d->parent, saved_as);
	if (d->was.exists || (!is_known && !d->exists))
		r = announce_removal(d);
	if (d->exists && r != -EINTR && r != -ECHILD && r != -EBUSY)
		r = announce_new(d);
	return r;
}

/* ---- When ---------------------------------------------------------------------------------- */

static bool is_replaced(const struct seen_name *name)
{
	return name->was.exists &&
	       (!name->now_exists || !object_id_equal(&name->was.id, &name->now.id));
}

static bool is_at_rest(struct watchers *w, const struct object_id *id)
{
	struct inode *inode = inode_table_find_id(w->mount->inodes, id);
	bool must_wait = inode && announce_must_wait(w->mount, inode);

	inode_table_unref(w->mount->inodes, inode);
	return !must_wait;
}

/* The directory is gone, which is another change; its names are announced with that. */
static bool goes_with_parent(struct watchers *w, const struct seen_name *name)
{
	return inode_table_lost_ns(w->mount->inodes, name->directory->inode);
}

static bool may_be_touched(struct watchers *w, const struct seen_name *name)
{
	struct seen_directory *directory = name->directory;
	bool is_state =
		name->is_known && name->now_exists && !is_replaced(name) && name->was.exists;

	if (!is_state && (directory->blocked_turn == w->pass ||
				 announce_must_wait(w->mount, directory->inode))) {
		directory->blocked_turn = w->pass; /* the order in it stays */
		return false;
	}
	return (!name->now_exists || is_at_rest(w, &name->now.id)) &&
	       (!name->was.exists || is_at_rest(w, &name->was.id));
}

/* With the lock held.  0: now. */
static uint64_t wait_until(struct watchers *w, const struct seen_name *name, uint64_t now_ns)
{
	bool is_new = name->now_exists && (!name->was.exists || is_replaced(name));

	if (name->due_ns > now_ns)
		return name->due_ns;
	if (now_ns < name->arrived_ns + PAIR_NS &&
		(is_replaced(name) ||
			(is_new && (name->now.nlink == 1 || S_ISDIR(name->now.mode)) &&
				seen_find_old_name(&w->seen, name, true))))
		return name->arrived_ns + PAIR_NS;
	if (name->was.exists && name->announced_ns && !is_replaced(name) &&
		now_ns < name->announced_ns + GATHER_NS)
		return name->announced_ns + GATHER_NS;
	if (goes_with_parent(w, name))
		return now_ns + GATHER_NS;
	if (!may_be_touched(w, name))
		return now_ns + RETRY_NS;
	return 0;
}

static void note_vanished(const struct seen_name *name, uint64_t now_ns)
{
	struct seen_directory *directory = name->directory;

	free(directory->vanished);
	directory->vanished = strdup(name->name);
	directory->vanished_ns = now_ns;
}

/* With the lock held.  True: there is nothing to announce. */
static bool is_settled(struct watchers *w, struct seen_name *name, uint64_t now_ns)
{
	struct inode_version now;

	if (name->arrived_ns + PARENT_NS < now_ns && goes_with_parent(w, name))
		return true;
	if (name->at > name->now_at)
		return true; /* a later state was seen, or made here */
	if (!(name->directory->is_whole || name->is_wanted) ||
		(name->written_ns && name->written_ns + WRITING_NS > now_ns && name->now_exists &&
			!is_replaced(name)) ||
		!inode_table_is_known(w->mount->inodes, name->directory->inode)) {
		seen_set(&w->seen, name, name->now_exists ? &name->now : NULL, name->now_at);
		return true;
	}
	if (!name->is_known || name->was.exists != name->now_exists)
		return false;
	if (!name->now_exists) {
		note_vanished(name, now_ns);
		return true;
	}
	inode_version_of(&name->now, &now);
	return object_id_equal(&name->was.id, &name->now.id) &&
	       memcmp(&name->was.version, &now, sizeof(now)) == 0;
}

/* With the lock held.  What was announced is what they have seen now. */
static void note_told(struct watchers *w, struct seen_name *name, const struct delivery *d, int r)
{
	if (r == -ECHILD || r == -EBUSY) {
		name->due_ns = clock_now_ns() + RETRY_NS;
		return;
	}
	if (name->at <= d->at)
		seen_set(&w->seen, name, d->exists ? &d->now : NULL, d->at);
	name->announced_ns = clock_now_ns();
	if (name->now_at == d->at)
		seen_settle(&w->seen, name);
	else
		name->arrived_ns = name->announced_ns;
}

static void tidy(struct watchers *w, struct seen_name *name)
{
	if (!name->is_pending && !name->was.exists && !name->is_wanted && !name->written_ns &&
		name->directory->is_listed)
		seen_remove_name(&w->seen, name);
}

/* With the lock held, which is released meanwhile.  Directories and names stay, as only this thread
 * removes them. */
static void deliver_name(struct watchers *w, struct delivery *d, struct seen_name *name)
{
	struct seen_name *old_name =
		name->now_exists ? seen_find_old_name(&w->seen, name, false) : NULL;
	bool is_known = name->is_known;
	int r;

	if (name->was.exists && name->now_exists && !is_replaced(name))
		old_name = NULL;
	d->w = w;
	d->parent = name->directory->inode;
	d->name = name->name;
	d->was = name->was;
	d->is_wanted = name->is_wanted;
	d->exists = name->now_exists;
	d->now = name->now;
	d->at = name->now_at;
	watchers_unlock(w);
	if (old_name)
		r = announce_move(d, old_name->directory->inode, old_name->name);
	else
		r = announce_change(d, is_known);
	watchers_lock(w);
	if (old_name && r != -ECHILD && r != -EBUSY) {
		seen_set(&w->seen, old_name, NULL, 0);
		if (!old_name->now_exists)
			seen_settle(&w->seen, old_name);
	}
	note_told(w, name, d, r);
}

/* With the lock held.  Returns when to come back; 0: it is done. */
static uint64_t try_name(
	struct watchers *w, struct delivery *d, struct seen_name *name, bool only_moves)
{
	uint64_t now_ns = clock_now_ns(), until_ns;

	if (!name->is_pending)
		return 0;
	if (is_settled(w, name, now_ns)) {
		seen_settle(&w->seen, name);
		return 0;
	}
	if (only_moves && !(name->now_exists && seen_find_old_name(&w->seen, name, false)))
		return now_ns;
	until_ns = wait_until(w, name, now_ns);
	/* Both halves are there: no need to wait for one. */
	if (only_moves && until_ns == name->arrived_ns + PAIR_NS && !goes_with_parent(w, name) &&
		may_be_touched(w, name))
		until_ns = 0;
	if (until_ns == 0)
		deliver_name(w, d, name);
	return name->is_pending ? (until_ns ? until_ns : now_ns + 1) : 0;
}

/* With the lock held.  NULL: nothing is pending, or no memory. */
static struct seen_name **pending_names(struct watchers *w, size_t *ret_count)
{
	struct seen_name **names = calloc(w->seen.pending_count + 1, sizeof(struct seen_name *));

	*ret_count = 0;
	for (struct seen_name *name = w->seen.pending; names && name; name = name->next_pending)
		names[(*ret_count)++] = name;
	return names;
}

static void give_up(struct watchers *w)
{
	w->mount->watch_events.state = WATCH_EVENTS_OFF;
	w->mount->watch_events.reason = "the event helper cannot be started";
	w->ending = true;
}

uint64_t watchers_deliver(struct watchers *w)
{
	cleanup_free struct seen_name **names = NULL;
	cleanup_free struct delivery *d = malloc(sizeof(*d));
	uint64_t next_ns = 0;
	size_t count;

	watchers_lock(w);
	names = pending_names(w, &count);
	w->pass++;
	for (unsigned only_moves = 1; d && only_moves < 2; only_moves--) {
		for (size_t i = 0; i < count && !w->ending; i++) {
			uint64_t until_ns = try_name(w, d, names[i], only_moves);

			if (until_ns && !only_moves && (!next_ns || until_ns < next_ns))
				next_ns = until_ns;
		}
	}
	for (size_t i = 0; i < count; i++)
		tidy(w, names[i]);
	watchers_unlock(w);
	if (w->starts_failed > STARTS_FAILED_MAX)
		give_up(w);
	return next_ns;
}
