#include "ops/cached_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

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
	UNWANTED_MS = 2000,           /* content that is on its way and that nobody opens */
	WALK_OPENS = 2,               /* a search counts as so many misses */
	PREFETCHES_MAX = 4,
	LOAD_ENTRIES_MAX = 1000, /* beyond the directory's own, in those below it */
	LOAD_DEPTH = 3,
	LOAD_FILE_MAX_BYTES = 4 << 10, /* content that a load brings along: a few small files */
	LOAD_CONTENT_MAX_BYTES = 64 << 10,
	WALK_MS =
		2000, /* who opens files so soon after walking through directories searches them */
	DEPTH_MAX = 64, /* of directories looked at to size up a prefetch */
	REFUSED_MS = 5000,
};

struct learnt cached_begin_asking(struct cached *c, struct op_context *ctx)
{
	if (c->node_count >= c->node_count_max && !c->forgetting)
		cached_forget_all(c);
	c->asking++;
	ctx->served.position = 0;
	return (struct learnt){.asked = c->clock, .at = c->highest};
}

void cached_end_asking(struct cached *c, const struct op_context *ctx, struct learnt *learnt)
{
	c->asking--;
	if (ctx->served.position)
		learnt->at = ctx->served.position;
	if (c->highest < learnt->at)
		c->highest = learnt->at;
}

void cached_begin_change(struct cached *c, struct op_context *ctx, struct own *own)
{
	*own = (struct own){.learnt = cached_begin_asking(c, ctx), .callers = ctx->facts};
	ctx->facts = &own->facts;
}

void cached_end_change(struct cached *c, struct op_context *ctx, struct own *own)
{
	cached_end_asking(c, ctx, &own->learnt);
	/* Events that were lost may have told of a later change. */
	own->told = ctx->served.position && own->learnt.asked > c->rescan_at;
	if (!ctx->served.position)
		own->learnt.at = c->highest;
	if (own->callers)
		*own->callers = own->facts;
	ctx->facts = own->callers;
}

void cached_count_trip(struct cached *c, uint64_t started_ms)
{
	uint64_t took_us = (cached_now_ms() - started_ms) * 1000;

	c->statistics.misses++;
	c->round_trip_us = c->round_trip_us ? (c->round_trip_us * 7 + took_us) / 8 : took_us;
}

static uint64_t round_trips_ms(const struct cached *c, unsigned count)
{
	return c->round_trip_us * count / 1000;
}

int cached_wait(struct cached *c, struct op_context *ctx, const char *path)
{
	struct waiter waiter = {.name = path_name(path)}, **link;

	if (op_interrupted(ctx))
		return -EINTR;
	waiter.next = c->waiters;
	c->waiters = &waiter;
	clock_cond_wait_ms(&c->changed, &c->lock, WAIT_STEP_MS);
	for (link = &c->waiters; *link != &waiter; link = &(*link)->next)
		;
	*link = waiter.next;
	return 0;
}

void cached_learnt(struct cached *c, const struct node *node)
{
	const struct waiter *waiter = c->waiters;

	while (waiter && *waiter->name && strcmp(waiter->name, node->name) != 0)
		waiter = waiter->next;
	if (waiter)
		pthread_cond_broadcast(&c->changed);
}

/* ---- Taking in what a scan says ---------------------------------------------------- */

/* Directories whose entries are known once the scan has gone on far enough: breadth first,
 * so all children of one are told before the first grandchild. */
struct listed {
	struct listed *next;
	uint64_t at;
	char path[];
};

struct intake {
	struct cached *cached;
	const char *top;           /* path of the scanned directory */
	struct learnt learnt;      /* of the entry that is being taken in */
	struct prefetch *prefetch; /* NULL: for a caller */
	struct buffer path;
	struct listed *first, **last;
};

static void intake_init(struct intake *intake, struct cached *c, const char *top,
	const struct learnt *learnt, struct prefetch *prefetch)
{
	*intake = (struct intake){.cached = c, .top = top, .learnt = *learnt, .prefetch = prefetch};
	intake->last = &intake->first;
}

/* What the complete scan did not tell of is not there. */
static void drop_unseen(struct cached *c, struct node *directory, uint64_t at)
{
	struct directory *d = directory->directory;

	for (size_t i = 0; i < d->bucket_count; i++)
		for (struct node *child = d->buckets[i], *next; child; child = next) {
			next = child->next;
			if (child->at < at && !child->moves)
				node_remove(c, child);
		}
}

static void set_complete(struct cached *c, const char *path, uint64_t asked, uint64_t at)
{
	struct node *node = tree_find(c, path, strlen(path));

	if (!node || !node->directory || asked <= c->rescan_at || node->directory->listed_at > at)
		return;
	for (const struct node *up = node; up; up = up->parent)
		if (up->became_at > at)
			return;
	drop_unseen(c, node, at);
	node->directory->listed_at = at;
	node->directory->complete = true;
	node->directory->scanned = true;
	node->directory->loaded_ms = cached_now_ms();
	pthread_cond_broadcast(&c->changed);
}

/* Completes the listed directories in front of `parent`; NULL: all. */
static void complete_until(struct intake *intake, const char *parent)
{
	const struct listed *at = intake->first;

	while (at && parent && strcmp(at->path, parent) != 0)
		at = at->next;
	if (parent && !at)
		return;
	while (intake->first && (!parent || strcmp(intake->first->path, parent) != 0)) {
		struct listed *listed = intake->first;

		set_complete(intake->cached, listed->path, intake->learnt.asked, listed->at);
		intake->first = listed->next;
		if (!intake->first)
			intake->last = &intake->first;
		free(listed);
	}
}

static void push_listed(struct intake *intake, const char *path)
{
	size_t size = strlen(path) + 1;
	struct listed *listed = malloc(sizeof(*listed) + size);

	if (!listed)
		return;
	listed->next = NULL;
	listed->at = intake->learnt.at;
	memcpy(listed->path, path, size);
	*intake->last = listed;
	intake->last = &listed->next;
}

static void take_directory(
	struct intake *intake, struct node *node, const char *path, const struct dir_entry *entry)
{
	struct directory *d = node_directory(node);

	if (!d)
		return;
	if (entry->watched_since && d->unwatched_at <= intake->learnt.asked &&
		(!d->watched || d->watched_at < entry->watched_since) &&
		!intake->cached->forgetting) {
		d->watched = true;
		d->watched_at = entry->watched_since;
		d->complete = false; /* what this listing says next, no event tells */
	}
	if (!entry->complete)
		return;
	push_listed(intake, path);
}

static void take_file(struct intake *intake, struct node *node, const struct dir_entry *entry)
{
	struct cached *c = intake->cached;
	struct content *content;

	if (!attributes_same_version(&node->attributes, &entry->attributes) ||
		!node->attributes_known || node->changed_at > intake->learnt.asked)
		return;
	if (entry->link_target && !node->link_target)
		node->link_target = strdup(entry->link_target);
	/* A far end may say anything. */
	if (!entry->content || node->content || !S_ISREG(entry->attributes.mode) ||
		entry->content_size != entry->attributes.size_bytes)
		return;
	content = content_new(entry->content, entry->content_size, intake->learnt.at);
	if (!content)
		return;
	content_attach(c, node, content);
	content_keep(c, node, &entry->attributes);
	if (intake->prefetch) {
		if (!intake->prefetch->first_content_ms)
			intake->prefetch->first_content_ms = cached_now_ms();
		intake->prefetch->received_bytes += entry->content_size;
		c->statistics.prefetched_bytes += entry->content_size;
	}
}

/* "top/relative" in the intake's buffer. */
static const char *full_path(struct intake *intake, const char *relative)
{
	struct buffer *b = &intake->path;

	b->size = 0;
	if (buffer_append_string(b, intake->top) < 0)
		return NULL;
	if (*intake->top && *relative && buffer_append_string(b, "/") < 0)
		return NULL;
	if (buffer_append(b, relative, strlen(relative) + 1) < 0)
		return NULL;
	return (const char *)b->data;
}

/* The directory that the path is in is still there. */
static bool may_hold_names(const struct cached *c, const char *path)
{
	const struct node *parent = tree_find(c, path, path_parent_length(path));

	return parent &&
	       (parent->state == NODE_UNKNOWN ||
		       (parent->state == NODE_PRESENT && S_ISDIR(parent->attributes.mode)));
}

static int take_entry_locked(struct intake *intake, const struct dir_entry *entry)
{
	struct cached *c = intake->cached;
	const char *path = full_path(intake, entry->path);
	bool is_directory = S_ISDIR(entry->attributes.mode);
	struct node *node;
	bool takes;

	if (!path)
		return -ENOMEM;
	if (is_directory && *entry->path) {
		cleanup_free char *parent = strndup(path, path_parent_length(path));

		if (parent)
			complete_until(intake, parent);
	}
	if (c->node_count >= c->node_count_max)
		return -ENOSPC;
	if (intake->learnt.asked <= c->rescan_at)
		return 0;
	node = tree_make(c, path);
	if (!node)
		return may_hold_names(c, path) ? -ENOMEM : 0;
	if (entry->at)
		intake->learnt.at = entry->at;
	if (c->highest < intake->learnt.at)
		c->highest = intake->learnt.at;
	takes = node_takes(node, node->parent, intake->learnt.at);
	/* A scan does not wait for writes that are under way. */
	if (takes && node->writers > 0 && node_is_object(node, &entry->attributes))
		node_raise(node, intake->learnt.at);
	else if (takes)
		node_set_present(c, node, &entry->attributes, &intake->learnt);
	if (node->state != NODE_PRESENT ||
		!object_id_equal(&node->attributes.id, &entry->attributes.id))
		return 0;
	if (is_directory)
		take_directory(intake, node, path, entry);
	else
		take_file(intake, node, entry);
	return 0;
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
	int r;

	pthread_mutex_lock(&intake->cached->lock);
	if (intake->prefetch)
		intake->prefetch->flowed_ms = cached_now_ms();
	r = is_unwanted(intake) ? -EINTR : take_entry_locked(intake, entry);
	pthread_mutex_unlock(&intake->cached->lock);
	return r;
}

/* Scans without the lock; takes and leaves with it. */
static int scan(struct cached *c, struct op_context *ctx, const char *path,
	const struct scan_request *request, struct prefetch *prefetch)
{
	struct object_ref object = OBJECT_AT(path);
	struct learnt learnt = cached_begin_asking(c, ctx);
	struct intake intake;
	int r;

	c->statistics.scans++;
	intake_init(&intake, c, path, &learnt, prefetch);
	pthread_mutex_unlock(&c->lock);
	r = workspace_scan(ctx, c->inner, &object, request, take_entry, &intake);
	pthread_mutex_lock(&c->lock);
	if (r == 0)
		complete_until(&intake, NULL);
	while (intake.first) {
		struct listed *next = intake.first->next;

		free(intake.first);
		intake.first = next;
	}
	buffer_done(&intake.path);
	cached_end_asking(c, ctx, &learnt);
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
	struct prefetch *prefetch = user, **link;
	struct cached *c = prefetch->cached;
	struct op_context ctx;

	op_context_init(&ctx);
	ctx.interrupted = stops;
	ctx.interrupted_data = c;
	pthread_mutex_lock(&c->lock);
	prefetch->started_ms = cached_now_ms();
	if (!c->stopping)
		scan(c, &ctx, prefetch->path, &prefetch->request, prefetch);
	for (link = &c->prefetches; *link != prefetch; link = &(*link)->next)
		;
	*link = prefetch->next;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	free(prefetch);
}

static bool start_prefetch(struct cached *c, const struct node *top,
	const struct scan_request *request, uint64_t expected_bytes)
{
	cleanup_free char *path = node_path(top);
	size_t size = path ? strlen(path) + 1 : 0;
	struct prefetch *prefetch = path ? calloc(1, sizeof(*prefetch) + size) : NULL;
	unsigned running = 0;

	for (const struct prefetch *p = c->prefetches; p; p = p->next)
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
	prefetch->next = c->prefetches;
	c->prefetches = prefetch;
	return true;
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

static const struct prefetch *find_prefetch(const struct cached *c, const char *path, bool content)
{
	const struct prefetch *p = c->prefetches;

	while (p && ((content && !p->content) || !path_is_within(path, p->path) ||
			    (content && is_hidden_below(path, p->path)) ||
			    (p->request.depth_max == 1 && content &&
				    strlen(p->path) != path_parent_length(path)) ||
			    (p->request.depth_max == 1 && !content && strcmp(p->path, path) != 0)))
		p = p->next;
	return p;
}

/* What was fetched is believed until the feed says otherwise, or for a while. */
static bool is_due(const struct cached *c, const struct directory *d, uint64_t last_ms)
{
	uint64_t while_ms = c->feed && d->watched ? PREFETCH_REPEAT_MS : c->ttl_ms;

	return !last_ms || cached_now_ms() - last_ms > while_ms;
}

static bool is_listed(const struct node *directory)
{
	return directory && directory->directory && directory->directory->listed;
}

/* Directories were loaded in several branches of one directory, or all on the way to this one
 * were listed: somebody walks.  Fetch all names below the highest such directory, or the highest
 * that was not fetched just now. */
static void consider_names(struct cached *c, struct node *node, bool listing)
{
	struct scan_request request = {.flags = SCAN_WATCH, .entries_max = PREFETCH_ENTRIES_MAX};
	struct node *top = NULL;

	for (struct node *at = node->parent, *branch = node; at; branch = at, at = at->parent) {
		struct directory *d = at->directory;

		if (d->last_branch != branch->hash || d->branches == 0)
			d->branches++;
		d->last_branch = branch->hash;
		listing = listing && d->listed;
		if ((d->branches >= 2 || listing) && is_due(c, d, d->names_wanted_ms))
			top = at;
	}
	if (!top)
		return;
	top->directory->names_wanted_ms = cached_now_ms();
	start_prefetch(c, top, &request, 0);
}

/* ---- Directories --------------------------------------------------------------------------- */

static int load(struct cached *c, struct op_context *ctx, struct node *node, bool listing)
{
	struct scan_request request = {.flags = SCAN_WATCH | SCAN_CONTENT,
		.depth_max = LOAD_DEPTH,
		.entries_max = LOAD_ENTRIES_MAX,
		.content_max_bytes = LOAD_FILE_MAX_BYTES,
		.content_total_bytes = LOAD_CONTENT_MAX_BYTES};
	cleanup_free char *path = node_path(node);
	struct directory *d = node_directory(node);
	uint64_t started_ms = cached_now_ms();
	struct load load, **link;
	int r;

	if (!path || !d)
		return path && !d ? -ENOTDIR : -ENOMEM;
	consider_names(c, node, listing);
	d->listed = d->listed || listing;
	load = (struct load){.next = c->loads, .path = path};
	c->loads = &load;
	r = scan(c, ctx, path, &request, NULL);
	for (link = &c->loads; *link != &load; link = &(*link)->next)
		;
	*link = load.next;
	cached_count_trip(c, started_ms);
	node = tree_find(c, path, strlen(path));
	if (node && node->directory)
		node->directory->refused_ms = r < 0 && r != -EINTR ? cached_now_ms() : 0;
	pthread_cond_broadcast(&c->changed);
	return r;
}

void cached_own_directory(struct cached *c, struct node *node, const struct own *own)
{
	struct scan_request request = {.flags = SCAN_WATCH, .depth_max = 1};

	if (!node || !node_directory(node))
		return;
	node->directory->complete = true;
	node->directory->listed_at = own->learnt.at;
	node->directory->loaded_ms = cached_now_ms();
	if (c->feed)
		start_prefetch(c, node, &request, 0);
}

/* Names are coming in, more of them all the time: those of one more directory come sooner than
 * asking for them would bring them. */
static bool is_flowing(const struct cached *c, const char *path)
{
	uint64_t now_ms = cached_now_ms(), pause_ms = round_trips_ms(c, 2) + NAMES_PAUSE_MAX_MS;

	for (const struct prefetch *p = c->prefetches; p; p = p->next) {
		uint64_t last_ms = p->flowed_ms ? p->flowed_ms : p->started_ms;

		if (!p->content && p->request.depth_max != 1 && path_is_within(path, p->path) &&
			now_ms - last_ms <= pause_ms)
			return true;
	}
	return false;
}

/* Somebody else is at it, and it is worth waiting for. */
static bool is_coming(const struct cached *c, const struct node *node, uint64_t since_ms)
{
	uint64_t waited_ms = cached_now_ms() - since_ms;
	bool prefetched = c->prefetches && waited_ms <= NAMES_WAIT_MAX_MS;
	cleanup_free char *path = c->loads || prefetched ? node_path(node) : NULL;

	for (const struct load *load = c->loads; path && load; load = load->next)
		if (strcmp(load->path, path) == 0)
			return true;
	if (!path || !prefetched)
		return false;
	if (waited_ms > round_trips_ms(c, 2) + WAIT_STEP_MS)
		return is_flowing(c, path);
	return find_prefetch(c, path, false);
}

/* It cannot be read, or what it says is not to be believed. */
static bool is_hopeless(const struct cached *c, const struct node *directory)
{
	const struct directory *d = directory->directory;

	if (!d)
		return false;
	if (d->refused_ms && cached_now_ms() - d->refused_ms < REFUSED_MS)
		return true;
	return d->loaded_ms && !(c->feed && d->watched) && c->ttl_ms == 0;
}

int cached_resolve(struct cached *c, struct op_context *ctx, const char *path, bool attributes,
	struct node **ret_node)
{
	uint64_t since_ms = cached_now_ms();
	struct node *node, *directory;
	bool loaded = false;
	int r;

	for (;;) {
		r = tree_lookup(c, path, &node, &directory);
		if (r == 0 && (!attributes || node_attributes_are_fresh(c, node))) {
			*ret_node = node;
			return 0;
		}
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0 || !directory || is_hopeless(c, directory)) {
			return -EAGAIN;
		} else if (is_coming(c, directory, since_ms)) {
			r = cached_wait(c, ctx, path);
		} else if (loaded || node_is_complete(c, directory)) {
			return -EAGAIN;
		} else {
			r = load(c, ctx, directory, false);
			loaded = true;
		}
		if (r == -EINTR || r == -ENOTCONN || r == -EIO)
			return r;
	}
}

/* The listing is known, but not what is below: do not wait until it is asked for. */
static void consider_walk(struct cached *c, struct node *node)
{
	const struct directory *d = node->directory;

	if (!is_listed(node->parent) ||
		!is_due(c, node->parent->directory, node->parent->directory->names_wanted_ms))
		return;
	for (size_t i = 0; i < d->bucket_count; i++)
		for (struct node *child = d->buckets[i]; child; child = child->next)
			if (child->state == NODE_PRESENT && S_ISDIR(child->attributes.mode) &&
				!node_is_complete(c, child)) {
				consider_names(c, child, true);
				return;
			}
}

int cached_load_listing(struct cached *c, struct op_context *ctx, const char *path)
{
	uint64_t since_ms = cached_now_ms();
	struct node *node;
	int r;

	for (;;) {
		r = cached_resolve(c, ctx, path, false, &node);
		if (r < 0)
			return r;
		if (node->state == NODE_PRESENT && !S_ISDIR(node->attributes.mode))
			return -ENOTDIR;
		if (node_is_complete(c, node) && (node->directory->scanned || !c->feed)) {
			node->directory->listed = true;
			consider_walk(c, node);
			return 0;
		}
		if (is_coming(c, node, since_ms)) {
			r = cached_wait(c, ctx, path);
			if (r < 0)
				return r;
			continue;
		}
		return load(c, ctx, node, true);
	}
}

int cached_load_names(
	struct cached *c, struct op_context *ctx, const char *path, struct node **ret_node)
{
	uint64_t since_ms = cached_now_ms();
	bool loaded = false;
	struct node *node;
	int r;

	for (;;) {
		r = cached_resolve(c, ctx, path, false, &node);
		if (r < 0)
			return r;
		if (node->state == NODE_PRESENT && !S_ISDIR(node->attributes.mode))
			return -ENOTDIR;
		if (loaded || node_is_complete(c, node) || is_hopeless(c, node)) {
			*ret_node = node;
			return 0;
		}
		if (is_coming(c, node, since_ms)) {
			r = cached_wait(c, ctx, path);
		} else {
			r = load(c, ctx, node, false);
			loaded = true;
		}
		if (r < 0)
			return r;
	}
}

/* ---- Content --------------------------------------------------------------------------------- */

static bool lacks_content(const struct cached *c, const struct node *node)
{
	return node->state == NODE_PRESENT && S_ISREG(node->attributes.mode) && !node->content &&
	       node->attributes.size_bytes > 0 && node_name_is_fresh(c, node);
}

static bool is_wanted_file(const struct cached *c, const struct node *node)
{
	return lacks_content(c, node) && node->attributes.size_bytes <= SMALL_FILE_MAX_BYTES;
}

static bool may_restore(const struct cached *c, const struct node *node)
{
	return lacks_content(c, node) && content_may_be_kept(c, node->attributes.size_bytes) &&
	       content_is_kept(c, node);
}

/* Bytes of small files below `top` whose content is missing; stops beyond `max`.  Adds up
 * what is here or on disk in `*kept`: a scan would bring it once more. */
static uint64_t missing_bytes(const struct cached *c, const struct node *top, unsigned depth,
	uint64_t max, uint64_t *kept)
{
	const struct directory *d = top->directory;
	uint64_t bytes = 0;

	for (size_t i = 0; d && i < d->bucket_count && bytes <= max; i++)
		for (const struct node *child = d->buckets[i]; child; child = child->next) {
			if (child->attributes.size_bytes <= SMALL_FILE_MAX_BYTES &&
				(child->content || may_restore(c, child)))
				*kept += child->attributes.size_bytes;
			else if (is_wanted_file(c, child))
				bytes += child->attributes.size_bytes;
			else if (depth > 1 && child->directory && child->name[0] != '.')
				bytes += missing_bytes(c, child, depth - 1, max, kept);
		}
	return bytes;
}

static bool fetch_content(
	struct cached *c, struct node *top, uint32_t depth, uint64_t expected, uint64_t total_max)
{
	struct scan_request request = {
		.flags = SCAN_WATCH | SCAN_CONTENT | SCAN_NOT_HIDDEN | SCAN_GUESS,
		.depth_max = depth,
		.entries_max = depth == 1 ? 0 : PREFETCH_ENTRIES_MAX,
		.content_max_bytes = SMALL_FILE_MAX_BYTES,
		.content_total_bytes = total_max};

	if (!start_prefetch(c, top, &request, expected))
		return false;
	top->directory->content_wanted_ms = cached_now_ms();
	return true;
}

/* Somebody listed the directory, and just now walked through one around it or opened files in
 * several of its branches. */
static bool is_searched(const struct node *directory)
{
	uint64_t now_ms = cached_now_ms();

	if (!is_listed(directory))
		return false;
	for (const struct node *at = directory; at; at = at->parent) {
		const struct directory *d = at->directory;

		if (d->opens > WALK_OPENS ||
			(d->names_wanted_ms && now_ms - d->names_wanted_ms < WALK_MS))
			return true;
	}
	return false;
}

static bool fetch_all_of(struct cached *c, struct node *directory, uint64_t allowed)
{
	uint64_t kept = 0, bytes;

	if (!directory->directory || directory->name[0] == '.' ||
		!is_due(c, directory->directory, directory->directory->content_wanted_ms))
		return false;
	bytes = missing_bytes(c, directory, DEPTH_MAX, allowed, &kept);
	return bytes && bytes <= allowed && bytes >= kept &&
	       fetch_content(c, directory, 0, bytes, allowed);
}

/* Who searches a directory will want another one beside it: the link is not to rest meanwhile. */
static void fetch_beside(struct cached *c, const struct node *top, uint64_t allowed)
{
	const struct directory *d = top->parent ? top->parent->directory : NULL;

	for (size_t i = 0; d && i < d->bucket_count; i++)
		for (struct node *child = d->buckets[i]; child; child = child->next)
			if (fetch_all_of(c, child, allowed))
				return;
}

/* The highest directory around the file in several branches of which content was wanted, and
 * whose missing content is not too much.  True when the file is to be waited for. */
static bool consider_content(struct cached *c, struct node *file)
{
	uint64_t most = c->memory_bytes_max / 2, expected = 0, allowed = 0, kept = 0;
	bool is_search = is_searched(file->parent);
	struct node *top = NULL;

	if (most > PREFETCH_CONTENT_MAX_BYTES)
		most = PREFETCH_CONTENT_MAX_BYTES;
	for (struct node *at = file->parent, *branch = file; at; branch = at, at = at->parent) {
		unsigned evidence;
		uint64_t bytes, max;

		kept = 0;
		if (at->directory->last_opened != branch->hash || !at->directory->opens)
			at->directory->opens++;
		at->directory->last_opened = branch->hash;
		evidence = at->directory->opens;
		if (is_search)
			evidence += WALK_OPENS;
		max = (uint64_t)evidence * evidence * CONTENT_STEP_BYTES;
		if (max > most)
			max = most;
		if (evidence < 2 || !is_due(c, at->directory, at->directory->content_wanted_ms))
			continue;
		bytes = missing_bytes(c, at, DEPTH_MAX, max, &kept);
		if (bytes > max || bytes < kept)
			continue;
		top = at;
		expected = bytes;
		allowed = max;
	}
	if (top) {
		bool awaited = fetch_content(c, top, 0, expected, allowed) && is_search;

		if (awaited)
			fetch_beside(c, top, allowed);
		return awaited;
	}
	expected = missing_bytes(c, file->parent, 1, DIRECTORY_CONTENT_MAX_BYTES, &kept);
	if (file->parent->directory->opens == 1 && expected > file->attributes.size_bytes &&
		expected <= DIRECTORY_CONTENT_MAX_BYTES)
		fetch_content(c, file->parent, 1, expected, DIRECTORY_CONTENT_MAX_BYTES);
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

int cached_await_content(
	struct cached *c, struct op_context *ctx, const char *path, struct node **ret_node)
{
	uint64_t since_ms = cached_now_ms();
	bool restored = false, considered = false;
	struct node *node;
	int r;

	for (;;) {
		const struct prefetch *p;

		c->content_opened_ms = cached_now_ms();
		r = cached_resolve(c, ctx, path, true, &node);
		if (r < 0)
			return r;
		*ret_node = node;
		if (!restored && may_restore(c, node)) {
			restored = true;
			if (op_interrupted(ctx))
				return -EINTR;
			content_restore(c, path);
			continue;
		}
		if (!is_wanted_file(c, node))
			return 0;
		p = find_prefetch(c, path, true);
		if (!p && !considered && consider_content(c, node)) {
			considered = true;
			continue;
		}
		if (!p)
			return 0;
		if (cached_now_ms() - since_ms > CONTENT_WAIT_MAX_MS ||
			!is_worth_waiting(c, p, is_listed(node->parent)))
			return 0;
		r = cached_wait(c, ctx, path);
		if (r < 0)
			return r;
	}
}
