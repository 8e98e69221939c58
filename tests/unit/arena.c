#include "tests/unit/arena.h"

#include <assert.h>
#include <string.h>

#include "ops/support/slab.h"

struct arena arena;
bool arena_is_without_memory;
static bool in_arena;
static char *slab_base_outside;

void arena_begin(void)
{
	memset(&arena, 0, sizeof(arena));
	slab_base_outside = slab_base;
	slab_base = (char *)arena.bytes;
	in_arena = true;
}

void arena_end(void)
{
	in_arena = false;
	slab_base = slab_base_outside;
}

void arena_copy(struct arena *to, const struct arena *from)
{
	memcpy(to, from, offsetof(struct arena, bytes) + from->used);
}

static void *allocate(size_t size)
{
	size_t unit = (size + 15) / 16 + 1;
	uint8_t *found;

	assert(unit < 64 * 16);
	found = unit < 64 ? arena.free[unit] : NULL;
	if (found) {
		arena.free[unit] = *(void **)found;
	} else {
		assert(arena.used + unit * 16 <= sizeof(arena.bytes));
		found = arena.bytes + arena.used + 16;
		*(size_t *)(found - 16) = unit;
		arena.used += unit * 16;
	}
	return memset(found, 0, (unit - 1) * 16);
}

/* NOLINTBEGIN: the linker wants these names. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void __real_free(void *data);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *data);
void *__real_slab_alloc(struct slab *slab, size_t size);
void __real_slab_free(struct slab *slab, void *data, size_t size);
void *__wrap_slab_alloc(struct slab *slab, size_t size);
void __wrap_slab_free(struct slab *slab, void *data, size_t size);
uint64_t __wrap_hash_seed(void);

void *__wrap_malloc(size_t size)
{
	if (arena_is_without_memory)
		return NULL;
	return in_arena ? allocate(size) : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	if (arena_is_without_memory)
		return NULL;
	return in_arena ? allocate(count * size) : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
	const size_t size = strlen(text) + 1;
	char *copy = __wrap_malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

/* What is larger than what is kept by size (the tables) is never used again. */
void __wrap_free(void *data)
{
	uint8_t *bytes = data;
	size_t unit;

	if (bytes < arena.bytes || bytes >= arena.bytes + sizeof(arena.bytes)) {
		__real_free(data);
		return;
	}
	unit = *(size_t *)(bytes - 16);
	if (unit >= 64)
		return;
	*(void **)bytes = arena.free[unit];
	arena.free[unit] = bytes;
}

void *__wrap_slab_alloc(struct slab *slab, size_t size)
{
	if (arena_is_without_memory)
		return NULL;
	return in_arena ? allocate(size) : __real_slab_alloc(slab, size);
}

void __wrap_slab_free(struct slab *slab, void *data, size_t size)
{
	if (in_arena)
		__wrap_free(data);
	else
		__real_slab_free(slab, data, size);
}

/* Every run is the same. */
uint64_t __wrap_hash_seed(void)
{
	return 1;
}
/* NOLINTEND */
