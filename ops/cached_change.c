#include "ops/cached_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* The name is as an own change left it, or only the place knows. */
static void mark_own(struct cached *c, struct node *node, const struct learnt *learnt)
{
	node->changed_at = ++c->clock;
	node_note_done(node, learnt->done_ns);
}

/* Events that were lost may have told of a later change. */
static enum order order_of_own(
	const struct cached *c, const struct node *node, const struct learnt *learnt)
{
	return learnt->asked <= c->rescan_at ? ORDER_UNCLEAR
					     : node_order(node, node->parent, learnt);
}

void cached_own_parent(struct cached *c, struct node *node, const struct learnt *learnt)
{
	struct node *parent = node->parent;

	/* The feed, or a look, was quicker. */
	if (parent->attributes_known && parent->looked_ns >= learnt->done_ns)
		return;
	node_set_stale(c, parent);
	node_note_done(parent, learnt->done_ns);
	if (!c->feed || !parent->directory || !parent->directory->watched)
		parent->echo_awaited = false;
}

void cached_store_answer(struct cached *c, const char *path, int r,
	const struct attributes *attributes, const struct learnt *learnt)
{
	bool is_another = path_leads_to_another(r);
	struct node *node;

	if ((r < 0 && r != -ENOENT && !is_another) || learnt->asked <= c->rescan_at)
		return;
	node = tree_make(c, path);
	if (!node || node_order(node, node->parent, learnt) != ORDER_NEWER)
		return;
	if (r == 0)
		node_set_present(c, node, attributes, learnt);
	else if (is_another && node->state == NODE_PRESENT)
		node_set_doubtful(c, node);
	else if (!is_another && node->parent)
		node_set_absent(c, node, learnt);
}

/* What an own change says of an object, in view of what was learnt meanwhile. */
static void settle(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct learnt *learnt)
{
	bool same = node->state == NODE_PRESENT &&
		    object_id_equal(&node->attributes.id, &attributes->id);
	/* Our clock is the one of loss. */
	const struct learnt now = {++c->clock, learnt->looked_ns, learnt->done_ns};

	switch (order_of_own(c, node, learnt)) {
	case ORDER_NEWER:
		node_set_present(c, node, attributes, &now);
		break;
	case ORDER_UNCLEAR:
		if (same && node->attributes_known &&
			attributes_same_version(&node->attributes, attributes))
			break;
		if (!same)
			node_set_present(c, node, attributes, &now);
		node_set_doubtful(c, node);
		break;
	case ORDER_OLDER:
		break;
	}
	mark_own(c, node, learnt);
}

struct node *cached_own_present(struct cached *c, const char *path,
	const struct attributes *attributes, const struct learnt *learnt)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return NULL;
	cached_own_parent(c, node, learnt);
	settle(c, node, attributes, learnt);
	return node->state == NODE_PRESENT ? node : NULL;
}

/* Nothing is at the name any more, unless somebody put something there since. */
static void settle_absent(struct cached *c, struct node *node, const struct learnt *learnt)
{
	const struct learnt now = {++c->clock, learnt->looked_ns, learnt->done_ns};

	switch (order_of_own(c, node, learnt)) {
	case ORDER_NEWER:
		node_set_absent(c, node, &now);
		break;
	case ORDER_UNCLEAR:
		if (node->state != NODE_ABSENT)
			node_set_doubtful(c, node);
		break;
	case ORDER_OLDER:
		break;
	}
	node->removed_here = node->state == NODE_ABSENT;
	mark_own(c, node, learnt);
}

void cached_own_absent(struct cached *c, const char *path, const struct learnt *learnt)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return;
	cached_own_parent(c, node, learnt);
	if (node->state != NODE_PRESENT || !node->attributes_known || node->attributes.nlink > 1)
		c->links_epoch++;
	settle_absent(c, node, learnt);
}

void cached_own_unknown(struct cached *c, const char *path, const struct learnt *learnt)
{
	struct node *node = tree_make(c, path);

	if (!node || !node->parent)
		return;
	node_set_unknown(c, node);
	mark_own(c, node, learnt);
}

void cached_doubt_parent(struct cached *c, const char *path)
{
	struct node *parent = tree_find(c, path, path_parent_length(path));

	if (parent && parent->parent)
		node_set_doubtful(c, parent);
}

void cached_own_done(struct cached *c, const char *path, uint64_t done_ns)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return;
	if (node->state == NODE_PRESENT && node->looked_ns < done_ns) {
		content_detach(c, node);
		node_set_doubtful(c, node);
	}
	node->changed_at = ++c->clock;
	node_note_done(node, done_ns);
}

void cached_note_moved(struct cached *c, const char *from, struct moved *ret_moved)
{
	struct node *node = tree_find(c, from, strlen(from));

	*ret_moved = (struct moved){0};
	if (!node || node->state != NODE_PRESENT)
		return;
	ret_moved->id = node->attributes.id;
	ret_moved->mtime = node->attributes.mtime;
	if (!node->content || node->writers > 0 || (!node->content->own && !node->attributes_known))
		return;
	ret_moved->content = content_ref(node->content);
}

/* The content comes along, unless the file was written to meanwhile. */
static void bring_content(struct cached *c, struct node *node, struct moved *moved)
{
	const struct timespec *mtime = &node->attributes.mtime;

	if (!moved->content || moved->content->own || node->content || !node->attributes_known ||
		node->attributes.size_bytes != moved->content->size)
		return;
	if (mtime->tv_sec != moved->mtime.tv_sec || mtime->tv_nsec != moved->mtime.tv_nsec)
		return;
	content_detach_elsewhere(c, moved->content);
	content_attach(c, node, steal_ptr(&moved->content));
}

static bool is_object(const struct node *node, const struct object_id *id)
{
	return id->inode && node->state == NODE_PRESENT &&
	       object_id_equal(&node->attributes.id, id);
}

/* Something was learnt of a side of the move meanwhile. */
static void settle_target(
	struct cached *c, struct node *to, struct moved *moved, const struct learnt *learnt)
{
	bool is_there = is_object(to, &moved->id);

	if (is_there)
		bring_content(c, to, moved);
	else if (order_of_own(c, to, learnt) != ORDER_OLDER)
		node_set_unknown(c, to);
	mark_own(c, to, learnt);
}

static void settle_source(
	struct cached *c, struct node *from, const struct moved *moved, const struct learnt *learnt)
{
	/* Two names of one object: rename(2) does nothing then. */
	if (is_object(from, &moved->id) && from->attributes.nlink > 1) {
		node_set_doubtful(c, from);
		mark_own(c, from, learnt);
	} else {
		settle_absent(c, from, learnt);
	}
}

/* A rename changes ctime, and so the version, but not the content. */
static void keep_over_rename(struct node *node)
{
	if (!node->content || node->content->own || !node->attributes_known)
		return;
	node->content->own = true;
	node->content->keeps_mtime = true;
}

void cached_own_moved(struct cached *c, const char *from_path, const char *to_path,
	struct moved *moved, const struct learnt *learnt)
{
	struct node *from = tree_find(c, from_path, strlen(from_path));
	struct node *to = tree_make(c, to_path);

	if (from && from->parent)
		cached_own_parent(c, from, learnt);
	if (to)
		cached_own_parent(c, to, learnt);
	c->links_epoch++;
	if (!to || !from) {
		cached_own_unknown(c, to_path, learnt);
		cached_own_unknown(c, from_path, learnt);
		return;
	}
	if (!is_object(from, &moved->id) || is_object(to, &moved->id) ||
		order_of_own(c, from, learnt) != ORDER_NEWER ||
		order_of_own(c, to, learnt) != ORDER_NEWER) {
		settle_target(c, to, moved, learnt);
		settle_source(c, from, moved, learnt);
		return;
	}
	node_move(c, from, to, &(struct learnt){++c->clock, learnt->looked_ns, learnt->done_ns});
	if (to->directory)
		tree_drop(c, to);
	keep_over_rename(to);
	node_set_stale(c, to);
	from->removed_here = true;
	mark_own(c, from, learnt);
	mark_own(c, to, learnt);
}

static bool keeps_content(
	const struct node *node, unsigned mask, const struct attributes *attributes)
{
	const struct timespec *a = &node->attributes.mtime, *b = &attributes->mtime;

	if (!node->content || node->content->own || (mask & SET_SIZE) ||
		node->content->size != attributes->size_bytes)
		return false;
	return node->attributes_known &&
	       ((mask & (SET_MTIME | SET_MTIME_NOW)) ||
		       (a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec));
}

void cached_own_attributes(struct cached *c, struct node *node, unsigned mask,
	const struct attributes *attributes, const struct learnt *learnt)
{
	enum order order = order_of_own(c, node, learnt);
	uint8_t xattrs = node->xattrs;
	struct content *content = NULL;

	if (node->state != NODE_PRESENT || !object_id_equal(&node->attributes.id, &attributes->id))
		return;
	if (attributes->nlink > 1 && !S_ISDIR(attributes->mode))
		c->links_epoch++;
	if (keeps_content(node, mask, attributes))
		content = content_ref(node->content);
	settle(c, node, attributes, learnt);
	if (order == ORDER_NEWER)
		node->xattrs = xattrs;
	if (content && order == ORDER_NEWER && node->content != content)
		content_attach(c, node, content_ref(content));
	content_unref(content);
}
