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
#include "ops/support/path.h"
#include "ops/workspace.h"
#include "ops/workspace_search.h"

enum {
	FILES_MAX = 256,                   /* files that are looked through before they are told */
	IGNORE_FILE_MAX_BYTES = 256 << 10, /* larger ones are passed over */
	FIRST_FILE_MAX_BYTES = 16 << 10,   /* of those that are read first: each ... */
	FIRST_TOTAL_MAX_BYTES = 1 << 20,   /* ... and all in a scan */
};

/* Of a repository's own files, those are told that have patterns, or say where there are more. */
enum git_place { NOT_GIT, IN_GIT, IN_GIT_INFO };

struct pending_directory {
	struct pending_directory *next;
	struct pending_directory *parent; /* NULL: it is the root of the workspace */
	unsigned uses;                    /* one until it was visited, and those in it */
	struct ignore *ignore;            /* the lists above it; NULL: none */
	bool is_ignored;
	struct object_id id;
	struct attributes attributes;
	uint64_t at; /* position of the look at it */
	uint32_t depth;
	char path[]; /* relative to the scanned directory */
};

struct child {
	struct child *next;
	struct attributes attributes;
	bool is_ignored, is_looked_through, lacks_texts;
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
	uint64_t first_bytes;  /* of files that are read first */
	struct buffer content; /* of one file: fresh memory for each costs more than reading it */
	struct ignore *ignore; /* the lists for what is in the directory being read ... */
	enum git_place git_place;   /* ... and whether that is a repository's own */
	struct text_search *search; /* NULL: no search */
	struct glob names;          /* of the files that are looked through, if request->names */
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

		ignore_unref(directory->ignore);
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
	ignore_unref(walk->ignore);
	text_search_free(walk->search);
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

static int push_directory(struct walk *walk, struct pending_directory *parent, const char *path,
	const struct attributes *attributes, uint64_t at, uint32_t depth, bool is_ignored)
{
	struct pending_directory *directory = directory_new(parent, path, attributes, at, depth);

	if (!directory)
		return -ENOMEM;
	directory->ignore = ignore_ref(walk->ignore);
	directory->is_ignored = is_ignored;
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
	return push_directory(walk, above, "", attributes, at, 0, false);
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

bool scan_is_read_first(const char *name)
{
	static const char *const names[] = {".gitignore", ".gitattributes", ".gitmodules",
		".editorconfig", ".ignore", ".rgignore", ".clang-format", ".npmrc", ".nvmrc",
		".prettierrc", ".eslintrc.json", "package.json", "tsconfig.json", "Makefile",
		"makefile", "GNUmakefile", "Makefile.am", "Makefile.in", "Kbuild", "Kconfig",
		"CMakeLists.txt", "meson.build", "meson_options.txt", "BUILD", "BUILD.bazel",
		"Cargo.toml", "go.mod", "pyproject.toml", "setup.cfg", "setup.py", "tox.ini",
		"pom.xml", "build.gradle", "composer.json", "Gemfile", "AGENTS.md", "CLAUDE.md"};
	const char *dot = strrchr(name, '.');

	if (dot && strcmp(dot, ".mk") == 0)
		return true;
	for (size_t i = 0; i < array_size(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* ---- What git ignores ------------------------------------------------------------------ */

static enum git_place git_place_of(const char *directory)
{
	size_t length = path_parent_length(directory);
	const char *name = path_name(directory);

	if (strcmp(name, ".git") == 0)
		return IN_GIT;
	if (strcmp(name, "info") != 0 || length < 4 || strncmp(directory + length - 4, ".git", 4))
		return NOT_GIT;
	return length == 4 || directory[length - 5] == '/' ? IN_GIT_INFO : NOT_GIT;
}

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

/* The lists for what is in the directory whose children are known; a repository in another begins
 * anew. */
static int enter(struct walk *walk, const struct pending_directory *directory, const char *path)
{
	const struct child *list = NULL;

	ignore_unref(walk->ignore);
	walk->ignore = ignore_ref(directory->ignore);
	if (!(walk->request->flags & SCAN_NOT_IGNORED))
		return 0;
	walk->git_place = git_place_of(path);
	for (const struct child *child = walk->children; child; child = child->next) {
		if (strcmp(child->name, ".gitignore") == 0)
			list = child;
		if (strcmp(child->name, ".git") == 0 && *directory->path) {
			ignore_unref(walk->ignore);
			walk->ignore = NULL;
		}
	}
	return list ? add_list(walk, path, list, &walk->ignore) : 0;
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
			r = add_list(walk, directory, file, &walk->ignore);
		}
		free(file);
	}
	return r;
}

static bool has_patterns(enum git_place place, const char *name)
{
	return strcmp(name, place == NOT_GIT  ? ".gitignore"
			    : place == IN_GIT ? "config"
					      : "exclude") == 0;
}

static bool is_ignored(const struct walk *walk, const char *full_path, const struct child *child)
{
	bool is_directory = S_ISDIR(child->attributes.mode);

	if (!(walk->request->flags & SCAN_NOT_IGNORED))
		return false;
	if (walk->git_place != NOT_GIT)
		return !is_directory || walk->git_place != IN_GIT ||
		       strcmp(child->name, "info") != 0;
	if (strcmp(child->name, ".git") == 0)
		return !is_directory;
	return ignore_matches(walk->ignore, full_path, is_directory);
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

	return S_ISREG(child->attributes.mode) && !child->is_ignored &&
	       (!request->names || glob_matches(&walk->names, child->name)) &&
	       !(request->known_count &&
		       bsearch(&child->attributes.id.inode, request->known, request->known_count,
			       sizeof(*request->known), by_number));
}

/* Finds out which of the next FILES_MAX children are ignored, and searches the other files. */
static int look_through(struct walk *walk, const char *directory, struct child *child)
{
	struct searched_file files[FILES_MAX];
	struct child *of[FILES_MAX];
	size_t count = 0;
	int r = 0;

	for (size_t i = 0; child && i < FILES_MAX && r == 0; child = child->next, i++) {
		cleanup_free char *path = path_join(directory, child->name);

		if (!path) {
			r = -ENOMEM;
			break;
		}
		child->is_ignored = is_ignored(walk, path, child);
		if (!walk->search || !is_searched(walk, child))
			continue;
		of[count] = child;
		files[count++] = (struct searched_file){
			.path = steal_ptr(&path), .id = child->attributes.id};
	}
	if (r == 0 && count)
		r = text_search_run(walk->search, files, count);
	for (size_t i = 0; i < count; i++) {
		of[i]->is_looked_through = true;
		of[i]->lacks_texts = files[i].lacks;
		free((char *)files[i].path);
	}
	return r;
}

/* ---- Telling -------------------------------------------------------------------------------- */

static bool is_brought_first(const struct walk *walk, const struct child *child)
{
	uint64_t size = child->attributes.size_bytes;

	return (walk->request->flags & SCAN_READ_FIRST) && size <= FIRST_FILE_MAX_BYTES &&
	       walk->first_bytes + size <= FIRST_TOTAL_MAX_BYTES && scan_is_read_first(child->name);
}

static bool wants_content(const struct walk *walk, const struct child *child)
{
	const struct scan_request *request = walk->request;
	uint64_t size = child->attributes.size_bytes;

	if (!S_ISREG(child->attributes.mode))
		return false;
	if ((request->flags & SCAN_NOT_IGNORED) && has_patterns(walk->git_place, child->name))
		return size <= IGNORE_FILE_MAX_BYTES;
	if (is_brought_first(walk, child))
		return true;
	return (request->flags & SCAN_CONTENT) && size <= request->content_max_bytes &&
	       (!request->content_total_bytes ||
		       walk->content_bytes + size <= request->content_total_bytes) &&
	       (!request->texts || (child->is_looked_through && !child->lacks_texts));
}

static int emit_child(
	struct walk *walk, const char *path, const char *full_path, const struct child *child)
{
	const struct attributes *attributes = &child->attributes;
	struct object_ref object = {.path = full_path, .id = attributes->id};
	struct dir_entry entry = {.path = path,
		.attributes = *attributes,
		.at = walk->at,
		.lacks_texts = child->lacks_texts};
	cleanup_free char *target = NULL;

	if (S_ISLNK(attributes->mode) &&
		workspace_readlink(walk->ctx, walk->workspace, &object, &target) == 0)
		entry.link_target = target;
	if (wants_content(walk, child))
		entry.content = read_whole(walk, &object, attributes->size_bytes);
	if (entry.content) {
		entry.content_size = attributes->size_bytes;
		if (is_brought_first(walk, child))
			walk->first_bytes += attributes->size_bytes;
		else
			walk->content_bytes += attributes->size_bytes;
	}
	return walk->sink(walk->user, &entry);
}

static bool is_full(const struct walk *walk)
{
	return walk->request->entries_max && walk->entries >= walk->request->entries_max;
}

static int emit_children(
	struct walk *walk, struct pending_directory *directory, const char *full_path)
{
	size_t told = 0;
	int r = 0;

	for (struct child *child = walk->children; child && r >= 0; child = child->next, told++) {
		cleanup_free char *path = path_join(directory->path, child->name);
		cleanup_free char *child_path = path ? path_join(walk->root->path, path) : NULL;

		if (!child_path)
			return -ENOMEM;
		if (told % FILES_MAX == 0)
			r = look_through(walk, full_path, child);
		walk->entries++;
		if (r < 0)
			break;
		if (S_ISDIR(child->attributes.mode))
			r = push_directory(walk, directory, path, &child->attributes, walk->at,
				directory->depth + 1, child->is_ignored);
		else
			r = emit_child(walk, path, child_path, child);
	}
	return r < 0 ? r : 0;
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
	bool is_left_out = directory->is_ignored || ((walk->request->flags & SCAN_NOT_HIDDEN) &&
							    *path_name(directory->path) == '.');
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
	if (r >= 0)
		r = enter(walk, directory, full_path);
	return r < 0 ? r : emit_children(walk, directory, full_path);
}

static int start(struct walk *walk, uint64_t *at)
{
	const struct scan_request *request = walk->request;
	struct attributes attributes;
	int r = request->names ? glob_compile(request->names, &walk->names) : 0;

	if (r < 0 && r != -ENOMEM)
		return -EINVAL;
	if (r == 0 && request->texts)
		r = text_search_new(walk->ctx, walk->workspace, request->texts, &walk->search);
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
	walk.last_child = &walk.children;
	r = start(&walk, &at);
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
