#include "ops/workspace_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/glob.h"
#include "ops/support/ignore.h"
#include "ops/read_data.h"
#include "ops/read_first.h"
#include "ops/support/path.h"
#include "ops/workspace.h"
#include "ops/workspace_search.h"

enum {
	FILES_MAX = 256,                   /* files that are looked through together ... */
	DIRECTORIES_MAX = 64,              /* ... in so many directories */
	IGNORE_FILE_MAX_BYTES = 256 << 10, /* larger ones are passed over */
	FIRST_TOTAL_MAX_BYTES = 1 << 20,   /* of those that are read first in a scan */
	CONTENT_COST_BYTES = 256,          /* of the content of an empty file: calls, and memory */
};

struct pending_directory {
	struct pending_directory *next;
	struct pending_directory *parent; /* NULL: it is the root of the workspace */
	unsigned uses;                    /* one until it was visited, and those in it */
	struct ignore *ignore;            /* the lists above it; NULL: none */
	bool is_ignored;
	bool is_first; /* it is looked into first: no bound of depth, and of twice the entries */
	struct object_id id;
	struct attributes attributes;
	uint64_t at; /* position of the look at it */
	uint32_t depth;
	char path[]; /* relative to the scanned directory */
};

struct child {
	struct child *next;
	struct attributes attributes;
	bool is_ignored;
	struct searched_file *searched; /* NULL: it is not looked through */
	char name[];
};

/* A directory that was read: what is in it is looked through, and reported. */
struct visit {
	struct visit *next;
	struct pending_directory *directory;
	struct dir_entry entry;
	struct child *children, **last_child;
	uint64_t at;           /* position of the look at these */
	struct ignore *ignore; /* the lists for them */
	enum git_part git_part;
	char path[]; /* from the root of the workspace */
};

/* How far the walk has come: what is in front of `child` of that visit; NULL: all of it. */
struct progress {
	struct visit *visit;
	struct child *child;
};

/* Files that are looked through together. */
struct batch {
	struct searched_file *files[FILES_MAX];
	size_t count;
	struct progress end;
};

struct walk {
	struct op_context *ctx;
	struct workspace *workspace;
	const struct object_ref *root;
	const struct scan_request *request;
	dir_entry_sink sink;
	void *user;
	struct pending_directory *first, **last;
	struct ignore *above;           /* the lists above the scanned directory */
	struct visit *visits;           /* not reported yet, the one under way first */
	struct progress read, reported; /* what is in front of them was */
	uint64_t entries;               /* read */
	uint64_t content_bytes;
	uint64_t first_bytes;  /* of files that are read first */
	struct buffer content; /* of one file: fresh memory for each costs more than reading it */
	struct text_search *search; /* NULL: no search */
	struct batch batches[2];    /* of a search: one is looked through while others are read and
				       reported */
	struct glob names;          /* of the files that are looked through, if request->names */
};

static void directory_unref(struct pending_directory *directory)
{
	while (directory && --directory->uses == 0) {
		struct pending_directory *parent = directory->parent;

		ignore_unref(directory->ignore);
		free(directory);
		directory = parent;
	}
}

static void directory_unref_at(struct pending_directory **directory)
{
	directory_unref(*directory);
}

static void children_free(struct visit *visit)
{
	while (visit->children) {
		struct child *next = visit->children->next;

		if (visit->children->searched)
			buffer_done(&visit->children->searched->lines);
		free(visit->children->searched);
		free(visit->children);
		visit->children = next;
	}
	visit->last_child = &visit->children;
}

static void visit_free(struct visit *visit)
{
	children_free(visit);
	directory_unref(visit->directory);
	ignore_unref(visit->ignore);
	free(visit);
}

static void walk_done(struct walk *walk)
{
	text_search_free(walk->search);
	while (walk->visits) {
		struct visit *next = walk->visits->next;

		visit_free(walk->visits);
		walk->visits = next;
	}
	buffer_done(&walk->content);
	ignore_unref(walk->above);
	glob_done(&walk->names);
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

static void push_directory(
	struct walk *walk, struct pending_directory *directory, struct ignore *ignore)
{
	directory->ignore = ignore_ref(ignore);
	*walk->last = directory;
	walk->last = &directory->next;
}

/* The scanned directory, below those that its path leads through. */
static int push_root(struct walk *walk, const struct attributes *attributes, uint64_t at)
{
	cleanup_with(directory_unref_at) struct pending_directory *above = NULL;
	struct pending_directory *top;
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
	top = directory_new(above, "", attributes, at, 0);
	if (!top)
		return -ENOMEM;
	push_directory(walk, top, walk->above);
	return 0;
}

static int keep_child(void *user, const struct dir_entry *entry)
{
	struct visit *visit = user;
	size_t size = strlen(entry->path) + 1;
	struct child *child = malloc(sizeof(*child) + size);

	if (!child)
		return -ENOMEM;
	*child = (struct child){.attributes = entry->attributes};
	memcpy(child->name, entry->path, size);
	*visit->last_child = child;
	visit->last_child = &child->next;
	return 0;
}

/* Reads a small file whole; NULL when it changed or cannot be read. */
static const void *read_whole(struct walk *walk, const struct object_ref *object, size_t size)
{
	struct attributes attributes;
	struct open_file *file;
	bool is_whole;
	char more;

	if (buffer_reserve(&walk->content, size + 1) < 0 ||
		workspace_open_file(walk->ctx, walk->workspace, object, O_RDONLY | O_NOATIME, &file,
			&attributes) < 0)
		return NULL;
	is_whole = read_data(walk->ctx, file, walk->content.data, size) == (ssize_t)size &&
		   workspace_read(walk->ctx, file, &more, 1, (off_t)size) == 0;
	workspace_close(walk->ctx, file);
	return is_whole ? walk->content.data : NULL;
}

/* ---- What git ignores ------------------------------------------------------------------ */

/* Puts the patterns of a directory's file in front of `*chain`. */
static int add_list(
	struct walk *walk, const char *directory, const struct child *file, struct ignore **chain)
{
	cleanup_free char *path = path_join(directory, file->name);
	const struct object_ref object = {.path = path, .id = file->attributes.id};
	uint64_t size = file->attributes.size_bytes;
	const char *content;
	int r;

	if (!path)
		return -ENOMEM;
	if (!S_ISREG(file->attributes.mode) || size > IGNORE_FILE_MAX_BYTES)
		return 0;
	content = read_whole(walk, &object, size);
	r = content ? ignore_add(chain, directory, content, size) : 0;
	return r < 0 ? r : 0;
}

/* The lists for what is in the directory that was read; a repository in another begins anew. */
static int enter(struct walk *walk, struct visit *visit)
{
	const struct child *list = NULL;
	bool begins_anew = false;

	if (!(walk->request->flags & SCAN_NOT_IGNORED))
		return 0;
	for (const struct child *child = visit->children; child; child = child->next) {
		if (strcmp(child->name, ".gitignore") == 0)
			list = child;
		if (strcmp(child->name, ".git") == 0 && *visit->directory->path)
			begins_anew = true;
	}
	visit->ignore = begins_anew ? NULL : ignore_ref(visit->directory->ignore);
	return list ? add_list(walk, visit->path, list, &visit->ignore) : 0;
}

/* The lists of the directories above the one that is scanned. */
static int enter_above(struct walk *walk)
{
	const char *path = walk->root->path;
	int r = 0;

	if (!(walk->request->flags & SCAN_NOT_IGNORED))
		return 0;
	for (size_t length = 0; r == 0 && path[length]; length += strcspn(path + length, "/")) {
		cleanup_free char *directory = strndup(path, length), *name = NULL;
		struct child *file = calloc(1, sizeof(*file) + sizeof(".gitignore"));

		length += path[length] == '/';
		name = directory ? path_join(directory, ".gitignore") : NULL;
		if (!name || !file)
			r = -ENOMEM;
		else if (workspace_getattr(walk->ctx, walk->workspace, &OBJECT_AT(name),
				 &file->attributes) == 0) {
			strcpy(file->name, ".gitignore");
			r = add_list(walk, directory, file, &walk->above);
		}
		free(file);
	}
	return r;
}

/* Of a repository's own files, those are reported that have patterns, or say where there are more.
 */
static bool has_patterns(enum git_part part, const char *name)
{
	return strcmp(name, part == IN_GIT        ? "config"
			    : part == IN_GIT_INFO ? "exclude"
						  : ".gitignore") == 0;
}

static bool is_ignored(
	const struct walk *walk, const struct visit *visit, const char *path, bool is_directory)
{
	const char *name = path_name(path);

	if (!(walk->request->flags & SCAN_NOT_IGNORED))
		return false;
	if (visit->git_part == IN_GIT || visit->git_part == IN_GIT_INFO)
		return !is_directory || visit->git_part != IN_GIT || strcmp(name, "info") != 0;
	if (strcmp(name, ".git") == 0)
		return !is_directory;
	return ignore_matches(visit->ignore, path, is_directory);
}

/* ---- Reading directories ------------------------------------------------------------------- */

/* What is looked into first may come on top, but not without a bound. */
static bool is_too_much(const struct walk *walk, const struct pending_directory *directory)
{
	const struct scan_request *request = walk->request;
	uint64_t entries = directory->is_first ? walk->entries / 2 : walk->entries;

	return (request->entries_max && entries >= request->entries_max) ||
	       (request->depth_max && directory->depth >= request->depth_max &&
		       !directory->is_first);
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

static bool is_left_out(const struct walk *walk, const struct pending_directory *directory)
{
	const struct scan_request *request = walk->request;

	return is_too_much(walk, directory) || directory->is_ignored ||
	       ((request->flags & SCAN_NOT_HIDDEN) && *path_name(directory->path) == '.') ||
	       is_in_itself(directory);
}

/* What it says of itself is known once it has been read: whether it is watched, and complete. */
static int list_children(struct walk *walk, struct visit *visit)
{
	struct pending_directory *directory = visit->directory;
	struct object_ref object = {.path = visit->path, .id = directory->id};
	int r;

	if (!*directory->path)
		object.file = walk->root->file;
	r = workspace_readdir(walk->ctx, walk->workspace, &object,
		walk->request->flags & SCAN_WATCH, keep_child, visit, &visit->entry.watched_since);
	visit->at = walk->ctx->served.position;
	if (r < 0 && (!*directory->path || r == -EINTR || r == -ENOMEM || r == -ENOTCONN))
		return r;
	if (r < 0)
		children_free(visit);
	/* What its parent said of it is from before it was watched. */
	visit->entry.complete = r == 0 && workspace_getattr(walk->ctx, walk->workspace, &object,
						  &visit->entry.attributes) == 0;
	if (visit->entry.complete)
		visit->entry.at = visit->at;
	return 0;
}

static struct visit *visit_new(struct walk *walk, struct pending_directory *directory)
{
	cleanup_free char *path = path_join(walk->root->path, directory->path);
	size_t size = path ? strlen(path) + 1 : 0;
	struct visit *visit = path ? malloc(sizeof(*visit) + size) : NULL;

	if (!visit) {
		directory_unref(directory);
		return NULL;
	}
	*visit = (struct visit){.directory = directory,
		.entry = {.path = directory->path,
			.attributes = directory->attributes,
			.at = directory->at}};
	memcpy(visit->path, path, size);
	visit->git_part = git_part_of(path);
	visit->last_child = &visit->children;
	return visit;
}

static int read_next(struct walk *walk)
{
	struct pending_directory *directory = walk->first;
	struct visit *visit;
	int r = 0;

	if (op_interrupted(walk->ctx))
		return -EINTR;
	walk->first = directory->next;
	if (!walk->first)
		walk->last = &walk->first;
	visit = visit_new(walk, directory);
	if (!visit)
		return -ENOMEM;
	if (walk->read.visit)
		walk->read.visit->next = visit;
	else
		walk->visits = visit;
	if (!is_left_out(walk, directory))
		r = list_children(walk, visit);
	if (r == 0)
		r = enter(walk, visit);
	walk->read = (struct progress){visit, visit->children};
	return r;
}

/* ---- Looking through files ------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static bool is_searched(const struct walk *walk, const struct child *child)
{
	const struct scan_request *request = walk->request;

	return S_ISREG(child->attributes.mode) && !child->attributes.is_generated &&
	       !child->is_ignored && (!request->names || glob_matches(&walk->names, child->name)) &&
	       !(request->known_count &&
		       bsearch(&child->attributes.id.inode, request->known, request->known_count,
			       sizeof(*request->known), by_number));
}

static int take_directory(struct walk *walk, struct visit *visit, const struct child *child)
{
	cleanup_free char *path = path_join(visit->directory->path, child->name);
	struct pending_directory *directory =
		path ? directory_new(visit->directory, path, &child->attributes, visit->at,
			       visit->directory->depth + 1)
		     : NULL;

	if (!directory)
		return -ENOMEM;
	directory->is_ignored = child->is_ignored;
	directory->is_first = (walk->request->flags & SCAN_READ_FIRST) &&
			      is_looked_into_first(visit->git_part, child->name);
	push_directory(walk, directory, visit->ignore);
	return 0;
}

/* Puts a directory on the list of those to be read, and a file into the batch. */
static int take_child(
	struct walk *walk, struct visit *visit, struct child *child, struct batch *batch)
{
	cleanup_free char *path = path_join(visit->path, child->name);
	bool is_directory = S_ISDIR(child->attributes.mode);

	if (!path)
		return -ENOMEM;
	walk->entries++;
	child->is_ignored = is_ignored(walk, visit, path, is_directory);
	if (is_directory)
		return take_directory(walk, visit, child);
	if (walk->search && is_searched(walk, child)) {
		child->searched = malloc(sizeof(*child->searched));
		if (!child->searched)
			return -ENOMEM;
		*child->searched = (struct searched_file){
			.directory = visit->path, .name = child->name, .id = child->attributes.id};
		batch->files[batch->count++] = child->searched;
	}
	return 0;
}

/* Goes on with the directory that was read last, then with others. */
static int fill(struct walk *walk, struct batch *batch)
{
	size_t directories = 0, most = walk->search ? DIRECTORIES_MAX : 1;
	int r = 0;

	batch->count = 0;
	while (r == 0 && batch->count < FILES_MAX) {
		struct child *child = walk->read.child;

		if (child) {
			walk->read.child = child->next;
			r = take_child(walk, walk->read.visit, child, batch);
		} else if (walk->first && directories++ < most) {
			r = read_next(walk);
		} else {
			break;
		}
	}
	batch->end = walk->read;
	return r;
}

/* ---- Telling -------------------------------------------------------------------------------- */

static bool is_brought_first(const struct walk *walk, enum git_part part, const struct child *child)
{
	uint64_t size = child->attributes.size_bytes;

	return (walk->request->flags & SCAN_READ_FIRST) && is_read_first(part, child->name, size) &&
	       walk->first_bytes + size + CONTENT_COST_BYTES <= FIRST_TOTAL_MAX_BYTES;
}

static bool wants_content(
	const struct walk *walk, enum git_part git_part, const struct child *child)
{
	const struct scan_request *request = walk->request;
	uint64_t size = child->attributes.size_bytes;

	if (!S_ISREG(child->attributes.mode) || child->attributes.is_generated)
		return false;
	if ((request->flags & SCAN_NOT_IGNORED) && has_patterns(git_part, child->name))
		return size <= IGNORE_FILE_MAX_BYTES;
	if (is_brought_first(walk, git_part, child))
		return true;
	return (request->flags & SCAN_CONTENT) && size <= request->content_max_bytes &&
	       (!request->content_total_bytes || walk->content_bytes + size + CONTENT_COST_BYTES <=
							 request->content_total_bytes) &&
	       (!request->texts || (child->searched && !child->searched->lacks &&
					   !child->searched->lines.size));
}

static int tell_child(struct walk *walk, const struct visit *visit, const struct child *child)
{
	static const struct searched_file none;
	const struct searched_file *searched = child->searched ? child->searched : &none;
	const struct attributes *attributes = &child->attributes;
	cleanup_free char *path = path_join(visit->directory->path, child->name);
	cleanup_free char *full_path = path_join(visit->path, child->name), *target = NULL;
	struct object_ref object = {.path = full_path, .id = attributes->id};
	struct dir_entry entry = {.path = path,
		.attributes = *attributes,
		.at = visit->at,
		.lacks_texts = searched->lacks,
		.lines = searched->lines.size ? searched->lines.data : NULL,
		.lines_size = searched->lines.size};

	if (!path || !full_path)
		return -ENOMEM;
	if (S_ISLNK(attributes->mode) &&
		workspace_readlink(walk->ctx, walk->workspace, &object, &target) == 0)
		entry.link_target = target;
	if (wants_content(walk, visit->git_part, child))
		entry.content = read_whole(walk, &object, attributes->size_bytes);
	if (entry.content) {
		entry.content_size = attributes->size_bytes;
		if (is_brought_first(walk, visit->git_part, child))
			walk->first_bytes += attributes->size_bytes + CONTENT_COST_BYTES;
		else
			walk->content_bytes += attributes->size_bytes + CONTENT_COST_BYTES;
	}
	return walk->sink(walk->user, &entry);
}

/* The next directory, or what is next in the one under way. */
static int report_next(struct walk *walk)
{
	struct visit *visit = walk->reported.visit;
	struct child *child = walk->reported.child;

	if (child) {
		walk->reported.child = child->next;
		return S_ISDIR(child->attributes.mode) ? 0 : tell_child(walk, visit, child);
	}
	if (visit) {
		walk->visits = visit->next;
		visit_free(visit);
	}
	walk->reported = (struct progress){walk->visits, walk->visits->children};
	return walk->sink(walk->user, &walk->visits->entry);
}

static bool is_at(const struct progress *a, const struct progress *b)
{
	return a->visit == b->visit && a->child == b->child;
}

static int report_until(struct walk *walk, const struct progress *end)
{
	int r = 0;

	while (r >= 0 && !is_at(&walk->reported, end))
		r = report_next(walk);
	return r < 0 ? r : 0;
}

/* ---- All of it ------------------------------------------------------------------------------ */

/* While others look through one batch, the next one is read, and the one before is reported. */
static int go(struct walk *walk)
{
	struct batch *now = &walk->batches[0], *next = &walk->batches[1];
	int r;

	do {
		struct batch *last = now;

		r = fill(walk, next);
		if (r == 0 && walk->search)
			r = text_search_finish(walk->search);
		if (r == 0 && walk->search)
			text_search_start(walk->search, next->files, next->count);
		if (r == 0)
			r = report_until(walk, walk->search ? &now->end : &next->end);
		now = next;
		next = last;
	} while (r == 0 &&
		 (walk->first || walk->read.child || !is_at(&walk->reported, &walk->read)));
	return r;
}

static int start(struct walk *walk, uint64_t *at)
{
	const struct scan_request *request = walk->request;
	const struct text_search_options options = {
		request->texts, request->wants_lines, request->context};
	struct attributes attributes;
	int r = request->names ? glob_compile(request->names, &walk->names) : 0;

	if (r < 0 && r != -ENOMEM)
		return -EINVAL;
	if (r == 0 && request->texts)
		r = text_search_new(walk->ctx, walk->workspace, &options, &walk->search);
	if (r == 0)
		r = enter_above(walk);
	if (r == 0)
		r = workspace_getattr(walk->ctx, walk->workspace, walk->root, &attributes);
	*at = walk->ctx->served.position;
	return r < 0 ? r : push_root(walk, &attributes, *at);
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
	uint64_t at = 0;
	int r;

	walk.last = &walk.first;
	r = start(&walk, &at);
	if (r == 0)
		r = go(&walk);
	walk_done(&walk);
	ctx->served.position = at; /* everything was looked at later */
	return r < 0 ? r : 0;
}
