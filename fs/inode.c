#define XXH_INLINE_ALL
#include "fs/inode.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <xxhash.h>

#include "fs/hash_table.h"
#include "ops/support/cleanup.h"
#include "ops/support/hash_seed.h"

struct inode_name {
	struct inode_name *hash_next;
	struct inode_name *next; /* of the same inode */
	struct inode *parent;    /* holds a reference */
	struct inode *inode;
	uint64_t epoch; /* of the table when it was last found there */
	char name[];
};

/* Names that we removed lately, by hash: the change feed will echo that. */
struct removal {
	size_t hash;
	time_t when;
};

enum { REMOVALS = 4096, REMOVAL_SECONDS = 5 };

struct inode_table {
	pthread_mutex_t lock; /* all below, and the inodes' fields */
	struct inode *root;
	struct hash_table inodes;   /* by object id */
	struct hash_table names;    /* by parent and name */
	uint64_t bytes, bytes_most; /* now; at most, since memory was returned */
	uint64_t on_ttl;            /* inodes with that flag */
	uint64_t epoch;
	struct removal removals[REMOVALS];
	void (*forgotten)(void *user, const char *path);
	void *user;
};

/* What to do once the lock is free: close a spare handle, or report a directory. */
struct forgotten {
	struct forgotten *next;
	struct open_handle *spare;
	char path[];
};

enum { MALLOC_OVERHEAD_BYTES = 8, RETURN_BYTES = 16 << 20, DEPTH_MAX = 1 << 20 };

/* ---- Hashes ------------------------------------------------------------------ */

static size_t hash_id(const struct object_id *id)
{
	return (size_t)XXH3_64bits_withSeed(id, sizeof(*id), hash_seed());
}

static size_t hash_name(const struct inode *parent, const char *name)
{
	return (size_t)XXH3_64bits_withSeed(
		name, strlen(name), (uint64_t)(uintptr_t)parent ^ hash_seed());
}

static void **inode_link(void *entry)
{
	return (void **)&((struct inode *)entry)->hash_next;
}

static size_t inode_hash(const void *entry)
{
	return hash_id(&((const struct inode *)entry)->id);
}

static void **name_link(void *entry)
{
	return (void **)&((struct inode_name *)entry)->hash_next;
}

static size_t name_hash(const void *entry)
{
	const struct inode_name *name = entry;

	return hash_name(name->parent, name->name);
}

static struct inode *find_inode(struct inode_table *t, const struct object_id *id)
{
	struct inode *inode = t->inodes.buckets[hash_id(id) & t->inodes.mask];

	while (inode && (inode->is_former || !object_id_equal(&inode->id, id)))
		inode = inode->hash_next;
	return inode;
}

static struct inode_name *find_name(
	struct inode_table *t, const struct inode *parent, const char *name)
{
	struct inode_name *entry = t->names.buckets[hash_name(parent, name) & t->names.mask];

	while (entry && (entry->parent != parent || strcmp(entry->name, name) != 0))
		entry = entry->hash_next;
	return entry;
}

/* ---- Life of inodes and names -------------------------------------------------- */

/* `last`: what has no name counts as being where it was. */
static const struct inode_name *name_of(struct inode_table *t, const struct inode *inode, bool last)
{
	const struct inode *now = inode->is_former ? find_inode(t, &inode->id) : NULL;

	if (now && now->names)
		return now->names;
	return inode->names || !last ? inode->names : inode->lost;
}

static int build_path(struct inode_table *t, const struct inode *inode, const char *name, bool last,
	struct path_string *path)
{
	size_t size = name ? strlen(name) + 1 : 0, length, depth = 0;
	const struct inode_name *at;
	char *end;

	for (const struct inode *i = inode; i != t->root; i = at->parent) {
		at = name_of(t, i, last);
		/* Where directories were, or others are now, need not lead to the root. */
		if (!at || ++depth > DEPTH_MAX)
			return -ENOENT;
		size += strlen(at->name) + 1;
	}
	path->heap = NULL;
	path->path = path->fixed;
	if (size > sizeof(path->fixed)) {
		path->heap = malloc(size);
		if (!path->heap)
			return -ENOMEM;
		path->path = path->heap;
	}
	if (!size) {
		path->path[0] = '\0';
		return 0;
	}
	end = path->path + size;
	if (name) {
		length = strlen(name);
		end -= length + 1;
		memcpy(end, name, length + 1);
	}
	for (const struct inode *i = inode; i != t->root; i = at->parent) {
		at = name_of(t, i, last);
		assert(at);
		length = strlen(at->name);
		end -= length + 1;
		memcpy(end, at->name, length);
		end[length] = '/';
	}
	path->path[size - 1] = '\0';
	return 0;
}

void path_string_done(struct path_string *path)
{
	free(path->heap);
	path->heap = NULL;
}

static void unref(struct inode_table *t, struct inode *inode, struct forgotten **list);

static size_t name_bytes(const char *name)
{
	return sizeof(struct inode_name) + strlen(name) + 1 + MALLOC_OVERHEAD_BYTES;
}

static void name_free(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *parent = name->parent;

	t->bytes -= name_bytes(name->name);
	free(name);
	unref(t, parent, list);
}

static void name_take_out(struct inode_table *t, struct inode_name *name)
{
	struct inode_name **at = &name->inode->names;

	while (*at != name)
		at = &(*at)->next;
	*at = name->next;
	hash_table_remove(&t->names, name, name_hash, name_link);
}

static void name_drop(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	name_take_out(t, name);
	name_free(t, name, list);
}

static void forget_lost(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode_name *lost = inode->lost;

	inode->lost = NULL;
	if (lost)
		name_free(t, lost, list);
}

/* The name is gone, or another's. */
static void name_lose(struct inode_table *t, struct inode_name *name, struct forgotten **list)
{
	struct inode *inode = name->inode;

	name_take_out(t, name);
	if (inode->names || !inode->lookups) {
		name_free(t, name, list);
		return;
	}
	forget_lost(t, inode, list);
	inode->lost = name;
}

static bool is_below(const struct inode *inode, const struct inode *top)
{
	while (!object_id_equal(&inode->id, &top->id) && inode->names)
		inode = inode->names->parent;
	return object_id_equal(&inode->id, &top->id);
}

/* Paths end at the root, whatever the place says: a directory that shows up again below itself
 * (a bind mount there, or a far end that lies) gets no name there. */
static int name_add(
	struct inode_table *t, struct inode *parent, const char *text, struct inode *inode)
{
	size_t length = strlen(text);
	struct inode_name *name;

	if (inode->references && is_below(parent, inode))
		return -ELOOP;
	name = malloc(sizeof(*name) + length + 1);
	if (!name)
		return -ENOMEM;
	*name = (struct inode_name){
		.parent = parent, .inode = inode, .next = inode->names, .epoch = ++t->epoch};
	memcpy(name->name, text, length + 1);
	inode->names = name;
	parent->references++;
	hash_table_insert(&t->names, name, name_hash, name_link);
	t->bytes += name_bytes(text);
	if (t->bytes > t->bytes_most)
		t->bytes_most = t->bytes;
	return 0;
}

static void close_spare(struct open_handle *handle)
{
	struct op_context op;

	op_context_init(&op);
	workspace_close(&op, handle->file);
	free(handle);
}

static void remember_forgotten(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct path_string path;
	struct forgotten *entry;
	size_t size;

	if (!inode->watched || build_path(t, inode, NULL, false, &path) < 0)
		return;
	size = strlen(path.path) + 1;
	entry = malloc(sizeof(*entry) + size);
	if (entry) {
		entry->spare = NULL;
		memcpy(entry->path, path.path, size);
		entry->next = *list;
		*list = entry;
	}
	path_string_done(&path);
}

/* Only spare handles outlive the references to their inode. */
static void take_spare(struct inode *inode, struct forgotten **list)
{
	struct open_handle *handle = inode->handles;
	struct forgotten *entry = malloc(sizeof(*entry) + 1);

	assert(handle->is_spare && handle->references == 1);
	inode->handles = handle->next;
	if (!entry) {
		close_spare(handle);
		return;
	}
	*entry = (struct forgotten){.next = *list, .spare = handle};
	*list = entry;
}

static void free_if_unused(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	if (inode->lookups || inode->references || inode == t->root)
		return;
	while (inode->handles)
		take_spare(inode, list);
	remember_forgotten(t, inode, list);
	t->on_ttl -= inode->on_ttl;
	inode->references++; /* names may lead back here */
	forget_lost(t, inode, list);
	while (inode->names)
		name_drop(t, inode->names, list);
	hash_table_remove(&t->inodes, inode, inode_hash, inode_link);
	t->bytes -= sizeof(*inode) + MALLOC_OVERHEAD_BYTES;
	free(inode->target);
	free(inode);
}

static void unref(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	assert(inode->references > 0);
	inode->references--;
	free_if_unused(t, inode, list);
}

static void report_forgotten(struct inode_table *t, struct forgotten *list)
{
	while (list) {
		struct forgotten *next = list->next;

		if (list->spare)
			close_spare(list->spare);
		else
			t->forgotten(t->user, list->path);
		free(list);
		list = next;
	}
}

/* With the lock held.  True when the kernel has forgotten most of a large tree. */
static bool shrink(struct inode_table *t)
{
	if (t->bytes_most < RETURN_BYTES || t->bytes >= t->bytes_most / 4)
		return false;
	t->bytes_most = t->bytes;
	hash_table_shrink(&t->inodes, inode_hash, inode_link);
	hash_table_shrink(&t->names, name_hash, name_link);
	return true;
}

static struct inode *inode_make(struct inode_table *t, const struct attributes *attributes)
{
	struct inode *inode = calloc(1, sizeof(*inode));

	if (!inode)
		return NULL;
	inode->id = attributes->id;
	inode->is_directory = S_ISDIR(attributes->mode);
	hash_table_insert(&t->inodes, inode, inode_hash, inode_link);
	t->bytes += sizeof(*inode) + MALLOC_OVERHEAD_BYTES;
	return inode;
}

int inode_table_new(const struct attributes *root, void (*forgotten)(void *user, const char *path),
	void *user, struct inode_table **ret_table)
{
	struct inode_table *t = calloc(1, sizeof(*t));
	struct inode_note note;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->forgotten = forgotten;
	t->user = user;
	if (hash_table_init(&t->inodes) < 0 || hash_table_init(&t->names) < 0 ||
		!(t->root = inode_make(t, root))) {
		inode_table_free(t);
		return -ENOMEM;
	}
	t->root->lookups = 1;
	t->root->is_root = true;
	inode_table_note(t, t->root, root, &note);
	*ret_table = t;
	return 0;
}

void inode_table_free(struct inode_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; t->names.buckets && i <= t->names.mask; i++)
		while (t->names.buckets[i]) {
			struct inode_name *name = t->names.buckets[i];

			t->names.buckets[i] = name->hash_next;
			free(name);
		}
	for (size_t i = 0; t->inodes.buckets && i <= t->inodes.mask; i++)
		while (t->inodes.buckets[i]) {
			struct inode *inode = t->inodes.buckets[i];

			t->inodes.buckets[i] = inode->hash_next;
			free(inode->lost);
			free(inode->target);
			free(inode);
		}
	free(t->names.buckets);
	free(t->inodes.buckets);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

struct inode *inode_table_root(struct inode_table *t)
{
	return t->root;
}

void inode_table_usage(struct inode_table *t, uint64_t *ret_inodes, uint64_t *ret_bytes)
{
	pthread_mutex_lock(&t->lock);
	*ret_inodes = t->inodes.count;
	*ret_bytes = t->bytes + (t->inodes.mask + t->names.mask + 2) * sizeof(void *);
	pthread_mutex_unlock(&t->lock);
}

/* ---- Versions -------------------------------------------------------------------- */

static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

void inode_version_of(const struct attributes *a, struct inode_version *ret_version)
{
	*ret_version = (struct inode_version){.size_bytes = a->size_bytes,
		.mtime_ns = nanoseconds(&a->mtime),
		.ctime_ns = nanoseconds(&a->ctime),
		.mode = a->mode,
		.nlink = a->nlink,
		.uid = a->uid,
		.gid = a->gid};
}

/* inotify sees a change of a file through the name that was used for it: other links'
 * directories hear nothing.  A directory's own times change with its entries. */
static bool is_watched(const struct inode_table *t, const struct inode *inode, uint32_t nlink)
{
	if (inode == t->root)
		return inode->watched;
	if (!inode->names || !inode->names->parent->watched)
		return false;
	return S_ISDIR(inode->version.mode) ? inode->watched : nlink == 1;
}

static void note(struct inode_table *t, struct inode *inode, const struct attributes *a,
	struct inode_note *ret_note)
{
	struct inode_version version;

	inode_version_of(a, &version);
	ret_note->data_changed = version.size_bytes != inode->version.size_bytes ||
				 version.mtime_ns != inode->version.mtime_ns;
	ret_note->has_shrunk = version.size_bytes < inode->version.size_bytes;
	ret_note->former = NULL;
	ret_note->only_handle = !inode->handles || !inode->handles->next;
	inode->version = version;
	ret_note->watched = is_watched(t, inode, a->nlink);
}

void inode_table_state(struct inode_table *t, struct inode *inode, struct inode_state *ret_state)
{
	pthread_mutex_lock(&t->lock);
	*ret_state = (struct inode_state){
		.version = inode->version, .writers = inode->writers, .has_name = inode->names};
	pthread_mutex_unlock(&t->lock);
}

void inode_table_note(struct inode_table *t, struct inode *inode, const struct attributes *a,
	struct inode_note *ret_note)
{
	pthread_mutex_lock(&t->lock);
	note(t, inode, a, ret_note);
	pthread_mutex_unlock(&t->lock);
}

/* ---- Names ------------------------------------------------------------------------ */

static time_t coarse_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec;
}

static void remember_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	size_t hash = hash_name(parent, text);

	t->removals[hash % REMOVALS] = (struct removal){.hash = hash, .when = coarse_seconds()};
}

/* Somebody made it again: what the feed says next is no echo. */
static void forget_removal(struct inode_table *t, const struct inode *parent, const char *text)
{
	struct removal *removal = &t->removals[hash_name(parent, text) % REMOVALS];

	if (removal->hash == hash_name(parent, text))
		removal->hash = 0;
}

static int name_point(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *inode, bool only_name, struct forgotten **list)
{
	struct inode_name *name = find_name(t, parent, text);
	int r;

	forget_removal(t, parent, text);
	if (name && name->inode != inode) {
		name_lose(t, name, list);
		name = NULL;
	}
	if (name) {
		name->epoch = ++t->epoch;
	} else {
		r = name_add(t, parent, text, inode);
		if (r < 0)
			return r;
	}
	forget_lost(t, inode, list);
	while (only_name && inode->names && inode->names->next) {
		struct inode_name *first = inode->names;

		name_drop(t,
			first->parent == parent && strcmp(first->name, text) == 0 ? first->next
										  : first,
			list);
	}
	return 0;
}

/* The one whose entry was in `parent` before, if it comes back to it.  NULL: there is none. */
static struct inode *find_former(
	struct inode_table *t, const struct object_id *id, const struct inode *parent)
{
	struct inode *inode = t->inodes.buckets[hash_id(id) & t->inodes.mask];

	while (inode && !(inode->is_former && object_id_equal(&inode->id, id) && inode->lost &&
				inode->lost->parent == parent))
		inode = inode->hash_next;
	return inode;
}

/* The kernel has the directory elsewhere than in `parent`; nor is it above that. */
static bool is_elsewhere(
	struct inode_table *t, const struct inode *inode, const struct inode *parent)
{
	const struct inode_name *name = name_of(t, inode, true);

	return inode->is_directory && inode->lookups && name && name->parent != parent &&
	       !is_below(parent, inode);
}

/* With the lock held.  Another takes its place; it keeps what it was last. */
static void become_former(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	inode->references++;
	inode->is_former = true;
	inode->watched = false;
	while (inode->names)
		name_lose(t, inode->names, list);
}

/* With the lock held. */
static int enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, struct inode **ret_inode, struct inode_note *ret_note,
	struct forgotten **list)
{
	struct inode *inode = find_inode(t, &a->id), *former = NULL;
	int r;

	if (inode == t->root)
		return -ELOOP;
	if (inode && is_elsewhere(t, inode, parent)) {
		former = inode;
		inode = find_former(t, &a->id, parent);
	}
	if (!inode)
		inode = inode_make(t, a);
	if (!inode)
		return -ENOMEM;
	if (former)
		become_former(t, former, list);
	inode->is_former = false;
	r = name_point(t, parent, name, inode, S_ISDIR(a->mode) || a->nlink == 1, list);
	if (r < 0) {
		free_if_unused(t, inode, list);
		if (former)
			unref(t, former, list);
		return r;
	}
	note(t, inode, a, ret_note);
	ret_note->former = former;
	inode->lookups++;
	*ret_inode = inode;
	return 0;
}

int inode_table_enter(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, struct inode **ret_inode, struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	r = enter(t, parent, name, a, ret_inode, ret_note, &list);
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
	return r;
}

/* The kernel must not be told what is older than what it knows. */
static bool is_older(const struct inode *known, const struct attributes *a)
{
	struct inode_version version;

	if (!known || !known->version.mode)
		return false;
	inode_version_of(a, &version);
	return known->writers || (memcmp(&version, &known->version, sizeof(version)) != 0 &&
					 version.ctime_ns <= known->version.ctime_ns);
}

int inode_table_enter_listed(struct inode_table *t, struct inode *parent, const char *name,
	const struct attributes *a, uint32_t changes, struct inode **ret_inode,
	struct inode_note *ret_note)
{
	struct forgotten *list = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	if (parent->changes != changes || is_older(find_inode(t, &a->id), a))
		r = -ESTALE;
	else
		r = enter(t, parent, name, a, ret_inode, ret_note, &list);
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
	return r;
}

int inode_table_enter_unnamed(
	struct inode_table *t, const struct attributes *a, struct inode **ret_inode)
{
	struct inode_note ignored;
	struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = find_inode(t, &a->id);
	if (!inode)
		inode = inode_make(t, a);
	if (inode) {
		note(t, inode, a, &ignored);
		inode->lookups++;
		*ret_inode = inode;
	}
	pthread_mutex_unlock(&t->lock);
	return inode ? 0 : -ENOMEM;
}

void inode_table_forget(struct inode_table *t, struct inode *inode, uint64_t count)
{
	struct forgotten *list = NULL;
	bool much;

	pthread_mutex_lock(&t->lock);
	assert(inode->lookups >= count);
	inode->lookups -= count;
	if (!inode->lookups && inode->lost) {
		/* Directories that remember would hold each other. */
		inode->references++;
		forget_lost(t, inode, &list);
		inode->references--;
	}
	free_if_unused(t, inode, &list);
	much = shrink(t);
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
#ifdef __GLIBC__
	if (much)
		malloc_trim(0); /* it would keep what it took */
#else
	(void)much;
#endif
}

void inode_table_keep_target(struct inode_table *t, struct inode *inode, char *target)
{
	char *former;

	pthread_mutex_lock(&t->lock);
	former = inode->target;
	inode->target = target;
	pthread_mutex_unlock(&t->lock);
	free(former);
}

char *inode_table_target(struct inode_table *t, struct inode *inode)
{
	char *target;

	pthread_mutex_lock(&t->lock);
	target = inode->target ? strdup(inode->target) : NULL;
	pthread_mutex_unlock(&t->lock);
	return target;
}

void inode_table_ref(struct inode_table *t, struct inode *inode)
{
	pthread_mutex_lock(&t->lock);
	inode->references++;
	pthread_mutex_unlock(&t->lock);
}

void inode_table_unref(struct inode_table *t, struct inode *inode)
{
	struct forgotten *list = NULL;

	if (!inode)
		return;
	pthread_mutex_lock(&t->lock);
	unref(t, inode, &list);
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
}

int inode_table_path(
	struct inode_table *t, struct inode *inode, const char *name, struct path_string *ret_path)
{
	int r;

	pthread_mutex_lock(&t->lock);
	r = build_path(t, inode, name, false, ret_path);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int inode_table_last_path(
	struct inode_table *t, struct inode *inode, const char *name, struct path_string *ret_path)
{
	int r;

	pthread_mutex_lock(&t->lock);
	r = build_path(t, inode, name, true, ret_path);
	pthread_mutex_unlock(&t->lock);
	return r;
}

struct inode *inode_table_child(struct inode_table *t, struct inode *parent, const char *text)
{
	struct inode *inode = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	name = find_name(t, parent, text);
	if (name) {
		inode = name->inode;
		inode->references++;
	}
	pthread_mutex_unlock(&t->lock);
	return inode;
}

struct inode *inode_table_find(struct inode_table *t, const char *path)
{
	struct inode *inode = t->root;
	char component[256];

	pthread_mutex_lock(&t->lock);
	while (inode && *path) {
		size_t length = strcspn(path, "/");
		struct inode_name *name = NULL;

		if (length < sizeof(component)) {
			memcpy(component, path, length);
			component[length] = '\0';
			name = find_name(t, inode, component);
		}
		inode = name ? name->inode : NULL;
		path += length + (path[length] == '/');
	}
	if (inode)
		inode->references++;
	pthread_mutex_unlock(&t->lock);
	return inode;
}

bool inode_table_removed_lately(struct inode_table *t, const struct inode *parent, const char *text)
{
	size_t hash = hash_name(parent, text);
	const struct removal *removal = &t->removals[hash % REMOVALS];
	bool lately;

	pthread_mutex_lock(&t->lock);
	lately = removal->hash == hash && coarse_seconds() - removal->when <= REMOVAL_SECONDS;
	pthread_mutex_unlock(&t->lock);
	return lately;
}

void inode_table_making(struct inode_table *t, const struct inode *parent, const char *text)
{
	pthread_mutex_lock(&t->lock);
	forget_removal(t, parent, text);
	pthread_mutex_unlock(&t->lock);
}

void inode_table_removed(struct inode_table *t, struct inode *parent, const char *text)
{
	struct forgotten *list = NULL;
	struct inode_name *name;

	pthread_mutex_lock(&t->lock);
	name = find_name(t, parent, text);
	if (name) {
		if (name->inode->version.nlink)
			name->inode->version.nlink--;
		name_lose(t, name, &list);
	}
	remember_removal(t, parent, text);
	parent->changes++;
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
}

uint64_t inode_table_epoch(struct inode_table *t)
{
	uint64_t epoch;

	pthread_mutex_lock(&t->lock);
	epoch = t->epoch;
	pthread_mutex_unlock(&t->lock);
	return epoch;
}

bool inode_table_vanished(
	struct inode_table *t, struct inode *parent, const char *text, uint64_t epoch)
{
	struct forgotten *list = NULL;
	struct inode_name *name;
	bool current;

	pthread_mutex_lock(&t->lock);
	name = find_name(t, parent, text);
	current = !name || name->epoch <= epoch;
	parent->changes++;
	if (name && current) {
		if (name->inode->version.nlink)
			name->inode->version.nlink--;
		name_lose(t, name, &list);
	}
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
	return current;
}

void inode_table_renamed(struct inode_table *t, struct inode *parent, const char *text,
	struct inode *new_parent, const char *new_text, struct inode *inode, bool swap)
{
	struct forgotten *list = NULL;
	struct inode_name *from, *to;
	struct inode *other = NULL;

	pthread_mutex_lock(&t->lock);
	from = find_name(t, parent, text);
	to = find_name(t, new_parent, new_text);
	parent->references++;
	new_parent->references++;
	if (!inode && from)
		inode = from->inode;
	if (inode)
		inode->references++;
	if (from)
		name_drop(t, from, &list);
	if (to && to != from) {
		other = to->inode;
		other->references++;
		if (swap)
			name_drop(t, to, &list);
		else
			name_lose(t, to, &list);
	}
	/* A name that cannot be added is merely unknown until the next lookup. */
	if (inode && name_add(t, new_parent, new_text, inode) == 0)
		forget_lost(t, inode, &list);
	if (other && swap)
		name_add(t, parent, text, other);
	else if (other && other != inode && other->version.nlink)
		other->version.nlink--;
	if (inode)
		unref(t, inode, &list);
	if (other)
		unref(t, other, &list);
	if (!swap)
		remember_removal(t, parent, text);
	parent->changes++;
	new_parent->changes++;
	unref(t, parent, &list);
	unref(t, new_parent, &list);
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
}

static int add_place(struct inode_place *place, struct inode_name *name)
{
	char *text = strdup(name->name);

	if (!text)
		return -ENOMEM;
	*place = (struct inode_place){.inode = name->inode, .parent = name->parent, .name = text};
	place->inode->references++;
	place->parent->references++;
	return 0;
}

int inode_table_places(struct inode_table *t, struct inode *top, bool whole_subtree,
	struct inode_place **ret_places, size_t *ret_count)
{
	struct inode_place *places;
	size_t count = 0;
	int r = 0;

	pthread_mutex_lock(&t->lock);
	places = calloc(t->names.count + 1, sizeof(*places));
	for (size_t i = 0; places && r == 0 && i <= t->names.mask; i++)
		for (struct inode_name *n = t->names.buckets[i]; n && r == 0; n = n->hash_next)
			if (whole_subtree ? is_below(n->parent, top) : n->parent == top) {
				r = add_place(&places[count], n);
				count += r == 0;
			}
	pthread_mutex_unlock(&t->lock);
	if (!places)
		return -ENOMEM;
	if (r < 0) {
		inode_table_places_free(t, places, count);
		return r;
	}
	*ret_places = places;
	*ret_count = count;
	return 0;
}

void inode_table_places_free(struct inode_table *t, struct inode_place *places, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		inode_table_unref(t, places[i].inode);
		inode_table_unref(t, places[i].parent);
		free(places[i].name);
	}
	free(places);
}

/* ---- Watches ------------------------------------------------------------------------ */

/* With the lock held. */
static void set_watched(struct inode_table *t, struct inode *inode, bool watched)
{
	inode->watched = watched && !inode->is_former;
	t->on_ttl += (uint64_t)!watched - inode->on_ttl;
	inode->on_ttl = !watched;
}

uint32_t inode_table_watch_losses(struct inode_table *t, struct inode *inode)
{
	uint32_t losses;

	pthread_mutex_lock(&t->lock);
	losses = inode->watch_losses;
	pthread_mutex_unlock(&t->lock);
	return losses;
}

void inode_table_set_watched(
	struct inode_table *t, struct inode *inode, bool watched, uint32_t losses)
{
	pthread_mutex_lock(&t->lock);
	set_watched(t, inode, watched && inode->watch_losses == losses);
	pthread_mutex_unlock(&t->lock);
}

void inode_table_watch_lost(struct inode_table *t, struct inode *inode)
{
	pthread_mutex_lock(&t->lock);
	inode->watch_losses++;
	set_watched(t, inode, false);
	pthread_mutex_unlock(&t->lock);
}

uint64_t inode_table_on_ttl(struct inode_table *t, char **paths, size_t max, size_t *ret_count)
{
	uint64_t left, total;
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	left = total = t->on_ttl;
	for (size_t i = 0; i <= t->inodes.mask && left && count < max; i++)
		for (const struct inode *inode = t->inodes.buckets[i]; inode && count < max;
			inode = inode->hash_next) {
			struct path_string path;

			if (!inode->on_ttl)
				continue;
			left--;
			if (build_path(t, inode, NULL, false, &path) < 0)
				continue;
			paths[count] = strdup(path.path);
			count += paths[count] != NULL;
			path_string_done(&path);
		}
	pthread_mutex_unlock(&t->lock);
	*ret_count = count;
	return total;
}

/* ---- Handles ------------------------------------------------------------------------ */

static bool is_writer(const struct open_handle *handle)
{
	return (handle->flags & O_ACCMODE) != O_RDONLY;
}

static struct open_handle *spare_of(const struct inode *inode)
{
	struct open_handle *handle = inode->handles;

	while (handle && !handle->is_spare)
		handle = handle->next;
	return handle;
}

bool inode_table_handle_add(struct inode_table *t, struct open_handle *handle)
{
	struct inode *inode = handle->inode;

	pthread_mutex_lock(&t->lock);
	if (handle->is_spare && spare_of(inode)) {
		pthread_mutex_unlock(&t->lock);
		return false;
	}
	handle->references = 1;
	handle->next = inode->handles;
	handle->link = &inode->handles;
	if (handle->next)
		handle->next->link = &handle->next;
	inode->handles = handle;
	inode->references += !handle->is_spare;
	inode->writers += is_writer(handle);
	pthread_mutex_unlock(&t->lock);
	return true;
}

struct open_handle *inode_table_handle_any(struct inode_table *t, struct inode *inode)
{
	struct open_handle *handle;

	pthread_mutex_lock(&t->lock);
	handle = inode->handles;
	while (handle && !is_writer(handle) && handle->next)
		handle = handle->next;
	/* One that was opened to be kept leads to the object for certain. */
	if (handle && !is_writer(handle) && spare_of(inode))
		handle = spare_of(inode);
	if (handle)
		handle->references++;
	pthread_mutex_unlock(&t->lock);
	return handle;
}

int inode_table_handle_put(
	struct inode_table *t, struct op_context *ctx, struct open_handle *handle)
{
	struct forgotten *list = NULL;
	bool last;
	int r;

	pthread_mutex_lock(&t->lock);
	last = --handle->references == 0;
	if (last) {
		*handle->link = handle->next;
		if (handle->next)
			handle->next->link = handle->link;
		handle->inode->writers -= is_writer(handle);
		unref(t, handle->inode, &list);
	}
	pthread_mutex_unlock(&t->lock);
	report_forgotten(t, list);
	if (!last)
		return 0;
	r = workspace_close(ctx, handle->file);
	content_hash_free(handle->hash);
	free(handle);
	return r;
}

/* Takes all handles of all inodes, linked by `next`. */
static struct open_handle *take_handles(struct inode_table *t)
{
	struct open_handle *all = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= t->inodes.mask; i++)
		for (struct inode *inode = t->inodes.buckets[i]; inode; inode = inode->hash_next)
			while (inode->handles) {
				struct open_handle *handle = inode->handles;

				inode->handles = handle->next;
				handle->next = all;
				all = handle;
			}
	pthread_mutex_unlock(&t->lock);
	return all;
}

void inode_table_close_all(struct inode_table *t, struct op_context *ctx)
{
	struct open_handle *handle = take_handles(t);

	while (handle) {
		struct open_handle *next = handle->next;

		workspace_close(ctx, handle->file);
		free(handle);
		handle = next;
	}
}
