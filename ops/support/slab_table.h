/*
 * ops/support/slab_table.h - hash_table.h, for entries from a slab: links are references.
 *
 * Threads: none; the owner guards it.
 */
#pragma once

#include "ops/support/slab.h"

struct slab_table {
	slab_ref *buckets;
	size_t mask; /* buckets less one */
	size_t count;
};

/* The hash of an entry, and where it keeps the next one of its bucket. */
typedef size_t (*slab_table_hash)(const void *entry);
typedef slab_ref *(*slab_table_link)(void *entry);

/* 0 or -ENOMEM. */
int slab_table_init(struct slab_table *table);

/* Frees the buckets, not the entries.  A table of zeros is fine. */
void slab_table_done(struct slab_table *table);

/* The first entry of the chain with all entries of this hash, and some of others. */
static inline void *slab_table_bucket(const struct slab_table *table, size_t hash)
{
	return slab_at(table->buckets[hash & table->mask]);
}

void slab_table_insert(
	struct slab_table *table, void *entry, slab_table_hash hash_of, slab_table_link link_of);

/* The entry must be there. */
void slab_table_remove(
	struct slab_table *table, void *entry, slab_table_hash hash_of, slab_table_link link_of);

/* Gives back what a table that was much fuller once does not need. */
void slab_table_shrink(struct slab_table *table, slab_table_hash hash_of, slab_table_link link_of);
