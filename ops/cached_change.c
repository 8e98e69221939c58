#include "ops/cached_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"

static void mark_own(struct cached *c, struct node *node)
{
	node->changed_at = ++c->clock;
	node->stamp = c->clock;
	node->own_ms = cached_now_ms();
}

void cached_own_parent(struct cached *c, const char *path)
{
	struct node *parent = tree_find(c, path, path_parent_length(path));

	if (parent)
		node_set_stale(c, parent);
}

void cached_store_answer(struct cached *c, const char *path, int r,
	const struct attributes *attributes, uint64_t asked)
{
	struct node *node;

	if (r < 0 && r != -ENOENT)
		return;
	node = tree_make(c, path);
	if (!node)
		return;
	if (r == 0)
		node_set_present(c, node, attributes, asked);
	else if (node->parent)
		node_set_absent(c, node, asked);
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* The feed told something of this name while the own change was under way.  What is it
 * now?  The same object: the later version; else only the place knows. */
static void settle(struct cached *c, struct node *node, const struct attributes *attributes)
{
	bool same = node->state == NODE_PRESENT &&
		    object_id_equal(&node->attributes.id, &attributes->id);

	if (!same)
		node_set_unknown(c, node);
	else if (is_later(&attributes->ctime, &node->attributes.ctime))
		node_set_present(c, node, attributes, c->clock);
}

struct node *cached_own_present(
	struct cached *c, const char *path, const struct attributes *attributes, uint64_t asked)
{
	struct node *node = tree_make(c, path);

	cached_own_parent(c, path);
	if (!node)
		return NULL;
	if (node->changed_at > asked || asked <= c->rescan_at)
		settle(c, node, attributes);
	else
		node_set_present(c, node, attributes, c->clock);
	mark_own(c, node);
	return node->state == NODE_PRESENT ? node : NULL;
}

void cached_own_absent(struct cached *c, const char *path, uint64_t asked)
{
	struct node *node = tree_make(c, path);

	cached_own_parent(c, path);
	if (!node)
		return;
	if (node->state == NODE_PRESENT && node->attributes.nlink > 1 &&
		!S_ISDIR(node->attributes.mode))
		c->links_epoch++;
	if (node->changed_at > asked && node->state != NODE_ABSENT)
		node_set_unknown(c, node);
	else
		node_set_absent(c, node, c->clock);
	mark_own(c, node);
	if (node->state == NODE_ABSENT && c->asking == 0 && node_is_complete(c, node->parent))
		node_remove(c, node);
}

void cached_own_unknown(struct cached *c, const char *path)
{
	struct node *node = tree_make(c, path);

	if (!node || !node->parent)
		return;
	node_set_unknown(c, node);
	mark_own(c, node);
}

/* The target of the move has been told of by the feed already. */
static void settle_move(struct cached *c, struct node *from, struct node *to)
{
	bool arrived = to->state == NODE_PRESENT &&
		       (from->state != NODE_PRESENT ||
			       object_id_equal(&to->attributes.id, &from->attributes.id));
	struct content *content = from->state == NODE_PRESENT ? from->content : NULL;

	if (!arrived) {
		node_set_unknown(c, to);
	} else if (content && content->size == to->attributes.size_bytes && !to->content &&
		   content->own) {
		content_ref(content);
		content_detach(c, from);
		content_attach(c, to, content);
	}
	node_set_absent(c, from, c->clock);
}

/* A rename changes ctime, and so the version, but not the content. */
static void keep_over_rename(struct node *node)
{
	if (!node->content || node->content->own || !node->attributes_known)
		return;
	node->content->own = true;
	node->content->keeps_mtime = true;
}

void cached_own_moved(struct cached *c, const char *from_path, const char *to_path, uint64_t asked)
{
	struct node *from = tree_find(c, from_path, strlen(from_path));
	struct node *to = tree_make(c, to_path);

	cached_own_parent(c, from_path);
	cached_own_parent(c, to_path);
	c->links_epoch++;
	if (!to || !from || from->state != NODE_PRESENT) {
		cached_own_unknown(c, to_path);
		cached_own_unknown(c, from_path);
		return;
	}
	/* Two names of one object: rename(2) does nothing then. */
	if (to->state == NODE_PRESENT && from->changed_at <= asked && to->changed_at <= asked &&
		object_id_equal(&to->attributes.id, &from->attributes.id))
		return;
	if (to->changed_at > asked || from->changed_at > asked) {
		settle_move(c, from, to);
	} else {
		node_move(c, from, to);
		if (to->directory)
			tree_drop(c, to);
		keep_over_rename(to);
		node_set_stale(c, to);
	}
	mark_own(c, from);
	mark_own(c, to);
}

static bool keeps_content(
	const struct node *node, unsigned mask, const struct attributes *attributes)
{
	const struct timespec *a = &node->attributes.mtime, *b = &attributes->mtime;

	if (!node->content || (mask & SET_SIZE) || node->content->size != attributes->size_bytes)
		return false;
	if (node->content->own)
		return true;
	return node->attributes_known &&
	       ((mask & (SET_MTIME | SET_MTIME_NOW)) ||
		       (a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec));
}

void cached_own_attributes(struct cached *c, struct node *node, unsigned mask,
	const struct attributes *attributes, uint64_t asked)
{
	struct content *content = NULL;

	if (node->state != NODE_PRESENT || !object_id_equal(&node->attributes.id, &attributes->id))
		return;
	if (attributes->nlink > 1 && !S_ISDIR(attributes->mode))
		c->links_epoch++;
	if (keeps_content(node, mask, attributes))
		content = content_ref(node->content);
	if (node->changed_at > asked || asked <= c->rescan_at) {
		settle(c, node, attributes);
		content_unref(content);
		content = NULL;
	} else {
		node_set_present(c, node, attributes, c->clock);
	}
	if (content) {
		content->own = false;
		if (node->content == content)
			content_unref(content);
		else
			content_attach(c, node, content);
	}
	mark_own(c, node);
}
