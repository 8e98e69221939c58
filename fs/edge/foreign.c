#define XXH_INLINE_ALL
#include "fs/edge/foreign.h"

#include <string.h>
#include <xxhash.h>

static uint64_t hash_of_path(const char *path)
{
	return XXH3_64bits(path, strlen(path));
}

static uint64_t hash_of_object(const struct object_id *id)
{
	const uint64_t parts[] = {id->device, id->inode, id->generation};

	return XXH3_64bits_withSeed(parts, sizeof(parts), 1);
}

static atomic_uint_fast64_t *set_of(struct foreign_times *times, uint64_t hash)
{
	return &times->slots[hash % FOREIGN_SLOTS & ~(uint64_t)(FOREIGN_WAYS - 1)];
}

static uint32_t age_ms(uint64_t slot, uint64_t now_ms)
{
	return slot ? (uint32_t)now_ms - (uint32_t)slot : UINT32_MAX;
}

/* In the place of the same key, or of the oldest. */
static void set_time(struct foreign_times *times, uint64_t hash, uint64_t now_ms)
{
	uint64_t fresh = (hash & ~(uint64_t)UINT32_MAX) | (uint32_t)now_ms;
	atomic_uint_fast64_t *set = set_of(times, hash), *victim = set;

	for (unsigned i = 0; i < FOREIGN_WAYS; i++) {
		if (atomic_load(&set[i]) >> 32 == hash >> 32) {
			victim = &set[i];
			break;
		}
		if (age_ms(atomic_load(&set[i]), now_ms) > age_ms(atomic_load(victim), now_ms))
			victim = &set[i];
	}
	atomic_store(victim, fresh ? fresh : 1);
}

static uint32_t find_age(struct foreign_times *times, uint64_t hash, uint64_t now_ms)
{
	atomic_uint_fast64_t *set = set_of(times, hash);

	for (unsigned i = 0; i < FOREIGN_WAYS; i++) {
		uint64_t slot = atomic_load(&set[i]);

		if (slot && slot >> 32 == hash >> 32)
			return age_ms(slot, now_ms);
	}
	return UINT32_MAX;
}

void foreign_own(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms)
{
	if (path)
		set_time(&foreign->own, hash_of_path(path), now_ms);
	if (id && id->inode)
		set_time(&foreign->own, hash_of_object(id), now_ms);
}

static enum foreign_verdict count_report(struct foreign *foreign, uint64_t now_ms)
{
	uint64_t period = now_ms / FOREIGN_AGAIN_MS << 32, before = atomic_load(&foreign->period);
	uint64_t after;

	do
		after = before >> 32 == period >> 32 ? before + 1 : period + 1;
	while (!atomic_compare_exchange_weak(&foreign->period, &before, after));
	if ((uint32_t)after <= FOREIGN_MAX)
		return FOREIGN_PATH;
	return (uint32_t)after == FOREIGN_MAX + 1 ? FOREIGN_MANY : FOREIGN_NOT;
}

uint32_t foreign_own_age(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms)
{
	uint32_t age = find_age(&foreign->own, hash_of_path(path), now_ms), other = UINT32_MAX;

	if (id && id->inode)
		other = find_age(&foreign->own, hash_of_object(id), now_ms);
	age = age < other ? age : other;
	return age < FOREIGN_OWN_MS ? age : UINT32_MAX;
}

bool foreign_is_own(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms)
{
	return foreign_own_age(foreign, path, id, now_ms) != UINT32_MAX;
}

enum foreign_verdict foreign_judge(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms)
{
	uint64_t hash = hash_of_path(path);

	if (foreign_is_own(foreign, path, id, now_ms) ||
		find_age(&foreign->reported, hash, now_ms) < FOREIGN_AGAIN_MS)
		return FOREIGN_NOT;
	set_time(&foreign->reported, hash, now_ms);
	return count_report(foreign, now_ms);
}
