#include "fs/inode/inode_internal.h"

#include <string.h>

#include "ops/support/clock.h"

enum { DENIED_AGAIN_MS = 1000 };

/* With the lock held. */
static void set_watched(struct inode_table *t, struct inode *inode, bool watched)
{
	struct inode_directory *directory = inode_directory(inode);

	directory->watched = watched && !inode->is_superseded;
	t->on_ttl += (uint64_t)!watched - directory->on_ttl;
	directory->on_ttl = !watched;
	directory->denied_ms = (uint32_t)clock_now_ms();
}

bool inode_table_wants_watch(struct inode_table *t, struct inode *inode, uint32_t *ret_losses)
{
	const struct inode_directory *directory = inode_directory(inode);
	bool wanted;

	pthread_mutex_lock(&t->lock);
	wanted = !directory->watched && !inode->is_superseded &&
		 (!directory->on_ttl ||
			 (uint32_t)clock_now_ms() - directory->denied_ms > DENIED_AGAIN_MS);
	*ret_losses = directory->watch_losses;
	pthread_mutex_unlock(&t->lock);
	return wanted;
}

uint32_t inode_table_watch_losses(struct inode_table *t, struct inode *inode)
{
	uint32_t losses;

	pthread_mutex_lock(&t->lock);
	losses = inode_directory(inode)->watch_losses;
	pthread_mutex_unlock(&t->lock);
	return losses;
}

void inode_table_set_watched(
	struct inode_table *t, struct inode *inode, bool watched, uint32_t losses)
{
	pthread_mutex_lock(&t->lock);
	if (!watched || inode_directory(inode)->watch_losses == losses || !RULE(LOSSES))
		set_watched(t, inode, watched);
	pthread_mutex_unlock(&t->lock);
}

/* With the lock held. */
static void lose_watch(struct inode_table *t, struct inode_directory *directory)
{
	directory->watch_losses++;
	directory->changes++;
	directory->watched = false;
	t->on_ttl -= directory->on_ttl;
	directory->on_ttl = false;
}

void inode_table_watch_lost(struct inode_table *t, struct inode *directory)
{
	pthread_mutex_lock(&t->lock);
	if (directory)
		lose_watch(t, inode_directory(directory));
	for (size_t i = 0; !directory && i <= t->inodes.mask; i++)
		for (struct inode *inode = slab_at(t->inodes.buckets[i]); inode;
			inode = slab_at(inode->next))
			if (inode->is_directory)
				lose_watch(t, inode_directory(inode));
	pthread_mutex_unlock(&t->lock);
}

uint64_t inode_table_on_ttl(struct inode_table *t, char **paths, size_t max, size_t *ret_count)
{
	uint64_t left, total;
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	left = total = t->on_ttl;
	for (size_t i = 0; i <= t->inodes.mask && left && count < max; i++)
		for (const struct inode *inode = slab_at(t->inodes.buckets[i]);
			inode && count < max; inode = slab_at(inode->next)) {
			struct path_string path;

			if (!inode->is_directory || !inode_directory(inode)->on_ttl)
				continue;
			left--;
			if (name_build_path(t, inode, NULL, false, &path) < 0)
				continue;
			paths[count] = strdup(path.path);
			count += paths[count] != NULL;
			path_string_done(&path);
		}
	pthread_mutex_unlock(&t->lock);
	*ret_count = count;
	return total;
}
