#include "ops/cached_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

static void mark_own(struct cached *c, struct node *node)
{
	node->changed_at = ++c->clock;
	node->stamp = c->clock;
	node->own_ms = cached_now_ms();
}

void cached_own_parent(struct cached *c, struct node *node, uint64_t asked)
{
	struct node *parent = node->parent;
	bool told = node->changed_at > asked;

	/* The feed was quicker: name first, then directory. */
	if (told && parent->changed_at > node->changed_at && parent->attributes_known)
		return;
	node_set_stale(c, parent);
	if (!c->feed || !parent->directory || !parent->directory->watched)
		parent->echo_awaited = false;
	else if (!told)
		node_expect_echo(node);
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
	if (r == 0 && S_ISDIR(attributes->mode) && node->directory && !node->attributes_known)
		node_forget_echoes(node);
	if (r == 0)
		node_set_present(c, node, attributes, asked);
	else if (node->parent)
		node_set_absent(c, node, asked);
}

/* The feed told something of this name while the own change was under way.  What is it
 * now?  The same object: the later version; else only the place knows. */
static void settle(struct cached *c, struct node *node, const struct attributes *attributes)
{
	bool same = node->state == NODE_PRESENT &&
		    object_id_equal(&node->attributes.id, &attributes->id);

	if (!same) {
		node_set_present(c, node, attributes, ++c->clock);
		node_set_doubtful(c, node);
	} else if (cached_is_later(&attributes->ctime, &node->attributes.ctime))
		node_set_present(c, node, attributes, ++c->clock);
}

struct node *cached_own_present(
	struct cached *c, const char *path, const struct attributes *attributes, uint64_t asked)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return NULL;
	cached_own_parent(c, node, asked);
	if (node->changed_at > asked || asked <= c->rescan_at)
		settle(c, node, attributes);
	else
		node_set_present(c, node, attributes, ++c->clock);
	mark_own(c, node);
	return node->state == NODE_PRESENT ? node : NULL;
}

void cached_own_absent(struct cached *c, const char *path, uint64_t asked)
{
	struct node *node = tree_make(c, path);

	if (!node)
		return;
	cached_own_parent(c, node, asked);
	if (node->state != NODE_PRESENT || !node->attributes_known || node->attributes.nlink > 1)
		c->links_epoch++;
	if (node->changed_at > asked && node->state != NODE_ABSENT)
		node_set_unknown(c, node);
	else
		node_set_absent(c, node, ++c->clock);
	node->removed_here = node->state == NODE_ABSENT;
	mark_own(c, node);
}

void cached_own_unknown(struct cached *c, const char *path)
{
	struct node *node = tree_make(c, path);

	if (!node || !node->parent)
		return;
	node_set_unknown(c, node);
	mark_own(c, node);
}

void cached_note_moved(struct cached *c, const char *from, const char *to, struct moved *ret_moved)
{
	struct node *node = tree_find(c, from, strlen(from)), *target;

	*ret_moved = (struct moved){0};
	if (!node || node->state != NODE_PRESENT)
		return;
	ret_moved->id = node->attributes.id;
	ret_moved->mtime = node->attributes.mtime;
	target = tree_make(c, to);
	if (target)
		target->incoming = node->attributes.id;
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

/* The feed told of a side of the move already. */
static void settle_move(struct cached *c, struct node *from, struct node *to, struct moved *moved)
{
	if (is_object(to, &moved->id))
		bring_content(c, to, moved);
	else
		node_set_unknown(c, to);
	/* Two names of one object: rename(2) does nothing then. */
	if (from->state == NODE_PRESENT &&
		(!is_object(from, &moved->id) || from->attributes.nlink > 1))
		node_set_doubtful(c, from);
	else
		node_set_absent(c, from, ++c->clock);
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
	struct moved *moved, uint64_t asked)
{
	struct node *from = tree_find(c, from_path, strlen(from_path));
	struct node *to = tree_make(c, to_path);

	if (from && from->parent)
		cached_own_parent(c, from, asked);
	if (to)
		cached_own_parent(c, to, asked);
	c->links_epoch++;
	if (!to || !from) {
		cached_own_unknown(c, to_path);
		cached_own_unknown(c, from_path);
		return;
	}
	to->incoming = (struct object_id){0};
	/* An answer or the feed may have told of the move already. */
	if (is_object(from, &moved->id) && !is_object(to, &moved->id) && to->changed_at <= asked) {
		node_move(c, from, to);
		if (to->directory)
			tree_drop(c, to);
		keep_over_rename(to);
		node_set_stale(c, to);
	} else {
		settle_move(c, from, to, moved);
	}
	from->removed_here = from->state == NODE_ABSENT;
	mark_own(c, from);
	mark_own(c, to);
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
	const struct attributes *attributes, uint64_t asked)
{
	uint8_t xattrs = node->xattrs;
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
		node_set_present(c, node, attributes, ++c->clock);
		node->xattrs = xattrs;
	}
	if (content) {
		if (node->content == content)
			content_unref(content);
		else
			content_attach(c, node, content);
	}
	mark_own(c, node);
}
