#include "fs/inode/misses.h"

#include "fs/inode/inode_internal.h"

bool misses_again(
	struct misses *misses, const struct inode *parent, const char *name, uint32_t now_ms)
{
	uint64_t hash = name_hash(parent, name);
	uint32_t tag = (uint32_t)(hash >> 32);
	uint64_t before = atomic_exchange_explicit(&misses->last[hash % MISSES_COUNT],
		(uint64_t)tag << 32 | now_ms, memory_order_relaxed);

	return before && before >> 32 == tag && now_ms - (uint32_t)before < MISSES_MS;
}
