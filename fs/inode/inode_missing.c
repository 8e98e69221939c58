#include "fs/inode/inode_internal.h"

#include <stdlib.h>
#include <string.h>

/* Names beyond this bound are cached for the time-to-live only. */
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

bool inode_missing_keep(struct inode_table *t, struct inode *parent, const char *name, uint64_t at)
{
	struct inode_directory *directory = inode_directory(parent);
	size_t bytes = missing_bytes(name);
	struct missing *entry;

	entry = find(t, parent, name);
	if (entry) {
		entry->at = at > entry->at ? at : entry->at;
		return true;
	}
	if (t->missing_bytes + bytes > MISSING_MAX_BYTES)
		return false;
	entry = malloc(sizeof(*entry) + strlen(name) + 1);
	if (!entry)
		return false;
	*entry = (struct missing){.next = directory->missing,
		.link = &directory->missing,
		.parent = parent,
		.at = at};
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

bool inode_missing_since(
	struct inode_table *t, const struct inode *parent, const char *name, uint64_t at)
{
	struct missing *entry = inode_directory(parent)->missing ? find(t, parent, name) : NULL;

	return entry && entry->at > at;
}

bool inode_found(struct inode_table *t, const struct inode *parent, const char *name)
{
	struct missing *entry = inode_directory(parent)->missing ? find(t, parent, name) : NULL;

	if (!entry)
		return false;
	take_out(t, entry);
	*entry->link = entry->next;
	if (entry->next)
		entry->next->link = entry->link;
	free(entry);
	return true;
}

void inode_forget_missing(struct inode_table *t, struct inode_directory *directory)
{
	struct missing *list = directory->missing;

	directory->missing = NULL;
	while (list) {
		struct missing *next = list->next;

		take_out(t, list);
		free(list);
		list = next;
	}
}

void inode_shrink_missing(struct inode_table *t)
{
	hash_table_shrink(&t->missing, missing_hash, missing_link);
}

enum lifetime inode_table_missing(
	struct inode_table *t, struct inode *inode, const char *name, uint32_t changes, uint64_t at)
{
	enum lifetime lifetime = LIFETIME_BRIEF;

	pthread_mutex_lock(&t->lock);
	/* A known name stays until an event reports otherwise; an event that found it there again
	 * would be ignored, so its absence must not be cached. */
	if (inode_directory(inode)->watched && inode_changes(inode) == changes &&
		(!name_find(t, inode, name) || !RULE(KNOWN)))
		lifetime = inode_missing_keep(t, inode, name, at) ? LIFETIME_WATCHED : LIFETIME_TTL;
	pthread_mutex_unlock(&t->lock);
	return lifetime;
}

bool inode_table_is_missing(struct inode_table *t, const struct inode *inode, const char *name)
{
	bool is_missing;

	pthread_mutex_lock(&t->lock);
	is_missing = inode_directory(inode)->missing && find(t, inode, name);
	pthread_mutex_unlock(&t->lock);
	return is_missing;
}

void inode_table_not_missing(struct inode_table *t, const struct inode *inode, const char *name)
{
	pthread_mutex_lock(&t->lock);
	inode_found(t, inode, name);
	pthread_mutex_unlock(&t->lock);
}
