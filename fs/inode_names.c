#define XXH_INLINE_ALL
#include "fs/inode_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"

enum { REMOVAL_SECONDS = 5 };

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
static int name_add(
	struct inode_table *t, struct inode *parent, const char *text, struct inode *inode)
{
	size_t length = strlen(text);
	struct inode_name *name;

	if (parent == inode || (inode->references && inode_is_below(parent, inode)))
		return -ELOOP;
	name = malloc(sizeof(*name) + length + 1);
	if (!name)
		return -ENOMEM;
	*name = (struct inode_name){
		.parent = parent, .inode = inode, .next = inode->names, .epoch = ++t->epoch};
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

static time_t coarse_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec;
}

static void remember_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	size_t hash = name_hash(parent, text);

	t->removals[hash % REMOVALS] = (struct removal){.hash = hash, .when = coarse_seconds()};
}

/* Somebody made it again: what the feed says next is no echo. */
static void forget_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	struct removal *removal = &t->removals[name_hash(parent, text) % REMOVALS];

	if (removal->hash == name_hash(parent, text))
		removal->hash = 0;
}

bool inode_table_removed_lately(struct inode_table *t, const struct inode *parent, const char *text)
{
	size_t hash = name_hash(parent, text);
	const struct removal *removal = &t->removals[hash % REMOVALS];
	bool lately;

	pthread_mutex_lock(&t->lock);
	lately = removal->hash == hash && coarse_seconds() - removal->when <= REMOVAL_SECONDS;
	pthread_mutex_unlock(&t->lock);
	return lately;
}

void inode_table_making(struct inode_table *t, const struct inode *parent, const char *text)
{
	pthread_mutex_lock(&t->lock);
	forget_removal(t, parent, text);
	pthread_mutex_unlock(&t->lock);
}

/* ---- Where the place says that objects are ----------------------------------------- */

static int name_point(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, bool only_name, struct forgotten **list)
{
	struct inode_name *name = name_find(t, parent, text);
	int r;

	forget_removal(t, parent, text);
	if (name && name->inode != inode) {
		name_lose(t, name, list);
		name = NULL;
	}
	if (name) {
		name->epoch = ++t->epoch;
	} else {
		r = name_add(t, parent, text, inode);
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

/* The one whose entry was in `parent` before, if it comes back to it.  NULL: there is none. */
static struct inode *find_former(
	struct inode_table *t, const struct object_id *id, const struct inode *parent)
{
	struct inode *inode = t->inodes.buckets[inode_id_hash(id) & t->inodes.mask];

	while (inode && !(inode->is_former && inode->kernels_parent == parent &&
				object_id_equal(&inode->id, id)))
		inode = inode->hash_next;
	return inode;
}

/* The kernel has the directory elsewhere than in `parent`; nor is it above that. */
static bool is_elsewhere(const struct inode *inode, const struct inode *parent)
{
	return inode->is_directory && inode->lookups && inode->kernels_parent != parent &&
	       !inode_is_below(parent, inode);
}

/* With the lock held.  Another takes its place; it keeps what it was last. */
static void become_former(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	inode->references++;
	inode->is_former = true;
	inode->watched = false;
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
	const struct attributes *a, struct inode **ret_inode, struct inode_note *ret_note,
	struct forgotten **list)
{
	struct inode *inode = inode_find(t, &a->id), *former = NULL;
	int r;

	if (inode == t->root)
		return -ELOOP;
	if (inode && is_elsewhere(inode, parent)) {
		former = inode;
		inode = find_former(t, &a->id, parent);
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
	r = name_point(t, parent, name, inode, S_ISDIR(a->mode) || a->nlink == 1, list);
	if (r < 0) {
		inode_free_if_unused(t, inode, list);
		if (former)
			inode_unref(t, former, list);
		return r;
	}
	inode_note(t, inode, a, ret_note);
	ret_note->former = former;
	inode->kernels_parent = parent;
	inode->lookups++;
	*ret_inode = inode;
	return 0;
}

int inode_table_enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, struct inode **ret_inode, struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	r = enter(t, parent, name, a, ret_inode, ret_note, &list);
	if (r == 0)
		inode_found(t, parent, name);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return r;
}

/* The kernel must not be told what is older than what it knows. */
static bool is_older(const struct inode *known, const struct attributes *a)
{
	struct inode_version version;

	if (!known || !known->version.mode)
		return false;
	inode_version_of(a, &version);
	return known->writers || (memcmp(&version, &known->version, sizeof(version)) != 0 &&
					 version.ctime_ns <= known->version.ctime_ns);
}

int inode_table_enter_listed(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint32_t changes, struct inode **ret_inode,
	struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	if (parent->changes != changes || is_older(inode_find(t, &a->id), a))
		r = -ESTALE;
	else
		r = enter(t, parent, name, a, ret_inode, ret_note, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return r;
}

int inode_table_enter_unnamed(
	struct inode_table *t, const struct attributes *a, struct inode **ret_inode)
{
	struct inode_note ignored;
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = inode_find(t, &a->id);
	if (!inode)
		inode = inode_make(t, a);
	if (inode) {
		inode_note(t, inode, a, &ignored);
		inode->lookups++;
		*ret_inode = inode;
	}
	pthread_mutex_unlock(&t->lock);
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

void inode_table_removed(struct inode_table *t, struct inode *parent, const char *text)
{
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	if (name) {
		if (name->inode->version.nlink)
			name->inode->version.nlink--;
		name_lose(t, name, &list);
	}
	remember_removal(t, parent, text);
	parent->changes++;
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

uint64_t inode_table_epoch(struct inode_table *t)
{
	uint64_t epoch;

	pthread_mutex_lock(&t->lock);
	epoch = t->epoch;
	pthread_mutex_unlock(&t->lock);
	return epoch;
}

bool inode_table_vanished(
	struct inode_table *t, struct inode *parent, const char *text, uint64_t epoch)
{
	struct forgotten *list = NULL;
	struct inode_name *name;
	struct inode *inode;
	bool current;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	current = !name || name->epoch <= epoch;
	parent->changes++;
	if (name && current) {
		inode = name->inode;
		inode->references++;
		if (inode->version.nlink)
			inode->version.nlink--;
		name_lose(t, name, &list);
		if (!inode->names)
			inode->lost_ns = LOST_UNTOLD;
		inode_unref(t, inode, &list);
	}
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return current;
}

void inode_table_told_of_loss(struct inode_table *t, struct inode *inode)
{
	pthread_mutex_lock(&t->lock);
	if (inode->lost_ns == LOST_UNTOLD)
		inode->lost_ns = clock_now_ns();
	pthread_mutex_unlock(&t->lock);
}

struct inode *inode_table_misplaced(
	struct inode_table *t, struct inode *parent, const char *text, const struct object_id *id)
{
	const struct inode_name *name;
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	inode = inode_find(t, id);
	if (inode && (inode == t->root || !inode->is_directory || !inode->lookups ||
			     (name && name->inode == inode)))
		inode = NULL;
	if (inode)
		inode->references++;
	pthread_mutex_unlock(&t->lock);
	return inode;
}

void inode_table_moved(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, uint64_t epoch)
{
	struct forgotten *list = NULL;

	pthread_mutex_lock(&t->lock);
	if (!inode->is_former && (!inode->names || inode->names->epoch <= epoch))
		name_point(t, parent, text, inode, true, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

void inode_table_renamed(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *new_parent, const char *new_text, struct inode *inode, bool swap)
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
	if (inode && name_add(t, new_parent, new_text, inode) == 0)
		inode_forget_lost(t, inode, &list);
	if (inode)
		inode->kernels_parent = new_parent;
	if (other && swap) {
		name_add(t, parent, text, other);
		other->kernels_parent = parent;
	} else if (other && other != inode && other->version.nlink) {
		other->version.nlink--;
	}
	if (inode)
		inode_unref(t, inode, &list);
	if (other)
		inode_unref(t, other, &list);
	if (!swap)
		remember_removal(t, parent, text);
	parent->changes++;
	new_parent->changes++;
	inode_unref(t, parent, &list);
	inode_unref(t, new_parent, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}
