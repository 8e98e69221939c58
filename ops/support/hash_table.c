#include "ops/support/hash_table.h"

#include <errno.h>
#include <stdlib.h>

enum {
	BUCKETS_AT_FIRST = 1024,
	BUCKETS_SMALL = 4,
	FILL = 4, /* entries a bucket, before the table doubles */
};

static int init(struct hash_table *table, size_t buckets)
{
	table->buckets = calloc(buckets, sizeof(*table->buckets));
	table->mask = buckets - 1;
	table->count = 0;
	return table->buckets ? 0 : -ENOMEM;
}

int hash_table_init(struct hash_table *table)
{
	return init(table, BUCKETS_AT_FIRST);
}

int hash_table_init_small(struct hash_table *table)
{
	return init(table, BUCKETS_SMALL);
}

void hash_table_done(struct hash_table *table)
{
	free(table->buckets);
	*table = (struct hash_table){0};
}

void *hash_table_next(const struct hash_table *table, void *entry, hash_table_hash hash_of,
	hash_table_link link_of)
{
	void *next = entry ? *link_of(entry) : NULL;
	size_t at = entry ? (hash_of(entry) & table->mask) + 1 : 0;

	while (!next && table->buckets && at <= table->mask)
		next = table->buckets[at++];
	return next;
}

/* Without memory for it, the chains just become longer. */
static void resize(
	struct hash_table *table, size_t mask, hash_table_hash hash_of, hash_table_link link_of)
{
	void **buckets = calloc(mask + 1, sizeof(*buckets));

	if (!buckets)
		return;
	for (size_t i = 0; i <= table->mask; i++)
		while (table->buckets[i]) {
			void *entry = table->buckets[i];
			size_t at = hash_of(entry) & mask;

			table->buckets[i] = *link_of(entry);
			*link_of(entry) = buckets[at];
			buckets[at] = entry;
		}
	free(table->buckets);
	table->buckets = buckets;
	table->mask = mask;
}

void hash_table_insert(
	struct hash_table *table, void *entry, hash_table_hash hash_of, hash_table_link link_of)
{
	size_t at;

	if (table->count / FILL > table->mask)
		resize(table, table->mask * 2 + 1, hash_of, link_of);
	at = hash_of(entry) & table->mask;
	*link_of(entry) = table->buckets[at];
	table->buckets[at] = entry;
	table->count++;
}

void hash_table_remove(
	struct hash_table *table, void *entry, hash_table_hash hash_of, hash_table_link link_of)
{
	void **at = &table->buckets[hash_of(entry) & table->mask];

	while (*at != entry)
		at = link_of(*at);
	*at = *link_of(entry);
	table->count--;
}

void hash_table_shrink(struct hash_table *table, hash_table_hash hash_of, hash_table_link link_of)
{
	size_t mask = table->mask;

	while (mask >= BUCKETS_AT_FIRST && table->count < mask / 4)
		mask /= 2;
	if (mask != table->mask)
		resize(table, mask, hash_of, link_of);
}
