/* What a scan says, taken into the tree. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"

enum { UNWANTED_MS = 2000 }; /* content that is on its way and that nobody opens */

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

	c->statistics.scanned_names++;
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
	if ((entry->lacks_texts || entry->lines) && !is_content_current(intake->cached, entry)) {
		told.lacks_texts = false;
		told.lines = NULL;
		told.lines_size = 0;
	}
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
	c->statistics.scanning++;
	cached_leave(c);
	r = workspace_scan(ctx, c->base.inner, &object, request, take_entry, &intake);
	cached_enter(c);
	if (--c->statistics.scanning == 0)
		c->statistics.scanned_names = 0;
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
