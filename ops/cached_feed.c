#include "ops/cached_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"

enum {
	OWN_MS = 1000,  /* an event may tell of the time before an own change that long */
	RACY_MS = 1000, /* content fetched that short before an event may be older than it */
};

static bool is_recent(uint64_t then_ms, uint64_t within_ms)
{
	return then_ms && cached_now_ms() - then_ms < within_ms;
}

static void changed(struct cached *c, struct node *node)
{
	node->changed_at = ++c->clock;
}

static bool is_still_true(struct content *content, const uint8_t *hash)
{
	if (!hash)
		return !content->own && !is_recent(content->fetched_ms, RACY_MS);
	content->own = false;
	return content_has_hash(content, hash);
}

/* The version we know: an echo, or a change within the same tick of the far clock. */
static void take_echo(struct cached *c, struct node *node, const uint8_t *hash)
{
	if (node->content && !is_still_true(node->content, hash)) {
		content_detach(c, node);
		changed(c, node);
	}
	if (!node->link_target || !is_recent(node->fetched_ms, RACY_MS))
		return;
	free(node->link_target);
	node->link_target = NULL;
	changed(c, node);
}

static void note_early(struct node *node, const struct attributes *a, const uint8_t *hash)
{
	if (!node->early)
		node->early = malloc(sizeof(*node->early));
	if (!node->early)
		return;
	*node->early = (struct early){.attributes = *a, .hashed = hash};
	if (hash)
		memcpy(node->early->hash, hash, HASH_BYTES);
}

static bool take_same_object(struct cached *c, struct node *node, const struct change *change)
{
	const struct attributes *a = &change->attributes;
	bool awaited = node->echo_awaited;

	if (node->attributes_known && attributes_same_version(&node->attributes, a)) {
		take_echo(c, node, change->hash);
		return true;
	}
	/* Told before an own change, delivered after it. */
	if (cached_is_later(&node->attributes.ctime, &a->ctime) && is_recent(node->own_ms, OWN_MS))
		return false;
	if (node->writers > 0) {
		note_early(node, a, change->hash);
		return true;
	}
	/* Looked at while we wrote, or before. */
	if (change->looked_ns && change->looked_ns < node->done_ns) {
		if (node->attributes_known)
			return false;
		node_set_doubtful(c, node);
		return true;
	}
	/* Told before what we wrote had arrived, or after another's write: the place knows. */
	if (awaited && node->content && node->content->own && !node->content->keeps_mtime &&
		node->content->size != a->size_bytes && is_recent(node->own_ms, OWN_MS))
		return false;
	if (awaited && attributes_same_version(&node->attributes, a))
		return false;
	if (awaited && node->directory && node->directory->echoes > 0)
		return false;
	node_set_told(c, node, a, change->hash);
	changed(c, node);
	return !(awaited && S_ISDIR(a->mode));
}

/* May the event tell of the time before an own change of this name, or before another
 * directory came to be on the way to it?  No later event need follow then. */
static bool may_be_outdated(const struct node *node)
{
	if (is_recent(node->own_ms, OWN_MS))
		return true;
	for (node = node->parent; node && node->parent; node = node->parent)
		if (is_recent(node->became_ms, OWN_MS))
			return true;
	return false;
}

static bool is_expected(const struct node *node, const struct change *change)
{
	return change->exists && node->incoming.inode &&
	       object_id_equal(&node->incoming, &change->attributes.id);
}

/* A name that is not there needs no node, unless an answer under way, or an event from before
 * an own change, may still tell of it. */
static void remove_if_idle(struct cached *c, struct node *node)
{
	if (node->state == NODE_ABSENT && c->asking == 0 && !is_recent(node->own_ms, OWN_MS) &&
		node_is_complete(c, node->parent))
		node_remove(c, node);
}

/* True when somebody above may believe otherwise.  That we know it already does not count: what
 * was handed out before has not been taken back by that. */
static bool take_entry(struct cached *c, const struct change *change)
{
	size_t parent_length = path_parent_length(change->path);
	struct node *parent = tree_find(c, change->path, parent_length);
	struct node *node = tree_find(c, change->path, strlen(change->path));
	bool was_absent = !node || node->state == NODE_ABSENT;

	/* An answer under way may tell of the directory as it was before. */
	if ((!parent || !parent->directory) && c->asking > 0 && *change->path) {
		node = tree_make_all(c, change->path);
		parent = node ? node->parent : NULL;
	}
	if (!parent || (*change->path && !parent->directory))
		return true;
	if (node)
		node_take_echo(node);
	if (change->exists && node && node->state == NODE_PRESENT &&
		object_id_equal(&node->attributes.id, &change->attributes.id))
		return take_same_object(c, node, change);
	if (!change->exists && was_absent && node_is_complete(c, parent) && c->asking == 0) {
		bool is_echo = node && node->removed_here;

		if (node)
			remove_if_idle(c, node);
		return !is_echo;
	}
	if (!*change->path)
		return true;
	node = tree_make(c, change->path);
	if (!node)
		return true;
	if (may_be_outdated(node) && !is_expected(node, change) && !(was_absent && !change->exists))
		node_set_doubtful(c, node);
	else if (change->exists)
		node_set_told(c, node, &change->attributes, change->hash);
	else
		node_set_absent(c, node, ++c->clock);
	changed(c, node);
	if (parent->attributes_known) {
		node_set_stale(c, parent);
		parent->own_ms = 0;
	}
	remove_if_idle(c, node);
	return true;
}

static void take_unwatched(struct cached *c, const char *path)
{
	struct node *node = tree_find(c, path, strlen(path));

	if (!node || !node->directory)
		return;
	node->directory->watched = false;
	node->directory->unwatched_at = ++c->clock;
}

static void take_rescan(struct cached *c, const char *path)
{
	struct node *node = tree_find(c, path, strlen(path));

	if (node)
		tree_drop(c, node);
	else
		c->rescan_at = ++c->clock;
}

static bool is_quiet(const struct cached *c, const char *path)
{
	const struct node *parent = tree_find(c, path, path_parent_length(path));

	return parent && parent->directory && parent->directory->quiet;
}

void cached_take_change(void *user, const struct change *change)
{
	struct cached *c = user;
	bool is_news = true;
	change_sink sink;
	void *sink_user;

	pthread_mutex_lock(&c->lock);
	if (change->kind == CHANGE_ENTRY)
		is_news = take_entry(c, change) && !is_quiet(c, change->path);
	else if (change->kind == CHANGE_UNWATCHED)
		take_unwatched(c, change->path);
	else
		take_rescan(c, change->path);
	sink = c->sink;
	sink_user = c->sink_user;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (is_news && sink)
		sink(sink_user, change);
}
