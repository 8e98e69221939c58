#include "backends/local/watch_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/hash_seed.h"
#include "ops/support/path.h"

/* ---- By id and by number ---- */

static size_t hash_number(uint64_t number)
{
	return (size_t)((number ^ hash_seed()) * 0x9e3779b97f4a7c15U >> 32);
}

static size_t node_hash(const void *entry)
{
	return hash_number(((const struct watch_node *)entry)->id.inode);
}

static void **node_link(void *entry)
{
	return (void **)&((struct watch_node *)entry)->next_by_id;
}

static size_t watch_hash(const void *entry)
{
	return (unsigned)((const struct watch *)entry)->number;
}

static void **watch_link(void *entry)
{
	return (void **)&((struct watch *)entry)->next_by_number;
}

int watch_table_init(struct watch_table *table)
{
	*table = (struct watch_table){0};
	return hash_table_init(&table->nodes) < 0 || hash_table_init(&table->watches) < 0 ? -ENOMEM
											  : 0;
}

static void node_free(struct watch_node *node)
{
	free(node->name);
	free(node);
}

void watch_table_done(struct watch_table *table)
{
	for (size_t i = 0; table->watches.buckets && i <= table->watches.mask; i++)
		while (table->watches.buckets[i]) {
			struct watch *watch = table->watches.buckets[i];

			table->watches.buckets[i] = watch->next_by_number;
			free(watch);
		}
	for (size_t i = 0; table->nodes.buckets && i <= table->nodes.mask; i++)
		while (table->nodes.buckets[i]) {
			struct watch_node *node = table->nodes.buckets[i];

			table->nodes.buckets[i] = node->next_by_id;
			node_free(node);
		}
	hash_table_done(&table->watches);
	hash_table_done(&table->nodes);
	*table = (struct watch_table){0};
}

struct watch_node *watch_table_find_node(struct watch_table *table, const struct object_id *id)
{
	struct watch_node *node = hash_table_bucket(&table->nodes, hash_number(id->inode));

	while (node && !object_id_equal(&node->id, id))
		node = node->next_by_id;
	return node;
}

struct watch *watch_table_find(struct watch_table *table, int number)
{
	struct watch *watch = hash_table_bucket(&table->watches, (unsigned)number);

	while (watch && watch->number != number)
		watch = watch->next_by_number;
	return watch;
}

/* ---- Places ---- */

void watch_table_tidy(struct watch_table *table, struct watch_node *node)
{
	while (node && !node->uses) {
		struct watch_node *parent = node->parent;

		hash_table_remove(&table->nodes, node, node_hash, node_link);
		node_free(node);
		if (parent)
			parent->uses--;
		node = parent;
	}
}

static struct watch_node *node_new(struct watch_table *table, const struct object_id *id)
{
	struct watch_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->id = *id;
	hash_table_insert(&table->nodes, node, node_hash, node_link);
	return node;
}

struct watch_node *watch_table_put(struct watch_table *table, struct watch_node *parent,
	const char *name, const struct object_id *id)
{
	struct watch_node *node = watch_table_find_node(table, id), *old_parent;
	char *copy;

	if (node && node->parent == parent && strcmp(node->name, name) == 0)
		return node;
	for (const struct watch_node *above = parent; above; above = above->parent)
		if (above == node)
			return NULL;
	copy = strdup(name);
	if (copy && !node)
		node = node_new(table, id);
	if (!copy || !node) {
		free(copy);
		return NULL;
	}
	free(node->name);
	node->name = copy;
	old_parent = node->parent;
	node->parent = parent;
	if (parent)
		parent->uses++;
	if (old_parent) {
		old_parent->uses--;
		watch_table_tidy(table, old_parent);
	}
	return node;
}

char *watch_node_path(const struct watch_node *node, const char *name)
{
	size_t size = strlen(name) + 1;
	char *path, *start;

	for (const struct watch_node *at = node; at; at = at->parent)
		size += strlen(at->name) + 1;
	path = malloc(size);
	if (!path)
		return NULL;
	start = path + size - 1;
	*start = '\0';
	for (;;) {
		size_t length = strlen(name);

		if (length && *start)
			*--start = '/';
		start -= length;
		memcpy(start, name, length);
		if (!node)
			break;
		name = node->name;
		node = node->parent;
	}
	memmove(path, start, strlen(start) + 1);
	return path;
}

void watch_table_set_failed(struct watch_table *table, struct watch_node *node, bool failed)
{
	if (node->has_failed == failed)
		return;
	node->has_failed = failed;
	node->uses += failed ? 1 : -1;
	table->failed_count += failed ? 1 : -1;
}

/* ---- Watches ---- */

/* Where it is counted. */
static size_t *count_of(struct watch_table *table, const struct watch *watch)
{
	return watch->is_shared ? &table->failed_count : &table->watched_count;
}

struct watch *watch_table_add(
	struct watch_table *table, struct watch_node *node, int number, bool is_shared)
{
	struct watch *watch = malloc(sizeof(*watch));

	if (!watch)
		return NULL;
	*watch = (struct watch){.node = node, .number = number, .is_shared = is_shared};
	hash_table_insert(&table->watches, watch, watch_hash, watch_link);
	node->watch = watch;
	node->uses++;
	++*count_of(table, watch);
	return watch;
}

void watch_table_end(struct watch_table *table, struct watch *watch)
{
	if (watch->has_ended)
		return;
	watch->has_ended = true;
	watch->node->watch = NULL;
	--*count_of(table, watch);
}

void watch_table_remove(struct watch_table *table, struct watch *watch)
{
	watch_table_end(table, watch);
	hash_table_remove(&table->watches, watch, watch_hash, watch_link);
	watch->node->uses--;
	watch_table_tidy(table, watch->node);
	free(watch);
}

int *watch_table_numbers(const struct watch_table *table, size_t *ret_count)
{
	int *numbers = malloc((table->watches.count + 1) * sizeof(*numbers));
	size_t count = 0;

	for (size_t i = 0; numbers && i <= table->watches.mask; i++)
		for (const struct watch *watch = table->watches.buckets[i]; watch;
			watch = watch->next_by_number)
			numbers[count++] = watch->number;
	*ret_count = count;
	return numbers;
}
