#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/inode/inode_internal.h"

/* Anything deeper has no path, as the lock is held while one is built.  That is ten times as deep
 * as is useful: the workspace walks the whole path at each request, some 5 ms for 6,000 levels of a
 * local disk.  Last names of superseded directories may form a cycle. */
enum { DEPTH_MAX = 1 << 16 };

/* `last`: an inode without a name counts as being at its last one. */
static const struct inode_name *name_of(struct inode_table *t, const struct inode *inode, bool last)
{
	bool follows = inode->is_superseded && inode->is_directory && !inode->is_stale;
	const struct object_id id = inode_id(inode);
	const struct inode *now = follows ? inode_find(t, &id) : NULL;

	if (now && now->is_directory && name_latest(now))
		return name_latest(now);
	return last ? name_last(inode) : name_latest(inode);
}

int name_build_path(struct inode_table *t, const struct inode *inode, const char *name, bool last,
	struct path_string *path)
{
	size_t size = name ? strlen(name) + 1 : 0, length, depth = 0;
	const struct inode_name *at;
	char *end;

	for (const struct inode *i = inode; i != t->root; i = name_parent(at)) {
		at = name_of(t, i, last);
		if (!at || ++depth > DEPTH_MAX)
			return -ENOENT;
		size += strlen(at->name) + 1;
	}
	path->heap = NULL;
	path->path = path->fixed;
	if (size > sizeof(path->fixed)) {
		path->heap = malloc(size);
		if (!path->heap)
			return -ENOMEM;
		path->path = path->heap;
	}
	if (!size) {
		path->path[0] = '\0';
		return 0;
	}
	end = path->path + size;
	if (name) {
		length = strlen(name);
		end -= length + 1;
		memcpy(end, name, length + 1);
	}
	for (const struct inode *i = inode; i != t->root; i = name_parent(at)) {
		at = name_of(t, i, last);
		assert(at);
		length = strlen(at->name);
		end -= length + 1;
		memcpy(end, at->name, length);
		end[length] = '/';
	}
	path->path[size - 1] = '\0';
	return 0;
}

void path_string_done(struct path_string *path)
{
	free(path->heap);
	path->heap = NULL;
	path->path = path->fixed;
	path->fixed[0] = '\0';
}

int inode_table_path(
	struct inode_table *t, struct inode *inode, const char *name, struct path_string *ret_path)
{
	int r;

	pthread_mutex_lock(&t->lock);
	r = name_build_path(t, inode, name, false, ret_path);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int inode_table_last_path(
	struct inode_table *t, struct inode *inode, const char *name, struct path_string *ret_path)
{
	int r;

	pthread_mutex_lock(&t->lock);
	r = name_build_path(t, inode, name, true, ret_path);
	pthread_mutex_unlock(&t->lock);
	return r;
}

static uint64_t lost_ns_of(const struct inode *inode)
{
	const struct inode_name *last = name_last(inode);

	if (!inode->is_lost)
		return 0;
	return last ? last->at : inode->own.at;
}

uint64_t inode_table_lost_ns(struct inode_table *t, const struct inode *inode)
{
	const struct inode_name *at;
	size_t depth = 0;
	uint64_t lost_ns;

	pthread_mutex_lock(&t->lock);
	while (inode != t->root && ++depth < DEPTH_MAX && (at = name_of(t, inode, false)))
		inode = name_parent(at);
	lost_ns = inode != t->root ? lost_ns_of(inode) : 0;
	pthread_mutex_unlock(&t->lock);
	return lost_ns;
}

static struct inode *with_reference(struct inode *inode)
{
	if (inode)
		inode->references++;
	return inode;
}

struct inode *inode_table_parent(struct inode_table *t, struct inode *inode)
{
	const struct inode_name *name;
	struct inode *parent;

	pthread_mutex_lock(&t->lock);
	name = name_latest(inode);
	parent = with_reference(name ? name_parent(name) : NULL);
	pthread_mutex_unlock(&t->lock);
	return parent;
}

struct inode *inode_table_last_parent(struct inode_table *t, struct inode *inode)
{
	const struct inode_name *name;
	struct inode *parent;

	pthread_mutex_lock(&t->lock);
	name = name_last(inode);
	parent = with_reference(name ? name_parent(name) : NULL);
	pthread_mutex_unlock(&t->lock);
	return parent;
}

struct inode *inode_table_child(struct inode_table *t, struct inode *parent, const char *text)
{
	struct inode_name *name;
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	name = name_find(t, parent, text);
	inode = with_reference(name ? name_inode(name) : NULL);
	pthread_mutex_unlock(&t->lock);
	return inode;
}

struct inode *inode_table_find(struct inode_table *t, const char *path)
{
	struct inode *inode = t->root;
	char component[256];

	pthread_mutex_lock(&t->lock);
	while (inode && *path) {
		size_t length = strcspn(path, "/");
		struct inode_name *name = NULL;

		if (length < sizeof(component)) {
			memcpy(component, path, length);
			component[length] = '\0';
			name = name_find(t, inode, component);
		}
		inode = name ? name_inode(name) : NULL;
		path += length + (path[length] == '/');
	}
	with_reference(inode);
	pthread_mutex_unlock(&t->lock);
	return inode;
}

struct inode *inode_table_find_id(struct inode_table *t, const struct object_id *id)
{
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = with_reference(inode_find(t, id));
	pthread_mutex_unlock(&t->lock);
	return inode;
}

struct inode *inode_table_find_directory(struct inode_table *t, const struct object_id *id)
{
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = inode_find(t, id);
	inode = with_reference(inode && inode->is_directory ? inode : NULL);
	pthread_mutex_unlock(&t->lock);
	return inode;
}

struct entry_list {
	struct inode_entry *entries;
	size_t count;
	bool is_full; /* no memory */
};

static void add_entry(
	struct entry_list *list, struct inode *parent, const char *name, struct inode *inode)
{
	char *text = strdup(name);

	if (!text) {
		list->is_full = true;
		return;
	}
	list->entries[list->count++] = (struct inode_entry){
		.inode = with_reference(inode), .parent = with_reference(parent), .name = text};
}

static void add_name(void *user, struct inode_name *name)
{
	add_entry(user, name_parent(name), name->name, name_inode(name));
}

/* Earlier looks at names in it are out of date. */
static void add_directory(struct entry_list *list, struct inode *directory)
{
	inode_directory(directory)->changes++;
	name_each_in(directory, add_name, list);
	for (struct missing *m = inode_directory(directory)->missing; m; m = m->next)
		add_entry(list, directory, m->name, NULL);
}

static void add_all(struct inode_table *t, struct entry_list *list)
{
	for (size_t i = 0; i <= t->inodes.mask; i++)
		for (struct inode *inode = slab_at(t->inodes.buckets[i]); inode;
			inode = slab_at(inode->next))
			if (inode->is_directory)
				add_directory(list, inode);
}

static size_t names_in(const struct inode *directory)
{
	size_t count = inode_directory(directory)->entries.count;

	for (const struct missing *m = inode_directory(directory)->missing; m; m = m->next)
		count++;
	return count;
}

int inode_table_entries(struct inode_table *t, struct inode *directory,
	struct inode_entry **ret_entries, size_t *ret_count)
{
	struct entry_list list = {NULL};
	size_t most = 0;

	pthread_mutex_lock(&t->lock);
	if (!directory)
		most = t->names + t->missing.count;
	else if (directory->is_directory)
		most = names_in(directory);
	list.entries = calloc(most + 1, sizeof(*list.entries));
	list.is_full = !list.entries;
	if (list.entries && !directory)
		add_all(t, &list);
	else if (list.entries && directory->is_directory)
		add_directory(&list, directory);
	pthread_mutex_unlock(&t->lock);
	if (list.is_full) {
		inode_table_entries_free(t, list.entries, list.count);
		return -ENOMEM;
	}
	*ret_entries = list.entries;
	*ret_count = list.count;
	return 0;
}

void inode_table_entries_free(struct inode_table *t, struct inode_entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		inode_table_unref(t, entries[i].inode);
		inode_table_unref(t, entries[i].parent);
		free(entries[i].name);
	}
	free(entries);
}
