#define XXH_INLINE_ALL
#include "fs/inode/inode_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

#ifdef INODE_MUTANTS
enum inode_rule inode_rule_off = INODE_RULE_COUNT;
#endif

enum { RETURN_BYTES = 1 << 20 };

/* Without the device, of which there are few. */
static size_t number_hash(uint64_t number, uint64_t generation)
{
	const uint64_t numbers[] = {number, generation};

	return (size_t)XXH3_64bits_withSeed(numbers, sizeof(numbers), hash_seed());
}

static slab_ref *inode_entry_link(void *entry)
{
	return &((struct inode *)entry)->next;
}

static size_t inode_entry_hash(const void *entry)
{
	const struct inode *inode = entry;

	return number_hash(inode->number, inode->generation);
}

struct object_id inode_id(const struct inode *inode)
{
	return (struct object_id){.device = file_kind_at(inode->kind)->device,
		.inode = inode->number,
		.generation = inode->generation};
}

bool inode_has_id(const struct inode *inode, const struct object_id *id)
{
	return inode->number == id->inode && inode->generation == id->generation &&
	       file_kind_at(inode->kind)->device == id->device;
}

struct object_id inode_table_id(struct inode_table *t, const struct inode *inode)
{
	struct object_id id = {0};

	if (!inode)
		return id;
	pthread_mutex_lock(&t->lock);
	id = inode_id(inode);
	pthread_mutex_unlock(&t->lock);
	return id;
}

struct inode *inode_chain(const struct inode_table *t, const struct object_id *id)
{
	return slab_table_bucket(&t->inodes, number_hash(id->inode, id->generation));
}

struct inode *inode_find(struct inode_table *t, const struct object_id *id)
{
	struct inode *inode = inode_chain(t, id);

	while (inode && (inode->is_superseded || !inode_has_id(inode, id)))
		inode = slab_at(inode->next);
	return inode;
}

/* Each device has a number of its own that is mixed in, not a hash of each object: so two objects
 * of one device never get the same one.  Two devices with inode numbers below 2^N have one in
 * common with a probability of 2^(N - 51). */
static uint64_t make_number(const struct object_id *id, bool again)
{
	const uint64_t words[] = {
		id->device, id->inode / NUMBERS_MADE, again, again ? id->generation : 0};

	return NUMBERS_MADE | ((id->inode ^ XXH3_64bits(words, sizeof(words))) % NUMBERS_MADE);
}

static bool is_shown_as_it_is(const struct inode_table *t, const struct object_id *id)
{
	return id->device == PROVISIONAL_DEVICE ||
	       (id->device == t->device && id->inode < NUMBERS_MADE);
}

uint64_t inode_table_number_of(const struct inode_table *t, const struct object_id *id)
{
	return is_shown_as_it_is(t, id) ? id->inode : make_number(id, false);
}

uint64_t inode_number(const struct inode *inode)
{
	const struct object_id id = inode_id(inode);

	return inode->has_made_number ? make_number(&id, inode->is_renumbered) : id.inode;
}

uint64_t inode_table_number(struct inode_table *t, const struct inode *inode)
{
	uint64_t number;

	if (!inode->has_made_number)
		return inode->number;
	pthread_mutex_lock(&t->lock);
	number = inode_number(inode);
	pthread_mutex_unlock(&t->lock);
	return number;
}

static size_t inode_bytes(const struct inode *inode)
{
	return sizeof(*inode) + strlen(inode->own.name) + 1;
}

/* False: no memory. */
static bool make_directory(struct inode_table *t, struct inode *inode)
{
	struct inode_directory *directory = slab_alloc(&t->slab, sizeof(*directory));

	if (!directory || slab_table_init(&directory->entries) < 0) {
		slab_free(&t->slab, directory, sizeof(*directory));
		return false;
	}
	inode->directory = slab_ref_of(directory);
	t->bytes += sizeof(*directory);
	return true;
}

struct inode *inode_make(
	struct inode_table *t, const struct attributes *attributes, const char *name)
{
	static const struct inode_version nothing;
	struct inode *inode = slab_alloc(&t->slab, sizeof(*inode) + strlen(name) + 1);

	if (!inode)
		return NULL;
	inode->own.is_own = true;
	strcpy(inode->own.name, name);
	inode->number = attributes->id.inode;
	inode->generation = attributes->id.generation;
	inode->is_renumbered = handle_has_number(t, &attributes->id);
	inode->has_made_number = inode->is_renumbered || !is_shown_as_it_is(t, &attributes->id);
	inode->is_directory = S_ISDIR(attributes->mode);
	if (!inode_set_kind(t, inode, attributes->id.device, &nothing) ||
		(inode->is_directory && !make_directory(t, inode))) {
		file_kind_put(&t->kinds, inode->kind);
		slab_free(&t->slab, inode, inode_bytes(inode));
		return NULL;
	}
	slab_table_insert(&t->inodes, inode, inode_entry_hash, inode_entry_link);
	t->bytes += inode_bytes(inode);
	return inode;
}

void inode_add_lookup(struct inode *inode)
{
	inode->lookups += inode->lookups < LOOKUPS_MAX;
}

struct inode_file *inode_make_file(struct inode_table *t, struct inode *inode)
{
	struct inode_file *file = inode_file(inode);

	if (file)
		return file;
	file = slab_alloc(&t->slab, sizeof(*file));
	if (!file)
		return NULL;
	inode->file = slab_ref_of(file);
	t->bytes += sizeof(*file);
	return file;
}

static void remember_forgotten(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct path_string path;
	bool has_path;
	struct forgotten *entry;
	size_t size;

	if (inode->is_superseded ||
		(!inode_directory(inode)->watched && !inode_directory(inode)->watch_losses))
		return;
	has_path = name_build_path(t, inode, NULL, false, &path) == 0;
	size = has_path ? strlen(path.path) + 1 : 1;
	entry = malloc(sizeof(*entry) + size);
	if (entry) {
		*entry = (struct forgotten){.next = *list, .id = inode_id(inode)};
		memcpy(entry->path, has_path ? path.path : "", size);
		*list = entry;
	}
	if (has_path)
		path_string_done(&path);
}

/* Only retry handles outlive the references to the inode. */
static void free_file(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode_file *file = inode_file(inode);

	if (!file)
		return;
	while (file->handles)
		handle_take_retry(t, inode, list);
	inode_forget_hash(t, file);
	free(file->target);
	slab_free(&t->slab, file, sizeof(*file));
	t->bytes -= sizeof(*file);
}

static void free_directory(struct inode_table *t, struct inode *inode)
{
	struct inode_directory *directory = inode_directory(inode);

	t->on_ttl -= directory->on_ttl;
	inode_forget_missing(t, directory);
	slab_table_done(&directory->entries);
	slab_free(&t->slab, directory, sizeof(*directory));
	t->bytes -= sizeof(*directory);
}

static void free_inode(struct inode_table *t, struct inode *inode)
{
	file_kind_put(&t->kinds, inode->kind);
	slab_free(&t->slab, inode, inode_bytes(inode));
}

/* Returns the next inode that may now be unused: recursion would need stack for the whole depth of
 * a tree. */
static struct inode *free_unused(
	struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct inode *parent = NULL;
	struct inode_name *name;

	if (inode->is_directory)
		remember_forgotten(t, inode, list);
	inode->references++; /* names may lead back here */
	inode_forget_lost(t, inode, list);
	while ((name = name_latest(inode))) {
		if (parent)
			inode_unref(t, parent, list);
		parent = name_detach(t, name);
	}
	if (inode->is_directory)
		free_directory(t, inode);
	else
		free_file(t, inode, list);
	slab_table_remove(&t->inodes, inode, inode_entry_hash, inode_entry_link);
	t->bytes -= inode_bytes(inode);
	free_inode(t, inode);
	if (parent)
		parent->references--;
	return parent;
}

void inode_free_if_unused(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	while (inode && !inode->lookups && !inode->references && inode != t->root)
		inode = free_unused(t, inode, list);
}

void inode_unref(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	assert(inode->references > 0);
	inode->references--;
	inode_free_if_unused(t, inode, list);
}

void inode_report_forgotten(struct inode_table *t, struct forgotten *list)
{
	while (list) {
		struct forgotten *next = list->next;

		if (list->retry_handle)
			handle_close_retry(list->retry_handle);
		else
			t->forgotten(
				t->user, &(struct object_ref){.path = list->path, .id = list->id});
		free(list);
		list = next;
	}
}

/* With the lock held.  Gives memory back when the kernel has forgotten most of a large tree; malloc
 * keeps some of it until the session is quiet (session_loop.c). */
static void shrink(struct inode_table *t)
{
	if (t->bytes_most < RETURN_BYTES || t->bytes >= t->bytes_most / 4)
		return;
	t->bytes_most = t->bytes;
	slab_table_shrink(&t->inodes, inode_entry_hash, inode_entry_link);
	for (size_t i = 0; i <= t->inodes.mask; i++)
		for (struct inode *inode = slab_at(t->inodes.buckets[i]); inode;
			inode = slab_at(inode->next))
			if (inode->is_directory)
				name_shrink_table(inode);
	inode_shrink_missing(t);
	slab_trim(&t->slab);
}

int inode_table_new(const struct attributes *root, inode_forgotten forgotten, void *user,
	struct inode_table **ret_table)
{
	struct inode_table *t = calloc(1, sizeof(*t));
	struct inode_note note;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->device = root->id.device;
	t->forgotten = forgotten;
	t->user = user;
	t->last_retry_handle = &t->retry_handles;
	if (slab_table_init(&t->inodes) < 0 || file_kinds_init(&t->kinds) < 0 ||
		hash_table_init(&t->numbers) < 0 || hash_table_init(&t->missing) < 0 ||
		!(t->root = inode_make(t, root, ""))) {
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
	for (size_t i = 0; t->inodes.buckets && i <= t->inodes.mask; i++)
		while (t->inodes.buckets[i]) {
			struct inode *inode = slab_at(t->inodes.buckets[i]);

			t->inodes.buckets[i] = inode->next;
			name_free_all(t, inode);
			if (inode->is_directory)
				free_directory(t, inode);
			else
				free_file(t, inode, NULL);
			free_inode(t, inode);
		}
	slab_table_done(&t->inodes);
	file_kinds_done(&t->kinds);
	hash_table_done(&t->missing);
	hash_table_done(&t->numbers);
	slab_done(&t->slab);
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
	*ret_bytes = t->bytes + (t->inodes.mask + 1 + t->names) * sizeof(slab_ref) +
		     (t->numbers.mask + t->missing.mask + 2) * sizeof(void *);
	pthread_mutex_unlock(&t->lock);
}

void inode_table_tidy(struct inode_table *t)
{
	pthread_mutex_lock(&t->lock);
	slab_trim(&t->slab);
	slab_trim(&t->kinds.slab);
	pthread_mutex_unlock(&t->lock);
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
	inode_unref(t, inode, &list);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

void inode_table_forget(struct inode_table *t, struct inode *inode, uint64_t count)
{
	struct forgotten *list = NULL;

	pthread_mutex_lock(&t->lock);
	assert(inode->lookups >= count || inode->lookups == LOOKUPS_MAX);
	if (inode->lookups < LOOKUPS_MAX)
		inode->lookups -= (uint32_t)count;
	if (!inode->lookups && inode->is_lost) {
		/* With kept names, directories would hold references on each other. */
		inode->references++;
		inode_forget_lost(t, inode, &list);
		inode->references--;
	}
	inode_free_if_unused(t, inode, &list);
	shrink(t);
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
}

void inode_table_add_lookup(struct inode_table *t, struct inode *inode)
{
	pthread_mutex_lock(&t->lock);
	inode_add_lookup(inode);
	pthread_mutex_unlock(&t->lock);
}

void inode_table_moved_in_kernel(
	struct inode_table *t, struct inode *inode, const struct inode *parent)
{
	pthread_mutex_lock(&t->lock);
	if (inode->is_directory)
		inode_directory(inode)->kernels_parent = parent;
	pthread_mutex_unlock(&t->lock);
}

bool inode_table_is_known(struct inode_table *t, const struct inode *inode)
{
	bool is_known;

	pthread_mutex_lock(&t->lock);
	is_known = inode->lookups;
	pthread_mutex_unlock(&t->lock);
	return is_known;
}

static int compare_nodes(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

size_t inode_table_find_nodes(
	struct inode_table *t, const uint64_t *sorted, size_t count, struct inode **ret_inodes)
{
	size_t found = 0;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= t->inodes.mask && found < count; i++)
		for (struct inode *inode = slab_at(t->inodes.buckets[i]); inode;
			inode = slab_at(inode->next)) {
			uint64_t node = (uintptr_t)inode;

			if (!inode->lookups || found == count ||
				!bsearch(&node, sorted, count, sizeof(node), compare_nodes))
				continue;
			inode->references++;
			ret_inodes[found++] = inode;
		}
	pthread_mutex_unlock(&t->lock);
	return found;
}

void inode_table_keep_target(struct inode_table *t, struct inode *inode, char *target)
{
	struct inode_file *file;
	char *old = target;

	pthread_mutex_lock(&t->lock);
	file = inode->is_directory ? NULL : inode_make_file(t, inode);
	if (file) {
		old = file->target;
		file->target = target;
	}
	pthread_mutex_unlock(&t->lock);
	free(old);
}

char *inode_table_target(struct inode_table *t, struct inode *inode)
{
	const struct inode_file *file;
	char *target;

	pthread_mutex_lock(&t->lock);
	file = inode_file(inode);
	target = file && file->target ? strdup(file->target) : NULL;
	pthread_mutex_unlock(&t->lock);
	return target;
}
