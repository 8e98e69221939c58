#include "fs/inode_internal.h"

#include <stdlib.h>
#include <string.h>

/* What is beyond is believed for the time-to-live only. */
enum { MISSING_MAX_BYTES = 64 << 20 };

static void **missing_link(void *entry)
{
	return (void **)&((struct missing *)entry)->hash_next;
}

static size_t missing_hash(const void *entry)
{
	const struct missing *missing = entry;

	return name_hash(missing->parent, missing->name);
}

static size_t missing_bytes(const char *name)
{
	return sizeof(struct missing) + strlen(name) + 1 + MALLOC_OVERHEAD_BYTES;
}

static struct missing *find(struct inode_table *t, const struct inode *parent, const char *name)
{
	struct missing *entry = t->missing.buckets[name_hash(parent, name) & t->missing.mask];

	while (entry && (entry->parent != parent || strcmp(entry->name, name) != 0))
		entry = entry->hash_next;
	return entry;
}

/* With the lock held.  False: there is no room for it. */
static bool keep(struct inode_table *t, struct inode *parent, const char *name)
{
	struct inode_directory *directory = parent->directory;
	size_t bytes = missing_bytes(name);
	struct missing *entry;

	if (find(t, parent, name))
		return true;
	if (t->missing_bytes + bytes > MISSING_MAX_BYTES)
		return false;
	entry = malloc(sizeof(*entry) + strlen(name) + 1);
	if (!entry)
		return false;
	*entry = (struct missing){
		.next = directory->missing, .link = &directory->missing, .parent = parent};
	strcpy(entry->name, name);
	if (entry->next)
		entry->next->link = &entry->next;
	directory->missing = entry;
	hash_table_insert(&t->missing, entry, missing_hash, missing_link);
	t->missing_bytes += bytes;
	t->bytes += bytes;
	return true;
}

static void take_out(struct inode_table *t, struct missing *entry)
{
	size_t bytes = missing_bytes(entry->name);

	hash_table_remove(&t->missing, entry, missing_hash, missing_link);
	t->missing_bytes -= bytes;
	t->bytes -= bytes;
}

void inode_found(struct inode_table *t, const struct inode *parent, const char *name)
{
	struct missing *entry = parent->directory->missing ? find(t, parent, name) : NULL;

	if (!entry)
		return;
	take_out(t, entry);
	*entry->link = entry->next;
	if (entry->next)
		entry->next->link = entry->link;
	free(entry);
}

/* With the lock held. */
static struct missing *take_all(struct inode_table *t, struct inode_directory *directory)
{
	struct missing *list = directory->missing;

	for (struct missing *entry = list; entry; entry = entry->next)
		take_out(t, entry);
	directory->missing = NULL;
	return list;
}

void missing_free(struct missing *list)
{
	while (list) {
		struct missing *next = list->next;

		free(list);
		list = next;
	}
}

void inode_forget_missing(struct inode_table *t, struct inode_directory *directory)
{
	missing_free(take_all(t, directory));
}

void inode_shrink_missing(struct inode_table *t)
{
	hash_table_shrink(&t->missing, missing_hash, missing_link);
}

enum belief inode_table_missing(
	struct inode_table *t, struct inode *inode, const char *name, uint32_t changes)
{
	enum belief belief = BELIEF_BRIEF;

	pthread_mutex_lock(&t->lock);
	if (inode->directory->watched && inode->directory->changes == changes)
		belief = keep(t, inode, name) ? BELIEF_WATCHED : BELIEF_TTL;
	pthread_mutex_unlock(&t->lock);
	return belief;
}

void inode_table_not_missing(struct inode_table *t, const struct inode *inode, const char *name)
{
	pthread_mutex_lock(&t->lock);
	inode_found(t, inode, name);
	pthread_mutex_unlock(&t->lock);
}

struct missing *inode_table_take_missing(struct inode_table *t, struct inode *inode)
{
	struct missing *list;

	if (!inode->is_directory)
		return NULL;
	pthread_mutex_lock(&t->lock);
	list = take_all(t, inode->directory);
	pthread_mutex_unlock(&t->lock);
	return list;
}
