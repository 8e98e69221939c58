#define XXH_INLINE_ALL
#include "fs/inode/inode_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"

size_t name_hash(const struct inode *parent, const char *name)
{
	return (size_t)XXH3_64bits_withSeed(
		name, strlen(name), (uint64_t)(uintptr_t)parent ^ hash_seed());
}

static slab_ref *name_entry_link(void *entry)
{
	return &((struct inode_name *)entry)->next;
}

static size_t name_entry_hash(const void *entry)
{
	const struct inode_name *name = entry;

	return name_hash(name_parent(name), name->name);
}

struct inode_name *name_find(struct inode_table *t, const struct inode *parent, const char *name)
{
	struct inode_name *entry;

	(void)t;
	if (!parent->is_directory)
		return NULL;
	entry = slab_table_bucket(&inode_directory(parent)->entries, name_hash(parent, name));
	while (entry && strcmp(entry->name, name) != 0)
		entry = slab_at(entry->next);
	return entry;
}

void name_each_in(const struct inode *directory, void (*visit)(void *user, struct inode_name *name),
	void *user)
{
	const struct slab_table *entries = &inode_directory(directory)->entries;

	for (size_t i = 0; i <= entries->mask; i++)
		for (struct inode_name *name = slab_at(entries->buckets[i]); name;
			name = slab_at(name->next))
			visit(user, name);
}

void name_shrink_table(struct inode *directory)
{
	slab_table_shrink(&inode_directory(directory)->entries, name_entry_hash, name_entry_link);
}

/* ---- The names of an inode --------------------------------------------------------- */

/* A name that is not the inode's own. */
struct link_name {
	slab_ref inode;
	slab_ref next; /* the name of the same inode that is older */
	struct inode_name name;
};

static struct link_name *link_of(struct inode_name *name)
{
	return (void *)((char *)name - offsetof(struct link_name, name));
}

struct inode *name_inode(struct inode_name *name)
{
	if (name->is_own)
		return (void *)((char *)name - offsetof(struct inode, own));
	return slab_at(link_of(name)->inode);
}

/* NULL: it has another name, or none. */
static struct inode_name *own_name(const struct inode *inode)
{
	return inode->own.parent ? (struct inode_name *)&inode->own : NULL;
}

/* The latest of the names that are not its own.  NULL: there is none. */
static struct inode_name *latest_link(const struct inode *inode)
{
	const struct inode_file *file = inode_file(inode);

	if (inode->is_directory)
		return slab_at(inode_directory(inode)->names);
	return file ? slab_at(file->names) : NULL;
}

static void set_latest_link(struct inode *inode, slab_ref name)
{
	if (inode->is_directory)
		inode_directory(inode)->names = name;
	else
		inode_file(inode)->names = name;
}

struct inode_name *name_last(const struct inode *inode)
{
	struct inode_name *link = latest_link(inode);

	return link ? link : own_name(inode);
}

struct inode_name *name_latest(const struct inode *inode)
{
	return inode->is_lost ? NULL : name_last(inode);
}

struct inode_name *name_older(const struct inode *inode, const struct inode_name *name)
{
	struct inode_name *next;

	if (name->is_own)
		return NULL;
	next = slab_at(link_of((struct inode_name *)name)->next);
	return next ? next : own_name(inode);
}

struct inode_name *name_besides(const struct inode *inode, const struct inode_name *name)
{
	struct inode_name *latest = name_latest(inode);

	return latest == name ? name_older(inode, name) : latest;
}

/* ---- Life of names ----------------------------------------------------------------- */

static size_t link_bytes(const char *name)
{
	return sizeof(struct link_name) + strlen(name) + 1;
}

/* The name is not in the table any more.  Returns the parent, with the reference that the name had.
 */
static struct inode *name_free(struct inode_table *t, struct inode_name *name)
{
	struct inode *inode = name_inode(name), *parent = name_parent(name);
	struct inode_name *later = latest_link(inode);

	if (name->is_own) {
		name->parent = 0;
		return parent;
	}
	if (later == name)
		set_latest_link(inode, link_of(name)->next);
	else {
		while (link_of(later)->next != slab_ref_of(name))
			later = slab_at(link_of(later)->next);
		link_of(later)->next = link_of(name)->next;
	}
	t->bytes -= link_bytes(name->name);
	slab_free(&t->slab, link_of(name), link_bytes(name->name));
	return parent;
}

void name_free_all(struct inode_table *t, struct inode *inode)
{
	struct inode_name *next;

	for (struct inode_name *name = latest_link(inode); name; name = next) {
		next = slab_at(link_of(name)->next);
		slab_free(&t->slab, link_of(name), link_bytes(name->name));
	}
}

static void take_out(struct inode_table *t, struct inode_name *name)
{
	slab_table_remove(&inode_directory(name_parent(name))->entries, name, name_entry_hash,
		name_entry_link);
	t->names--;
}

struct inode *name_detach(struct inode_table *t, struct inode_name *name)
{
	take_out(t, name);
	return name_free(t, name);
}

void name_drop(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	inode_unref(t, name_detach(t, name), list);
}

void inode_forget_lost(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode_name *lost = inode->is_lost ? name_last(inode) : NULL;

	inode->is_lost = false;
	if (lost)
		inode_unref(t, name_free(t, lost), list);
}

void name_lose(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name_inode(name);

	if (name_besides(inode, name) || !inode->lookups) {
		name_drop(t, name, list);
		return;
	}
	take_out(t, name);
	name->at = clock_now_ns();
	inode->is_lost = true;
}

bool inode_is_below(const struct inode *inode, const struct inode *top)
{
	const struct inode_name *name;

	const struct object_id id = inode_id(top);

	while (!inode_has_id(inode, &id) && (name = name_latest(inode)))
		inode = name_parent(name);
	return inode_has_id(inode, &id);
}

/* The inode's own name, if that is unused and has this text; else a new one.  NULL: no memory. */
static struct inode_name *name_make(struct inode_table *t, struct inode *inode, const char *text)
{
	struct link_name *link;

	if (!name_last(inode) && strcmp(inode->own.name, text) == 0)
		return &inode->own;
	if (!inode->is_directory && !inode_make_file(t, inode))
		return NULL;
	link = slab_alloc(&t->slab, link_bytes(text));
	if (!link)
		return NULL;
	link->inode = slab_ref_of(inode);
	link->next = slab_ref_of(latest_link(inode));
	strcpy(link->name.name, text);
	set_latest_link(inode, slab_ref_of(&link->name));
	t->bytes += link_bytes(text);
	return &link->name;
}

int name_add(struct inode_table *t, struct inode *parent, const char *text, struct inode *inode,
	uint64_t at, struct forgotten **list)
{
	struct inode_name *name;

	if (parent == inode || (inode->references && inode_is_below(parent, inode)))
		return -ELOOP;
	inode_forget_lost(t, inode, list);
	name = name_make(t, inode, text);
	if (!name)
		return -ENOMEM;
	name->parent = slab_ref_of(parent);
	name->at = at;
	parent->references++;
	slab_table_insert(
		&inode_directory(parent)->entries, name, name_entry_hash, name_entry_link);
	t->names++;
	if (t->bytes > t->bytes_most)
		t->bytes_most = t->bytes;
	return 0;
}
