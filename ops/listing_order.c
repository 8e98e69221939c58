#define XXH_INLINE_ALL
#include "ops/listing_order.h"

#include <xxhash.h>

uint64_t listing_order_of(const char *name, size_t length)
{
	return XXH3_64bits(name, length);
}
