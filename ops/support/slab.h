/*
 * ops/support/slab.h - memory for very many small objects.
 *
 * malloc adds 8 bytes to each allocation and rounds up to 16: a tenth of what is kept about a
 * file.  Here an allocation takes its size rounded up to 8, from a page of 4 KiB that holds only
 * allocations of that size, and is freed with its size.  All slabs of the process are in one range
 * of addresses, so that a reference takes half the space of a pointer.
 * With the address sanitizer each is an allocation of its own, so that errors show.
 * A forked child has none of it (MADV_DONTFORK).
 * Threads: none; the owner guards it.  Different slabs may be used at the same time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#if defined(__SANITIZE_ADDRESS__)
#define SLAB_BY_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_BY_MALLOC 1
#endif
#endif
#ifndef SLAB_BY_MALLOC
#define SLAB_BY_MALLOC 0
#endif

enum { SLAB_STEP = 8, SLAB_MAX_BYTES = 512 };

struct slab_page;
struct slab_region;
LIST_HEAD(slab_pages, slab_page);

/* One that is all zeros is empty and ready. */
struct slab {
	struct slab_pages with_room[SLAB_MAX_BYTES / SLAB_STEP + 1]; /* by size */
	struct slab_pages empty;
	LIST_HEAD(, slab_region) regions;
};

/* Zeroed.  NULL: no memory, or more than SLAB_MAX_BYTES. */
void *slab_alloc(struct slab *slab, size_t size_bytes);

/* `size_bytes`: as it was allocated.  NULL is fine. */
void slab_free(struct slab *slab, void *data, size_t size_bytes);

/* Gives pages in which nothing is left back to the system. */
void slab_trim(struct slab *slab);

/* Frees everything (with the address sanitizer: what was freed before). */
void slab_done(struct slab *slab);

/* ---- References: what leads to an allocation of whichever slab; 0: to none ------------------- */

#if SLAB_BY_MALLOC
typedef uintptr_t slab_ref;
#else
typedef uint32_t slab_ref;
#endif

extern char *slab_base; /* reference 0; set before the first allocation */

/* Of one that is not 0 ... */
static inline void *slab_at_some(slab_ref ref)
{
#if SLAB_BY_MALLOC
	return (void *)ref; /* NOLINT */
#else
	return slab_base + (size_t)ref * SLAB_STEP;
#endif
}

/* ... or may be. */
static inline void *slab_at(slab_ref ref)
{
	return ref ? slab_at_some(ref) : NULL;
}

static inline slab_ref slab_ref_of(const void *data)
{
#if SLAB_BY_MALLOC
	return (uintptr_t)data;
#else
	return data ? (slab_ref)((size_t)((const char *)data - slab_base) / SLAB_STEP) : 0;
#endif
}
