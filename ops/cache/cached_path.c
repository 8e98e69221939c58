#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/cache/cached_internal.h"
#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { DEPTH_MAX = 4096 }; /* known names may form a cycle for a moment */

uint64_t cached_now_ms(void)
{
	return (uint64_t)clock_now_ms() + 1;
}

/* ---- The lock and calls ------------------------------------------------------------------- */

void cached_enter(struct cached *c)
{
	pthread_mutex_lock(&c->lock);
}

void cached_leave(struct cached *c)
{
	struct unheard *list = c->unheard;

	c->unheard = NULL;
	pthread_mutex_unlock(&c->lock);
	while (list) {
		struct unheard *next = list->next;

		workspace_unwatch(c->base.inner, &(struct object_ref){.path = "", .id = list->id});
		free(list);
		list = next;
	}
}

void cached_expire_unwatched(struct cached *c)
{
	c->expired_ms = cached_now_ms();
	tree_expire_unwatched(c->tree, c->expired_ms + 1);
}

struct tree_look cached_look(const struct cached *c, uint64_t at, uint64_t asked_ms)
{
	return (struct tree_look){
		.at = at, .ms = asked_ms <= c->expired_ms ? asked_ms : cached_now_ms()};
}

void cached_count_trip(struct cached *c, uint64_t started_ms)
{
	uint64_t took_us = (cached_now_ms() - started_ms) * 1000;

	c->statistics.misses++;
	c->round_trip_us = c->round_trip_us ? (c->round_trip_us * 7 + took_us) / 8 : took_us;
}

void cached_ask(struct cached *c, struct op_context *ctx, struct asking *asking)
{
	*asking = (struct asking){.asked_ms = cached_now_ms()};
	ctx->served.position = 0;
	cached_leave(c);
}

void cached_begin_change(struct cached *c, struct op_context *ctx, struct asking *asking)
{
	c->changes++;
	cached_ask(c, ctx, asking);
	asking->outcome = ctx->facts ? ctx->facts : &asking->facts;
	ctx->facts = asking->outcome;
}

void cached_take_reply(struct cached *c, struct op_context *ctx, struct asking *asking)
{
	if (ctx->facts == &asking->facts)
		ctx->facts = NULL;
	cached_enter(c);
	cached_note_update(c);
	asking->look = cached_look(c, ctx->served.position, asking->asked_ms);
}

void cached_end_asking(struct cached *c, struct op_context *ctx, struct asking *asking)
{
	cached_take_reply(c, ctx, asking);
	cached_count_trip(c, asking->asked_ms);
}

/* ---- Paths ---------------------------------------------------------------------------------- */

/* The next name of a path; its length, or 0 at the end or when no name is that long. */
static size_t next_name(const char *path, char name[256])
{
	size_t length = strcspn(path, "/");

	if (length > 255)
		return 0;
	memcpy(name, path, length);
	name[length] = '\0';
	return length;
}

int cached_walk(struct cached *c, const char *path, struct found *ret_found)
{
	struct object_id at = c->root;
	uint64_t now_ms = cached_now_ms();
	char name[256];
	size_t length;

	*ret_found = (struct found){0};
	for (; *path; path += length + 1) {
		uint32_t type = at.inode ? tree_type(c->tree, &at) : 0;
		enum tree_validity v = TREE_ASK;
		struct object_id id = {0};

		if (type && type != S_IFDIR)
			return type == S_IFLNK ? -ELOOP : -ENOTDIR;
		length = next_name(path, name);
		if (length == 0)
			return -EAGAIN;
		if (!path[length])
			ret_found->directory = at;
		if (at.inode)
			v = tree_get_name(c->tree, &at, name, now_ms, &id);
		if (v == TREE_ASK || (id.inode && !tree_type(c->tree, &id)))
			return -EAGAIN;
		if (!id.inode)
			return -ENOENT;
		at = id;
		if (!path[length])
			break;
	}
	ret_found->id = at;
	return 0;
}

struct found cached_find(struct cached *c, const char *path)
{
	struct found found = {.id = c->root};
	char name[256];
	size_t length;

	for (; *path && found.id.inode; path += length + 1) {
		length = next_name(path, name);
		if (length == 0)
			return (struct found){0};
		found.directory = found.id;
		tree_get_name(c->tree, &found.directory, name, 0, &found.id);
		if (!path[length])
			return found;
	}
	if (*path)
		return (struct found){0};
	return found;
}

struct found cached_find_in(struct cached *c, const struct object_id *directory, const char *path)
{
	struct found found = {.directory = *directory};

	if (!directory->inode || !*path)
		return cached_find(c, path);
	tree_get_name(c->tree, directory, path_name(path), 0, &found.id);
	return found;
}

int cached_path_of(struct cached *c, const struct object_id *id, char **ret_path)
{
	struct object_id at = *id, directory;
	const char *names[DEPTH_MAX];
	cleanup_buffer struct buffer path = {0};
	int depth = 0, r = 0;

	while (!object_id_equal(&at, &c->root)) {
		const char *name =
			depth < DEPTH_MAX ? tree_name_of(c->tree, &at, &directory) : NULL;

		if (!name)
			return -ENOENT;
		names[depth++] = name;
		at = directory;
	}
	while (depth-- > 0 && r == 0) {
		r = buffer_append_string(&path, names[depth]);
		if (r == 0 && depth > 0)
			r = buffer_append_string(&path, "/");
	}
	if (r == 0)
		*ret_path = buffer_steal_string(&path);
	return r == 0 && *ret_path ? 0 : -ENOMEM;
}

bool extra_is_usable(const struct cached *c, const struct extra *x)
{
	return !x->granted_at || !extra_is_locked(x) ||
	       (c->lost_ms < x->granted_ms &&
		       tree_last_attributes(c->tree, &x->id, NULL) >= x->granted_at);
}

bool cached_get_attributes(
	struct cached *c, const struct object_id *id, struct attributes *ret_attributes)
{
	const struct extra *x = extra_find(c, id);

	if (x && ((x->writers > 0 && x->seen_turn != x->turn) || !extra_is_usable(c, x)))
		return false;
	return tree_get_attributes(c->tree, id, cached_now_ms(), ret_attributes) != TREE_ASK;
}

/* ---- Data of objects --------------------------------------------------------------------------
 */

struct extra *extra_find(struct cached *c, const struct object_id *id)
{
	return tree_kept(c->tree, id);
}

struct extra *extra_make(struct cached *c, const struct object_id *id)
{
	struct extra *x = extra_find(c, id);

	if (x)
		return x;
	x = slab_alloc(&c->extras, sizeof(*x));
	if (!x || tree_keep(c->tree, id, x) < 0) {
		slab_free(&c->extras, x, sizeof(*x));
		return NULL;
	}
	x->id = *id;
	return x;
}

struct directory *directory_find(struct cached *c, const struct object_id *id)
{
	const struct extra *x = extra_find(c, id);

	return x ? x->directory : NULL;
}

struct directory *directory_make(struct cached *c, const struct object_id *id)
{
	struct extra *x = extra_make(c, id);

	if (x && !x->directory)
		x->directory = slab_alloc(&c->extras, sizeof(*x->directory));
	return x ? x->directory : NULL;
}

bool extra_is_locked(const struct extra *x)
{
	const struct cached_file *file;

	LIST_FOREACH(file, &x->files, link)
		if (file->has_locks)
			return true;
	return false;
}

void extra_set_target(struct cached *c, const struct object_id *id, const char *target)
{
	struct extra *x = extra_make(c, id);

	if (x && !x->link_target)
		x->link_target = strdup(target);
}

static void extra_free(struct cached *c, struct extra *x)
{
	if (!x)
		return;
	content_evict(c, x);
	free(x->link_target);
	slab_free(&c->extras, x->directory, sizeof(*x->directory));
	slab_free(&c->extras, x, sizeof(*x));
}

void extra_tidy(struct cached *c, struct extra *x)
{
	if (!LIST_EMPTY(&x->files) || x->content || x->link_target || x->directory)
		return;
	tree_keep(c->tree, &x->id, NULL);
	extra_free(c, x);
}

bool cached_end_watch(struct cached *c, const struct object_id *id)
{
	struct unheard *unheard = malloc(sizeof(*unheard));

	if (!unheard)
		return false;
	*unheard = (struct unheard){.next = c->unheard, .id = *id};
	c->unheard = unheard;
	cached_idle_drop(c, NULL);
	return true;
}

bool cached_drop(void *user, const struct object_id *id, void *kept)
{
	struct cached *c = user;
	struct extra *x = kept;
	bool is_subscribed = x && x->directory && x->directory->subscribed;

	if ((x && !LIST_EMPTY(&x->files)) || (!c->stopping && object_id_equal(id, &c->root)))
		return false;
	if (!c->stopping && !is_subscribed && tree_watched_since(c->tree, id) &&
		!cached_end_watch(c, id))
		return false;
	cached_idle_drop(c, id);
	extra_free(c, x);
	return true;
}
