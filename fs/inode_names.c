#define XXH_INLINE_ALL
#include "fs/inode_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"

size_t name_hash(const struct inode *parent, const char *name)
{
	return (size_t)XXH3_64bits_withSeed(
		name, strlen(name), (uint64_t)(uintptr_t)parent ^ hash_seed());
}

void **name_entry_link(void *entry)
{
	return (void **)&((struct inode_name *)entry)->hash_next;
}

size_t name_entry_hash(const void *entry)
{
	const struct inode_name *name = entry;

	return name_hash(name->parent, name->name);
}

struct inode_name *name_find(struct inode_table *t, const struct inode *parent, const char *name)
{
	struct inode_name *entry = t->names.buckets[name_hash(parent, name) & t->names.mask];

	while (entry && (entry->parent != parent || strcmp(entry->name, name) != 0))
		entry = entry->hash_next;
	return entry;
}

/* ---- Life of names ----------------------------------------------------------------- */

static size_t name_bytes(const char *name)
{
	return sizeof(struct inode_name) + strlen(name) + 1 + MALLOC_OVERHEAD_BYTES;
}

/* Returns the parent, with the reference that the name had. */
static struct inode *name_free(struct inode_table *t, struct inode_name *name)
{
	struct inode *parent = name->parent;

	t->bytes -= name_bytes(name->name);
	free(name);
	return parent;
}

static void name_take_out(struct inode_table *t, struct inode_name *name)
{
	struct inode_name **at = &name->inode->names;

	while (*at != name)
		at = &(*at)->next;
	*at = name->next;
	hash_table_remove(&t->names, name, name_entry_hash, name_entry_link);
}

struct inode *name_detach(struct inode_table *t, struct inode_name *name)
{
	name_take_out(t, name);
	return name_free(t, name);
}

static void name_drop(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	inode_unref(t, name_detach(t, name), list);
}

void inode_forget_lost(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode_name *lost = inode->lost;

	inode->lost = NULL;
	if (lost)
		inode_unref(t, name_free(t, lost), list);
}

/* The name is gone, or another's. */
static void name_lose(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name->inode;

	name_take_out(t, name);
	if (inode->names || !inode->lookups) {
		inode_unref(t, name_free(t, name), list);
		return;
	}
	inode_forget_lost(t, inode, list);
	inode->lost = name;
	inode->lost_ns = clock_now_ns();
}

bool inode_is_below(const struct inode *inode, const struct inode *top)
{
	while (!object_id_equal(&inode->id, &top->id) && inode->names)
		inode = inode->names->parent;
	return object_id_equal(&inode->id, &top->id);
}

/* Paths end at the root, whatever the place says: a directory that shows up again below itself
 * (a bind mount there, or a far end that lies) gets no name there. */
static int name_add(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, uint64_t at)
{
	size_t length = strlen(text);
	struct inode_name *name;

	if (parent == inode || (inode->references && inode_is_below(parent, inode)))
		return -ELOOP;
	name = malloc(sizeof(*name) + length + 1);
	if (!name)
		return -ENOMEM;
	*name = (struct inode_name){
		.parent = parent, .inode = inode, .next = inode->names, .at = at};
	memcpy(name->name, text, length + 1);
	inode->names = name;
	parent->references++;
	hash_table_insert(&t->names, name, name_entry_hash, name_entry_link);
	t->bytes += name_bytes(text);
	if (t->bytes > t->bytes_most)
		t->bytes_most = t->bytes;
	return 0;
}

/* ---- What was removed lately ------------------------------------------------------- */

static void remember_removal(
	struct inode_table *t, const struct inode *parent, const char *text, uint64_t at)
{
	size_t hash = name_hash(parent, text);

	t->removals[hash % REMOVALS] = (struct removal){.hash = hash, .at = at, .is_due = true};
}

/* It was made again: what the feed says next is no echo. */
static void forget_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	struct removal *removal = &t->removals[name_hash(parent, text) % REMOVALS];

	if (removal->hash == name_hash(parent, text))
		removal->is_due = false;
}

/* What the feed says of a name that nobody knows: older than our removal, or the echo of it. */
static bool is_of_removal(struct inode_table *t, const struct inode *parent, const char *text,
	bool exists, uint64_t at)
{
	size_t hash = name_hash(parent, text);
	struct removal *removal = &t->removals[hash % REMOVALS];
	bool is_echo = removal->is_due && !exists;

	if (removal->hash != hash)
		return false;
	if (at < removal->at)
		return true;
	removal->is_due = false;
	return is_echo;
}

/* ---- Where the place says that objects are ----------------------------------------- */

static int name_point(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, uint64_t at, bool only_name, struct forgotten **list)
{
	struct inode_name *name = name_find(t, parent, text);
	int r;

	forget_removal(t, parent, text);
	if (name && name->inode != inode) {
		name_lose(t, name, list);
		name = NULL;
	}
	if (name && name->at < at)
		name->at = at;
	if (!name) {
		r = name_add(t, parent, text, inode, at);
		if (r < 0)
			return r;
	}
	inode_forget_lost(t, inode, list);
	while (only_name && inode->names && inode->names->next) {
		struct inode_name *first = inode->names;

		name_drop(t,
			first->parent == parent && strcmp(first->name, text) == 0 ? first->next
										  : first,
			list);
	}
	return 0;
}

/* A later look has found something else at the name, or the object, of which that would be the only
 * name, at another. */
static bool is_overtaken(struct inode_table *t, const struct inode *parent, const char *text,
	const struct inode *inode, uint64_t at, bool only_name)
{
	const struct inode_name *name = name_find(t, parent, text);

	if (!at)
		return false;
	if (name && name->inode != inode)
		return name->at > at;
	for (const struct inode_name *other = inode->names; other && only_name; other = other->next)
		if (other != name && other->at > at)
			return true;
	return false;
}

/* The one whose entry was in `parent` before, if it comes back to it.  NULL: there is none. */
static struct inode *find_former(
	struct inode_table *t, const struct object_id *id, const struct inode *parent)
{
	struct inode *inode = t->inodes.buckets[inode_id_hash(id) & t->inodes.mask];

	while (inode && !(inode->is_former && inode->is_directory &&
				inode->directory->kernels_parent == parent &&
				object_id_equal(&inode->id, id)))
		inode = inode->hash_next;
	return inode;
}

/* The kernel has the directory elsewhere than in `parent`; nor is it above that. */
static bool is_elsewhere(const struct inode *inode, const struct inode *parent)
{
	return inode->is_directory && inode->lookups &&
	       inode->directory->kernels_parent != parent && !inode_is_below(parent, inode);
}

/* The number of an object that is gone may be that of another: where objects have no generation,
 * only the kind tells. */
static bool is_same_kind(const struct inode *inode, const struct attributes *a)
{
	return inode->is_directory == S_ISDIR(a->mode);
}

static void moved_in_kernel(struct inode *inode, const struct inode *parent)
{
	if (inode->is_directory)
		inode->directory->kernels_parent = parent;
}

/* With the lock held.  Another takes its place; it keeps what it was last. */
static void become_former(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	inode->references++;
	inode->is_former = true;
	if (inode->is_directory)
		inode->directory->watched = false;
	while (inode->names)
		name_lose(t, inode->names, list);
}

/* The directory that another is found in the place of.  NULL: there is none. */
static struct inode *find_displaced(
	struct inode_table *t, struct inode *parent, const char *text, const struct inode *by)
{
	const struct inode_name *name = name_find(t, parent, text);

	return name && name->inode != by && name->inode->is_directory ? name->inode : NULL;
}

/* With the lock held. */
static int enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, struct inode **ret_inode,
	struct inode_note *ret_note, struct forgotten **list)
{
	struct inode *inode = inode_find(t, &a->id), *former = NULL;
	bool only_name = S_ISDIR(a->mode) || a->nlink == 1, is_old;
	int r = 0;

	if (inode == t->root)
		return -ELOOP;
	if (inode && (!is_same_kind(inode, a) || is_elsewhere(inode, parent))) {
		former = inode;
		inode = S_ISDIR(a->mode) ? find_former(t, &a->id, parent) : NULL;
	}
	if (!inode)
		inode = inode_make(t, a);
	if (!inode)
		return -ENOMEM;
	if (former)
		become_former(t, former, list);
	else if (S_ISDIR(a->mode) && (former = find_displaced(t, parent, name, inode)))
		former->references++;
	inode->is_former = false;
	is_old = !former && is_overtaken(t, parent, name, inode, at, only_name);
	if (!is_old)
		r = name_point(t, parent, name, inode, at, only_name, list);
	if (r < 0) {
		inode_free_if_unused(t, inode, list);
		if (former)
			inode_unref(t, former, list);
		return r;
	}
	inode_note(t, inode, a, ret_note);
	ret_note->former = former;
	ret_note->is_old = is_old;
	moved_in_kernel(inode, parent);
	inode->lookups++;
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
	if (r == 0)
		inode_found(t, parent, name);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return r;
}

/* The kernel must not be told what is older than what it knows. */
static bool is_older(const struct inode *known, const struct attributes *a)
{
	const struct inode_file *file = known ? inode_file(known) : NULL;
	struct inode_version version;

	if (!known || !known->version.mode)
		return false;
	inode_version_of(a, &version);
	return (file && file->writers) ||
	       (memcmp(&version, &known->version, sizeof(version)) != 0 &&
		       version.ctime_ns <= known->version.ctime_ns);
}

int inode_table_enter_listed(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, uint32_t changes, struct inode **ret_inode,
	struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	if (parent->directory->changes != changes || is_older(inode_find(t, &a->id), a))
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
		become_former(t, inode, &list);
		inode_unref(t, inode, &list);
		inode = NULL;
	}
	if (!inode)
		inode = inode_make(t, a);
	if (inode) {
		inode_note(t, inode, a, &ignored);
		inode->lookups++;
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
	inode = inode_make(t, a);
	if (inode) {
		inode->is_former = inode->is_stale = true;
		inode->lost_ns = clock_now_ns();
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
	if (name->inode->version.nlink)
		name->inode->version.nlink--;
	name_lose(t, name, list);
}

void inode_table_removed(struct inode_table *t, struct inode *parent, const char *text, uint64_t at)
{
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	if (name)
		lose_link(t, name, &list);
	remember_removal(t, parent, text, at);
	parent->directory->changes++;
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

/* With the lock held: a directory that the kernel knows is there.  Those who work in it, or have it
 * open, go along. */
static void follow_directory(struct inode_table *t, struct inode *parent, const char *text,
	const struct attributes *found, uint64_t at, struct forgotten **list)
{
	struct inode *inode = S_ISDIR(found->mode) ? inode_find(t, &found->id) : NULL;

	if (inode && inode->is_directory && inode != t->root && inode->lookups &&
		!is_overtaken(t, parent, text, inode, at, true))
		name_point(t, parent, text, inode, at, true, list);
}

/* With the lock held.  It has another object than `found`, or nothing. */
static struct inode *lose_told(
	struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name->inode;

	inode->references++;
	lose_link(t, name, list);
	if (!inode->names)
		inode->lost_ns = LOST_UNTOLD;
	return inode;
}

enum name_news inode_table_told(struct inode_table *t, struct inode *parent, const char *text,
	const struct attributes *found, uint64_t at, struct inode **ret_lost)
{
	enum name_news news = NAME_AS_KNOWN;
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	if (!name) {
		parent->directory->changes++;
		if (!is_of_removal(t, parent, text, found, at))
			news = NAME_WAS_UNKNOWN;
	} else if (found && is_same_kind(name->inode, found) &&
		   object_id_equal(&name->inode->id, &found->id)) {
		name->at = name->at < at ? at : name->at;
	} else if (name->at < at) {
		parent->directory->changes++;
		*ret_lost = lose_told(t, name, &list);
		news = NAME_LEADS_ELSEWHERE;
	}
	if (news != NAME_AS_KNOWN && found)
		follow_directory(t, parent, text, found, at, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return news;
}

void inode_table_told_of_loss(struct inode_table *t, struct inode *inode)
{
	pthread_mutex_lock(&t->lock);
	if (inode->lost_ns == LOST_UNTOLD)
		inode->lost_ns = clock_now_ns();
	pthread_mutex_unlock(&t->lock);
}

void inode_table_renamed(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *new_parent, const char *new_text, struct inode *inode, bool swap, uint64_t at)
{
	struct forgotten *list = NULL;
	struct inode_name *from, *to;
	struct inode *other = NULL;

	pthread_mutex_lock(&t->lock);
	from = name_find(t, parent, text);
	to = name_find(t, new_parent, new_text);
	inode_found(t, new_parent, new_text);
	parent->references++;
	new_parent->references++;
	if (!inode && from)
		inode = from->inode;
	if (inode)
		inode->references++;
	if (from)
		name_drop(t, from, &list);
	if (to && to != from) {
		other = to->inode;
		other->references++;
		if (swap)
			name_drop(t, to, &list);
		else
			name_lose(t, to, &list);
	}
	/* A name that cannot be added is merely unknown until the next lookup. */
	if (inode && name_add(t, new_parent, new_text, inode, at) == 0)
		inode_forget_lost(t, inode, &list);
	forget_removal(t, new_parent, new_text);
	if (inode)
		moved_in_kernel(inode, new_parent);
	if (other && swap) {
		name_add(t, parent, text, other, at);
		moved_in_kernel(other, parent);
	} else if (other && other != inode && other->version.nlink) {
		other->version.nlink--;
	}
	if (inode)
		inode_unref(t, inode, &list);
	if (other)
		inode_unref(t, other, &list);
	if (!swap)
		remember_removal(t, parent, text, at);
	parent->directory->changes++;
	new_parent->directory->changes++;
	inode_unref(t, parent, &list);
	inode_unref(t, new_parent, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}
