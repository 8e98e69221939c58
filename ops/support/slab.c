#include "ops/support/slab.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define EACH_BY_MALLOC true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EACH_BY_MALLOC true
#endif
#endif
#ifndef EACH_BY_MALLOC
#define EACH_BY_MALLOC false
#endif

enum { PAGE_BYTES = 4096, REGION_BYTES = 1 << 20, PAGES = REGION_BYTES / PAGE_BYTES };

/* Things are numbered within their page, from 1 on. */
struct slab_page {
	LIST_ENTRY(slab_page) link; /* of those with room of this size, or of the empty ones */
	uint16_t size_bytes;        /* of each thing */
	uint16_t used;
	uint16_t begun;      /* so many have been used at some time */
	uint16_t first_free; /* of those; each begins with the number of the next one */
};

/* At a multiple of its size, so that a thing's address leads to it.  Its own pages come first. */
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
static uint16_t *thing_at(const struct slab_page *page, unsigned number)
{
	return (uint16_t *)(page_data(page) + (size_t)(number - 1) * page->size_bytes);
}

static bool is_full(const struct slab_page *page)
{
	return page->used == PAGE_BYTES / page->size_bytes;
}

static bool add_region(struct slab *slab)
{
	/* A range of twice the size has an aligned region in it; the rest is given back. */
	char *start = mmap(NULL, (size_t)REGION_BYTES * 2, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct slab_region *region;
	size_t before;

	if (start == MAP_FAILED)
		return false;
	region = region_of(start + REGION_BYTES - 1);
	before = (size_t)((char *)region - start);
	if (before)
		munmap(start, before);
	munmap((char *)region + REGION_BYTES, REGION_BYTES - before);
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
	uint16_t *thing;

	if (EACH_BY_MALLOC || size_bytes > SLAB_MAX_BYTES)
		return calloc(1, size_bytes);
	page = take_page(slab, round_up(size_bytes));
	if (!page)
		return NULL;
	if (page->first_free) {
		thing = thing_at(page, page->first_free);
		page->first_free = *thing;
	} else {
		thing = thing_at(page, ++page->begun);
	}
	page->used++;
	if (is_full(page))
		LIST_REMOVE(page, link);
	return memset(thing, 0, page->size_bytes);
}

void slab_free(struct slab *slab, void *data, size_t size_bytes)
{
	struct slab_page *page;
	uint16_t *thing = data;

	if (EACH_BY_MALLOC || size_bytes > SLAB_MAX_BYTES) {
		free(data);
		return;
	}
	if (!data)
		return;
	page = page_of(data);
	if (!is_full(page))
		LIST_REMOVE(page, link);
	*thing = page->first_free;
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
	munmap(region, REGION_BYTES);
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
		munmap(region, REGION_BYTES);
	}
	*slab = (struct slab){0};
}
