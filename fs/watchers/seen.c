#define XXH_INLINE_ALL
#include "fs/watchers/seen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

/* ---- Tables ------------------------------------------------------------------------------- */

static size_t hash_of_inode(const struct inode *inode)
{
	return (size_t)XXH3_64bits(&inode, sizeof(inode));
}

static size_t directory_hash(const void *entry)
{
	return hash_of_inode(((const struct seen_directory *)entry)->inode);
}

static void **directory_link(void *entry)
{
	return (void **)&((struct seen_directory *)entry)->hash_next;
}

static size_t hash_of_name(const char *name)
{
	return (size_t)XXH3_64bits_withSeed(name, strlen(name), hash_seed());
}

static size_t name_hash(const void *entry)
{
	return hash_of_name(((const struct seen_name *)entry)->name);
}

static void **name_link(void *entry)
{
	return (void **)&((struct seen_name *)entry)->hash_next;
}

static size_t hash_of_object(const struct object_id *id)
{
	const uint64_t parts[] = {id->device, id->inode, id->generation};

	return (size_t)XXH3_64bits_withSeed(parts, sizeof(parts), hash_seed());
}

static size_t object_hash(const void *entry)
{
	return hash_of_object(&((const struct seen_name *)entry)->was.id);
}

static void **object_link(void *entry)
{
	return (void **)&((struct seen_name *)entry)->id_next;
}

int seen_init(struct seen *seen, struct inode_table *inodes)
{
	*seen = (struct seen){.inodes = inodes, .last_pending = &seen->pending};
	return hash_table_init(&seen->directories) < 0 || hash_table_init(&seen->objects) < 0
		       ? -ENOMEM
		       : 0;
}

void seen_done(struct seen *seen)
{
	while (seen->first)
		seen_remove(seen, seen->first);
	seen_free_released(seen->inodes, seen_take_released(seen));
	hash_table_done(&seen->directories);
	hash_table_done(&seen->objects);
}

/* ---- Directories ---------------------------------------------------------------------------- */

struct seen_directory *seen_find(struct seen *seen, const struct inode *inode)
{
	struct seen_directory *directory =
		hash_table_bucket(&seen->directories, hash_of_inode(inode));

	while (directory && directory->inode != inode)
		directory = directory->hash_next;
	return directory;
}

struct seen_directory *seen_add(struct seen *seen, struct inode *inode)
{
	struct seen_directory *directory = calloc(1, sizeof(*directory));

	if (!directory || hash_table_init_small(&directory->names) < 0) {
		free(directory);
		return NULL;
	}
	inode_table_ref(seen->inodes, inode);
	directory->inode = inode;
	directory->next = seen->first;
	directory->link = &seen->first;
	if (directory->next)
		directory->next->link = &directory->next;
	seen->first = directory;
	hash_table_insert(&seen->directories, directory, directory_hash, directory_link);
	return directory;
}

void seen_remove(struct seen *seen, struct seen_directory *directory)
{
	for (size_t i = 0; i <= directory->names.mask; i++)
		while (directory->names.buckets[i])
			seen_remove_name(seen, directory->names.buckets[i]);
	hash_table_remove(&seen->directories, directory, directory_hash, directory_link);
	*directory->link = directory->next;
	if (directory->next)
		directory->next->link = directory->link;
	seen_release(seen, directory->inode);
	hash_table_done(&directory->names);
	free(directory->vanished);
	free(directory);
}

/* ---- References ----------------------------------------------------------------------------- */

struct seen_released {
	struct seen_released *next;
	struct inode *inode;
};

void seen_release(struct seen *seen, struct inode *inode)
{
	struct seen_released *released = malloc(sizeof(*released));

	if (!released)
		return; /* it stays as long as the mount */
	*released = (struct seen_released){.next = seen->released, .inode = inode};
	seen->released = released;
}

struct seen_released *seen_take_released(struct seen *seen)
{
	struct seen_released *released = seen->released;

	seen->released = NULL;
	return released;
}

void seen_free_released(struct inode_table *inodes, struct seen_released *released)
{
	while (released) {
		struct seen_released *next = released->next;

		inode_table_unref(inodes, released->inode);
		free(released);
		released = next;
	}
}

/* ---- Names -------------------------------------------------------------------------------- */

struct seen_name *seen_find_name(const struct seen_directory *directory, const char *text)
{
	struct seen_name *name = hash_table_bucket(&directory->names, hash_of_name(text));

	while (name && strcmp(name->name, text) != 0)
		name = name->hash_next;
	return name;
}

struct seen_name *seen_add_name(
	struct seen *seen, struct seen_directory *directory, const char *text)
{
	struct seen_name *name = seen_find_name(directory, text);

	if (name)
		return name;
	name = calloc(1, sizeof(*name) + strlen(text) + 1);
	if (!name)
		return NULL;
	name->directory = directory;
	name->is_known = directory->is_listed;
	strcpy(name->name, text);
	hash_table_insert(&directory->names, name, name_hash, name_link);
	seen->name_count++;
	return name;
}

static void forget_object(struct seen *seen, struct seen_name *name)
{
	if (name->was.exists)
		hash_table_remove(&seen->objects, name, object_hash, object_link);
	name->was.exists = false;
}

void seen_remove_name(struct seen *seen, struct seen_name *name)
{
	seen_settle(seen, name);
	forget_object(seen, name);
	hash_table_remove(&name->directory->names, name, name_hash, name_link);
	seen->name_count--;
	free(name);
}

void seen_set_before(struct seen *seen, struct seen_name *name, const struct seen_object *object)
{
	forget_object(seen, name);
	name->was = *object;
	name->is_known = true;
	if (object->exists)
		hash_table_insert(&seen->objects, name, object_hash, object_link);
}

void seen_set(
	struct seen *seen, struct seen_name *name, const struct attributes *attributes, uint64_t at)
{
	struct seen_object object = {.exists = attributes};

	if (attributes) {
		object.id = attributes->id;
		inode_version_of(attributes, &object.version);
	}
	seen_set_before(seen, name, &object);
	if (at > name->at)
		name->at = at;
}

void seen_want(struct seen *seen, struct seen_name *name, const struct attributes *now, uint64_t at,
	uint64_t now_ns)
{
	name->now_exists = now;
	if (now)
		name->now = *now;
	name->now_at = at;
	if (name->is_pending)
		return;
	name->is_pending = true;
	name->arrived_ns = now_ns;
	name->due_ns = now_ns;
	name->next_pending = NULL;
	name->link_pending = seen->last_pending;
	*seen->last_pending = name;
	seen->last_pending = &name->next_pending;
	seen->pending_count++;
}

void seen_settle(struct seen *seen, struct seen_name *name)
{
	if (!name->is_pending)
		return;
	name->is_pending = false;
	*name->link_pending = name->next_pending;
	if (name->next_pending)
		name->next_pending->link_pending = name->link_pending;
	else
		seen->last_pending = name->link_pending;
	seen->pending_count--;
}

struct seen_name *seen_find_old_name(
	struct seen *seen, const struct seen_name *name, bool or_may_be)
{
	const struct object_id *id = &name->now.id;
	struct seen_name *other = hash_table_bucket(&seen->objects, hash_of_object(id));

	for (; other; other = other->id_next) {
		bool stays = other->is_pending && other->now_exists &&
			     object_id_equal(&other->now.id, id);

		if (other != name && object_id_equal(&other->was.id, id) && !stays &&
			(other->is_pending || or_may_be))
			return other;
	}
	return NULL;
}
