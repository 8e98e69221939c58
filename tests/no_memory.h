/*
 * tests/no_memory.h - for one test program: allocations that fail when the test says so.
 *
 * The program is linked with no_memory_args (tests/meson.build).  What libraries outside the
 * project allocate does not fail.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_long memory_lasts = -1; /* for so many allocations; -1: for ever */
static atomic_bool memory_comes_back; /* after one that failed */

/* There is memory for `count` more allocations (of all threads) and for none after those ... */
static inline void memory_ends_after(long count)
{
	memory_comes_back = false;
	memory_lasts = count;
}

/* ... or but for one. */
static inline void memory_lacks_once_after(long count)
{
	memory_comes_back = true;
	memory_lasts = count;
}

static inline void memory_is_back(void)
{
	memory_lasts = -1;
}

static inline bool has_memory(void)
{
	long left = memory_lasts;

	while (left > 0 && !atomic_compare_exchange_weak(&memory_lasts, &left, left - 1))
		;
	if (left == 0 && memory_comes_back)
		memory_is_back();
	return left != 0;
}

/* NOLINTBEGIN: the linker wants these names. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *data, size_t size);
struct slab;
void *__real_slab_alloc(struct slab *slab, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *data, size_t size);
void *__wrap_slab_alloc(struct slab *slab, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);

void *__wrap_malloc(size_t size)
{
	return has_memory() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return has_memory() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *data, size_t size)
{
	return has_memory() ? __real_realloc(data, size) : NULL;
}

void *__wrap_slab_alloc(struct slab *slab, size_t size)
{
	return has_memory() ? __real_slab_alloc(slab, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
	return has_memory() ? __real_strdup(text) : NULL;
}

char *__wrap_strndup(const char *text, size_t length)
{
	return has_memory() ? __real_strndup(text, length) : NULL;
}
/* NOLINTEND */
