#include "ops/support/position.h"

#include <stdatomic.h>

uint64_t position_draw(void)
{
	static atomic_uint_fast64_t last;

	return atomic_fetch_add(&last, 1) + 1;
}
