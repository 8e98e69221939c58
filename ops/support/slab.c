#include "ops/support/slab.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, REGION_BYTES = 1 << 20, PAGES = REGION_BYTES / PAGE_BYTES };

/*
 * The range is reserved once; a region of it that is not used takes no memory.  Where addresses
 * are few (`ulimit -v`, 32 bits), most of them are left to stacks and to malloc.
 */
static const size_t RANGE_LEAST_BYTES = (size_t)4 << 20;
#if SIZE_MAX > UINT32_MAX
static const size_t RANGE_MOST_BYTES = (size_t)16 << 30;
#else
static const size_t RANGE_MOST_BYTES = (size_t)256 << 20;
#endif

static struct {
	pthread_mutex_t lock;
	char *first; /* NULL: not reserved yet */
	size_t regions;
	uint64_t *used; /* a bit for each region */
} range = {.lock = PTHREAD_MUTEX_INITIALIZER};

char *slab_base;

/* Allocations are numbered within their page, from 1 on. */
struct slab_page {
	LIST_ENTRY(slab_page) link; /* of those with room of this size, or of the empty ones */
	uint16_t size_bytes;        /* of each allocation */
	uint16_t used;
	uint16_t begun;      /* so many have been used at some time */
	uint16_t first_free; /* of those; each begins with the number of the next one */
};

/* At a multiple of its size, so that an allocation's address leads to it.  Its own pages come
 * first. */
struct slab_region {
	LIST_ENTRY(slab_region) link;
	struct slab_page pages[PAGES];
};

enum { OWN_PAGES = (sizeof(struct slab_region) + PAGE_BYTES - 1) / PAGE_BYTES };

static struct slab_region *region_of(const void *address)
{
	return (struct slab_region *)((uintptr_t)address & ~(uintptr_t)(REGION_BYTES - 1));
}

static char *page_data(const struct slab_page *page)
{
	struct slab_region *region = region_of(page);

	return (char *)region + (size_t)(page - region->pages) * PAGE_BYTES;
}

static struct slab_page *page_of(const void *data)
{
	struct slab_region *region = region_of(data);

	return &region->pages[(size_t)((const char *)data - (char *)region) / PAGE_BYTES];
}

/* By its number: where the next free one's is kept while it is free. */
static uint16_t *cell_at(const struct slab_page *page, unsigned number)
{
	return (uint16_t *)(page_data(page) + (size_t)(number - 1) * page->size_bytes);
}

static bool is_full(const struct slab_page *page)
{
	return page->used == PAGE_BYTES / page->size_bytes;
}

/* ---- The range ------------------------------------------------------------------------------ */

static unsigned long long mapped_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;

	if (file && fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

/* With a limit a quarter of what it leaves. */
static size_t wanted_bytes(void)
{
	unsigned long long used, share;
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return RANGE_MOST_BYTES;
	used = mapped_bytes();
	share = used < limit.rlim_cur ? (limit.rlim_cur - used) / 4 : 0;
	if (share > RANGE_MOST_BYTES)
		return RANGE_MOST_BYTES;
	return share < RANGE_LEAST_BYTES ? RANGE_LEAST_BYTES : (size_t)share;
}

static char *map(size_t bytes)
{
	void *mapped =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return mapped == MAP_FAILED ? NULL : mapped;
}

/* With the lock. */
static bool reserve(void)
{
	size_t bytes = wanted_bytes();
	char *start = map(bytes);

	while (!start && bytes / 2 >= RANGE_LEAST_BYTES) {
		bytes /= 2;
		start = map(bytes);
	}
	range.regions = bytes / REGION_BYTES - 1; /* what is left over makes up for the alignment */
	range.used = start ? calloc((range.regions + 63) / 64, sizeof(*range.used)) : NULL;
	if (!range.used) {
		if (start)
			munmap(start, bytes);
		return false;
	}
	range.first = (char *)region_of(start + REGION_BYTES - 1);
	slab_base = range.first;
	return true;
}

/* The lowest that is free.  NULL: none. */
static char *take_memory(void)
{
	char *memory = NULL;

	pthread_mutex_lock(&range.lock);
	for (size_t i = 0; (range.first || reserve()) && i < range.regions && !memory; i++) {
		uint64_t bit = (uint64_t)1 << i % 64;

		if (range.used[i / 64] == UINT64_MAX)
			i |= 63;
		else if (!(range.used[i / 64] & bit)) {
			range.used[i / 64] |= bit;
			memory = range.first + i * REGION_BYTES;
		}
	}
	pthread_mutex_unlock(&range.lock);
	return memory;
}

static void release_memory(char *memory)
{
	size_t i = (size_t)(memory - range.first) / REGION_BYTES;

	/* As the rest of the range is again: the kernel keeps them as one mapping. */
	madvise(memory, REGION_BYTES, MADV_DONTNEED);
	madvise(memory, REGION_BYTES, MADV_DOFORK);
	mprotect(memory, REGION_BYTES, PROT_NONE);
	pthread_mutex_lock(&range.lock);
	range.used[i / 64] &= ~((uint64_t)1 << i % 64);
	pthread_mutex_unlock(&range.lock);
}

/* ---- Regions and pages ---------------------------------------------------------------------- */

static bool add_region(struct slab *slab)
{
	char *memory = take_memory();
	struct slab_region *region;

	if (!memory)
		return false;
	if (mprotect(memory, REGION_BYTES, PROT_READ | PROT_WRITE) < 0) {
		release_memory(memory);
		return false;
	}
	region = (struct slab_region *)memory;
	/* A fork copies page tables: with 30 MB here, a command would start 2 ms later. */
	madvise(region, REGION_BYTES, MADV_DONTFORK);
	LIST_INSERT_HEAD(&slab->regions, region, link);
	for (size_t i = PAGES; i-- > OWN_PAGES;)
		LIST_INSERT_HEAD(&slab->empty, &region->pages[i], link);
	return true;
}

/* NULL: no memory. */
static struct slab_page *take_page(struct slab *slab, size_t size_bytes)
{
	struct slab_pages *with_room = &slab->with_room[size_bytes / SLAB_STEP];
	struct slab_page *page = LIST_FIRST(with_room);

	if (page)
		return page;
	if (LIST_EMPTY(&slab->empty) && !add_region(slab))
		return NULL;
	page = LIST_FIRST(&slab->empty);
	LIST_REMOVE(page, link);
	page->size_bytes = (uint16_t)size_bytes;
	page->begun = page->first_free = 0;
	LIST_INSERT_HEAD(with_room, page, link);
	return page;
}

static size_t round_up(size_t size_bytes)
{
	return (size_bytes + SLAB_STEP - 1) / SLAB_STEP * SLAB_STEP;
}

void *slab_alloc(struct slab *slab, size_t size_bytes)
{
	struct slab_page *page;
	uint16_t *cell;

	if (size_bytes > SLAB_MAX_BYTES)
		return NULL;
	if (SLAB_BY_MALLOC)
		return calloc(1, size_bytes);
	page = take_page(slab, round_up(size_bytes));
	if (!page)
		return NULL;
	if (page->first_free) {
		cell = cell_at(page, page->first_free);
		page->first_free = *cell;
	} else {
		cell = cell_at(page, ++page->begun);
	}
	page->used++;
	if (is_full(page))
		LIST_REMOVE(page, link);
	return memset(cell, 0, page->size_bytes);
}

void slab_free(struct slab *slab, void *data, size_t size_bytes)
{
	struct slab_page *page;
	uint16_t *cell = data;

	(void)size_bytes; /* its page knows it, too */
	if (SLAB_BY_MALLOC) {
		free(data);
		return;
	}
	if (!data)
		return;
	page = page_of(data);
	if (!is_full(page))
		LIST_REMOVE(page, link);
	*cell = page->first_free;
	page->first_free =
		(uint16_t)((size_t)((char *)data - page_data(page)) / page->size_bytes + 1);
	page->used--;
	if (page->used)
		LIST_INSERT_HEAD(&slab->with_room[page->size_bytes / SLAB_STEP], page, link);
	else
		LIST_INSERT_HEAD(&slab->empty, page, link);
}

static void trim_region(struct slab_region *region)
{
	for (size_t i = OWN_PAGES; i < PAGES; i++) {
		struct slab_page *page = &region->pages[i];

		if (page->used || !page->begun)
			continue;
		madvise(page_data(page), PAGE_BYTES, MADV_DONTNEED);
		page->begun = 0;
	}
}

static bool is_empty(const struct slab_region *region)
{
	size_t used = 0;

	for (size_t i = OWN_PAGES; i < PAGES; i++)
		used += region->pages[i].used;
	return used == 0;
}

static void give_back_region(struct slab_region *region)
{
	for (size_t i = OWN_PAGES; i < PAGES; i++)
		LIST_REMOVE(&region->pages[i], link);
	LIST_REMOVE(region, link);
	release_memory((char *)region);
}

void slab_trim(struct slab *slab)
{
	struct slab_region *next;

	for (struct slab_region *region = LIST_FIRST(&slab->regions); region; region = next) {
		next = LIST_NEXT(region, link);
		if (is_empty(region))
			give_back_region(region);
		else
			trim_region(region);
	}
}

void slab_done(struct slab *slab)
{
	struct slab_region *region;

	while ((region = LIST_FIRST(&slab->regions))) {
		LIST_REMOVE(region, link);
		release_memory((char *)region);
	}
	*slab = (struct slab){0};
}
