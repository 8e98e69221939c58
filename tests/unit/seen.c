#include "tests/unit/seen.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* Not from malloc(), which may be the world's. */
static struct {
	uint64_t *hashes; /* 0: free */
	size_t mask, count;
} seen;

static uint64_t *hashes_new(size_t count)
{
	void *hashes = mmap(NULL, count * sizeof(uint64_t), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert(hashes != MAP_FAILED);
	return hashes;
}

static void seen_grow(void)
{
	const size_t mask = seen.mask ? seen.mask * 2 + 1 : (1 << 16) - 1;
	uint64_t *hashes = hashes_new(mask + 1);

	for (size_t k = 0; seen.hashes && k <= seen.mask; k++) {
		size_t i = seen.hashes[k] & mask;

		while (seen.hashes[k] && hashes[i])
			i = (i + 1) & mask;
		if (seen.hashes[k])
			hashes[i] = seen.hashes[k];
	}
	if (seen.hashes)
		munmap(seen.hashes, (seen.mask + 1) * sizeof(*hashes));
	seen.hashes = hashes;
	seen.mask = mask;
}

bool seen_add(uint64_t hash)
{
	size_t i;

	hash = hash ? hash : 1;
	if (seen.count * 2 >= seen.mask)
		seen_grow();
	for (i = hash & seen.mask; seen.hashes[i]; i = (i + 1) & seen.mask)
		if (seen.hashes[i] == hash)
			return false;
	seen.hashes[i] = hash;
	seen.count++;
	return true;
}

void seen_clear(void)
{
	if (seen.hashes)
		munmap(seen.hashes, (seen.mask + 1) * sizeof(*seen.hashes));
	memset(&seen, 0, sizeof(seen));
}
