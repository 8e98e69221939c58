/*
 * ops/support/hash_table.h - chained hash tables of entries that hold their own links.
 *
 * A table doubles as it fills; whoever knows the key walks the chain at hash_table_bucket().
 * Threads: none; the owner guards it.
 */
#pragma once

#include <stddef.h>

struct hash_table {
	void **buckets;
	size_t mask; /* buckets less one */
	size_t count;
};

/* The hash of an entry, and where it keeps the next one of its bucket. */
typedef size_t (*hash_table_hash)(const void *entry);
typedef void **(*hash_table_link)(void *entry);

/* 0 or -ENOMEM. */
int hash_table_init(struct hash_table *table);

/* The same, where there are many tables of few entries. */
int hash_table_init_small(struct hash_table *table);

/* Frees the buckets, not the entries.  A table of zeros is fine. */
void hash_table_done(struct hash_table *table);

/* The first entry of the chain with all entries of this hash, and some of others. */
static inline void *hash_table_bucket(const struct hash_table *table, size_t hash)
{
	return table->buckets[hash & table->mask];
}

/* Of all entries, in no order, the one after `entry` (NULL: the first); NULL: there is none.
 * `entry` may be removed once the next one is known; insertions move entries to other chains. */
void *hash_table_next(const struct hash_table *table, void *entry, hash_table_hash hash_of,
	hash_table_link link_of);

void hash_table_insert(
	struct hash_table *table, void *entry, hash_table_hash hash_of, hash_table_link link_of);

/* The entry must be there. */
void hash_table_remove(
	struct hash_table *table, void *entry, hash_table_hash hash_of, hash_table_link link_of);

/* Gives back what a table that was much fuller once does not need. */
void hash_table_shrink(struct hash_table *table, hash_table_hash hash_of, hash_table_link link_of);
