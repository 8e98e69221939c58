/* Scans that no caller waits for: which ones run, and which access patterns start one. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum {
	PREFETCH_REPEAT_MS = 30000, /* the same prefetch does not start again sooner */
	PREFETCHES_MAX = 4,
	WALK_BRANCHES = 2,      /* loads in so many branches of a directory are a walk; ... */
	GIT_WALK_BRANCHES = 4,  /* ... in .git: most git commands read two objects */
	GIT_ENTRIES_MAX = 2000, /* .git of a small repository has fewer names */
};

static bool stops(struct op_context *ctx)
{
	const struct cached *c = ctx->interrupted_data;

	return c->stopping;
}

/* A scan for all names below a directory has ended. */
static void note_names(
	struct cached *c, const struct prefetch *prefetch, const struct object_id *id)
{
	const struct scan_request *request = &prefetch->request;
	struct directory *d = id->inode ? directory_make(c, id) : NULL;

	if (d && request->entries_max > GIT_ENTRIES_MAX && !request->depth_max &&
		!prefetch->content)
		d->names_cut = prefetch->names >= request->entries_max;
}

static void run_prefetch(void *user)
{
	struct prefetch *prefetch = user;
	struct cached *c = prefetch->cached;
	struct object_id id = {0};
	int r = 0;
	struct op_context ctx;

	op_context_init(&ctx);
	ctx.interrupted = stops;
	ctx.interrupted_data = c;
	cached_enter(c);
	prefetch->started_ms = cached_now_ms();
	if (!c->stopping)
		r = cached_run_scan(
			c, &ctx, prefetch->path, &prefetch->request, prefetch, NULL, &id);
	if (r == -EOPNOTSUPP) {
		prefetch->request.flags &= ~(unsigned)SCAN_NOT_IGNORED;
		r = cached_run_scan(
			c, &ctx, prefetch->path, &prefetch->request, prefetch, NULL, &id);
	}
	if (r == 0)
		note_names(c, prefetch, &id);
	LIST_REMOVE(prefetch, link);
	pthread_cond_broadcast(&c->changed);
	cached_leave(c);
	free(prefetch);
}

bool cached_start_prefetch(struct cached *c, const char *path, const struct scan_request *request,
	uint64_t expected_bytes)
{
	size_t size = strlen(path) + 1;
	struct prefetch *prefetch = calloc(1, sizeof(*prefetch) + size);
	const struct prefetch *p;
	unsigned running = 0;

	LIST_FOREACH(p, &c->prefetches, link)
		running++;
	if (!prefetch || running >= PREFETCHES_MAX) {
		free(prefetch);
		return false;
	}
	prefetch->cached = c;
	prefetch->content = request->flags & SCAN_CONTENT;
	prefetch->started_ms = cached_now_ms();
	prefetch->expected_bytes = expected_bytes;
	prefetch->request = *request;
	memcpy(prefetch->path, path, size);
	if (!worker_pool_submit(&c->scanners, run_prefetch, prefetch)) {
		free(prefetch);
		return false;
	}
	LIST_INSERT_HEAD(&c->prefetches, prefetch, link);
	return true;
}

bool cached_start_prefetch_of(struct cached *c, const struct object_id *top,
	const struct scan_request *request, uint64_t expected_bytes)
{
	cleanup_free char *path = NULL;

	return cached_path_of(c, top, &path) == 0 &&
	       cached_start_prefetch(c, path, request, expected_bytes);
}

/* Whether the path is below a hidden directory, which a scan of `top` leaves out. */
static bool is_hidden_below(const char *path, const char *top)
{
	const char *rest = path + strlen(top);

	for (; (rest = strchr(rest, '.')); rest++)
		if ((rest == path || rest[-1] == '/') && strchr(rest, '/'))
			return true;
	return false;
}

/* Whether the path is inside a ".git" directory. */
static bool is_in_git(const char *path)
{
	const char *at = path;

	while ((at = strstr(at, ".git"))) {
		if ((at == path || at[-1] == '/') && (at[4] == '/' || !at[4]))
			return true;
		at += 4;
	}
	return false;
}

/* Whether the prefetch will return the names in the directory at the path, or (`content`) the
 * content of the file. */
static bool will_bring(const struct prefetch *p, const char *path, bool content)
{
	if (!path_is_within(path, p->path))
		return false;
	if (!content && (p->request.flags & SCAN_NOT_IGNORED) && is_in_git(path))
		return strcmp(path_name(path), ".git") == 0;
	if (!content)
		return p->request.depth_max != 1 || strcmp(p->path, path) == 0;
	return p->content && !is_hidden_below(path, p->path) &&
	       (p->request.depth_max != 1 || strlen(p->path) == path_parent_length(path));
}

const struct prefetch *cached_find_prefetch(const struct cached *c, const char *path, bool content)
{
	const struct prefetch *p;

	LIST_FOREACH(p, &c->prefetches, link)
		if (will_bring(p, path, content))
			break;
	return p;
}

bool cached_is_watched(const struct cached *c, const struct object_id *id)
{
	return tree_watched_since(c->tree, id) != 0;
}

bool cached_is_due(const struct cached *c, const struct object_id *id, uint64_t last_ms)
{
	uint64_t while_ms = cached_is_watched(c, id) ? PREFETCH_REPEAT_MS : c->ttl_ms;

	return last_ms <= c->lost_ms || cached_now_ms() - last_ms > while_ms;
}

bool cached_is_listed(struct cached *c, const struct object_id *id)
{
	const struct directory *d = directory_find(c, id);

	return d && d->listed;
}

bool cached_is_complete(struct cached *c, const struct object_id *id)
{
	return tree_get_listing(c->tree, id, cached_now_ms()) != TREE_ASK;
}

bool cached_climb(const struct cached *c, struct object_id *id)
{
	return !object_id_equal(id, &c->root) && tree_name_of(c->tree, id, id);
}

/* Whether the names below the directory are worth a scan: the last one is long enough ago, or it
 * left out names that callers now want. */
static bool wants_names(const struct cached *c, const struct directory *d,
	const struct object_id *id, const char *path, bool listing)
{
	bool walks = d->branches >= (is_in_git(path) ? GIT_WALK_BRANCHES : WALK_BRANCHES);

	return cached_is_due(c, id, d->names_wanted_ms)
		       ? walks || listing
		       : walks && d->names_partial && !d->names_cut;
}

/* A caller that lists a whole tree gets to its repository as well: scans for the names in a small
 * one, after the scans that callers wait for. */
static void fetch_git_names(struct cached *c, const char *directory)
{
	static const struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_GUESS, .entries_max = GIT_ENTRIES_MAX};
	cleanup_free char *path = path_join(directory, ".git");
	struct found found = {0};

	if (path)
		found = cached_find(c, path);
	if (found.id.inode && tree_type(c->tree, &found.id) == S_IFDIR)
		cached_start_prefetch(c, path, &request, 0);
}

/* Scans for the names below `top`: without those that git ignores, but with the content of the
 * .gitignore files; or for `all` names, if that was not enough. */
static void start_names(struct cached *c, const struct object_id *top, const char *path, bool all,
	struct scan_request request)
{
	struct directory *d = directory_make(c, top);

	if (!d)
		return;
	if (!all && !is_in_git(path))
		request.flags |= SCAN_NOT_IGNORED;
	d->names_wanted_ms = cached_now_ms();
	d->names_partial = request.flags & SCAN_NOT_IGNORED;
	d->branches = 0;
	d->last_branch = 0;
	cached_start_prefetch(c, path, &request, 0);
}

static void fetch_names(struct cached *c, const struct object_id *top, bool all, bool listing)
{
	static const struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_READ_FIRST, .entries_max = PREFETCH_ENTRIES_MAX};
	cleanup_free char *path = NULL;

	if (cached_path_of(c, top, &path) < 0)
		return;
	start_names(c, top, path, all, request);
	if (listing && !all && !is_in_git(path))
		fetch_git_names(c, path);
}

void cached_fetch_names_ahead(
	struct cached *c, const struct object_id *top, bool all, uint64_t entries_max)
{
	const struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_READ_FIRST | SCAN_GUESS, .entries_max = entries_max};
	cleanup_free char *path = NULL;

	if (cached_path_of(c, top, &path) == 0)
		start_names(c, top, path, all, request);
}

/* Removes the last name of a path. */
static void cut_name(char *path)
{
	path[path_parent_length(path)] = '\0';
}

/* Evidence of a walk: directories were loaded in several subdirectories of one directory, or every
 * directory on the path to this one was listed.  Then fetches the names below the highest such
 * directory that was not fetched recently.  Accesses inside ".git" are no evidence. */
void cached_consider_names(struct cached *c, const struct object_id *id, bool listing)
{
	struct object_id at = *id, top = {0};
	cleanup_free char *path = NULL;
	uint64_t branch = at.inode;
	bool all = false; /* a directory above was fetched recently, without `top` */
	bool lists = false;

	if (cached_path_of(c, id, &path) < 0)
		return;
	for (int depth = 0;
		depth < DEPTH_MAX && strcmp(path_name(path), ".git") != 0 && cached_climb(c, &at);
		depth++, branch = at.inode) {
		struct directory *d = directory_make(c, &at);
		bool is_git;

		if (!d)
			return;
		cut_name(path);
		is_git = strcmp(path_name(path), ".git") == 0;
		d->branches += d->last_branch != branch;
		d->last_branch = branch;
		listing = listing && d->listed;
		if (is_git ? listing && cached_is_due(c, &at, d->names_wanted_ms)
			   : wants_names(c, d, &at, path, listing)) {
			top = at;
			lists = listing;
			all = false;
		}
		all = all || !cached_is_due(c, &at, d->names_wanted_ms);
	}
	if (top.inode)
		fetch_names(c, &top, all, lists);
}

void cached_consider_index(struct cached *c, const char *path, const struct object_id *directory)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct object_id top = *directory;
	struct directory *d;

	if (!parent || strcmp(path_name(path), "index") != 0 ||
		strcmp(path_name(parent), ".git") != 0 || !cached_climb(c, &top))
		return;
	d = directory_make(c, &top);
	if (d && cached_is_due(c, &top, d->names_wanted_ms))
		fetch_names(c, &top, false, false);
}
