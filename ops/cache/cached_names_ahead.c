/* Names that a walk through a tree needs next, when the tree is too large for one scan. */
#include "ops/cache/cached_fetch.h"

#include <string.h>
#include <sys/stat.h>

#include "ops/listing_order.h"

enum {
	AHEAD_ENTRIES_MAX = PREFETCH_ENTRIES_MAX / 2,
	LOOKS_MAX = 4096, /* most entries of a directory in which something is fetched ahead */
	NEXT_TRIES = 3,
};

/* Looks for the nearest subdirectory after a place in the order of the listing, or before it. */
struct nearest {
	uint64_t from, at; /* listing_order_of() the place, and the nearest one so far */
	bool backwards;
	unsigned looks;
	struct object_id id; /* inode 0: there is none */
};

static bool find_nearest(void *user, const struct tree_entry *entry)
{
	uint64_t at = listing_order_of(entry->name, strlen(entry->name));
	struct nearest *nearest = user;
	bool is_nearer = nearest->backwards ? at < nearest->from : at > nearest->from;

	if (nearest->id.inode)
		is_nearer = is_nearer && (nearest->backwards ? at > nearest->at : at < nearest->at);
	if (is_nearer && S_ISDIR(entry->attributes->mode) && entry->name[0] != '.') {
		nearest->at = at;
		nearest->id = entry->attributes->id;
	}
	return ++nearest->looks < LOOKS_MAX;
}

static struct nearest find_beside(
	struct cached *c, const struct object_id *parent, uint64_t from, bool backwards)
{
	struct nearest nearest = {.from = from, .backwards = backwards};

	tree_list(c->tree, parent, cached_now_ms(), find_nearest, &nearest);
	return nearest;
}

/* Whether a listing is missing: of the directory, or below it. */
struct lacking {
	struct cached *c;
	unsigned looks;
	bool lacks;
};

static bool look_for_lack(void *user, const struct tree_entry *entry);

static void look_below(struct lacking *lacking, const struct object_id *directory)
{
	if (tree_list(lacking->c->tree, directory, cached_now_ms(), look_for_lack, lacking) ==
		TREE_ASK)
		lacking->lacks = true;
}

static bool look_for_lack(void *user, const struct tree_entry *entry)
{
	struct lacking *lacking = user;

	if (S_ISDIR(entry->attributes->mode) && entry->name[0] != '.' && lacking->looks < LOOKS_MAX)
		look_below(lacking, &entry->attributes->id);
	return ++lacking->looks < LOOKS_MAX && !lacking->lacks;
}

static bool lacks_names(struct cached *c, const struct object_id *directory)
{
	struct lacking lacking = {.c = c};

	look_below(&lacking, directory);
	return lacking.lacks;
}

static bool is_scanning_names(const struct cached *c)
{
	const struct prefetch *p;

	LIST_FOREACH(p, &c->prefetches, link)
		if (!p->content)
			return true;
	return false;
}

/* A walk has come into the subdirectory `at` of `parent`.  If it came from the one beside it,
 * fetches the names in the next ones on its way. */
static void fetch_next(struct cached *c, const struct object_id *parent, struct directory *parents,
	const struct object_id *at)
{
	struct object_id ignored;
	const char *name = tree_name_of(c->tree, at, &ignored);
	uint64_t from = name ? listing_order_of(name, strlen(name)) : 0;
	struct nearest before = find_beside(c, parent, from, true);
	struct nearest next = find_beside(c, parent, from, false);

	if (before.looks == LOOKS_MAX) {
		parents->names_cut = false; /* to look at so many each time takes too long */
		return;
	}
	if (next.id.inode && cached_is_listed(c, &next.id)) {
		struct nearest other = next;

		next = before;
		before = other;
	}
	if (!before.id.inode || !cached_is_listed(c, &before.id))
		return;
	for (int tries = 0; tries < NEXT_TRIES && next.id.inode; tries++) {
		const struct directory *d = directory_find(c, &next.id);

		if (cached_is_listed(c, &next.id))
			return;
		if (cached_is_due(c, &next.id, d ? d->names_wanted_ms : 0) &&
			lacks_names(c, &next.id)) {
			cached_fetch_names_ahead(
				c, &next.id, !parents->names_partial, AHEAD_ENTRIES_MAX);
			return;
		}
		next = find_beside(c, parent, next.at, next.backwards);
	}
}

void cached_follow_walk(struct cached *c, const struct object_id *listed)
{
	struct object_id at = *listed, parent = *listed;

	for (int depth = 0; depth < DEPTH_MAX && cached_climb(c, &parent); depth++, at = parent) {
		struct directory *d = directory_find(c, &parent);

		if (!d || !d->names_cut)
			continue;
		/* A listing of `at` itself says nothing of what is below the next one. */
		if (depth == 0 || d->walked == at.inode || is_scanning_names(c))
			return;
		d->walked = at.inode;
		fetch_next(c, &parent, d, &at);
		return;
	}
}
