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

static size_t place_hash(const void *entry)
{
	return hash_number(((const struct watch_place *)entry)->id.inode);
}

static void **place_link(void *entry)
{
	return (void **)&((struct watch_place *)entry)->next_by_id;
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
	return hash_table_init(&table->places) < 0 || hash_table_init(&table->watches) < 0 ? -ENOMEM
											   : 0;
}

static void place_free(struct watch_place *place)
{
	free(place->name);
	free(place);
}

void watch_table_done(struct watch_table *table)
{
	for (size_t i = 0; table->watches.buckets && i <= table->watches.mask; i++)
		while (table->watches.buckets[i]) {
			struct watch *watch = table->watches.buckets[i];

			table->watches.buckets[i] = watch->next_by_number;
			free(watch);
		}
	for (size_t i = 0; table->places.buckets && i <= table->places.mask; i++)
		while (table->places.buckets[i]) {
			struct watch_place *place = table->places.buckets[i];

			table->places.buckets[i] = place->next_by_id;
			place_free(place);
		}
	hash_table_done(&table->watches);
	hash_table_done(&table->places);
	*table = (struct watch_table){0};
}

struct watch_place *watch_table_find_place(struct watch_table *table, const struct object_id *id)
{
	struct watch_place *place = hash_table_bucket(&table->places, hash_number(id->inode));

	while (place && !object_id_equal(&place->id, id))
		place = place->next_by_id;
	return place;
}

struct watch *watch_table_find(struct watch_table *table, int number)
{
	struct watch *watch = hash_table_bucket(&table->watches, (unsigned)number);

	while (watch && watch->number != number)
		watch = watch->next_by_number;
	return watch;
}

/* ---- Places ---- */

void watch_table_tidy(struct watch_table *table, struct watch_place *place)
{
	while (place && !place->uses) {
		struct watch_place *parent = place->parent;

		hash_table_remove(&table->places, place, place_hash, place_link);
		place_free(place);
		if (parent)
			parent->uses--;
		place = parent;
	}
}

static struct watch_place *new_place(struct watch_table *table, const struct object_id *id)
{
	struct watch_place *place = calloc(1, sizeof(*place));

	if (!place)
		return NULL;
	place->id = *id;
	hash_table_insert(&table->places, place, place_hash, place_link);
	return place;
}

struct watch_place *watch_table_put(struct watch_table *table, struct watch_place *parent,
	const char *name, const struct object_id *id)
{
	struct watch_place *place = watch_table_find_place(table, id), *former;
	char *copy;

	if (place && place->parent == parent && strcmp(place->name, name) == 0)
		return place;
	for (const struct watch_place *above = parent; above; above = above->parent)
		if (above == place)
			return NULL;
	copy = strdup(name);
	if (copy && !place)
		place = new_place(table, id);
	if (!copy || !place) {
		free(copy);
		return NULL;
	}
	free(place->name);
	place->name = copy;
	former = place->parent;
	place->parent = parent;
	if (parent)
		parent->uses++;
	if (former) {
		former->uses--;
		watch_table_tidy(table, former);
	}
	return place;
}

char *watch_place_path(const struct watch_place *place, const char *name)
{
	size_t size = strlen(name) + 1;
	char *path, *start;

	for (const struct watch_place *at = place; at; at = at->parent)
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
		if (!place)
			break;
		name = place->name;
		place = place->parent;
	}
	memmove(path, start, strlen(start) + 1);
	return path;
}

void watch_table_set_failed(struct watch_table *table, struct watch_place *place, bool failed)
{
	if (place->has_failed == failed)
		return;
	place->has_failed = failed;
	place->uses += failed ? 1 : -1;
	table->failed_count += failed ? 1 : -1;
}

/* ---- Watches ---- */

/* Where it is counted. */
static size_t *count_of(struct watch_table *table, const struct watch *watch)
{
	return watch->is_shared ? &table->failed_count : &table->watched_count;
}

struct watch *watch_table_add(
	struct watch_table *table, struct watch_place *place, int number, bool is_shared)
{
	struct watch *watch = malloc(sizeof(*watch));

	if (!watch)
		return NULL;
	*watch = (struct watch){.place = place, .number = number, .is_shared = is_shared};
	hash_table_insert(&table->watches, watch, watch_hash, watch_link);
	place->watch = watch;
	place->uses++;
	++*count_of(table, watch);
	return watch;
}

void watch_table_end(struct watch_table *table, struct watch *watch)
{
	if (watch->has_ended)
		return;
	watch->has_ended = true;
	watch->place->watch = NULL;
	--*count_of(table, watch);
}

void watch_table_remove(struct watch_table *table, struct watch *watch)
{
	watch_table_end(table, watch);
	hash_table_remove(&table->watches, watch, watch_hash, watch_link);
	watch->place->uses--;
	watch_table_tidy(table, watch->place);
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
