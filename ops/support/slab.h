/*
 * ops/support/slab.h - memory for very many small things.
 *
 * malloc adds 8 bytes to each allocation and rounds up to 16: a tenth of what is kept about a
 * file.  Here an allocation takes its size rounded up to 8, from a page of 4 KiB that holds only
 * things of that size, and is freed with its size.
 * With the address sanitizer each is an allocation of its own, so that errors show.
 * A forked child has none of it (MADV_DONTFORK).
 * Threads: none; the owner guards it.
 */
#pragma once

#include <stddef.h>
#include <sys/queue.h>

enum { SLAB_STEP = 8, SLAB_MAX_BYTES = 512 }; /* what is larger comes from malloc */

struct slab_page;
struct slab_region;
LIST_HEAD(slab_pages, slab_page);

/* One that is all zeros is empty and ready. */
struct slab {
	struct slab_pages with_room[SLAB_MAX_BYTES / SLAB_STEP + 1]; /* by size */
	struct slab_pages empty;
	LIST_HEAD(, slab_region) regions;
};

/* Zeroed.  NULL: no memory. */
void *slab_alloc(struct slab *slab, size_t size_bytes);

/* `size_bytes`: as it was allocated.  NULL is fine. */
void slab_free(struct slab *slab, void *data, size_t size_bytes);

/* Gives pages in which nothing is left back to the system. */
void slab_trim(struct slab *slab);

/* Frees everything; what came from malloc must have been freed. */
void slab_done(struct slab *slab);
