/* Objects, names, and the attributes of them that callers see. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { IDLE_MAX = 200000 /* of each kind */, RETIRED_MAX = 50000 };
/* So many are kept however old they are: an event may wait until a link is back.  More than that
 * only for a while. */
enum { RETIRED_KEPT = 4096, RETIRED_MS = 10000 };

/* The numbers of provisional ids are from here to twice that, where doubles (JavaScript) still tell
 * them apart; those of the workspace are shown below. */
static const uint64_t PROVISIONAL_INODES = 1ull << 52;

/* ---- Tables --------------------------- */

static size_t hash_id(const struct object_id *id)
{
	return XXH3_64bits(id, sizeof(*id));
}

static size_t hash_path(const char *path, size_t length)
{
	return XXH3_64bits(path, length);
}

static size_t node_hash(const void *entry)
{
	return hash_id(&((const struct node *)entry)->id);
}

static void **node_link(void *entry)
{
	return (void **)&((struct node *)entry)->next;
}

static size_t real_hash(const void *entry)
{
	return hash_id(&((const struct node *)entry)->real);
}

static void **real_link(void *entry)
{
	return (void **)&((struct node *)entry)->real_next;
}

static size_t name_hash(const void *entry)
{
	const struct name *name = entry;

	return hash_path(name->path, strlen(name->path));
}

static void **name_link(void *entry)
{
	return (void **)&((struct name *)entry)->next;
}

static size_t directory_hash(const void *entry)
{
	const struct directory *directory = entry;

	return hash_path(directory->path, strlen(directory->path));
}

static void **directory_link(void *entry)
{
	return (void **)&((struct directory *)entry)->next;
}

int back_tables_init(struct writeback *b)
{
	if (hash_table_init(&b->nodes) < 0 || hash_table_init(&b->real_nodes) < 0 ||
		hash_table_init(&b->names) < 0 || hash_table_init(&b->directories) < 0 ||
		hash_table_init(&b->keys) < 0)
		return -ENOMEM;
	TAILQ_INIT(&b->idle_files.list);
	TAILQ_INIT(&b->idle_directories.list);
	TAILQ_INIT(&b->operations);
	TAILQ_INIT(&b->ready);
	TAILQ_INIT(&b->held);
	TAILQ_INIT(&b->later);
	TAILQ_INIT(&b->retired);
	TAILQ_INIT(&b->readers);
	/* Different numbers at each mount, as git, for one, remembers them. */
	b->made = (clock_wall_ns() / 1000000000 << 28) % PROVISIONAL_INODES;
	return 0;
}

static void node_free(struct writeback *b, struct node *node)
{
	back_content_drop(b, node);
	free(node->target);
	free(node);
}

void back_tables_done(struct writeback *b)
{
	void *entry, *next;

	for (entry = hash_table_next(&b->nodes, NULL, node_hash, node_link); entry; entry = next) {
		next = hash_table_next(&b->nodes, entry, node_hash, node_link);
		node_free(b, entry);
	}
	for (entry = hash_table_next(&b->names, NULL, name_hash, name_link); entry; entry = next) {
		next = hash_table_next(&b->names, entry, name_hash, name_link);
		free(entry);
	}
	for (entry = hash_table_next(&b->directories, NULL, directory_hash, directory_link); entry;
		entry = next) {
		next = hash_table_next(&b->directories, entry, directory_hash, directory_link);
		free(entry);
	}
	hash_table_done(&b->nodes);
	hash_table_done(&b->real_nodes);
	hash_table_done(&b->names);
	hash_table_done(&b->directories);
	hash_table_done(&b->keys);
}

/* ---- Objects --------------------------- */

struct object_id back_new_id(struct writeback *b)
{
	return (struct object_id){.device = PROVISIONAL_DEVICE,
		.inode = PROVISIONAL_INODES + ++b->made % PROVISIONAL_INODES};
}

void back_is_made(struct writeback *b, const struct object_id *id)
{
	if (back_is_provisional(id) && id->inode % PROVISIONAL_INODES > b->made)
		b->made = id->inode % PROVISIONAL_INODES;
}

bool back_is_provisional(const struct object_id *id)
{
	return id->device == PROVISIONAL_DEVICE;
}

struct node *back_node(struct writeback *b, const struct object_id *id)
{
	struct node *node = hash_table_bucket(&b->nodes, hash_id(id));

	while (node && !object_id_equal(&node->id, id))
		node = node->next;
	return node;
}

struct node *back_real_node(struct writeback *b, const struct object_id *real)
{
	struct node *node = hash_table_bucket(&b->real_nodes, hash_id(real));

	while (node && !object_id_equal(&node->real, real))
		node = node->real_next;
	return node;
}

static void set_real(struct writeback *b, struct node *node, const struct object_id *real)
{
	struct node *former = back_real_node(b, real);

	if (former == node)
		return;
	if (former) { /* the workspace has given the number to another file */
		hash_table_remove(&b->real_nodes, former, real_hash, real_link);
		former->real = (struct object_id){0};
	}
	if (node->real.inode)
		hash_table_remove(&b->real_nodes, node, real_hash, real_link);
	node->real = *real;
	hash_table_insert(&b->real_nodes, node, real_hash, real_link);
}

static void set_settled(struct node *node, const struct attributes *known)
{
	node->settled = *known;
	node->settled.id = node->real;
}

/* The object is unchanged at the workspace; only the times that callers see are different. */
bool back_is_as_shown(const struct node *node, const struct attributes *known)
{
	return back_is_provisional(&node->id) && known->size_bytes == node->settled.size_bytes &&
	       clock_same(&known->mtime, &node->shown.mtime);
}

/* Directories are counted apart: a process may work in one for long without a request that names
 * it, and would lose it with its id while others unpack files. */
static struct idle_nodes *idle_nodes_for(struct writeback *b, const struct node *node)
{
	return S_ISDIR(node->shown.mode) ? &b->idle_directories : &b->idle_files;
}

static void end_idling(struct writeback *b, struct node *node)
{
	struct idle_nodes *idle = idle_nodes_for(b, node);

	if (!node->is_idle)
		return;
	TAILQ_REMOVE(&idle->list, node, idle);
	idle->count--;
	node->is_idle = false;
}

void back_node_hold(struct writeback *b, struct node *node)
{
	end_idling(b, node);
	node->inside++;
}

struct node *back_node_add(
	struct writeback *b, const struct object_id *id, const struct attributes *known)
{
	struct node *node = back_node(b, id);

	if (node)
		end_idling(b, node);
	if (node && known && !node->pending && !back_is_as_shown(node, known))
		set_settled(node, known);
	if (node)
		return node;
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	node->id = *id;
	hash_table_insert(&b->nodes, node, node_hash, node_link);
	if (!back_is_provisional(id))
		set_real(b, node, id);
	if (known)
		set_settled(node, known);
	return node;
}

void back_node_made(struct writeback *b, struct node *node, const struct object_id *real)
{
	set_real(b, node, real);
}

static void node_remove(struct writeback *b, struct node *node)
{
	end_idling(b, node);
	hash_table_remove(&b->nodes, node, node_hash, node_link);
	if (node->real.inode)
		hash_table_remove(&b->real_nodes, node, real_hash, real_link);
	node_free(b, node);
}

/* Objects that were made here keep their provisional ids, while there is room. */
void back_node_release(struct writeback *b, struct node *node)
{
	struct idle_nodes *idle = idle_nodes_for(b, node);

	if (node->pending || node->inside || node->handles || node->inner_handles || node->is_idle)
		return;
	back_content_drop(b, node);
	node->refused = node->error = 0;
	node->is_locked = false;
	if (!back_is_provisional(&node->id) || node->is_gone || !node->real.inode) {
		node_remove(b, node);
		return;
	}
	node->is_idle = true;
	TAILQ_INSERT_TAIL(&idle->list, node, idle);
	if (++idle->count > IDLE_MAX)
		node_remove(b, TAILQ_FIRST(&idle->list));
}

struct object_id back_real(struct writeback *b, const struct object_id *id)
{
	const struct node *node = id->inode ? back_node(b, id) : NULL;

	return node && node->real.inode ? node->real : *id;
}

void back_show_id(struct writeback *b, struct object_id *id)
{
	const struct node *node = id->inode ? back_real_node(b, id) : NULL;

	if (node)
		*id = node->id;
}

/* ---- What is shown --------------------------- */

static void show_directory(struct writeback *b, const char *path, struct attributes *attributes)
{
	const struct directory *directory =
		path && S_ISDIR(attributes->mode) ? back_directory(b, path, strlen(path)) : NULL;

	if (!directory || !directory->pending)
		return;
	attributes->nlink = (uint32_t)((int)attributes->nlink + directory->links);
	if (clock_is_later(&directory->changed, &attributes->mtime))
		attributes->mtime = attributes->ctime = directory->changed;
}

void back_keep_directory(
	struct writeback *b, const char *path, const struct attributes *told, uint64_t at)
{
	struct directory *directory = back_directory(b, path, strlen(path));
	struct object_id id = told->id;

	if (!directory || !directory->pending || at < directory->known_at)
		return;
	back_show_id(b, &id);
	if (directory->id.inode && !object_id_equal(&id, &directory->id))
		return; /* another directory had the path before */
	directory->known = *told;
	directory->known_at = at;
}

void back_remember_parent(
	struct writeback *b, const char *path, const struct attributes *parent, unsigned names)
{
	struct directory *directory = back_directory(b, path, path_parent_length(path));

	if (!directory || directory->pending != names || directory->known.mode)
		return;
	directory->known = *parent;
	directory->known.id = back_real(b, &parent->id);
	directory->known_at = 0;
}

bool back_directory_known(
	struct writeback *b, const struct object_ref *object, struct attributes *ret_attributes)
{
	const struct directory *directory = back_directory(b, object->path, strlen(object->path));
	struct object_id id;

	if (!directory || !directory->known.mode || !directory->pending)
		return false;
	id = directory->known.id;
	back_show_id(b, &id);
	if (object->id.inode && !object_id_equal(&id, &object->id))
		return false;
	*ret_attributes = directory->known;
	back_show(b, object->path, ret_attributes);
	return true;
}

struct attributes back_node_shown(struct writeback *b, const struct node *node, const char *path)
{
	struct attributes shown = node->shown;

	shown.id = node->id;
	show_directory(b, path, &shown);
	return shown;
}

void back_show(struct writeback *b, const char *path, struct attributes *attributes)
{
	const struct node *node = back_real_node(b, &attributes->id);

	if (node && node->pending && !node->is_gone) {
		*attributes = back_node_shown(b, node, path);
		return;
	}
	if (node && back_is_provisional(&node->id)) {
		if (node->shown.mode && attributes_same_version(attributes, &node->settled)) {
			attributes->size_bytes = node->shown.size_bytes;
			attributes->mtime = node->shown.mtime;
			attributes->ctime = node->shown.ctime;
			attributes->blocks = node->shown.blocks;
		}
		attributes->id = node->id;
	}
	show_directory(b, path, attributes);
}

/* ---- Names --------------------------- */

struct directory *back_directory(struct writeback *b, const char *path, size_t length)
{
	struct directory *directory = hash_table_bucket(&b->directories, hash_path(path, length));

	while (directory &&
		(strncmp(directory->path, path, length) != 0 || directory->path[length]))
		directory = directory->next;
	return directory;
}

static struct directory *directory_add(struct writeback *b, const char *path, size_t length)
{
	struct directory *directory = back_directory(b, path, length);

	if (directory)
		return directory;
	directory = calloc(1, sizeof(*directory) + length + 1);
	if (!directory)
		return NULL;
	memcpy(directory->path, path, length);
	LIST_INIT(&directory->names);
	hash_table_insert(&b->directories, directory, directory_hash, directory_link);
	return directory;
}

static void directory_release(struct writeback *b, struct directory *directory)
{
	if (!LIST_EMPTY(&directory->names))
		return;
	hash_table_remove(&b->directories, directory, directory_hash, directory_link);
	free(directory);
}

static struct name *find_name(struct writeback *b, const char *path, size_t length)
{
	struct name *name = hash_table_bucket(&b->names, hash_path(path, length));

	while (name && (strncmp(name->path, path, length) != 0 || name->path[length]))
		name = name->next;
	return name;
}

/* A retired name counts only for readers that began before it retired. */
struct name *back_name(struct writeback *b, const char *path, const struct reader *reader)
{
	struct name *name = find_name(b, path, strlen(path));

	if (name && name->retired_at && (!reader || name->retired_at <= reader->since))
		return NULL;
	return name;
}

struct name *back_any_name(struct writeback *b, const char *path)
{
	return find_name(b, path, strlen(path));
}

int back_name_add(struct writeback *b, const char *path, struct name **ret_name)
{
	size_t size = strlen(path) + 1;
	struct name *name = find_name(b, path, size - 1);

	if (!name) {
		name = calloc(1, sizeof(*name) + size);
		if (!name)
			return -ENOMEM;
		memcpy(name->path, path, size);
		name->directory = directory_add(b, path, path_parent_length(path));
		if (!name->directory) {
			free(name);
			return -ENOMEM;
		}
		LIST_INSERT_HEAD(&name->directory->names, name, in_directory);
		hash_table_insert(&b->names, name, name_hash, name_link);
	} else if (name->retired_at) {
		TAILQ_REMOVE(&b->retired, name, retired);
		b->retired_count--;
		name->retired_at = 0;
	}
	if (!name->pending++)
		name->directory->pending++;
	*ret_name = name;
	return 0;
}

static void name_free(struct writeback *b, struct name *name)
{
	struct directory *directory = name->directory;

	LIST_REMOVE(name, in_directory);
	hash_table_remove(&b->names, name, name_hash, name_link);
	free(name);
	directory_release(b, directory);
}

/* Retired names are kept while a reader that began before exists, and while stale events, or late
 * ones of our own changes, may arrive. */
static void free_retired(struct writeback *b)
{
	const struct reader *oldest = TAILQ_FIRST(&b->readers);
	int64_t now_ms = clock_now_ms();
	struct name *name;

	while ((name = TAILQ_FIRST(&b->retired)) &&
		(!oldest || name->retired_at <= oldest->since) &&
		(b->retired_count > RETIRED_MAX ||
			(b->retired_count > RETIRED_KEPT &&
				now_ms - name->retired_ms > RETIRED_MS))) {
		TAILQ_REMOVE(&b->retired, name, retired);
		b->retired_count--;
		name_free(b, name);
	}
}

struct attributes back_name_shown(struct writeback *b, const struct name *name)
{
	return name->node ? back_node_shown(b, name->node, name->path)
			  : (struct attributes){.mode = 0};
}

static void retire(struct writeback *b, struct name *name)
{
	name->retired_at = ++b->moment;
	name->retired_ms = clock_now_ms();
	TAILQ_INSERT_TAIL(&b->retired, name, retired);
	b->retired_count++;
	free_retired(b);
}

/* One operation less.  True: it was the last one. */
static bool is_last(struct name *name)
{
	if (--name->pending)
		return false;
	if (!--name->directory->pending) { /* the workspace's attributes are right again */
		name->directory->known.mode = 0;
		name->directory->known_at = 0;
		name->directory->changed = (struct timespec){0};
		name->directory->id = (struct object_id){0};
	}
	return true;
}

bool back_is_left(const struct name *name, const struct change *change)
{
	if (!change->exists)
		return name->is_removed;
	return attributes_same_version(&change->attributes, &name->left_there);
}

void back_name_done(struct writeback *b, struct name *name, const struct operation *operation,
	struct change *ret_told)
{
	b->moment++;
	if (!operation->is_undone) {
		name->done_at = b->moment;
		name->done_position = operation->position;
	} else if (operation->refusal) {
		name->refused_at = b->moment;
	}
	if (operation->position > name->position)
		name->position = operation->position;
	if (!is_last(name))
		return;
	name->left_there = name->node ? name->node->settled : (struct attributes){0};
	if (name->told.at > name->position) {
		*ret_told = name->told;
		ret_told->is_own = back_is_left(name, ret_told);
		back_show_id(b, &ret_told->directory);
		back_show(b, name->path, &ret_told->attributes);
	}
	name->told.at = 0;
	name->left = back_name_shown(b, name);
	name->was_left = true;
	name->node = NULL;
	retire(b, name);
}

void back_name_not_entered(struct writeback *b, struct name *name)
{
	if (!is_last(name))
		return;
	name->told.at = 0; /* no event can have come, as the lock was held */
	if (name->was_left)
		retire(b, name);
	else
		name_free(b, name);
}

void back_reader_begin(struct writeback *b, struct reader *reader)
{
	reader->since = b->moment;
	TAILQ_INSERT_TAIL(&b->readers, reader, link);
}

void back_reader_end(struct writeback *b, struct reader *reader)
{
	TAILQ_REMOVE(&b->readers, reader, link);
	free_retired(b);
}

static bool is_retired_since(
	struct writeback *b, const char *path, size_t length, const struct reader *reader)
{
	const struct name *name = find_name(b, path, length);

	return name && name->retired_at > reader->since;
}

bool back_was_pending(struct writeback *b, const char *path, const struct reader *reader)
{
	if (!b->retired_count)
		return false;
	for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/'))
		if (is_retired_since(b, path, (size_t)(end - path), reader))
			return true;
	return is_retired_since(b, path, strlen(path), reader);
}

/* One component of a path, as back_resolve(); -ENOENT below a directory that the workspace does not
 * have yet. */
static int resolve_step(
	struct writeback *b, const char *path, size_t length, bool *is_new, struct node **ret_node)
{
	const struct name *name = find_name(b, path, length);

	if (!name || name->retired_at)
		return *is_new ? -ENOENT : 0;
	if (!name->node)
		return -ENOENT;
	*is_new = !name->node->real.inode;
	*ret_node = name->node;
	return 1;
}

static int check_step(int found, const struct node *node)
{
	if (found <= 0)
		return found;
	if (S_ISLNK(node->shown.mode))
		return -ELOOP;
	return S_ISDIR(node->shown.mode) ? 0 : -ENOTDIR;
}

int back_resolve(struct writeback *b, const char *path, struct node **ret_node)
{
	bool is_new = false;
	int r;

	if (!b->names.count || !*path)
		return 0;
	for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
		r = resolve_step(b, path, (size_t)(end - path), &is_new, ret_node);
		r = check_step(r, *ret_node);
		if (r < 0)
			return r;
	}
	return resolve_step(b, path, strlen(path), &is_new, ret_node);
}

/* ---- The workspace's clock, and what it makes of callers --------------------------- */

struct timespec back_now(struct writeback *b)
{
	return clock_at_ns((uint64_t)((int64_t)clock_wall_ns() + b->clock_ns));
}

/* The reply left at or after `there`, so the estimate never runs ahead of the workspace's clock. */
void back_learn_clock(struct writeback *b, const struct timespec *there)
{
	int64_t ns =
		(int64_t)there->tv_sec * 1000000000 + there->tv_nsec - (int64_t)clock_wall_ns();

	if (!b->knows_clock || ns > b->clock_ns)
		b->clock_ns = ns;
	b->knows_clock = true;
}

const struct identity *back_identity(struct writeback *b, const struct op_context *ctx)
{
	for (unsigned i = 0; i < b->identity_count; i++)
		if (b->identities[i].uid == ctx->uid && b->identities[i].gid == ctx->gid)
			return &b->identities[i];
	return NULL;
}

void back_learn_identity(
	struct writeback *b, const struct op_context *ctx, const struct attributes *made)
{
	if (back_identity(b, ctx) || b->identity_count == IDENTITIES_MAX)
		return;
	b->identities[b->identity_count++] = (struct identity){
		.uid = ctx->uid, .gid = ctx->gid, .makes_uid = made->uid, .makes_gid = made->gid};
}

void back_saw(struct writeback *b, uint64_t position)
{
	if (position > b->position)
		b->position = position;
}
