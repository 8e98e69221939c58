#include "fs/watchers/watchers_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/watchers/inotify_scan.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

/* A scan takes up to this share of the time: 1/100 as a rule, more while changes wait for it. */
enum { SHARE_USUAL = 100, SHARE_URGENT = 50 };

static const uint64_t SCAN_LEAST_NS = 250000000, SCAN_MOST_NS = 5000000000;
static const uint64_t SCAN_URGENT_NS = 20000000, IDLE_NS = 1000000000;

/* ---- What is in a directory ---------------------------------------------------------------- */

struct listed {
	struct listed_entry {
		char *name;
		struct attributes attributes;
	} * entries;
	size_t count, capacity;
};

static int keep_entry(void *user, const struct dir_entry *entry)
{
	struct listed *listed = user;

	if (listed->count == NAMES_MAX)
		return -ENOMEM;
	if (listed->count == listed->capacity) {
		size_t capacity = listed->capacity ? 2 * listed->capacity : 64;
		struct listed_entry *entries =
			reallocarray(listed->entries, capacity, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		listed->entries = entries;
		listed->capacity = capacity;
	}
	listed->entries[listed->count].name = strdup(entry->path);
	if (!listed->entries[listed->count].name)
		return -ENOMEM;
	listed->entries[listed->count++].attributes = entry->attributes;
	return 0;
}

static void listed_done(struct listed *listed)
{
	for (size_t i = 0; i < listed->count; i++)
		free(listed->entries[i].name);
	free(listed->entries);
}

/* Watched before it is listed, so that no change is missed. */
static int list(struct watchers *w, struct inode *inode, struct listed *listed, uint64_t *ret_at)
{
	struct object_ref object = {.id = inode_table_id(w->mount->inodes, inode)};
	struct path_string path;
	struct op_context op;
	uint64_t since;
	int r;

	watchers_op(w, &op);
	announce_watch(w->mount, &op, inode);
	r = inode_table_path(w->mount->inodes, inode, NULL, &path);
	if (r < 0)
		return r;
	watchers_op(w, &op);
	object.path = path.path;
	r = workspace_readdir(&op, w->mount->workspace, &object, true, keep_entry, listed, &since);
	*ret_at = op.served.position;
	path_string_done(&path);
	return r;
}

/* With the lock held.  The first listing: this is what the watchers have seen. */
static void learn(struct watchers *w, struct seen_directory *directory, const struct listed *listed,
	uint64_t at)
{
	for (size_t i = 0; i < listed->count; i++) {
		const struct listed_entry *entry = &listed->entries[i];
		struct seen_name *name = seen_add_name(&w->seen, directory, entry->name);

		if (!name)
			return;
		if (!name->is_pending && !name->is_known)
			seen_set(&w->seen, name, &entry->attributes, at);
	}
	directory->is_listed = true;
}

static int compare_entries(const void *a, const void *b)
{
	return strcmp(
		((const struct listed_entry *)a)->name, ((const struct listed_entry *)b)->name);
}

static bool is_listed(const struct listed *listed, const char *name)
{
	struct listed_entry key = {.name = (char *)name};

	return listed->count && bsearch(&key, listed->entries, listed->count,
					sizeof(*listed->entries), compare_entries);
}

/* With the lock held.  Changes were missed: whatever differs is one. */
static void compare(
	struct watchers *w, struct seen_directory *directory, struct listed *listed, uint64_t at)
{
	uint64_t now_ns = clock_now_ns();

	if (listed->count)
		qsort(listed->entries, listed->count, sizeof(*listed->entries), compare_entries);
	for (size_t i = 0; i < listed->count; i++) {
		struct seen_name *name =
			seen_add_name(&w->seen, directory, listed->entries[i].name);

		if (name && name->at <= at)
			seen_want(&w->seen, name, &listed->entries[i].attributes, at, now_ns);
	}
	for (size_t i = 0; i <= directory->names.mask; i++)
		for (struct seen_name *name = directory->names.buckets[i]; name;
			name = name->hash_next)
			if (!is_listed(listed, name->name) && name->at <= at)
				seen_want(&w->seen, name, NULL, at, now_ns);
}

static void look_into(struct watchers *w, struct inode *inode)
{
	cleanup_with(listed_done) struct listed listed = {NULL};
	struct seen_directory *directory;
	uint64_t at = 0;
	int r = list(w, inode, &listed, &at);

	watchers_lock(w);
	directory = seen_find(&w->seen, inode);
	if (directory && r == 0 && !directory->is_listed)
		learn(w, directory, &listed, at);
	else if (directory && r == 0)
		compare(w, directory, &listed, at);
	if (directory)
		directory->is_missed = false;
	watchers_unlock(w);
}

/* ---- Who watches --------------------------------------------------------------------------- */

/* With the lock held. */
static struct seen_directory *want_directory(struct watchers *w, struct inode *inode)
{
	struct seen_directory *directory = seen_find(&w->seen, inode);

	if (!directory)
		directory = seen_add(&w->seen, inode);
	if (directory)
		directory->turn = w->turn;
	return directory;
}

/* Also one that was just removed, or replaced: that is what is to be told. */
static void want_file(struct watchers *w, struct inode *inode)
{
	struct inode *parent = inode_table_last_parent(w->mount->inodes, inode);
	struct seen_directory *directory = NULL;
	struct seen_name *name = NULL;
	struct path_string path;

	if (!parent)
		return;
	if (inode_table_last_path(w->mount->inodes, inode, NULL, &path) == 0) {
		directory = want_directory(w, parent);
		if (directory)
			name = seen_add_name(&w->seen, directory, path_name(path.path));
		if (name)
			name->is_wanted = true;
		path_string_done(&path);
	}
	seen_release(&w->seen, parent);
}

static void want_inode(struct watchers *w, struct inode *inode)
{
	struct seen_directory *directory;

	watchers_lock(w);
	if (inode->is_directory) {
		directory = want_directory(w, inode);
		if (directory)
			directory->is_whole = true;
	} else {
		want_file(w, inode);
	}
	watchers_unlock(w);
}

/* Directories that are watched as before: a node id is an address, and theirs are held.  The others
 * stay in the list, in their order. */
static void want_again(struct watchers *w, struct inotify_scan *scan)
{
	struct seen_directory *directory;
	const struct inode *inode;
	size_t count = 0;

	watchers_lock(w);
	for (size_t i = 0; i < scan->count; i++) {
		inode = scan->nodes[i] == FUSE_ROOT_ID
				? inode_table_root(w->mount->inodes)
				: (const struct inode *)(uintptr_t)scan->nodes[i]; /* NOLINT */
		directory = seen_find(&w->seen, inode);
		if (directory && directory->is_whole)
			directory->turn = w->turn;
		else
			scan->nodes[count++] = scan->nodes[i];
	}
	scan->count = count;
	watchers_unlock(w);
}

/* What is not watched yet is looked for among all inodes. */
static void want_nodes(struct watchers *w, struct inotify_scan *scan)
{
	struct inode_table *table = w->mount->inodes;
	cleanup_free struct inode **inodes = NULL;
	size_t count = 0;

	want_again(w, scan);
	if (scan->count && scan->nodes[0] == FUSE_ROOT_ID)
		want_inode(w, inode_table_root(table));
	inodes = calloc(scan->count + 1, sizeof(*inodes));
	if (inodes && scan->count)
		count = inode_table_find_nodes(table, scan->nodes, scan->count, inodes);
	for (size_t i = 0; i < count; i++) {
		want_inode(w, inodes[i]);
		inode_table_unref(table, inodes[i]);
	}
}

/* With the lock held. */
static void forget_unwatched(struct watchers *w)
{
	unsigned count = 0;

	for (struct seen_directory *next, *d = w->seen.first; d; d = next) {
		bool keep = !w->knows_all && ++count <= DIRECTORIES_MAX &&
			    inode_table_is_known(w->mount->inodes, d->inode) &&
			    w->seen.name_count < NAMES_MAX;

		next = d->next;
		if (d->turn != w->turn && !keep)
			seen_remove(&w->seen, d);
	}
}

/* With the lock held: drops the directories that are not watched after all. */
static void take_undecided(struct watchers *w, uint64_t until_ns)
{
	while (w->undecided && w->undecided->arrived_ns <= until_ns) {
		struct undecided_change *s = w->undecided;
		struct seen_directory *directory = seen_find(&w->seen, s->directory);

		if (!directory && !w->knows_all)
			directory = want_directory(w, s->directory);
		if (directory)
			directory->is_whole |= !w->knows_all;
		if (directory)
			watchers_want(w, directory, s->name, &s->before, s->exists ? &s->now : NULL,
				s->at, s->arrived_ns);
		w->undecided = s->next;
		if (!w->undecided)
			w->last_undecided = &w->undecided;
		w->mount->watch_events.undecided = --w->undecided_count;
		seen_release(&w->seen, s->directory);
		free(s);
	}
}

/* The next directory to look into, with a reference; NULL: there is none. */
static struct inode *next_to_look_into(struct watchers *w)
{
	struct inode *inode = NULL;

	watchers_lock(w);
	for (struct seen_directory *d = w->seen.first; d; d = d->next) {
		d->is_missed = d->is_missed || w->is_missed;
		if ((!d->is_listed || d->is_missed) && !inode)
			inode = d->inode;
	}
	w->is_missed = false;
	if (inode)
		inode_table_ref(w->mount->inodes, inode);
	watchers_unlock(w);
	return inode;
}

static void look_into_all(struct watchers *w)
{
	struct inode *inode;
	unsigned count = 0;

	while (!w->ending && (inode = next_to_look_into(w))) {
		struct seen_directory *directory;

		look_into(w, inode);
		watchers_lock(w);
		directory = seen_find(&w->seen, inode);
		if (directory && !directory->is_listed) /* gone, or not readable */
			seen_remove(&w->seen, directory);
		watchers_unlock(w);
		inode_table_unref(w->mount->inodes, inode);
	}
	watchers_lock(w);
	for (struct seen_directory *d = w->seen.first; d; d = d->next)
		count++;
	announce_wants_own(w->mount, count);
	watchers_unlock(w);
	w->mount->watch_events.directories = count;
}

static bool lets_others_in(const struct mount_options *options)
{
	for (const char *const *word = options->fuse_pairs; word && *word; word++)
		if (strncmp(*word, "allow_", 6) == 0)
			return true;
	return false;
}

static void scan(struct watchers *w)
{
	uint64_t began_ns = clock_now_ns(), cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	struct inotify_scan found = {NULL};

	w->requests_seen = w->mount->requests;
	if (inotify_scan_run(w->mount->connection, lets_others_in(w->mount->options), &found) < 0)
		found.is_everything = true;
	w->turn++;
	w->knows_all = !found.is_everything;
	want_nodes(w, &found);
	free(found.nodes);
	watchers_lock(w);
	forget_unwatched(w);
	take_undecided(w, began_ns);
	watchers_unlock(w);
	w->scanned_ns = clock_now_ns();
	w->scan_cost_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

static uint64_t bounded(uint64_t ns, uint64_t least_ns)
{
	if (ns < least_ns)
		return least_ns;
	return ns > SCAN_MOST_NS ? SCAN_MOST_NS : ns;
}

/* A program that adds a watch usually looks up the object. */
static uint64_t scan_due(struct watchers *w, bool is_urgent)
{
	if (is_urgent)
		return w->scanned_ns + bounded(w->scan_cost_ns * SHARE_URGENT, SCAN_URGENT_NS);
	return w->scanned_ns + bounded(w->scan_cost_ns * SHARE_USUAL, SCAN_LEAST_NS);
}

uint64_t watchers_discover(struct watchers *w)
{
	uint64_t now_ns = clock_now_ns();
	bool is_urgent, is_used = w->mount->requests != w->requests_seen;

	watchers_lock(w);
	/* Watches may have been removed. */
	is_used = is_used || (w->seen.first && w->scanned_ns + IDLE_NS <= now_ns);
	is_urgent = w->undecided;
	if (is_urgent && !w->knows_all) {
		take_undecided(w, now_ns);
		is_urgent = false;
	}
	watchers_unlock(w);
	if ((is_urgent || is_used || !w->scanned_ns) && scan_due(w, is_urgent) <= now_ns) {
		scan(w);
		is_urgent = is_used = false;
	}
	look_into_all(w);
	if (is_urgent || is_used)
		return scan_due(w, is_urgent);
	return clock_now_ns() + IDLE_NS;
}
