#include "ops/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"

static void changed(struct cached *c, struct node *node)
{
	node->changed_at = ++c->clock;
}

/* A write now could leave size and times as they are. */
static bool may_hide_writes(const struct attributes *a)
{
	return a->changed_lately && a->mtime.tv_sec == a->ctime.tv_sec &&
	       a->mtime.tv_nsec == a->ctime.tv_nsec;
}

static bool is_still_true(const struct node *node, const struct change *change)
{
	const struct content *content = node->content;
	const struct attributes *a = &change->attributes;

	if (change->hash && a->size_bytes == content->size)
		return bytes_have_hash(content->data, content->size, change->hash);
	return change->at <= content->at ||
	       (attributes_same_version(&node->attributes, a) && !may_hide_writes(a));
}

/* The file is, or was when that was looked at, as the handle left it or will. */
static bool may_be_captured(
	const struct cached_file *file, const struct node *node, const struct change *change)
{
	uint64_t size = change->attributes.size_bytes;

	if (node->writers == 0 &&
		!attributes_same_content_times(&node->attributes, &change->attributes))
		return false;
	if (size == file->capture_size && change->hash)
		return bytes_have_hash(file->capture, size, change->hash);
	return size <= file->capture_size;
}

static void check_captured(struct node *node, const struct change *change)
{
	for (struct cached_file *file = node->files; file; file = file->next)
		if (file->capturing && !may_be_captured(file, node, change))
			file->capturing = false;
}

/* The version we know: an echo, or a change within the same tick of the far clock. */
static void take_echo(struct cached *c, struct node *node, const struct change *change)
{
	if (may_hide_writes(&change->attributes))
		changed(c, node);
	if (node->link_target && node->object_at < change->at) {
		free(node->link_target);
		node->link_target = NULL;
		changed(c, node);
	}
	node->object_at = change->at;
}

static void take_same_object(struct cached *c, struct node *node, const struct change *change)
{
	const struct attributes *a = &change->attributes;
	bool is_same = attributes_same_version(&node->attributes, a);

	if (node->content && !is_still_true(node, change)) {
		content_detach(c, node);
		changed(c, node);
	}
	check_captured(node, change);
	if (node->writers > 0 || change->at < node->object_at)
		return;
	if (is_same && node->attributes_known) {
		take_echo(c, node, change);
		return;
	}
	if (!is_same)
		node->xattrs = XATTRS_UNKNOWN;
	if (node->content && node->content->size == a->size_bytes && change->hash)
		is_same = true;
	node_set_object(c, node, a, is_same, change->at);
	changed(c, node);
}

/* The name leads to another object than before, or to none. */
static void take_other_object(struct cached *c, struct node *node, const struct change *change)
{
	const struct learnt learnt = {++c->clock, change->at};

	if (change->exists)
		node_set_present(c, node, &change->attributes, &learnt);
	else
		node_set_absent(c, node, &learnt);
	changed(c, node);
}

/* The parent's times changed with the name. */
static void doubt_parent(struct cached *c, struct node *parent, const struct change *change)
{
	if (parent->attributes_known && parent->object_at < change->at)
		node_set_stale(c, parent, change->at);
}

/* A name that is not there needs no node, unless an answer under way may still tell of it. */
static void remove_if_idle(struct cached *c, struct node *node, const struct change *change)
{
	if (node->state == NODE_ABSENT && c->asking == 0 && node->at <= change->at &&
		node_is_complete(c, node->parent))
		node_remove(c, node);
}

static bool has_room(const struct cached *c)
{
	return c->node_count < c->node_count_max;
}

/* An answer under way may tell of the directory as it was before.  NULL: nothing is there, or there
 * is no room or memory, and then no such answer is believed. */
static struct node *make_for_answers(struct cached *c, const char *path)
{
	struct node *node, *ignored;

	node = has_room(c) ? tree_make_all(c, path) : tree_find(c, path, strlen(path));
	if (!node && tree_lookup(c, path, &ignored, &ignored) == -EAGAIN)
		cached_forget_answers(c);
	return node;
}

/* There is no room or memory for what is in the directory. */
static void forget_listing(struct cached *c, struct node *parent)
{
	parent->directory->complete = false;
	cached_forget_answers(c);
}

/* What is told of a name in the directory is older than what is known of it. */
static bool is_older(
	const struct node *node, const struct node *parent, const struct change *change)
{
	if (parent->state != NODE_PRESENT)
		return !node_takes(node, parent, change->at);
	return change->at < (node                                 ? node->at
				    : parent->directory->complete ? parent->directory->listed_at
								  : 0);
}

/* What the name leads to, in the directory that was looked into. */
static void take_name(struct cached *c, struct node *parent, struct node *node,
	const struct change *change, bool is_echo)
{
	bool is_same = change->exists && node && node_is_object(node, &change->attributes);

	if (is_same)
		take_same_object(c, node, change);
	if (is_older(node, parent, change))
		return;
	if (!node && has_room(c))
		node = tree_make(c, change->path);
	if (!node) {
		forget_listing(c, parent);
		return;
	}
	if (!is_same && (change->exists || node->state != NODE_ABSENT))
		take_other_object(c, node, change);
	node->at = change->at;
	if (is_same && node->attributes_known) {
		node->known_at = ++c->clock;
		node->fetched_ms = cached_now_ms();
	}
	if (!is_same && !is_echo)
		doubt_parent(c, parent, change);
	remove_if_idle(c, node, change);
}

/* True when somebody above may believe otherwise.  That we know it already does not count: what
 * was handed out before has not been taken back by that. */
static bool take_entry(struct cached *c, const struct change *change)
{
	size_t parent_length = path_parent_length(change->path);
	struct node *parent = tree_find(c, change->path, parent_length);
	struct node *node = tree_find(c, change->path, strlen(change->path));
	bool is_echo = !change->exists && node && node->removed_here;

	if (!*change->path || !change->directory.inode) {
		if (change->exists && node && node_is_object(node, &change->attributes))
			take_same_object(c, node, change);
		return true;
	}
	if ((!parent || !parent->directory) && c->asking > 0) {
		node = make_for_answers(c, change->path);
		parent = node ? node->parent : NULL;
	}
	if (!parent || !parent->directory)
		return true;
	/* Another directory than the one that has this path, as far as is known. */
	if (parent->state == NODE_PRESENT &&
		!object_id_equal(&parent->attributes.id, &change->directory))
		return true;
	take_name(c, parent, node, change, is_echo);
	return !is_echo;
}

struct directory *cached_note_unwatched(struct cached *c, const char *path)
{
	struct node *node, *ignored;
	int r = tree_lookup(c, path, &node, &ignored);
	struct directory *d = NULL;

	if (r < 0 && r != -EAGAIN)
		return NULL;
	node = c->asking ? make_for_answers(c, path) : tree_find(c, path, strlen(path));
	if (node)
		d = c->asking ? node_directory(node) : node->directory;
	if (node && !d && c->asking)
		cached_forget_answers(c);
	if (!d)
		return NULL;
	d->watched = false;
	d->unwatched_at = ++c->clock;
	return d;
}

static void take_rescan(struct cached *c, const char *path)
{
	struct node *node = tree_find(c, path, strlen(path));

	if (node)
		tree_drop(c, node);
	else
		cached_forget_answers(c);
}

static bool is_quiet(const struct cached *c, const char *path)
{
	const struct node *parent = tree_find(c, path, path_parent_length(path));

	return parent && parent->directory && parent->directory->quiet;
}

void cached_take_change(void *user, const struct change *change)
{
	struct cached *c = user;
	struct change timed = *change;
	bool is_news = true;
	change_sink sink;
	void *sink_user;

	pthread_mutex_lock(&c->lock);
	if (c->highest < change->at)
		c->highest = change->at;
	if (!change->at)
		timed.at = c->highest;
	if (change->kind == CHANGE_ENTRY)
		is_news = take_entry(c, &timed) && !is_quiet(c, change->path);
	else if (change->kind == CHANGE_UNWATCHED)
		cached_note_unwatched(c, change->path);
	else
		take_rescan(c, change->path);
	sink = c->sink;
	sink_user = c->sink_user;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (is_news && sink)
		sink(sink_user, change);
}

/* ---- Too many names ---------------------------------------------------------------------- */

struct unheard {
	struct unheard *next;
	struct object_id id;
	char *path;
};

/* False: no memory. */
static bool push_unheard(struct unheard **list, struct node *node)
{
	struct unheard *unheard = malloc(sizeof(*unheard));
	char *path = unheard ? node_path(node) : NULL;

	if (!path) {
		free(unheard);
		return false;
	}
	node->directory->watched = false;
	*unheard = (struct unheard){.next = *list, .id = node->attributes.id, .path = path};
	*list = unheard;
	return true;
}

/* Whoever is above believes nothing of it; but he may have listened before all was forgotten once.
 */
static void unwatch(struct cached *c, struct unheard *unheard, uint64_t at, change_sink sink)
{
	const struct change change = {.kind = CHANGE_UNWATCHED,
		.path = unheard->path,
		.directory = unheard->id,
		.at = at};

	workspace_unwatch(c->inner, &(struct object_ref){.path = unheard->path, .id = unheard->id});
	if (sink)
		sink(c->sink_user, &change);
	free(unheard->path);
	free(unheard);
}

void cached_forget_all(struct cached *c)
{
	struct unheard *list = NULL;
	change_sink sink = c->sink;
	uint64_t at = c->highest;
	bool all = true;

	c->forgetting = true;
	for (struct node *node = c->root; node && all; node = tree_next(c->root, node))
		if (node->directory && node->directory->watched && !node->directory->heard)
			all = push_unheard(&list, node);
	pthread_mutex_unlock(&c->lock);
	while (list) {
		struct unheard *next = list->next;

		unwatch(c, list, at, sink);
		list = next;
	}
	pthread_mutex_lock(&c->lock);
	cached_forget_answers(c);
	if (all) /* else the rest another time */
		node_clear(c, c->root);
	c->forgetting = false;
}
