#include "ops/support/slab_table.h"

#include <errno.h>
#include <stdlib.h>

enum {
	BUCKETS_AT_FIRST = 4,
	FILL = 4, /* entries a bucket, before the table doubles */
};

int slab_table_init(struct slab_table *table)
{
	*table = (struct slab_table){.mask = BUCKETS_AT_FIRST - 1};
	table->buckets = calloc(BUCKETS_AT_FIRST, sizeof(*table->buckets));
	return table->buckets ? 0 : -ENOMEM;
}

void slab_table_done(struct slab_table *table)
{
	free(table->buckets);
	*table = (struct slab_table){0};
}

/* Without memory for it, the chains just become longer. */
static void resize(
	struct slab_table *table, size_t mask, slab_table_hash hash_of, slab_table_link link_of)
{
	slab_ref *buckets = calloc(mask + 1, sizeof(*buckets));

	if (!buckets)
		return;
	for (size_t i = 0; i <= table->mask; i++)
		while (table->buckets[i]) {
			slab_ref ref = table->buckets[i];
			void *entry = slab_at(ref);
			size_t at = hash_of(entry) & mask;

			table->buckets[i] = *link_of(entry);
			*link_of(entry) = buckets[at];
			buckets[at] = ref;
		}
	free(table->buckets);
	table->buckets = buckets;
	table->mask = mask;
}

void slab_table_insert(
	struct slab_table *table, void *entry, slab_table_hash hash_of, slab_table_link link_of)
{
	size_t at;

	if (table->count / FILL > table->mask)
		resize(table, table->mask * 2 + 1, hash_of, link_of);
	at = hash_of(entry) & table->mask;
	*link_of(entry) = table->buckets[at];
	table->buckets[at] = slab_ref_of(entry);
	table->count++;
}

void slab_table_remove(
	struct slab_table *table, void *entry, slab_table_hash hash_of, slab_table_link link_of)
{
	slab_ref ref = slab_ref_of(entry), *at = &table->buckets[hash_of(entry) & table->mask];

	while (*at != ref)
		at = link_of(slab_at(*at));
	*at = *link_of(entry);
	table->count--;
}

void slab_table_shrink(struct slab_table *table, slab_table_hash hash_of, slab_table_link link_of)
{
	size_t mask = table->mask;

	while (mask >= BUCKETS_AT_FIRST && table->count < mask / 4)
		mask /= 2;
	if (mask != table->mask)
		resize(table, mask, hash_of, link_of);
}
