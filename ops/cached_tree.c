#include "ops/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"
#include "ops/support/path.h"

enum { BUCKETS_MIN = 8 };

uint64_t cached_now_ms(void)
{
	return (uint64_t)clock_now_ms() + 1;
}

/* ---- Hash tables --------------------------------------------------------------- */

static uint32_t hash_name(const char *name, size_t length)
{
	return (uint32_t)XXH3_64bits_withSeed(name, length, hash_seed());
}

static struct node *node_child(const struct node *parent, const char *name, size_t length)
{
	const struct directory *d = parent->directory;
	uint32_t hash = hash_name(name, length);
	struct node *node;

	if (!d || !d->bucket_count)
		return NULL;
	node = d->buckets[hash & (d->bucket_count - 1)];
	while (node && (node->hash != hash || node->name_length != length ||
			       memcmp(node->name, name, length) != 0))
		node = node->next;
	return node;
}

static void insert(struct directory *d, struct node *node)
{
	struct node **bucket = &d->buckets[node->hash & (d->bucket_count - 1)];

	node->next = *bucket;
	*bucket = node;
}

static bool grow(struct directory *d)
{
	struct directory grown = {
		.bucket_count = d->bucket_count ? d->bucket_count * 2 : BUCKETS_MIN};

	grown.buckets = calloc(grown.bucket_count, sizeof(*grown.buckets));
	if (!grown.buckets)
		return false;
	for (size_t i = 0; i < d->bucket_count; i++)
		for (struct node *node = d->buckets[i], *next; node; node = next) {
			next = node->next;
			insert(&grown, node);
		}
	free(d->buckets);
	d->buckets = grown.buckets;
	d->bucket_count = grown.bucket_count;
	return true;
}

/* Finds or makes the child, NODE_UNKNOWN when new.  NULL: no memory. */
static struct node *node_make_child(
	struct cached *c, struct node *parent, const char *name, size_t length)
{
	struct node *node = node_child(parent, name, length);
	struct directory *d = node ? NULL : node_directory(parent);

	if (node || !d || (d->count >= d->bucket_count && !grow(d)))
		return node;
	node = calloc(1, sizeof(*node) + length + 1);
	if (!node)
		return NULL;
	node->parent = parent;
	node->state = NODE_UNKNOWN;
	node->hash = hash_name(name, length);
	node->name_length = (uint16_t)length;
	node->at = d->complete ? d->listed_at : 0;
	memcpy(node->name, name, length);
	insert(d, node);
	d->count++;
	c->node_count++;
	return node;
}

struct directory *node_directory(struct node *node)
{
	if (node->state == NODE_ABSENT ||
		(node->state == NODE_PRESENT && !S_ISDIR(node->attributes.mode)))
		return NULL;
	if (!node->directory)
		node->directory = calloc(1, sizeof(*node->directory));
	return node->directory;
}

/* ---- Forgetting ------------------------------------------------------------------- */

static void leave_files(struct node *node)
{
	while (node->files) {
		struct cached_file *file = node->files;

		node->files = file->next;
		file->next = NULL;
		file->node = NULL;
	}
}

static struct node **object_bucket(const struct cached *c, const struct node *node)
{
	uint64_t inode = node->attributes.id.inode;

	return &c->objects[XXH3_64bits_withSeed(&inode, sizeof(inode), hash_seed()) %
			   OBJECT_BUCKETS];
}

static bool has_object(const struct node *node)
{
	return node->state == NODE_PRESENT && !S_ISDIR(node->attributes.mode);
}

static void join_object(struct cached *c, struct node *node)
{
	struct node **bucket = object_bucket(c, node);

	if (!has_object(node))
		return;
	node->same_bucket = *bucket;
	node->same_link = bucket;
	if (node->same_bucket)
		node->same_bucket->same_link = &node->same_bucket;
	*bucket = node;
}

static void leave_object(struct node *node)
{
	if (!has_object(node))
		return;
	*node->same_link = node->same_bucket;
	if (node->same_bucket)
		node->same_bucket->same_link = node->same_link;
	node->same_bucket = NULL;
}

/* All names of an object whose attributes are known agree, so one of them speaks for all.  The
 * names set last are found first: a listing of many names of one object does not walk them for
 * each. */
static bool agrees_with_names(struct cached *c, struct node *node)
{
	struct node *other;

	leave_object(node);
	join_object(c, node);
	other = node->same_bucket;
	while (other && (!other->attributes_known ||
				!object_id_equal(&other->attributes.id, &node->attributes.id)))
		other = other->same_bucket;
	return other && attributes_same_version(&other->attributes, &node->attributes) &&
	       (!node->attributes.changed_lately || other->known_at == node->known_at);
}

/* The other names of an object change with it. */
static void doubt_names(struct cached *c, struct node *node)
{
	if (!has_object(node) || node->attributes.nlink < 2 || agrees_with_names(c, node))
		return;
	for (struct node *other = *object_bucket(c, node); other; other = other->same_bucket)
		if (other != node && object_id_equal(&other->attributes.id, &node->attributes.id)) {
			other->attributes_known = false;
			other->changed_at = c->clock;
			content_detach(c, other);
		}
}

static void node_free(struct cached *c, struct node *node)
{
	leave_files(node);
	leave_object(node);
	content_detach(c, node);
	free(node->link_target);
	if (node->directory)
		free(node->directory->buckets);
	free(node->directory);
	free(node);
	c->node_count--;
}

static void unlink_node(struct node *node)
{
	struct directory *d = node->parent->directory;
	struct node **link = &d->buckets[node->hash & (d->bucket_count - 1)];

	while (*link != node)
		link = &(*link)->next;
	*link = node->next;
	d->count--;
}

/* Moves a directory's children to the front of `list`. */
static struct node *take_children(struct node *node, struct node *list)
{
	struct directory *d = node->directory;

	for (size_t i = 0; d && i < d->bucket_count; i++)
		while (d->buckets[i]) {
			struct node *child = d->buckets[i];

			d->buckets[i] = child->next;
			child->parent = NULL;
			child->next = list;
			list = child;
		}
	return list;
}

/* Without recursion: names nest without bound. */
static void free_below(struct cached *c, struct node *top)
{
	struct node *list = take_children(top, NULL);

	while (list) {
		struct node *node = list;

		list = take_children(node, node->next);
		node_free(c, node);
	}
}

void node_clear(struct cached *c, struct node *node)
{
	leave_files(node);
	leave_object(node);
	node->state = NODE_UNKNOWN;
	content_detach(c, node);
	free(node->link_target);
	node->link_target = NULL;
	if (node->directory) {
		free_below(c, node);
		free(node->directory->buckets);
		free(node->directory);
		node->directory = NULL;
	}
	node->attributes_known = false;
	node->writers = 0;
	node->moves = 0;
	node->xattrs = XATTRS_UNKNOWN;
}

void node_remove(struct cached *c, struct node *node)
{
	free_below(c, node);
	unlink_node(node);
	node_free(c, node);
}

static void doubt(struct node *node)
{
	node->known_at = 0;
	node->fetched_ms = 0;
	if (!node->directory)
		return;
	node->directory->complete = false;
	node->directory->watched = false;
	node->directory->loaded_ms = 0;
	node->directory->names_wanted_ms = 0;
	node->directory->content_wanted_ms = 0;
}

static struct node *any_child(const struct node *node)
{
	for (size_t i = 0; node->directory && i < node->directory->bucket_count; i++)
		if (node->directory->buckets[i])
			return node->directory->buckets[i];
	return NULL;
}

static struct node *next_in_directory(const struct node *node)
{
	const struct directory *d = node->parent->directory;
	size_t bucket = node->hash & (d->bucket_count - 1);

	if (node->next)
		return node->next;
	while (++bucket < d->bucket_count)
		if (d->buckets[bucket])
			return d->buckets[bucket];
	return NULL;
}

struct node *tree_next(const struct node *top, struct node *node)
{
	struct node *child = any_child(node);

	if (child)
		return child;
	while (node != top && !next_in_directory(node))
		node = node->parent;
	return node == top ? NULL : next_in_directory(node);
}

void cached_forget_answers(struct cached *c)
{
	c->rescan_at = c->clock++;
}

/* Content stays: it is believed again when the attributes turn out to be the same. */
void tree_drop(struct cached *c, struct node *top)
{
	cached_forget_answers(c);
	for (struct node *node = top; node; node = tree_next(top, node))
		doubt(node);
	pthread_cond_broadcast(&c->changed);
}

/* ---- Belief ----------------------------------------------------------------------------- */

static bool is_young(const struct cached *c, uint64_t fetched_ms)
{
	return fetched_ms > c->exec_ms && cached_now_ms() - fetched_ms < c->ttl_ms;
}

/* An event will tell when what was looked at then changes. */
static bool is_watched(const struct cached *c, const struct node *directory, uint64_t at)
{
	const struct directory *d = directory->directory;

	return c->feed && d && d->watched && at >= d->watched_at;
}

bool node_is_locked(const struct node *node)
{
	const struct cached_file *file = node->files;

	while (file && !file->has_locks)
		file = file->next;
	return file;
}

bool node_name_is_fresh(const struct cached *c, const struct node *node)
{
	if (!node->parent)
		return true;
	return node->state != NODE_UNKNOWN && node->known_at &&
	       (is_watched(c, node->parent, node->at) || is_young(c, node->fetched_ms));
}

bool node_attributes_are_fresh(const struct cached *c, const struct node *node)
{
	const struct attributes *a = &node->attributes;

	if (node->state != NODE_PRESENT || !node->attributes_known || node_is_locked(node))
		return false;
	if (a->nlink > 1 && !S_ISDIR(a->mode))
		return node->links_epoch == c->links_epoch && is_young(c, node->fetched_ms) &&
		       node_name_is_fresh(c, node);
	/* A directory's times and links change with its entries: its parent is not told. */
	if (S_ISDIR(a->mode))
		return node_name_is_fresh(c, node) &&
		       (is_watched(c, node, node->object_at) || is_young(c, node->fetched_ms));
	return node_name_is_fresh(c, node);
}

bool node_is_complete(const struct cached *c, const struct node *node)
{
	const struct directory *d = node->directory;

	return d && d->complete && ((c->feed && d->watched) || is_young(c, d->loaded_ms));
}

/* ---- Learning ---------------------------------------------------------------------------- */

bool node_takes(const struct node *node, const struct node *parent, uint64_t at)
{
	const struct directory *d = parent ? parent->directory : NULL;

	if (at < (node ? node->at : d && d->complete ? d->listed_at : 0))
		return false;
	while (parent && at >= parent->became_at)
		parent = parent->parent;
	return !parent;
}

bool attributes_same_content_times(const struct attributes *a, const struct attributes *b)
{
	return a->size_bytes == b->size_bytes && a->mtime.tv_sec == b->mtime.tv_sec &&
	       a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* A far end may say anything: of the same object that it is of another type by now. */
bool node_is_object(const struct node *node, const struct attributes *attributes)
{
	return node->state == NODE_PRESENT &&
	       object_id_equal(&node->attributes.id, &attributes->id) &&
	       ((node->attributes.mode ^ attributes->mode) & S_IFMT) == 0;
}

void node_raise(struct node *node, uint64_t at)
{
	if (node->at < at)
		node->at = at;
}

static void note_learnt(struct cached *c, struct node *node, const struct learnt *learnt)
{
	c->clock++;
	node->known_at = learnt->asked;
	node->at = learnt->at;
	node->fetched_ms = cached_now_ms();
	node->links_epoch = c->links_epoch;
	node->removed_here = false;
	cached_learnt(c, node);
}

/* The attributes of the object that the name leads to.  Its content stays if `keeps_content`. */
static void set_version(struct cached *c, struct node *node, const struct attributes *attributes,
	bool keeps_content, uint64_t at)
{
	if (!keeps_content)
		content_detach(c, node);
	node->attributes = *attributes;
	node->attributes_known = node->writers == 0;
	node->object_at = at;
}

/* Another object than before. */
static void become(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct learnt *learnt)
{
	/* Names in a directory may be told of, and an object changed, before it is known. */
	bool was_unknown = node->state == NODE_UNKNOWN;
	uint64_t object_at = was_unknown ? node->object_at : 0;
	struct directory *early = NULL;

	if (was_unknown && S_ISDIR(attributes->mode))
		early = steal_ptr(&node->directory);
	node_clear(c, node);
	node->directory = early;
	node->state = NODE_PRESENT;
	node->became_at = learnt->at;
	set_version(c, node, attributes, false, learnt->at);
	join_object(c, node);
	if (learnt->at < object_at) {
		node->attributes_known = false;
		node->object_at = object_at;
	}
}

/* What is known goes along with an own rename that is under way. */
static bool is_held(struct cached *c, struct node *node, bool gone, const struct learnt *learnt)
{
	if (!node->moves)
		return false;
	node_set_doubtful(c, node);
	node->at = learnt->at;
	node->gone = gone;
	return true;
}

void node_set_present(struct cached *c, struct node *node, const struct attributes *attributes,
	const struct learnt *learnt)
{
	if (!node_is_object(node, attributes) && is_held(c, node, false, learnt))
		return;
	if (!node_is_object(node, attributes)) {
		become(c, node, attributes, learnt);
	} else if (learnt->at >= node->object_at) {
		bool same = attributes_same_version(&node->attributes, attributes);

		if (!same)
			node->xattrs = XATTRS_UNKNOWN;
		set_version(c, node, attributes, same, learnt->at);
	}
	note_learnt(c, node, learnt);
	doubt_names(c, node);
}

void node_set_object(struct cached *c, struct node *node, const struct attributes *attributes,
	bool keeps_content, uint64_t at)
{
	if (!attributes->mode) {
		node_set_stale(c, node, at);
		return;
	}
	if (!node_is_object(node, attributes) || at < node->object_at)
		return;
	set_version(c, node, attributes, keeps_content, at);
	node->links_epoch = c->links_epoch;
	c->clock++;
	cached_learnt(c, node);
	doubt_names(c, node);
}

void node_set_absent(struct cached *c, struct node *node, const struct learnt *learnt)
{
	if (is_held(c, node, true, learnt))
		return;
	node_clear(c, node);
	node->state = NODE_ABSENT;
	node->became_at = learnt->at;
	note_learnt(c, node, learnt);
}

void node_set_unknown(struct cached *c, struct node *node)
{
	node_clear(c, node);
	node->changed_at = ++c->clock;
	node->removed_here = false;
	pthread_cond_broadcast(&c->changed);
}

void node_set_doubtful(struct cached *c, struct node *node)
{
	if (node->state != NODE_PRESENT) {
		node_set_unknown(c, node);
		return;
	}
	node->attributes_known = false;
	node->known_at = 0;
	node->fetched_ms = 0;
	node->changed_at = ++c->clock;
}

void node_set_stale(struct cached *c, struct node *node, uint64_t at)
{
	if (node->state != NODE_PRESENT || at < node->object_at)
		return;
	node->attributes_known = false;
	node->object_at = at;
	c->clock++;
}

/* ---- Finding ------------------------------------------------------------------------------- */

struct node *tree_find(const struct cached *c, const char *path, size_t length)
{
	struct node *node = c->root;
	const char *end = path + length;

	while (node && path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		const char *name_end = slash ? slash : end;

		node = node_child(node, path, (size_t)(name_end - path));
		path = slash ? slash + 1 : end;
	}
	return node;
}

struct node *tree_make(struct cached *c, const char *path)
{
	const char *name = path_name(path);
	struct node *parent;

	if (!*path)
		return c->root;
	parent = tree_find(c, path, path_parent_length(path));
	return parent ? node_make_child(c, parent, name, strlen(name)) : NULL;
}

struct node *tree_make_all(struct cached *c, const char *path)
{
	struct node *node = c->root;

	while (node && *path) {
		size_t length = strcspn(path, "/");

		node = node_make_child(c, node, path, length);
		path += length + (path[length] == '/');
	}
	return node;
}

int tree_lookup(const struct cached *c, const char *path, struct node **ret_node,
	struct node **ret_directory)
{
	struct node *node = c->root;

	*ret_directory = NULL;
	while (*path) {
		size_t length = strcspn(path, "/");
		struct node *child;

		if (node->state == NODE_PRESENT && S_ISLNK(node->attributes.mode))
			return -ELOOP;
		if (node->state == NODE_PRESENT && !S_ISDIR(node->attributes.mode))
			return -ENOTDIR;
		child = node_child(node, path, length);
		if (!child && node_is_complete(c, node))
			return -ENOENT;
		if (!child || !node_name_is_fresh(c, child)) {
			if (!path[length])
				*ret_directory = node;
			return -EAGAIN;
		}
		if (child->state == NODE_ABSENT)
			return -ENOENT;
		node = child;
		path += length + (path[length] == '/');
	}
	*ret_node = node;
	return 0;
}

char *node_path(const struct node *node)
{
	size_t length = 0;
	char *path, *end;

	for (const struct node *at = node; at->parent; at = at->parent)
		length += at->name_length + (at->parent->parent ? 1u : 0u);
	path = malloc(length + 1);
	if (!path)
		return NULL;
	end = path + length;
	*end = '\0';
	for (const struct node *at = node; at->parent; at = at->parent) {
		end -= at->name_length;
		memcpy(end, at->name, at->name_length);
		if (at->parent->parent)
			*--end = '/';
	}
	return path;
}

void node_move(struct cached *c, struct node *node, struct node *to, const struct learnt *learnt)
{
	node_clear(c, to);
	node->moves = 0;
	leave_object(node);
	to->state = node->state;
	node->state = NODE_UNKNOWN;
	to->attributes = node->attributes;
	join_object(c, to);
	to->attributes_known = node->attributes_known;
	to->object_at = node->object_at;
	to->xattrs = node->xattrs;
	to->locked = node->locked;
	to->writers = node->writers;
	to->write_count = node->write_count;
	to->link_target = steal_ptr(&node->link_target);
	to->content = steal_ptr(&node->content);
	if (to->content)
		to->content->node = to;
	to->files = steal_ptr(&node->files);
	for (struct cached_file *file = to->files; file; file = file->next)
		file->node = to;
	to->directory = steal_ptr(&node->directory);
	for (size_t i = 0; to->directory && i < to->directory->bucket_count; i++)
		for (struct node *child = to->directory->buckets[i]; child; child = child->next)
			child->parent = to;
	to->became_at = learnt->at;
	note_learnt(c, to, learnt);
	node_set_absent(c, node, learnt);
}
