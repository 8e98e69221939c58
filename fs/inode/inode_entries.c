#include "fs/inode/inode_internal.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/clock.h"

/* ---- What was removed lately ------------------------------------------------------- */

static void remember_removal(
	struct inode_table *t, const struct inode *parent, const char *text, uint64_t at)
{
	size_t hash = name_hash(parent, text);

	t->removals[hash % REMOVALS] = (struct removal){.hash = hash, .at = at, .is_due = true};
}

/* The name was made again: what the feed reports next is no echo. */
static void forget_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	struct removal *removal = &t->removals[name_hash(parent, text) % REMOVALS];

	if (removal->hash == name_hash(parent, text))
		removal->is_due = false;
}

static bool is_removed_since(
	struct inode_table *t, const struct inode *parent, const char *text, uint64_t at)
{
	size_t hash = name_hash(parent, text);
	const struct removal *removal = &t->removals[hash % REMOVALS];

	return removal->hash == hash && at < removal->at;
}

/* Whether a report of the feed about an unknown name is older than our removal of it, or its echo.
 */
static bool is_of_removal(struct inode_table *t, const struct inode *parent, const char *text,
	bool exists, uint64_t at)
{
	size_t hash = name_hash(parent, text);
	struct removal *removal = &t->removals[hash % REMOVALS];
	bool is_echo = removal->is_due && !exists;

	if (removal->hash != hash)
		return false;
	if (is_removed_since(t, parent, text, at))
		return true;
	removal->is_due = false;
	return is_echo;
}

/* ---- Where the place says that objects are ----------------------------------------- */

static int name_point(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, uint64_t at, bool only_name, struct forgotten **list)
{
	struct inode_name *name = name_find(t, parent, text), *other;
	int r;

	forget_removal(t, parent, text);
	if (name && name_inode(name) != inode) {
		name_lose(t, name, list);
		name = NULL;
	}
	if (!name) {
		r = name_add(t, parent, text, inode, at, list);
		if (r < 0)
			return r;
		name = name_latest(inode);
	}
	if (name->at < at)
		name->at = at;
	while (only_name && (other = name_besides(inode, name))) {
		/* The kernel has the entry until an event reports its removal, or events are lost.
		 */
		if (RULE(MOVED) && !inode_missing_keep(t, name_parent(other), other->name, 0))
			break;
		name_drop(t, other, list);
	}
	return 0;
}

/* A later look found something else at the name, or we removed it later; or a later look found the
 * object, which has only one name, at another name. */
static bool is_overtaken(struct inode_table *t, const struct inode *parent, const char *text,
	const struct inode *inode, uint64_t at, bool only_name)
{
	struct inode_name *name = name_find(t, parent, text), *other;

	if (!at)
		return false;
	if (name && name_inode(name) != inode && name->at > at)
		return true;
	if (!name &&
		(inode_missing_since(t, parent, text, at) || is_removed_since(t, parent, text, at)))
		return true;
	for (other = name_latest(inode); other && only_name && RULE(ONE_NAME);
		other = name_older(inode, other))
		if (other != name && other->at > at)
			return true;
	return false;
}

/* The superseded inode of the directory whose dentry is in `parent`, if it is back there.  NULL:
 * there is none. */
static struct inode *find_superseded(
	struct inode_table *t, const struct object_id *id, const struct inode *parent)
{
	struct inode *inode = inode_chain(t, id);

	while (inode && !(inode->is_superseded && inode->is_directory &&
				inode_directory(inode)->kernels_parent == parent &&
				inode_has_id(inode, id)))
		inode = slab_at(inode->next);
	return inode;
}

/* The kernel has the directory in another parent than `parent`, and not above that. */
static bool is_elsewhere(const struct inode *inode, const struct inode *parent)
{
	return inode->is_directory && inode->lookups &&
	       inode_directory(inode)->kernels_parent != parent && !inode_is_below(parent, inode) &&
	       RULE(SUPERSEDED);
}

/* An inode number may be reused; without a generation, only the type of the object tells. */
static bool is_same_kind(const struct inode *inode, const struct attributes *a)
{
	return inode->is_directory == S_ISDIR(a->mode);
}

static void moved_in_kernel(struct inode *inode, const struct inode *parent)
{
	if (inode->is_directory)
		inode_directory(inode)->kernels_parent = parent;
}

/* With the lock held.  Another inode takes its id; it keeps its last attributes and path. */
static void supersede(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode_name *name;

	inode->references++;
	inode->is_superseded = true;
	if (inode->is_directory)
		inode_directory(inode)->watched = false;
	while ((name = name_latest(inode))) {
		if (RULE(MOVED))
			inode_missing_keep(t, name_parent(name), name->name, 0);
		name_lose(t, name, list);
	}
}

void inode_table_removed_in_kernel(struct inode_table *t, struct inode *inode)
{
	struct forgotten *list = NULL;

	if (!inode->is_directory)
		return;
	pthread_mutex_lock(&t->lock);
	if (!inode->is_superseded) {
		supersede(t, inode, &list);
		inode_unref(t, inode, &list);
	}
	inode_directory(inode)->kernels_parent = NULL;
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

/* The known directory at a name where another object was found.  NULL: there is none. */
static struct inode *find_displaced(
	struct inode_table *t, struct inode *parent, const char *text, const struct inode *by)
{
	struct inode_name *name = name_find(t, parent, text);
	struct inode *inode = name ? name_inode(name) : NULL;

	return inode && inode != by && inode->is_directory ? inode : NULL;
}

static void note_given(struct inode_table *t, const struct inode *parent, const char *text)
{
	t->given_ms[name_hash(parent, text) % REMOVALS] = (uint32_t)clock_now_ms();
}

static bool is_given_lately(struct inode_table *t, const struct inode *parent, const char *text)
{
	return (uint32_t)clock_now_ms() - t->given_ms[name_hash(parent, text) % REMOVALS] <=
	       GIVEN_LATELY_MS;
}

bool inode_table_given_lately(struct inode_table *t, const struct inode *parent, const char *text)
{
	bool is_given;

	pthread_mutex_lock(&t->lock);
	is_given = is_given_lately(t, parent, text);
	pthread_mutex_unlock(&t->lock);
	return is_given;
}

static void note_position(struct inode_table *t, uint64_t at)
{
	t->highest = at > t->highest ? at : t->highest;
}

uint64_t inode_table_position(struct inode_table *t)
{
	uint64_t highest;

	pthread_mutex_lock(&t->lock);
	highest = t->highest;
	pthread_mutex_unlock(&t->lock);
	return highest;
}

/* With the lock held. */
static int enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, struct inode **ret_inode,
	struct inode_note *ret_note, struct forgotten **list)
{
	struct inode *inode = inode_find(t, &a->id), *superseded = NULL;
	bool only_name = S_ISDIR(a->mode) || a->nlink == 1, is_old, is_another;
	struct inode_name *known;
	int r = 0;

	if (inode == t->root)
		return -ELOOP;
	if (inode && (!is_same_kind(inode, a) || is_elsewhere(inode, parent))) {
		superseded = inode;
		inode = S_ISDIR(a->mode) ? find_superseded(t, &a->id, parent) : NULL;
	}
	if (!inode)
		inode = inode_make(t, a, name);
	if (!inode)
		return -ENOMEM;
	if (superseded)
		supersede(t, superseded, list);
	else if (S_ISDIR(a->mode) && (superseded = find_displaced(t, parent, name, inode)))
		superseded->references++;
	inode->is_superseded = false;
	known = name_find(t, parent, name);
	is_another = known && name_inode(known) != inode && is_given_lately(t, parent, name);
	is_old = !superseded && is_overtaken(t, parent, name, inode, at, only_name);
	if (!is_old)
		r = name_point(t, parent, name, inode, at, only_name, list);
	if (r < 0) {
		inode_free_if_unused(t, inode, list);
		if (superseded)
			inode_unref(t, superseded, list);
		return r;
	}
	inode_note(t, inode, a, ret_note);
	ret_note->superseded = superseded;
	ret_note->is_old = is_old;
	ret_note->is_another = is_another && !is_old;
	moved_in_kernel(inode, parent);
	inode_add_lookup(inode);
	note_given(t, parent, name);
	note_position(t, at);
	*ret_inode = inode;
	return 0;
}

int inode_table_enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, struct inode **ret_inode,
	struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	r = enter(t, parent, name, a, at, ret_inode, ret_note, &list);
	if (r == 0 && !ret_note->is_old)
		ret_note->was_missing = inode_found(t, parent, name) && RULE(WAS_MISSING);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return r;
}

/* The kernel must not get attributes that are older than those it has. */
static bool is_older(const struct inode *known, const struct attributes *a)
{
	const struct inode_file *file = known ? inode_file(known) : NULL;
	struct inode_version version, sent;

	if (!known)
		return false;
	sent = inode_version_now(known);
	if (!sent.mode)
		return false;
	inode_version_of(a, &version);
	return (file && file->writers) ||
	       (memcmp(&version, &sent, sizeof(version)) != 0 && version.ctime_ns <= sent.ctime_ns);
}

int inode_table_enter_listed(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, uint32_t changes, struct inode **ret_inode,
	struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	if (inode_changes(parent) != changes || is_older(inode_find(t, &a->id), a))
		r = -ESTALE;
	else
		r = enter(t, parent, name, a, at, ret_inode, ret_note, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return r;
}

int inode_table_enter_unnamed(
	struct inode_table *t, const struct attributes *a, struct inode **ret_inode)
{
	struct forgotten *list = NULL;
	struct inode_note ignored;
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = inode_find(t, &a->id);
	if (inode && !is_same_kind(inode, a)) {
		supersede(t, inode, &list);
		inode_unref(t, inode, &list);
		inode = NULL;
	}
	if (!inode)
		inode = inode_make(t, a, "");
	if (inode) {
		inode_note(t, inode, a, &ignored);
		inode_add_lookup(inode);
		*ret_inode = inode;
	}
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return inode ? 0 : -ENOMEM;
}

int inode_table_enter_stale(
	struct inode_table *t, const struct attributes *a, struct inode **ret_inode)
{
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = inode_make(t, a, "");
	if (inode) {
		inode->is_superseded = inode->is_stale = inode->is_lost = true;
		inode->own.at = clock_now_ns();
		inode->lookups = 1;
		*ret_inode = inode;
	}
	pthread_mutex_unlock(&t->lock);
	return inode ? 0 : -ENOMEM;
}

/* ---- What became of names ---------------------------------------------------------- */

/* With the lock held. */
static void lose_link(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name_inode(name);

	inode_lose_link(t, inode);
	name_lose(t, name, list);
}

void inode_table_removed(struct inode_table *t, struct inode *parent, const char *text, uint64_t at)
{
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	note_position(t, at);
	name = name_find(t, parent, text);
	if (name)
		lose_link(t, name, &list);
	remember_removal(t, parent, text, at);
	inode_directory(parent)->changes++;
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

/* With the lock held.  A directory that the kernel knows was found there: processes that work in
 * it, or have it open, go along. */
static void follow_directory(struct inode_table *t, struct inode *parent, const char *text,
	const struct attributes *found, uint64_t at, struct forgotten **list)
{
	struct inode *inode = S_ISDIR(found->mode) ? inode_find(t, &found->id) : NULL;

	if (inode && inode->is_directory && inode != t->root && inode->lookups &&
		!is_overtaken(t, parent, text, inode, at, true))
		name_point(t, parent, text, inode, at, true, list);
}

/* With the lock held.  The name has another object now, or none. */
static struct inode *lose_changed(
	struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name_inode(name);

	inode->references++;
	lose_link(t, name, list);
	if (inode->is_lost)
		name->at = LOST_UNSENT;
	return inode;
}

enum name_change inode_table_changed(struct inode_table *t, struct inode *parent, const char *text,
	const struct attributes *found, uint64_t at, struct inode **ret_lost)
{
	enum name_change result = NAME_AS_KNOWN;
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	note_position(t, at);
	name = name_find(t, parent, text);
	if (!name) {
		inode_directory(parent)->changes += RULE(CHANGES);
		if (!is_of_removal(t, parent, text, found, at))
			result = NAME_WAS_UNKNOWN;
	} else if (found && is_same_kind(name_inode(name), found) &&
		   inode_has_id(name_inode(name), &found->id)) {
		name->at = name->at < at ? at : name->at;
	} else if (name->at < at) {
		inode_directory(parent)->changes += RULE(CHANGES);
		*ret_lost = lose_changed(t, name, &list);
		result = NAME_LEADS_ELSEWHERE;
	}
	if (result != NAME_AS_KNOWN && found)
		follow_directory(t, parent, text, found, at, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return result;
}

void inode_table_loss_sent(struct inode_table *t, struct inode *inode)
{
	struct inode_name *lost;

	pthread_mutex_lock(&t->lock);
	lost = inode->is_lost ? name_last(inode) : NULL;
	if (lost && lost->at == LOST_UNSENT)
		lost->at = clock_now_ns();
	pthread_mutex_unlock(&t->lock);
}

void inode_table_renamed(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *new_parent, const char *new_text, struct inode *inode, bool swap, uint64_t at)
{
	struct forgotten *list = NULL;
	struct inode_name *from, *to;
	struct inode *other = NULL;
	uint64_t to_at = at;

	pthread_mutex_lock(&t->lock);
	from = name_find(t, parent, text);
	to = name_find(t, new_parent, new_text);
	inode_found(t, new_parent, new_text);
	parent->references++;
	new_parent->references++;
	if (!inode && from)
		inode = name_inode(from);
	if (inode)
		inode->references++;
	/* A lookup was answered before the reply to the rename. */
	if (to && name_inode(to) == inode && to->at > at)
		to_at = to->at;
	if (from)
		name_drop(t, from, &list);
	if (to && to != from) {
		other = name_inode(to);
		other->references++;
		if (swap)
			name_drop(t, to, &list);
		else
			name_lose(t, to, &list);
	}
	/* A name that cannot be added is merely unknown until the next lookup. */
	if (inode)
		name_add(t, new_parent, new_text, inode, to_at, &list);
	forget_removal(t, new_parent, new_text);
	if (inode)
		moved_in_kernel(inode, new_parent);
	else if (RULE(MOVED)) /* the kernel has moved a dentry that we do not know */
		inode_missing_keep(t, new_parent, new_text, 0);
	if (swap && !other && RULE(MOVED))
		inode_missing_keep(t, parent, text, 0);
	if (other && swap) {
		name_add(t, parent, text, other, at, &list);
		moved_in_kernel(other, parent);
	} else if (other && other != inode) {
		inode_lose_link(t, other);
	}
	if (inode)
		inode_unref(t, inode, &list);
	if (other)
		inode_unref(t, other, &list);
	if (!swap)
		remember_removal(t, parent, text, at);
	inode_directory(parent)->changes++;
	inode_directory(new_parent)->changes++;
	note_given(t, new_parent, new_text); /* the kernel moves its dentry with the answer that it
					      * had for the old name */
	if (swap)
		note_given(t, parent, text);
	inode_unref(t, parent, &list);
	inode_unref(t, new_parent, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}
