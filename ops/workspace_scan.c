#include "ops/workspace_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

struct pending_directory {
	struct pending_directory *next;
	struct pending_directory *parent; /* NULL: it is the root of the workspace */
	unsigned uses;                    /* one until it was visited, and those in it */
	struct object_id id;
	struct attributes attributes;
	uint64_t at; /* position of the look at it */
	uint32_t depth;
	char path[]; /* relative to the scanned directory */
};

struct child {
	struct child *next;
	struct attributes attributes;
	char name[];
};

struct walk {
	struct op_context *ctx;
	struct workspace *workspace;
	const struct object_ref *root;
	const struct scan_request *request;
	dir_entry_sink sink;
	void *user;
	struct pending_directory *first, **last;
	struct child *children, **last_child; /* of the directory being read ... */
	uint64_t at;                          /* ... and the position of that look */
	uint64_t entries;
	uint64_t content_bytes;
	struct buffer content; /* of one file: fresh memory for each costs more than reading it */
};

static void children_free(struct walk *walk)
{
	while (walk->children) {
		struct child *next = walk->children->next;

		free(walk->children);
		walk->children = next;
	}
	walk->last_child = &walk->children;
}

static void directory_unref(struct pending_directory *directory)
{
	while (directory && --directory->uses == 0) {
		struct pending_directory *parent = directory->parent;

		free(directory);
		directory = parent;
	}
}

static void directory_unref_at(struct pending_directory **directory)
{
	directory_unref(*directory);
}

static void walk_done(struct walk *walk)
{
	children_free(walk);
	buffer_done(&walk->content);
	while (walk->first) {
		struct pending_directory *next = walk->first->next;

		directory_unref(walk->first);
		walk->first = next;
	}
}

static struct pending_directory *directory_new(struct pending_directory *parent, const char *path,
	const struct attributes *attributes, uint64_t at, uint32_t depth)
{
	size_t size = strlen(path) + 1;
	struct pending_directory *directory = malloc(sizeof(*directory) + size);

	if (!directory)
		return NULL;
	*directory = (struct pending_directory){.parent = parent,
		.uses = 1,
		.id = attributes->id,
		.attributes = *attributes,
		.at = at,
		.depth = depth};
	if (parent)
		parent->uses++;
	memcpy(directory->path, path, size);
	return directory;
}

static int push_directory(struct walk *walk, struct pending_directory *parent, const char *path,
	const struct attributes *attributes, uint64_t at, uint32_t depth)
{
	struct pending_directory *directory = directory_new(parent, path, attributes, at, depth);

	if (!directory)
		return -ENOMEM;
	*walk->last = directory;
	walk->last = &directory->next;
	return 0;
}

/* The scanned directory, below those that its path leads through. */
static int push_root(struct walk *walk, const struct attributes *attributes, uint64_t at)
{
	cleanup_with(directory_unref_at) struct pending_directory *above = NULL;
	const char *path = walk->root->file ? "" : walk->root->path;

	for (const char *end = path; *path && end; end = strchr(end + 1, '/')) {
		cleanup_free char *prefix = strndup(path, (size_t)(end - path));
		struct pending_directory *next;
		struct attributes found;

		if (!prefix)
			return -ENOMEM;
		if (workspace_getattr(walk->ctx, walk->workspace, &OBJECT_AT(prefix), &found) < 0)
			continue;
		next = directory_new(above, "", &found, 0, 0);
		if (!next)
			return -ENOMEM;
		directory_unref(above);
		above = next;
	}
	return push_directory(walk, above, "", attributes, at, 0);
}

static int keep_child(void *user, const struct dir_entry *entry)
{
	struct walk *walk = user;
	size_t size = strlen(entry->path) + 1;
	struct child *child = malloc(sizeof(*child) + size);

	if (!child)
		return -ENOMEM;
	*child = (struct child){.attributes = entry->attributes};
	memcpy(child->name, entry->path, size);
	*walk->last_child = child;
	walk->last_child = &child->next;
	return 0;
}

/* Reads a small file whole; NULL when it changed or cannot be read. */
static const void *read_whole(struct walk *walk, const struct object_ref *object, size_t size)
{
	struct attributes attributes;
	struct open_file *file;
	ssize_t got;

	if (buffer_reserve(&walk->content, size + 1) < 0 ||
		workspace_open_file(walk->ctx, walk->workspace, object, O_RDONLY | O_NOATIME, &file,
			&attributes) < 0)
		return NULL;
	got = workspace_read(walk->ctx, file, walk->content.data, size + 1, 0);
	workspace_close(walk->ctx, file);
	return got == (ssize_t)size ? walk->content.data : NULL;
}

static int emit_child(
	struct walk *walk, const char *path, const char *full_path, const struct child *child)
{
	const struct attributes *attributes = &child->attributes;
	struct object_ref object = {.path = full_path, .id = attributes->id};
	struct dir_entry entry = {.path = path, .attributes = *attributes, .at = walk->at};
	cleanup_free char *target = NULL;
	const struct scan_request *request = walk->request;
	bool wanted = (request->flags & SCAN_CONTENT) && S_ISREG(attributes->mode) &&
		      attributes->size_bytes <= request->content_max_bytes;
	bool in_budget =
		!request->content_total_bytes ||
		walk->content_bytes + attributes->size_bytes <= request->content_total_bytes;

	if (S_ISLNK(attributes->mode) &&
		workspace_readlink(walk->ctx, walk->workspace, &object, &target) == 0)
		entry.link_target = target;
	if (wanted && in_budget)
		entry.content = read_whole(walk, &object, attributes->size_bytes);
	if (entry.content) {
		entry.content_size = attributes->size_bytes;
		walk->content_bytes += attributes->size_bytes;
	}
	return walk->sink(walk->user, &entry);
}

static bool is_full(const struct walk *walk)
{
	return walk->request->entries_max && walk->entries >= walk->request->entries_max;
}

static int emit_children(struct walk *walk, struct pending_directory *directory)
{
	for (const struct child *child = walk->children; child; child = child->next) {
		cleanup_free char *path = path_join(directory->path, child->name);
		cleanup_free char *full_path = path ? path_join(walk->root->path, path) : NULL;
		int r;

		if (!full_path)
			return -ENOMEM;
		walk->entries++;
		if (S_ISDIR(child->attributes.mode))
			r = push_directory(walk, directory, path, &child->attributes, walk->at,
				directory->depth + 1);
		else
			r = emit_child(walk, path, full_path, child);
		if (r < 0)
			return r;
	}
	return 0;
}

/* It is mounted in itself.  A copy of a mount lacks what is mounted in it: by that way the same
 * directories hold other names, which would count as theirs. */
static bool is_in_itself(const struct pending_directory *directory)
{
	for (const struct pending_directory *above = directory->parent; above;
		above = above->parent)
		if (object_id_equal(&above->id, &directory->id))
			return true;
	return false;
}

/* A directory's own entry is emitted once it has been read: only then is it known
 * whether it is watched and complete. */
static int visit(struct walk *walk, struct pending_directory *directory)
{
	struct dir_entry entry = {
		.path = directory->path, .attributes = directory->attributes, .at = directory->at};
	cleanup_free char *full_path = path_join(walk->root->path, directory->path);
	struct object_ref object = {.path = full_path, .id = directory->id};
	bool too_deep = walk->request->depth_max && directory->depth >= walk->request->depth_max;
	bool is_left_out =
		(walk->request->flags & SCAN_NOT_HIDDEN) && *path_name(directory->path) == '.';
	int r;

	if (!full_path)
		return -ENOMEM;
	if (!*directory->path)
		object.file = walk->root->file;
	if (op_interrupted(walk->ctx))
		return -EINTR;
	children_free(walk);
	if (!too_deep && !is_left_out && !is_full(walk) && !is_in_itself(directory)) {
		r = workspace_readdir(walk->ctx, walk->workspace, &object,
			walk->request->flags & SCAN_WATCH, keep_child, walk, &entry.watched_since);
		walk->at = walk->ctx->served.position;
		if (r < 0 && (!*directory->path || r == -EINTR || r == -ENOMEM || r == -ENOTCONN))
			return r;
		if (r < 0)
			children_free(walk);
		/* What its parent said of it is from before it was watched. */
		entry.complete = r == 0 && workspace_getattr(walk->ctx, walk->workspace, &object,
						   &entry.attributes) == 0;
		if (entry.complete)
			entry.at = walk->at;
	}
	r = walk->sink(walk->user, &entry);
	return r < 0 ? r : emit_children(walk, directory);
}

int workspace_scan_by_walking(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	struct walk walk = {.ctx = ctx,
		.workspace = w,
		.root = directory,
		.request = request,
		.sink = sink,
		.user = user};
	struct attributes attributes;
	uint64_t at;
	int r;

	walk.last = &walk.first;
	walk.last_child = &walk.children;
	r = workspace_getattr(ctx, w, directory, &attributes);
	at = ctx->served.position;
	if (r == 0)
		r = push_root(&walk, &attributes, at);
	while (r == 0 && walk.first) {
		struct pending_directory *next = walk.first;

		walk.first = next->next;
		if (!walk.first)
			walk.last = &walk.first;
		r = visit(&walk, next);
		directory_unref(next);
	}
	walk_done(&walk);
	ctx->served.position = at; /* everything was looked at later */
	return r < 0 ? r : 0;
}
