#include "ops/cached_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* The name is as an own change left it, or only the place knows. */
static void mark_own(struct cached *c, struct node *node, const struct own *own)
{
	node->changed_at = ++c->clock;
	node_raise(node, own->learnt.at);
}

/* What the change left of an object whose content it did not touch. */
static void set_own(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct own *own)
{
	static const struct attributes unknown;

	node_set_object(c, node, own->told ? attributes : &unknown,
		attributes_same_content_times(&node->attributes, attributes), own->learnt.at);
}

/* The directory in which a name was made, removed or moved.  False: another one is known there. */
static bool set_parent(struct cached *c, struct node *parent, const struct attributes *attributes,
	const struct own *own)
{
	if (attributes->mode && parent->state == NODE_PRESENT &&
		!node_is_object(parent, attributes)) {
		if (parent->at < own->learnt.at)
			node_set_doubtful(c, parent);
		return false;
	}
	set_own(c, parent, attributes, own);
	return true;
}

/* The names are as the change was to leave them. */
static bool tells_names(const struct own *own)
{
	return own->told && own->facts.parent.mode;
}

static bool takes(const struct node *node, const struct own *own)
{
	return tells_names(own) && node_takes(node, node->parent, own->learnt.at);
}

void cached_store_answer(struct cached *c, const char *path, int r,
	const struct attributes *attributes, const struct learnt *learnt)
{
	bool is_another = path_leads_to_another(r);
	struct node *node;

	if ((r < 0 && r != -ENOENT && !is_another) || learnt->asked <= c->rescan_at)
		return;
	node = tree_make(c, path);
	if (!node || !node_takes(node, node->parent, learnt->at))
		return;
	if (r == 0)
		node_set_present(c, node, attributes, learnt);
	else if (is_another && node->state == NODE_PRESENT)
		node_set_doubtful(c, node);
	else if (!is_another && node->parent)
		node_set_absent(c, node, learnt);
}

/* What an own change put at the name, unless something was learnt of it since. */
static void settle(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct own *own)
{
	if (!tells_names(own))
		node_set_unknown(c, node);
	if (takes(node, own))
		node_set_present(c, node, attributes, &own->learnt);
	mark_own(c, node, own);
}

struct node *cached_own_present(struct cached *c, const char *path,
	const struct attributes *attributes, const struct own *own)
{
	struct node *node = tree_make(c, path);

	if (!node || !set_parent(c, node->parent, &own->facts.parent, own))
		return NULL;
	settle(c, node, attributes, own);
	return node_is_object(node, attributes) ? node : NULL;
}

/* Nothing is at the name any more, unless somebody put something there since. */
static void settle_absent(struct cached *c, struct node *node, const struct own *own)
{
	if (!tells_names(own))
		node_set_unknown(c, node);
	if (takes(node, own))
		node_set_absent(c, node, &own->learnt);
	node->removed_here = node->state == NODE_ABSENT;
	mark_own(c, node, own);
}

void cached_own_absent(struct cached *c, const char *path, const struct own *own)
{
	struct node *node = tree_make(c, path);

	if (!node || !set_parent(c, node->parent, &own->facts.parent, own))
		return;
	if (node->state != NODE_PRESENT || !node->attributes_known || node->attributes.nlink > 1)
		c->links_epoch++;
	settle_absent(c, node, own);
}

void cached_own_unknown(struct cached *c, const char *path, const struct own *own)
{
	struct node *node = tree_make(c, path);

	if (!node || !node->parent)
		return;
	node_set_unknown(c, node);
	mark_own(c, node, own);
}

void cached_doubt_parent(struct cached *c, const char *path)
{
	struct node *parent = tree_find(c, path, path_parent_length(path));

	if (parent && parent->parent)
		node_set_doubtful(c, parent);
}

void cached_own_done(struct cached *c, const char *path, uint64_t at)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return;
	if (node->state == NODE_PRESENT && node->object_at < at) {
		content_detach(c, node);
		node_set_doubtful(c, node);
	}
	if (node->object_at < at)
		node->object_at = at;
	node->changed_at = ++c->clock;
}

/* ---- Moving ---------------------------------------------------------------------------- */

static bool is_object(const struct node *node, const struct object_id *id)
{
	return id->inode && node && node->state == NODE_PRESENT &&
	       object_id_equal(&node->attributes.id, id);
}

void cached_begin_move(struct cached *c, const char *from, const char *to, struct moved *ret_moved)
{
	struct node *node = tree_find(c, from, strlen(from));

	*ret_moved = (struct moved){0};
	if (!node || node->state != NODE_PRESENT)
		return;
	ret_moved->id = node->attributes.id;
	ret_moved->was_there = is_object(tree_find(c, to, strlen(to)), &ret_moved->id);
	if (!node->moves++)
		node->gone = false;
}

void cached_end_move(struct cached *c, const char *from)
{
	struct node *node = tree_find(c, from, strlen(from));

	if (node && node->moves)
		node->moves--;
}

/* What is at the two names cannot be told by moving what is known. */
static void settle_target(struct cached *c, struct node *to, const struct own *own)
{
	if (own->facts.object.mode)
		settle(c, to, &own->facts.object, own);
	else if (node_takes(to, to->parent, own->learnt.at))
		node_set_unknown(c, to);
	mark_own(c, to, own);
}

static void settle_source(
	struct cached *c, struct node *from, const struct moved *moved, const struct own *own)
{
	/* Two names of one object: rename(2) does nothing then. */
	if (is_object(from, &moved->id) && from->attributes.nlink > 1) {
		node_set_doubtful(c, from);
		mark_own(c, from, own);
		return;
	}
	settle_absent(c, from, own);
	if (is_object(from, &moved->id))
		node_set_unknown(c, from);
}

/* All that is known goes along.  What the feed told of either name since stays. */
static void move(struct cached *c, struct node *from, struct node *to, const struct own *own)
{
	bool is_told = is_object(to, &from->attributes.id);
	const struct attributes told = to->attributes;
	uint64_t told_at = to->object_at, to_at = to->at, from_at = from->at;
	bool keeps_content = attributes_same_content_times(&from->attributes, &told);
	bool gone = from->gone;

	node_move(c, from, to, &own->learnt);
	node_raise(to, to_at);
	if (to->directory)
		tree_drop(c, to);
	set_own(c, to, &own->facts.object, own);
	if (is_told)
		node_set_object(c, to, &told, keeps_content, told_at);
	if (from->at < from_at && !gone)
		node_set_unknown(c, from);
	node_raise(from, from_at);
	from->removed_here = from->state == NODE_ABSENT;
}

/* The two directories, and whether they are those that are known there. */
static bool set_parents(struct cached *c, struct node *from, struct node *to, const struct own *own)
{
	bool is_known = true;

	if (from && from->parent)
		is_known = set_parent(c, from->parent, &own->facts.parent, own);
	if (to && to->parent)
		is_known = set_parent(c, to->parent, &own->facts.new_parent, own) && is_known;
	return is_known;
}

void cached_own_names(struct cached *c, const char *from, const char *to, const struct own *own)
{
	set_parents(c, tree_find(c, from, strlen(from)), tree_find(c, to, strlen(to)), own);
	cached_own_unknown(c, to, own);
	cached_own_unknown(c, from, own);
}

void cached_own_moved(struct cached *c, const char *from_path, const char *to_path,
	const struct moved *moved, const struct own *own)
{
	struct node *from = tree_find(c, from_path, strlen(from_path));
	struct node *to = tree_make(c, to_path);

	c->links_epoch++;
	if (!to || !from || !tells_names(own)) {
		cached_own_names(c, from_path, to_path, own);
		return;
	}
	if (!set_parents(c, from, to, own)) {
		cached_own_unknown(c, to_path, own);
		cached_own_unknown(c, from_path, own);
		return;
	}
	if (is_object(from, &moved->id) && !moved->was_there &&
		(takes(to, own) || is_object(to, &moved->id))) {
		move(c, from, to, own);
		mark_own(c, from, own);
		mark_own(c, to, own);
	} else {
		settle_target(c, to, own);
		settle_source(c, from, moved, own);
	}
}

/* ---- Attributes ------------------------------------------------------------------------ */

void cached_own_object(struct cached *c, struct node *node, const struct own *own)
{
	set_own(c, node, &own->facts.object, own);
	node->changed_at = ++c->clock;
}

void cached_own_attributes(struct cached *c, struct node *node, unsigned mask,
	const struct attributes *attributes, const struct own *own)
{
	static const struct attributes unknown;
	bool keeps_content =
		!(mask & SET_SIZE) &&
		((mask & (SET_MTIME | SET_MTIME_NOW)) ||
			attributes_same_content_times(&node->attributes, attributes)) &&
		node->attributes.size_bytes == attributes->size_bytes;

	if (!node_is_object(node, attributes))
		return;
	if (attributes->nlink > 1 && !S_ISDIR(attributes->mode))
		c->links_epoch++;
	node_set_object(c, node, own->told ? attributes : &unknown, keeps_content, own->learnt.at);
	node->changed_at = ++c->clock;
}
