#include "ops/cache/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"
#include "ops/workspace_scan.h"

enum {
	WAIT_STEP_MS = 20,
	NAMES_WAIT_MAX_MS = 500,  /* for names that are on their way ... */
	NAMES_PAUSE_MAX_MS = 250, /* ... and of which some came so lately */
	PREFETCH_ENTRIES_MAX = 32768,
	PREFETCH_CONTENT_MAX_BYTES = 64 << 20,
	DIRECTORY_CONTENT_MAX_BYTES = 1 << 20,
	PREFETCH_REPEAT_MS = 30000, /* not the same one again before that */
	CONTENT_WAIT_MAX_MS = 1000,
	CONTENT_START_MAX_MS = 250,   /* the far end is busy with other scans */
	CONTENT_STEP_BYTES = 2 << 20, /* times the square of the misses: what is fetched */
	GUESS_FORGOTTEN_MS = 10000,
	UNWANTED_MS = 2000, /* content that is on its way and that nobody opens */
	WALK_OPENS = 2,     /* a search counts as so many misses */
	PREFETCHES_MAX = 4,
	LOAD_ENTRIES_MAX = 1000, /* beyond the directory's own, in those below it */
	LOAD_DEPTH = 3,
	LOAD_FILE_MAX_BYTES = 4 << 10, /* content that a load brings along: a few small files */
	LOAD_CONTENT_MAX_BYTES = 64 << 10,
	WALK_MS =
		2000, /* who opens files so soon after walking through directories searches them */
	DEPTH_MAX = 64, /* of directories looked at, up or down, to size up a prefetch */
	REFUSED_MS = 5000,
};

static uint64_t round_trips_ms(const struct cached *c, unsigned count)
{
	return c->round_trip_us * count / 1000;
}

/* Waits until something is learnt of what has the path's last name, or a directory is complete, or
 * the feed tells something; 20 ms at most.  -EINTR when the caller gave up. */
static int wait_for(struct cached *c, struct op_context *ctx, const char *path)
{
	struct waiter waiter = {.name = path_name(path)};

	if (op_interrupted(ctx))
		return -EINTR;
	LIST_INSERT_HEAD(&c->waiters, &waiter, link);
	clock_cond_wait_ms(&c->changed, &c->lock, WAIT_STEP_MS);
	LIST_REMOVE(&waiter, link);
	return 0;
}

void cached_wake(struct cached *c, const char *name)
{
	const struct waiter *waiter;

	LIST_FOREACH(waiter, &c->waiters, link)
		if (strcmp(waiter->name, name) == 0) {
			pthread_cond_broadcast(&c->changed);
			return;
		}
}

/* ---- Taking in what a scan says ---------------------------------------------------- */

/* A directory of the scan.  Breadth first: all children of one are told before the first
 * grandchild, and then its listing is known. */
struct listed {
	struct listed *next;
	struct object_id id;
	uint64_t at;
	bool complete;
	char path[]; /* as the scan tells it */
};

struct intake {
	struct cached *cached;
	const char *top;           /* path of the scanned directory */
	struct object_id id;       /* its own; inode 0: not told */
	struct tree_look look;     /* at the entry that is being taken in */
	uint64_t asked_ms;         /* when the scan began */
	struct prefetch *prefetch; /* NULL: for a caller */
	const struct onward *onward;
	struct listed *first, *last;
};

static void complete(const struct intake *intake, const struct listed *listed)
{
	const struct tree_look look = {.at = listed->at, .ms = intake->look.ms};
	struct cached *c = intake->cached;
	struct directory *d = directory_make(c, &listed->id);

	tree_learn_listing(c->tree, &look, &listed->id);
	if (d)
		d->scanned = true;
	/* Who searches wants no names of what was left out, nor content that was not brought. */
	if (d && intake->onward)
		d->names_wanted_ms = cached_now_ms() - WALK_MS;
	pthread_cond_broadcast(&c->changed);
}

/* Finishes the listed directories in front of `until`; NULL: all. */
static void complete_until(struct intake *intake, const struct listed *until)
{
	while (intake->first != until) {
		struct listed *listed = intake->first;

		if (listed->complete)
			complete(intake, listed);
		intake->first = listed->next;
		free(listed);
	}
	if (!until)
		intake->last = NULL;
}

/* The directory that holds the entry; NULL: it was not told, or there was no memory for it. */
static struct listed *holder_of(const struct intake *intake, const char *path)
{
	size_t length = path_parent_length(path);
	struct listed *at = intake->last;

	/* A file follows its directory; a directory comes later. */
	if (at && strlen(at->path) == length && memcmp(at->path, path, length) == 0)
		return at;
	for (at = intake->first; at; at = at->next)
		if (strlen(at->path) == length && memcmp(at->path, path, length) == 0)
			break;
	return at;
}

static void push_listed(struct intake *intake, const struct dir_entry *entry)
{
	size_t size = strlen(entry->path) + 1;
	struct listed *listed = malloc(sizeof(*listed) + size);

	if (!listed)
		return;
	*listed = (struct listed){
		.id = entry->attributes.id, .at = entry->at, .complete = entry->complete};
	memcpy(listed->path, entry->path, size);
	if (intake->last)
		intake->last->next = listed;
	else
		intake->first = listed;
	intake->last = listed;
}

/* What is watched and not known to be is to be watched no more.  -ENOMEM: it is. */
static int take_watch(const struct intake *intake, const struct dir_entry *entry)
{
	const struct object_id *id = &entry->attributes.id;
	struct tree_look look = intake->look;
	struct cached *c = intake->cached;

	if (!c->feed || (!entry->complete && !entry->watched_since))
		return 0;
	/* It may have been watched since after the look at it. */
	if (look.at < entry->watched_since)
		look.at = entry->watched_since;
	tree_learn_watch(c->tree, &look, id, entry->watched_since, entry->watched_since);
	if (!entry->watched_since || tree_watched_since(c->tree, id))
		return 0;
	return cached_end_watch(c, id) ? 0 : -ENOMEM;
}

/* What comes with attributes that may be passed over counts if these are what is known; after a
 * change within the same tick it was read too early unless nothing has been looked at since. */
static bool is_of_known_state(struct cached *c, const struct dir_entry *entry)
{
	struct attributes known;
	uint64_t known_at = tree_last_attributes(c->tree, &entry->attributes.id, &known);

	return known_at && attributes_same_version(&known, &entry->attributes) &&
	       (known_at == entry->at || !entry->attributes.changed_lately);
}

/* What was read with these attributes is the content that the file has for us. */
static bool is_content_current(struct cached *c, const struct dir_entry *entry)
{
	const struct extra *x = extra_find(c, &entry->attributes.id);

	return is_of_known_state(c, entry) && !(x && (x->writers > 0 || extra_is_locked(x)));
}

static void take_content(struct intake *intake, const struct dir_entry *entry)
{
	struct cached *c = intake->cached;
	struct extra *x = extra_find(c, &entry->attributes.id);
	struct content *content;

	if (!is_content_current(c, entry) || (x && x->content))
		return;
	content = content_new(entry->content, entry->content_size);
	x = content ? extra_make(c, &entry->attributes.id) : NULL;
	if (!x) {
		content_unref(content);
		return;
	}
	if (!content_attach(c, x, content))
		return;
	content_keep(c, x);
	if (intake->prefetch) {
		content->is_guess = true;
		c->guessed_bytes += content->size;
		if (!intake->prefetch->first_content_ms)
			intake->prefetch->first_content_ms = cached_now_ms();
		intake->prefetch->received_bytes += entry->content_size;
		c->statistics.prefetched_bytes += entry->content_size;
	}
}

static void take_file(struct intake *intake, const struct dir_entry *entry)
{
	struct cached *c = intake->cached;

	/* A far end may say anything. */
	if (entry->link_target && S_ISLNK(entry->attributes.mode))
		extra_set_target(c, &entry->attributes.id, entry->link_target);
	if (entry->content && S_ISREG(entry->attributes.mode) &&
		entry->content_size == entry->attributes.size_bytes)
		take_content(intake, entry);
}

static int take_entry_locked(struct intake *intake, const struct dir_entry *entry)
{
	static const struct object_id unknown;
	struct cached *c = intake->cached;
	bool is_directory = S_ISDIR(entry->attributes.mode);
	const struct listed *holder = *entry->path ? holder_of(intake, entry->path) : NULL;

	intake->look = cached_look(c, entry->at, intake->asked_ms);
	if (is_directory && holder)
		complete_until(intake, holder);
	cached_learn_name(c, &intake->look, holder ? &holder->id : &unknown, path_name(entry->path),
		&entry->attributes, FROM_LOOK, NULL);
	if (!*entry->path)
		intake->id = entry->attributes.id;
	if (!*entry->path && !*intake->top)
		c->root = intake->id;
	if (!is_directory) {
		take_file(intake, entry);
		return 0;
	}
	push_listed(intake, entry);
	return take_watch(intake, entry);
}

/* Content for a search that ended long before it came. */
static bool is_unwanted(const struct intake *intake)
{
	const struct prefetch *p = intake->prefetch;

	return p && p->content && p->request.depth_max != 1 &&
	       cached_now_ms() - intake->cached->content_opened_ms > UNWANTED_MS;
}

static int take_entry(void *user, const struct dir_entry *entry)
{
	struct intake *intake = user;
	struct dir_entry told = *entry;
	int r;

	cached_enter(intake->cached);
	if (intake->prefetch)
		intake->prefetch->flowed_ms = cached_now_ms();
	r = is_unwanted(intake) ? -EINTR : take_entry_locked(intake, entry);
	told.lacks_texts = entry->lacks_texts && is_content_current(intake->cached, entry);
	cached_leave(intake->cached);
	if (r == 0 && intake->onward)
		r = intake->onward->sink(intake->onward->user, &told);
	return r;
}

int cached_run_scan(struct cached *c, struct op_context *ctx, const char *path,
	const struct scan_request *request, struct prefetch *prefetch, const struct onward *onward,
	struct object_id *ret_id)
{
	struct object_ref object = OBJECT_AT(path);
	struct intake intake = {.cached = c,
		.top = path,
		.prefetch = prefetch,
		.onward = onward,
		.asked_ms = cached_now_ms()};
	int r;

	c->statistics.scans++;
	cached_leave(c);
	r = workspace_scan(ctx, c->base.inner, &object, request, take_entry, &intake);
	cached_enter(c);
	if (r == 0)
		complete_until(&intake, NULL);
	while (intake.first) {
		struct listed *next = intake.first->next;

		free(intake.first);
		intake.first = next;
	}
	*ret_id = intake.id;
	return r;
}

/* ---- Prefetch ------------------------------------------------------------------------- */

static bool stops(struct op_context *ctx)
{
	const struct cached *c = ctx->interrupted_data;

	return c->stopping;
}

static void run_prefetch(void *user)
{
	struct prefetch *prefetch = user;
	struct cached *c = prefetch->cached;
	struct object_id ignored;
	struct op_context ctx;

	op_context_init(&ctx);
	ctx.interrupted = stops;
	ctx.interrupted_data = c;
	cached_enter(c);
	prefetch->started_ms = cached_now_ms();
	if (!c->stopping && cached_run_scan(c, &ctx, prefetch->path, &prefetch->request, prefetch,
				    NULL, &ignored) == -EOPNOTSUPP) {
		prefetch->request.flags &= ~(unsigned)SCAN_NOT_IGNORED;
		cached_run_scan(
			c, &ctx, prefetch->path, &prefetch->request, prefetch, NULL, &ignored);
	}
	LIST_REMOVE(prefetch, link);
	pthread_cond_broadcast(&c->changed);
	cached_leave(c);
	free(prefetch);
}

static bool start_prefetch(struct cached *c, const char *path, const struct scan_request *request,
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
	if (!worker_pool_submit(c->scanners, run_prefetch, prefetch)) {
		free(prefetch);
		return false;
	}
	LIST_INSERT_HEAD(&c->prefetches, prefetch, link);
	return true;
}

static bool start_prefetch_of(struct cached *c, const struct object_id *top,
	const struct scan_request *request, uint64_t expected_bytes)
{
	cleanup_free char *path = NULL;

	return cached_path_of(c, top, &path) == 0 &&
	       start_prefetch(c, path, request, expected_bytes);
}

/* Below a directory that the scan of `top` leaves out. */
static bool is_hidden_below(const char *path, const char *top)
{
	const char *rest = path + strlen(top);

	for (; (rest = strchr(rest, '.')); rest++)
		if ((rest == path || rest[-1] == '/') && strchr(rest, '/'))
			return true;
	return false;
}

/* In a repository's own directory, or below it. */
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

/* It will bring the names in the directory at that path, or the content of the file. */
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

static const struct prefetch *find_prefetch(const struct cached *c, const char *path, bool content)
{
	const struct prefetch *p;

	LIST_FOREACH(p, &c->prefetches, link)
		if (will_bring(p, path, content))
			break;
	return p;
}

static bool is_watched(const struct cached *c, const struct object_id *id)
{
	return tree_watched_since(c->tree, id) != 0;
}

/* What was fetched is valid until the feed says otherwise, or for a while. */
static bool is_due(const struct cached *c, const struct object_id *id, uint64_t last_ms)
{
	uint64_t while_ms = is_watched(c, id) ? PREFETCH_REPEAT_MS : c->ttl_ms;

	return last_ms <= c->lost_ms || cached_now_ms() - last_ms > while_ms;
}

static bool is_listed(struct cached *c, const struct object_id *id)
{
	const struct directory *d = directory_find(c, id);

	return d && d->listed;
}

static bool is_complete(struct cached *c, const struct object_id *id)
{
	return tree_get_listing(c->tree, id, cached_now_ms()) != TREE_ASK;
}

/* From an object to the directory that it is in, as far as is known.  False: none. */
static bool climb(const struct cached *c, struct object_id *id)
{
	return !object_id_equal(id, &c->root) && tree_name_of(c->tree, id, id);
}

/* Names below the directory are worth fetching: they were not fetched just now, or those that were
 * left out then are wanted. */
static bool wants_names(
	const struct cached *c, const struct directory *d, const struct object_id *id, bool listing)
{
	if (is_due(c, id, d->names_wanted_ms))
		return d->branches >= 2 || listing;
	return d->names_partial && d->branches >= 2;
}

/* First what git does not ignore, with the files that say what that is; if that does not do, all
 * of it. */
static void fetch_names(struct cached *c, const struct object_id *top, bool all)
{
	struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_READ_FIRST, .entries_max = PREFETCH_ENTRIES_MAX};
	struct directory *d = directory_make(c, top);
	cleanup_free char *path = NULL;

	if (!d || cached_path_of(c, top, &path) < 0)
		return;
	if (!all && !is_in_git(path))
		request.flags |= SCAN_NOT_IGNORED;
	d->names_wanted_ms = cached_now_ms();
	d->names_partial = request.flags & SCAN_NOT_IGNORED;
	d->branches = 0;
	d->last_branch = 0;
	start_prefetch(c, path, &request, 0);
}

/* The directory at a path whose last name is cut off. */
static void cut_name(char *path)
{
	path[path_parent_length(path)] = '\0';
}

/* Directories were loaded in several branches of one directory, or all on the way to this one
 * were listed: somebody walks.  Fetch names below the highest such directory, or the highest
 * that was not fetched just now.  What git does in a repository's own directory is no walk through
 * that, and says nothing about what is around it. */
static void consider_names(struct cached *c, const struct object_id *id, bool listing)
{
	struct object_id at = *id, top = {0};
	cleanup_free char *path = NULL;
	uint64_t branch = at.inode;
	bool all = false; /* of what is around it, some were fetched: this was left out */

	if (cached_path_of(c, id, &path) < 0)
		return;
	for (int depth = 0;
		depth < DEPTH_MAX && strcmp(path_name(path), ".git") != 0 && climb(c, &at);
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
		if (is_git ? listing && is_due(c, &at, d->names_wanted_ms)
			   : wants_names(c, d, &at, listing)) {
			top = at;
			all = false;
		}
		all = all || !is_due(c, &at, d->names_wanted_ms);
	}
	if (top.inode)
		fetch_names(c, &top, all);
}

/* Git reads its index before it looks at every file: the names come meanwhile. */
static void consider_index(struct cached *c, const char *path, const struct object_id *directory)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct object_id top = *directory;
	struct directory *d;

	if (!parent || strcmp(path_name(path), "index") != 0 ||
		strcmp(path_name(parent), ".git") != 0 || !climb(c, &top))
		return;
	d = directory_make(c, &top);
	if (d && is_due(c, &top, d->names_wanted_ms))
		fetch_names(c, &top, false);
}

/* ---- Directories --------------------------------------------------------------------------- */

static void note_loaded(struct cached *c, const struct object_id *id, bool listing, int r)
{
	struct directory *d = id->inode ? directory_make(c, id) : NULL;

	if (!d)
		return;
	d->listed = d->listed || listing;
	d->refused_ms = r < 0 && r != -EINTR ? cached_now_ms() : 0;
}

/* `id`: of what is known to be there, or inode 0. */
int cached_load(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, bool listing)
{
	struct scan_request request = {.flags = SCAN_WATCH | SCAN_CONTENT | SCAN_READ_FIRST,
		.depth_max = LOAD_DEPTH,
		.entries_max = LOAD_ENTRIES_MAX,
		.content_max_bytes = LOAD_FILE_MAX_BYTES,
		.content_total_bytes = LOAD_CONTENT_MAX_BYTES};
	struct load load = {.path = path};
	uint64_t started_ms = cached_now_ms();
	struct object_id told = {0}, unknown = {0};
	int r;

	if (id->inode) {
		if (!is_complete(c, id))
			consider_names(c, id, listing);
		note_loaded(c, id, listing, 0);
	}
	LIST_INSERT_HEAD(&c->loads, &load, link);
	r = cached_run_scan(c, ctx, path, &request, NULL, NULL, &told);
	LIST_REMOVE(&load, link);
	cached_count_trip(c, started_ms);
	note_loaded(c, told.inode ? &told : id, listing, r);
	if (told.inode && id->inode && !object_id_equal(&told, id))
		cached_doubt(c, 0, &unknown, path);
	pthread_cond_broadcast(&c->changed);
	return r;
}

void cached_own_directory(struct cached *c, const struct tree_look *look, const char *path,
	const struct object_id *id)
{
	struct scan_request request = {.flags = SCAN_WATCH, .depth_max = 1};

	tree_learn_listing(c->tree, look, id);
	if (c->feed)
		start_prefetch(c, path, &request, 0);
}

/* Names are coming in, more of them all the time: those of one more directory come sooner than
 * asking for them would bring them. */
static bool is_flowing(const struct cached *c, const char *path)
{
	uint64_t now_ms = cached_now_ms(), pause_ms = round_trips_ms(c, 2) + NAMES_PAUSE_MAX_MS;
	const struct prefetch *p;

	LIST_FOREACH(p, &c->prefetches, link) {
		uint64_t last_ms = p->flowed_ms ? p->flowed_ms : p->started_ms;

		if (!p->content && p->request.depth_max != 1 && path_is_within(path, p->path) &&
			now_ms - last_ms <= pause_ms)
			return true;
	}
	return false;
}

/* Somebody else is at it, and it is worth waiting for. */
static bool is_coming(const struct cached *c, const char *path, uint64_t since_ms)
{
	uint64_t waited_ms = cached_now_ms() - since_ms;
	const struct load *load;

	LIST_FOREACH(load, &c->loads, link)
		if (strcmp(load->path, path) == 0)
			return true;
	if (LIST_EMPTY(&c->prefetches) || waited_ms > NAMES_WAIT_MAX_MS)
		return false;
	if (waited_ms > round_trips_ms(c, 2) + WAIT_STEP_MS)
		return is_flowing(c, path);
	return find_prefetch(c, path, false);
}

/* It cannot be read, or what it says is void at once. */
static bool is_hopeless(struct cached *c, const struct object_id *id)
{
	const struct directory *d = directory_find(c, id);

	if (!d)
		return false;
	if (d->refused_ms && cached_now_ms() - d->refused_ms < REFUSED_MS)
		return true;
	return d->scanned && !is_watched(c, id) && c->ttl_ms == 0;
}

/* Loads the directory that the path's last name is in, or waits until somebody else has.  -EAGAIN:
 * that is no use. */
static int load_around(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *directory, uint64_t since_ms, bool *loaded)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	int r;

	if (!parent)
		return -ENOMEM;
	if (is_hopeless(c, directory))
		return -EAGAIN;
	if (is_coming(c, parent, since_ms))
		return wait_for(c, ctx, path);
	if (*loaded || is_complete(c, directory))
		return -EAGAIN;
	*loaded = true;
	r = cached_load(c, ctx, parent, directory, false);
	/* What the place refuses to list, it may tell nevertheless. */
	return r == -EINTR || r == -ENOTCONN || r == -EIO ? r : 0;
}

/* Loads a directory whose attributes are asked for and whose entries no load has brought yet: they
 * are likely to be wanted next, and come in the same round trip.  -EAGAIN: it cannot be loaded. */
static int load_itself(struct cached *c, struct op_context *ctx, const char *path,
	const struct object_id *id, uint64_t since_ms, bool *loaded)
{
	const struct directory *d = directory_find(c, id);
	int r;

	if (tree_type(c->tree, id) != S_IFDIR || !c->feed || *loaded || is_hopeless(c, id) ||
		(d && d->scanned) || is_complete(c, id))
		return -EAGAIN;
	if (is_coming(c, path, since_ms))
		return wait_for(c, ctx, path);
	*loaded = true;
	r = cached_load(c, ctx, path, id, false);
	return r == -EINTR || r == -ENOTCONN || r == -EIO ? r : 0;
}

int cached_resolve(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes)
{
	uint64_t since_ms = cached_now_ms();
	bool loaded = false;
	int r;

	for (;;) {
		r = cached_walk(c, path, ret_found);
		if (r == 0 && ret_attributes &&
			!cached_get_attributes(c, &ret_found->id, ret_attributes)) {
			r = load_itself(c, ctx, path, &ret_found->id, since_ms, &loaded);
			if (r < 0)
				return r;
			continue;
		}
		if (r != -EAGAIN)
			return r;
		if (!ret_found->directory.inode && path_parent_length(path))
			return -EAGAIN;
		r = load_around(c, ctx, path, &ret_found->directory, since_ms, &loaded);
		if (r < 0)
			return r;
	}
}

struct walker {
	struct cached *c;
	struct object_id unknown; /* a directory; inode 0: none */
};

static bool find_unknown(void *user, const struct tree_entry *entry)
{
	const struct object_id *id = &entry->attributes->id;
	struct walker *walker = user;

	if (S_ISDIR(entry->attributes->mode) && !is_complete(walker->c, id))
		walker->unknown = *id;
	return !walker->unknown.inode;
}

/* The listing is known, but not what is below: do not wait until it is asked for. */
static void consider_walk(struct cached *c, const struct object_id *id)
{
	struct walker walker = {.c = c};
	struct object_id parent = *id;
	const struct directory *d;

	if (!climb(c, &parent))
		return;
	d = directory_find(c, &parent);
	if (!d || !d->listed || !is_due(c, &parent, d->names_wanted_ms))
		return;
	tree_list(c->tree, id, cached_now_ms(), find_unknown, &walker);
	if (walker.unknown.inode)
		consider_names(c, &walker.unknown, true);
}

/* What it leads to is a directory, or may be one. */
static int resolve_directory(
	struct cached *c, struct op_context *ctx, const char *path, struct found *ret_found)
{
	int r = cached_resolve(c, ctx, path, ret_found, NULL);
	uint32_t type = r == 0 ? tree_type(c->tree, &ret_found->id) : 0;

	return r == 0 && type && type != S_IFDIR ? -ENOTDIR : r;
}

/* It is known, and watched if it can be.  For names a scan is enough that is on its way and will
 * tell. */
static bool has_wanted(struct cached *c, const char *path, const struct object_id *id,
	enum wanted_of_directory wanted)
{
	const struct directory *d = directory_find(c, id);

	if (wanted == WANT_LISTING_ANEW || !is_complete(c, id))
		return false;
	if (wanted == WANT_LISTING)
		return d && (d->scanned || !c->feed);
	return !c->feed || is_watched(c, id) || (d && d->scanned) || find_prefetch(c, path, false);
}

int cached_load_directory(struct cached *c, struct op_context *ctx, const char *path,
	enum wanted_of_directory wanted, struct found *ret_found)
{
	const struct object_id *id = &ret_found->id;
	uint64_t since_ms = cached_now_ms();
	bool loaded = false;
	int r;

	for (;;) {
		r = resolve_directory(c, ctx, path, ret_found);
		if (r < 0 || loaded)
			return r;
		if (has_wanted(c, path, id, wanted))
			break;
		if (is_hopeless(c, id))
			return wanted == WANT_NAMES ? 0 : -EAGAIN;
		if (is_coming(c, path, since_ms)) {
			r = wait_for(c, ctx, path);
		} else {
			r = cached_load(c, ctx, path, id, wanted != WANT_NAMES);
			loaded = true;
		}
		if (r < 0)
			return r;
	}
	if (wanted == WANT_LISTING) {
		directory_find(c, id)->listed = true;
		consider_walk(c, id);
	}
	return 0;
}

/* ---- Content --------------------------------------------------------------------------------- */

static bool has_content(const struct tree_entry *entry)
{
	const struct extra *x = entry->kept;

	return x && x->content;
}

static bool lacks_content(const struct tree_entry *entry)
{
	return S_ISREG(entry->attributes->mode) && !has_content(entry) &&
	       entry->attributes->size_bytes > 0 && entry->name_validity != TREE_ASK;
}

static bool is_small(const struct attributes *attributes)
{
	return attributes->size_bytes <= SMALL_FILE_MAX_BYTES;
}

static bool may_restore(const struct cached *c, const struct tree_entry *entry)
{
	return lacks_content(entry) && content_may_be_kept(c, entry->attributes->size_bytes) &&
	       content_is_kept(c, entry->attributes);
}

struct missing {
	struct cached *c;
	unsigned depth;
	uint64_t bytes, max; /* of small files whose content is missing; stops beyond `max` */
	uint64_t kept;       /* ... whose content is here or on disk: a scan would bring it again */
};

static void count_missing(struct missing *missing, const struct object_id *directory);

static bool count_entry(void *user, const struct tree_entry *entry)
{
	const struct attributes *a = entry->attributes;
	struct missing *missing = user;

	if (is_small(a) && (has_content(entry) || may_restore(missing->c, entry))) {
		missing->kept += a->size_bytes;
	} else if (is_small(a) && lacks_content(entry)) {
		missing->bytes += a->size_bytes;
	} else if (missing->depth > 1 && S_ISDIR(a->mode) && entry->name[0] != '.') {
		missing->depth--;
		count_missing(missing, &a->id);
		missing->depth++;
	}
	return missing->bytes <= missing->max;
}

static void count_missing(struct missing *missing, const struct object_id *directory)
{
	tree_list(missing->c->tree, directory, cached_now_ms(), count_entry, missing);
}

static struct missing missing_in(
	struct cached *c, const struct object_id *top, unsigned depth, uint64_t max)
{
	struct missing missing = {.c = c, .depth = depth, .max = max};

	count_missing(&missing, top);
	return missing;
}

static bool fetch_content(struct cached *c, const struct object_id *top, uint32_t depth,
	uint64_t expected, uint64_t total_max)
{
	struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_CONTENT | SCAN_NOT_HIDDEN | SCAN_GUESS,
		.depth_max = depth,
		.entries_max = depth == 1 ? 0 : PREFETCH_ENTRIES_MAX,
		.content_max_bytes = SMALL_FILE_MAX_BYTES,
		.content_total_bytes = total_max};
	struct directory *d = directory_make(c, top);

	if (!d || !start_prefetch_of(c, top, &request, expected))
		return false;
	c->guessed_ms = d->content_wanted_ms = cached_now_ms();
	return true;
}

/* Somebody listed the directory, and just now walked through one around it or opened files in
 * several of its branches. */
static bool is_searched(struct cached *c, const struct object_id *directory)
{
	uint64_t now_ms = cached_now_ms();
	struct object_id at = *directory;

	if (!is_listed(c, directory))
		return false;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		const struct directory *d = directory_find(c, &at);

		if (d && (d->opens > WALK_OPENS ||
				 (d->names_wanted_ms && now_ms - d->names_wanted_ms < WALK_MS)))
			return true;
		if (!climb(c, &at))
			break;
	}
	return false;
}

struct beside {
	struct cached *c;
	uint64_t allowed;
};

static bool fetch_all_of(void *user, const struct tree_entry *entry)
{
	const struct beside *beside = user;
	const struct object_id *id = &entry->attributes->id;
	const struct extra *x = entry->kept;
	struct missing missing;

	if (!x || !x->directory || entry->name[0] == '.' ||
		!is_due(beside->c, id, x->directory->content_wanted_ms))
		return true;
	missing = missing_in(beside->c, id, DEPTH_MAX, beside->allowed);
	return missing.bytes == 0 || missing.bytes > beside->allowed ||
	       missing.bytes < missing.kept ||
	       !fetch_content(beside->c, id, 0, missing.bytes, beside->allowed);
}

/* Who searches a directory will want another one beside it: keep the pipe full. */
static void fetch_beside(struct cached *c, const struct object_id *top, uint64_t allowed)
{
	struct beside beside = {.c = c, .allowed = allowed};
	struct object_id parent = *top;

	if (climb(c, &parent))
		tree_list(c->tree, &parent, cached_now_ms(), fetch_all_of, &beside);
}

/* How much more may be fetched ahead: what was, or is on its way, and that nobody has opened counts
 * against half of the memory, until nothing was fetched for a while. */
static uint64_t content_budget(struct cached *c)
{
	uint64_t most = c->memory_bytes_max / 2, guessed;
	const struct prefetch *p;

	if (most > PREFETCH_CONTENT_MAX_BYTES)
		most = PREFETCH_CONTENT_MAX_BYTES;
	if (c->guessed_before_bytes > c->guessed_bytes ||
		cached_now_ms() - c->guessed_ms > GUESS_FORGOTTEN_MS)
		c->guessed_before_bytes = c->guessed_bytes;
	guessed = c->guessed_bytes - c->guessed_before_bytes;
	LIST_FOREACH(p, &c->prefetches, link)
		if (p->expected_bytes > p->received_bytes)
			guessed += p->expected_bytes - p->received_bytes;
	return guessed < most ? most - guessed : 0;
}

/* The last directory of the first `length` bytes is hidden. */
static bool is_hidden(const char *path, size_t length)
{
	while (length > 0 && path[length - 1] != '/')
		length--;
	return path[length] == '.';
}

/* The highest directory around the file in several branches of which content was wanted, and
 * whose missing content is not too much.  What is read first, or in a hidden directory, says
 * nothing about what is around that.  True when the file is to be waited for. */
static bool consider_content(struct cached *c, const char *path, const struct found *file,
	const struct attributes *attributes)
{
	uint64_t most = content_budget(c), expected = 0, allowed = 0;
	size_t length = path_parent_length(path);
	bool is_search = is_searched(c, &file->directory);
	struct object_id at = file->directory, top = {0};
	uint64_t branch = file->id.inode;
	struct directory *d;
	struct missing missing;

	if (scan_is_read_first(path_name(path)))
		return false;
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		uint64_t evidence, max;

		d = directory_make(c, &at);
		if (!d)
			return false;
		d->opens += d->last_opened != branch;
		d->last_opened = branch;
		evidence = d->opens + (is_search ? WALK_OPENS : 0);
		max = evidence * evidence * CONTENT_STEP_BYTES;
		if (max > most)
			max = most;
		if (evidence >= 2 && is_due(c, &at, d->content_wanted_ms)) {
			missing = missing_in(c, &at, DEPTH_MAX, max);
			if (missing.bytes <= max && missing.bytes >= missing.kept) {
				top = at;
				expected = missing.bytes;
				allowed = max;
			}
		}
		branch = at.inode;
		if (is_hidden(path, length) || !climb(c, &at))
			break;
		while (length > 0 && path[--length] != '/')
			;
	}
	if (top.inode) {
		bool awaited = fetch_content(c, &top, 0, expected, allowed) && is_search;

		if (awaited)
			fetch_beside(c, &top, allowed);
		return awaited;
	}
	d = directory_make(c, &file->directory);
	missing = missing_in(c, &file->directory, 1, DIRECTORY_CONTENT_MAX_BYTES);
	if (d && d->opens == 1 && missing.bytes > attributes->size_bytes &&
		missing.bytes <= DIRECTORY_CONTENT_MAX_BYTES)
		fetch_content(c, &file->directory, 1, missing.bytes, DIRECTORY_CONTENT_MAX_BYTES);
	return false;
}

/* At the speed so far, will the rest be here soon?  A single file is had sooner by itself, but
 * who searches wants the others next. */
static bool is_worth_waiting(const struct cached *c, const struct prefetch *p, bool is_search)
{
	uint64_t now_ms = cached_now_ms(), flowing_ms = now_ms - p->first_content_ms;
	uint64_t rest_bytes =
		p->expected_bytes > p->received_bytes ? p->expected_bytes - p->received_bytes : 0;

	if (now_ms - p->started_ms <= round_trips_ms(c, 2) + WAIT_STEP_MS)
		return true;
	if (!p->first_content_ms || !is_search)
		return is_search && now_ms - p->started_ms <= CONTENT_START_MAX_MS;
	return flowing_ms <= WAIT_STEP_MS ||
	       rest_bytes * flowing_ms <= p->received_bytes * CONTENT_WAIT_MAX_MS;
}

int cached_await_content(struct cached *c, struct op_context *ctx, const char *path,
	struct found *ret_found, struct attributes *ret_attributes)
{
	uint64_t since_ms = cached_now_ms();
	bool restored = false, considered = false;
	int r;

	for (;;) {
		const struct prefetch *p;
		struct tree_entry entry = {.attributes = ret_attributes};

		c->content_opened_ms = cached_now_ms();
		r = cached_resolve(c, ctx, path, ret_found, ret_attributes);
		if (r < 0)
			return r;
		entry.kept = extra_find(c, &ret_found->id);
		entry.name_validity = TREE_WATCHED;
		if (!restored && may_restore(c, &entry)) {
			restored = true;
			if (op_interrupted(ctx))
				return -EINTR;
			content_restore(c, ret_attributes);
			continue;
		}
		if (!considered)
			consider_index(c, path, &ret_found->directory);
		if (!lacks_content(&entry) || !is_small(ret_attributes))
			return 0;
		p = find_prefetch(c, path, true);
		if (!p && !considered && consider_content(c, path, ret_found, ret_attributes)) {
			considered = true;
			continue;
		}
		if (!p)
			return 0;
		if (cached_now_ms() - since_ms > CONTENT_WAIT_MAX_MS ||
			!is_worth_waiting(c, p, is_listed(c, &ret_found->directory)))
			return 0;
		r = wait_for(c, ctx, path);
		if (r < 0)
			return r;
	}
}
