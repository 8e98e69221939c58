/*
 * ops/listing_order.h - the order in which a mount lists a directory.
 *
 * It depends on each name alone, so that a name keeps its place while others come and go.  fs/
 * makes the positions of readdir from it; the cache fetches ahead in it, as most searches go
 * through a directory in the order in which they have read it, or backwards.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t listing_order_of(const char *name, size_t length);
