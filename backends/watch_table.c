#include "backends/watch_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/hash_seed.h"
#include "ops/support/path.h"

enum { FIRST_BUCKETS = 64 };

static uint64_t hash_path(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325U ^ hash_seed(); /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 0x100000001b3U;
	return hash;
}

static struct watch_node **path_bucket(const struct watch_table *table, uint64_t hash)
{
	return &table->by_path[hash & (table->bucket_count - 1)];
}

static struct watch_node **id_bucket(const struct watch_table *table, const struct object_id *id)
{
	uint64_t hash = (id->inode ^ hash_seed()) * 0x9e3779b97f4a7c15U;

	return &table->by_id[hash >> 32 & (table->bucket_count - 1)];
}

static struct watch_node **number_bucket(const struct watch_table *table, int number)
{
	return &table->by_number[(unsigned)number & (table->bucket_count - 1)];
}

void watch_node_free(struct watch_node *node)
{
	free(node->path);
	free(node);
}

void watch_table_done(struct watch_table *table)
{
	for (size_t i = 0; i < table->bucket_count; i++)
		while (table->by_path[i]) {
			struct watch_node *node = table->by_path[i];

			table->by_path[i] = node->next_by_path;
			watch_node_free(node);
		}
	free(table->by_path);
	free(table->by_id);
	free(table->by_number);
	*table = (struct watch_table){0};
}

static void link_node(struct watch_table *table, struct watch_node *node)
{
	struct watch_node **path = path_bucket(table, node->path_hash);
	struct watch_node **id = id_bucket(table, &node->id);
	struct watch_node **number = number_bucket(table, node->number);

	node->next_by_path = *path;
	*path = node;
	node->next_by_id = *id;
	*id = node;
	node->next_by_number = *number;
	*number = node;
}

static void unlink_node(struct watch_table *table, struct watch_node *node)
{
	struct watch_node **path = path_bucket(table, node->path_hash);
	struct watch_node **id = id_bucket(table, &node->id);
	struct watch_node **number = number_bucket(table, node->number);

	while (*path != node)
		path = &(*path)->next_by_path;
	*path = node->next_by_path;
	while (*id != node)
		id = &(*id)->next_by_id;
	*id = node->next_by_id;
	while (*number != node)
		number = &(*number)->next_by_number;
	*number = node->next_by_number;
}

static int grow(struct watch_table *table)
{
	size_t count = table->bucket_count ? table->bucket_count * 2 : FIRST_BUCKETS;
	struct watch_table larger = *table;

	if (table->node_count < table->bucket_count)
		return 0;
	larger.bucket_count = count;
	larger.by_path = calloc(count, sizeof(*larger.by_path));
	larger.by_id = calloc(count, sizeof(*larger.by_id));
	larger.by_number = calloc(count, sizeof(*larger.by_number));
	if (!larger.by_path || !larger.by_id || !larger.by_number) {
		free(larger.by_path);
		free(larger.by_id);
		free(larger.by_number);
		return table->bucket_count ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < table->bucket_count; i++)
		while (table->by_path[i]) {
			struct watch_node *node = table->by_path[i];

			table->by_path[i] = node->next_by_path;
			link_node(&larger, node);
		}
	free(table->by_path);
	free(table->by_id);
	free(table->by_number);
	*table = larger;
	return 0;
}

struct watch_node *watch_table_find(struct watch_table *table, const char *path)
{
	uint64_t hash = hash_path(path);
	struct watch_node *node = table->bucket_count ? *path_bucket(table, hash) : NULL;

	while (node &&
		(node->has_ended || node->path_hash != hash || strcmp(node->path, path) != 0))
		node = node->next_by_path;
	return node;
}

struct watch_node *watch_table_find_id(struct watch_table *table, const struct object_id *id)
{
	struct watch_node *node = table->bucket_count ? *id_bucket(table, id) : NULL;

	while (node && (node->has_ended || !object_id_equal(&node->id, id)))
		node = node->next_by_id;
	return node;
}

struct watch_node *watch_table_find_number(struct watch_table *table, int number)
{
	struct watch_node *node = table->bucket_count ? *number_bucket(table, number) : NULL;

	while (node && node->number != number)
		node = node->next_by_number;
	return node;
}

/* Where it is counted. */
static size_t *count_of(struct watch_table *table, const struct watch_node *node)
{
	return node->number < 0 || node->is_shared ? &table->failed_count : &table->watched_count;
}

struct watch_node *watch_table_add(struct watch_table *table, const char *path,
	const struct object_id *id, int number, bool is_shared)
{
	struct watch_node *node;

	if (grow(table) < 0)
		return NULL;
	node = malloc(sizeof(*node));
	if (!node)
		return NULL;
	*node = (struct watch_node){.id = *id,
		.path_hash = hash_path(path),
		.number = number,
		.is_shared = is_shared,
		.path = strdup(path)};
	if (!node->path) {
		free(node);
		return NULL;
	}
	link_node(table, node);
	table->node_count++;
	++*count_of(table, node);
	return node;
}

void watch_table_end(struct watch_table *table, struct watch_node *node)
{
	if (!node->has_ended)
		--*count_of(table, node);
	node->has_ended = true;
}

void watch_table_take(struct watch_table *table, struct watch_node *node)
{
	watch_table_end(table, node);
	unlink_node(table, node);
	table->node_count--;
}

int watch_table_move(struct watch_table *table, struct watch_node *node, const char *path,
	const struct object_id *id)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	unlink_node(table, node);
	free(node->path);
	node->path = copy;
	node->path_hash = hash_path(copy);
	node->id = *id;
	link_node(table, node);
	return 0;
}

struct watch_node **watch_table_within(
	struct watch_table *table, const char *path, size_t *ret_count)
{
	struct watch_node **found = NULL;
	size_t count = 0, capacity = 0;

	for (size_t i = 0; i < table->bucket_count; i++)
		for (struct watch_node *node = table->by_path[i]; node; node = node->next_by_path) {
			if (!path_is_within(node->path, path))
				continue;
			if (count == capacity) {
				struct watch_node **larger;

				capacity = capacity ? capacity * 2 : 16;
				larger = realloc(found, capacity * sizeof(*found));
				if (!larger) {
					free(found);
					*ret_count = 0;
					return NULL;
				}
				found = larger;
			}
			found[count++] = node;
		}
	*ret_count = count;
	return found;
}
