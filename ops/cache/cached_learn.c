#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/cache/cached_internal.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

/* ---- What a fact says about content and extended attributes ---------------------------------- */

/* A new fact about an object, and what was known before it. */
struct update {
	const struct attributes *outcome;
	uint64_t at;
	enum source source;
	const uint8_t *hash;
	struct attributes before; /* mode 0: none were known */
	bool was_watched;         /* every change since `before` had an event */
	uint8_t mark;             /* of `before`: enum xattr_knowledge, MARK_READ */
};

/* Whether the content is as before by what the attributes say.  `settled`: the times before were
 * old enough. */
static bool is_same_content(const struct update *update, bool settled)
{
	return (settled || (update->source == FROM_LOOK && update->was_watched)) &&
	       attributes_same_version(&update->before, update->outcome);
}

/* Whether the content belongs to the new state as well.  After an own change this may be wrong if
 * others changed the file before it in the same tick; an event then reports their change. */
static bool keeps_content(const struct content *content, const struct update *update)
{
	const struct attributes *before = &update->before, *now = update->outcome;

	if (update->hash)
		return bytes_have_hash(content->data, content->size, update->hash);
	if (update->source == FROM_TIMES)
		return content->size == now->size_bytes;
	if (update->source == FROM_CHANGE)
		return content->size == now->size_bytes && clock_same(&before->mtime, &now->mtime);
	return is_same_content(update, content->settled);
}

/* The event is older than the known attributes, so the content belongs to a later state and stays.
 * Content written here is different: others may have overwritten it before that look. */
static bool outlives_older_event(const struct content *content, const struct update *update)
{
	if (content->settled ||
		(update->hash && bytes_have_hash(content->data, content->size, update->hash)))
		return true;
	return content->is_own && update->outcome->size_bytes != content->size;
}

static void settle_content(
	struct cached *c, struct extra *x, const struct update *update, bool is_newest)
{
	struct content *content = x->content;
	bool is_kept;

	if (!content ||
		(update->at <= content->at && !(content->is_own && update->source == FROM_EVENT)))
		return;
	if (is_newest && !update->before.changed_lately)
		content->settled = true;
	if (update->source == FROM_TIMES)
		content->settled = false;
	if (is_newest)
		is_kept = keeps_content(content, update);
	else
		is_kept = update->source != FROM_EVENT || outlives_older_event(content, update);
	if (is_kept && is_newest && update->hash) {
		content->at = update->at;
		content->is_own = false;
	}
	if (!is_kept) {
		content_detach(c, x);
		extra_tidy(c, x);
	}
}

static struct update update_begin(struct cached *c, uint64_t at, const struct attributes *outcome,
	enum source source, const uint8_t *hash)
{
	struct update update = {.outcome = outcome, .at = at, .source = source, .hash = hash};

	tree_last_attributes(c->tree, &outcome->id, &update.before);
	update.was_watched =
		tree_get_attributes(c->tree, &outcome->id, cached_now_ms(), NULL) == TREE_WATCHED;
	update.mark = tree_mark(c->tree, &outcome->id);
	return update;
}

bool cached_is_newest(struct cached *c, const struct object_id *id, uint64_t at)
{
	return at && tree_last_attributes(c->tree, id, NULL) == at;
}

/* The knowledge of extended attributes after the fact.  Own changes of other kinds add none. */
static enum xattr_knowledge xattrs_after(
	struct cached *c, const struct update *update, bool is_newest)
{
	bool is_same = attributes_same_version(&update->before, update->outcome);
	enum xattr_knowledge before = update->mark & MARK_XATTRS;

	/* Mostly the echo of an own change.  If others changed something in the same tick, they may
	 * have added attributes, but hardly a capability. */
	if (update->source == FROM_EVENT && is_same)
		return before == XATTRS_UNKNOWN ? XATTRS_UNKNOWN : XATTRS_NO_CAPABILITY;
	/* Others changed the object before an own change, and the event does not say what. */
	if (update->source == FROM_EVENT && !is_newest)
		return XATTRS_UNKNOWN;
	if (is_newest && (update->source == FROM_CHANGE || update->source == FROM_TIMES ||
				 (is_same && update->was_watched)))
		return before;
	return tree_mark(c->tree, &update->outcome->id) & MARK_XATTRS;
}

/* Whether a caller still has the content: in the same cases in which the cache would keep it. */
static uint8_t read_after(struct cached *c, const struct update *update, bool is_newest)
{
	if (!is_newest && update->source != FROM_EVENT)
		return tree_mark(c->tree, &update->outcome->id) & MARK_READ;
	return is_same_content(update, !update->before.changed_lately) ? update->mark & MARK_READ
								       : 0;
}

static void update_end(struct cached *c, const struct update *update)
{
	struct extra *x = extra_find(c, &update->outcome->id);
	bool is_newest = cached_is_newest(c, &update->outcome->id, update->at);

	tree_set_mark(c->tree, &update->outcome->id,
		xattrs_after(c, update, is_newest) | read_after(c, update, is_newest));
	if (x)
		settle_content(c, x, update, is_newest);
}

void cached_drop_dead(struct cached *c, const struct object_id *id)
{
	struct extra *x = extra_find(c, id);
	struct object_id directory;

	if (!x || !LIST_EMPTY(&x->files) || x->directory || tree_name_of(c->tree, id, &directory))
		return;
	content_evict(c, x);
	free(steal_ptr(&x->link_target));
	extra_tidy(c, x);
}

void cached_learn_name(struct cached *c, const struct tree_look *look,
	const struct object_id *directory, const char *name, const struct attributes *found,
	enum source source, const uint8_t *hash)
{
	struct object_id before;
	struct update update;

	if (!directory->inode || !*name) {
		if (found)
			cached_learn_attributes(c, look, found, source, hash);
		return;
	}
	tree_get_name(c->tree, directory, name, look->ms, &before);
	if (found)
		update = update_begin(c, look->at, found, source, hash);
	tree_learn_name(c->tree, look, directory, name, found);
	if (found)
		update_end(c, &update);
	cached_note_update(c);
	/* An absence that others caused may be a move: keep the content, another event follows. */
	if (before.inode && (found || source == FROM_CHANGE))
		cached_drop_dead(c, &before);
	cached_idle_drop_nameless(c, &before);
	cached_wake(c, name);
}

void cached_learn_attributes(struct cached *c, const struct tree_look *look,
	const struct attributes *attributes, enum source source, const uint8_t *hash)
{
	struct update update = update_begin(c, look->at, attributes, source, hash);

	tree_learn_attributes(c->tree, look, attributes);
	update_end(c, &update);
}

/* ---- Own changes ---------------------------------------------------------------------------- */

void cached_invalidate(
	struct cached *c, uint64_t at, const struct object_id *parent, const char *path)
{
	struct found found = cached_find_in(c, parent, path);

	if (found.directory.inode)
		tree_invalidate_name(c->tree, at, &found.directory, path_name(path));
}

void cached_invalidate_parent(struct cached *c, uint64_t at, const char *path)
{
	static const struct object_id unknown;
	cleanup_free char *parent = strndup(path, path_parent_length(path));

	if (parent)
		cached_invalidate(c, at, &unknown, parent);
}

/* Learns the attributes of the directory of the path's last name. */
static void learn_directory(struct cached *c, const struct tree_look *look,
	const struct attributes *directory, const char *path)
{
	if (!path_parent_length(path))
		c->root = directory->id;
	cached_learn_attributes(c, look, directory, FROM_CHANGE, NULL);
}

/* Uses the id of the parent rather than a walk of the path: names in a directory are known by its
 * id even if no name leads to the directory. */
static void unclear(struct cached *c, const struct asking *asking, const struct object_id *parent,
	const char *path, const struct object_id *linked)
{
	struct found found = cached_find_in(c, parent, path);

	if (found.directory.inode)
		tree_own_unclear(
			c->tree, asking->look.at, &found.directory, path_name(path), linked);
}

/* `linked`: the object that was to get the name, or NULL. */
static void failed(struct cached *c, const struct asking *asking, const struct object_id *parent,
	const char *path, const struct object_id *linked, int r)
{
	switch (-r) {
	case EACCES:
	case EBUSY:
	case EDQUOT:
	case EINVAL:
	case EMLINK:
	case ENAMETOOLONG:
	case ENOSPC:
	case ENOTEMPTY:
	case EOPNOTSUPP:
	case EPERM:
	case EROFS:
	case EXDEV:
		break; /* the error says nothing about the name */
	case EEXIST:
	case EISDIR:
	case ELOOP:
	case ENOENT:
	case ENOTDIR:
		cached_invalidate(c, asking->look.at, parent, path);
		break;
	case ESTALE:
		cached_invalidate(c, asking->look.at, parent, path);
		cached_invalidate_parent(c, asking->look.at, path);
		break;
	default:
		unclear(c, asking, parent, path,
			linked); /* the change may have been made, or may still be */
	}
}

/* Whether the reply has the directory's attributes after the change; it has none if others changed
 * the directory at the same time. */
static bool is_given(const struct asking *asking, const struct attributes *directory)
{
	return asking->look.at && directory->mode;
}

void cached_end_making(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *linked, int r, const struct attributes *made)
{
	cached_end_asking(c, ctx, asking);
	cached_made(c, asking, linked ? &ctx->new_parent : &ctx->parent, path, linked, r, made);
}

void cached_made(struct cached *c, const struct asking *asking, const struct object_id *directory,
	const char *path, const struct object_id *linked, int r, const struct attributes *made)
{
	const struct attributes *parent = &asking->outcome->parent;
	struct attributes known;

	if (r < 0) {
		failed(c, asking, directory, path, linked, r);
		return;
	}
	if (is_given(asking, parent)) {
		cached_learn_name(
			c, &asking->look, &parent->id, path_name(path), made, FROM_CHANGE, NULL);
		learn_directory(c, &asking->look, parent, path);
	} else {
		unclear(c, asking, directory, path, &made->id);
	}
	/* A new object has no capability, unless its times show a later change by others. */
	if (!linked && tree_last_attributes(c->tree, &made->id, &known) &&
		attributes_same_version(&known, made))
		tree_set_mark(c->tree, &made->id, XATTRS_NO_CAPABILITY);
}

/* The object at the name lost that name; it may have other links. */
static void invalidate_links(
	struct cached *c, uint64_t at, const struct object_id *directory, const char *path)
{
	struct object_id ignored;

	/* If the name is known, the tree knows the object and has invalidated it. */
	if (tree_get_name(c->tree, directory, path_name(path), cached_now_ms(), &ignored) ==
		TREE_ASK)
		tree_invalidate_links(c->tree, at);
}

static void learn_absence(struct cached *c, const struct tree_look *look,
	const struct attributes *parent, const char *path)
{
	cached_learn_name(c, look, &parent->id, path_name(path), NULL, FROM_CHANGE, NULL);
	learn_directory(c, look, parent, path);
}

void cached_end_removing(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *path, const struct object_id *gone, int r)
{
	const struct attributes *parent = &asking->outcome->parent;

	cached_end_asking(c, ctx, asking);
	if (r < 0) {
		failed(c, asking, &ctx->parent, path, NULL, r);
		return;
	}
	if (is_given(asking, parent)) {
		invalidate_links(c, asking->look.at, &parent->id, path);
		learn_absence(c, &asking->look, parent, path);
	} else {
		unclear(c, asking, &ctx->parent, path, NULL);
	}
	cached_drop_dead(c, gone);
}

void cached_end_moving(struct cached *c, struct op_context *ctx, struct asking *asking,
	const char *from, const char *to, unsigned flags, int r)
{
	const struct facts *outcome = asking->outcome;
	const struct attributes *object = &outcome->object;

	cached_end_asking(c, ctx, asking);
	if (r < 0) {
		failed(c, asking, &ctx->parent, from, NULL, r);
		failed(c, asking, &ctx->new_parent, to, NULL, r);
		return;
	}
	if (strcmp(from, to) == 0)
		return;
	if (!is_given(asking, &outcome->parent) || !is_given(asking, &outcome->new_parent) ||
		!object->mode) {
		unclear(c, asking, &ctx->parent, from, NULL);
		unclear(c, asking, &ctx->new_parent, to, NULL);
		return;
	}
	invalidate_links(c, asking->look.at, &outcome->new_parent.id, to);
	cached_learn_name(c, &asking->look, &outcome->new_parent.id, path_name(to), object,
		FROM_CHANGE, NULL);
	/* The reply does not say what an exchange or a whiteout left at the old name; and if both
	 * names lead to one file, rename(2) leaves both. */
	if ((flags & (RENAME_SWAP | RENAME_LEAVE_WHITEOUT)) ||
		(object->nlink > 1 && !S_ISDIR(object->mode)))
		tree_invalidate_name(
			c->tree, asking->look.at, &outcome->parent.id, path_name(from));
	else
		learn_absence(c, &asking->look, &outcome->parent, from);
	learn_directory(c, &asking->look, &outcome->parent, from);
	learn_directory(c, &asking->look, &outcome->new_parent, to);
}

void cached_changed(struct cached *c, const struct asking *asking, const struct object_id *id,
	const struct attributes *outcome, enum source source)
{
	if (asking->look.at && outcome->mode)
		cached_learn_attributes(c, &asking->look, outcome, source, NULL);
	else
		tree_invalidate_attributes(c->tree, asking->look.at, id);
}

/* ---- The change feed ------------------------------------------------------------------------ */

/* Ends the capture of handles if the event shows other content than what they have written so far:
 * others wrote to the file, too. */
static void check_captures(struct cached *c, const struct change *change)
{
	const struct attributes *now = &change->attributes;
	struct extra *x = change->exists ? extra_find(c, &now->id) : NULL;
	struct cached_file *file;

	if (!x)
		return;
	LIST_FOREACH(file, &x->files, link)
		if (file->capturing && change->at > file->opened_at && now->size_bytes > 0 &&
			(now->size_bytes > file->capture.size ||
				(change->hash && !bytes_have_hash(file->capture.data,
							 now->size_bytes, change->hash))))
			file->capturing = false;
}

static void take_entry(struct cached *c, const struct tree_look *look, const struct change *change)
{
	const struct attributes *found = change->exists ? &change->attributes : NULL;

	check_captures(c, change);
	cached_learn_name(c, look, &change->directory, path_name(change->path), found, FROM_EVENT,
		change->hash);
}

static void take_end_of_watch(
	struct cached *c, const struct tree_look *look, const struct object_id *id)
{
	struct directory *d = directory_find(c, id);

	tree_learn_watch(c->tree, look, id, false, 0);
	cached_idle_drop(c, NULL);
	if (d && !tree_watched_since(c->tree, id))
		d->scanned = false; /* a scan may add the watch again */
}

void cached_take_change(void *user, const struct change *change)
{
	const struct tree_look look = {.at = change->at, .ms = cached_now_ms()};
	const struct directory *d;
	struct cached *c = user;
	change_sink sink;

	cached_enter(c);
	c->changes++;
	switch (change->kind) {
	case CHANGE_ENTRY:
		take_entry(c, &look, change);
		break;
	case CHANGE_UNWATCHED:
		take_end_of_watch(c, &look, &change->directory);
		break;
	case CHANGE_RESCAN:
		tree_learn_loss(c->tree, &look);
		cached_idle_drop(c, NULL);
		c->lost_ms = look.ms;
		break;
	}
	d = change->kind == CHANGE_ENTRY ? directory_find(c, &change->directory) : NULL;
	sink = d && d->unsubscribed ? NULL : c->sink;
	pthread_cond_broadcast(&c->changed);
	cached_leave(c);
	if (sink)
		sink(c->sink_user, change);
}
