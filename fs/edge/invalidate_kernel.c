#include "fs/edge/invalidate_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/edge/announce.h"
#include "fs/edge/dropper.h"
#include "fs/inode/inode_rules.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

/* ---- Telling the kernel ---------------------------------------------------------------- */

/* Expires the entry, so that the kernel looks the name up again.  It may well exist: an earlier
 * event may be handled while the answer to our own mkdir is on its way.  Dropping the entry instead
 * would take away the working directories of processes and detach file systems mounted there;
 * kernels before 6.2 can do nothing else. */
void invalidate_expire(struct session *s, const struct inode *parent, const char *name)
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

void invalidate_entry(struct session *s, struct inode *parent, const char *name)
{
	bool is_given = inode_table_given_lately(s->mount->inodes, parent, name);

	/* First: a new lookup may find it absent again. */
	inode_table_not_missing(s->mount->inodes, parent, name);
	invalidate_expire(s, parent, name);
	if (is_given && RULE(REPEAT))
		invalidator_repeat_later(s->invalidator, parent, name);
}

enum stale { STALE_ATTRIBUTES, STALE_PAGES, STALE_FOREIGN };

static int drop_inode(
	struct session *s, struct inode *inode, enum stale stale, const struct inode_version *found)
{
	if (stale == STALE_FOREIGN)
		return dropper_drop_foreign(s->dropper, inode, found);
	return dropper_drop(s->dropper, inode, stale == STALE_PAGES, found);
}

/* While the answer that introduces the inode is on its way, the kernel does not know it: expiring
 * the entry waits for that.  `found`: what is there now, or NULL. */
static void drop_child(struct session *s, struct inode *parent, const char *name,
	struct inode *child, enum stale stale, const struct inode_version *found)
{
	int r = drop_inode(s, child, stale, found);

	if (r == -ENOENT && parent) {
		invalidate_entry(s, parent, name);
		r = drop_inode(s, child, stale, found);
	}
	/* The answer to a lookup has attributes, too. */
	if (r == -EALREADY && parent)
		invalidate_expire(s, parent, name);
	else if (r == -EALREADY)
		drop_inode(s, child, stale, NULL);
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

/* A change by others, unless a command or a request of this mount made it. */
static void note_change(
	struct session *s, const char *path, const struct object_id *id, uint64_t at)
{
	uint64_t now_ms = clock_now_ms();

	if (mount_note_change(s->mount, path, foreign_own_age(&s->foreign, path, id, now_ms), at))
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

/* The same without a record in the log. */
static void note_foreign(struct session *s, const char *path, const struct change *change)
{
	const struct object_id *id = change->exists ? &change->attributes.id : NULL;

	mount_note_change(
		s->mount, path, foreign_own_age(&s->foreign, path, id, clock_now_ms()), change->at);
}

/* Changes at or below `path` were missed. */
static void note_lost(struct session *s, const char *path)
{
	if (!mount_note_change(s->mount, NULL, UINT32_MAX, UINT64_MAX))
		record_foreign(s, path, true);
}

/* ---- One change --------------------------------------------------------------------------- */

/* An event without news is an echo of our own change; or reports a second change within one tick of
 * the workspace's clock; or a write that had set the mtime but not yet the content when the kernel
 * looked: so the kernel asks again.  `path`: to be logged if it is news; NULL: it has been. */
static void object_changed(struct session *s, struct inode *parent, const char *name,
	struct inode *inode, const struct change *change, const char *path)
{
	const struct attributes *now = &change->attributes;
	struct inode_version version;
	struct inode_state known;
	struct inode_note note;

	inode_version_of(now, &version);
	inode_table_state(s->mount->inodes, inode, &known);
	if (memcmp(&known.version, &version, sizeof(version)) == 0) {
		if (known.writers)
			drop_child(s, parent, name, inode, STALE_ATTRIBUTES, &version);
		if (!inode->is_directory)
			drop_child(s, parent, name, inode,
				change->is_foreign ? STALE_FOREIGN : STALE_PAGES, &version);
		return;
	}
	if (known.writers) {
		/* Most likely our own writes, but perhaps not only: the kernel compares the
		 * times before it trusts its pages again.  Others' may have the times of ours. */
		drop_child(s, parent, name, inode,
			change->is_foreign ? STALE_FOREIGN : STALE_ATTRIBUTES, &version);
	} else {
		inode_table_note(s->mount->inodes, inode, now, &note);
		/* A writer may have set the mtime back; ctime moves in any case. */
		drop_child(s, parent, name, inode,
			note.data_changed || version.ctime_ns != known.version.ctime_ns ||
					S_ISLNK(now->mode)
				? STALE_PAGES
				: STALE_ATTRIBUTES,
			&version);
	}
	/* The kernel comes first: the log's thread would take the processor.  Names in a directory
	 * have events of their own. */
	if (path && (!inode->is_directory || known.version.mode != version.mode ||
			    known.version.uid != version.uid || known.version.gid != version.gid))
		note_change(s, path, &now->id, change->at);
}

/* The kernel's entry was removed, or replaced. */
static void drop_name(
	struct session *s, struct inode *parent, const char *name, struct inode *child)
{
	invalidate_entry(s, parent, name);
	dropper_drop(s->dropper, parent, true, NULL);
	if (child)
		dropper_drop(s->dropper, child, child->is_directory, NULL);
}

/* True: it was news, and has been logged. */
static bool name_changed(struct session *s, struct inode *parent, const char *name,
	const struct change *change, const char *path)
{
	const struct attributes *found = change->exists ? &change->attributes : NULL;
	struct inode *lost = NULL;

	if (inode_table_changed(s->mount->inodes, parent, name, found, change->at, &lost) ==
		NAME_AS_KNOWN)
		return false;
	drop_name(s, parent, name, lost);
	note_change(s, path, found ? &found->id : NULL, change->at);
	if (lost)
		inode_table_loss_sent(s->mount->inodes, lost);
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
		ret_before->id = state.id;
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
	if (change->is_own) /* perhaps long after the call: -o writes=back */
		foreign_own(&s->foreign, path, NULL, clock_now_ms());
	if (parent && s->observer)
		before.is_ours = foreign_is_own(&s->foreign, path,
			change->exists ? &change->attributes.id : NULL, clock_now_ms());
	is_logged = parent && name_changed(s, parent, name, change, path);
	/* It may be known already, from a lookup that was quicker than its report. */
	if (parent && !is_logged && change->is_foreign)
		note_foreign(s, path, change);
	if (change->exists)
		inode = inode_table_find_id(table, &change->attributes.id);
	if (inode)
		object_changed(s, parent, name, inode, change, is_logged ? NULL : path);
	else if (!parent)
		note_change(s, path, change->exists ? &change->attributes.id : NULL, change->at);
	if (parent && s->observer)
		tell_observer(s, parent, change, &before);
	inode_table_unref(table, inode);
	inode_table_unref(table, parent);
	path_string_done(&now_at);
}

void invalidate_directory(struct session *s, struct inode *directory)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *top = directory ? directory : inode_table_root(table);
	struct inode_entry *entries;
	size_t count;

	if (inode_table_entries(table, directory, &entries, &count) < 0) {
		invalidator_try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (entries[i].inode)
			dropper_drop(s->dropper, entries[i].inode, true, NULL);
		if (entries[i].inode || RULE(MISSING_KEPT))
			invalidate_entry(s, entries[i].parent, entries[i].name);
	}
	dropper_drop(s->dropper, top, true, NULL);
	inode_table_entries_free(table, entries, count);
}

void invalidate_unwatched(struct session *s)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *root = inode_table_root(table);
	struct inode_entry *entries;
	size_t count;

	if (inode_table_entries(table, NULL, &entries, &count) < 0) {
		invalidator_try_again(s->invalidator);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct inode_entry *entry = &entries[i];
		struct inode_state state;

		if (!entry->inode)
			continue;
		inode_table_state(table, entry->inode, &state);
		if (inode_directory(entry->parent)->watched &&
			(entry->inode->is_directory ? inode_directory(entry->inode)->watched
						    : state.version.nlink == 1))
			continue;
		dropper_drop(s->dropper, entry->inode, true, NULL);
		if (!inode_directory(entry->parent)->watched)
			invalidate_entry(s, entry->parent, entry->name);
	}
	dropper_drop(s->dropper, root, false, NULL);
	inode_table_entries_free(table, entries, count);
}

static void handle_directory(struct session *s, const struct change *change)
{
	struct inode_table *table = s->mount->inodes;
	struct inode *top = inode_table_find_directory(table, &change->directory);

	if (!top)
		return;
	inode_table_watch_lost(table, top);
	invalidate_directory(s, top);
	observer_lost(s, top);
	inode_table_unref(table, top);
}

void invalidate_everything(struct session *s, const char *path)
{
	note_lost(s, path);
	inode_table_watch_lost(s->mount->inodes, NULL);
	invalidate_directory(s, NULL);
	observer_lost(s, NULL);
}

void invalidate_change(struct session *s, const struct change *change)
{
	switch (change->kind) {
	case CHANGE_ENTRY:
		handle_entry(s, change);
		break;
	case CHANGE_UNWATCHED:
		handle_directory(s, change);
		break;
	case CHANGE_RESCAN:
		invalidate_everything(s, change->path);
		break;
	}
}
