#define XXH_INLINE_ALL
#include "ops/support/file_kinds.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

struct entry {
	struct file_kind kind;
	slab_ref next;  /* in the bucket */
	uint32_t users; /* references that were given out */
};

static size_t kind_hash(const struct file_kind *kind)
{
	return (size_t)XXH3_64bits_withSeed(kind, sizeof(*kind), hash_seed());
}

static size_t entry_hash(const void *entry)
{
	return kind_hash(&((const struct entry *)entry)->kind);
}

static slab_ref *entry_link(void *entry)
{
	return &((struct entry *)entry)->next;
}

int file_kinds_init(struct file_kinds *kinds)
{
	*kinds = (struct file_kinds){0};
	return slab_table_init(&kinds->table);
}

void file_kinds_done(struct file_kinds *kinds)
{
	for (size_t i = 0; kinds->table.buckets && i <= kinds->table.mask; i++)
		while (kinds->table.buckets[i]) {
			struct entry *entry = slab_at(kinds->table.buckets[i]);

			kinds->table.buckets[i] = entry->next;
			slab_free(&kinds->slab, entry, sizeof(*entry));
		}
	slab_table_done(&kinds->table);
	slab_done(&kinds->slab);
}

slab_ref file_kind_get(struct file_kinds *kinds, const struct file_kind *like)
{
	struct entry *entry = slab_table_bucket(&kinds->table, kind_hash(like));

	while (entry && memcmp(&entry->kind, like, sizeof(*like)) != 0)
		entry = slab_at(entry->next);
	if (!entry) {
		entry = slab_alloc(&kinds->slab, sizeof(*entry));
		if (!entry)
			return 0;
		entry->kind = *like;
		slab_table_insert(&kinds->table, entry, entry_hash, entry_link);
	}
	entry->users++;
	return slab_ref_of(entry);
}

void file_kind_put(struct file_kinds *kinds, slab_ref ref)
{
	struct entry *entry = slab_at(ref);

	if (!entry || --entry->users > 0)
		return;
	slab_table_remove(&kinds->table, entry, entry_hash, entry_link);
	slab_free(&kinds->slab, entry, sizeof(*entry));
}

const struct file_kind *file_kind_at(slab_ref ref)
{
	static const struct file_kind none;
	const struct entry *entry = slab_at(ref);

	return entry ? &entry->kind : &none;
}
