#include "ops/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/clock.h"
#include "ops/support/path.h"

static void changed(struct cached *c, struct node *node)
{
	node->changed_at = ++c->clock;
}

static bool is_still_true(struct content *content, const struct change *change)
{
	if (!change->hash)
		return !content->own && content->looked_ns >= change->looked_ns;
	content->own = false;
	return content_has_hash(content, change->hash);
}

/* The version we know: an echo, or a change within the same tick of the far clock, after what it
 * holds was read. */
static void take_echo(struct cached *c, struct node *node, const struct change *change)
{
	if (node->content && !is_still_true(node->content, change)) {
		content_detach(c, node);
		changed(c, node);
	}
	if (node->link_target && node->looked_ns < change->looked_ns) {
		free(node->link_target);
		node->link_target = NULL;
		changed(c, node);
	}
	if (node->looked_ns < change->looked_ns)
		node->looked_ns = change->looked_ns;
	node_note_done(node, change->looked_ns);
}

static void note_early(struct node *node, const struct change *change)
{
	const uint8_t *hash = change->hash;

	if (!node->early)
		node->early = malloc(sizeof(*node->early));
	if (!node->early)
		return;
	*node->early = (struct early){
		.attributes = change->attributes, .looked_ns = change->looked_ns, .hashed = hash};
	if (hash)
		memcpy(node->early->hash, hash, HASH_BYTES);
}

static void take_same_object(
	struct cached *c, struct node *node, const struct change *change, enum order order)
{
	const struct attributes *a = &change->attributes;

	if (node->attributes_known && attributes_same_version(&node->attributes, a)) {
		take_echo(c, node, change);
	} else if (node->writers > 0) {
		note_early(node, change);
	} else if (order == ORDER_NEWER) {
		node_set_told(c, node, a, change->hash, change->looked_ns);
		changed(c, node);
	} else if (order == ORDER_UNCLEAR && node->attributes_known) {
		node_set_doubtful(c, node);
	}
}

static void take_other_object(
	struct cached *c, struct node *node, const struct change *change, enum order order)
{
	const struct learnt learnt = {++c->clock, change->looked_ns, change->looked_ns};

	if (order == ORDER_UNCLEAR)
		node_set_doubtful(c, node);
	else if (change->exists)
		node_set_told(c, node, &change->attributes, change->hash, change->looked_ns);
	else
		node_set_absent(c, node, &learnt);
	changed(c, node);
}

/* The parent's times changed with the name. */
static void doubt_parent(struct cached *c, struct node *parent, const struct change *change)
{
	if (!parent->attributes_known || parent->looked_ns >= change->looked_ns)
		return;
	node_set_stale(c, parent);
	parent->echo_awaited = false;
}

/* A name that is not there needs no node, unless an answer under way, or an event from before
 * an own change, may still tell of it. */
static void remove_if_idle(struct cached *c, struct node *node, const struct change *change)
{
	if (node->state == NODE_ABSENT && c->asking == 0 && node->done_ns <= change->looked_ns &&
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

/* True when somebody above may believe otherwise.  That we know it already does not count: what
 * was handed out before has not been taken back by that. */
static bool take_entry(struct cached *c, const struct change *change)
{
	const struct learnt learnt = {c->clock, change->looked_ns, change->looked_ns};
	size_t parent_length = path_parent_length(change->path);
	struct node *parent = tree_find(c, change->path, parent_length);
	struct node *node = tree_find(c, change->path, strlen(change->path));
	bool is_echo = !change->exists && node && node->removed_here;
	enum order order;

	if ((!parent || !parent->directory) && c->asking > 0 && *change->path) {
		node = make_for_answers(c, change->path);
		parent = node ? node->parent : NULL;
	}
	if (!parent || (*change->path && !parent->directory))
		return true;
	order = node_order(node, *change->path ? parent : NULL, &learnt);
	if (change->exists && node && node->state == NODE_PRESENT &&
		object_id_equal(&node->attributes.id, &change->attributes.id)) {
		take_same_object(c, node, change, order);
		return true;
	}
	if (!*change->path || (!node && order == ORDER_OLDER))
		return true;
	if (!node && has_room(c))
		node = tree_make(c, change->path);
	if (!node) {
		forget_listing(c, parent);
		return true;
	}
	if (change->exists || node->state != NODE_ABSENT) {
		if (order != ORDER_OLDER)
			take_other_object(c, node, change, order);
	} else if (order == ORDER_NEWER) {
		node->looked_ns = node->done_ns = change->looked_ns;
	}
	doubt_parent(c, parent, change);
	remove_if_idle(c, node, change);
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

	if (!timed.looked_ns) /* by our own clock, then */
		timed.looked_ns = clock_now_ns();
	pthread_mutex_lock(&c->lock);
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
	*unheard = (struct unheard){.next = *list, .path = path};
	*list = unheard;
	return true;
}

/* Whoever is above believes nothing of it; but he may have listened before all was forgotten once.
 */
static void unwatch(struct cached *c, struct unheard *unheard, change_sink sink)
{
	const struct change change = {.kind = CHANGE_UNWATCHED, .path = unheard->path};

	workspace_unwatch(c->inner, unheard->path);
	if (sink)
		sink(c->sink_user, &change);
	free(unheard->path);
	free(unheard);
}

void cached_forget_all(struct cached *c)
{
	struct unheard *list = NULL;
	change_sink sink = c->sink;
	bool all = true;

	c->forgetting = true;
	for (struct node *node = c->root; node && all; node = tree_next(c->root, node))
		if (node->directory && node->directory->watched && !node->directory->heard)
			all = push_unheard(&list, node);
	pthread_mutex_unlock(&c->lock);
	while (list) {
		struct unheard *next = list->next;

		unwatch(c, list, sink);
		list = next;
	}
	pthread_mutex_lock(&c->lock);
	cached_forget_answers(c);
	if (all) /* else the rest another time */
		node_clear(c, c->root);
	c->forgetting = false;
}
