/* The entries of a scan, entered into the tree. */
#include "ops/cache/cached_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"

enum { UNWANTED_MS = 2000 }; /* without an open of a small file, a prefetch of content stops */

/* A directory of the scan.  The scan is breadth first: it reports all children of a directory
 * before the first grandchild; at that point the listing is complete. */
struct listed {
	struct listed *next;
	struct object_id id;
	uint64_t at;
	bool complete;
	char path[]; /* as in the entries of the scan */
};

struct intake {
	struct cached *cached;
	const char *top;           /* path of the scanned directory */
	struct object_id id;       /* of `top`; inode 0: not reported yet */
	struct tree_look look;     /* at the present entry */
	uint64_t asked_ms;         /* when the scan began */
	struct prefetch *prefetch; /* NULL: a caller waits for the scan */
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
	/* A search wants neither the names that the scan left out, nor the content that it did not
	 * return. */
	if (d && intake->onward)
		d->names_wanted_ms = cached_now_ms() - WALK_MS;
	pthread_cond_broadcast(&c->changed);
}

/* Learns the listings of the directories before `until`; NULL: of all. */
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

/* The directory that has the entry; NULL: the scan did not report it, or there was no memory. */
static struct listed *holder_of(const struct intake *intake, const char *path)
{
	size_t length = path_parent_length(path);
	struct listed *at = intake->last;

	/* The entries of a directory follow in a block: it is mostly the one of the last entry. */
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

/* Learns the watch that the scan added for a directory.  -ENOMEM: the tree does not know of the
 * watch, and ending it failed as well. */
static int take_watch(const struct intake *intake, const struct dir_entry *entry)
{
	const struct object_id *id = &entry->attributes.id;
	struct tree_look look = intake->look;
	struct cached *c = intake->cached;

	if (!c->feed || (!entry->complete && !entry->watched_since))
		return 0;
	/* The watch may have been added after the look at the directory. */
	if (look.at < entry->watched_since)
		look.at = entry->watched_since;
	tree_learn_watch(c->tree, &look, id, entry->watched_since, entry->watched_since);
	if (!entry->watched_since || tree_watched_since(c->tree, id))
		return 0;
	return cached_end_watch(c, id) ? 0 : -ENOMEM;
}

/* Whether data that came with the entry belongs to the known state: the tree may have ignored the
 * entry's attributes as older.  If the object had changed within the same tick, equal times prove
 * nothing, so the known look must be the one of the entry. */
static bool is_of_known_state(struct cached *c, const struct dir_entry *entry)
{
	struct attributes known;
	uint64_t known_at = tree_last_attributes(c->tree, &entry->attributes.id, &known);

	return known_at && attributes_same_version(&known, &entry->attributes) &&
	       (known_at == entry->at || !entry->attributes.changed_lately);
}

/* Whether the content of the entry is the content of the file as this mount knows it. */
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
		content_guessed(c, content);
		if (!intake->prefetch->first_content_ms)
			intake->prefetch->first_content_ms = cached_now_ms();
		intake->prefetch->received_bytes += entry->content_size;
		c->statistics.prefetched_bytes += entry->content_size;
	}
}

static void take_file(struct intake *intake, const struct dir_entry *entry)
{
	struct cached *c = intake->cached;

	/* The peer is not trusted to send these with entries of the right type only. */
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

/* Whether the prefetched content comes too late: the search that it was for has ended. */
static bool is_unwanted(const struct intake *intake)
{
	const struct prefetch *p = intake->prefetch;

	return p && p->content && p->request.depth_max != 1 &&
	       cached_now_ms() - intake->cached->content_opened_ms > UNWANTED_MS;
}

static int take_entry(void *user, const struct dir_entry *entry)
{
	struct intake *intake = user;
	struct dir_entry reported = *entry;
	int r;

	cached_enter(intake->cached);
	if (intake->prefetch) {
		intake->prefetch->flowed_ms = cached_now_ms();
		intake->prefetch->names++;
	}
	r = is_unwanted(intake) ? -EINTR : take_entry_locked(intake, entry);
	if ((entry->lacks_texts || entry->lines) && !is_content_current(intake->cached, entry)) {
		reported.lacks_texts = false;
		reported.lines = NULL;
		reported.lines_size = 0;
	}
	cached_leave(intake->cached);
	if (r == 0 && intake->onward)
		r = intake->onward->sink(intake->onward->user, &reported);
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
