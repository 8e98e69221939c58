#include "fs/inode_internal.h"

#include <stdlib.h>
#include <string.h>

/* What is beyond is believed for the time-to-live only. */
enum { DIRECTORY_MAX_BYTES = 16 << 10, TABLE_MAX_BYTES = 64 << 20, FIRST_BYTES = 64 };

struct missing {
	uint32_t size, room; /* of `names`, in bytes; `size` without the empty one at the end */
	char names[];
};

static bool has(const struct missing *missing, const char *name)
{
	const char *at = missing->names;

	while (*at && strcmp(at, name) != 0)
		at += strlen(at) + 1;
	return *at;
}

static bool make_room(struct inode_table *t, struct inode *inode, size_t size)
{
	uint32_t former = inode->missing ? inode->missing->room : 0;
	uint32_t room = former ? former : FIRST_BYTES;
	struct missing *missing;

	while (room < size)
		room *= 2;
	if (room == former)
		return true;
	if (room > DIRECTORY_MAX_BYTES || t->missing_bytes + room > TABLE_MAX_BYTES)
		return false;
	missing = realloc(inode->missing, sizeof(*missing) + room);
	if (!missing)
		return false;
	missing->size = former ? missing->size : 0;
	missing->room = room;
	inode->missing = missing;
	t->missing_bytes += room - former;
	t->bytes += room - former;
	return true;
}

/* With the lock held.  False: there is no room for it. */
static bool keep(struct inode_table *t, struct inode *inode, const char *name)
{
	size_t length = strlen(name) + 1;
	struct missing *missing = inode->missing;

	if (missing && has(missing, name))
		return true;
	if (!make_room(t, inode, (missing ? missing->size : 0) + length + 1))
		return false;
	missing = inode->missing;
	memcpy(missing->names + missing->size, name, length);
	missing->size += (uint32_t)length;
	missing->names[missing->size] = '\0';
	return true;
}

/* With the lock held. */
static struct missing *take(struct inode_table *t, struct inode *inode)
{
	struct missing *missing = inode->missing;

	inode->missing = NULL;
	if (missing) {
		t->missing_bytes -= missing->room;
		t->bytes -= missing->room;
	}
	return missing;
}

void inode_forget_missing(struct inode_table *t, struct inode *inode)
{
	free(take(t, inode));
}

enum belief inode_table_missing(
	struct inode_table *t, struct inode *inode, const char *name, uint32_t changes)
{
	enum belief belief = BELIEF_BRIEF;

	pthread_mutex_lock(&t->lock);
	if (inode->watched && inode->changes == changes)
		belief = keep(t, inode, name) ? BELIEF_WATCHED : BELIEF_TTL;
	pthread_mutex_unlock(&t->lock);
	return belief;
}

char *inode_table_take_missing(struct inode_table *t, struct inode *inode)
{
	struct missing *missing;

	pthread_mutex_lock(&t->lock);
	missing = take(t, inode);
	pthread_mutex_unlock(&t->lock);
	return missing ? memmove(missing, missing->names, missing->size + 1u) : NULL;
}
