/*
 * ops/support/heap.h - what malloc keeps of memory that was freed.
 *
 * Threads: any.
 */
#pragma once

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Gives it back to the system, of the heaps of all threads.  It walks through them and takes their
 * locks: for when nothing else is under way. */
static inline void heap_trim(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
