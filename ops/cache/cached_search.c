#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/glob.h"
#include "ops/support/ignore.h"
#include "ops/support/path.h"
#include "ops/workspace_scan.h"

enum {
	FEW_FILES = 8, /* reading so many one by one takes as long as a search at the far end */
	FEW_BYTES = 256 << 10,
	SEARCH_CONTENT_MAX_BYTES = 64 << 20,
	DIRECTORIES_AT_ONCE = 16, /* surveyed before the lock is released for a moment */
};

/* A known directory that is still to be surveyed. */
struct unvisited {
	struct unvisited *next;
	struct object_id id;
	struct ignore *ignore; /* the .gitignore files above it */
	char path[];
};

/* Which part of a tree is cached. */
struct survey {
	struct cached *c;
	const struct scan_request *request;
	struct glob names;
	struct unvisited *first, **last;

	const struct unvisited *at; /* the present directory */
	struct ignore *ignore;      /* the rules for its entries */
	const struct content *list; /* its .gitignore */
	bool begins_anew;           /* it is a repository inside another one */
	bool lacks_list;            /* it has a .gitignore whose content is not cached */
	int error;

	bool unknown;        /* some names are not cached */
	unsigned files;      /* files whose content is not cached ... */
	uint64_t bytes;      /* ... and their total size */
	struct buffer known; /* inode numbers of the files whose content is cached */
};

static void unvisited_free(struct unvisited *unvisited)
{
	ignore_unref(unvisited->ignore);
	free(unvisited);
}

static void survey_done(struct survey *survey)
{
	while (survey->first) {
		struct unvisited *next = survey->first->next;

		unvisited_free(survey->first);
		survey->first = next;
	}
	ignore_unref(survey->ignore);
	glob_done(&survey->names);
	buffer_done(&survey->known);
}

static int push(
	struct survey *survey, const struct object_id *id, const char *path, struct ignore *ignore)
{
	size_t size = strlen(path) + 1;
	struct unvisited *unvisited = malloc(sizeof(*unvisited) + size);

	if (!unvisited)
		return -ENOMEM;
	*unvisited = (struct unvisited){.id = *id, .ignore = ignore_ref(ignore)};
	memcpy(unvisited->path, path, size);
	*survey->last = unvisited;
	survey->last = &unvisited->next;
	return 0;
}

/* ---- A directory -------------------------------------------------------------------------- */

static bool note_list(void *user, const struct tree_entry *entry)
{
	struct survey *survey = user;
	const struct extra *x = entry->kept;

	if (strcmp(entry->name, ".git") == 0)
		survey->begins_anew = *survey->at->path;
	if (strcmp(entry->name, ".gitignore") == 0 && S_ISREG(entry->attributes->mode)) {
		survey->list = x ? x->content : NULL;
		survey->lacks_list = !survey->list && entry->attributes->size_bytes > 0;
	}
	return true;
}

static bool is_here(struct cached *c, const struct tree_entry *entry)
{
	const struct attributes *attributes = entry->attributes;
	const struct extra *x = entry->kept;

	return entry->attributes_validity != TREE_ASK &&
	       ((x && x->content) || attributes->size_bytes == 0 ||
		       (content_may_be_kept(c, attributes->size_bytes) &&
			       content_is_kept(c, attributes)));
}

static void note_file(struct survey *survey, const struct tree_entry *entry)
{
	const struct scan_request *request = survey->request;

	if (!request->texts || (request->names && !glob_matches(&survey->names, entry->name)))
		return;
	if (is_here(survey->c, entry)) {
		survey->error = buffer_append(&survey->known, &entry->attributes->id.inode,
			sizeof(entry->attributes->id.inode));
		return;
	}
	survey->files++;
	survey->bytes += entry->attributes->size_bytes;
}

static bool note_entry(void *user, const struct tree_entry *entry)
{
	struct survey *survey = user;
	bool is_directory = S_ISDIR(entry->attributes->mode);
	cleanup_free char *path = path_join(survey->at->path, entry->name);

	if (!path)
		survey->error = -ENOMEM;
	if (entry->name_validity == TREE_ASK)
		survey->unknown = true;
	if (!path || strcmp(entry->name, ".git") == 0 ||
		ignore_matches(survey->ignore, path, is_directory))
		return !survey->error;
	if (is_directory)
		survey->error = push(survey, &entry->attributes->id, path, survey->ignore);
	else if (S_ISREG(entry->attributes->mode))
		note_file(survey, entry);
	return !survey->error;
}

static int survey_directory(struct survey *survey, const struct unvisited *unvisited)
{
	struct tree *tree = survey->c->tree;
	uint64_t now_ms = cached_now_ms();
	int r = 0;

	survey->at = unvisited;
	survey->list = NULL;
	survey->begins_anew = survey->lacks_list = false;
	if (tree_list(tree, &unvisited->id, now_ms, note_list, survey) == TREE_ASK ||
		survey->lacks_list) {
		survey->unknown = true;
		return 0;
	}
	ignore_unref(survey->ignore);
	survey->ignore = survey->begins_anew ? NULL : ignore_ref(unvisited->ignore);
	if (survey->list)
		r = ignore_add(&survey->ignore, unvisited->path, (const char *)survey->list->data,
			survey->list->size);
	if (r < 0)
		return r;
	tree_list(tree, &unvisited->id, now_ms, note_entry, survey);
	return survey->error;
}

/* ---- The tree ------------------------------------------------------------------------------ */

/* Reads the cached .gitignore files of the directories above. */
static int add_lists_above(struct survey *survey, const char *path)
{
	int r = 0;

	for (size_t length = 0; r >= 0 && path[length]; length += strcspn(path + length, "/")) {
		cleanup_free char *directory = strndup(path, length), *name = NULL;
		const struct extra *x;
		struct found found;

		length += path[length] == '/';
		name = directory ? path_join(directory, ".gitignore") : NULL;
		if (!name)
			return -ENOMEM;
		found = cached_find(survey->c, name);
		x = found.id.inode ? extra_find(survey->c, &found.id) : NULL;
		if (x && x->content)
			r = ignore_add(&survey->ignore, directory, (const char *)x->content->data,
				x->content->size);
	}
	return r < 0 ? r : 0;
}

/* Called with the lock; releases it after every DIRECTORIES_AT_ONCE directories. */
static int survey_tree(struct survey *survey, struct op_context *ctx, const char *path)
{
	struct found found = cached_find(survey->c, path);
	int r = add_lists_above(survey, path);

	survey->unknown = !found.id.inode;
	if (r == 0 && found.id.inode)
		r = push(survey, &found.id, path, survey->ignore);
	for (unsigned count = 1; r == 0 && survey->first; count++) {
		struct unvisited *unvisited = survey->first;

		survey->first = unvisited->next;
		if (!survey->first)
			survey->last = &survey->first;
		r = survey_directory(survey, unvisited);
		unvisited_free(unvisited);
		/* A scan without texts needs names only, and some are missing: ask. */
		if (survey->unknown && !survey->request->texts)
			break;
		if (count % DIRECTORIES_AT_ONCE == 0) {
			cached_leave(survey->c);
			r = r == 0 && op_interrupted(ctx) ? -EINTR : r;
			cached_enter(survey->c);
		}
	}
	return r;
}

static int by_number(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static int search(struct survey *survey, struct op_context *ctx, const char *path,
	const struct onward *onward)
{
	struct scan_request request = *survey->request;
	struct cached *c = survey->c;
	uint64_t most = c->memory_bytes_max / 2;
	struct object_id ignored;
	int r;

	request.flags |= SCAN_WATCH;
	if (request.texts) {
		request.flags |= SCAN_CONTENT;
		request.content_max_bytes = SMALL_FILE_MAX_BYTES;
		request.content_total_bytes =
			most < SEARCH_CONTENT_MAX_BYTES ? most : SEARCH_CONTENT_MAX_BYTES;
		request.known_count = survey->known.size / sizeof(*request.known);
		if (request.known_count)
			qsort(survey->known.data, request.known_count, sizeof(*request.known),
				by_number);
		request.known = (const uint64_t *)(const void *)survey->known.data;
	}
	r = cached_run_scan(c, ctx, path, &request, NULL, onward, &ignored);
	pthread_cond_broadcast(&c->changed);
	return r;
}

/* A search asks the workspace only if more than FEW_FILES or FEW_BYTES are not cached. */
int cached_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *request, dir_entry_sink sink, void *user)
{
	const struct onward onward = {sink, user};
	cleanup_with(survey_done) struct survey survey = {.c = cached_of(w), .request = request};
	bool asks;
	int r = 0;

	if (directory->file || !(request->flags & SCAN_NOT_IGNORED))
		return workspace_scan_by_walking(ctx, w, directory, request, sink, user);
	survey.last = &survey.first;
	if (request->names && glob_compile(request->names, &survey.names) < 0)
		return -EINVAL;
	cached_enter(survey.c);
	cached_await_all(survey.c, ctx);
	r = survey_tree(&survey, ctx, directory->path);
	asks = survey.unknown || survey.files > FEW_FILES || survey.bytes > FEW_BYTES;
	if (r == 0 && asks)
		r = search(&survey, ctx, directory->path, &onward);
	else if (r == 0)
		survey.c->statistics.hits++;
	ctx->served.from_cache = r == 0 && !asks;
	cached_leave(survey.c);
	return r;
}
